"""Desired and reported values by key, known on all sides of a link (docs/state.md)."""

from .record import MAX_KEY, MAX_PAYLOAD
from .state import State, check_name
from .values import Change, Item, Value

__all__ = ["MAX_KEY", "MAX_PAYLOAD", "Change", "Item", "State", "Value", "check_name"]
