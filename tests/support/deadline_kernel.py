"""Runs of TDCA and ODCA, drawn; and the same run by cores and by the kernel, in comparable form."""

from __future__ import annotations

import random
from typing import Any

from support.running import simulate
from support.simulating import Rows
from whence.kernels.deadline import kernel as deadline
from whence.sim.files import from_dict
from whence.sim.model import Scenario
from whence.trace.schema import Level


def drawn_scenario(seed: int) -> Scenario:
    """Small groups over bad links, with every option that the kernel knows; on a coarse clock things tie."""
    draw = random.Random(f"deadline kernel {seed}")
    nodes = draw.choice([1, 2, 3, 4, 5, 7, 9, 12])
    unit_us = draw.choice([1, 100, 1_000])  # how coarse the times are
    is_odca = draw.random() < 0.7
    params: dict[str, Any] = {
        "deadlines": draw.random() < 0.5,
        "copies": draw.choice([1, 1, 2, 3]),
        "margin_us": draw.choice([0, 0, 5, 50]) * unit_us,
        "clock_error_us": draw.choice([0, 0, 0, 30]) * unit_us,
        "lifetime_us": draw.choice([50, 400, 2_000]) * unit_us,
    }
    if draw.random() < 0.3:
        params["buffer_bytes"] = draw.choice([0, 200, 2_000])
    if is_odca:
        params["pull"] = draw.choice(["window", "exact"])
        params["retry_us"] = draw.choice([0, 1, 30, 200]) * unit_us
        params["pulls"] = draw.choice([1, 2, 3, 6])
        params["reply_bytes"] = draw.choice([0, 300, 1_000, 16_384])
    scenario: dict[str, Any] = {
        "name": "kernel",
        "protocol": "odca" if is_odca else "tdca",
        "nodes": nodes,
        "seed": seed,
        "params": params,
        "link": _link(draw, unit_us),
        "workloads": [_workload(draw, unit_us) for _ in range(draw.choice([1, 1, 2]))],
        "stop": {"duration_us": draw.choice([500, 1_500]) * unit_us},
    }
    if draw.random() < 0.6:
        scenario["control"] = _link(draw, unit_us)
    if draw.random() < 0.2:
        scenario["stop"] |= draw.choice([{"drain": False}, {"drain_max_us": 100 * unit_us}])
    return from_dict(scenario)


def _link(draw: random.Random, unit_us: int) -> dict[str, Any]:
    mean_us = draw.choice([0, 5, 60, 100]) * unit_us
    delay = draw.choice(
        [
            {"kind": "constant", "value_us": mean_us},
            {"kind": "uniform", "low_us": mean_us // 2, "high_us": 2 * mean_us},
            {"kind": "normal", "mean_us": mean_us, "deviation_us": mean_us // draw.choice([1, 3])},
        ]
    )
    return {
        "delay": delay,
        "loss": draw.choice([0.0, 0.05, 0.4]),
        "hop_loss": draw.choice([0.0, 0.05, 0.2]),
        "hop_delay_us": draw.choice([0, 0, 3]) * unit_us,
        "process_us": draw.choice([0, 0, 2]) * unit_us,
    }


def _workload(draw: random.Random, unit_us: int) -> dict[str, Any]:
    load: dict[str, Any] = {"kind": "poisson", "interval_us": max(1, draw.choice([10, 40, 100]) * unit_us)}
    if draw.random() < 0.2:
        load |= {"interval_us": 1, "count": draw.choice([3, 20])}  # many in one tick
    load["payload_bytes"] = draw.choice([0, 64])
    if draw.random() < 0.5:
        load["payload_max_bytes"] = 400
    if draw.random() < 0.8:
        mean_us = draw.choice([60, 300, 1_000]) * unit_us
        load["lifetime"] = {"kind": "exponential", "mean_us": mean_us, "min_us": draw.choice([0, mean_us])}
    return load


def by_cores(scenario: Scenario) -> dict[str, Any]:
    """What the simulator says of a run."""
    rows = Rows()
    result = simulate(scenario, rows, level=Level.DELIVERIES)
    return _comparable(
        rows, result.broadcasts, result.packets, result.control_packets, result.lost_packets, result.discards,
        result.expiries,
    )  # fmt: skip


def by_kernel(scenario: Scenario) -> dict[str, Any]:
    """What the kernel says of a run."""
    rows = Rows()
    outcome = deadline.run(scenario, rows, Level.DELIVERIES)
    return _comparable(
        rows, outcome.broadcasts, outcome.packets, outcome.control_packets, outcome.lost_packets,
        outcome.discards, outcome.expiries,
    )  # fmt: skip


def _comparable(
    rows: Rows,
    broadcasts: int,
    packets: int,
    control_packets: int,
    lost: int,
    discards: dict[str, int],
    expiries: dict[str, int],
) -> dict[str, Any]:
    return {
        "broadcasts": broadcasts,
        "packets": packets,
        "control packets": control_packets,
        "lost": lost,
        "discards": discards,
        "expiries": expiries,
        "rows": rows.rows,
    }
