"""Runs of paper 002's protocols in random worlds, judged by the verifier and by a count of late deliveries.

Drawn from a seed: what is lost, doubled, reordered, shown by clocks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from support.net import ORDERED
from support.running import simulate
from whence.core.protocol import Protocol
from whence.sim.model import Scenario, node_names
from whence.sim.outcome import Outcome
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, Level
from whence.verify.report import Counts
from whence.verify.run import verify_table

DURATION_US = 400_000
DRAIN_US = 8_000_000  # longer than any lifetime that is drawn


class Watched(MemoryTrace):
    """Counts deliveries after the deadline by true time: nothing here is the verifier's or a core's."""

    def __init__(self) -> None:
        super().__init__()
        self.ends_us: dict[tuple[str | None, int], int] = {}
        self.late = 0

    def event(self, node: str, time_us: int, kind: Kind, *more: Any) -> None:
        super().event(node, time_us, kind, *more)
        origin, number, _, _, _, detail = (*more, *(None, 0, None, 0, 0, None)[len(more) :])
        if kind == Kind.BROADCAST:
            assert detail is not None
            self.ends_us[origin, number] = time_us + int(detail)
        elif kind == Kind.DELIVER and node != origin:
            self.late += time_us > self.ends_us[origin, number]


class Judged(NamedTuple):
    """What a run did and what is wrong with it."""

    result: Outcome
    counts: Counts  # the verifier's
    late: int
    cores: list[Protocol]

    @property
    def wrong(self) -> dict[str, int]:
        """Everything that a safe run has none of."""
        counts = self.counts
        found = {
            "causal": counts.causal,
            "fifo": counts.fifo,
            "duplicate": counts.duplicate,
            "created": counts.created,
            "malformed": counts.malformed,
            "late": self.late,
        }
        return {name: count for name, count in found.items() if count}


def judge(
    scenario: Scenario, make: Callable[..., Protocol] | None = None, *, check: bool = False, **params: Any
) -> Judged:
    """Run and judge; `make(me, members, **params)` makes other cores than the scenario's."""
    cores: list[Protocol] = []

    def kept(me: str, members: Any) -> Protocol:
        assert make is not None
        cores.append(make(me, members, **params))
        return cores[-1]

    trace = Watched()
    result = simulate(scenario, trace, make=kept if make else None, level=Level.DELIVERIES, check=check)
    report = verify_table(trace.table("run"), ORDERED, node_names(scenario.nodes))
    return Judged(result, report.counts, trace.late, cores)


# Worlds


def delay(draw: random.Random) -> dict[str, Any]:
    mean_us = draw.choice([0, 1, 500, 5_000, 20_000, 60_000])
    return draw.choice(
        [
            {"kind": "constant", "value_us": mean_us},  # ties: many things happen in one tick
            {"kind": "uniform", "low_us": 0, "high_us": 2 * mean_us},
            {"kind": "normal", "mean_us": mean_us, "deviation_us": mean_us // 3},
            {"kind": "exponential", "mean_us": mean_us + 1},
        ]
    )


def link(draw: random.Random) -> dict[str, Any]:
    return {
        "delay": delay(draw),
        "loss": draw.choice([0.0, draw.uniform(0.0, 0.4)]),
        "hop_loss": draw.choice([0.0, 0.0, 0.1]),
        "hop_delay_us": draw.choice([0, 0, 1_000]),
        "duplicate": draw.choice([0.0, draw.uniform(0.0, 0.5)]),
    }


def lifetime(draw: random.Random) -> dict[str, Any]:
    mean_us = draw.choice([1, 2_000, 20_000, 80_000, 200_000])
    return {"kind": "exponential", "mean_us": mean_us, "min_us": draw.choice([0, 0, 30_000])}


def workloads(draw: random.Random) -> list[dict[str, Any]]:
    interval_us = draw.choice([5_000, 20_000, 60_000])
    first = draw.choice(
        [
            {"kind": "poisson", "interval_us": interval_us, "count": draw.randrange(3, 12)},
            {"kind": "burst", "size": draw.randrange(1, 6), "interval_us": interval_us, "count": 4},
            {"kind": "periodic", "interval_us": interval_us, "count": 8},  # all nodes in the same tick
        ]
    )
    replies = {"kind": "replies", "probability": draw.choice([0.1, 0.5]), "depth": 3, "count": 4}
    chosen = [first, replies] if draw.random() < 0.5 else [first]
    return [{**each, "lifetime": lifetime(draw), "payload_bytes": draw.choice([0, 64])} for each in chosen]


def faults(draw: random.Random) -> tuple[list[dict[str, Any]], int]:
    """Faults, and how far two clocks may be apart."""
    found: list[dict[str, Any]] = []
    apart_us = 0
    if draw.random() < 0.5:
        offset_us, drift_ppm = draw.choice([0, 10, 5_000, 100_000]), draw.choice([1, 200, 5_000])
        found.append(
            {"kind": "skew", "nodes": "all", "offset_us": offset_us, "drift_ppm": drift_ppm, "drawn": True}
        )
        apart_us = 2 * (offset_us + drift_ppm * DRAIN_US // 1_000_000) + 4
    if draw.random() < 0.25:
        lasting = {"kind": "uniform", "low_us": 1_000, "high_us": 100_000}
        found.append(
            {"kind": "random_crashes", "count": 2, "stop_us": DURATION_US, "lasting": lasting}
            if draw.random() < 0.5
            else {"kind": "random_partitions", "count": 2, "stop_us": DURATION_US, "lasting": lasting}
        )
    return found, apart_us


def params(draw: random.Random, protocol: str, apart_us: int) -> dict[str, Any]:
    chosen = {
        "deadlines": draw.random() < 0.5,
        "copies": draw.choice([1, 1, 2]),
        "margin_us": draw.choice([0, 0, 5_000]),
        "clock_error_us": apart_us,
        "buffer_bytes": draw.choice([128 << 20, 128 << 20, 640, 0]),
    }
    if protocol == "odca":
        chosen |= {
            "pull": draw.choice(["window", "exact", "exact"]),
            "retry_us": draw.choice([0, 1, 5_000, 50_000]),
            "pulls": draw.choice([1, 3, 20]),
            "reply_bytes": draw.choice([0, 300, 16_384]),
        }
    return chosen


def scenario(seed: int) -> dict[str, Any]:
    draw = random.Random(f"deadline/{seed}")
    protocol = draw.choice(["tdca", "odca", "odca"])
    planned, apart_us = faults(draw)
    data = {
        "nodes": draw.randrange(2, 8),
        "seed": seed,
        "protocol": protocol,
        "params": params(draw, protocol, apart_us),
        "link": link(draw),
        "workloads": workloads(draw),
        "faults": planned,
        "stop": {"duration_us": DURATION_US, "drain_max_us": DRAIN_US - DURATION_US},
    }
    if draw.random() < 0.4:
        data["control"] = link(draw)
    return data
