"""One scrape of a program's `/metrics`: `scrape` asks over HTTP, `Scrape` holds what `twinlink top` shows."""

import http.client
import math
import socket
import time
from dataclasses import dataclass, field

from twinlink.appkit.convert import HttpAddress
from twinlink.errors import PeerTimeout

CONNECT_S = 1.0  # for finding out whether anything listens
TIMEOUT_S = 5.0  # for connecting, and for each part of the answer
_MOST_OCTETS = 32 * 1024 * 1024  # some 4096 flows and 64 peers
_PREFIX = "twinlink_"


@dataclass(frozen=True, slots=True)
class Scrape:
    """The values at one instant.

    Attributes:
        at_s: when the answer had come, on this host's monotonic clock.
        node, transport: of the program's link; empty if it has none.
        version: of the program's twinlink.
        values: by metric, flow and peer; flow or peer are empty where the metric has no such label.
    """

    at_s: float
    node: str
    transport: str
    version: str
    values: dict[tuple[str, str, str], float] = field(repr=False)

    def value(self, metric: str, flow: str = "", peer: str = "") -> float | None:
        """A value, or None if the program has no such series."""
        return self.values.get((metric, flow, peer))

    def labels(self, metric: str) -> list[tuple[str, str]]:
        """Flow and peer of each series of a metric, in order."""
        return sorted((flow, peer) for name, flow, peer in self.values if name == metric)


def scrape(address: HttpAddress) -> Scrape:
    """Ask the program that serves at ``address`` (its option ``--http``).

    Raises:
        PeerTimeout: nothing answers there, or another program does; the message says what to do.
        MetricsMissing: prometheus_client is not installed.
    """
    import twinlink.metrics  # noqa: F401  (raises MetricsMissing)

    advice = (
        f"start the program with `--http {address}`, or give the address that it logs: `twinlink top HOST:PORT`; "
        f"if this is the endpoint of a link, write `twinlink top tcp/{address}`"
    )
    try:
        status, text = _get(address)
    except ConnectionRefusedError:
        raise PeerTimeout(f"nothing listens at {address} (TCP says: Connection refused): {advice}") from None
    except TimeoutError:
        raise PeerTimeout(f"no answer from {address} within {TIMEOUT_S:g} s: check the address and firewalls") from None
    except socket.gaierror as error:
        raise PeerTimeout(f"the host name of {address} does not resolve ({error.strerror}): check it") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}"
        raise PeerTimeout(f"no HTTP from {address} ({reason}): {advice}") from None
    if status != http.HTTPStatus.OK:
        raise PeerTimeout(f"{address} answers /metrics with HTTP status {status}: {advice}")
    return _parse(text, address, advice)


def is_closed(address: HttpAddress) -> bool:
    """Whether nothing listens there: TCP refuses the connection, or none can be made."""
    try:
        socket.create_connection((address.host, address.port), CONNECT_S).close()
    except socket.gaierror:
        return False  # `scrape` says what is wrong with the name
    except OSError:
        return True
    return False


def _get(address: HttpAddress) -> tuple[int, str]:
    """Status and content; neither a proxy of the environment nor a redirection is followed."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics", headers={"Accept": "text/plain", "Connection": "close"})
        answer = connection.getresponse()
        content = answer.read(_MOST_OCTETS + 1)
    finally:
        connection.close()
    if len(content) > _MOST_OCTETS:
        raise PeerTimeout(f"{address} answers /metrics with more than {_MOST_OCTETS:,} octets: is it twinlink?")
    return answer.status, content.decode(errors="replace")


def _parse(text: str, address: HttpAddress, advice: str) -> Scrape:
    from prometheus_client.parser import text_string_to_metric_families

    at_s = time.monotonic()
    build: dict[str, str] | None = None
    values = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "twinlink_build_info":
                    build = sample.labels
                elif sample.name.startswith(_PREFIX) and "le" not in sample.labels and math.isfinite(sample.value):
                    values[sample.name, sample.labels.get("flow", ""), sample.labels.get("peer", "")] = sample.value
    except (ValueError, KeyError, IndexError):  # of the parser
        build = None
    if build is None:
        raise PeerTimeout(f"what answers at {address} does not serve twinlink's metrics: {advice}")
    return Scrape(at_s, build.get("node", ""), build.get("transport", ""), build.get("version", ""), values)
