from typing import Any

import pytest
import twinlink_e3 as e3
from hypothesis import given, settings
from hypothesis import strategies as st
from twinlink_ran_emulator.agent import FIRST_INDICATION_GAP_NS, Agent
from twinlink_ran_emulator.events import Blocked, Refused, Released, Reported, SetUp, Subscribed, Unsubscribed

LATER = FIRST_INDICATION_GAP_NS
IQ = e3.encode_iq_data(e3.IqDataIndication(b"\1\2\3\4", 1, 1))


def setup(agent: Agent, octets: bytes) -> bytes:
    answer = agent.setup(octets)
    assert answer is not None
    return answer


def set_up(agent: Agent, name: str = "dapp") -> int:
    response = e3.decode(setup(agent, e3.encode(e3.SetupRequest(7, "1.0.0", name, "1", "vendor"))))
    assert isinstance(response, e3.SetupResponse)
    assert (response.response_code, response.request_id) == ("positive", 7)
    assert response.dapp_identifier is not None
    return response.dapp_identifier


def ask(agent: Agent, pdu: e3.Pdu, now_ns: int = 0) -> Any:
    (answer,) = agent.receive(e3.encode(pdu), now_ns)
    decoded = e3.decode(answer)
    assert decoded.request_id == pdu.message_id  # type: ignore[union-attr]
    return decoded


def subscribe(agent: Agent, dapp: int, now_ns: int = 0, **more: int) -> Any:
    return ask(agent, e3.SubscriptionRequest(8, dapp, 1, (1,), (1,), **more), now_ns)


def control(dapp: int, prbs: tuple[int, ...], message_id: int = 9) -> e3.DAppControlAction:
    return e3.DAppControlAction(message_id, dapp, 1, 1, e3.encode_structure(e3.PrbBlacklistControl(prbs)))


def receivers(agent: Agent, now_ns: int) -> list[int]:
    return [e3.decode_indication(pdu).dapp_identifier for pdu in agent.indications(IQ, now_ns)]


def test_setup_lists_the_spectrum_function() -> None:
    agent = Agent(106)
    response = e3.decode(setup(agent, e3.encode(e3.SetupRequest(1, "1.0.0", "a", "1", "v"))))
    assert isinstance(response, e3.SetupResponse)
    assert response.ran_function_list is not None
    (function,) = response.ran_function_list
    assert (function.ran_function_identifier, function.telemetry_identifier_list) == (1, (1,))
    assert e3.decode_structure(e3.RanFunctionData, function.ran_function_data).name == b"Spectrum"
    assert agent.events() == [SetUp(1, "a", "v")]
    assert agent.events() == []


def test_setup_refuses_another_version_and_the_hundred_and_first_dapp() -> None:
    agent = Agent(106)
    refused = e3.decode(setup(agent, e3.encode(e3.SetupRequest(5, "2.0.0", "a", "1", "v"))))
    assert isinstance(refused, e3.SetupResponse)
    assert (refused.response_code, refused.request_id) == ("negative", 5)
    assert sorted(set_up(agent) for _ in range(100)) == list(range(1, 101))
    full = e3.decode(setup(agent, e3.encode(e3.SetupRequest(5, "1.0.0", "a", "1", "v"))))
    assert isinstance(full, e3.SetupResponse)
    assert full.response_code == "negative"
    ask(agent, e3.ReleaseMessage(1, 42))
    assert set_up(agent) == 42
    used_up = e3.decode(setup(Agent(106, free_ids=0), e3.encode(e3.SetupRequest(5, "1.0.0", "a", "1", "v"))))
    assert isinstance(used_up, e3.SetupResponse)
    assert used_up.response_code == "negative"


