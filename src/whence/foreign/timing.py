"""Times of a log: effects stamped before their causes, and how far clocks are apart.

Times break no order. Within one process an effect that is stamped before its cause is a finding of `time`;
between processes it is a note, with the interval in which the offset of the two clocks must lie.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from whence.foreign.graph import CLOCK, DEPENDENCY, LINK, MESSAGE, Graph
from whence.foreign.model import NO_TIME, Array, Log, Note
from whence.foreign.skew import DRIFT_PPM, ClockOffsets, Drift, Interval, Passage, quickest

PASSAGES_MAX = 20_000  # of more, the quickest of each stretch of time are taken
_SHOWN = 5


class Timing(NamedTuple):
    """What the times say."""

    pairs: int  # causes and effects with times at both ends
    backwards: list[tuple[int, int]]  # cause and effect of one process, stamped the wrong way round
    apart: list[tuple[str, str, Interval]]  # pairs of processes farther apart than the contract allows
    notes: list[Note]


def read_times(log: Log, graph: Graph, max_skew_ns: int | None) -> Timing:
    """Compare the stamps of causes and effects."""
    causes, effects = _stamped(log, graph)
    same = log.proc[causes] == log.proc[effects]
    early = log.t0[causes] - log.t0[effects]
    wrong = same & (early > (log.resolution_ns if log.resolution_ns > 1 else 0))
    backwards = list(zip(causes[wrong].tolist(), effects[wrong].tolist(), strict=True))
    notes = []
    across = int(np.sum(~same & (early > 0)))
    if across:
        notes.append(
            Note("effect-before-cause", f"{across} effects are stamped before their causes elsewhere", across)
        )
    skew, more = skew_of(log, graph)
    apart = _apart(log, skew, max_skew_ns)
    return Timing(len(causes), backwards, apart, notes + more + _offset_notes(log, skew))


def _stamped(log: Log, graph: Graph) -> tuple[Array, Array]:
    """Causes and effects with a time at both ends."""
    causes = np.repeat(np.arange(graph.nodes), np.diff(graph.first))
    effects = graph.to
    chosen = np.isin(graph.source, (MESSAGE, LINK, CLOCK, DEPENDENCY))
    chosen &= (causes < len(log)) & (effects < len(log))
    causes, effects = causes[chosen], effects[chosen]
    stamped = (log.t0[causes] != NO_TIME) & (log.t0[effects] != NO_TIME)
    stamped &= log.clocked[log.proc[causes]] & log.clocked[log.proc[effects]]
    return causes[stamped], effects[stamped]


def skew_of(
    log: Log, graph: Graph, *, drift_ppm: int = DRIFT_PPM, drift: Drift = Drift.BOUNDED
) -> tuple[ClockOffsets, list[Note]]:
    """Offsets from messages, and from what is assumed unless that makes the times impossible."""
    causes, effects = _stamped(log, graph)
    across = log.proc[causes] != log.proc[effects]
    known = _passages(log, causes[across], effects[across], log.t0)
    back = log.returns[:, 0], log.returns[:, 1]
    other = log.proc[back[0]] != log.proc[back[1]]
    other &= log.clocked[log.proc[back[0]]] & log.clocked[log.proc[back[1]]]
    assumed = _passages(log, back[0][other], back[1][other], log.t1)
    measure = partial(ClockOffsets, drift_ppm=drift_ppm, drift=drift, resolution=log.resolution_ns)
    if not assumed:
        return measure(known), []
    skew = measure(known + assumed)
    said = f"{len(assumed)} calls are assumed to end later than what served them: for offsets alone"
    notes = [Note("assumed", said, len(assumed))]
    if skew.impossible:
        skew = measure(known)
        notes.append(Note("assumed-dropped", "with these the times are impossible: they were left out"))
    return skew, notes


def _passages(log: Log, causes: Array, effects: Array, stamp: Array) -> list[Passage]:
    there = (stamp[causes] != NO_TIME) & (stamp[effects] != NO_TIME)
    causes, effects = causes[there], effects[there]
    if len(causes) > PASSAGES_MAX:
        pair = log.proc[causes].astype(np.int64) * len(log.procs) + log.proc[effects]
        chosen = quickest(pair, stamp[causes], stamp[effects])
        causes, effects = causes[chosen], effects[chosen]
    return [
        Passage(log.procs[log.proc[cause]], int(stamp[cause]), log.procs[log.proc[effect]],
                int(stamp[effect]), log.name(effect))
        for cause, effect in zip(causes.tolist(), effects.tolist(), strict=True)
    ]  # fmt: skip


def _offset_notes(log: Log, skew: ClockOffsets) -> list[Note]:
    notes = []
    for each in skew.impossible[:1]:
        circle = "; ".join(passage.name for passage in each.circle)
        said = f"no clocks can show these times, by {each.by} ns: {circle}"
        notes.append(Note("time-impossible", said, len(skew.impossible)))
    off = _pairs(log, skew, lambda found: (found.low or 0) > 0 or (found.high or 0) < 0)
    if off:
        told = "; ".join(
            f"{second} is {_range(found)} ahead of {first}" for first, second, found in off[:_SHOWN]
        )
        notes.append(Note("skew", f"clocks differ: {told}", len(off)))
    return notes


def _apart(log: Log, skew: ClockOffsets, max_skew_ns: int | None) -> list[tuple[str, str, Interval]]:
    """Pairs of processes whose offset is certainly more than allowed."""
    if max_skew_ns is None:
        return []
    return _pairs(log, skew, lambda found: (found.low or 0) > max_skew_ns or (found.high or 0) < -max_skew_ns)


def _pairs(
    log: Log, skew: ClockOffsets, chosen: Callable[[Interval], bool]
) -> list[tuple[str, str, Interval]]:
    """Pairs of processes, each once, whose interval in the middle of the log is one of those sought."""
    stamped = log.t0[log.t0 != NO_TIME]
    middle = int(np.median(stamped)) if len(stamped) else 0
    found = []
    for place, first in enumerate(skew.hosts):
        intervals = skew.intervals(first, middle)
        for second in skew.hosts[place + 1 :]:
            interval = intervals.get(second)
            if interval is not None and chosen(interval):
                found.append((first, second, interval))
    return found


def _range(found: Interval) -> str:
    low, high = ("?" if each is None else f"{each / 1e6:.3f}" for each in found)
    return f"{low} to {high} ms"
