"""A session finds the generation of an agent, or names it; no agent is harmed, no identifier is used up."""

import itertools

import pytest
import twinlink_e3 as e3
from twinlink_exporter.block import Control
from twinlink_exporter.generation_search import GenerationSearch
from twinlink_exporter.session import OtherGeneration, Refused, Session, SessionEvent, SetUp, State, Subscribed
from twinlink_ran_emulator.agent import Agent

CODECS: list[e3.Codec] = [*e3.ASN1_CODECS.values(), *e3.JSON_CODECS.values()]
# A refusal does not tell how a JSON agent writes payloads.
IN_A_REFUSAL = {"JSON-nested": "JSON-G2"}
EACH_CODEC = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)


def make(generation: str = "auto", encoding: str = "auto") -> Session:
    return Session("dapp", "1.0.0", "vendor", e3.MessageIds(), GenerationSearch.of(generation, encoding))


def set_up(session: Session, agent: Agent) -> list[SessionEvent]:
    """Ask until the session has to wait; returns its events."""
    events = []
    while session.state is State.SETUP and (request := session.request(0)) is not None:
        if (reply := agent.setup(request)) is None:
            break
        events.append(session.setup_answered(reply, 0))
    return events


@EACH_CODEC
def test_every_generation_is_found_without_options(codec: e3.Codec) -> None:
    session, agent = make(), Agent(106, codec)
    events = set_up(session, agent)
    assert events[-1] == SetUp(1, "twinlink-ran-emulator", codec.name)
    reads_g0 = codec.name in ("G0", "G2a")
    answered = IN_A_REFUSAL.get(codec.name, codec.name)
    assert events[:-1] == ([] if reads_g0 else [OtherGeneration("twinlink-ran-emulator", "G0", answered)])
    assert session.codec.name == codec.name
    assert session.releases() == []
    session.connected(0)
    answers = agent.receive(session.request(0) or b"", 0)
    pdu = session.read(answers[0])
    assert pdu is not None
    assert session.received(pdu, 0) == Subscribed(1)
    (ack,) = agent.receive(session.control(Control(7, (3, 4), 10)) or b"", 0)
    assert session.codec.decode(ack).request_id == 7  # type: ignore[union-attr]
    assert agent.block == (3, 4)
    agent.receive(session.release() or b"", 0)
    for _ in range(200):  # twice as many as there are identifiers in G0
        session = make()
        assert isinstance(set_up(session, agent)[-1], SetUp)
        agent.receive(session.release() or b"", 0)
        assert session.dapp_id == 1


@EACH_CODEC
def test_options_that_match_ask_in_that_generation_only(codec: e3.Codec) -> None:
    agent = Agent(106, codec, answers_unreadable=False)
    for search in ((codec.generation, codec.encoding), ("auto", codec.encoding)):
        if search == ("auto", "asn1") and codec.name not in ("G0", "G2a"):
            continue  # the search asks in G0, which these agents cannot read
        assert isinstance(set_up(make(*search), agent)[-1], SetUp)
    assert agent.counters["malformed"] == 0


@EACH_CODEC
@pytest.mark.parametrize("generation", ["G0", "G1", "G2a", "G2b"])
def test_another_generation_than_the_given_one_is_named(codec: e3.Codec, generation: str) -> None:
    if codec.name in (generation, "G2a" if generation == "G0" else ""):
        return
    session, agent = make(generation), Agent(106, codec)
    (event,) = set_up(session, agent)
    assert isinstance(event, Refused)
    name = IN_A_REFUSAL.get(codec.name, codec.name)
    assert f"speaks {name}, which --e3-generation {generation} excludes" in event.reason
    assert session.state is State.SETUP
    assert session.request(0) is None  # later


def test_another_encoding_than_the_given_one_is_named() -> None:
    (event,) = set_up(make(encoding="asn1"), Agent(106, e3.JSON_CODECS["G0"]))
    assert isinstance(event, Refused)
    assert "speaks JSON-G0, which --e3-encoding asn1 excludes" in event.reason
    (event,) = set_up(make(encoding="json"), Agent(106, e3.ASN1_CODECS["G1"]))
    assert isinstance(event, Refused)
    assert "speaks G1" in event.reason


