"""Goldens of simulated runs: the examples, drawn scenarios over every protocol, runs over an overlay."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from whence.sim.scenario import from_dict
from whence.sim.scenario import load as load_scenario

from golden.drawn import overlays, scenarios
from golden.files import load
from whence.sim.dynamic import run as run_overlay
from whence.sim.experiment import Experiment
from whence.sim.experiment import load as load_experiment
from whence.sim.hashing import HashingRecorder
from whence.sim.replay import replay
from whence.sim.run import simulate, simulate_to
from whence.trace.schema import Level

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "scenarios").glob("*.toml"))
# The example of an experiment takes an hour of simulated time; its first five minutes show the same rules.
SHORTER = {"duration_us": 300_000_000, "nodes": 24, "broadcast_every_us": 500_000}

Plain = dict[str, Any]


def scenario_run(scenario: Any) -> Plain:
    """The trace hash of a run at level `all`, and the counters that the trace does not have."""
    recorder = HashingRecorder()
    result = simulate(scenario, recorder, level=Level.ALL)
    return {
        "hash": recorder.hexdigest(),
        "events": recorder.events,
        "final_us": result.final_us,
        "drained": result.drained,
        "complete": result.promises.complete,
        "deliveries": result.deliveries,
        "packets": [result.packets, result.control_packets, result.lost_packets, result.in_flight],
        "discards": result.discards,
        "expiries": result.expiries,
        "waiting": {node: [held.message for held in waiting] for node, waiting in result.waiting.items()},
    }


def replayed(scenario: Any) -> list[Any]:
    """What a replay of the trace on disk says: the trace's hash, inputs, effects, differences.

    There are differences only where `vcube` detects crashes: its tests carry no message, so a replay may take
    one for another where links reorder or repeat packets (docs/vcube.md).
    """
    with TemporaryDirectory() as folder:
        manifest = simulate_to(scenario, Path(folder) / "trace", Level.ALL)
        report = replay(Path(folder) / "trace")
    return [manifest.trace_hash, report.inputs, report.effects, report.mismatch_count]


def overlay_run(plain: Plain) -> Plain:
    """The same of a run over an overlay. THE place to rewrite when an experiment becomes a scenario."""
    recorder = HashingRecorder()
    series = run_overlay(msgspec.convert(plain, Experiment), recorder, level=Level.ALL)
    return {
        "hash": recorder.hexdigest(),
        "events": recorder.events,
        "broadcasts": series.broadcasts,
        "deliveries": series.deliveries,
        "receipts": series.receipts,
        "control": series.control,
        "opened": series.opened,
        "left": [series.expected_left, series.buffered_left],
    }


def example_overlay() -> Plain:
    """The parameters of the example that is an experiment, with less to do."""
    path = ROOT / "examples" / "experiments" / "prc.toml"
    return msgspec.to_builtins(load_experiment(path)) | SHORTER


def _again(name: str, drawn: list[Plain]) -> list[Plain]:
    """What was kept, so that it stays when the drawing changes; else what is drawn."""
    try:
        return [entry["run"] for entry in load(name)]
    except FileNotFoundError:
        return drawn


GOLDENS = {
    "examples": lambda: {path.stem: scenario_run(load_scenario(path)) for path in EXAMPLES},
    "scenarios": lambda: [
        {
            "run": plain,
            "golden": scenario_run(from_dict(plain)),
            "replayed": replayed(from_dict(plain)),
        }
        for plain in _again("scenarios", scenarios())
    ],
    "overlays": lambda: [
        {"run": plain, "golden": overlay_run(plain)}
        for plain in _again("overlays", [*overlays(), example_overlay()])
    ],
}
