"""Signed payloads: their vectors, and everything that must not count."""

import hashlib
import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.make_signed_vectors import VECTORS, files
from twinlink import signed_payload
from twinlink.identity import Identity, trust
from twinlink.identity.watched import WatchedIdentity
from twinlink.signed_payload import HEAD_OCTETS, Refusal, Signer, Verified, Verifier, body_of

TWIN, GNB = 7, 9  # sessions
BODY = b'{"id": "b-1"}'


class Pair:
    """A twin and a gNB that trust each other."""

    def __init__(self, folder: Path) -> None:
        self.folders = {"twin": folder / "twin-1", "gnb": folder / "gnb-1"}
        twin = Identity.create(self.folders["twin"], "twin-1", "twin")
        gnb = Identity.create(self.folders["gnb"], "gnb-1", "gnb")
        trust.trust(gnb.folder, twin.line, "twin")
        trust.trust(twin.folder, gnb.line, "gnb")
        self.twin, self.gnb = WatchedIdentity(twin), WatchedIdentity(gnb)
        self.load()
        self.signer, self.verifier = Signer(self.twin, TWIN), Verifier(self.gnb, GNB)

    def load(self) -> None:
        """As `WatchedIdentity` does by itself, a little later."""
        self.twin.identity, self.gnb.identity = (Identity.load(self.folders[role]) for role in ("twin", "gnb"))

    def sign(self, body: bytes = BODY) -> bytes:
        return self.signer.sign("control", body, "gnb-1", GNB)

    def verify(self, payload: bytes, node: str | None = "twin-1", session: int = TWIN) -> str:
        """The rule that it breaks; empty if it counts."""
        verdict = self.verifier.verify("control", payload, node, session)
        return verdict.rule if isinstance(verdict, Refusal) else ""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("identities"))


def test_the_vectors_are_what_the_script_makes() -> None:
    assert {path.name: path.read_bytes() for path in VECTORS.iterdir()} == files()


@pytest.mark.parametrize(("name", "kind"), [("decision", 1), ("result", 2)])
def test_a_vector_can_be_read_by_what_the_page_says(name: str, kind: int) -> None:
    """Written down independently of the code under test."""
    octets = (VECTORS / f"{name}.bin").read_bytes()
    says = json.loads((VECTORS / f"{name}.json").read_text())
    public = bytes.fromhex(says["signer_public_key_hex"])
    audience = hashlib.sha256(says["audience"].encode()).digest()[:16] if says["audience"] else bytes(16)
    sessions = [int(says[key], 16) for key in ("audience_session", "session")]
    key = hashlib.sha256(public).digest()[:8]
    assert octets[:51] == struct.pack("!2sB8s16sQQQ", b"tS", kind, key, audience, *sessions, int(says["counter"]))
    assert octets[115:].decode() == says["body"]
    signed = b"twinlink signed payload 1\0" + says["flow"].encode() + b"\0" + octets[:51] + octets[115:]
    Ed25519PublicKey.from_public_bytes(public).verify(octets[51:115], signed)


@given(body=st.binary(max_size=300))
def test_what_the_twin_signed_counts_once(pair: Pair, body: bytes) -> None:
    payload = pair.sign(body)
    assert len(payload) == HEAD_OCTETS + len(body)
    verdict = pair.verifier.verify("control", memoryview(payload), "twin-1", TWIN)
    assert isinstance(verdict, Verified)
    assert (verdict.signer, bytes(verdict.body), bytes(body_of(payload))) == ("twin-1", body, body)
    assert pair.verify(payload) == "replay"


@given(at=st.integers(0, HEAD_OCTETS + len(BODY) - 1), change=st.integers(1, 255))
def test_no_octet_may_be_changed(pair: Pair, at: int, change: int) -> None:
    payload = bytearray(pair.sign())
    payload[at] ^= change
    assert pair.verify(bytes(payload)) == (
        "unsigned" if at < 2 else "flow" if at < 3 else "key" if at < 11 else "signature"
    )


@given(payload=st.binary(max_size=400), begin=st.sampled_from([b"", b"tS", b"tS\1"]))
def test_other_octets_never_count(pair: Pair, payload: bytes, begin: bytes) -> None:
    assert pair.verify(begin + payload)


@given(order=st.lists(st.integers(0, 9), max_size=40))
def test_of_copies_in_any_order_each_counts_once_and_only_if_none_after_it_has(pair: Pair, order: list[int]) -> None:
    payloads = [pair.sign() for _ in range(10)]
    counted = [number for number in order if not pair.verify(payloads[number])]
    assert counted == sorted(set(counted))
    assert set(counted) <= set(order)
    assert counted[-1:] == sorted(order)[-1:]


