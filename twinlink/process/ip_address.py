"""IP addresses as text, and sockets bound to them.

IPv6 has its zone as RFC 4007 section 11 writes it: ``fe80::1%eth0``.
"""

import errno
import ipaddress
import re
import socket
from pathlib import Path

_IN_NUMBERS = re.compile(r"(.*\.)?(0[xX][0-9A-Fa-f]*|[0-9]+)\.?")  # by the last label, as inet_aton reads hosts
_BROADCAST = "255.255.255.255"
_DISCARD = 9  # a port; nothing is sent there


def is_address(host: str) -> bool:
    """Whether this is an IP address (IPv6 in brackets or without), and no name."""
    return _parsed(host) is not None


def check_host(host: str) -> None:
    """Raise ValueError, which says why, unless this may be the name or the address of one host.

    IPv6 may stand in brackets.  A link-local address has its zone, as the kernel has no route to it otherwise; the zone
    is an interface of this host.
    """
    address = _parsed(host)
    if address is None or (address.version == 4 and host[0] == "["):
        _check_name(host)
        return
    if is_group(host):
        raise ValueError(f"{host} is a multicast group, which twinlink does not join: give the address of one host")
    if is_broadcast(host):
        raise ValueError(f"{host} is a broadcast address: give the address of one host")
    if isinstance(address, ipaddress.IPv6Address):
        _check_zone(host, address)


def is_group(host: str) -> bool:
    """Whether this is the address of a multicast group, also one of IPv4 in the form ``::ffff:224.0.0.1``."""
    address = _parsed(host)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped.is_multicast
    return address is not None and address.is_multicast


def is_broadcast(host: str) -> bool:
    """Whether this is the IPv4 address of all hosts, or that of all hosts of a network that this host is in.

    It may stand in the form ``::ffff:255.255.255.255``.
    """
    address = _parsed(host)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped
    if address is None or str(address) == _BROADCAST:
        return address is not None
    place = str(address), _DISCARD
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:  # which connects without sending
            if asking.connect_ex(place) != errno.EACCES:
                return False
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            return asking.connect_ex(place) == 0  # else a route prohibits it
    except OSError:
        return False


def is_unspecified(host: str) -> bool:
    """Whether this is ``0.0.0.0`` or ``::``, with which a listener takes every address of its host."""
    address = _parsed(host)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return address is not None and address.is_unspecified


def is_own(address: str) -> bool:
    """Whether a program on this host can listen on this IP address."""
    try:
        listening_socket(address, 0, socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return True


def has_v6() -> bool:
    """Whether the kernel has IPv6, which can be switched off when it starts."""
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    except OSError as error:
        return error.errno != errno.EAFNOSUPPORT
    return True


def is_v6_only() -> bool:
    """Whether a socket that is bound to ``::`` takes no IPv4, unless a program says otherwise."""
    try:
        return Path("/proc/sys/net/ipv6/bindv6only").read_text(encoding="ascii").strip() == "1"
    except OSError:  # no IPv6 here
        return False


def bracketed(host: str) -> str:
    """As it stands before a colon and a port: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and host[0] != "[" else host


def family_of(address: str) -> socket.AddressFamily:
    """The family of an IP address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def with_zone_index(address: str) -> str:
    """With the index of the interface for its name, for libraries that know no names.  Raises OSError."""
    before, zone, name = address.partition("%")
    if not zone or name.isdecimal():
        return address
    return f"{before}%{socket.if_nametoindex(name)}"


def listening_socket(address: str, port: int, kind: int) -> socket.socket:
    """A socket of this kind that is bound; ``::`` takes IPv4 as well, whatever net.ipv6.bindv6only says.

    Raises OSError.
    """
    bound = socket.socket(family_of(address), kind)
    try:
        if kind == socket.SOCK_STREAM:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if bound.family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind((address, port))
    except BaseException:
        bound.close()
        raise
    return bound


def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _check_zone(host: str, address: ipaddress.IPv6Address) -> None:
    if address.scope_id and not address.is_link_local:
        raise ValueError(f"{host}: only a link-local address (fe80::/10) has a zone: leave out %{address.scope_id}")
    if address.is_link_local and not address.scope_id:
        raise ValueError(
            f"{host} is link-local: add the interface of this host that leads there, such as [{address}%eth0] "
            "(`ip link` shows them)"
        )
    if not address.scope_id:
        return
    try:
        socket.if_indextoname(int(with_zone_index(str(address)).partition("%")[2]))
    except (OSError, OverflowError):
        raise ValueError(f"{host}: this host has no interface {address.scope_id} (`ip link` shows them)") from None


def _check_name(host: str) -> None:
    if ":" in host or "[" in host:
        raise ValueError(f"{host} is not an IPv6 address")
    if _IN_NUMBERS.fullmatch(host):  # inet_aton reads 010.1 as 8.0.0.1, other parsers do not
        raise ValueError(f"{host} is not an IPv4 address: that has four numbers from 0 to 255 without leading zeros")
    try:
        host.encode("idna")  # as the resolver does
    except UnicodeError:
        raise ValueError("between the dots of a host name stand 1 to 63 characters") from None
