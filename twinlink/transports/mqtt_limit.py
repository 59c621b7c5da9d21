"""The longest frame that an MQTT broker takes.  No I/O, no clock.

A broker can advertise a Maximum Packet Size (MQTT 5.0, 3.2.2.3.6).  Some limits are not advertised: the broker ends the
connection when a longer message arrives, or drops the message.  A retransmission would be refused again, so the limit
is found:

1. A frame longer than all that the broker has acknowledged on this connection is published with QoS 1.
2. A *refusal* is a PUBACK with one of the reason codes `REFUSALS`, or the end of the connection soon after such a frame
   was published.  One DISCONNECT with reason code 0x95 (Packet too large) is enough; else three in a row are needed.
3. *Trials* then find the limit by bisection.  They are messages with QoS 1 on a topic that no link subscribes to.
   During a trial only frames leave that are known to pass, so that a refusal can only be the trial's.
4. After the connection has ended for another reason, two trials check that the limit is still the same.
"""

import math

PASSES_OCTETS = 1024  # assumed to pass: hellos and acks must, or there is no link
REFUSALS_IN_A_ROW = 3
PRECISION_OCTETS = 64
TRIAL_S = 2.0  # a trial that is not acknowledged for so long must not hold up the link's frames any more
PACKET_TOO_LARGE = 0x95
# Unspecified error, Implementation specific error, Packet too large, Quota exceeded, Payload format invalid.
# paho reports a connection that ended without DISCONNECT as the first.
REFUSALS = frozenset((0x80, 0x83, PACKET_TOO_LARGE, 0x97, 0x99))
# paho ends the connection itself when a packet has a reason code that it does not know, such as 0x95 in a PUBREC.
PROTOCOL_ERROR = 0x82


