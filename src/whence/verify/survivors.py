"""Agreement where members come and go: what those who stayed to the end must have in common.

No process knows who takes part, so "everybody delivers everything" cannot be demanded of such a run
(its traces promise no completeness). What can be demanded of processes that were still there when the traffic
had stopped:

1. each has of every origin an unbroken row of messages, in order: from where it came in, without holes;
2. all rows of one origin end with the same message;
3. who has no message of an origin had not joined (SAMPLE "joined") when the last of them was broadcast.

The clocks that rule 3 compares are those of one machine, or must agree as well as the joins are apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from whence.trace.reader import Trace, open_trace
from whence.trace.schema import Kind

JOINED = "joined"


def disagreements(trace: Trace | Path | str, survivors: Iterable[str], run: str | None = None) -> list[str]:
    """What the survivors of a run do not have in common, in words; empty if they agree."""
    opened = trace if isinstance(trace, Trace) else open_trace(trace)
    names = sorted(set(survivors))
    rows: dict[str, dict[str, list[int]]] = {name: {} for name in names}  # survivor -> origin -> numbers
    joined_us: dict[str, int] = {}
    broadcast_us: dict[tuple[str, int], int] = {}
    for event in opened.events(run):
        if event.kind == Kind.BROADCAST and event.origin is not None:
            broadcast_us[event.origin, event.number] = event.time_us
        elif event.kind == Kind.DELIVER and event.node in rows and event.origin is not None:
            rows[event.node].setdefault(event.origin, []).append(event.number)
        elif event.kind == Kind.SAMPLE and event.detail == JOINED:
            joined_us[event.node] = event.time_us
    found = [
        f"{name} has messages of {origin} out of order or with holes"
        for name in names
        for origin, numbers in sorted(rows[name].items())
        if numbers != list(range(numbers[0], numbers[0] + len(numbers)))
    ]
    for origin in sorted({origin for each in rows.values() for origin in each}):
        last = max(each[origin][-1] for each in rows.values() if origin in each)
        sent_us = broadcast_us.get((origin, last), 0)
        for name in names:
            numbers = rows[name].get(origin)
            if numbers is None and joined_us.get(name, 0) <= sent_us:
                found.append(f"{name} has no message of {origin}, and was there for number {last}")
            elif numbers is not None and numbers[-1] != last:
                found.append(f"{name} has messages of {origin} up to {numbers[-1]}, others up to {last}")
    return found
