"""What the role of a node lets it send."""

from ..protocol.frames import HELLO_TOPIC

DECISIONS = b"traffic/control"


def may_send(role: str, topic: bytes) -> bool:
    """Whether a node with this role may send on a topic.

    ``twin`` sends on every flow; ``gnb`` on every flow but ``control``; any other role on none.  Hellos, acks and the
    like are for every role.
    """
    if role == "twin" or topic == HELLO_TOPIC or not topic.startswith(b"traffic/"):
        return True
    return role == "gnb" and topic != DECISIONS
