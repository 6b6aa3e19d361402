"""The shared notes as a page: two real browsers that go offline and come back, and Python beside them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import whence
from support.browser import BROWSER, DRIVER, NO_BROWSER, Browser
from support.living import free_ports

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "looked-at"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, bundled with Yjs as its package.json says."""
    if BROWSER is None or DRIVER is None:
        pytest.skip(NO_BROWSER)
    if shutil.which("npm") is None:
        pytest.skip("no npm here: the page is bundled with Yjs from its registry")
    folder = tmp_path_factory.mktemp("web") / "web"
    shutil.copytree(ROOT / "examples" / "notes" / "web", folder)
    for command in (["npm", "ci", "--no-audit", "--no-fund"], ["npm", "run", "build"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode and command[1] == "ci":
            pytest.skip(f"npm cannot install what the page needs: {done.stderr[-300:]}")
        assert done.returncode == 0, done.stderr
    return folder / "dist"


@contextmanager
def gateway(node: str, page: Path, listen: int, http: int, *contacts: int) -> Iterator[None]:
    command = [sys.executable, "-m", "whence", "gateway", "--group", "notes", "--node", node]
    command += ["--listen", f"127.0.0.1:{listen}", "--http", f"127.0.0.1:{http}", "--static", str(page)]
    for port in contacts:
        command += ["--contact", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "serves 'notes'" in process.stderr.readline()
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0


def text_of(browser: Browser) -> str:
    return str(browser.run("return document.getElementById('notes').value"))


def state(browser: Browser, wanted: str) -> None:
    browser.until("return document.getElementById('state').textContent === arguments[0]", wanted)


def shows(browser: Browser, *lines: str) -> None:
    script = "return arguments[0].every(line => document.getElementById('notes').value.includes(line))"
    browser.until(script, list(lines))


def write(browser: Browser, line: str) -> None:
    browser.run("const a = document.getElementById('notes'); a.focus(); a.setSelectionRange(1e9, 1e9)")
    browser.keys(line)


def test_two_browsers_offline_converge(page: Path) -> None:
    first, second, one_http, two_http = free_ports(4)
    with ExitStack() as stack:
        stack.enter_context(gateway("ann", page, first, one_http))
        stack.enter_context(gateway("bob", page, second, two_http, first))
        ann, bob = stack.enter_context(Browser()), stack.enter_context(Browser())
        for browser, http in ((ann, one_http), (bob, two_http)):
            browser.visit(f"http://127.0.0.1:{http}/")
            state(browser, "online")
        write(ann, "together. ")
        shows(bob, "together.")

        for browser in (ann, bob):
            browser.offline(True)
            state(browser, "offline")
        write(ann, "ann alone. ")
        write(bob, "bob alone. ")
        assert "bob" not in text_of(ann)
        assert "ann" not in text_of(bob)
        ann.screenshot(OUT / "notes-offline.png")

        for browser in (ann, bob):
            browser.offline(False)
            state(browser, "online")
        for browser in (ann, bob):
            shows(browser, "together.", "ann alone.", "bob alone.")
        assert text_of(ann) == text_of(bob)
        ann.screenshot(OUT / "notes-online.png")

        bob.offline(True)  # and a page that is closed while it is offline keeps what was written
        state(bob, "offline")
        write(bob, "closed. ")
        bob.visit("about:blank")
        bob.offline(False)
        bob.visit(f"http://127.0.0.1:{two_http}/")
        shows(ann, "closed.")
        assert text_of(ann) == python_text(first)


def python_text(port: int) -> str:
    """The notes as a Python program has them that knows the group alone: pycrdt is Yjs in Rust."""
    pycrdt = pytest.importorskip("pycrdt")
    doc, text = pycrdt.Doc(), pycrdt.Text()
    doc["notes"] = text
    with whence.sync_join("notes", node="python", contact=f"127.0.0.1:{port}") as group:
        while True:
            try:
                doc.apply_update(group.receive(timeout_s=3).payload)
            except TimeoutError:
                return str(text)
