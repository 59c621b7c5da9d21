"""MGEN scripts (``.mgn``) for a sending and a receiving mgen.

``python -m twinlink_measure.mgen.script DIR`` writes those of a sweep (mgen-scripts/ in the repository).
"""

import enum
import sys
from dataclasses import dataclass
from pathlib import Path

from twinlink.appkit.mgen_message import MAX_UDP_OCTETS, MIN_OCTETS, Address, Protocol
from twinlink.errors import ConfigurationError

from ..frames import MAX_PAYLOAD

TTL = 64  # MGEN's own default for unicast is 3 hops
_MIN_TCP_OCTETS = 76
_MAX_TCP_OCTETS = MAX_PAYLOAD - 1  # of a link: the bridge adds one

PAYLOADS = {  # those of the reference measurement, and the longest by UDP
    **{"100B": 100, "1KB": 1024, "8KB": MAX_UDP_OCTETS},
    **{"10KB": 10 * 1024, "100KB": 100 * 1024, "1MB": 1024 * 1024},
}
RATE_HZ = 20.0
COUNT = 100
BURST_S = (1.0, 0.2)  # interval between starts of bursts, and length of a burst
BURST_HZ = 50.0  # within a burst: 10 messages


class Pattern(enum.StrEnum):
    """The distribution of the times between messages."""

    PERIODIC = "periodic"  # constant
    POISSON = "poisson"  # exponential
    BURST = "burst"  # periodic for a while, then silence


class Side(enum.StrEnum):
    """The two ends of the channel, with the ports of MGEN and the bridge."""

    REAL_WORLD = "rw"
    DIGITAL_TWIN = "dt"

    def takes(self, protocol: Protocol) -> Address:
        """Port at which the bridge of this side listens for a sending mgen."""
        return self._port(0 if protocol is Protocol.UDP else 1)

    def gives(self, protocol: Protocol) -> Address:
        """Port at which a receiving mgen of this side listens for the bridge."""
        return self._port(2 if protocol is Protocol.UDP else 3)

    def _port(self, number: int) -> Address:
        return Address("127.0.0.1", (5001 if self is Side.REAL_WORLD else 6001) + number)


@dataclass(frozen=True)
class Flow:
    """The traffic of a sending mgen: ``count`` messages of ``octets`` with MGEN's headers.

    Raises:
        ConfigurationError: MGEN would refuse it.
    """

    number: int
    protocol: Protocol
    to: Address
    octets: int
    count: int = COUNT
    rate_hz: float = RATE_HZ
    pattern: Pattern = Pattern.PERIODIC

    def __post_init__(self) -> None:
        check(self.octets, self.protocol)
        if self.count < 1 or self.rate_hz <= 0 or not 0 < self.number < 2**32:
            raise ConfigurationError(f"flow {self.number}: {self.count} messages, {self.rate_hz:g} a second")

    def event(self) -> str:
        """The script's line without its time, as ``mgen event`` takes it."""
        messages = f"[{self.rate_hz:g} {self.octets}]"
        pattern = f"{self.pattern.name} {messages}"
        if self.pattern is Pattern.BURST:
            pattern = f"BURST [REGULAR {BURST_S[0]:g} PERIODIC {messages} FIXED {BURST_S[1]:g}]"
        where = f"DST {self.to.host}/{self.to.port}"
        return f"ON {self.number} {self.protocol.name} {where} {pattern} COUNT {self.count} TTL {TTL}"


def check(octets: int, protocol: Protocol | None = None) -> None:
    """Raise ConfigurationError for a size that the protocol (default: `protocol_for`) or the bridge does not carry."""
    protocol = protocol or protocol_for(octets)
    least, most = (MIN_OCTETS, MAX_UDP_OCTETS) if protocol is Protocol.UDP else (_MIN_TCP_OCTETS, _MAX_TCP_OCTETS)
    if not least <= octets <= most:
        raise ConfigurationError(
            f"messages of {octets} B by {protocol.name}: MGEN and the bridge carry {least} to {most}"
        )


def protocol_for(octets: int) -> Protocol:
    """UDP up to MGEN's longest datagram, else TCP."""
    return Protocol.UDP if octets <= MAX_UDP_OCTETS else Protocol.TCP


def sweeps() -> dict[str, str]:
    """The scripts of a sweep: file name, with its folder, and content."""
    files = {}
    for here, there in ((Side.REAL_WORLD, Side.DIGITAL_TWIN), (Side.DIGITAL_TWIN, Side.REAL_WORLD)):
        direction = f"{here}-{there}"
        for name, octets in PAYLOADS.items():
            protocol = protocol_for(octets)
            for pattern in Pattern:
                rate_hz = BURST_HZ if pattern is Pattern.BURST else RATE_HZ
                number = 1 if here is Side.REAL_WORLD else 2
                flow = Flow(number, protocol, here.takes(protocol), octets, COUNT, rate_hz, pattern)
                files[f"{direction}/{pattern}-{name}.mgn"] = (
                    f"# {COUNT} messages of {octets} B, {pattern.name}, by {protocol.name} to the bridge of this side\n"
                    f"0.0 {flow.event()}\n"
                )
        files[f"{here}-listen.mgn"] = (
            f"# what comes over the bridge to this side ({here})\n"
            f"0.0 LISTEN UDP {here.gives(Protocol.UDP).port}\n"
            f"0.0 LISTEN TCP {here.gives(Protocol.TCP).port}\n"
        )
    return files


def write(folder: Path) -> None:
    """Write the scripts of a sweep below ``folder``.  Raises OSError."""
    for name, content in sweeps().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m twinlink_measure.mgen.script DIR")
    try:
        write(Path(sys.argv[1]))
    except OSError as error:
        sys.exit(f"{error.filename} cannot be written: {error.strerror}")
