"""Scenes for tests of the viewer: many events, made by numpy in an instant."""

from __future__ import annotations

import random

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


def random_scene(seed: int, *, circles: bool = False) -> Scene:
    """A few lanes of anything: odd names, clocks that go back, edges of all kinds, nothing at all."""
    draw = random.Random(seed)
    lanes = draw.randint(1, 6)
    lane_proc = sorted(draw.randrange(lanes) for _ in range(lanes))
    lane_proc = [sorted(set(lane_proc)).index(each) for each in lane_proc]
    sizes = [draw.choice([0, 1, draw.randint(2, 14)]) for _ in range(lanes)]
    total = sum(sizes)
    msgs = draw.sample(
        ["a:1", "a:2", "a:10", "b:0", "07", "x", "x7", "orders/0@123456789012345", "é:1", "</script>"], 6
    )
    kind = [
        draw.choice([Kind.BROADCAST, Kind.DELIVER, Kind.DELIVER, Kind.RECEIVE, Kind.SEND, Kind.TIMER])
        for _ in range(total)
    ]
    msg = [draw.choice([-1, *range(6)]) if each is not Kind.TIMER else -1 for each in kind]
    begin = [
        next((e for e in range(total) if msg[e] == m and kind[e] is Kind.BROADCAST), -1) for m in range(6)
    ]
    begin = [each if draw.random() < 0.9 else -1 for each in begin]
    clock = [draw.randrange(total or 1) for _ in range(total)]
    if not circles:
        # Edges go up in a secret order that the lanes keep, and messages begin before they are delivered.
        at = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        for lane in range(lanes):
            clock[at[lane] : at[lane + 1]] = sorted(draw.random() for _ in range(sizes[lane]))
        msg = [
            m if m < 0 or kind[e] is not Kind.DELIVER or begin[m] < 0 or clock[begin[m]] < clock[e] else -1
            for e, m in enumerate(msg)
        ]
    pairs = (
        {(draw.randrange(total), draw.randrange(total)) for _ in range(draw.randint(0, 12))}
        if total
        else set()
    )
    edges = sorted(
        (one, two) if circles or clock[one] < clock[two] else (two, one) for one, two in pairs if one != two
    )
    edges = [each for each in edges if circles or clock[each[0]] < clock[each[1]]]
    columns = np.array(edges, dtype=np.int64).reshape(-1, 2)
    time = np.cumsum([draw.randint(-20, 90) for _ in range(total)]) + draw.choice([0, 10**15])
    return Scene(
        title=f"random {seed} <b>",
        verdict="not judged",
        tone="none",
        about={"of": "nothing"},
        procs=[f"p{each}" for each in range(lane_proc[-1] + 1)],
        lanes=[f"lane {each}" for each in range(lanes)],
        lane_proc=lane_proc,
        starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        kinds=TRACE_KINDS,
        kind=np.array(kind, dtype=np.int64),
        time=None if draw.random() < 0.2 else time.astype(np.int64),
        unit_ns=1000,
        msgs=msgs,
        msg=np.array(msg, dtype=np.int64),
        begin=np.array(begin, dtype=np.int64),
        details=["one", "<i>two"],
        detail=np.array([draw.choice([-1, 0, 1]) for _ in range(total)], dtype=np.int64),
        edge_from=columns[:, 0],
        edge_to=columns[:, 1],
        edge_source=np.array([draw.randrange(2) for _ in edges], dtype=np.int64),
    )
