"""MQTT 5 over paho-mqtt: the same topics and frames as on other transports, through a broker.

MQTT has no listener, so there are two ways to have a broker.  By default the listening side starts one: a private
mosquitto process at its endpoint, which ends with the link.  The other side connects to it as to any listener.  With
``private_broker=False`` the listening side connects as well, to a broker that is already at the endpoint.

A frame is the payload of a PUBLISH on ``traffic/<flow>`` or ``ack/<flow>``.  Both directions share these topics, so

- a client does not receive what it published itself (subscription option No Local);
- a listener marks its messages with the Payload Format Indicator 0, "unspecified octets"; connectors omit it, which
  means the same.  A server must forward the property unaltered (MQTT 5.0, 3.3.2.3.2).  Listeners accept unmarked
  messages, connectors marked ones, so that connectors ignore each other's messages.  The broker still delivers them:
  every connector receives what the others send.

The thread in `receive` serves the socket, as paho allows for event loops: a thread of its own would add a thread switch
per message.  Connecting has a thread, since resolving a name and waiting for TCP cannot be interrupted.
"""

import contextlib
import select
import threading
import time
from collections import deque
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from paho.mqtt.client import Client, MQTTMessage

from ..errors import TransportError
from ..process.guarded_thread import GuardedThread
from ..protocol.authentication import AuthenticatedPeer
from ..protocol.frames import HELLO_TOPIC
from .base import Frame, Transport, check_descriptors
from .mqtt_broker_log import BrokerLog
from .mqtt_client import (
    ASKED_AT_ONCE,
    FILTERS,
    MAX_IN_FLIGHT,
    READ_PACKETS,
    MqttOptions,
    cut,
    hang_up,
    is_marked,
    make_client,
    own_address,
    subscribe,
)
from .mqtt_private_broker import AROUND_A_FRAME, PrivateBroker
from .mqtt_problem import MqttProblem
from .mqtt_publisher import Publisher
from .mqtt_readiness import Readiness

if TYPE_CHECKING:
    from .mqtt_identity import MqttIdentity

ACK_INITIAL = ord("a")
HOLD_S = 0.05  # how long a data message waits for the socket; then `receive` writes it
HELLO = HELLO_TOPIC.decode()
FAREWELL_S = 0.3  # to send queued frames at close
DESCRIPTORS = 12  # of files and sockets, including those for the start of a broker
LOOK_S = 0.01
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # address of our own broker that listens on all interfaces


