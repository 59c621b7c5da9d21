"""The E3 session as a state machine, on a manual clock."""

import pytest
from twinlink_e3 import (
    ASN1_CODECS,
    KPM_FUNCTION,
    DAppControlAction,
    MalformedPdu,
    MessageAck,
    MessageIds,
    RanFunctionDefinition,
    ReleaseMessage,
    SetupRequest,
    SetupResponse,
    SubscriptionRequest,
    SubscriptionResponse,
    decode,
    encode,
)
from twinlink_e3.pdu import ResponseCode
from twinlink_exporter.block import Control
from twinlink_exporter.generation_search import GenerationSearch
from twinlink_exporter.session import (
    REFUSED_NS,
    RETRIES,
    RETRY_NS,
    SETUP_RETRY_NS,
    SILENCE_NS,
    Refused,
    Session,
    SessionEvent,
    SetUp,
    State,
    Subscribed,
)


def make() -> Session:
    return Session("dapp", "1.0.0", "vendor", MessageIds())


def answer_setup(
    session: Session,
    now_ns: int,
    dapp_id: int | None = 7,
    code: ResponseCode = "positive",
    functions: tuple[RanFunctionDefinition, ...] | None = None,
    request_id: int | None = None,
) -> SessionEvent:

    request = decode(session.request(now_ns) or b"")
    assert isinstance(request, SetupRequest)
    response = SetupResponse(1, request_id or request.message_id, code, "gnb", "1.0.0", dapp_id, functions)
    return session.setup_answered(encode(response), now_ns)


def subscribed_session() -> Session:
    session = make()
    answer_setup(session, 0)
    session.connected(0)
    request = decode(session.request(0) or b"")
    response = SubscriptionResponse(2, request.message_id, 7, "positive", 3)
    assert session.received(response, 0) == Subscribed(3)
    return session


def test_from_setup_to_subscription() -> None:
    session = make()
    assert answer_setup(session, 0) == SetUp(7, "gnb")
    assert session.request(0) is None  # the channels do not stand yet
    session.connected(5)
    request = decode(session.request(5) or b"")
    assert isinstance(request, SubscriptionRequest)
    assert (request.dapp_identifier, request.telemetry_identifier_list, request.control_identifier_list) == (
        7,
        (1,),
        (1,),
    )
    response = SubscriptionResponse(2, request.message_id, 7, "positive", 3)
    assert session.received(response, 6) == Subscribed(3)
    assert session.state is State.SUBSCRIBED
    assert session.request(7) is None


def test_an_absent_agent_is_asked_again() -> None:
    session = make()
    assert session.request(0)
    assert session.request(SETUP_RETRY_NS - 1) is None  # an agent may take its time to answer
    assert session.next_request_ns() == SETUP_RETRY_NS
    assert session.request(SETUP_RETRY_NS)
    assert session.next_request_ns() == 3 * SETUP_RETRY_NS
    assert session.request(3 * SETUP_RETRY_NS)
    assert session.next_request_ns() == 5 * SETUP_RETRY_NS
    session.lost()
    assert session.request(3 * SETUP_RETRY_NS + 1)


def test_an_unanswered_subscription_is_repeated_and_then_setup_is_tried_again() -> None:
    session = make()
    answer_setup(session, 0)
    sent = [decode(session.request((i + 1) * RETRY_NS) or b"") for i in range(RETRIES + 1)]
    assert [type(pdu) for pdu in sent] == [SubscriptionRequest] * RETRIES + [SetupRequest]
    assert session.dapp_id is None


def test_an_indication_stands_for_a_lost_subscription_response() -> None:
    session = make()
    answer_setup(session, 0)
    assert session.indicated(1, 1) == Subscribed(None)
    assert session.indicated(1, 2) is None


def test_a_refused_setup_is_tried_again_later() -> None:
    session = make()
    assert isinstance(answer_setup(session, 0, code="negative", dapp_id=None), Refused)
    assert session.request(REFUSED_NS - 1) is None
    assert session.request(REFUSED_NS)


def test_an_agent_that_gives_no_identifier_did_not_refuse() -> None:
    assert answer_setup(make(), 0, dapp_id=None) == Refused("gnb accepted this dApp, but gave it no identifier")


def test_an_agent_without_the_spectrum_function_is_refused_by_name() -> None:
    event = answer_setup(make(), 0, functions=(RanFunctionDefinition(5, (1,), (), b"x"),))
    assert event == Refused("gnb offers RAN functions 5, not 1 (spectrum) or 2 (L1-KPM)")


def test_a_control_of_g2_has_a_sequence_id() -> None:
    session = Session("dapp", "1", "vendor", MessageIds(), GenerationSearch.of("G2a"))
    request = ASN1_CODECS["G2a"].decode(session.request(0) or b"")
    response = SetupResponse(1, request.message_id, "positive", "gnb", "1.0.0", 7)
    session.setup_answered(ASN1_CODECS["G2a"].encode(response), 0)
    assert session.sequenced
    action = ASN1_CODECS["G2a"].decode(session.control(Control(5, (1,), 2, sequence_id=9)) or b"")
    assert isinstance(action, DAppControlAction)
    assert (action.message_id, action.sequence_id) == (5, 9)
    assert not subscribed_session().sequenced


