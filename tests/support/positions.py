"""Positions for tests, and contacts from them by brute force: every pair, every step, no grid, no kernel."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TypeAlias

Position: TypeAlias = tuple[int, str, float, float]
Interval: TypeAlias = tuple[str, str, int, int]


def brute(rows: list[Position], range_m: float, step_us: int, gap_us: int | None = None) -> list[Interval]:
    """Contacts (a < b) and presence (a == b), sorted."""
    gap_us = step_us if gap_us is None else gap_us
    latest: dict[tuple[int, str], tuple[int, float, float]] = {}
    for time_us, node, x, y in rows:
        key = (time_us // step_us, node)
        latest[key] = max(latest.get(key, (-1, 0.0, 0.0)), (time_us, x, y))
    by_step: dict[int, list[tuple[str, float, float]]] = defaultdict(list)
    for (step, node), (_, x, y) in latest.items():
        by_step[step].append((node, x, y))
    steps: dict[tuple[str, str], list[int]] = defaultdict(list)
    for step in sorted(by_step):
        here = sorted(by_step[step])
        for at, (a, ax, ay) in enumerate(here):
            for b, bx, by in here[at:]:
                if (bx - ax) * (bx - ax) + (by - ay) * (by - ay) <= range_m * range_m:
                    steps[a, b].append(step)
    found: list[Interval] = []
    for (a, b), when in steps.items():
        begin = before = when[0]
        for step in [*when[1:], None]:
            if step is None or (step - before) * step_us > gap_us:
                found.append((a, b, begin * step_us, (before + 1) * step_us))
                begin = step if step is not None else 0
            before = step if step is not None else 0
    return sorted(found)


def wander(
    seed: int,
    nodes: int,
    steps: int,
    *,
    size_m: float = 200.0,
    missing: float = 0.1,
    grid_m: float | None = None,
) -> list[Position]:
    """Random walks, a position a second, some missing; with `grid_m` on a grid, so that ties are common."""
    draw = random.Random(seed)
    places = {f"n{at}": [draw.uniform(0, size_m), draw.uniform(-size_m, 0)] for at in range(nodes)}
    rows: list[Position] = []
    for step in range(steps):
        for node, place in places.items():
            for axis in (0, 1):
                place[axis] += draw.uniform(-15, 15)
            if draw.random() >= missing:
                x, y = ((grid_m * round(each / grid_m)) if grid_m else each for each in place)
                rows.append((step * 1_000_000, node, x, y))
    draw.shuffle(rows)
    return rows