class FrameLimit:
    """What is known of one broker.  Lengths are in octets of a frame.

    Attributes:
        octets: the longest frame that may be sent.
        reason: for a person, why that is less than the link's longest frame; "" if it is not.
        known: frames up to this length are known, or assumed, to pass.
        published: by packet identifier, the messages that the broker has not acknowledged: length, time of publishing.
    """

    def __init__(self, broker: str, max_frame: int, *, assumed: int, always_acks: bool, ends_s: float) -> None:
        """A broker of which nothing is known yet.

        Args:
            broker: what a person knows it by.
            max_frame: octets of the link's longest frame.
            assumed: frames up to this length are assumed to pass.
            always_acks: every message is published with QoS 1 or 2.
            ends_s: a connection that ends so soon after a long frame may have ended because of it.
        """
        self.octets = max_frame
        self.reason = ""
        self.known = min(assumed, max_frame)
        self.published: dict[int, tuple[int, float]] = {}
        self._broker = broker
        self._max_frame = max_frame
        self._assumed = assumed
        self._always_acks = always_acks
        self._ends_s = ends_s
        self._advertised: int | None = None
        self._most = max_frame  # what fits the Maximum Packet Size
        self._knows_qos_1 = False
        self._tries = True  # trials are possible
        self._passes = assumed  # the longest acknowledged
        self._refused: int | None = None  # the shortest refused
        self._suspected = 0  # the shortest of those refused in a row
        self._refusals = 0  # how many these are
        self._refused_mono_s = -math.inf  # when a PUBACK refused the last
        self._trial: int | None = None  # packet identifier
        self._checks: list[int] = []  # lengths of the trials of point 4, the next one last
        self._unasked = (0, 0.0)  # the longest that was published without asking for an acknowledgement, and when

    @property
    def is_learned(self) -> bool:
        """Whether the limit is one that the broker does not advertise, and is as exact as it will be."""
        return self._refused is not None and self._refused <= self._most and not self._is_searching

    @property
    def _is_searching(self) -> bool:
        return self._refused is not None and not self._is_found and self._knows_qos_1 and self._tries

    @property
    def _is_found(self) -> bool:
        return self._refused is not None and self._refused - self._passes <= PRECISION_OCTETS

    # Publishing

    def admits(self, octets: int, mono_s: float) -> bool:
        """Whether a frame may leave now."""
        if self._trial is not None and octets > self.known:
            if mono_s - self.published[self._trial][1] < TRIAL_S:
                return False
            del self.published[self._trial]  # the broker acknowledges nothing
            self._trial, self._tries = None, False
            self._update()
        return octets <= self.octets

    def asks(self, octets: int, mono_s: float) -> bool:
        """Whether a frame beyond `known` is published with QoS 1: one at a time, as a broker may take no more."""
        if self._knows_qos_1 and not self.published:
            return True
        longest, since = self._unasked
        if octets >= longest or mono_s - since > self._ends_s:
            self._unasked = octets, mono_s
        return False

    def next_trial(self) -> int | None:
        """The length of the next trial; None: there is none now."""
        if not (self._knows_qos_1 and self._tries) or self._trial is not None:
            return None
        if any(octets > self.known for octets, _ in self.published.values()):
            return None
        if self._checks:
            octets = self._checks.pop()
        elif self._refused is None or self._is_found:
            return None
        elif self._passes == self._assumed:  # does a short one pass?
            octets = self._assumed + 1
        else:
            octets = (self._passes + self._refused) // 2
        return octets if octets <= self._most else None

    def on_published(self, identifier: int, octets: int, mono_s: float, *, trial: bool = False) -> None:
        """A message was published with QoS 1 or 2."""
        self.published[identifier] = octets, mono_s
        if trial:
            self._trial = identifier

    # What the broker says

    def on_connected(self, advertised: int | None, most: int, *, knows_qos_1: bool, mono_s: float) -> None:
        """A connection begins.

        Args:
            advertised: the broker's Maximum Packet Size; None if it has none.
            most: octets of the longest frame that fits it.
            knows_qos_1: the broker takes messages with QoS 1.
            mono_s: now.
        """
        self._advertised, self._most, self._knows_qos_1 = advertised, max(0, min(most, self._max_frame)), knows_qos_1
        self.published = {number: (octets, mono_s) for number, (octets, _) in self.published.items()}  # once more
        self._update()

    def on_ack(self, identifier: int, code: int, mono_s: float) -> bool:
        """The broker acknowledges a message with a reason code; whether that counts as a refusal."""
        if identifier not in self.published:
            return False
        octets, _ = self.published.pop(identifier)
        is_trial = identifier == self._trial
        if is_trial:
            self._trial = None
        if code < 0x80:
            self._on_passed(octets)
        elif code in REFUSALS and (is_trial or octets > self.known):
            self._refused_mono_s = mono_s
            if is_trial and octets == self._assumed + 1:  # short ones are refused as well: it is not for the length
                self._refused = None
                self._update()
            else:
                self._on_refusal(octets, is_enough=is_trial)
            return True
        elif is_trial:  # not for its length: topic not authorized
            self._tries = False
            self._update()
        return False

    def on_connection_end(self, code: int, mono_s: float, *, lost: bool) -> bool:
        """The connection has ended; whether that counts as a refusal.

        Args:
            code: reason code, from the broker or from paho.
            mono_s: now.
            lost: without a DISCONNECT from the broker.
        """
        trial = self.published.get(self._trial, (0, 0.0))[0] if self._trial is not None else 0
        published = [*self.published.values(), self._unasked]
        suspected = max((octets for octets, since in published if mono_s - since < self._ends_s), default=0)
        octets = trial or suspected
        may_refuse = code in REFUSALS or (lost and code == PROTOCOL_ERROR)
        self._unasked = (0, 0.0)
        if may_refuse and mono_s - self._refused_mono_s < self._ends_s:
            return True  # counted: mosquitto 2.0.11 with max_queued_messages 0 ends the connection after such a PUBACK
        if may_refuse and (trial or octets > self.known):
            if trial == self._assumed + 1:  # not for its length: perhaps the broker ends a connection for the topic
                self._tries = False
                self._update()
            else:
                self._on_refusal(octets, is_enough=bool(trial) or (code == PACKET_TOO_LARGE and not lost))
            return True
        self._refusals = 0
        if not self._tries:
            self._refused, self._tries = None, True
        if self._refused is None:
            self._passes = self._assumed
        elif self._is_found:
            self._checks = [self._refused, self._passes]
        self._update()
        return False

    def forgets_published(self) -> bool:
        """After the end of a connection: whether what is unacknowledged must not be published again.

        It contains a trial, or what the broker refuses, or it was to be published at most once.
        """
        if not self.published:
            return False
        lengths = [octets for octets, _ in self.published.values()]
        forgets = not self._always_acks or self._trial is not None or max(lengths) > self.octets
        if forgets:
            self.published.clear()
            self._trial = None
        return forgets

    def _on_passed(self, octets: int) -> None:
        self._passes = max(self._passes, octets)
        if octets >= self._suspected:
            self._refusals = 0
        if self._refused is not None and octets >= self._refused:  # the broker takes more than it did
            self._refused, self._checks = None, []
        self._update()

    def _on_refusal(self, octets: int, is_enough: bool) -> None:
        self._suspected = min(self._suspected, octets) if self._refusals else octets
        self._refusals += 1
        if is_enough or self._refusals >= REFUSALS_IN_A_ROW:
            self._refusals, self._checks = 0, []
            self._refused = min(self._suspected, self._refused or self._suspected)
            if self._passes >= self._refused:  # the broker takes less than it did
                self._passes = self._assumed
        self._update()

    def _update(self) -> None:
        self.octets, self.reason = self._most, ""
        if self._most < self._max_frame:
            self.reason = (
                f"the broker at {self._broker} advertises a Maximum Packet Size of {self._advertised} octets: "
                "raise it there (max_packet_size of mosquitto), or send shorter messages"
            )
        if self._refused is not None and self._refused <= self._most:
            if self._is_found:
                self.octets = self._passes
            elif self._is_searching:
                self.octets = self._refused - 1
            else:  # in few steps: each costs a connection or more
                self.octets = max(self._passes, self._refused * 3 // 4)
            self.reason = (
                f"the broker at {self._broker} refuses longer messages, but advertises no such limit: "
                "raise it there (message_size_limit of mosquitto), or send shorter messages"
            )
        self.known = min(self._passes, self.octets)
