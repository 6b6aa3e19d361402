"""Runs a document as a reader would: files that it says to save, and terminals that it shows.

A block ```` ```console ```` is a piece of one terminal; `# terminal 2` in its first line names another than
the first. `$ ` is typed at the shell, `> ` into the running program, `^C` and `^D` are keys; every other line
must be printed, in this order, with `...` for whatever stands there. "Save this as `name`:" before a block
makes a file of it.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from support.living import free_ports

BLOCK = re.compile(
    r"(?:Save this as `(?P<name>[^`]+)`[^\n]*:\n\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PORT = re.compile(r"(?<=127\.0\.0\.1:)7\d{3}|(?<=localhost:)7\d{3}")
PATIENCE_S = 120.0


@dataclass
class Terminal:
    """One shell, its script that is still to come, and the program that runs in it."""

    folder: Path
    python: Path  # the interpreter that `python` and `whence` of the page are
    script: list[str] = field(default_factory=list)
    program: subprocess.Popen[str] | None = None
    printed: queue.Queue[str | None] = field(default_factory=queue.Queue)
    seen: list[str] = field(default_factory=list)
    last: str = ""

    def advance(self) -> bool:
        """Take the next line of the script, if it is due; returns whether it was."""
        line = self.script[0]
        if line.startswith("$ "):
            if self.program is not None and not self._ended():
                return False
            self._start(line[2:])
        elif line.startswith("> ") or line == "^D":
            self._type(line)
        elif line == "^C":
            assert self.program is not None
            os.killpg(self.program.pid, signal.SIGINT)
        elif not self._prints(line):
            return False
        self.script.pop(0)
        return True

    def stop(self) -> None:
        """End what still runs, as closing the window would."""
        if self.program is not None and self.program.poll() is None:
            os.killpg(self.program.pid, signal.SIGKILL)
            self.program.wait()

    def _ended(self) -> bool:
        assert self.program is not None
        if self.program.poll() is None:
            return False
        while not self.printed.empty():
            self.seen.append(str(self.printed.get()))
        assert self.program.returncode == 0, (
            f"{self.last!r} ended with {self.program.returncode}: {self.seen}"
        )
        return True

    def _start(self, command: str) -> None:
        self.last, self.printed, self.seen = command, queue.Queue(), []
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        self.program = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "100"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(self.program, self.printed), daemon=True).start()

    @staticmethod
    def _listen(program: subprocess.Popen[str], printed: queue.Queue[str | None]) -> None:
        assert program.stdout is not None
        for line in program.stdout:
            printed.put(line.rstrip("\n"))
        printed.put(None)

    def _type(self, line: str) -> None:
        assert self.program is not None
        assert self.program.stdin is not None
        if line == "^D":
            self.program.stdin.close()
        else:
            self.program.stdin.write(line[2:] + "\n")
            self.program.stdin.flush()

    def _prints(self, line: str) -> bool:
        if line.strip() == "...":
            return True  # what follows is looked for among all that comes
        wanted = re.compile(".*".join(map(re.escape, re.sub(r"\s+", " ", line).strip().split("..."))))
        while not self.printed.empty():
            found = self.printed.get()
            assert found is not None, (
                f"{self.last!r} ended before it printed {line!r}; it printed {self.seen}"
            )
            self.seen.append(found)
            if wanted.fullmatch(re.sub(r"\s+", " ", found).strip()):
                return True
        return False


def perform(document: str, folder: Path, python: Path | None = None) -> None:
    """Save the files of a document and hold its terminals to what it shows; other ports than it names."""
    ports = sorted(set(PORT.findall(document)))
    for port, free in zip(ports, free_ports(len(ports)), strict=True):
        document = document.replace(port, str(free))
    python = python or Path(sys.executable)
    terminals = {1: Terminal(folder, python)}
    try:
        for block in BLOCK.finditer(document):
            if block["name"]:
                (folder / block["name"]).parent.mkdir(parents=True, exist_ok=True)
                _play(terminals)  # a file may be saved over one that a command has read
                (folder / block["name"]).write_text(block["body"])
            elif block["language"] == "console":
                lines = block["body"].splitlines()
                number = int(lines.pop(0).split()[-1]) if lines[0].startswith("# terminal") else 1
                terminals.setdefault(number, Terminal(folder, python)).script.extend(
                    line for line in lines if line.strip()
                )
        _play(terminals)
    finally:
        for terminal in terminals.values():
            terminal.stop()


def _play(terminals: dict[int, Terminal]) -> None:
    """Advance whichever terminal can, until all scripts are done."""
    patient_until = time.monotonic() + PATIENCE_S
    while any(terminal.script for terminal in terminals.values()):
        if any(terminal.advance() for terminal in terminals.values() if terminal.script):
            patient_until = time.monotonic() + PATIENCE_S
            continue
        assert time.monotonic() < patient_until, "\n".join(
            f"terminal {number} ({each.last!r}) waits for {each.script[0]!r}; it printed {each.seen}"
            for number, each in terminals.items()
            if each.script
        )
        time.sleep(0.02)