def test_indications_go_once_to_each_subscribed_dapp_after_the_gap() -> None:
    agent = Agent(106)
    first, second, third = set_up(agent), set_up(agent), set_up(agent)
    response = subscribe(agent, first)
    assert (response.response_code, response.dapp_identifier) == ("positive", first)
    subscribe(agent, third, now_ns=10)
    assert receivers(agent, LATER - 1) == []
    assert receivers(agent, LATER) == [first]
    assert receivers(agent, LATER + 10) == [first, third]
    assert agent.subscribers(LATER + 10) == 2
    ask(agent, e3.SubscriptionDelete(1, first, response.subscription_id))
    assert receivers(agent, LATER + 10) == [third]
    ask(agent, e3.ReleaseMessage(1, third))
    assert receivers(agent, LATER + 10) == []
    assert Unsubscribed(third, third, "released") in agent.events()
    assert second not in receivers(agent, LATER + 10)


def test_a_subscription_to_control_alone_gets_no_indications() -> None:
    agent = Agent(106)
    dapp = set_up(agent)
    assert ask(agent, e3.SubscriptionRequest(8, dapp, 1, (), (1,))).response_code == "positive"
    assert receivers(agent, LATER) == []
    assert Subscribed(dapp, dapp, False) in agent.events()


def test_a_subscription_ends_with_its_time() -> None:
    agent = Agent(106)
    dapp = set_up(agent)
    subscribe(agent, dapp, subscription_time=2)
    assert receivers(agent, 2_000_000_000 - 1) == [dapp]
    assert receivers(agent, 2_000_000_000) == []
    assert Unsubscribed(dapp, dapp, "expired") in agent.events()


def test_a_block_replaces_the_last_one_and_outlives_its_dapp() -> None:
    agent = Agent(106)
    dapp, other = set_up(agent), set_up(agent)
    assert ask(agent, control(dapp, (100, 3, 3))).response_code == "positive"
    assert list(agent.block) == [3, 100]
    ask(agent, control(other, (5,)))
    ask(agent, e3.ReleaseMessage(1, other))
    assert list(agent.block) == [5]
    ask(agent, control(dapp, ()))
    assert list(agent.block) == []
    assert [event for event in agent.events() if isinstance(event, Blocked)] == [
        Blocked(dapp, (3, 100)),
        Blocked(other, (5,)),
        Blocked(dapp, ()),
    ]


def test_reports_are_taken() -> None:
    agent = Agent(106)
    dapp = set_up(agent)
    report = e3.DAppReport(3, dapp, 1, e3.encode_structure(e3.PrbBlacklistReport((80, 81))))
    assert ask(agent, report).response_code == "positive"
    assert Reported(dapp, (80, 81)) in agent.events()


