"""Reasons why two sides with identities do not meet, and what ends each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.identity.nodes import Node, make
from twinlink.identity import trust


def renew(node: Node) -> None:
    trust.prepare_rotation(node.folder)
    trust.complete_rotation(node.folder)


@dataclass(frozen=True)
class Cell:
    """One reason why two sides do not meet.

    Attributes:
        spoil: brings it about; returns the identities with which the two sides are opened.
        repair: ends it, without opening a link anew.  None: only another identity would.
        says: part of the connector's error.
        refusal: the reason of the listener's event `Refused`, if it has one.
    """

    spoil: Callable[[Path, Node, Node], tuple[Node | None, Node | None]]
    repair: Callable[[Node, Node], None] | None
    says: str
    refusal: str | None = None


def _unknown_at_listener(folder: Path, twin: Node, gnb: Node) -> tuple[Node, Node]:
    (twin.folder / "trusted").unlink()
    return twin, gnb


def _unknown_at_connector(folder: Path, twin: Node, gnb: Node) -> tuple[Node, Node]:
    (gnb.folder / "trusted").unlink()
    gnb.trust(make(folder, "twin-2", "twin"))
    return twin, gnb


def _none_at_connector(folder: Path, twin: Node, gnb: Node) -> tuple[Node, Node]:
    (gnb.folder / "trusted").unlink()
    return twin, gnb


def _revoked_at_listener(folder: Path, twin: Node, gnb: Node) -> tuple[Node, Node]:
    twin.revoke(gnb)
    return twin, gnb


def _revoked_at_connector(folder: Path, twin: Node, gnb: Node) -> tuple[Node, Node]:
    gnb.revoke(twin)
    return twin, gnb


def _expired(folder: Path, twin: Node, gnb: Node, of: str) -> tuple[Node, Node]:
    made = make(folder / "expired", *("gnb-3", "gnb") if of == "gnb" else ("twin-3", "twin"), expires_in_s=-1)
    other = twin if of == "gnb" else gnb
    made.trust(other)
    with (other.folder / "trusted").open("a") as trusted:  # `trust` refuses it
        trusted.write(f"{of} {made.identity.line}\n")
    if of == "twin":  # it is the only one that the connector trusts
        (gnb.folder / "trusted").write_text(f"{of} {made.identity.line}\n")
    made.trust(other)
    return (twin, made) if of == "gnb" else (made, gnb)


def _renew_and_trust(of: Node, at: Node) -> None:
    renew(of)
    at.trust(of, beside=True)


CELLS = {
    "key unknown at the listener": Cell(
        _unknown_at_listener, lambda twin, gnb: twin.trust(gnb), "key trust LINE --as gnb-1 --role gnb", "unknown"
    ),
    "key unknown at the connector": Cell(
        _unknown_at_connector, lambda twin, gnb: gnb.trust(twin), "has another key than those trusted here (of twin-2)"
    ),
    "none trusted at the connector": Cell(
        _none_at_connector, lambda twin, gnb: gnb.trust(twin), "no key of a peer is trusted in"
    ),
    "revoked at the listener": Cell(
        _revoked_at_listener, lambda twin, gnb: _renew_and_trust(gnb, twin), "run `twinlink key rotate", "revoked"
    ),
    "revoked at the connector": Cell(_revoked_at_connector, _renew_and_trust, "no key of a peer is trusted in"),
    "connector expired": Cell(
        lambda folder, twin, gnb: _expired(folder, twin, gnb, "gnb"),
        lambda twin, gnb: _renew_and_trust(gnb, twin),
        "run `twinlink key rotate",
        "expired",
    ),
    "listener expired": Cell(
        lambda folder, twin, gnb: _expired(folder, twin, gnb, "twin"),
        _renew_and_trust,
        "no key of a peer is trusted in",
    ),
    "connector without an identity": Cell(
        lambda folder, twin, gnb: (twin, None), None, "takes only nodes with an identity"
    ),
    "listener without an identity": Cell(
        lambda folder, twin, gnb: (None, gnb), None, "this side refuses the listener at 127.0.0.1"
    ),
}
