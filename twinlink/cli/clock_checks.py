"""The checks of `twinlink doctor` that concern the clock."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from .checks import Row

_FAST_CLOCKSOURCES = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen")


class _Timex(ctypes.Structure):
    """The first fields of ``struct timex`` of adjtimex(2), and space for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


_STA_UNSYNC = 0x0040  # adjtimex(2)


def clock() -> Iterator[Row]:
    """The clock source, and whether a daemon such as chrony disciplines the kernel's clock."""
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    try:
        name = source.read_text(encoding="ascii").strip()
    except OSError:
        name = ""
    if name in _FAST_CLOCKSOURCES:
        yield Row("clocksource", "ok", name)
    else:
        advice = "use tsc (kernel parameter clocksource=tsc): reading another clock may take microseconds"
        yield Row("clocksource", "warn", name or "not visible here", advice)

    timex = _Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        seen = os.strerror(ctypes.get_errno())
        yield Row("clock", "warn", f"adjtimex failed: {seen}", "check the host's NTP or PTP daemon")
    elif timex.status & _STA_UNSYNC:
        advice = "run chrony or PTP on both hosts: one-way delays need it, round-trip times do not"
        yield Row("clock", "warn", "the kernel reports: not synchronised", advice)
    else:
        yield Row("clock", "ok", f"the kernel reports: synchronised, error at most {timex.maxerror / 1000:.1f} ms")


def ntp(server: str) -> Iterator[Row]:
    """The clock against one NTP server (`convert.ntp_server`)."""
    from ..appkit.ntp import view

    found = view(server)
    if "error" in found:
        advice = "check the name and that firewalls pass its UDP port, or name a server that is synchronised"
        yield Row("ntp", "fail", found["error"], advice)
        return
    offset_ms, bound_ms = found["offset_ns"] / 1e6, found["bound_ns"] / 1e6
    seen = f"{server}: offset {offset_ms:+.3f} ms ± {bound_ms:.3f} ms; stratum {found['stratum']}"
    if abs(offset_ms) > bound_ms + 1:
        yield Row("ntp", "warn", seen, "synchronise the clock with chrony or PTP before measuring one-way delays")
    else:
        yield Row("ntp", "ok", seen)
