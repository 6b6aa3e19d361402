"""docs/mom.md and the orders example do what they say."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.living import free_ports
from support.systems import bench
from whence.servers.system import read_system

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mom.md").read_text()


def free_run(count: int) -> int:
    """The first of `count` free ports in a row."""
    while True:
        [first] = free_ports(1)
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first


def test_the_sessions_on_the_page() -> None:
    sessions = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(sessions) == 5
    with bench() as made:
        for file in (ROOT / "examples").glob("orders.*"):
            shutil.copy(file, made.folder)
        description = made.folder / "orders.toml"
        text = description.read_text().replace("base_port = 7100", f"base_port = {free_run(8)}")
        description.write_text(text.replace('"orders-data"', '"data"'))
        (made.folder / "whence").write_text(f'#!/bin/sh\nexec {sys.executable} -m whence "$@"\n')
        (made.folder / "whence").chmod(0o755)
        for command, expected in [step for session in sessions for step in steps_of(session)]:
            result = subprocess.run(
                command.replace("orders-data", "data"),
                shell=True,
                cwd=made.folder,
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
                env={**os.environ, "PATH": f"{made.folder}:{os.environ['PATH']}"},
            )
            failed = expected.startswith("error:")
            assert (result.returncode != 0) == failed, f"{command}\n{result.stderr}\n{made.logs()}"
            same = doctest.OutputChecker().check_output(
                expected,
                result.stderr if failed else result.stdout,
                doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
            )
            assert same, f"{command}\n{result.stdout}\n{result.stderr}"


def steps_of(session: str) -> list[tuple[str, str]]:
    """Commands with what they print; lines with "> " go on with a command."""
    steps = re.findall(r"^\$ (.*\n(?:> .*\n)*)((?:(?!\$ ).*\n)*)", session, re.MULTILINE)
    return [(re.sub(r"^> ", "", command, flags=re.MULTILINE), expected) for command, expected in steps]


def test_the_demonstration_shows_the_payment_waiting() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "orders.py")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert re.sub(r":\d+ ", ":... ", result.stdout) in PAGE
    assert "waits for web>gate:1" in result.stdout


@pytest.mark.parametrize("place", ["page", "example"])
def test_descriptions_can_be_read(place: str, tmp_path: Path) -> None:
    if place == "example":
        assert len(read_system(ROOT / "examples" / "orders.toml").servers) == 6
        return
    [text] = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "orders.toml"
    path.write_text(text)
    system = read_system(path)
    assert system.servers["web"].options == {"key": "value"}
    assert system.server_of("audit") == "till"
