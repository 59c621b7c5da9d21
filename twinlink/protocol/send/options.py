"""How a sending flow is opened."""

from dataclasses import dataclass
from typing import Literal

Reliability = Literal["repair", "detect"]
Overflow = Literal["block", "drop-oldest", "drop-newest", "latest"]
Priority = Literal["high", "normal"]
Pace = Literal["fastest", "slowest"]


@dataclass(frozen=True, slots=True)
class FlowOptions:
    """As `twinlink.Link.sender` describes them."""

    reliability: Reliability = "repair"
    overflow: Overflow = "block"
    priority: Priority = "normal"
    pace: Pace = "fastest"
