"""Where a program listens, as people write it: ``host`` or ``host:port``, IPv6 in brackets (RFC 5952 section 6)."""

import re

from .ip_address import check_host, is_address

MAX_PORT = 65535
_WITH_PORT = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._:@~+-]{1,15})?\]|[A-Za-z0-9._][A-Za-z0-9._-]*)(?::(?P<port>[0-9]{1,5}))?"
)
_SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*://|(?:udp|tls|quic|ws)/)(?:[^/@]*@)?(?P<rest>[^/]*).*", re.IGNORECASE)
_PORT_ALONE = re.compile(r":?(?P<port>[0-9]{1,5})")


def parse(text: object, default_port: int, least_port: int = 1) -> tuple[str, int]:
    """Host, IPv6 in brackets, and port.

    Args:
        text: what was written.  ``tcp/`` may stand before it.  An IPv6 address alone needs no brackets, unless its end
            may be meant as a port.
        default_port: that of ``host`` alone.
        least_port: 0 where the system may choose one.

    Raises:
        ValueError: says what is wrong, and what to write.
    """
    if not isinstance(text, str):
        raise ValueError(_not_of_the_form(text, default_port))
    bare = text.removeprefix("tcp/")
    if bare.count(":") > 1 and "[" not in bare and "/" not in bare:
        host, _, last = bare.rpartition(":")
        if is_address(host) and last.isdecimal():
            raise ValueError(f"{text!r} has two meanings: write [{bare}], or [{host}]:{last} if {last} is the port")
        bare = f"[{bare}]"
    match = _WITH_PORT.fullmatch(bare)
    if match is None or _PORT_ALONE.fullmatch(bare):
        raise ValueError(_not_of_the_form(text, default_port))
    port = int(match["port"] or default_port)
    if not least_port <= port <= MAX_PORT:
        raise ValueError(f"{text!r}: a port is a number from {least_port} to {MAX_PORT}")
    try:
        check_host(match["host"])
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    return match["host"], port


def is_meant(text: str) -> bool:
    """Whether a word that could be anything, such as a file's name, is rather an address: an IP address or a port."""
    try:
        host, port = parse(text, default_port=0, least_port=0)
    except ValueError:
        return False
    return bool(port) or is_address(host.strip("[]")) or host == "localhost"


def _not_of_the_form(text: object, default_port: int) -> str:
    what = f"{text!r} is not of the form host or host:port, such as 10.0.0.5 or 10.0.0.5:{default_port}"
    if not isinstance(text, str):
        return what
    bare = text.removeprefix("tcp/")
    if url := _SCHEME.fullmatch(bare):
        return f"{what}: write {url['rest'] or 'the host'}"
    if port := _PORT_ALONE.fullmatch(bare):
        return (
            f"{what}: the host is missing; write 127.0.0.1:{port['port']}, or 0.0.0.0:{port['port']} to listen on "
            "every address of this host"
        )
    if bare.startswith("*"):
        return f"{what}: write 0.0.0.0{bare[1:]} for every address of this host, or [::]{bare[1:]} with IPv6"
    return what
