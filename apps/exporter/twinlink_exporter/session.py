"""The E3 session of one dApp: setup, subscription, and both again after the loss of the agent.

No I/O: octets and monotonic time in, octets and events out.

    SETUP ------------> SUBSCRIBE ------------> SUBSCRIBED
      ^  setupResponse      |  subscriptionResponse, |
      |                     |  or an indication,     |
      |                     |  of each subscription  |
      +---------------------+------------------------+
        no answer to RETRIES requests; the agent's socket went away; silence

Each setup finds the agent's generation anew (`generation_search`), and what to subscribe to (`subscriptions`), as
another agent may have come.
"""

import random
from dataclasses import dataclass
from enum import Enum

from twinlink_e3 import (
    ASN1_CODECS,
    CONTROL_PRB_BLOCK,
    CONTROL_SENSING_POLICY,
    KPM_FUNCTION,
    L1_KPM_FUNCTION,
    MAX_SHARED_ID,
    PROTOCOL_VERSION,
    RAN_FUNCTION,
    Codec,
    DAppControlAction,
    IndicationMessage,
    MalformedPdu,
    MessageAck,
    MessageIds,
    Pdu,
    PrbBlacklistControl,
    Recognised,
    ReleaseMessage,
    SensingPolicyControl,
    SetupRequest,
    SetupResponse,
    SubscriptionRequest,
    SubscriptionResponse,
    recognise,
)

from .block import Control
from .generation_search import GenerationSearch, reads
from .subscriptions import (
    CONTROLS,
    Subscription,
    has_streams,
    objection,
    offers_control,
    offers_kpms,
    offers_sensing,
    subscriptions,
)

S = 1_000_000_000
RETRY_NS = S  # between two unanswered requests
SETUP_RETRY_NS = 2 * S  # for setup, then twice that: a later answer gives an identifier that nothing releases
REFUSED_NS = 5 * S  # after a refusal, which needs a change of configuration
RETRIES = 5  # subscription requests before setup is repeated
SILENCE_NS = 10 * S  # without an indication; doubled each time without effect, because a RAN may have none to send
MAX_SILENCE_NS = 160 * S
MAX_VERSION = 11  # characters, in G0
G1_REQUEST_READ_AS_G0 = 1  # message id that a G0 agent finds in a request in G1, which it may then accept


class State(Enum):
    """The state of the session."""

    SETUP = "setup"
    SUBSCRIBE = "subscribe"
    SUBSCRIBED = "subscribed"


@dataclass(frozen=True, slots=True)
class SetUp:
    """Event: setup succeeded.

    Attributes:
        dapp_id: assigned by the agent.
        ran: its name.
        generation: of the agent: the name of its codec.
        offers_block: whether it offers the control of PRB blocks.
        by_reference: whether it hands I/Q over in shared memory (RAN function 2), not in PDUs.
        offers_policy: whether it offers the control of the sensing policy.
        offers_sensing: whether it offers sensing ranges.
        names_symbols: whether it may tell which symbols of a slot are uplink.
        offers_kpms: whether it reports KPMs, or the grants of which they can be made.
    """

    dapp_id: int
    ran: str
    generation: str = "G0"
    offers_block: bool = True
    by_reference: bool = False
    offers_policy: bool = False
    offers_sensing: bool = False
    names_symbols: bool = True
    offers_kpms: bool = False


@dataclass(frozen=True, slots=True)
class OtherGeneration:
    """Event: the agent cannot read the request, and answers in a generation in which it is asked at once."""

    ran: str
    asked: str
    answered: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Event: the agent sends indications.

    Attributes:
        subscription_id: of the I/Q; None if an indication preceded the response.
        refused: the RAN function of another subscription, which the agent refused; None if it refused none.
    """

    subscription_id: int | None
    refused: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Event: the agent refused, or lacks the RAN function; the request is repeated later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """Event: the agent released this dApp, as NVIDIA's does after half an hour without a subscription."""