class MqttTransport(Transport):
    """paho-mqtt >= 2.1, mosquitto >= 2.0 or another MQTT 5 broker.

    Attributes:
        broker: the private broker, on the listening side; None when there is none.
    """

    options_class = MqttOptions
    options: MqttOptions
    takes_identity = True
    broker: PrivateBroker | None = None

    @property
    def threads(self) -> int:
        return 3 if self.listening and self.options.private_broker else 1  # the broker and the shell that ends it

    def open(self) -> None:
        check_descriptors(DESCRIPTORS)
        options = self.options
        self._authentication = self._authenticated()
        self._log = BrokerLog(self.endpoint)
        self._problem = MqttProblem(self.endpoint, self._authentication, self.refusals, self._log)
        self._filters = FILTERS if self._authentication is None else tuple(f"+/{one}" for one in FILTERS)
        self._inbox: deque[tuple[bytes, Frame, AuthenticatedPeer | None]] = deque()
        self._lock = threading.Lock()  # paho's client belongs to one thread at a time
        self._urgent: list[None] = []  # one item for each ack, hello or reader that waits for the client
        self._closing = threading.Event()
        self._up = False  # the broker has accepted us, and gets our subscriptions before our messages
        self._parted = False  # the broker has answered our UNSUBSCRIBE
        self._pause_s = max(options.reconnect_ms / 1000, LOOK_S)
        self._publisher = Publisher(
            self, self._problem.on_refused, self._authentication.prefix if self._authentication else ""
        )
        self._connect_timeout_s = options.connect_timeout_ms / 1000
        self._replaces_client = False  # it would publish again what the broker refuses
        self._reader = 0  # the thread that was in `receive` last
        self._receive_maximum = 0
        self._connecting: GuardedThread | None = None
        self._descriptor: int | None = None  # of the socket; None while the client must not be served
        self._readiness = Readiness()
        if self.listening and options.private_broker:
            self.broker = self._start_broker()
        self._client = self._make_client()
        if self.broker is None or not self._connect_once():
            self._start_connecting(0)

    def _authenticated(self) -> "MqttIdentity | None":
        if self.identity is None:
            return None
        from .mqtt_identity import MqttIdentity  # needs a package that other links do without

        return MqttIdentity(self.identity, self.listening, self.options.private_broker)

    def _start_broker(self) -> PrivateBroker:
        return PrivateBroker(self, self._authentication)

    def _make_client(self) -> Client:
        host = self.endpoint.host.strip("[]")
        if self.broker:
            host = ANY.get(host, host)
        context = self._authentication.context() if self._authentication is not None else None
        max_packet = self.max_frame + AROUND_A_FRAME
        client = make_client(host, self.endpoint.port, self.options, max_packet, self._connect_timeout_s, context)
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_disconnect = self._disconnected
        client.on_message = self._arrived
        client.on_unsubscribe = self._answered
        return client

    # Connecting

    def _start_connecting(self, after_s: float) -> None:
        """Start a thread that connects, unless one does."""
        if self._connecting is None or not self._connecting.is_alive():
            connect = partial(self._connect, after_s)
            self._connecting = GuardedThread(connect, "twinlink-mqtt-connect", self.internal_errors)
            self._connecting.start()

    def _connect(self, after_s: float) -> None:
        while not self._closing.wait(after_s):
            if self._connect_once():
                self._readiness.wake()
                return
            after_s = self._pause_s

    def _connect_once(self) -> bool:
        """Whether TCP connects.  The client has no socket now, so no other thread uses it."""
        try:
            if self.broker and not self.broker.running:
                self._restart(self.broker)
            if self._replaces_client:
                self._client, self._replaces_client = self._make_client(), False
            if self._client.max_inflight_messages != self._receive_maximum:
                self._client.disconnect()  # it is disconnected, but only then paho accepts the number
                self._client.max_inflight_messages = self._receive_maximum
            self._client.reconnect()
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            if self.listening and not self.broker:  # otherwise the listener may not have started yet
                self._log.warn(f"cannot be reached, and is tried again: {getattr(error, 'strerror', error)}")
            return False
        if self._closing.is_set():
            hang_up(self._client)
            if self.broker:
                self.broker.stop()
            return False
        opened = self._client.socket()
        if self._authentication is not None:
            if not self._authentication.connected(opened):
                cut(self._client)
                return False
            asks = self._authentication.may_be_denied
            self._publisher.on_hello_answered = self._problem.on_hello_answered if asks else None
        self._descriptor = opened.fileno() if opened else None
        return True

    def _restart(self, ended: PrivateBroker) -> None:
        has_new_keys = self._authentication is not None and self._authentication.is_stale
        ended.stop()
        try:
            self.broker = self._start_broker()
        except TransportError as error:
            self._log.warn(f"has ended, and cannot be started again: {error}")
            raise
        if not has_new_keys:
            self._log.warn("had ended, and was started again")

    def _connected(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._problem.on_connack(reason.value, str(reason))
        if reason.is_failure:
            return
        maximum = getattr(properties, "ReceiveMaximum", 0)  # absent: no limit but the range of packet identifiers
        if (self.options.qos or 0 < maximum < ASKED_AT_ONCE) and maximum != self._receive_maximum:
            self._receive_maximum = maximum
            client.disconnect()  # paho accepts the number between two connections only
            return
        self._log.on_connected()
        qos = self._problem.on_terms(properties, self.options.qos)
        subscribe(client, qos, self._filters)
        self._up = self._publisher.on_connected(client, properties, qos)
        if not self._up:
            self._replaces_client = True
            client.disconnect()

    def _subscribed(self, client: Client, userdata: Any, number: int, reasons: list[Any], properties: Any) -> None:
        self._problem.on_suback(dict(zip(self._filters, reasons, strict=False)))

    def _disconnected(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._up = False
        told = flags.is_disconnect_packet_from_server
        refused, replaces = self._publisher.on_disconnected(reason, lost=not told)
        self._replaces_client |= replaces
        self._descriptor = None  # from now on another thread may connect
        self._readiness.wake()
        if told and not refused:
            self._problem.on_refused(f"disconnects us: {reason}")

    # Sending

    def send(self, topic: bytes, frame: bytes) -> None:
        # Locks are not fair: threads that send continuously would delay acks by seconds.
        if topic[0] == ACK_INITIAL or topic == HELLO_TOPIC:
            try:
                self._urgent.append(None)
                self._publish(topic, frame)
            finally:
                self._urgent.pop()
            if self._client.want_write():
                self._readiness.wake()
        else:
            while self._urgent:
                time.sleep(0)
            self._publish(topic, frame)
            if self._behind() and get_ident() != self._reader:
                self._hold()

    def offer(self, topic: bytes, frame: bytes) -> None:
        if not self._behind():  # queued frames would be ahead of our hello
            self.send(topic, frame)

    def _publish(self, topic: bytes, frame: bytes) -> None:
        """Queue a message and write what the socket takes; without a connection it is dropped."""
        with self._lock:
            if not self._up:
                self._serve_client()  # perhaps no thread has been in `receive` yet
            if not self._up or self._closing.is_set():
                return
            try:
                self._publisher.publish(self._client, topic, frame)
                self._client.loop_write()
            except TransportError:
                raise
            except BaseException:
                cut(self._client)
                raise

    def _behind(self) -> bool:
        return self._client.want_write() or self._publisher.unacknowledged > MAX_IN_FLIGHT

    def _hold(self) -> None:
        """Wait briefly for the broker, so that the client's queue stays short.

        Not in the receiving thread: other threads wait for its frames, and it writes as soon as the socket takes more.
        """
        self._readiness.wake()  # so that it polls for writing, too
        deadline = time.monotonic() + HOLD_S
        while self._behind() and time.monotonic() < deadline and not self._closing.is_set():
            descriptor = self._descriptor
            if descriptor is None:
                return
            waiting = select.poll()
            waiting.register(descriptor, select.POLLOUT if self._client.want_write() else select.POLLIN)
            waiting.poll(LOOK_S * 1000)
            self._serve()
            if self._inbox:
                self._readiness.wake()

    # Receiving

    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        self._reader = get_ident()
        inbox = self._inbox
        if not inbox:
            if timeout_s > 0:
                self._readiness.wait(timeout_s, self._client, self._descriptor)
            self._serve()
            if not inbox:
                return None
        topic, frame, self.sender = inbox.popleft()
        return topic, frame

    def _serve(self) -> None:
        try:
            self._urgent.append(None)
            with self._lock:
                self._serve_client()
        finally:
            self._urgent.pop()

    def _serve_client(self) -> None:
        """Read pending packets and write queued ones."""
        client = self._client
        if self._descriptor is None:
            if not self._closing.is_set():
                self._start_connecting(max(self._pause_s, self._problem.pause_s))
            return
        try:
            for _ in range(READ_PACKETS):
                client.loop_read()  # a single packet, unless some have QoS 1 or 2
                if self._inbox or not self._readiness.is_readable(client, self._descriptor):
                    break
            if client.want_write():
                client.loop_write()
            if not self._inbox:
                client.loop_misc()  # keepalive
        except BaseException:
            cut(self._client)
            raise

    def _arrived(self, client: Client, userdata: Any, message: MQTTMessage) -> None:
        if is_marked(message.properties) == self.listening:
            return  # for the other side
        sender = None
        try:
            topic = message.topic
            if self._authentication is not None:
                name, sender, topic = self._authentication.sender_and_topic(topic)
                if sender is None and topic == HELLO and self._authentication.through_broker:
                    self._problem.on_unknown(name)
            self._inbox.append((topic.encode(), bytes(message.payload), sender))
        except UnicodeDecodeError:
            self._inbox.append((b"", b"", None))

    # Keys

    def joins(self, epoch: int, hears_us: bool) -> bool:
        self._problem.on_hello(self.sender, hears_us)
        return False

    def why_alone(self) -> str | None:
        return self._problem.refusal

    def tick(self) -> None:
        if self.broker is None:
            self.authentication_problem = self._problem.find(self._up)
        else:
            for refusal in self.broker.take_refusals():
                self.refusals.add(refusal)
            self.broker.guard(own_address(self._client))
        authentication = self._authentication
        if authentication is None:
            return
        authentication.watched.refresh()
        if authentication.is_stale:
            with self._lock:
                self._replaces_client = True
                if self.broker is not None:
                    self.broker.stop()  # it is started again when the client connects
                cut(self._client)

    # Closing

    def renew(self, patience: int) -> None:
        self._connect_timeout_s = patience * self.options.connect_timeout_ms / 1000
        with contextlib.suppress(RuntimeError):  # it is connected
            self._client.connect_timeout = self._connect_timeout_s

    def close(self) -> None:
        self._closing.set()
        deadline = time.monotonic() + FAREWELL_S
        if self._connecting:
            self._connecting.join(FAREWELL_S)
        if self._up:
            self._part(deadline)
        with self._lock:
            if self._descriptor is not None:
                hang_up(self._client)
        if self.broker:
            self.broker.stop()
        self._readiness.close()

    def _part(self, deadline: float) -> None:
        """Return when the broker has forwarded our messages: it answers in order, so wait for its UNSUBACK."""
        asked = False
        while not self._parted and self._descriptor is not None and (left := deadline - time.monotonic()) > 0:
            if not asked and not (self.options.qos and self._publisher.unacknowledged):
                asked = True
                with self._lock:
                    self._client.unsubscribe(list(self._filters))
            self._readiness.wait(left, self._client, self._descriptor)
            self._serve()
            self._inbox.clear()

    def _answered(self, client: Client, userdata: Any, number: int, reasons: Any, properties: Any) -> None:
        self._parted = True
