"""Files that a WebSocket listener serves beside its link."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

import twinlink
from twinlink.testing import patience, wait_until
from twinlink.transports import websocket_pages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("of the user")
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.html").write_text("<title>page</title>")
    (pages / "page.js").write_text("export const x = 1;")
    (pages / "notes.txt").write_text("no type that a page has")
    (pages / "folder.js").mkdir()
    (pages / "module" / "deeper").mkdir(parents=True)
    (pages / "module" / "index.js").write_text("export const y = 2;")
    (pages / "module" / "deeper" / "page.js").write_text("")
    return pages


def get(endpoint: str, target: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(f"http://{endpoint.removeprefix('tcp/')}{target}", timeout=patience()) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def test_pages_and_peers_share_the_port(endpoint: str, folder: Path) -> None:
    with (
        twinlink.open("websocket", listen=endpoint, pages=str(folder)) as listener,
        twinlink.open("websocket", connect=endpoint) as peer,
    ):
        peer.wait_ready(patience())
        assert get(endpoint, "/") == (200, "text/html; charset=utf-8", b"<title>page</title>")
        assert get(endpoint, "/page.js?v=1") == (200, "text/javascript; charset=utf-8", b"export const x = 1;")
        assert get(endpoint, "/module/index.js") == (200, "text/javascript; charset=utf-8", b"export const y = 2;")
        for target in (
            "/module",
            "/module/deeper/page.js",
            "/notes.txt",
            "/../secret",
            "/%2e%2e/secret",
            "/folder.js",
            "/index.html",
            "//etc/passwd",
        ):
            assert get(endpoint, target)[0] == 404
        assert listener.peers() == [peer.node]
        wait_until(lambda: listener.stats()["malformed"] == {})


def test_without_pages_a_browser_is_told_to_upgrade(endpoint: str) -> None:
    with twinlink.open("websocket", listen=endpoint):
        assert get(endpoint, "/")[0] == 426


@pytest.mark.parametrize("content", [{}, {"page.js": ""}, {"index.html": "x" * 100}])
def test_a_folder_that_cannot_be_served_is_refused(
    endpoint: str, tmp_path: Path, content: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_pages, "MAX_OCTETS", 99)
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(twinlink.ConfigurationError, match=f"pages={tmp_path}: "):
        twinlink.open("websocket", listen=endpoint, pages=str(tmp_path))
    with pytest.raises(twinlink.ConfigurationError, match=r"give a folder with an index\.html"):
        twinlink.open("websocket", listen=endpoint, pages=str(tmp_path / "nowhere"))


@pytest.mark.parametrize(("link", "to"), [("page.css", "../secret.css"), ("other", "../elsewhere")])
def test_a_link_that_leads_out_of_the_folder_is_refused_by_name(
    endpoint: str, folder: Path, link: str, to: str
) -> None:
    (folder.parent / "secret.css").write_text("of the user")
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere" / "secret.js").write_text("of the user")
    (folder / link).symlink_to(to)
    with pytest.raises(twinlink.ConfigurationError, match=rf"{link}.* leads out of the folder"):
        twinlink.open("websocket", listen=endpoint, pages=str(folder))


def test_what_a_volume_links_within_the_folder_is_served_and_hidden_names_are_not(endpoint: str, folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "hook.js").write_text("of the user")
    (folder / "..data").mkdir()  # as kubelet mounts a ConfigMap
    (folder / "..data" / "config.js").write_text("export const z = 3;")
    (folder / "config.js").symlink_to("..data/config.js")
    with twinlink.open("websocket", listen=endpoint, pages=str(folder)):
        assert get(endpoint, "/config.js")[::2] == (200, b"export const z = 3;")
        assert get(endpoint, "/.git/hook.js")[0] == 404
        assert get(endpoint, "/..data/config.js")[0] == 404