@pytest.mark.parametrize(
    "pdu",
    [
        e3.SubscriptionRequest(8, 99, 1, (1,), (1,)),
        e3.SubscriptionRequest(8, 1, 2, (1,), (1,)),
        e3.SubscriptionRequest(8, 1, 1, (1, 2), (1,)),
        e3.SubscriptionRequest(8, 1, 1, (1,), (2,)),
        e3.SubscriptionDelete(8, 1, 1),
        e3.SubscriptionDelete(8, 99, 1),
        control(99, (1,)),
        control(1, (106,)),
        e3.DAppControlAction(8, 1, 2, 1, b"\0"),
        e3.DAppControlAction(8, 1, 1, 2, b"\0"),
        e3.DAppControlAction(8, 1, 1, 1, b"\xff"),
        e3.DAppReport(8, 1, 1, b"\xff"),
        e3.DAppReport(8, 99, 1, b"\0"),
        e3.ReleaseMessage(8, 99),
        e3.SetupRequest(8, "1.0.0", "a", "1", "v"),
        e3.XAppControlAction(8, 1, 1, b"\0"),
        e3.IndicationMessage(8, 1, 1, b"\0"),
    ],
    ids=lambda pdu: type(pdu).__name__,
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(pdu: e3.Pdu) -> None:
    agent = Agent(106)
    dapp = set_up(agent)
    ask(agent, control(dapp, (50,)))
    agent.events()
    assert ask(agent, pdu).response_code == "negative"
    assert agent.block == (50,)
    assert agent.subscribers(LATER) == 0
    (event,) = agent.events()
    assert isinstance(event, Refused)
    assert agent.counters["refused"] == 1


def test_an_acknowledgement_is_not_answered() -> None:
    assert Agent(106).receive(e3.encode(e3.MessageAck(1, 1, "positive")), 0) == []


@settings(max_examples=300)
@given(octets=st.binary(max_size=64))
def test_rubbish_never_raises_and_setup_always_answers(octets: bytes) -> None:
    agent = Agent(106)
    answer = e3.decode(setup(agent, octets))
    assert isinstance(answer, e3.SetupResponse)
    for pdu in agent.receive(octets, 0):
        e3.decode(pdu)
    assert agent.subscribers(LATER) == 0


@given(cut=st.integers(0, 40), flip=st.integers(0, 8 * 40 - 1))
def test_damaged_pdus_never_raise(cut: int, flip: int) -> None:
    agent = Agent(106)
    dapp = set_up(agent)
    for pdu in (control(dapp, tuple(range(0, 100, 7))), e3.SubscriptionRequest(8, dapp, 1, (1,), (1,))):
        octets = bytearray(e3.encode(pdu))
        agent.receive(bytes(octets[:cut]), 0)
        octets[flip // 8 % len(octets)] ^= 1 << flip % 8
        agent.receive(bytes(octets), 0)
        assert all(0 <= prb < 106 for prb in agent.block)


ACTIONS = st.lists(st.tuples(st.sampled_from(["setup", "subscribe", "delete", "release", "block"]), st.integers(1, 4)))


@given(actions=ACTIONS)
def test_any_order_of_requests_keeps_the_books(actions: list[tuple[str, int]]) -> None:
    """Model: which dApps are set up, and which of them have subscribed."""
    agent = Agent(106)
    known: set[int] = set()
    subscribed: set[int] = set()
    for action, dapp in actions:
        if action == "setup":
            if len(known) < 4:
                known.add(set_up(agent))
        elif action == "subscribe":
            expected = "positive" if dapp in known else "negative"
            assert subscribe(agent, dapp).response_code == expected
            subscribed |= {dapp} & known
        elif action == "delete":
            expected = "positive" if dapp in subscribed else "negative"
            assert ask(agent, e3.SubscriptionDelete(1, dapp, dapp)).response_code == expected
            subscribed.discard(dapp)
        elif action == "release":
            expected = "positive" if dapp in known else "negative"
            assert ask(agent, e3.ReleaseMessage(1, dapp)).response_code == expected
            known.discard(dapp)
            subscribed.discard(dapp)
            assert expected == "negative" or Released(dapp) in agent.events()
        else:
            assert (ask(agent, control(dapp, (dapp,))).response_code == "positive") == (dapp in known)
        assert sorted(receivers(agent, LATER)) == sorted(subscribed)


def test_in_g2_a_block_ends_with_the_last_subscription() -> None:
    for generation, after in (("G0", (5,)), ("G2a", ()), ("G2b", ())):
        codec = e3.ASN1_CODECS[generation]
        agent = Agent(106, codec)
        for dapp in (1, 2):
            assert codec.decode(setup(agent, codec.encode(e3.SetupRequest(7, "1.0.0", "a", "1", "v"))))
            agent.receive(codec.encode(e3.SubscriptionRequest(8, dapp, 1, (1,), (1,))), 0)
        action = codec.encode_structure(e3.PrbBlacklistControl((5,)))
        agent.receive(codec.encode(e3.DAppControlAction(9, 1, 1, 1, action)), 0)
        agent.receive(codec.encode(e3.ReleaseMessage(10, 1)), 0)
        assert agent.block == (5,)
        agent.receive(codec.encode(e3.SubscriptionDelete(11, 2, 2)), 0)
        assert agent.block == after