@pytest.mark.parametrize("generation", ["G0", "G2b"])
def test_a_positive_answer_of_no_use_gives_its_identifier_back(generation: str) -> None:
    """As of a G0 agent that took a request in G1 for another, or one that lacks the spectrum function."""
    codec = e3.ASN1_CODECS[generation]
    for session in (make("G1"), make()):
        session.request(0)
        response = e3.SetupResponse(1, session._request_id, "positive", "gnb", "1.0.0", 42, ())
        assert isinstance(session.setup_answered(codec.encode(response), 0), Refused | OtherGeneration)
        (release,) = map(codec.decode, session.releases())
        assert isinstance(release, e3.ReleaseMessage)
        assert release.dapp_identifier == 42
        assert session.releases() == []
        assert session.release() is None


def test_an_agent_that_another_generation_replaces_is_found_anew() -> None:
    session = make()
    for codec in itertools.islice(itertools.cycle(CODECS), 2 * len(CODECS)):
        assert isinstance(set_up(session, Agent(106, codec))[-1], SetUp)
        assert session.codec.name == codec.name
        session.lost()


def test_an_agent_that_answers_in_one_generation_after_the_other_is_not_asked_for_ever() -> None:
    session, wanderer = make(), itertools.cycle([e3.ASN1_CODECS["G1"], e3.ASN1_CODECS["G2b"]])
    events = []
    while session.request(0) is not None:
        response = e3.SetupResponse(1, 5, "negative", "gnb")
        events.append(session.setup_answered(next(wanderer).encode(response), 0))
    assert [type(event) for event in events] == [OtherGeneration, Refused]


def test_the_agents_that_a_wrong_question_sticks_are_asked_in_g0() -> None:
    agent = Agent(106, e3.G0, answers_unreadable=False)
    assert isinstance(set_up(make(), agent)[-1], SetUp)
    stuck = Agent(106, e3.JSON_CODECS["G0"], answers_unreadable=False)
    assert set_up(make(), stuck) == []  # known, and documented: --e3-encoding json
    assert isinstance(set_up(make(encoding="json"), Agent(106, e3.JSON_CODECS["G0"]))[-1], SetUp)


def test_all_identifiers_used_up_is_a_refusal() -> None:
    agent = Agent(106)
    for _ in range(100):
        assert isinstance(set_up(make(), agent)[-1], SetUp)
    assert isinstance(set_up(make(), agent)[-1], Refused)


def test_without_the_control_nothing_is_sent() -> None:
    session, agent = make(), Agent(106, e3.ASN1_CODECS["G2b"], controls=False)
    assert set_up(session, agent)[-1] == SetUp(1, "twinlink-ran-emulator", "G2b", offers_block=False)
    assert session.control(Control(7, (3,), 10)) is None
    request = session.codec.decode(session.request(10**9) or b"")
    assert isinstance(request, e3.SubscriptionRequest)
    assert request.control_identifier_list == ()


def test_a_pdu_of_another_generation_is_named() -> None:
    session = make()
    set_up(session, Agent(106, e3.ASN1_CODECS["G2b"]))
    with pytest.raises(e3.MalformedPdu, match="it is a PDU of G1"):
        session.read(e3.ASN1_CODECS["G1"].encode(e3.SubscriptionResponse(1000, 800, 5, "positive", 9, (1,), (1,))))


def test_what_comes_before_setup_is_for_others() -> None:
    assert make().read(b"anything") is None


def test_without_connections_no_subscription_is_asked_for_and_no_identifier_used_up() -> None:
    session, agent = make(), Agent(106)
    set_up(session, agent)
    for second in range(1, 60):
        assert session.request(second * 10**9, connected=False) is None
    assert session.state is State.SUBSCRIBE
    assert agent.counters["SetupRequest"] == 1
    for second in range(60, 66):
        request = session.request(second * 10**9)  # connected, but no answer comes
        assert request is not None
    assert session.dapp_id is None
    assert [e3.decode(octets).dapp_identifier for octets in session.releases()] == [1]  # type: ignore[union-attr]


def test_a_g0_agent_that_reads_a_g1_request_gets_its_identifier_back() -> None:
    """As libe3 0.0.9, which accepts one G1 request of ten: it finds the message id 1 in it."""
    session = make("G1")
    session.request(0)
    response = e3.SetupResponse(5, 1, "positive", "gnb", "1.0.0", 42, ())
    event = session.setup_answered(e3.encode(response), 0)
    assert event == Refused("gnb speaks G0, which --e3-generation G1 excludes: change or omit it")
    assert [e3.decode(octets).dapp_identifier for octets in session.releases()] == [42]  # type: ignore[union-attr]
    session = make("G1")
    while session._request_id in (0, 1):
        session.lost()
        session.request(0)
    with pytest.raises(e3.MalformedPdu, match="no setupResponse to request"):
        session.setup_answered(e3.ASN1_CODECS["G1"].encode(response), 0)
