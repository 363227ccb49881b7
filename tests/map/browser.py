"""A headless Chromium for tests, spoken to through its DevTools protocol, over a pipe."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "Tab": 9, "Enter": 13}


class Browser:
    """One browser with one page; a context manager.

    Chromium reads commands from its file descriptor 3 and answers at 4, each a JSON object with
    a zero byte behind it.
    """

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM, "there is no Chromium; scripts/check-chromium.sh says how to get it"
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()
        # Out of the way of 3 and 4, which the child's ends become.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (read_there, write_there)]

        def give_ends() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self._process = subprocess.Popen(
            [
                CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
                "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                "--disable-background-networking", f"--user-data-dir={profile}",
                "--remote-debugging-pipe", "about:blank",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=give_ends,
        )  # fmt: skip
        for fd in (*ends, read_there, write_there):
            os.close(fd)
        self._to, self._from = os.fdopen(write_here, "wb", 0), os.fdopen(read_here, "rb", 0)
        self._unread = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.errors: list[str] = []
        pages = self.command("Target.getTargets")["targetInfos"]
        page = next(p["targetId"] for p in pages if p["type"] == "page")
        attached = self.command("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of some size."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.errors.clear()
        self.command("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Return what an expression of JavaScript is, or what its promise becomes."""
        result = self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression: str, tries: int = 600) -> None:
        """Return as soon as an expression is true; the page is asked after every 50 ms of its."""
        for _ in range(tries):
            if self.value(f"new Promise(r => setTimeout(() => r(Boolean({expression})), 50))"):
                return
        raise AssertionError(f"never true: {expression}; the page says {self.state()}")

    def state(self) -> dict[str, str]:
        """Return what the page says of itself, for machines."""
        return self.value("({...document.body.dataset})")

    def text(self, selector: str) -> str:
        """Return an element's text."""
        return self.value(f"document.querySelector({json.dumps(selector)}).textContent")

    def press(self, key: str) -> None:
        """Press a key."""
        code = KEYS[key]
        more = {"text": "\r"} if key == "Enter" else {}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.command("Input.dispatchKeyEvent", type="keyDown", **common, **more)
        self.command("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Write a picture of the window, or of the whole page."""
        data = self.command("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, EOFError, RuntimeError):
            self._session = None
            self.command("Browser.close")
        self._to.close()
        self._from.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            data = self._from.read(1 << 16)
            if not data:
                raise EOFError("Chromium is gone")
            self._unread += data
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        """Keep what went wrong in the page."""
        if event.get("method") == "Runtime.exceptionThrown":
            details = event["params"]["exceptionDetails"]
            self.errors.append(details.get("exception", details).get("description", str(details)))
        elif (
            event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error"
        ):
            self.errors.append(event["params"]["entry"]["text"])
