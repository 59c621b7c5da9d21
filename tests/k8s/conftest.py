from collections.abc import Callable

import pytest

from tests.k8s.manifests import K8S, OLDEST_KUBECTL, Document, build, find_kubectl

Built = Callable[[str], list[Document]]


@pytest.fixture(scope="session")
def kubectl() -> str:
    """A kubectl that can build these overlays; without one, what is built from them is not tested here."""
    found = find_kubectl()
    if not found:
        oldest = ".".join(map(str, OLDEST_KUBECTL))
        pytest.skip(f"no kubectl {oldest} or newer: `make k8s-check` builds one, or put one on PATH or in KUBECTL")
    return found


@pytest.fixture(scope="session")
def built(kubectl: str) -> Built:
    """Builds an overlay, once."""
    known: dict[str, list[Document]] = {}

    def of(overlay: str) -> list[Document]:
        if overlay not in known:
            known[overlay] = build(kubectl, K8S / "overlays" / overlay)
        return known[overlay]

    return of
