"""Ctrl-C and full disks: one sentence, what is kept, a mark in the trace; typed errors and no traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import whence.cli.main as command_line
from support.living import free_ports
from whence.cli.main import COMMANDS, EXIT_INTERRUPTED, KEPT, NOTHING_KEPT
from whence.errors import DiskError, StoreError, TraceError
from whence.lab.run import run
from whence.live.store import Store
from whence.mobility.plan_io import save_csv
from whence.overlay.contacts import make_plan
from whence.sim.files import load
from whence.trace.reader import open_trace

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"
ENDLESS = """
nodes = 4
protocol = "vector"
[link]
delay = { kind = "constant", value_us = 1_000 }
[[workloads]]
kind = "periodic"
interval_us = 1_000
[stop]
duration_us = 36_000_000_000
"""  # ten hours


def started(*line: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "whence", *map(str, line)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def whence(*line: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whence", *map(str, line)], capture_output=True, text=True, check=False
    )


def interrupted(process: subprocess.Popen[str]) -> str:
    """What a command says that is interrupted: one sentence."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    # A shell says 130 to both. The second was seen once, after the sentence; why is not known.
    assert process.returncode in (EXIT_INTERRUPTED, -signal.SIGINT), errors
    progress = ("simulated ms", "making ", "depth ")
    lines = [line for line in errors.splitlines() if not line.startswith(progress)]
    assert len(lines) == 1, errors
    assert lines[0].startswith("interrupted: ")
    assert "Traceback" not in errors
    return lines[0].removeprefix("interrupted: ")


def test_an_interrupted_run_is_marked_and_verifies_as_unfinished(tmp_path: Path) -> None:
    out = tmp_path / "trace"
    (tmp_path / "endless.toml").write_text(ENDLESS)
    process = started("simulate", tmp_path / "endless.toml", "--out", out, "--kernel", "never")
    while not list(out.glob("*.tmp")) and process.poll() is None:  # events are on the disk
        time.sleep(0.05)
    assert interrupted(process) == KEPT["simulate"]
    [manifest] = open_trace(out).sources
    assert manifest.manifest.unfinished is True
    judged = whence("verify", out)
    assert judged.returncode == 3, judged.stderr
    assert "unfinished" in judged.stdout
    assert "was interrupted" in judged.stderr
    [report] = json.loads(whence("verify", out, "--json").stdout)
    assert (report["ok"], report["unfinished"]) == (True, True)
    again = whence("simulate", SCENARIOS / "slow-link.toml", "--out", out)  # it is written again
    assert again.returncode == 0, again.stderr
    assert open_trace(out).sources[0].manifest.unfinished is not True


@pytest.mark.parametrize("name", [entry.name for entry in COMMANDS])
def test_every_command_says_one_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(entry: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "load", interrupt)
    with pytest.raises(SystemExit) as end:
        command_line.main([name, "x"])
    assert end.value.code == EXIT_INTERRUPTED
    assert capsys.readouterr().err == f"interrupted: {KEPT.get(name, NOTHING_KEPT)}\n"


def test_under_json_an_interrupt_is_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(entry: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "load", interrupt)
    with pytest.raises(SystemExit) as end:
        command_line.main(["sweep", "x", "--json"])
    said = capsys.readouterr()
    assert end.value.code == EXIT_INTERRUPTED
    told = json.loads(said.out)["error"]
    assert told["type"] == "Interrupted"
    assert told["what"] == "whence sweep"
    assert told["fix"] == KEPT["sweep"]
    assert said.err == f"interrupted: {KEPT['sweep']}\n"


GROWING = '{"node": "a", "kind": "send", "message": "m1"}\n'
SYSTEM = 'base_port = PORT\n[[domains]]\nname = "one"\nservers = ["a", "b"]\n'
CARRIED = 'group = "g"\nnode = "a"\nlisten = "127.0.0.1:PORT"\nstore = "a.db"\n'
# A command that runs until it is stopped, a word of what it says when it has begun, and when it ends.
SERVING = {
    "node --group g --node a --listen 127.0.0.1:PORT": ("takes part", "nothing is kept without a store"),
    "carry run --config carried.toml --socket a.sock": ("carries", "its log is in"),
    "gateway --group g --node a --listen 127.0.0.1:PORT --http 127.0.0.1:OTHER --store a.db": (
        "serves",
        "its log is in a.db",
    ),
    "view trace --live": ("shows", "trace is as it was"),
    "log follow growing.json --state here": ("", "here has how far it was judged; the same command goes on"),
    "log follow growing.json": ("", "nothing is kept without --state"),
    "mom up system.toml": ("servers are up", "`whence mom up` goes on"),
}


