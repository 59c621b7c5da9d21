"""The path through three containers: emulator -> exporter -> twin, and a PRB block back."""

import signal

from .pod import Start
from .program import Program

ENDPOINT = "tcp/127.0.0.1:7447"
RECORDS = 550  # of the example recording


def walk(start: Start, transport: str) -> str:
    """Start the three, let the example recording pass, and end them; says what was seen.

    Asserts that every record arrived, that nothing was lost, that a block was installed and none stands at the end, and
    that each program ends with 0 on SIGTERM as the first process of its container.
    """
    common = ("--log", "/dev/stdout")
    link = ("--transport", transport)
    twin = start("twinlink-replay", *link, "--listen", ENDPOINT, "--count", str(RECORDS), *common)
    twin.wait_for("started")
    exporter = start(
        "twinlink-exporter", *link, "--connect", ENDPOINT, "--insecure-control", "--max-age-ms", "5000", *common
    )
    exporter.wait_for("peer-up")
    emulator = start("twinlink-ran-emulator", "--pace", "2", *common)
    assert emulator.wait_for("done")["complete"], emulator.err
    ended(twin)
    (seen,) = twin.events("summary")
    assert seen["records"] == RECORDS, seen
    assert seen["missing"] == seen["dropped"] == seen["malformed"] == 0, seen

    second = start("twinlink-replay", *link, "--listen", ENDPOINT, *common)  # the first one ended by itself
    second.wait_for("peer-up")
    for program in (exporter, second, emulator):
        program.send(signal.SIGTERM)
        ended(program)
    (sent,) = exporter.events("summary")
    assert sent["indications"] == sent["exported"] == RECORDS, sent
    assert sent["spectrum"]["lost"] == 0, sent
    assert sent["blocks_installed"] > 0, sent
    assert sent["blocks_cleared"] > 0, sent
    asked = [event["prbs"] for event in emulator.events("control")]
    assert any(asked), emulator.err
    assert asked[-1] == [], "the block stands although the exporter has ended"
    blocks = f"{sent['blocks_installed']} decisions installed, the last block cleared"
    return f"{RECORDS} records arrived, 0 lost, {blocks}, each program ended with 0 on SIGTERM"


def ended(program: Program) -> None:
    """Wait for its end, which must be a good one."""
    code = program.code()
    assert code == 0, f"exit code {code}: {program.err}"
    assert "Traceback" not in program.err, program.err
