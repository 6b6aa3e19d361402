"""A real Chromium, driven through chromedriver's plain HTTP (the W3C WebDriver protocol)."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
NO_BROWSER = "no Chromium with chromedriver here (Debian: apt-get install chromium chromium-driver)"

FLAGS = (
    "--headless",
    "--no-sandbox",  # tests run as root in containers, where Chromium's sandbox refuses
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"  # a page must need no network
ENTER, ESCAPE = "\ue007", "\ue00c"


class Browser:
    """One window. `with Browser() as browser: browser.open(path)`."""

    def __init__(self, *, width: int = 1360, height: int = 860) -> None:
        self._size = (width, height)
        self._profile = tempfile.TemporaryDirectory(prefix="whence-browser-")

    def __enter__(self) -> Browser:
        assert DRIVER is not None
        self._driver = subprocess.Popen(
            [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            self._connect()
        except BaseException:
            self._driver.kill()
            raise
        return self

    def _connect(self) -> None:
        assert self._driver.stdout is not None
        ports = (line for line in self._driver.stdout if "started successfully on port" in line)
        port = int(next(ports).rstrip(".\n").rpartition(" ")[2])
        self._root = f"http://127.0.0.1:{port}"
        size = f"--window-size={self._size[0]},{self._size[1]}"
        options = {
            "binary": BROWSER,
            "args": [*FLAGS, ALONE, size, f"--user-data-dir={self._profile.name}"],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"
        self._ask("POST", f"{self._session}/timeouts", {"script": 60_000, "pageLoad": 60_000})

    def __exit__(self, *_: object) -> None:
        try:
            self._ask("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(20)
            assert self._driver.stdout is not None
            self._driver.stdout.close()
            time.sleep(0.1)  # Chromium may still write to its profile
            shutil.rmtree(self._profile.name, ignore_errors=True)

    def _ask(self, method: str, path: str, given: dict[str, Any] | None = None) -> Any:
        data = None if given is None else json.dumps(given).encode()
        request = urllib.request.Request(self._root + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as got:
                return json.load(got)["value"]
        except urllib.error.HTTPError as error:
            problem = json.load(error)["value"]
            raise AssertionError(f"{problem['error']}: {problem['message']}") from error

    def open(self, page: Path | str, fragment: str = "") -> None:
        """Load a page and wait until it says that it is ready."""
        address = (page.as_uri() if isinstance(page, Path) else page) + fragment
        self.visit("about:blank")
        self.visit(address)
        self.wait("await whence.ready; return true")

    def visit(self, address: str) -> None:
        """Load any page."""
        self._ask("POST", f"{self._session}/url", {"url": address})

    def offline(self, is_so: bool) -> None:
        """Cut the browser off its network, or give it back."""
        conditions = {"offline": is_so, "latency": 0, "download_throughput": -1, "upload_throughput": -1}
        self._ask("POST", f"{self._session}/chromium/network_conditions", {"network_conditions": conditions})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a piece of JavaScript returns."""
        body = {"script": script, "args": list(arguments)}
        return self._ask("POST", f"{self._session}/execute/sync", body)

    def wait(self, script: str, *arguments: Any) -> Any:
        """The same, of an asynchronous function."""
        body = {
            "script": "const done = arguments[arguments.length - 1], given = [...arguments].slice(0, -1);"
            f"(async (...given) => {{ {script} }})(...given).then(value => done({{value}}),"
            "problem => done({problem: String(problem && problem.stack || problem)}));",
            "args": list(arguments),
        }
        got = self._ask("POST", f"{self._session}/execute/async", body)
        assert "problem" not in got, got["problem"]
        return got.get("value")

    def until(self, script: str, *arguments: Any, seconds: float = 30) -> Any:
        """Ask until the answer is true."""
        end = time.monotonic() + seconds
        while not (got := self.run(script, *arguments)):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)
        return got

    def _act(self, *devices: dict[str, Any]) -> None:
        self._ask("POST", f"{self._session}/actions", {"actions": list(devices)})

    def click(self, x: float, y: float) -> None:
        """Press and release the mouse at a place of the window."""
        self.drag((x, y), (x, y))

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press at one place, release at another."""
        steps: list[dict[str, Any]] = [
            {"type": "pointerMove", "duration": 0, "x": round(start[0]), "y": round(start[1])},
            {"type": "pointerDown", "button": 0},
        ]
        if end != start:
            steps.append({"type": "pointerMove", "duration": 120, "x": round(end[0]), "y": round(end[1])})
        steps.append({"type": "pointerUp", "button": 0})
        self._act(
            {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": steps}
        )

    def keys(self, text: str) -> None:
        """Type on the keyboard."""
        steps = [{"type": way, "value": key} for key in text for way in ("keyDown", "keyUp")]
        self._act({"type": "key", "id": "keyboard", "actions": steps})

    def screenshot(self, path: Path | None = None) -> bytes:
        """The window as PNG."""
        picture = base64.b64decode(self._ask("GET", f"{self._session}/screenshot"))
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture)
        return picture

    def prefer(self, scheme: str) -> None:
        """What the page is told of the user's preference: dark or light."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        body = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        self._ask("POST", f"{self._session}/goog/cdp/execute", body)

    def console(self) -> list[str]:
        """What was written to the console since it was last asked."""
        said = [each["message"] for each in self._ask("POST", f"{self._session}/se/log", {"type": "browser"})]
        return [each for each in said if "willReadFrequently" not in each]  # tests read pixels, pages do not
