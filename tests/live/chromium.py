"""A real browser without a screen, driven by the Chrome DevTools Protocol."""

import json
import os
import re
import shutil
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import connect

from twinlink.testing import patience, wait_until

COMMAND = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_OPTIONS = ("--headless", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--remote-debugging-port=0")
_LISTENING = re.compile(rb"listening on ws://([^/]+)/")
_REPORTS = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}


class Browser:
    """One page.

    Attributes:
        reports: what the page wrote to the console, its exceptions, and what the browser refused it.
    """

    def __init__(self, folder: Path) -> None:
        assert COMMAND is not None
        self.reports: list[dict[str, Any]] = []
        self._number = 0
        self._process = subprocess.Popen(
            [COMMAND, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"], stderr=subprocess.PIPE
        )
        assert self._process.stderr is not None
        address = next(found[1].decode() for line in self._process.stderr if (found := _LISTENING.search(line)))
        self._drain = threading.Thread(target=self._process.stderr.read)  # or the browser would wait at a full pipe
        self._drain.start()
        self._stack = ExitStack()
        self._socket = self._stack.enter_context(connect(self._page(address), max_size=None, open_timeout=patience()))
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    @staticmethod
    def _page(address: str) -> str:
        pages: list[str] = []

        def find() -> list[str]:
            with urlopen(f"http://{address}/json", timeout=patience()) as answer:
                pages[:] = [one["webSocketDebuggerUrl"] for one in json.load(answer) if one["type"] == "page"]
            return pages

        wait_until(find)
        return pages[0]

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": arguments}))
        while True:
            message = json.loads(self._socket.recv(timeout=patience()))
            if message.get("method") in _REPORTS and message["params"].get("entry", {}).get("level") != "warning":
                self.reports.append(message)
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript, in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if len(key) == 1 else "")

    def show(self, width: int, height: int, scheme: str = "light") -> None:
        """Have the page think that the screen is so; ``scheme`` is light or dark."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def signal_renderers(self, number: int) -> None:
        """Send a signal to the processes of the pages, as a debugger or a suspended tab stops them."""
        for folder in Path("/proc").iterdir():
            try:
                is_page = folder.name.isdecimal() and b"--type=renderer" in (folder / "cmdline").read_bytes()
                if is_page and _parent(_parent(int(folder.name))) == self._process.pid:  # the zygote is between
                    os.kill(int(folder.name), number)
            except OSError:  # it has ended
                continue

    def close(self) -> None:
        self._stack.close()
        self._process.terminate()
        self._process.wait(patience())
        self._drain.join()
        assert self._process.stderr is not None
        self._process.stderr.close()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
