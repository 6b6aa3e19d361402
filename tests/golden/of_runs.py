"""Goldens of simulated runs: the examples, drawn scenarios over every protocol, runs over an overlay."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from golden.drawn import logs, overlays, scenarios
from golden.files import load
from support.hashing import HashingRecorder
from support.running import simulate, simulate_to
from whence.sim.engine import Engine
from whence.sim.files import Scenario, from_dict
from whence.sim.files import load as load_scenario
from whence.sim.model import node_names
from whence.sim.replay import replay
from whence.trace.schema import Level

ROOT = Path(__file__).parents[2]
# The hour of PRC is for its kernel: with the cores it takes minutes.
EXAMPLES = [
    path for path in sorted((ROOT / "examples" / "scenarios").glob("*.toml")) if path.stem != "prc-hour"
]

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
    """What a replay of the trace on disk says: the trace's hash, inputs, effects, differences."""
    with TemporaryDirectory() as folder:
        manifest = simulate_to(scenario, Path(folder) / "trace", Level.ALL)
        report = replay(Path(folder) / "trace")
    return [manifest.trace_hash, report.inputs, report.effects, report.mismatch_count]


def overlay_run(plain: Plain) -> Plain:
    """The same of a run over an overlay."""
    recorder = HashingRecorder()
    engine = Engine(overlay_scenario(plain), None, recorder, level=Level.ALL)
    engine.run()
    series = engine.series()
    assert series is not None
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


def overlay_scenario(plain: Plain) -> Scenario:
    """The scenario of a golden; its parameters are kept in the words of the release that recorded it."""
    return from_dict(
        {
            "name": plain["name"],
            "nodes": plain["nodes"],
            "protocol": plain.get("protocol", "prc"),
            "seed": plain["seed"],
            "params": plain["params"],
            "topology": {
                "kind": "overlay",
                "joins_us": plain["joins_us"],
                "shuffle_every_us": plain["shuffle_every_us"],
                "shuffle_stop_us": plain["shuffle_stop_us"],
            },
            "link": {
                "delay": {
                    "kind": "ramp",
                    "points": [(point["at_us"], point["delay_us"]) for point in plain["latency"]],
                }
            },
            "workloads": [
                {
                    "kind": "anyone",
                    "interval_us": plain["broadcast_every_us"],
                    "start_us": plain["broadcast_start_us"],
                    "stop_us": plain["broadcast_stop_us"],
                    "payload_bytes": 0,
                }
            ],
            "faults": [
                {"kind": "crash", "nodes": [node_names(plain["nodes"])[each["node"]]], "at_us": each["at_us"]}
                for each in plain["departures"]
            ],
            "stop": {"duration_us": plain["duration_us"], "drain": False},
            "record": {"window_us": plain.get("window_us", 60_000_000)},
        }
    )


def _again(name: str, drawn: list[Plain]) -> list[Plain]:
    """What was kept, so that it stays when the drawing changes; else what is drawn."""
    try:
        return [entry["run"] for entry in load(name)]
    except FileNotFoundError:
        return drawn


def _scenarios(name: str, drawn: list[Plain]) -> list[Plain]:
    return [
        {
            "run": plain,
            "golden": scenario_run(from_dict(plain)),
            "replayed": replayed(from_dict(plain)),
        }
        for plain in _again(name, drawn)
    ]


GOLDENS = {
    "examples": lambda: {path.stem: scenario_run(load_scenario(path)) for path in EXAMPLES},
    "scenarios": lambda: _scenarios("scenarios", scenarios()),
    "logs": lambda: _scenarios("logs", logs()),
    "overlays": lambda: [
        {"run": plain, "golden": overlay_run(plain)} for plain in _again("overlays", overlays())
    ],
}