def _of_a_stranger(pair: Pair, folder: Path) -> bytes:
    stranger = Identity.create(folder / "stranger", "twin-1", "twin")
    return Signer(WatchedIdentity(stranger), TWIN).sign("control", BODY, "gnb-1", GNB)


def _of_an_observer(pair: Pair, folder: Path) -> bytes:
    observer = Identity.create(folder / "observer", "observer-1", "twin")
    trust.trust(pair.folders["gnb"], observer.line, "observer")
    pair.load()
    return Signer(WatchedIdentity(observer), TWIN).sign("control", BODY, "gnb-1", GNB)


def _of_a_peer_that_has_expired(pair: Pair, folder: Path) -> bytes:
    past = Identity.create(folder / "past", "twin-2", "twin", expiry=datetime.now(UTC) - timedelta(seconds=1))
    with (pair.folders["gnb"] / "trusted").open("a") as trusted:  # as it was written before
        trusted.write(f"twin {past.line}\n")
    pair.load()
    return Signer(WatchedIdentity(past), TWIN).sign("control", BODY, "gnb-1", GNB)


def _of_a_peer_that_was_revoked(pair: Pair, folder: Path) -> bytes:
    payload = pair.sign()
    trust.revoke(pair.folders["gnb"], "twin-1")
    pair.load()
    return payload


@pytest.mark.parametrize(
    ("rule", "make"),
    [
        ("unsigned", lambda pair, _: BODY),
        ("flow", lambda pair, _: pair.signer.sign("control-result", BODY)),
        ("key", _of_a_stranger),
        ("role", _of_an_observer),
        ("expired", _of_a_peer_that_has_expired),
        ("revoked", _of_a_peer_that_was_revoked),
        ("audience", lambda pair, _: pair.signer.sign("control", BODY, "gnb-2", GNB)),
        ("audience", lambda pair, _: pair.signer.sign("control", BODY)),
        ("restart", lambda pair, _: pair.signer.sign("control", BODY, "gnb-1", GNB - 1)),
        ("session", lambda pair, _: Signer(pair.twin, TWIN + 1).sign("control", BODY, "gnb-1", GNB)),
    ],
)
def test_each_rule_refuses_and_names_itself(tmp_path: Path, rule: str, make: Callable[[Pair, Path], bytes]) -> None:
    pair = Pair(tmp_path)
    payload = make(pair, tmp_path)
    assert pair.verify(payload) == rule
    assert pair.verify(payload) == rule  # and not that of a replay


def test_a_signature_of_one_flow_is_none_on_another(pair: Pair) -> None:
    payload = bytearray(pair.signer.sign("control-result", BODY))
    payload[2] = 1
    assert pair.verify(bytes(payload)) == "signature"


@pytest.mark.parametrize("node", ["twin-2", None])
def test_a_trusted_twin_cannot_decide_in_the_session_of_another_node(pair: Pair, node: str | None) -> None:
    assert pair.verify(pair.sign(), node) == "session"


def test_results_are_for_every_twin(pair: Pair) -> None:
    payload = Signer(pair.gnb, GNB).sign("control-result", BODY)
    verifier = Verifier(pair.twin, TWIN)
    assert isinstance(verifier.verify("control-result", payload, "gnb-1", GNB), Verified)
    refusal = verifier.verify("control-result", payload, "gnb-1", GNB)
    assert isinstance(refusal, Refusal)
    assert refusal.text == "counter 1 of gnb-1 is not above 1, which has counted"


def test_old_and_new_keys_count_side_by_side(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    before, withheld = pair.sign(), pair.sign()
    line = trust.prepare_rotation(pair.folders["twin"], datetime.now(UTC) + timedelta(days=1))
    trust.trust(pair.folders["gnb"], line, "twin", beside=True)
    pair.load()
    assert pair.verify(before) == ""
    trust.complete_rotation(pair.folders["twin"])
    pair.load()
    assert pair.verify(pair.sign()) == ""
    assert pair.verify(withheld) == "replay"  # by a router, say: it is older than what counted


def test_the_memory_for_counters_is_limited(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_payload, "MAX_SESSIONS", 3)
    for session in range(10, 20):
        payload = Signer(pair.twin, session).sign("control", BODY, "gnb-1", GNB)
        assert pair.verify(payload, session=session) == ""
    assert len(pair.verifier._counters) == 3
    assert pair.verify(payload, session=19) == "replay"
