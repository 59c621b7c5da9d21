"""What it takes to sign a decision and to verify one; prints medians in us.

::

    python -m benchmarks.signatures
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from twinlink.control import PrbBlock
from twinlink.identity import Identity, trust
from twinlink.identity.watched import WatchedIdentity
from twinlink.signed_payload import Refusal, Signer, Verified, Verifier

COUNT = 5000
DECISION = PrbBlock("prb-block-01234567-1", tuple(range(40, 60)), 1_790_000_000_123_456_789, 2000, "interference")
TWIN, GNB = 1, 2  # sessions


def main() -> None:
    """Sign, verify, and refuse."""
    with tempfile.TemporaryDirectory() as folder:
        twin = Identity.create(Path(folder, "twin"), "twin-1", "twin")
        gnb = Identity.create(Path(folder, "gnb"), "gnb-1", "gnb")
        trust.trust(gnb.folder, twin.line, "twin")
        signer = Signer(WatchedIdentity(twin), TWIN)
        verifier = Verifier(WatchedIdentity(Identity.load(gnb.folder)), GNB)
    body = DECISION.encode()

    def sign(_: int) -> bytes:
        return signer.sign("control", body, "gnb-1", GNB)

    def verify(payload: bytes) -> Verified | Refusal:
        return verifier.verify("control", payload, "twin-1", TWIN)

    signed = [sign(number) for number in range(COUNT)]
    forged = [payload[:-1] + b" " for payload in signed]
    print(f"sign {_median_us(sign, range(COUNT)):.0f} us; verify {_median_us(verify, signed):.0f} us; ", end="")
    print(f"refuse a forgery {_median_us(verify, forged):.0f} us, unsigned {_median_us(verify, [body] * COUNT):.1f} us")


def _median_us(act: Callable[[Any], object], inputs: Iterable[Any]) -> float:
    taken = []
    for one in inputs:
        began = time.perf_counter_ns()
        act(one)
        taken.append(time.perf_counter_ns() - began)
    return statistics.median(taken) / 1e3


if __name__ == "__main__":
    main()
