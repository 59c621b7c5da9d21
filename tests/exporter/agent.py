"""A small real E3 agent for tests, on asn1tools alone: not the emulator, and nothing of the exporter's codec."""

import random
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

import zmq
from twinlink_e3 import Endpoints

from tests.e3.dapps_grammar import E3AP_FILE, SPECTRUM_FILE, compiled
from twinlink.testing.base import PATIENCE_S

E3AP = compiled(E3AP_FILE)
SPECTRUM = compiled(SPECTRUM_FILE)


def encode_pdu(name: str, body: dict[str, Any]) -> bytes:
    octets: bytes = E3AP.encode("E3-PDU", {"id": random.randint(1, 1000), "msg": (name, body)})
    return octets


def encode_indication(dapp_id: int, iq: bytes, timestamp: int | None = None, ran_function: int = 1) -> bytes:
    data: dict[str, Any] = {"iqSamples": iq, "sampleCount": len(iq) // 4}
    if timestamp is not None:
        data["timestamp"] = timestamp
    body = {
        "dAppIdentifier": dapp_id,
        "ranFunctionIdentifier": ran_function,
        "protocolData": SPECTRUM.encode("Spectrum-IQDataIndication", data),
    }
    return encode_pdu("indicationMessage", body)


class Agent:
    """Binds its sockets on construction; serves in a thread until `stop`.

    Args:
        endpoints: where.
        first_dapp_id: identifier of the first dApp that sets up.
        ack: response code of the messageAck to a control, or None to send none.
        setup_replies: octets to answer the first setup requests with, instead of a setupResponse.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        first_dapp_id: int = 1,
        ack: str | None = "positive",
        setup_replies: Iterable[bytes] = (),
    ) -> None:
        self.controls: list[list[int]] = []  # lists of PRBs, in order
        self.validities: list[int | None] = []
        self.releases: list[int] = []
        self.subscribed: list[int] = []  # dApp identifiers, in order
        self.setups = 0
        self._next_dapp_id = first_dapp_id
        self._ack = ack
        self._setup_replies = list(setup_replies)
        self._context = zmq.Context()
        self._rep, self._pub, self._sub = map(self._context.socket, (zmq.REP, zmq.PUB, zmq.SUB))
        self._sub.subscribe(b"")
        self._pub.sndhwm = 0
        for socket, endpoint in zip(
            (self._rep, self._pub, self._sub), (endpoints.setup, endpoints.to_dapp, endpoints.from_dapp), strict=True
        ):
            socket.bind(endpoint)
        self._pub_lock = threading.Lock()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def send(self, *messages: bytes) -> None:
        """Send to every dApp."""
        with self._pub_lock:
            for message in messages:
                self._pub.send(message)

    def wait_for(self, condition: Callable[["Agent"], object], timeout: float = PATIENCE_S) -> None:
        """Wait until ``condition(agent)`` holds; fails the test when it never does."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), timeout), f"after {timeout} s: {vars(self)}"

    def stop(self) -> None:
        """Stop, as if the gNB ended."""
        self._stopping.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._rep, zmq.POLLIN)
        poller.register(self._sub, zmq.POLLIN)
        while not self._stopping.is_set():
            for socket, _ in poller.poll(20):
                octets = socket.recv()
                with self._changed:
                    if socket is self._rep:
                        self._rep.send(self._set_up(E3AP.decode("E3-PDU", octets)))
                    else:
                        pdu = E3AP.decode("E3-PDU", octets)
                        getattr(self, "_" + pdu["msg"][0])(pdu["id"], pdu["msg"][1])
                    self._changed.notify_all()

    def _set_up(self, pdu: dict[str, Any]) -> bytes:
        self.setups += 1
        assert pdu["msg"][0] == "setupRequest"
        if self._setup_replies:
            return self._setup_replies.pop(0)
        data = SPECTRUM.encode("Spectrum-RanFunctionData", {"name": b"s", "version": 1, "description": b"test"})
        function = {
            "ranFunctionIdentifier": 1,
            "telemetryIdentifierList": [1],
            "controlIdentifierList": [1],
            "ranFunctionData": data,
        }
        self._next_dapp_id += 1
        return encode_pdu(
            "setupResponse",
            {
                "requestId": pdu["id"],
                "responseCode": "positive",
                "ranIdentifier": "test-gnb",
                "dAppIdentifier": self._next_dapp_id - 1,
                "ranFunctionList": [function],
            },
        )

    def _subscriptionRequest(self, request_id: int, body: dict[str, Any]) -> None:  # noqa: N802
        assert (body["ranFunctionIdentifier"], body["telemetryIdentifierList"]) == (1, [1])
        dapp_id = body["dAppIdentifier"]
        response = {"requestId": request_id, "dAppIdentifier": dapp_id, "responseCode": "positive", "subscriptionId": 1}
        self.subscribed.append(dapp_id)  # before the exporter can say so
        self.send(encode_pdu("subscriptionResponse", response))

    def _dAppControlAction(self, request_id: int, body: dict[str, Any]) -> None:  # noqa: N802
        control = SPECTRUM.decode("Spectrum-PRBBlacklistControl", body["actionData"])
        self.controls.append(control["blacklistedPRBs"])
        self.validities.append(control.get("validityPeriod"))
        if self._ack:
            self.send(encode_pdu("messageAck", {"requestId": request_id, "responseCode": self._ack}))

    def _releaseMessage(self, request_id: int, body: dict[str, Any]) -> None:  # noqa: N802
        self.releases.append(body["dAppIdentifier"])
