"""`twinlink.h` for Python's ctypes, from a shared library that is built for it."""

import ctypes as ct
from pathlib import Path

from tests.c.building import SOURCES, build

ABI = 1
EVENTS = {1: "peer_up", 2: "peer_down", 3: "restarted", 4: "lost", 5: "gap", 6: "malformed"}
u64, u32, size_t, text = ct.c_uint64, ct.c_uint32, ct.c_size_t, ct.c_char_p


class Event(ct.Structure):
    _fields_ = [
        ("kind", ct.c_int), ("epoch", u64), ("node", text), ("flow", text), ("first", u64), ("end", u64),
        ("reason", text),
    ]  # fmt: skip


class Message(ct.Structure):
    _fields_ = [("epoch", u64), ("sequence", u64), ("sent_ns", u64), ("payload", ct.c_void_p), ("octets", size_t)]


OnEvent = ct.CFUNCTYPE(None, ct.c_void_p, ct.POINTER(Event))
OnMessage = ct.CFUNCTYPE(None, ct.c_void_p, ct.POINTER(Message))


class FlowConfig(ct.Structure):
    _fields_ = [
        ("name", text), ("ring_octets", size_t), ("messages", u32), ("reserve_octets", size_t), ("window_octets", u64),
    ]  # fmt: skip


class Config(ct.Structure):
    _fields_ = [
        ("abi", u32), ("octets", u32), ("node", text), ("epoch", u64), ("flows", ct.POINTER(FlowConfig)),
        ("flow_count", u32), ("send_max_octets", u32), ("in_flight_octets", u64), ("receive_flow", text),
        ("receive_max_octets", u32),
        ("receive_slots", u32), ("on_event", OnEvent), ("on_message", OnMessage), ("context", ct.c_void_p),
    ]  # fmt: skip


class Frame(ct.Structure):
    _fields_ = [("topic", ct.c_void_p), ("topic_octets", size_t), ("octets", ct.c_void_p), ("size", size_t)]


class FlowStats(ct.Structure):
    _fields_ = [
        (name, u64)
        for name in (
            "sent", "sent_octets", "dropped", "acknowledged", "lost", "retransmitted", "outstanding", "unconfirmed",
        )
    ]  # fmt: skip


class Stats(ct.Structure):
    _fields_ = [
        *(
            (name, u64)
            for name in (
                "received", "duplicates", "gaps", "malformed", "peers_refused", "control_dropped", "in_flight_octets",
                "rtt_ns", "rtt_min_ns",
            )
        ),
        ("peers_up", u32),
    ]  # fmt: skip


def load(directory: Path) -> ct.CDLL:
    """The library with the driver for WebSocket, built into this directory."""
    library = ct.CDLL(
        str(
            build(
                directory / "libtwinlink.so",
                SOURCES / "twinlink.c",
                SOURCES / "twinlink_websocket.c",
                options=("-O1", "-fPIC", "-shared", "-DTWINLINK_SHARED"),
            )
        )
    )
    pointer = ct.c_void_p
    signatures: dict[str, tuple[object, list[object]]] = {
        "memory_octets": (size_t, [ct.POINTER(Config)]),
        "init": (ct.c_int, [ct.POINTER(pointer), pointer, size_t, ct.POINTER(Config), u64]),
        "error_text": (text, [ct.c_int]),
        "wrong_member": (text, [ct.POINTER(Config)]),
        "flow_at": (pointer, [pointer, u32]),
        "reserve": (pointer, [pointer, size_t]),
        "commit": (u64, [pointer, size_t, u64]),
        "send": (ct.c_bool, [pointer, text, size_t, u64]),
        "receive": (None, [pointer, text, size_t, text, size_t, u64, u64]),
        "on_time": (None, [pointer, u64, u64, u64]),
        "next_timeout": (u64, [pointer]),
        "poll_transmit": (ct.c_bool, [pointer, ct.POINTER(Frame), u64, u64]),
        "close": (None, [pointer, u64, u64]),
        "get_stats": (None, [pointer, ct.POINTER(Stats)]),
        "get_flow_stats": (None, [pointer, ct.POINTER(FlowStats)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"twinlink_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Node:
    """A node of the library, on a clock of its caller's; what it did is in the attributes.

    Attributes:
        events, messages: as they were reported, with the fields of the structures.
    """

    def __init__(
        self, library: ct.CDLL, config: Config, flows: list[FlowConfig], now_ns: int, misplaced: int = 0
    ) -> None:
        """``misplaced``: octets by which its memory is not aligned.  Raises ValueError with the library's text."""
        self.events: list[dict[str, object]] = []
        self.messages: list[tuple[int, int, bytes]] = []
        self._library = library
        self._on_event, self._on_message = OnEvent(self._take_event), OnMessage(self._take_message)
        config.on_event, config.on_message = self._on_event, self._on_message
        config.flows, config.flow_count = (FlowConfig * len(flows))(*flows), len(flows)
        octets = library.twinlink_memory_octets(ct.byref(config))
        self._memory = ct.create_string_buffer(octets + 128)
        address = ct.addressof(self._memory)
        address += -address % 64 + misplaced
        self.link = ct.c_void_p()
        error = library.twinlink_init(ct.byref(self.link), address, octets, ct.byref(config), now_ns)
        if error:
            member = library.twinlink_wrong_member(ct.byref(config)) or b""
            raise ValueError(f"{member.decode()}: {library.twinlink_error_text(error).decode()}")

    def _take_event(self, _: object, event: "ct._Pointer[Event]") -> None:
        one = event.contents
        fields: dict[str, object] = {"event": EVENTS[one.kind], "epoch": one.epoch, "first": one.first, "end": one.end}
        for name in ("node", "flow", "reason"):
            fields[name] = getattr(one, name).decode()  # never NULL
        self.events.append(fields)

    def _take_message(self, _: object, message: "ct._Pointer[Message]") -> None:
        one = message.contents
        self.messages.append((one.epoch, one.sequence, ct.string_at(one.payload, one.octets) if one.octets else b""))

    def send(self, flow: int, payload: bytes, now_ns: int) -> bool:
        at = self._library.twinlink_flow_at(self.link, flow)
        return bool(self._library.twinlink_send(at, payload, len(payload), now_ns))

    def receive(self, topic: bytes, frame: bytes, now_ns: int) -> None:
        self._library.twinlink_receive(self.link, topic, len(topic), frame, len(frame), now_ns, now_ns)

    def on_time(self, now_ns: int, drained_ns: int) -> None:
        self._library.twinlink_on_time(self.link, now_ns, now_ns, drained_ns)

    def frames(self, now_ns: int) -> list[tuple[bytes, bytes]]:
        """Topic and octets of each frame that is to be sent now."""
        frame, frames = Frame(), []
        while self._library.twinlink_poll_transmit(self.link, ct.byref(frame), now_ns, now_ns):
            frames.append((ct.string_at(frame.topic, frame.topic_octets), ct.string_at(frame.octets, frame.size)))
        return frames

    def close(self, now_ns: int) -> None:
        self._library.twinlink_close(self.link, now_ns, now_ns)

    def flow_stats(self, flow: int) -> FlowStats:
        stats = FlowStats()
        self._library.twinlink_get_flow_stats(self._library.twinlink_flow_at(self.link, flow), ct.byref(stats))
        return stats

    def stats(self) -> Stats:
        stats = Stats()
        self._library.twinlink_get_stats(self.link, ct.byref(stats))
        return stats
