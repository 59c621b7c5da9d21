"""An answer of an NTP server, checked against its question (RFC 5905 sections 7.3, 7.4 and 8, appendix A.5.1).

Anything may send a datagram to an open port, and servers send packets that look like time and are none: kiss-o'-death
packets, stamps of zero, answers of a clock that was never set.  An offset computed from one of them looks like any
other, so each premise of the computation is checked here.
"""

import struct
from dataclasses import dataclass

import ntplib

SERVER = 4  # the mode of an answer; `ntplib.NTP.MODE_TABLE` names the others
VERSION = 4
HEADER_OCTETS = 48
_UNSYNCHRONISED = 3  # leap indicator
_STRATUM_INVALID = 16
_UNIX_EPOCH_S = 2_208_988_800  # in the prime epoch of NTP, 1900
# RFC 5905 section 7.4, and RFC 8915 section 5.7 for NTSN
KISSES = {
    "ACST": "it was asked as an anycast server and answers as one for single clients",
    "AUTH": "it could not authenticate the question",
    "AUTO": "its Autokey exchange failed",
    "BCST": "it serves by broadcast",
    "CRYP": "a cryptographic check failed",
    "DENY": "it refuses to serve this host",
    "DROP": "it has lost its symmetric peer",
    "INIT": "it has not set its clock for the first time yet",
    "MCST": "it serves by multicast",
    "NKEY": "it has no such key",
    "NTSN": "it could not decrypt the question (NTS)",
    "RATE": "it was asked too often",
    "RMOT": "its association was changed from another host",
    "RSTR": "its policy refuses this host",
    "STEP": "its clock was stepped and has not settled yet",
}


class UnrelatedPacket(Exception):
    """Not the server's answer to the question: to be ignored, because the answer may still come."""


class UnusableAnswer(Exception):
    """The server's answer, from which no offset follows.

    Attributes:
        kiss: its kiss code, such as ``RATE``; None unless it is a kiss-o'-death packet.
    """

    def __init__(self, reason: str, kiss: str | None = None) -> None:
        super().__init__(reason)
        self.kiss = kiss


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that has passed all checks which need no clock.

    Attributes:
        stratum: 1 to 15.
        precision_ns: resolution of the server's clock.
        root_delay_ns, root_dispersion_ns: from the server to its primary server.
        received, transmitted: T2 and T3, as NTP timestamps of 64 bits.
    """

    stratum: int
    precision_ns: int
    root_delay_ns: int
    root_dispersion_ns: int
    received: int
    transmitted: int


def question(nonce: int) -> bytes:
    """A client's packet with ``nonce`` (64 bits) as its transmit timestamp.

    The server copies it to the origin timestamp of its answer and uses it for nothing else.  A random one cannot be
    guessed by a host that does not see the question (as chrony does); when it was sent is known here.
    """
    head: bytes = ntplib.NTPPacket(version=VERSION, mode=3).to_data()
    return head[:40] + nonce.to_bytes(8)


def check(octets: bytes, nonce: int) -> Answer:
    """Read the answer to `question`.

    Raises:
        UnrelatedPacket: no NTP packet, no answer of a server, or the answer to another question.
        UnusableAnswer: the answer is a kiss-o'-death, or says itself that its time is not valid.
    """
    if len(octets) < HEADER_OCTETS:
        raise UnrelatedPacket(f"a datagram of {len(octets)} octets, which is no NTP packet")
    packet = ntplib.NTPPacket()
    packet.from_data(octets)
    reference, origin, received, transmitted = struct.unpack("!4Q", octets[16:HEADER_OCTETS])  # ntplib's are rounded
    if not 0 < packet.version <= VERSION:
        raise UnrelatedPacket(f"a packet of NTP version {packet.version}, not {VERSION} or lower")
    if packet.mode != SERVER:
        mode = ntplib.NTP.MODE_TABLE[packet.mode]
        raise UnrelatedPacket(f"a packet of mode {packet.mode} ({mode}), not of mode {SERVER} (server)")
    kiss = _kiss(octets[12:16]) if packet.stratum == 0 else None
    if origin != nonce:
        what = "no origin timestamp" if origin == 0 else "the origin timestamp of another question"
        raise UnrelatedPacket(f"{kiss or 'an answer'} with {what}")
    if kiss:
        raise kiss
    if packet.leap == _UNSYNCHRONISED or not 0 < packet.stratum < _STRATUM_INVALID:
        raise UnusableAnswer(f"its own clock is not synchronised (leap {packet.leap}, stratum {packet.stratum})")
    for name, stamp in (("receive", received), ("transmit", transmitted)):
        if stamp == 0:
            raise UnusableAnswer(f"its {name} timestamp is zero, so it does not know the time")
    if reference and _difference(reference, transmitted) > 0:
        raise UnusableAnswer(
            "its reference timestamp is later than its transmit timestamp: its clock was set meanwhile"
        )
    return Answer(
        packet.stratum,
        round(2.0**packet.precision * 1e9),
        round(packet.root_delay * 1e9),
        round(packet.root_dispersion * 1e9),
        received,
        transmitted,
    )


def unix_ns(stamp: int, near_ns: int) -> int:
    """An NTP timestamp as Unix time in ns: in the era in which it is within 68 years of ``near_ns`` (section 6)."""
    seconds, rest = divmod(near_ns, 10**9)
    near = (seconds + _UNIX_EPOCH_S << 32) + (rest << 32) // 10**9
    return near_ns + (_difference(stamp, near) * 10**9 >> 32)


def _difference(one: int, other: int) -> int:
    """Two timestamps' difference in units of 2^-32 s, across eras."""
    return (one - other + (1 << 63)) % (1 << 64) - (1 << 63)


def _kiss(reference_id: bytes) -> UnusableAnswer | None:
    """The answer of a kiss-o'-death packet; None if there is no code: so does a server that has no time yet."""
    code = reference_id.rstrip(b"\0").decode("ascii", "replace")
    if not code or not (code.isascii() and code.isprintable()):
        return None
    return UnusableAnswer(f"a kiss-o'-death packet, code {code} ({KISSES.get(code, 'not listed in RFC 5905')})", code)
