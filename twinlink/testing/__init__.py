"""The conformance suite that every transport passes, ours and others'.

A transport's own test is a class with a name and, where needed, a few attributes::

    from twinlink.testing import TransportConformance

    class TestMine(TransportConformance):
        transport = "mine"           # as registered in the entry-point group twinlink.transports
        driver = "my_driver"         # the module that may be missing, reported as TransportMissing

Run it with pytest.  ``pytest.register_assert_rewrite("twinlink.testing")`` in a conftest.py, before the import, makes
a failed assertion show its values.  With ``identities = True`` every node has an identity.
docs/adding-a-transport.md says what a transport must do:

| class      | what it tests                                                                                   |
|------------|------------------------------------------------------------------------------------------------|
| Delivery   | payloads, limits, flows, order, both directions, bursts                                        |
| Acks       | every message acknowledged, what is missing is named                                           |
| Handlers   | exceptions, sending and waiting in handlers                                                    |
| Peers      | peers: none, several, late ones, returning ones                                                |
| Crowds     | several peers of which one is slow                                                             |
| Closing    | from every state within a second, nothing left behind                                          |
| Repairing  | NAKs, retransmission, reports of losses, bounded buffers                                       |
| Strangers  | garbage, gaps, duplicates and reordering from foreign programs                                 |
| Opening    | wrong arguments, endpoints in use, a missing driver                                            |

Environment: ``TWINLINK_TEST_SCALE`` (default 1) multiplies every time-out on a slow machine.
"""

from .base import Conformance, ForeignPeer, free_endpoint, patience, wait_until
from .closing import Closing
from .crowds import Crowds
from .delivery import Acks, Delivery
from .handlers import Handlers
from .opening import Opening
from .peers import Peers
from .repair import Repairing
from .strangers import Strangers

__all__ = ["ForeignPeer", "TransportConformance", "free_endpoint", "patience", "wait_until"]


class TransportConformance(
    Delivery, Acks, Handlers, Peers, Crowds, Closing, Repairing, Strangers, Opening, Conformance
):
    """All tests of a transport; subclass it as ``TestSomething`` and set ``transport``."""
