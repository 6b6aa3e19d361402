"""How far the clocks of a scene's processes are apart, for its corrected axis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whence.foreign.skew import ClockOffsets, Interval, Passage, quickest
from whence.view.scene import Array, Correction, Scene

_KNOTS = 33  # readings of the reference clock at which the others are placed
_HOSTS_MAX = 256  # with more the intervals would take longer than everything else together


def with_corrections(scene: Scene, skew: ClockOffsets | None = None) -> Scene:
    """The scene with what to add to each clock: by `skew`, or else from the scene's messages alone."""
    if scene.time is None or not len(scene) or len(scene.procs) > _HOSTS_MAX:
        return scene
    proc = np.repeat(np.array(scene.lane_proc, dtype=np.int64), np.diff(scene.starts))
    skew = _skew_of(scene, scene.time, proc) if skew is None else skew
    if not skew.hosts:
        return scene
    events = np.bincount(proc, minlength=len(scene.procs))
    reference = max((scene.procs.index(host) for host in skew.hosts), key=lambda at: int(events[at]))
    here = scene.time[proc == reference]
    readings = np.unique(np.linspace(int(here.min()), int(here.max()), _KNOTS).astype(np.int64)).tolist()
    moments = [(reading, skew.intervals(scene.procs[reference], reading)) for reading in readings]
    corrections = {}
    for at, name in enumerate(scene.procs):
        found = [(reading, intervals[name]) for reading, intervals in moments if name in intervals]
        if found:
            corrections[at] = _correction(found)
    return replace(scene, corrections=corrections, reference=reference)


def _skew_of(scene: Scene, time: Array, proc: Array) -> ClockOffsets:
    source, target = scene.all_edges()
    between = proc[source] != proc[target]
    source, target = source[between], target[between]
    pair = proc[source] * len(scene.procs) + proc[target]
    chosen = quickest(pair, time[source], time[target])
    columns = (proc[source], time[source], proc[target], time[target])
    rows = zip(*(column[chosen].tolist() for column in columns), strict=True)
    return ClockOffsets(
        Passage(scene.procs[one], sent, scene.procs[two], came) for one, sent, two, came in rows
    )


def _correction(found: list[tuple[int, Interval]]) -> Correction:
    """What to add to a clock's readings to get the reference's, at the middle of where it may stand."""
    made: dict[int, tuple[int, int | None, int | None]] = {}
    for reading, interval in found:
        shown = reading + (interval.middle or 0)
        low = None if interval.high is None else -interval.high
        high = None if interval.low is None else -interval.low
        made[shown] = (reading - shown, low, high)
    rows = sorted(made.items())
    return Correction(
        [shown for shown, _ in rows], [each[0] for _, each in rows], [each[1] for _, each in rows],
        [each[2] for _, each in rows],
    )  # fmt: skip
