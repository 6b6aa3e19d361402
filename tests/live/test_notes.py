"""Shared notes: the tutorial's steps as they stand, and the program with its processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.living import free_ports

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial-notes.md"
STEP = re.compile(r"^## (\d+)\. .*?^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)
TOLD: dict[str, str] = {}


def steps() -> list[tuple[str, str]]:
    return STEP.findall(TUTORIAL.read_text())


def run_of_the_tutorial() -> str:
    """All steps in one process, in order: each says when it has passed."""
    if not TOLD:
        ports = free_ports(3)
        code = "\n".join(f"{body}\nprint('step {number} passed', flush=True)" for number, body in steps())
        for port, free in zip((17301, 17302, 17303), ports, strict=True):
            code = code.replace(str(port), str(free))
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False
        )
        TOLD["output"] = done.stdout + done.stderr
    return TOLD["output"]


def test_the_tutorial_has_ten_steps() -> None:
    assert [number for number, _ in steps()] == [str(number) for number in range(1, 11)]


@pytest.mark.timeout(280)
@pytest.mark.parametrize("number", range(1, 11))
def test_a_step_of_the_tutorial_passes(number: int) -> None:
    pytest.importorskip("pycrdt")
    assert f"step {number} passed" in run_of_the_tutorial(), run_of_the_tutorial()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demonstration_converges() -> None:
    """Offline edits, kill -9, a log that is cut, a late joiner; three processes."""
    program = ROOT / "examples" / "notes" / "notes.py"
    done = subprocess.run(
        [sys.executable, str(program), "--demo"], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("one text") == 3
