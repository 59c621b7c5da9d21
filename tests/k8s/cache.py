"""Where `make k8s-check` keeps the programs that it builds: outside the tree, since they cost half an hour to make."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$TWINLINK_K8S_CACHE``, or twinlink/k8s in the user's cache folder."""
    named = os.environ.get("TWINLINK_K8S_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinlink" / "k8s"