SessionEvent = SetUp | OtherGeneration | Subscribed | Refused | Released | MessageAck


class Session:
    """One dApp's session.

    Args:
        name, version, vendor: of the dApp.
        next_message_id: returns the next message id.
        search: the generations that the agent may have.
        sensing: whether to subscribe to sensing ranges, too.
        slots_per_frame: of the carrier.

    Attributes:
        state: where it stands.
        dapp_id: assigned by the agent, or None.
        codec: of the agent's generation; in state SETUP that of the last request.
        controls: identifiers of the controls that the agent offers.
        by_reference: whether it hands I/Q over in shared memory.
    """

    def __init__(
        self,
        name: str,
        version: str,
        vendor: str,
        next_message_id: MessageIds,
        search: GenerationSearch | None = None,
        *,
        sensing: bool = False,
        slots_per_frame: int = 20,
    ) -> None:
        self.state = State.SETUP
        self.dapp_id: int | None = None
        self.controls: frozenset[int] = frozenset((CONTROL_PRB_BLOCK,))
        self.by_reference = False
        self._slots_per_frame = slots_per_frame
        self._sensing = sensing
        self._subscriptions: tuple[Subscription, ...] = ()
        self._granted: list[int | None] = []  # subscription ids, in the same order
        self._asked: set[int] = set()  # message ids of the requests of the subscription that is next
        self._search = search or GenerationSearch()
        self.codec = self._search.first
        self._answered_in: Codec | None = None  # by an agent that cannot read the first request
        self._releases: list[bytes] = []
        self._identity = (name, version[:MAX_VERSION], vendor)
        self._next_message_id = next_message_id
        self._request_id = 0
        self._due_ns = 0
        self._tries = 0
        self._patience_ns = SILENCE_NS

    def request(self, now_ns: int, connected: bool = True) -> bytes | None:
        """The request that is due now, or None: for the setup channel in state SETUP, else for the RAN.

        Without connections from and to the RAN there is no subscription, and no other setup would help.
        """
        if now_ns < self._due_ns or self.state is State.SUBSCRIBED:
            return None
        if self.state is State.SUBSCRIBE and not connected:
            self._due_ns = now_ns + RETRY_NS
            return None
        if self.state is State.SUBSCRIBE and self._tries >= RETRIES:
            dapp_id = self.dapp_id
            self.lost()
            self._give_back(self.codec, dapp_id)
        self._tries += 1
        self._due_ns = now_ns + RETRY_NS
        if self.dapp_id is None:
            self._due_ns = now_ns + SETUP_RETRY_NS * min(self._tries, 2)
            self.codec, self._answered_in = self._answered_in or self._search.first, None
            # Random, as a reply counts by it; agents of G0 and of G2a read a request with such an id alike.
            self._request_id = random.randint(1, MAX_SHARED_ID)
            name, version, vendor = self._identity
            return self.codec.encode(SetupRequest(self._request_id, PROTOCOL_VERSION, name, version, vendor))
        wanted, self._request_id = self._subscriptions[len(self._granted)], self._next_message_id()
        self._asked.add(self._request_id)
        return self.codec.encode(
            SubscriptionRequest(
                self._request_id, self.dapp_id, wanted.ran_function, wanted.telemetry, wanted.controls,
                periodicity=wanted.periodicity,
            )
        )  # fmt: skip

    def not_ready(self) -> str | None:
        """Why no indications are subscribed to; None if they are.  May be called from any thread."""
        if self.state is State.SUBSCRIBED:
            return None
        step = "setup" if self.state is State.SETUP else "subscription"
        return f"no E3 session: the agent has not answered the {step} yet"

    @property
    def awaits_setup(self) -> bool:
        """Whether the agent may still answer a setup, and give an identifier."""
        return self.state is State.SETUP and self._tries > 0

    def next_request_ns(self) -> int:
        """Monotonic time at which to call `request` and `silent`."""
        return self._due_ns

    def connected(self, now_ns: int) -> None:
        """The channels from and to the RAN are connected: the subscription can be sent at once."""
        if self.state is State.SUBSCRIBE and self._tries == 0 and not self._granted:
            self._due_ns = now_ns

    def setup_answered(self, octets: bytes, now_ns: int) -> SessionEvent:
        """Handle the reply on the setup channel.  Raises MalformedPdu if it is none, in any generation."""
        found = self._recognise(octets)
        codec, response = found.codec, found.response
        self._tries = 0
        asked, self._due_ns = self.codec, now_ns + REFUSED_NS  # unless it succeeds below
        ran, positive = response.ran_identifier or "the E3 agent", response.response_code == "positive"
        refusal: str | None = None
        if codec.name not in self._search.accepted:
            refusal = f"{ran} speaks {codec.name}, which {self._search.options} excludes: change or omit it"
        elif reads(asked, codec) and positive:
            refusal = objection(response)
        elif codec is not asked and asked is self._search.first:
            self._answered_in, self._due_ns = codec, now_ns
        else:
            refusal = (
                f"{ran} refused the setup of this dApp, asked in {asked.name}, in {codec.name}{_saying(response)}: "
                "look at its log; if dApps that ended without a release have used up its identifiers, restart the gNB"
            )
        if positive and (refusal or self._answered_in):
            self._give_back(codec, response.dapp_identifier)
        if refusal:
            return Refused(refusal)
        if self._answered_in:
            return OtherGeneration(ran, asked.name, codec.name)
        assert response.dapp_identifier is not None  # no objection
        self.controls = frozenset(control for control in CONTROLS if offers_control(response, control))
        if self.controls:
            codec.encode_structure(PrbBlacklistControl(()))  # compiles the grammar now, not with the first decision
        self._subscriptions = subscriptions(response, codec, sensing=self._sensing)
        self.by_reference = self._subscriptions[0].ran_function == L1_KPM_FUNCTION
        self._granted, self._asked = [], set()
        self.state, self.dapp_id, self.codec, self._tries = State.SUBSCRIBE, response.dapp_identifier, codec, 0
        self._due_ns = now_ns + RETRY_NS
        offers_block, offers_policy = (control in self.controls for control in CONTROLS)
        return SetUp(
            response.dapp_identifier, ran, codec.name, offers_block, self.by_reference, offers_policy,
            offers_sensing(response), not has_streams(response), offers_kpms(response, codec),
        )  # fmt: skip

    def read(self, octets: bytes) -> Pdu | None:
        """A PDU from the RAN; None before setup, when it is for other dApps.  Raises MalformedPdu."""
        if self.dapp_id is None:
            return None
        try:
            return self.codec.decode(octets)
        except MalformedPdu as error:
            others = [codec.name for codec in ASN1_CODECS.values() if codec.is_canonical(octets)]
            if not others:
                raise
            raise MalformedPdu(f"{error}; it is a PDU of {' or '.join(others)}") from error

    def received(self, pdu: Pdu, now_ns: int) -> SessionEvent | None:
        """Handle a PDU other than an indication; None if it is not for us, or of no use."""
        if isinstance(pdu, MessageAck):
            return pdu
        if isinstance(pdu, ReleaseMessage) and pdu.dapp_identifier == self.dapp_id:
            return Released()
        if not isinstance(pdu, SubscriptionResponse) or pdu.dapp_identifier != self.dapp_id:
            return None
        if self.state is not State.SUBSCRIBE or pdu.request_id not in self._asked:
            return None
        if pdu.response_code == "positive":
            return self._subscribed(pdu.subscription_id, now_ns)
        function = self._subscriptions[len(self._granted)].ran_function
        if self._granted:  # the I/Q comes without it
            self.controls = self.controls if function == KPM_FUNCTION else frozenset()
            return self._subscribed(None, now_ns, refused=function)
        self._due_ns = now_ns + REFUSED_NS
        text = f"the RAN refused dApp {self.dapp_id} a subscription to RAN function {function}"
        return Refused(f"{text}{_saying(pdu)}")

    def expects(self, message: IndicationMessage) -> bool:
        """Whether an indication is for us, and of a RAN function that was asked for telemetry."""
        functions = (wanted.ran_function for wanted in self._subscriptions if wanted.telemetry)
        return message.dapp_identifier == self.dapp_id and message.ran_function_identifier in functions

    def indicated(self, ran_function: int, now_ns: int) -> Subscribed | None:
        """Handle an indication for us."""
        if self.state is State.SUBSCRIBE:
            if ran_function == self._subscriptions[len(self._granted)].ran_function:
                return self._subscribed(None, now_ns)  # the response was lost, or is late
            return None
        if ran_function != KPM_FUNCTION:  # which also comes when no I/Q does
            self._patience_ns = SILENCE_NS
            self._due_ns = now_ns + SILENCE_NS
        return None

    def silent(self, now_ns: int) -> bool:
        """Whether the silence is long enough to restart with `lost`."""
        if self.state is not State.SUBSCRIBED or now_ns < self._due_ns:
            return False
        self._patience_ns = min(2 * self._patience_ns, MAX_SILENCE_NS)
        return True

    def lost(self) -> None:
        """Restart: the agent is gone, or no longer knows this dApp."""
        self.state, self.dapp_id, self._due_ns, self._tries = State.SETUP, None, 0, 0
        self._answered_in = None
        self._releases.clear()

    @property
    def sequenced(self) -> bool:
        """Whether controls have a sequence id, and PDUs the agent's Unix time in ns: since G2."""
        return self.codec.generation.startswith("G2")

    def control(self, control: Control) -> bytes | None:
        """The PDU of a control; None without a setup, or if the agent does not offer it."""
        if self.dapp_id is None or control.control not in self.controls:
            return None
        structure: PrbBlacklistControl | SensingPolicyControl
        if control.control == CONTROL_SENSING_POLICY:
            masks = control.content or (0,) * self._slots_per_frame
            structure = SensingPolicyControl(masks, not control.content, control.validity_s)
        else:
            structure = PrbBlacklistControl(control.content, validity_period=control.validity_s)
        return self.codec.encode(
            DAppControlAction(
                control.message_id, self.dapp_id, RAN_FUNCTION, control.control,
                self.codec.encode_structure(structure), control.sequence_id,
            )
        )  # fmt: skip

    def releases(self) -> list[bytes]:
        """Takes the releaseMessages of identifiers that are of no use; to be sent when the RAN is connected."""
        releases, self._releases = self._releases, []
        return releases

    def release(self) -> bytes | None:
        """The releaseMessage, or None without a setup."""
        if self.dapp_id is None:
            return None
        return self.codec.encode(ReleaseMessage(self._next_message_id(), self.dapp_id))

    def _recognise(self, octets: bytes) -> Recognised:
        try:
            return recognise(octets, self._request_id)
        except MalformedPdu:
            found = recognise(octets, G1_REQUEST_READ_AS_G0)
            if found.codec.name in self._search.accepted:
                raise
            return found

    def _give_back(self, codec: Codec, dapp_id: int | None) -> None:
        """An agent has 65535 identifiers, or 100, and keeps each until it is released."""
        if dapp_id is not None:
            self._releases.append(codec.encode(ReleaseMessage(self._next_message_id(), dapp_id)))

    def _subscribed(self, subscription_id: int | None, now_ns: int, refused: int | None = None) -> Subscribed | None:
        """A subscription succeeded, or cannot be had; returns the event if it was the last."""
        self._granted.append(subscription_id)
        self._asked, self._tries, self._due_ns = set(), 0, now_ns
        if len(self._granted) < len(self._subscriptions):
            return None
        self.state = State.SUBSCRIBED
        self._due_ns = now_ns + self._patience_ns
        return Subscribed(self._granted[0], refused)


def _saying(response: SetupResponse | SubscriptionResponse) -> str:
    return f" ({response.message})" if response.message else ""