@pytest.mark.slow
@pytest.mark.parametrize("line", SERVING)
def test_what_serves_says_what_is_kept(line: str, tmp_path: Path) -> None:
    """Ctrl-C is its ordinary end, so it is not called an error."""
    begun, ended = SERVING[line]
    port, other, base = free_ports(3)
    (tmp_path / "growing.json").write_text(GROWING)
    (tmp_path / "carried.toml").write_text(CARRIED.replace("PORT", str(port)))
    (tmp_path / "system.toml").write_text(SYSTEM.replace("PORT", str(base)))
    (tmp_path / "trace").mkdir()
    words = line.replace("PORT", str(port)).replace("OTHER", str(other)).split()
    log = tmp_path / "said.txt"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "whence", *words], cwd=tmp_path, stdout=said, stderr=said
        )
    try:
        while process.poll() is None and (begun not in log.read_text() or not begun):
            time.sleep(0.1)
            if not begun and (tmp_path / "here").exists():
                break
            if not begun and "--state" not in line:
                time.sleep(5)  # it says nothing until it ends
                break
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    finally:
        process.kill()
    text = log.read_text()
    assert process.returncode in (0, 3), text  # 3: a log that cannot tell
    assert " ".join(ended.split()) in " ".join(text.split()), text
    assert "Traceback" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        ["explore", SCENARIOS.parent / "worlds" / "oppnet.toml"],
        ["simulate", "ENDLESS", "--kernel", "never"],
        ["contacts", "walkers", "--seeds", "1000"],
    ],
    ids=lambda line: str(line[0]),
)
def test_real_commands_end_in_one_sentence(line: list[object], tmp_path: Path) -> None:
    (tmp_path / "endless.toml").write_text(ENDLESS)
    process = started(*[tmp_path / "endless.toml" if word == "ENDLESS" else word for word in line])
    time.sleep(3)
    assert process.poll() is None, process.communicate()
    interrupted(process)


# Full disks


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    path = tmp_path / "small"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(path)], check=False)
    if made.returncode:
        pytest.skip("tmpfs cannot be mounted here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> None:
    """Leave no byte."""
    with (path / "filling").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            pass


def test_a_full_disk_is_a_typed_error_of_the_library(small: Path) -> None:
    fill(small)
    with pytest.raises(TraceError, match="No space left"):
        run(load(SCENARIOS / "slow-link.toml"), small / "trace", kernel="never")
    with pytest.raises(StoreError, match=r"full|No space"):
        Store(small / "a.store")
    with pytest.raises(DiskError, match="No space left"):
        save_csv(make_plan([f"n{number}" for number in range(9000)], [], [], 10), small / "plan.csv")


@pytest.mark.parametrize(
    "line",
    [
        ["simulate", SCENARIOS / "slow-link.toml", "--out", "SMALL/trace"],
        ["trace", "export", "TRACE", "SMALL/log.txt"],
        ["view", "TRACE", "--out", "SMALL/view.html"],
        ["contacts", "walkers", "--seeds", "1", "--out", "SMALL/plan.csv"],
        ["keys", "init", "g", "--nodes", "a,b", "--out", "SMALL/keys"],
    ],
    ids=lambda line: " ".join(map(str, line[:2])),
)
@pytest.mark.slow
def test_a_full_disk_ends_a_command_in_two_lines(line: list[object], small: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert whence("simulate", SCENARIOS / "slow-link.toml", "--out", trace).returncode == 0
    fill(small)
    words = [str(word).replace("SMALL", str(small)).replace("TRACE", str(trace)) for word in line]
    done = whence(*words)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr
    assert "fix: " in done.stderr
    assert "small" in done.stderr


@pytest.mark.slow
def test_output_to_a_full_disk_is_an_error(small: Path) -> None:
    fill(small)
    with (small / "filling").open("ab") as full:
        done = subprocess.run(
            [sys.executable, "-m", "whence", "protocols", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ},
        )
    assert done.returncode == 2, done.stderr
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
