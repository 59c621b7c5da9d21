"""Files that a WebSocket listener serves to browsers at its own port, so that a page needs no other server."""

import hmac
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from websockets.http11 import Request, Response
    from websockets.server import ServerProtocol

MAX_OCTETS = 16 * 1024 * 1024  # of all files: they are kept in memory
INDEX = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The page loads nothing from elsewhere, and no other page shows it in a frame.
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Page:
    """One file: its media type and its octets."""

    media_type: str
    octets: bytes


def read(folder: str) -> dict[str, Page]:
    """The files of a folder, and of the folders in it, by request target; its `INDEX` is ``/``.

    Other types, names that begin with a dot, and what is deeper, are left out.

    Raises ConfigurationError: there is no such folder, it has no `INDEX`, its files are too long, or one is a link that
        leads out of it.
    """
    pages: dict[str, Page] = {}
    octets = 0
    try:
        root = Path(folder).resolve()
        entries = _visible(Path(folder))
        inner = [file for entry in entries if entry.is_dir() for file in _visible(entry)]
        for file in entries + inner:
            if file.suffix in TYPES and file.is_file():
                if not file.resolve().is_relative_to(root):
                    raise ConfigurationError(f"pages={folder}: {file} leads out of the folder; copy it there")
                octets += file.stat().st_size
                if octets > MAX_OCTETS:
                    raise ConfigurationError(f"pages={folder}: its files have more than {MAX_OCTETS} octets")
                target = file.relative_to(folder).as_posix()
                pages["/" if target == INDEX else f"/{target}"] = Page(TYPES[file.suffix], file.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"pages={folder}: {error.strerror}; give a folder with an {INDEX}") from error
    if "/" not in pages:
        raise ConfigurationError(f"pages={folder}: there is no {INDEX} in it")
    return pages


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def behind_token(target: str, token: str) -> str | None:
    """What follows ``/TOKEN`` in a request target, all of it where there is no token; None: another one is in it."""
    if not token:
        return target
    given, slash, rest = target.removeprefix("/").partition("/")
    is_it = hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
    return f"/{rest}" if is_it and slash else None


def respond(pages: dict[str, Page], protocol: "ServerProtocol", request: "Request", target: str) -> "Response | None":
    """The response to a request for a page, `behind_token`; None: it is the handshake of a WebSocket."""
    if not pages or "Upgrade" in request.headers:
        return None
    page = pages.get(target.partition("?")[0])
    if page is None:
        return protocol.reject(HTTPStatus.NOT_FOUND, "there is no such page here\n")
    response = protocol.reject(HTTPStatus.OK, "")
    for name, value in {**HEADERS, "Content-Type": page.media_type, "Content-Length": str(len(page.octets))}.items():
        response.headers.pop(name, None)
        response.headers[name] = value
    response.body = page.octets
    return response
