"""The E3 session of one dApp: setup, subscription, and both again after the loss of the agent.

No I/O: octets and monotonic time in, octets and events out.

    SETUP ------------> SUBSCRIBE ------------> SUBSCRIBED
      ^  setupResponse      |  subscriptionResponse  |
      |                     |  or an indication      |
      +---------------------+------------------------+
        no answer to RETRIES requests; the agent's socket went away; silence
"""

from dataclasses import dataclass
from enum import Enum

from twinlink_e3 import (
    CONTROL_PRB_BLOCK,
    PROTOCOL_VERSION,
    RAN_FUNCTION,
    TELEMETRY_IQ,
    MalformedPdu,
    MessageAck,
    MessageIds,
    ReleaseMessage,
    SetupRequest,
    SetupResponse,
    SubscriptionRequest,
    SubscriptionResponse,
    decode,
    encode,
)

S = 1_000_000_000
RETRY_NS = S  # between two unanswered requests
MAX_RETRY_NS = 4 * S  # for setup; a second more each time, because an agent may answer slowly
REFUSED_NS = 5 * S  # after a refusal, which needs a change of configuration
RETRIES = 5  # subscription requests before setup is repeated
SILENCE_NS = 10 * S  # without an indication; doubled each time without effect, because a RAN may have none to send
MAX_SILENCE_NS = 160 * S


class State(Enum):
    """The state of the session."""

    SETUP = "setup"
    SUBSCRIBE = "subscribe"
    SUBSCRIBED = "subscribed"


@dataclass(frozen=True, slots=True)
class SetUp:
    """Event: setup succeeded."""

    dapp_id: int
    ran: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Event: the subscription succeeded; ``subscription_id`` is None if an indication preceded the response."""

    subscription_id: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """Event: the agent refused, or lacks the RAN function; the request is repeated later."""

    reason: str


SessionEvent = SetUp | Subscribed | Refused | MessageAck


class Session:
    """One dApp's session.

    Attributes:
        state: where it stands.
        dapp_id: assigned by the agent, or None.
    """

    def __init__(self, name: str, version: str, vendor: str, next_message_id: MessageIds) -> None:
        self.state = State.SETUP
        self.dapp_id: int | None = None
        self._identity = (name, version, vendor)
        self._next_message_id = next_message_id
        self._request_id = 0
        self._due_ns = 0
        self._tries = 0
        self._patience_ns = SILENCE_NS

    def request(self, now_ns: int) -> bytes | None:
        """The request that is due now, or None: for the setup channel in state SETUP, else for the RAN."""
        if now_ns < self._due_ns or self.state is State.SUBSCRIBED:
            return None
        if self.state is State.SUBSCRIBE and self._tries >= RETRIES:
            self.lost()
        tries, self._tries = self._tries, self._tries + 1
        self._due_ns = now_ns + RETRY_NS
        self._request_id = self._next_message_id()
        if self.dapp_id is None:
            self._due_ns = now_ns + min((tries + 1) * RETRY_NS, MAX_RETRY_NS)
            name, version, vendor = self._identity
            return encode(SetupRequest(self._request_id, PROTOCOL_VERSION, name, version, vendor))
        lists = (TELEMETRY_IQ,), (CONTROL_PRB_BLOCK,)
        return encode(SubscriptionRequest(self._request_id, self.dapp_id, RAN_FUNCTION, *lists))

    def next_request_ns(self) -> int:
        """Monotonic time at which to call `request` and `silent`."""
        return self._due_ns

    def connected(self, now_ns: int) -> None:
        """The channels from and to the RAN are connected: the subscription can be sent at once."""
        if self.state is State.SUBSCRIBE and self._tries == 0:
            self._due_ns = now_ns

    def setup_answered(self, octets: bytes, now_ns: int) -> SessionEvent:
        """Handle the reply on the setup channel.  Raises MalformedPdu if it is none."""
        pdu = decode(octets)
        if not isinstance(pdu, SetupResponse):
            raise MalformedPdu(f"the E3 agent answered setup with {type(pdu).__name__}")
        if pdu.request_id != self._request_id:
            raise MalformedPdu(f"a setupResponse to request {pdu.request_id}, not {self._request_id}")
        self._due_ns = now_ns + REFUSED_NS  # unless it succeeds below
        if pdu.response_code != "positive":
            return Refused(f"{pdu.ran_identifier} refused the setup of this dApp")
        if pdu.dapp_identifier is None:
            return Refused(f"{pdu.ran_identifier} accepted this dApp, but gave it no identifier")
        offered = pdu.ran_function_list
        if offered is not None and RAN_FUNCTION not in {entry.ran_function_identifier for entry in offered}:
            numbers = ", ".join(str(entry.ran_function_identifier) for entry in offered) or "none"
            return Refused(f"{pdu.ran_identifier} offers RAN functions {numbers}, not {RAN_FUNCTION} (spectrum)")
        self.state, self.dapp_id, self._tries = State.SUBSCRIBE, pdu.dapp_identifier, 0
        self._due_ns = now_ns + RETRY_NS
        return SetUp(pdu.dapp_identifier, pdu.ran_identifier)

    def received(self, octets: bytes, now_ns: int) -> SessionEvent | None:
        """Handle a PDU other than an indication; None if it is not for us, or of no use.  Raises MalformedPdu."""
        pdu = decode(octets)
        if isinstance(pdu, MessageAck):
            return pdu
        if not isinstance(pdu, SubscriptionResponse) or pdu.dapp_identifier != self.dapp_id:
            return None
        if self.state is not State.SUBSCRIBE:
            return None
        if pdu.response_code != "positive":
            self._due_ns = now_ns + REFUSED_NS
            return Refused(f"the RAN refused dApp {self.dapp_id} a subscription to RAN function {RAN_FUNCTION}")
        return self._subscribed(pdu.subscription_id, now_ns)

    def indicated(self, now_ns: int) -> Subscribed | None:
        """Handle an indication for us."""
        if self.state is State.SUBSCRIBE:  # the response was lost, or is late
            return self._subscribed(None, now_ns)
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

    def release(self) -> bytes | None:
        """The releaseMessage, or None without a setup."""
        if self.dapp_id is None:
            return None
        return encode(ReleaseMessage(self._next_message_id(), self.dapp_id))

    def _subscribed(self, subscription_id: int | None, now_ns: int) -> Subscribed:
        self.state = State.SUBSCRIBED
        self._due_ns = now_ns + self._patience_ns
        return Subscribed(subscription_id)
