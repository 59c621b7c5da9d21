"""What `twinlink list` and `twinlink top` share: the link that only looks, and what is seen as tables."""

import argparse
import os
import secrets
import shutil
from typing import TYPE_CHECKING, Any

from twinlink import Link
from twinlink.process.host_name import host_name

from ..appkit import linking
from ..appkit.console import rendered, wrapped
from ..appkit.formatting import decimal, grouped, listed, payload
from ..process.text import on_one_line, printable

if TYPE_CHECKING:
    from rich.table import Table

UNKNOWN = "-"


def open_link(given: argparse.Namespace, command: str) -> Link:
    """Open the link that only looks.  Its name tells the peers what it is, and is new each time."""
    from rich import console, table  # noqa: F401  (what takes long to load, before peers wait for this one)

    if given.node is None and given.identity is None:
        given.node = f"{command}-{host_name()}-{os.getpid()}-{secrets.token_hex(2)}"
    return linking.open_link(given)


def seen_from_here(listening: bool, record: dict[str, Any]) -> str:
    """What of a link is seen at this end, from a sample."""
    peers = record["peers"]
    if not peers:
        return "no peer is here"
    if record["mirror"] is not None:
        text = f"Seen by the mirror of {on_one_line(record['mirror'])}: what it sends, and what it receives."
        if unseen := record["unseen"]:
            text += f" {unseen:,} messages did not get here, and are not in the table."
        if unreadable := record["unreadable"]:
            text += f" {unreadable:,} messages of the mirror could not be read: is its twinlink of another version?"
        return wrapped(text)
    names = listed(on_one_line(peer["node"]) for peer in peers)
    text = (
        f"Seen from here: what {names} send{'s' if len(peers) == 1 else ''} to {'this side' if listening else 'all'}."
    )
    for peer in peers:
        if peer["unseen"]:
            node, count = on_one_line(peer["node"]), peer["unseen"]
            more = "1 more peer, whose messages go" if count == 1 else f"{count} more peers, whose messages go"
            text += f" {node} hears {more} to it alone; its --mirror would show them."
    return wrapped(text)


def tables(record: dict[str, Any]) -> str:
    """The peers and flows of a sample, in the width of the terminal; elsewhere as wide as they are."""
    parts = [rendered(_peer_table(record["peers"]))] if record["peers"] else []
    parts.append(rendered(_flow_table(record["flows"])) if record["flows"] else "no flow yet")
    return printable("\n\n".join(parts))


def fitted(text: str) -> str:
    """The lines that fit the height of the terminal, with a line for the rest."""
    lines, height = text.splitlines(), shutil.get_terminal_size().lines - 1
    if len(lines) <= height:
        return text
    return "\n".join([*lines[: height - 1], f"... {len(lines) - height + 1} more lines; `twinlink list` shows all"])


def _flow_table(flows: list[dict[str, Any]]) -> "Table":
    table = table_of("flow", "from", "payload", "sent", "msg/s", "MB/s", "size", "age ms", "lost", "loss", words=3)
    for row in flows:
        loss, octets = row["loss_ratio"], row["octets"]
        table.add_row(
            on_one_line(row["flow"]), on_one_line(row["node"]), row["format"] or UNKNOWN, f"{row['messages']:,}",
            grouped(row["rate_hz"]), grouped(row["goodput_mb_s"]), UNKNOWN if octets is None else payload(octets),
            UNKNOWN if row["age_ns"] is None else decimal(row["age_ns"] / 1e6), f"{row['lost']:,}",
            UNKNOWN if loss is None else f"{100 * loss:.3g}%",
        )  # fmt: skip
    return table


def _peer_table(peers: list[dict[str, Any]]) -> "Table":
    table = table_of("peer", "", words=2)
    for row in peers:
        table.add_row(on_one_line(row["node"]), row["state"])
    return table


def table_of(*columns: str, words: int) -> "Table":
    """A table whose first ``words`` columns are text; the others are figures, aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for place, title in enumerate(columns):
        if place < words:
            table.add_column(title, overflow="fold")
        else:
            table.add_column(title, justify="right", no_wrap=True)
    return table
