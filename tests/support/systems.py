"""Systems of server processes for tests: a description, and `whence mom` as people run it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from support.living import free_ports, in_its_life
from whence.cli.main import main
from whence.servers.joining import load_system
from whence.servers.system import System

TWO_DOMAINS = {"left": ["a", "b", "c"], "right": ["c", "d", "e"]}
PATIENCE_S = 100.0
ASKING = {"status", "send", "tail", "dead", "down"}  # commands that fork nothing and load no agent


class Bench:
    """A folder with a description, and the commands on it. Whatever still runs at the end is stopped."""

    def __init__(self, folder: Path, name: str = "system.toml") -> None:
        self.folder = folder
        self.path = folder / name

    def write(
        self,
        domains: dict[str, list[str]] = TWO_DOMAINS,
        tables: str = "",
        top: str = "",
        limits: str = "",
        agents: str = "",
    ) -> System:
        """Write a description: every server gets a free port; `tables` are added to it."""
        servers = sorted({server for group in domains.values() for server in group})
        lines = ['name = "test"', 'folder = "data"', top]
        lines += [f"[[domains]]\nname = {name!r}\nservers = {group!r}" for name, group in domains.items()]
        lines += [
            f"[servers.{server}]\naddress = '127.0.0.1:{port}'\n{_lines_of(server, tables)}"
            for server, port in zip(servers, free_ports(len(servers)), strict=True)
        ]
        lines.append(f"{agents}\n[limits]\nbackoff_first_s = 0.01\nbackoff_max_s = 0.2\nack_delay_s = 0.005")
        lines.append(limits)
        self.path.write_text("\n".join(lines) + "\n")
        return load_system(self.path)

    def start(self, command: str, *arguments: object) -> subprocess.Popen[str]:
        """`whence mom COMMAND system.toml ...` in the background."""
        return subprocess.Popen(
            [sys.executable, "-m", "whence", "mom", *command.split(), str(self.path), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )

    def run(self, command: str, *arguments: object, code: int = 0) -> str:
        """The same to its end; answers what it printed. What only asks a system runs in this process."""
        if command.partition(" ")[0] in ASKING:
            returned, output, errors = self._here(command, *arguments)
        else:
            process = self.start(command, *arguments)
            try:
                output, errors = process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
            returned = process.returncode
        said = f"{command}: exit code {returned}\n{output}\n{errors}\n{self.logs()}"
        assert returned == code, said
        return in_their_lives(output if code == 0 else output + errors)

    def _here(self, command: str, *arguments: object) -> tuple[int, str, str]:
        """Run the command line without a process of its own: its start costs more than the command does."""
        output, errors = (TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with (
            chdir(self.folder),
            redirect_stdout(output),
            redirect_stderr(errors),
            pytest.raises(SystemExit) as ended,
        ):
            main(["mom", *command.split(), str(self.path), *map(str, arguments)])
        texts = [pipe.buffer.getvalue().decode() for pipe in (output, errors)]  # type: ignore[attr-defined]
        return int(ended.value.code or 0), texts[0], texts[1]

    def status(self, code: int = 0) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.run("status", "--json", code=code))
        servers: dict[str, Any] = document["servers"]
        return servers

    def logs(self) -> str:
        logs = [*self.folder.glob("data/*.log"), *self.folder.glob("data/.up.log")]
        return "\n".join(f"== {log.name}\n{log.read_text()}" for log in sorted(logs))


def in_their_lives(text: str) -> str:
    """Ids in a text with numbers as their origin's life counts them, from 1."""
    text = re.sub(r":(\d+)~[0-9a-z]+", r":\1", text)  # as `whence mom` shows them
    return re.sub(r":(\d{15,})", lambda found: f":{in_its_life(int(found[1]))}", text)


def _lines_of(server: str, tables: str) -> str:
    """The lines "server: text" of `tables` that are for one server."""
    found = [line.partition(":")[2].strip() for line in tables.splitlines() if line.startswith(f"{server}:")]
    return "\n".join(found)


@contextmanager
def bench() -> Iterator[Bench]:
    """A short path: that of a Unix socket is limited, and pytest's folders are long."""
    folder = Path(tempfile.mkdtemp(prefix="mom-"))
    made = Bench(folder)
    try:
        yield made
    finally:
        for lock in [folder / "data/.up.lock", *folder.glob("data/*.lock")]:
            _end(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _end(lock: Path) -> None:
    from whence.servers.processes import holder_of

    pid = holder_of(lock)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        until(lambda: holder_of(lock) is None)


def until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait for what other processes do."""
    deadline_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline_s, "it never happened"
        time.sleep(0.02)
