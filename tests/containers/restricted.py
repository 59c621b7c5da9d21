"""Programs of this checkout in containers as a restricted pod has them; no image and no container runtime."""

from collections.abc import Sequence
from pathlib import Path

from .pod import Pod
from .program import Program

CHECKOUT = Path(__file__).resolve().parents[2]
RESTRICT = Path(__file__).with_name("restrict")


def start(pod: Pod, program: str, *arguments: str, before: Sequence[str] = ()) -> Program:
    """Start one; ``before`` becomes the command that makes the container, and ends with doing so."""
    apart = ["unshare", "--mount", "--pid", "--fork", "--ipc", "--uts", "--kill-child"]
    place = [str(RESTRICT), str(pod.folder_for_next()), str(pod.dapps), str(CHECKOUT)]
    return pod.start([*before, *apart, *place, program, *arguments])
