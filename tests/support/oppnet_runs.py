"""Small oppnet scenarios, drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from whence.sim.files import from_dict
from whence.sim.model import Scenario, node_names

END_US = 40_000
Times = Callable[[int, int], int]  # draws a time from the first on and before the second
Spans = list[tuple[int, int, int]]


def _presence(draw: random.Random, nodes: int, time_us: Times) -> Spans:
    """(node, from, until): most are there all the time, some enter, leave and come again."""
    presence = []
    for node in range(nodes):
        if draw.random() < 0.6:
            presence.append((node, 0, END_US))
            continue
        enters_us = time_us(0, 20_000)
        leaves_us = time_us(enters_us + 5_000, END_US)
        presence.append((node, enters_us, leaves_us))
        if leaves_us + 2_000 < 30_000 and draw.random() < 0.5:
            presence.append((node, leaves_us + 2_000, time_us(leaves_us + 3_000, END_US)))
    return presence


def _contacts(draw: random.Random, presence: Spans, time_us: Times) -> list[tuple[int, int, int, int]]:
    """(node, node, from, until), within what both are there."""
    rows = []
    for _ in range(draw.choice([6, 15, 30])):
        one, other = draw.sample(presence, 2)
        start_us, stop_us = max(one[1], other[1]), min(one[2], other[2])
        if one[0] != other[0] and stop_us - start_us > 500:
            begins_us = max(time_us(start_us, stop_us), start_us)
            rows.append((one[0], other[0], begins_us, min(begins_us + time_us(200, 9_000), stop_us)))
    return rows


def small_scenario(seed: int) -> Scenario:
    """3 to 7 nodes that meet, part, enter and leave; on a coarse grid of time now and then: things tie."""
    draw = random.Random(f"oppnet {seed}")
    nodes = draw.randrange(3, 8)
    grid = draw.choice([1, 1, 100])

    def time_us(low: int, high: int) -> int:
        return draw.randrange(low, high) // grid * grid

    presence = _presence(draw, nodes, time_us)
    rows = _contacts(draw, presence, time_us)
    mode = draw.choice(["safe", "published"])
    params: dict[str, Any] = {"mode": mode, "seed": seed, "gap_us": draw.choice([50, 100, 400])}
    params["setup_max_us"] = draw.choice([0, 300, 1_000])
    if mode == "safe":
        params["late_us"] = (10_000_000, 60, 0)[seed % 3]  # not drawn: the other draws stay what they were
    lifetime_us = draw.choice([None, 800, 2_000, 6_000])
    if lifetime_us is not None:
        params["lifetime_us"] = lifetime_us
    faults = []
    if draw.random() < 0.4:
        skew_us = draw.choice([200, 1_000])
        faults = [
            {"kind": "skew", "nodes": name, "offset_us": draw.randrange(1, skew_us)}
            for name in node_names(nodes)
            if draw.random() < 0.7
        ]
        if mode == "safe":
            params["skew_us"] = skew_us
    interval_us = draw.choice([300, 1_000, 3_000])
    return from_dict(
        {
            "nodes": nodes,
            "protocol": "oppnet",
            "seed": seed,
            "params": params,
            "topology": {"kind": "contacts", "rows": rows, "presence": presence},
            "link": {"delay": {"kind": "constant", "value_us": draw.choice([1, 20, 100])}},
            "workloads": [
                {
                    "kind": "periodic",
                    "interval_us": interval_us,
                    "start_us": draw.randrange(100),
                    "from_entry": draw.random() < 0.5,
                    "jitter_us": draw.choice([0, 200]),
                }
            ],
            "faults": faults,
            "stop": {"duration_us": END_US, "drain": draw.random() < 0.5, "drain_max_us": 10_000},
        }
    )
