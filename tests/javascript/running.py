"""node, where it is there."""

import shutil
from pathlib import Path

import pytest
import twinlink_live

NODE = shutil.which("node") or shutil.which("nodejs")
MODULE = Path(twinlink_live.__file__).parent / "static" / "twinlink"

needs_node = pytest.mark.skipif(NODE is None, reason="no node here to run JavaScript (apt install nodejs)")
