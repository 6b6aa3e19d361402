"""`whence view --live`: two real nodes, a server on loopback, and a browser that watches them."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.browser import BROWSER, DRIVER, NO_BROWSER, Browser
from support.living import free_ports

WHENCE = (sys.executable, "-c", "from whence.cli.main import main; main()")


def start(*words: object) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*WHENCE, *map(str, words)], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )


def room(folder: Path) -> tuple[subprocess.Popen[str], subprocess.Popen[str], Path]:
    ports = free_ports(2)
    config = folder / "node.toml"
    config.write_text(
        'group = "room"\nprotocol = "vector"\n[peers]\n'
        f'alice = "127.0.0.1:{ports[0]}"\nbob = "127.0.0.1:{ports[1]}"\n'
    )
    trace = folder / "trace"
    trace.mkdir()
    alice, bob = (
        start("node", "--config", config, "--node", name, "--trace", trace) for name in ("alice", "bob")
    )
    return alice, bob, trace


def say(node: subprocess.Popen[str], text: str, listener: subprocess.Popen[str]) -> None:
    assert node.stdin is not None
    assert listener.stdout is not None
    node.stdin.write(text + "\n")
    node.stdin.flush()
    while text not in listener.stdout.readline():
        pass


def served(trace: Path) -> tuple[subprocess.Popen[str], str]:
    server = start("view", trace, "--live")
    assert server.stdout is not None
    found = re.match(r"(http://127\.0\.0\.1:\d+/)", server.stdout.readline())
    assert found is not None
    return server, found[1]


def stop(*processes: subprocess.Popen[str]) -> None:
    for each in processes:
        each.terminate()
    for each in processes:
        each.communicate(timeout=30)


@pytest.mark.skipif(BROWSER is None or DRIVER is None, reason=NO_BROWSER)
def test_a_browser_watches_two_nodes(tmp_path):
    alice, bob, trace = room(tmp_path)
    server, address = served(trace)
    try:
        with Browser() as browser:
            browser.open(address)
            assert browser.run("return document.getElementById('live').hidden") is False
            say(alice, "hello", bob)
            say(bob, "good day", alice)
            delivered = "return whence.view.graph.kind.filter(kind => kind === 4).length >= arguments[0]"
            browser.until(delivered, 4, seconds=30)
            assert browser.run("return whence.view.rows.map(row => row.name)") == ["alice", "bob"]
            browser.wait("await whence.select(whence.event('0.0'))")
            say(alice, "once more", bob)
            browser.until(delivered, 6, seconds=30)
            assert browser.run("return whence.view.selected") == 0  # what was selected stays so
            verdict = browser.run("return document.getElementById('verdict').textContent")
            assert verdict == "ok: causal and as promised"
            assert browser.console() == []
    finally:
        stop(alice, bob, server)


def test_nothing_is_flushed_that_nobody_watches(tmp_path):
    alice, bob, trace = room(tmp_path)
    try:
        for number in range(3):
            say(alice, f"line {number}", bob)
        assert list(trace.glob("*.parquet")) == []
    finally:
        stop(alice, bob)
    assert len(list(trace.glob("*.parquet"))) == 2  # one part each, at the end


def test_the_server_replies_to_its_own_name_alone(tmp_path):
    (tmp_path / "trace").mkdir()
    server, address = served(tmp_path / "trace")
    try:
        host = address.removeprefix("http://").rstrip("/")
        assert _status(host, "/") == 200
        assert _status(host, "/data?since=-") == 204
        assert _status(host, "/data?since=") == 200
        assert _status(host, "/etc/passwd") == 404
        assert _status(host, "/", {"Host": "evil.example"}) == 403
    finally:
        stop(server)


def _status(host: str, path: str, headers: dict[str, str] | None = None) -> int:
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.request("GET", path, headers=headers or {})
    status = connection.getresponse().status
    connection.close()
    return status
