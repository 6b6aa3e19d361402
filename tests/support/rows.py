"""Made-up streams of rows that name their predecessors, and what must hold for any order of them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from whence.order import Arrival, CausalOrder, Ending


def stream(
    seed: int,
    rows: int = 60,
    *,
    lifetime_us: int = 100,
    mixed: bool = False,
    told: bool = False,
    loss: float = 0.1,
    twice: float = 0.1,
    delay_us: int = 150,
) -> list[Arrival]:
    """Rows of three sources, each naming the newest it knows; delayed, lost and doubled; by arrival.

    `told`: needs carry deadlines as paper 001 wants them: an entry is left out only if it is covered by one
    with no smaller deadline (F5).
    """
    draw = random.Random(seed)
    knows: list[dict[str, int]] = [{} for _ in range(3)]  # source -> the needs of its next row
    made: list[Arrival] = []
    for at in range(rows):
        source, made_us = draw.randrange(3), at * 10
        life_us = draw.choice([lifetime_us // 4, lifetime_us, 3 * lifetime_us]) if mixed else lifetime_us
        if draw.random() < 0.5:
            other = draw.randrange(3)
            for need, us in knows[other].items():
                knows[source][need] = max(us, knows[source].get(need, 0))
        deadline_us = made_us + life_us
        needs = dict(knows[source])
        made.append(
            Arrival(f"r{at}", made_us, life_us, dict(needs) if told else dict.fromkeys(needs), f"r{at}")
        )
        kept = {need: us for need, us in needs.items() if told and us > deadline_us}
        knows[source] = kept | {f"r{at}": deadline_us}
    arrivals = []
    for row in made:
        if draw.random() < loss:
            continue
        for _ in range(1 + (draw.random() < twice)):
            arrivals.append((row.at_us + draw.randrange(delay_us), row))
    arrivals.sort(key=lambda pair: (pair[0], pair[1].id or ""))
    if told:  # deadlines are the sender's; the clock is moved by the caller
        return [row._replace(at_us=us, lifetime_us=row.at_us + row.lifetime_us - us) for us, row in arrivals]
    return [row._replace(at_us=us) for us, row in arrivals]


def run(arrivals: Iterable[Arrival], policy: Any = "emit", **more: Any) -> list[Ending]:
    """All endings of a stream, `check` after every step."""
    order = CausalOrder(policy, **({"remember_us": 10_000} | more))
    endings = []
    for row in arrivals:
        endings += order.offer(row)
        order.check()
    return endings + order.end()
