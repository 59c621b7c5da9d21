"""The mark of tests that need network namespaces: it skips them, with the reason, where these cannot be made."""

import pytest

from .world import why_not

REASON = why_not()

needs_namespaces = pytest.mark.skipif(
    REASON is not None, reason=f"the fault lab was NOT run: {REASON}; nothing here was tried under faults"
)
