"""Histories of registers: reads that no causally consistent store can return.

The bad patterns of Bouajjani, Enea, Guerraoui and Hamza (2017), exact where values are unique per key: a
value that no one wrote; the initial value although a write is in the reader's past; a value although the
reader's past holds a write to the key that came after it. (The fourth, a circle, is found with all others.)
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from whence.foreign.graph import Graph
from whence.foreign.model import History, Log


class BadRead(NamedTuple):
    """A read that is wrong, and the events that show it: the reader last."""

    event: int
    key: str
    why: str
    shown_by: list[int]


def bad_reads(log: Log, history: History, graph: Graph, in_circle: set[int]) -> list[BadRead]:
    """Every wrong read of an event that is in no circle; `graph` has no circles."""
    writers = history.writers()
    past = _pasts(log, graph, in_circle)
    own = {(event, key, value) for event, key, value in history.writes}
    writes: dict[str, dict[int, list[tuple[int, int]]]] = {}  # key -> context -> (place, event), in order
    for event, key, _ in history.writes:
        if event in past:
            writes.setdefault(key, {}).setdefault(int(log.ctx[event]), []).append(
                (int(log.pos[event]), event)
            )
    for of_key in writes.values():
        for of_ctx in of_key.values():
            of_ctx.sort()
    found = []
    for event, key, value in history.reads:
        if event not in past or (value is not None and (event, key, value) in own):
            continue
        newest = _newest(past[event], writes.get(key, {}), event)
        if value is None:
            if newest:
                why = f"it reads the initial value of {key}, yet {log.name(newest[0])} is in its past"
                found.append(BadRead(event, key, why, [newest[0], event]))
            continue
        writer = writers.get((key, value))
        if writer is None:
            found.append(BadRead(event, key, f"it reads {value} of {key}, which no one wrote", [event]))
            continue
        for newer in newest:
            if writer in past and newer != writer and _precedes(log, past, writer, newer):
                why = f"it reads {value} of {key}, yet {log.name(newer)} came after that and is in its past"
                found.append(BadRead(event, key, why, [writer, newer, event]))
                break
    return found


Past = dict[int, int]  # context -> the place of its last event in the past


def _pasts(log: Log, graph: Graph, in_circle: set[int]) -> dict[int, Past]:
    past: dict[int, Past] = {node: {} for node in graph.order.tolist() if node not in in_circle}
    for node, known in past.items():
        mine = known
        if node < len(log):
            ctx = int(log.ctx[node])
            mine = {**known, ctx: max(known.get(ctx, -1), int(log.pos[node]))}
        for other in graph.to[graph.first[node] : graph.first[node + 1]].tolist():
            theirs = past[other]
            for ctx, place in mine.items():
                if theirs.get(ctx, -1) < place:
                    theirs[ctx] = place
    return past


def _newest(past: Past, writes: dict[int, list[tuple[int, int]]], reader: int) -> list[int]:
    """The last write of each context that is in a past; earlier ones precede it."""
    newest = []
    for ctx, of_ctx in writes.items():
        at = bisect_right(of_ctx, (past.get(ctx, -1), np.iinfo(np.int64).max)) - 1
        if at >= 0 and of_ctx[at][1] != reader:
            newest.append(of_ctx[at][1])
    return newest


def _precedes(log: Log, past: dict[int, Past], first: int, second: int) -> bool:
    return past[second].get(int(log.ctx[first]), -1) >= int(log.pos[first])