SLOTS = RanFunctionDefinition(2, (1,), (), b"x")
SPECTRUM = RanFunctionDefinition(1, (1, 2, 3), (1, 2), b"x")


def subscribe_next(session: Session, now_ns: int, code: ResponseCode = "positive") -> SessionEvent | None:
    """Answer the subscription that is due; the subscription id is the RAN function."""
    request = decode(session.request(now_ns) or b"")
    assert isinstance(request, SubscriptionRequest)
    function = request.ran_function_identifier
    number = function if code == "positive" else None
    return session.received(SubscriptionResponse(2, request.message_id, 7, code, number), now_ns)


def test_slots_and_control_are_two_subscriptions() -> None:
    session = make()
    event = answer_setup(session, 0, functions=(SPECTRUM, SLOTS))
    assert event == SetUp(7, "gnb", by_reference=True, offers_policy=True, offers_sensing=True)
    session.connected(0)
    slots = decode(session.request(0) or b"")
    assert slots == SubscriptionRequest(slots.message_id, 7, 2, (1,), ())
    assert session.received(SubscriptionResponse(2, slots.message_id, 7, "positive", 4), 0) is None
    control = decode(session.request(0) or b"")
    assert control == SubscriptionRequest(control.message_id, 7, 1, (), (1, 2), periodicity=1000)
    assert session.received(SubscriptionResponse(2, slots.message_id, 7, "negative"), 0) is None  # of before
    assert session.received(SubscriptionResponse(2, control.message_id, 7, "positive", 5), 0) == Subscribed(4)
    assert session.state is State.SUBSCRIBED
    assert session.controls == {1, 2}


def test_slots_alone_are_one_subscription_without_control() -> None:
    session = make()
    event = answer_setup(session, 0, functions=(SLOTS,))
    assert event == SetUp(7, "gnb", offers_block=False, by_reference=True)
    session.connected(0)
    assert subscribe_next(session, 0) == Subscribed(2)


def test_a_refused_control_leaves_the_slots() -> None:
    session = make()
    answer_setup(session, 0, functions=(SLOTS, SPECTRUM))
    session.connected(0)
    assert subscribe_next(session, 0) is None
    assert subscribe_next(session, 0, "negative") == Subscribed(2, refused=1)
    assert not session.controls


def test_an_indication_of_a_slot_stands_for_its_subscription_alone() -> None:
    session = make()
    answer_setup(session, 0, functions=(SLOTS, SPECTRUM))
    session.connected(0)
    assert session.indicated(1, 0) is None
    assert session.indicated(2, 0) is None
    assert session.indicated(2, 0) is None
    assert session.state is State.SUBSCRIBE
    assert subscribe_next(session, 0) == Subscribed(None)


@pytest.mark.parametrize("reply", [b"", b"\xff" * 20, encode(ReleaseMessage(1, 1))])
def test_a_reply_that_is_none_is_malformed(reply: bytes) -> None:
    session = make()
    session.request(0)
    with pytest.raises(MalformedPdu):
        session.setup_answered(reply, 0)
    assert session.state is State.SETUP


def test_a_reply_to_another_request_is_malformed() -> None:
    with pytest.raises(MalformedPdu, match="to request"):
        answer_setup(make(), 0, request_id=900)


def test_what_is_for_others_is_passed_over() -> None:
    session = make()
    answer_setup(session, 0)
    assert session.received(SubscriptionResponse(1, 2, 8, "positive", 1), 0) is None
    assert session.received(ReleaseMessage(1, 8), 0) is None
    assert session.state is State.SUBSCRIBE


def test_acknowledgements_come_through() -> None:
    assert subscribed_session().received(MessageAck(1, 55, "negative"), 0) == MessageAck(1, 55, "negative")


def test_silence_begins_again_and_waits_longer_each_time() -> None:
    session = subscribed_session()
    assert not session.silent(SILENCE_NS - 1)
    assert session.silent(SILENCE_NS)
    session.lost()
    now = SILENCE_NS
    answer_setup(session, now, dapp_id=8)
    session.indicated(1, now)  # subscribed again; patience is doubled until the next indication
    assert not session.silent(now + 2 * SILENCE_NS - 1)
    session.indicated(1, now + 1)
    assert session.silent(now + 1 + SILENCE_NS)


def test_kpms_that_come_without_iq_do_not_hide_its_silence() -> None:
    session = subscribed_session()
    session.indicated(KPM_FUNCTION, SILENCE_NS - 1)
    assert session.silent(SILENCE_NS)


def test_release_only_while_the_agent_knows_us() -> None:
    session = make()
    assert session.release() is None
    answer_setup(session, 0)
    release = decode(session.release() or b"")
    assert isinstance(release, ReleaseMessage)
    assert release.dapp_identifier == 7
    session.lost()
    assert session.release() is None
