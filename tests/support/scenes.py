"""Scenes for tests of the viewer: many events, made by numpy in an instant."""

from __future__ import annotations

import numpy as np

from whence.trace.schema import Kind
from whence.view.scene import Scene
from whence.view.traces import TRACE_KINDS


def large_scene(events: int, procs: int, seed: int = 1) -> Scene:
    """Every process broadcasts in turn; every message reaches every process after a delay of its own."""
    draw = np.random.default_rng(seed)
    messages = events // (procs + 1)
    origin = draw.integers(0, procs, messages)
    sent = np.cumsum(draw.integers(200, 1800, messages))
    number = np.zeros(messages, dtype=np.int64)
    for proc in range(procs):
        here = np.flatnonzero(origin == proc)
        number[here] = np.arange(1, len(here) + 1)
    delay = 300 + draw.exponential(4000, (messages, procs)).astype(np.int64)
    delay[np.arange(messages), origin] = 0
    came = sent[:, None] + delay
    lane = np.concatenate([origin, np.tile(np.arange(procs), messages)])
    time = np.concatenate([sent, came.reshape(-1)])
    kind = np.concatenate([np.full(messages, Kind.BROADCAST), np.full(messages * procs, Kind.DELIVER)])
    msg = np.concatenate([np.arange(messages), np.repeat(np.arange(messages), procs)])
    order = np.lexsort((kind, msg, time, lane))
    lane, time, kind, msg = lane[order], time[order], kind[order], msg[order]
    begin = np.full(messages, -1, dtype=np.int64)
    begins = np.flatnonzero(kind == Kind.BROADCAST)
    begin[msg[begins]] = begins
    none = np.zeros(0, dtype=np.int64)
    names = [f"p{each:02d}" for each in range(procs)]
    return Scene(
        title=f"{len(kind):,} events",
        verdict="not judged",
        tone="none",
        about={},
        procs=names,
        lanes=names,
        lane_proc=list(range(procs)),
        starts=np.concatenate([[0], np.cumsum(np.bincount(lane, minlength=procs))]),
        kinds=TRACE_KINDS,
        kind=kind,
        time=time,
        unit_ns=1000,
        msgs=[f"{names[one]}:{two}" for one, two in zip(origin.tolist(), number.tolist(), strict=True)],
        msg=msg,
        begin=begin,
        details=[],
        detail=np.full(len(kind), -1, dtype=np.int64),
        edge_from=none,
        edge_to=none,
        edge_source=none,
    )
