"""Vector clocks of a log: which are impossible, and which event precedes which by the others.

A clock tells what an event knew, not which message it delivered: clocks give edges, and never a delivery.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.foreign.model import Array, Log


class ClockFault(NamedTuple):
    """An event whose clock cannot be true."""

    event: int
    why: str


class Clocks(NamedTuple):
    """What the clocks say."""

    events: int  # events that have one
    causes: Array  # edges: this event ...
    effects: Array  # ... precedes this one
    faults: list[ClockFault]
    absent: int  # entries that name an event which the log does not have
    ownless: int = 0  # events whose clock has no entry of their own context: nothing is its predecessor's


def read_clocks(log: Log, *, every: bool = False) -> Clocks:
    """Check the clocks of a log. A clock is checked where it grew; a faulty one gives no edges.

    Edges are given where a clock grew since the last true one of its context, which the order in the context
    makes enough; `every` gives one for each entry.
    """
    every = every or log.order != "clock"
    nothing = np.zeros(0, dtype=np.int64)
    owners = log.vc.owners()
    if not len(owners):
        return Clocks(0, nothing, nothing, [], 0)
    clock: dict[int, dict[int, int]] = {}
    for event, host, count in zip(
        owners.tolist(), log.vc.values.tolist(), log.vc_count.tolist(), strict=True
    ):
        if count > 0:
            clock.setdefault(event, {})[host] = count
    ctx = log.ctx.tolist()
    ownless = {event for event, mine in clock.items() if ctx[event] not in mine}
    own: dict[tuple[int, int], int] = {}
    faults: dict[int, str] = {}
    twice: set[tuple[int, int]] = set()
    in_order = sorted(clock, key=lambda event: (ctx[event], clock[event].get(ctx[event], 0), event))
    for event in in_order:
        if event in ownless:
            continue
        key = (ctx[event], clock[event][ctx[event]])
        if key in own:
            twice.add(key)
            faults[event] = f"{log.ctxs[key[0]]}:{key[1]} was the clock of another event, too"
        own.setdefault(key, event)
    causes: list[int] = []
    effects: list[int] = []
    absent = 0
    before: int | None = None
    true: dict[int, int] = {}  # what the last true clock of the context knew
    for event in in_order:
        mine = clock[event]
        if before is None or ctx[before] != ctx[event] or event in ownless:
            true = {}
        known = {} if before is None or ctx[before] != ctx[event] or event in ownless else clock[before]
        before = None if event in ownless else event
        if event in faults:
            continue
        grown = [(host, n) for host, n in mine.items() if host != ctx[event] and n > known.get(host, 0)]
        sources = [own[key] for key in grown if key in own and key not in twice]
        absent += sum(key not in own for key in grown)
        fault = _fault(log, mine, known, [(log.name(each), clock[each]) for each in sources])
        if fault is not None:
            faults[event] = fault
            continue
        others = [(host, n) for host, n in mine.items() if host != ctx[event]]
        news = [(host, n) for host, n in others if every or n > true.get(host, 0)]
        learned = [own[key] for key in news if key in own and key not in twice]
        causes += learned
        effects += [event] * len(learned)
        true = mine
    return Clocks(
        len(clock), np.array(causes, dtype=np.int64), np.array(effects, dtype=np.int64),
        [ClockFault(event, why) for event, why in sorted(faults.items())], absent, len(ownless),
    )  # fmt: skip


def _fault(
    log: Log, mine: dict[int, int], known: dict[int, int], sources: list[tuple[str, dict[int, int]]]
) -> str | None:
    for host, count in known.items():
        if mine.get(host, 0) < count:
            knew = f"{log.ctxs[host]}:{count}"
            return f"the event before it knew {knew}, and it knows {mine.get(host, 0)} of {log.ctxs[host]}"
    for name, theirs in sources:
        for host, count in theirs.items():
            if mine.get(host, 0) < count:
                return (
                    f"it has seen {name}, which knew {log.ctxs[host]}:{count}, and knows {mine.get(host, 0)}"
                )
    return None
