"""The same seed gives the same trace: in two runs, processes, interpreters, recorders."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

from support import hashing
from support.hashing import HashingRecorder
from support.processes import find_python
from support.running import simulate, simulate_to
from support.simulating import hash_of, random_scenario
from whence.sim.files import from_dict
from whence.trace import writer
from whence.trace.schema import Kind, Level

ROOT = Path(__file__).parents[2]
SCENARIOS = 100
OTHERS = ("3.12", "3.13")


@cache
def hashes_here() -> tuple[str, ...]:
    return tuple(hash_of(random_scenario(seed))[0] for seed in range(SCENARIOS))


def hashes_of(python: str, hash_seed: str, *libraries: Path) -> tuple[str, ...]:
    """The same, by another process, with strings and sets hashed in another way."""
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests", *libraries))),
        "PYTHONHASHSEED": hash_seed,
        "PATH": os.environ.get("PATH", ""),
    }
    script = ROOT / "tests" / "support" / "simulating.py"
    done = subprocess.run(
        [python, str(script), "0", str(SCENARIOS)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return tuple(done.stdout.split())


def test_scenarios_are_many_and_different() -> None:
    assert len(hashes_here()) == len(set(hashes_here())) == SCENARIOS


def test_two_runs_are_equal() -> None:
    again = tuple(hash_of(random_scenario(seed))[0] for seed in range(SCENARIOS))
    assert again == hashes_here()


def test_results_are_equal_too() -> None:
    for seed in range(20):
        scenario = random_scenario(seed)
        assert simulate(scenario) == simulate(scenario, HashingRecorder(), check=True)


def test_other_seeds_give_other_traces() -> None:
    one = random_scenario(7)
    plain = [hash_of(from_dict({**_plain(one), "seed": seed}))[0] for seed in range(10)]
    assert len(set(plain)) == 10


def _plain(scenario: object) -> dict[str, object]:
    import msgspec

    plain: dict[str, object] = msgspec.to_builtins(scenario)
    return plain


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_two_processes_with_different_hash_seeds_are_equal(hash_seed: str) -> None:
    assert hashes_of(sys.executable, hash_seed) == hashes_here()


@pytest.mark.parametrize(
    "wanted", [each for each in OTHERS if each != ".".join(map(str, sys.version_info[:2]))]
)
def test_other_interpreters_are_equal(wanted: str, tmp_path: Path) -> None:
    """With msgspec and nothing else, where PyPI can be reached."""
    python = find_python(wanted)
    if python is None:
        pytest.skip(f"no Python {wanted} on this machine")
    # Not an environment of its own: making one takes longer than the runs.
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    install += ["--python-version", wanted, "--only-binary", ":all:", f"msgspec=={version('msgspec')}"]
    installed = subprocess.run(install, capture_output=True, text=True, timeout=120, check=False)
    if installed.returncode != 0:
        pytest.skip(f"msgspec cannot be installed for Python {wanted}: {installed.stderr[-300:]}")
    assert hashes_of(python, "99", tmp_path) == hashes_here()


# Golden: guards the meaning of a scenario across versions of Whence, and machines


def test_a_golden_trace() -> None:
    """If this changes, every published run changes: say so in the changelog."""
    scenario = from_dict(
        {
            "nodes": 5,
            "protocol": "vector",
            "seed": 2024,
            "topology": {"kind": "random", "degree": 2},
            "link": {
                "delay": {"kind": "lognormal", "median_us": 800},
                "loss": 0.2,
                "duplicate": 0.1,
                "service_us": 3,
                "bandwidth_bytes_per_s": 1_000_000,
                "retransmit_us": 900,
            },
            "workloads": [
                {"kind": "poisson", "interval_us": 2_000, "payload_bytes": 20},
                {"kind": "replies", "probability": 0.3, "depth": 2},
            ],
            "faults": [
                {
                    "kind": "random_crashes",
                    "count": 2,
                    "stop_us": 15_000,
                    "lasting": {"kind": "normal", "mean_us": 3_000, "deviation_us": 1_000},
                },
                {"kind": "partition", "start_us": 5_000, "stop_us": 9_000},
            ],
            "record": {"sample_every_us": 5_000},
            "stop": {"duration_us": 20_000},
        }
    )
    digest, result = hash_of(scenario)
    assert (result.broadcasts, result.steps, result.final_us) == GOLDEN_COUNTS
    assert digest == GOLDEN_HASH


GOLDEN_COUNTS = (125, 962, 31_415)
GOLDEN_HASH = "b9170cb5f50a34d068f0a99b6eacf3723f5005c2103a3f860ebe74ebd52aa107"


# The recorder without pyarrow and the writer read the same specification


@pytest.mark.parametrize("seed", range(12))
def test_the_hashing_recorder_agrees_with_the_writer(seed: int, tmp_path: Path) -> None:
    scenario = random_scenario(seed)
    for level in (Level.ALL, Level.DELIVERIES):
        recorder = HashingRecorder()
        simulate(scenario, recorder, level=level)
        manifest = simulate_to(scenario, tmp_path / level.name, level)
        assert recorder.hexdigest() == manifest.trace_hash
        assert recorder.events == manifest.events


def test_they_agree_when_buffers_run_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many nodes with few events each: the largest buffers are packed early."""
    assert writer.BUFFERED_EVENTS == hashing.BUFFERED_EVENTS
    monkeypatch.setattr(writer, "BUFFERED_EVENTS", 50)
    monkeypatch.setattr(hashing, "BUFFERED_EVENTS", 50)
    scenario = random_scenario(3)
    recorder = HashingRecorder()
    simulate(scenario, recorder)
    assert recorder.events > 100
    assert recorder.hexdigest() == simulate_to(scenario, tmp_path).trace_hash


def test_the_hash_sees_every_field() -> None:
    base = ("n0", 5, Kind.SEND, "n1", 7, "n2", 90, 20, "detail")
    changes = [("n9",), (6,), (Kind.RECEIVE,), ("n8",), (8,), ("n7",), (91,), (21,), (None,)]
    digests = set()
    for place in range(-1, len(base)):
        values = list(base)
        if place >= 0:
            values[place] = changes[place][0]
        recorder = HashingRecorder()
        recorder.event(*values)  # type: ignore[arg-type]  # the tuple is mixed on purpose
        digests.add(recorder.hexdigest())
    assert len(digests) == len(base) + 1
