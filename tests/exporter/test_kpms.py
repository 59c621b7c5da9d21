"""KPMs as the exporter makes them of what agents tell; the emulator's agents, without sockets."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import twinlink_e3 as e3
from twinlink_exporter.kpms import Kpms
from twinlink_exporter.session import Session, SetUp
from twinlink_ran_emulator.aerial_agent import RELEASES, AerialAgent
from twinlink_ran_emulator.agent import FIRST_INDICATION_GAP_NS, Agent

from twinlink.appkit.journal import Journal
from twinlink.digest import WINDOW_NS
from twinlink.kpm import Kpm, Source

BEGIN_NS = 1_800_000_000 * WINDOW_NS
N_PRBS = 24
KPM = Kpm(Source.GNB, N_PRBS, 100, 0, BEGIN_NS, WINDOW_NS, 1200, 2400)


class Told(list[bytes]):
    """What was sent, and whether there is a twin."""

    twin = True


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def kpms(told: Told, tmp_path: Path) -> Iterator[Kpms]:
    with Journal("test", tmp_path / "log", stream=io.StringIO()) as journal:
        yield Kpms(N_PRBS, journal, lambda: told.twin, told.append)


def subscribed(agent: Agent) -> tuple[Session, SetUp]:
    """A session of the exporter with this agent, subscribed to all that it wants."""
    session, event = Session("exporter", "1", "test", e3.MessageIds()), None
    while not isinstance(event, SetUp):
        request = session.request(0)
        assert request
        answer = agent.setup(request)
        assert answer
        event = session.setup_answered(answer, 0)
    session.connected(0)
    while (request := session.request(0)) is not None:
        for answer in agent.receive(request, 0):
            pdu = session.read(answer)
            assert pdu
            session.received(pdu, 0)
    return session, event


def slot(grants: tuple[tuple[int, int], ...] | None, number: int = 0, **fields: int | bool) -> e3.SlotIndication:
    return e3.SlotIndication("/x", 0, 0, 1, 0, number, 41, 1, grants=grants, **fields)  # type: ignore[arg-type]


def indicated(agent: Agent, session: Session, data: bytes, function: int) -> e3.IndicationMessage:
    (octets,) = agent.indications(data, FIRST_INDICATION_GAP_NS, function)
    pdu = session.read(octets)
    assert isinstance(pdu, e3.IndicationMessage)
    assert session.expects(pdu)
    return pdu


@pytest.mark.parametrize("release", RELEASES)
def test_the_grants_of_nvidias_agent_are_counted(kpms: Kpms, told: Told, release: str) -> None:
    agent = AerialAgent(N_PRBS, RELEASES[release])
    session, event = subscribed(agent)
    assert event.offers_kpms
    rng, used = np.random.default_rng(57), 0
    for k in range(160):
        first, size = int(rng.integers(0, 12)), int(rng.integers(0, 13))
        given = slot(((first, size), (20, 2)), k % 10, names_cells=RELEASES[release].names_cells)
        data = agent.codec.encode_structure(given)
        message = indicated(agent, session, data, e3.L1_KPM_FUNCTION)
        read = session.codec.decode_structure(e3.SlotIndication, message.protocol_data)
        assert read.grants == ((first, size), (20, 2))
        kpms.slot(read, BEGIN_NS + k * WINDOW_NS // 60, 0)
        used += len({*range(first, first + size), 20, 21}) if 60 <= k < 120 else 0
    (kpm,) = [Kpm.decode(payload) for payload in told]
    assert (kpm.begin_ns, kpm.slots, kpm.used, kpm.available) == (BEGIN_NS + WINDOW_NS, 60, used, 60 * N_PRBS)
    assert kpms.newest == kpm


@pytest.mark.parametrize(
    ("codec", "slots"),
    [(e3.G0, False), (e3.ASN1_CODECS["G2b"], True), *((codec, False) for codec in e3.JSON_CODECS.values())],
    ids=lambda given: getattr(given, "name", ""),
)
def test_the_emulators_kpms_are_passed_on_in_every_encoding(
    kpms: Kpms, told: Told, codec: e3.Codec, slots: bool
) -> None:
    agent = Agent(N_PRBS, codec, by_reference=slots, kpms=True)
    session, event = subscribed(agent)
    assert event.offers_kpms
    assert session.controls  # which a subscription to KPMs does not replace
    kpms.reported(indicated(agent, session, e3.encode_kpm(KPM.encode()), e3.KPM_FUNCTION).protocol_data)
    assert [Kpm.decode(payload) for payload in told] == [KPM]


def test_an_agent_that_tells_none_and_one_with_another_function_of_that_number() -> None:
    assert not subscribed(Agent(N_PRBS))[1].offers_kpms
    agent = Agent(N_PRBS, kpms=True)
    octets = agent.setup(e3.G0.encode(e3.SetupRequest(1, "1.0.0", "a", "1", "v")))
    assert octets
    renamed = octets.replace(e3.KPM_NAME, b"another-name")
    assert renamed != octets
    session = Session("exporter", "1", "test", e3.MessageIds())
    session._request_id = 1
    event = session.setup_answered(renamed, 0)
    assert isinstance(event, SetUp)
    assert not event.offers_kpms
    assert len(session._subscriptions) == 1


@pytest.mark.parametrize(
    "octets",
    [b"", b"[]", b"{}", b'{"kpm":1}', b'{"kpm":"0g"}', b'{"kpm":"01"}', b"[" * 9000, e3.encode_kpm(b"x" * 56)],
)
def test_what_is_no_report_is_refused(kpms: Kpms, told: Told, octets: bytes) -> None:
    with pytest.raises(e3.MalformedPdu):
        kpms.reported(octets)
    twins = Kpm(Source.TWIN, N_PRBS, 100, 0, BEGIN_NS, WINDOW_NS, 1200, 2400).encode()
    with pytest.raises(e3.MalformedPdu, match="of the twin"):
        kpms.reported(e3.encode_kpm(twins))
    assert not told


@pytest.mark.parametrize(
    "given",
    [slot(None), slot(((20, 5),)), slot(((0, 4),), n_cells=2)],
    ids=["not told", "outside the carrier", "of several cells"],
)
def test_grants_that_are_not_known_count_as_missing(kpms: Kpms, told: Told, given: e3.SlotIndication) -> None:
    for k in range(30):
        kpms.slot(given if k == 15 else slot(((0, 6),)), BEGIN_NS + k * WINDOW_NS // 10, 2 if k == 16 else 0)
    (kpm,) = [Kpm.decode(payload) for payload in told]
    assert (kpm.slots, kpm.missing, kpm.used) == (9, 3, 54)


def test_nothing_is_sent_without_a_twin_nor_of_a_second_in_which_the_agent_was_lost(kpms: Kpms, told: Told) -> None:
    told.twin = False
    for k in range(30):
        kpms.slot(slot(((0, 6),)), BEGIN_NS + k * WINDOW_NS // 10, 0)
    assert kpms.newest
    told.twin = True
    kpms.lost()
    assert kpms.newest is None  # the metric does not go on with it
    for k in range(35, 55):
        kpms.slot(slot(((0, 6),)), BEGIN_NS + k * WINDOW_NS // 10, 0)
    assert [Kpm.decode(payload).begin_ns for payload in told] == [BEGIN_NS + 4 * WINDOW_NS]
