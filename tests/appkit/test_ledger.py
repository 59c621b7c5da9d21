"""An application's records of its messages, against the link's counters."""

from pathlib import Path

import numpy as np

import twinlink
from twinlink.appkit import ledger, records


def test_what_both_ends_noted_is_one_story(tmp_path: Path) -> None:
    ours, theirs = ledger.Ledger(("up", "quiet"), ()), ledger.Ledger((), ("up", "quiet"))
    with twinlink.open("memory", listen="tcp/ledger:1", node="twin") as twin:
        for flow in ("up", "quiet"):
            twin.receiver(flow, handler=theirs.received)
        with twinlink.open("memory", connect="tcp/ledger:1", node="gnb") as gnb:
            gnb.wait_ready()
            up = gnb.sender("up", on_ack=ours.acknowledged)
            assert [ours.send(up, bytes(size)) for size in (5, 0, 700)] == [0, 1, 2]
            up.flush()
            twin.close()
            ours.send(up, bytes(9))  # without a peer
        stats = up.stats()
    ours.write(tmp_path)
    theirs.write(tmp_path)

    sent, received = (records.read(records.file(tmp_path, "up", side)) for side in ("sent", "received"))
    assert sent["octets"].tolist() == [5, 0, 700, 9]
    assert sent["sequence"].tolist() == [0, 1, 2, 3]
    assert sent["acknowledged"].tolist() == [True, True, True, False]
    assert (len(sent), sent["octets"].sum()) == (stats["sent"], stats["sent_octets"])
    assert (np.diff(sent["sent_ns"]) >= 0).all()
    assert (sent["scheduled_ns"] == sent["sent_ns"]).all()
    there = sent[sent["acknowledged"]]
    for name in ("sequence", "octets", "sent_ns"):
        assert received[name].tolist() == there[name].tolist()
    assert received["received_ns"].tolist() == there["peer_received_ns"].tolist()
    assert (there["rtt_ns"] > 0).all()
    assert not received["round"].any()

    for side in ("sent", "received"):  # that nothing was sent is known, too
        assert len(records.read(records.file(tmp_path, "quiet", side))) == 0


def test_the_sessions_of_a_sender_are_rounds(tmp_path: Path) -> None:
    noted = ledger.Ledger((), ("up",))
    for epoch, sequence in ((7, 0), (7, 1), (9, 0)):
        noted.received(twinlink.Message(b"x", "up", sequence, epoch, "gnb", 1, 2))
    noted.write(tmp_path)
    table = records.read(records.file(tmp_path, "up", "received"))
    assert list(zip(table["round"].tolist(), table["sequence"].tolist(), strict=True)) == [(0, 0), (0, 1), (1, 0)]
