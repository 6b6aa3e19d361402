"""The test vectors of the wire: current, and read alike by a decoder of another language."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "docs" / "wire-vectors.json"


def test_the_vectors_are_current() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "wire_vectors.py"], check=False, timeout=60)
    assert done.returncode == 0


def test_they_have_every_type_of_frame_but_those_without_a_golden() -> None:
    found = {each["type"] for each in json.loads(VECTORS.read_text())}
    assert {"HELLO", "DATA", "ACK", "PING", "BYE", "ERROR", "CHALLENGE", "ANSWER"} <= found


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here: it reads the vectors in JavaScript")
def test_a_decoder_in_javascript_reads_the_same() -> None:
    program = ROOT / "examples" / "wire" / "check.mjs"
    done = subprocess.run(["node", program, VECTORS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(json.loads(VECTORS.read_text()))} frames read alike" in done.stdout
