"""A page in headless Chromium, driven over a pipe by the protocol of its developer tools."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SWITCHES = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe")
COMPLAINTS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Security.certificateError")


def browser() -> str | None:
    """The program of a Chromium that is installed; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """A running browser with one page.  `requests` are the addresses that it asked for, `complaints` what it said."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers, self._left = commands, answers, b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = str(self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """What the browser answers; what happens meanwhile is noted."""
        self._number += 1
        session = {} if self._session is None else {"sessionId": self._session}
        data = json.dumps({"id": self._number, "method": method, "params": params, **session}).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self._note(message)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            more = os.read(self._answers, 1 << 16)
            assert more, "the browser has ended"
            self._left += more
        text, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(str(params["request"]["url"]))
        elif method in COMPLAINTS:
            self.complaints.append(json.dumps(params)[:500])

    def show(self, page: Path, width: int, height: int, dark: bool) -> None:
        """Load a page on a screen of so many pixels, in light or dark colours, and wait until it is there."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.requests, self.complaints = [], []
        self.call("Page.navigate", url=page.absolute().as_uri())
        while (message := self._message()).get("method") != "Page.loadEventFired":
            self._note(message)

    def value(self, expression: str) -> Any:
        """The JSON value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, width: int, height: int, scale: float = 1) -> bytes:
        """The upper part of the page as a PNG."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": scale}
        answer = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])


@contextmanager
def running(program: str) -> Iterator[Browser]:
    """A browser without a window, which ends with the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        theirs, commands = os.pipe()
        answers, theirs_too = os.pipe()
        dup, null = os.POSIX_SPAWN_DUP2, (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        process = os.posix_spawn(
            program, [program, *SWITCHES, f"--user-data-dir={profile}"], dict(os.environ),
            file_actions=[(dup, theirs, 3), (dup, theirs_too, 4), null], setsid=True,
        )  # fmt: skip
        os.close(theirs)
        os.close(theirs_too)
        try:
            yield Browser(commands, answers)
        finally:
            os.close(commands)
            os.close(answers)
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
