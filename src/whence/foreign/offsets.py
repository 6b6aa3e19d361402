"""The offsets between the clocks of a log, as a report: every pair of processes, at several moments."""

from __future__ import annotations

import msgspec
import numpy as np

from whence.errors import DataError
from whence.foreign.clocks import read_clocks
from whence.foreign.graph import build, find_sends
from whence.foreign.model import NO_TIME, Log
from whence.foreign.skew import Drift
from whence.foreign.timing import skew_of


class PairOffset(msgspec.Struct, frozen=True, kw_only=True):
    """How far `second` is ahead of `first`, when that one shows `at_ns`; None: nothing bounds it."""

    first: str
    second: str
    at_ns: int
    low_ns: int | None
    high_ns: int | None


class ImpossibleTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Messages in a circle that no clocks can have stamped so."""

    by_ns: int
    circle: list[str]


class Offsets(msgspec.Struct, frozen=True, kw_only=True):
    """All pairs that messages connect."""

    pairs: list[PairOffset]
    impossible: list[ImpossibleTimes]  # the messages of these were left out
    notes: list[str]


def offsets_of(log: Log, *, drift_ppm: int, linear: bool, moments: int) -> Offsets:
    """The report on a log."""
    stamped = log.t0[log.t0 != NO_TIME]
    if not len(stamped):
        raise DataError("the log", "it has no times", 'Map the column of times: time = "..."')
    graph = build(log, find_sends(log), read_clocks(log))
    drift = Drift.LINEAR if linear else Drift.BOUNDED
    skew, notes = skew_of(log, graph, drift_ppm=drift_ppm, drift=drift)
    pairs = []
    for place, first in enumerate(skew.hosts):
        own = log.t0[(log.proc == log.procs.index(first)) & (log.t0 != NO_TIME)]
        low, high = int(own.min()), int(own.max())
        for at in np.linspace(low, high, moments + 2).astype(np.int64)[1:-1].tolist():
            found = skew.intervals(first, at)
            pairs += [
                PairOffset(
                    first=first, second=second, at_ns=at, low_ns=found[second].low, high_ns=found[second].high
                )
                for second in skew.hosts[place + 1 :]
                if second in found
            ]
    texts = [note.text for note in notes]
    texts += [
        f"{one} and {two}: no constant rates fit, so the bound on their drift is used"
        for one, two in skew.not_linear
    ]
    return Offsets(
        pairs=pairs,
        impossible=[
            ImpossibleTimes(by_ns=each.by, circle=[passage.name for passage in each.circle])
            for each in skew.impossible
        ],
        notes=texts,
    )
