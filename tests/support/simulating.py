"""Random scenarios over all options, drawn from a seed, and a script that prints their trace hashes.

Imports nothing but whence.sim (msgspec), so that it runs in an interpreter without pyarrow:

    PYTHONPATH=src:tests python tests/support/simulating.py 0 100
"""

from __future__ import annotations

import sys
from typing import Any

from support.running import simulate
from whence.core.rng import below, chance, purpose, stream
from whence.sim.files import from_dict
from whence.sim.hashing import HashingRecorder
from whence.sim.model import Scenario
from whence.sim.outcome import Outcome
from whence.trace.schema import Kind

_DRAW = purpose("random scenario")


class Draws:
    """Decisions in a row, each from the seed."""

    def __init__(self, seed: int) -> None:
        self.key = stream(seed, _DRAW)
        self.used = 0

    def number(self, low: int, high: int) -> int:
        self.used += 1
        return low + below(self.key, self.used, high - low + 1)

    def happens(self, probability: float) -> bool:
        self.used += 1
        return chance(self.key, self.used, probability)

    def one_of(self, *choices: Any) -> Any:
        return choices[self.number(0, len(choices) - 1)]


def a_distribution(draws: Draws, scale_us: int) -> dict[str, Any]:
    """Of every kind, around `scale_us`."""
    return draws.one_of(
        {"kind": "constant", "value_us": scale_us},
        {"kind": "uniform", "low_us": scale_us // 10, "high_us": 2 * scale_us},
        {"kind": "normal", "mean_us": scale_us, "deviation_us": scale_us},
        {"kind": "exponential", "mean_us": scale_us, "min_us": scale_us // 20},
        {"kind": "pareto", "min_us": 1 + scale_us // 3, "shape": 1.5, "max_us": 50 * scale_us + 1},
        {"kind": "lognormal", "median_us": scale_us + 1, "sigma": 1.0, "max_us": 50 * scale_us + 1},
    )


def a_topology(draws: Draws, nodes: int) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = [{"kind": "full"}, {"kind": "ring"}, {"kind": "grid"}]
    if nodes > 3:
        kinds += [{"kind": "random", "degree": 2}, {"kind": "random", "degree": nodes - 1}]
    if nodes % 2 == 0 and nodes > 4:
        kinds.append({"kind": "random", "degree": 3})
    return draws.one_of(*kinds)


def a_link(draws: Draws, *, reliable: bool) -> dict[str, Any]:
    link: dict[str, Any] = {"delay": a_distribution(draws, draws.one_of(100, 1_000, 5_000))}
    link["fifo"] = draws.happens(0.4)
    if draws.happens(0.5):
        link["duplicate"] = draws.one_of(0.01, 0.1, 0.5)
    if draws.happens(0.3):
        link["service_us"] = draws.number(1, 50)
    if draws.happens(0.3):
        link["bandwidth_bytes_per_s"] = draws.number(100_000, 10_000_000)
    if draws.happens(0.6):
        link["loss"] = draws.one_of(0.01, 0.1, 0.4)
    if reliable or draws.happens(0.5):
        link["retransmit_us"] = draws.number(500, 5_000)
    return link


def some_workloads(draws: Draws, duration_us: int) -> list[dict[str, Any]]:
    interval_us = duration_us // draws.number(3, 10)
    senders = draws.one_of("all", 1, 2, ["n0"])
    first = draws.one_of(
        {"kind": "periodic", "interval_us": interval_us, "jitter_us": interval_us // 2},
        {"kind": "poisson", "interval_us": interval_us},
        {"kind": "window", "count": 4, "stop_us": duration_us},
        {"kind": "burst", "size": 3, "gap_us": 50, "interval_us": interval_us, "start_us": 10},
    )
    workloads = [{**first, "senders": senders, "payload_bytes": draws.one_of(0, 8, 300)}]
    if draws.happens(0.8):
        delay = a_distribution(draws, 500)
        workloads.append({"kind": "replies", "probability": 0.3, "depth": 3, "count": 4, "delay": delay})
    return workloads


def some_faults(draws: Draws, duration_us: int, *, healing: bool) -> list[dict[str, Any]]:
    lasting = {"kind": "uniform", "low_us": duration_us // 20, "high_us": duration_us // 3}
    faults: list[dict[str, Any]] = []
    if draws.happens(0.4):
        stop_us = duration_us // 2 if healing or draws.happens(0.7) else None
        faults.append({"kind": "partition", "start_us": duration_us // 5, "stop_us": stop_us})
    if draws.happens(0.3):
        count = draws.number(1, 3)
        faults.append(
            {"kind": "random_partitions", "count": count, "stop_us": duration_us, "lasting": lasting}
        )
    if draws.happens(0.4):
        count = draws.number(1, 2)
        faults.append({"kind": "random_crashes", "count": count, "stop_us": duration_us, "lasting": lasting})
    if not healing and draws.happens(0.2):
        faults.append({"kind": "crash", "nodes": 1, "at_us": duration_us // 3})
    if draws.happens(0.3):
        slow = {"kind": "slow", "nodes": 1, "factor": 3.0, "extra_us": 700, "stop_us": duration_us // 2}
        faults.append(slow)
    if draws.happens(0.3):
        faults.append({"kind": "skew", "nodes": "all", "offset_us": 9_000, "drift_ppm": 300, "drawn": True})
    return faults


def random_scenario(seed: int, *, protocol: str | None = None, reliable: bool = False) -> Scenario:
    """A scenario drawn over all options; `reliable`: faults heal and every packet arrives at last."""
    draws = Draws(seed)
    nodes = draws.number(2, 7)
    duration_us = draws.one_of(20_000, 60_000)
    data: dict[str, Any] = {
        "name": f"random-{seed}",
        "seed": seed,
        "nodes": nodes,
        "protocol": protocol or draws.one_of("fifo", "vector"),
        "topology": a_topology(draws, nodes),
        "link": a_link(draws, reliable=reliable),
        "workloads": some_workloads(draws, duration_us),
        "faults": some_faults(draws, duration_us, healing=reliable),
        "stop": {"duration_us": duration_us, "drain": reliable or draws.happens(0.8)},
    }
    if draws.happens(0.3):
        data["overrides"] = [{"from_nodes": "n0", "both_ways": True, "delay": a_distribution(draws, 20_000)}]
    if draws.happens(0.3):
        data["record"] = {"sample_every_us": duration_us // 5}
    return from_dict(data)


def hash_of(scenario: Scenario) -> tuple[str, Outcome]:
    recorder = HashingRecorder()
    result = simulate(scenario, recorder)
    return recorder.hexdigest(), result


class KeptRows:
    """A recorder that keeps the rows as they come."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def event(
        self,
        node: str,
        time_us: int,
        kind: Kind,
        origin: str | None = None,
        number: int = 0,
        peer: str | None = None,
        total_bytes: int = 0,
        control_bytes: int = 0,
        detail: str | None = None,
    ) -> None:
        self.rows.append((node, time_us, kind, origin, number, peer, total_bytes, control_bytes, detail))

    def kinds(self) -> list[Kind]:
        return [row[2] for row in self.rows]

    def of(self, kind: Kind, node: str | None = None) -> list[tuple[Any, ...]]:
        return [row for row in self.rows if row[2] is kind and node in (None, row[0])]


if __name__ == "__main__":
    for wanted in range(int(sys.argv[1]), int(sys.argv[2])):
        digest, _ = hash_of(random_scenario(wanted))
        sys.stdout.write(f"{digest}\n")
