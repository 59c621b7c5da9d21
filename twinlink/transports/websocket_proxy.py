"""HTTP proxies that a connector passes by CONNECT (RFC 9110 section 9.3.6)."""

from websockets.exceptions import InvalidProxy
from websockets.headers import build_authorization_basic
from websockets.proxy import Proxy, parse_proxy

from ..errors import ConfigurationError
from ..process.ip_address import bracketed
from .base import Endpoint

ANSWER_OCTETS = 64 * 1024  # the longest
END = b"\r\n\r\n"


def parse(text: str) -> tuple[Proxy, Endpoint]:
    """The proxy of the option, and where it listens.  Raises ConfigurationError."""
    try:
        proxy = parse_proxy(text)
    except (InvalidProxy, ValueError):  # not with its text, which may have a password
        proxy = None
    if proxy is None or proxy.scheme != "http":
        raise ConfigurationError("option proxy is not of the form http://[user:password@]host:port")
    return proxy, Endpoint.parse(f"tcp/{bracketed(proxy.host)}:{proxy.port}")


def request(proxy: Proxy, host: str, port: int) -> bytes:
    """What asks for a tunnel to this host."""
    lines = [f"CONNECT {bracketed(host)}:{port} HTTP/1.1", f"Host: {bracketed(host)}:{port}"]
    if proxy.user_info is not None:
        lines.append(f"Proxy-Authorization: {build_authorization_basic(*proxy.user_info)}")
    return "\r\n".join(lines).encode() + END


def refusal(answer: bytes, target: str) -> str | None:
    """Why there is no tunnel, for a person; None if there is one."""
    protocol, _, status = answer.partition(b"\r\n")[0].decode(errors="replace").partition(" ")
    if not protocol.startswith("HTTP/1."):
        return "what listens at the address of the option proxy is no HTTP proxy: check it"
    if status.startswith("2"):
        return None
    return f"the proxy answers with status {status.strip()}: have it let CONNECT to {target} through"
