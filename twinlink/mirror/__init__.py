"""What a link sends and receives, shown to observers at an endpoint of its own (docs/observers.md)."""

from .mirror import Mirror, open_mirror
from .observation import MIRROR_FLOW, Observation

__all__ = ["MIRROR_FLOW", "Mirror", "Observation", "open_mirror"]
