"""Headless Chromium over its debugging pipe: enough to load a page, press keys, read it, and hear its complaints."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage",
          "--no-first-run", "--disable-background-networking", "--window-size=1300,1600")  # fmt: skip
# The pipe's ends are file descriptors 3 and 4 of the browser; exec without a fork of this process, which has threads.
_LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


class Page:
    """One tab. `complaints` are errors of the console and exceptions; `requests` the addresses it asked for."""

    def __init__(self, folder):
        ours, theirs = os.pipe(), os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (ours[0], theirs[1])]
        command = [sys.executable, "-c", _LAUNCH, *map(str, ends), CHROMIUM, "--remote-debugging-pipe", *_FLAGS]
        command += [f"--user-data-dir={folder}", "about:blank"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, pass_fds=ends, stdin=quiet, stdout=quiet, stderr=quiet)
        for end in (*ends, ours[0], theirs[1]):
            os.close(end)
        self.out, self.into, self.rest, self.count = ours[1], theirs[0], b"", 0
        self.complaints, self.requests, self.session = [], [], None
        tabs = self.ask("Target.getTargets")["targetInfos"]
        target = next(tab["targetId"] for tab in tabs if tab["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **params):
        """The answer to one message; events on the way are taken note of."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer.get("method"), answer.get("params", {}))

    def _next(self, seconds=60):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.into], [], [], seconds)
            got = os.read(self.into, 1 << 16) if ready else b""
            assert got, "the browser is silent or gone"
            self.rest += got
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def _note(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        if method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(str(params["entry"]))
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def value(self, script):
        """What an expression of the page's script is."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, path, ready):
        """Loads a file and waits until an expression is true."""
        self.ask("Page.navigate", url=f"file://{path}")
        until = time.monotonic() + 60
        while not self.value(ready):
            assert time.monotonic() < until, f"{ready} never came true; {self.complaints}"
            time.sleep(0.05)

    def press(self, key, code):
        """One key, as a user presses it."""
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def close(self):
        with contextlib.suppress(AssertionError, OSError):
            self.session = None
            self.ask("Browser.close")
        os.close(self.out)
        os.close(self.into)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
