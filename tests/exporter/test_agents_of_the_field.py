"""Each form of E3 agent, spoken by the emulator: recognised without options, by few questions, and read bit for bit."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import pytest
import twinlink_e3 as e3
from twinlink_e3.ran_buffers import OPENAIRINTERFACE_ROWS, VERSION
from twinlink_exporter.observation import Carrier
from twinlink_ran_emulator.aerial_agent import RELEASES, AerialAgent
from twinlink_ran_emulator.agent import Agent

from twinlink.slots import SlotSpectrum
from twinlink.spectrum import Spectrum
from twinlink.testing import wait_until

from .conftest import StartExporter, Twin
from .emulated_agent import EmulatedAgent, symbol
from .gnb_memory import GnbMemory
from .slot_agent import FIRST_CELL, SlotAgent, no_gap
from .twin_side import natural, propose, receive, results

__all__ = ["no_gap"]
G0, G1, G2A, G2B = e3.ASN1_CODECS.values()
JSON_G0, JSON_G2, JSON_NESTED = e3.JSON_CODECS.values()
INLINE = ["inline-only", "no-kpm", "no-policy"]
SLOTS = ["shared-memory-only", "no-kpm"]
OBSERVATIONS = 24  # received of each agent
N_PRBS = 24


@dataclass(frozen=True)
class Form:
    """A form of agent.

    Attributes:
        codec: that it speaks.
        link, transport: over which.
        questions: setup requests until it has set this dApp up.
        limits: what it is said to lack.
        by_reference: whether it hands slots over in shared memory.
        release: of NVIDIA's agent.
        cells: of the gNB.
        controls: whether it takes PRB blocks.
    """

    codec: e3.Codec
    link: str
    transport: str
    questions: int
    limits: list[str]
    by_reference: bool = False
    release: str | None = None
    cells: int = 1
    controls: bool = True

    def __str__(self) -> str:
        name = f"Aerial-{self.release}-{self.cells}" if self.release else self.codec.name
        return f"{name}-{'slots' if self.by_reference else 'inline'}-{self.link}-{self.transport}"


def aerial(release: str, cells: int = 1) -> Form:
    limits = ["shared-memory-only", "no-symbol-mask", "no-control"]
    return Form(JSON_NESTED, "zmq", "tcp", 2, limits, True, release, cells, controls=False)


FORMS = [
    Form(G0, "posix", "ipc", 1, [*INLINE, "no-sequence-ids"]),
    Form(G0, "zmq", "tcp", 1, [*INLINE, "no-sequence-ids"]),
    Form(G1, "zmq", "ipc", 2, [*INLINE, "no-sequence-ids"]),
    Form(G2A, "posix", "ipc", 1, INLINE),
    Form(G2B, "zmq", "ipc", 2, INLINE),
    Form(JSON_G0, "zmq", "ipc", 2, [*INLINE, "no-sequence-ids"]),
    Form(JSON_G2, "posix", "tcp", 2, INLINE),
    Form(JSON_NESTED, "zmq", "ipc", 2, INLINE),
    Form(G2A, "posix", "ipc", 1, SLOTS, by_reference=True),
    Form(G2B, "posix", "ipc", 2, SLOTS, by_reference=True),
    Form(G2B, "zmq", "tcp", 2, [*SLOTS, "no-control"], by_reference=True, controls=False),
    Form(JSON_G2, "zmq", "ipc", 2, SLOTS, by_reference=True),
    Form(JSON_NESTED, "posix", "ipc", 2, SLOTS, by_reference=True),
    aerial("26-1"),
    aerial("26-1.2"),
    aerial("26-1.2", cells=2),
    aerial("next"),
    aerial("next", cells=2),
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def slot_agent(form: Form, endpoints: e3.Endpoints, stack: ExitStack) -> tuple[GnbMemory, SlotAgent]:
    release = RELEASES[form.release] if form.release else None
    version, rows = (release.version, 20) if release else (VERSION, OPENAIRINTERFACE_ROWS)
    agent = AerialAgent(106, release) if release else Agent(106, form.codec, form.controls, by_reference=True)
    late_s = 0.001 if release and release.indicates_first else None
    memory = stack.enter_context(GnbMemory(rows=rows, version=version))
    return memory, stack.enter_context(SlotAgent(endpoints, memory, 1, 0.002, late_s, agent, form.cells))


@pytest.mark.usefixtures("no_gap")
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_an_agent_is_recognised_by_itself_and_read_bit_for_bit(
    form: Form,
    twin: Twin,
    start_exporter: StartExporter,
    endpoints: e3.Endpoints,
    tcp_endpoints: e3.Endpoints,
    stack: ExitStack,
) -> None:
    chosen = replace(endpoints if form.transport == "ipc" else tcp_endpoints, link=form.link)
    receiver = twin[0].receiver("spectrum")
    if form.by_reference:
        memory, agent = slot_agent(form, chosen, stack)
        emulated = agent.agent
    else:
        emulated = stack.enter_context(EmulatedAgent(chosen, form.codec)).agent
    carrier = Carrier(N_PRBS, 30_000) if form.by_reference else Carrier()
    exporter = start_exporter(replace(chosen, link=e3.ANY_LINK), carrier=carrier)
    taken = [message.payload for message in receive(receiver, OBSERVATIONS)]

    for payload in taken:
        if not form.by_reference:
            spectrum = Spectrum.decode(payload)
            assert np.array_equal(spectrum.samples, natural(symbol(spectrum.e3["timestamp"] - 1)))
            continue
        for slot in SlotSpectrum.decode(payload).slots:
            truth = memory.row((slot.sfn * 20 + slot.slot) * form.cells)[0, :, : N_PRBS * 12]
            assert np.array_equal(np.asarray(slot.data).view(np.uint16)[0], truth)
    assert exporter.counters.slots_not_indicated == 0

    exporter.wait_for("subscribed")
    (setup,) = exporter.events("e3-setup")
    assert (setup["generation"], setup["link"]) == (form.codec.name, form.link)
    assert [event["limit"] for event in exporter.events("e3-limit")] == form.limits
    # What it could not read, and what it set up: it gave one identifier.
    asked = emulated.counters["malformed"], emulated.counters["SetupRequest"]
    assert asked == (form.questions - 1, 1)
    assert len(emulated._dapps) == 1
    other_cells = [FIRST_CELL + 1] if form.release == "next" else [None]
    exporter.wait_for("other-cells", count=form.cells - 1)
    assert [event["cell_id"] for event in exporter.events("other-cells")] == other_cells[: form.cells - 1]

    propose(twin[0], prbs=(4, 5))
    answer = results(twin[0], 1)[0]
    expected = "acknowledged by the RAN" if form.controls else "e3: the E3 agent offers no control of PRB blocks"
    assert (answer.status, answer.reason) == ("installed" if form.controls else "rejected", expected)
    assert emulated.block == ((4, 5) if form.controls else ())
    exporter.stop()
    wait_until(lambda: not emulated._dapps and not emulated.block)
    assert exporter.counters.undecodable == 0
