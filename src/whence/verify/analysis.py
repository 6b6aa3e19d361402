"""Rebuilds happened-before and tests every delivery against it: the exact algorithm, driven over the kernels.

docs/verification.md has the argument. In short: broadcasts of one origin are totally ordered, so the causal
past of a message is a vector with one count per origin; a delivery comes too late if its message is in the
past of a message that the node delivered earlier.

`analyse` flags what is wrong in a run; `findings` spells out the first few flags of each kind, with their
witnesses; `disagreements` judges runs in which nodes join and leave: completeness cannot be demanded there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from whence.trace.reader import Trace, open_trace
from whence.trace.schema import Kind
from whence.verify.kernels import DELIVERY, UNTIMELY, Array, Kernels, choose_kernels
from whence.verify.load import RunEvents, places_of
from whence.verify.messages import Messages, PlacedEvents, place
from whence.verify.report import KINDS, Counts, Finding
from whence.verify.witness import Access, MemoryAccess, Overtaken, Search

JOINED = "joined"  # the SAMPLE of a node that has joined
PAST_BYTES = 4 << 30  # causal pasts in memory at a time; more of them are done in blocks of columns


class ListedProblems(NamedTuple):
    """The first findings of each kind in the order of a report, as events of the run."""

    fifo: list[int]
    duplicate: list[int]
    late: list[tuple[int, int, int, int]]  # with the times of delivery and broadcast, and the lifetime
    created: list[int]
    untimely: list[int]
    again: list[int]  # a second end that is not a second delivery
    malformed: list[tuple[int, str]]


class Analysis(NamedTuple):
    """The faults of a run; docs/verification.md defines each kind. The same by every path."""

    access: Access
    search: Search
    nodes: int
    events: int
    broadcasts: int
    deliveries: int
    expiries: int
    counts: Counts
    missing: Array  # per node: how many wanted messages it neither delivered nor expired
    wanted: Array  # per message: every surviving node that it is for must deliver it
    ended_at: Callable[[int], Array]  # per message: it ended at this node
    listed: ListedProblems
    overtakings: dict[int, Overtaken]  # the first deliveries out of order, explained


class Block(NamedTuple):
    """A share of the columns: the `number`-th of `of` equal ones, from 0."""

    number: int
    of: int

    def bounds(self, columns: int) -> tuple[int, int]:
        """The columns of this share, of `columns`; the first share is never empty while there are any."""
        return -(-self.number * columns // self.of), -(-(self.number + 1) * columns // self.of)


WHOLE = Block(0, 1)


class Prepared(NamedTuple):
    """A run with its events placed: what does not depend on the columns that are judged."""

    events: RunEvents
    placed: PlacedEvents
    runs: Array  # see `_schedule`
    wanted: Array
    survives: Array
    created: Array
    repeat: Array
    again: Array
    ended: Array


def prepare(events: RunEvents) -> Prepared:
    """Place the events of a run, and put them into an order in which they can be judged."""
    kernels = choose_kernels(len(events.kind))
    placed = place(events)
    wanted, survives = _wanted(events, placed)
    marked = _mark_repeats(kernels, events, placed, wanted)
    runs = _schedule(kernels, events.offsets, placed)
    return Prepared(events, placed, runs, wanted, survives, *marked)


def analyse(
    events: RunEvents, witness_max: int | None, clock_slack_us: int = 0, block: Block = WHOLE
) -> Analysis:
    """Verify one run; `witness_max` deliveries out of order (None: all) are explained.

    Causal order is judged for the columns of `block` alone; columns are independent of each other.
    """
    return judge(prepare(events), witness_max, clock_slack_us, block)


def judge(
    prepared: Prepared, witness_max: int | None, clock_slack_us: int = 0, block: Block = WHOLE
) -> Analysis:
    """Verify one run that has been prepared, as `analyse` does."""
    events, placed, runs, wanted, survives, created, repeat, again, ended = prepared
    kernels = choose_kernels(len(events.kind))
    access = MemoryAccess(events, placed)
    search = Search(access)
    bounds = block.bounds(placed.messages.columns)
    causal, overtakings = _find_disordered(kernels, events, placed, runs, search, witness_max, bounds)
    overtaken = _find_overtaken(kernels, events, placed, bounds)
    untimely = places_of(placed.action, UNTIMELY)
    overdue = _find_overdue(events, placed, clock_slack_us)
    missing = np.where(survives, wanted_at(placed.messages, wanted, len(survives)) - ended, 0)

    def ended_at(node: int) -> Array:
        there = np.zeros(placed.message_limit, dtype=bool)
        here = slice(int(events.offsets[node]), int(events.offsets[node + 1]))
        there[placed.message[here][placed.ends[here]]] = True
        return there[: placed.messages.total]

    def some(flags: Array) -> list[int]:
        found: list[int] = np.flatnonzero(flags)[:witness_max].tolist()
        return found

    return Analysis(
        access=access,
        search=search,
        nodes=int(events.is_node.sum()),
        events=events.total,
        broadcasts=len(places_of(events.kind, Kind.BROADCAST)),
        deliveries=_count(events.kind == Kind.DELIVER),
        expiries=len(places_of(events.kind, Kind.EXPIRE)),
        counts=Counts(
            causal=causal,
            fifo=_count(overtaken),
            duplicate=_count(repeat),
            late=len(overdue),
            created=_count(created),
            missing=int(missing.sum()),
            malformed=len(placed.malformed) + len(untimely) + _count(again),
        ),
        missing=missing,
        wanted=wanted,
        ended_at=ended_at,
        listed=ListedProblems(
            fifo=some(overtaken),
            duplicate=some(repeat),
            late=[_timed(events, placed, event) for event in overdue[:witness_max].tolist()],
            created=some(created),
            untimely=untimely[:witness_max].tolist(),
            again=some(again),
            malformed=placed.malformed[:witness_max],
        ),
        overtakings=overtakings,
    )


def _count(flags: Array) -> int:
    return int(np.count_nonzero(flags))  # several times as fast as their sum


def survivors(events: RunEvents) -> Array:
    """Per name: it is a member that has not crashed permanently."""
    survives = events.is_node.copy()
    # In the order of each node: the last one decides.
    for event in places_of(events.kind, Kind.CRASH, Kind.RESTART):
        node = int(events.node_of(event))
        survives[node] = events.kind[event] == Kind.RESTART
    return survives


def _wanted(events: RunEvents, placed: PlacedEvents) -> tuple[Array, Array]:
    """Flag the messages that must reach every survivor, and the nodes that survive.

    A message that one survivor broadcast or delivered must reach them all.
    """
    survives = survivors(events)
    wanted = survives[placed.messages.node]
    if not wanted.all():
        delivered = placed.delivers & np.repeat(survives, np.diff(events.offsets))
        reached = np.zeros(placed.message_limit, dtype=bool)
        reached[placed.message[delivered]] = True
        wanted |= reached[: placed.messages.total]
    return wanted, survives


def wanted_at(messages: Messages, wanted: Array, nodes: int) -> Array:
    """How many messages must come to an end at each node: those for every node, and those for it alone."""
    to = messages.to[wanted]
    return np.bincount(to[to >= 0], minlength=nodes) + int((to < 0).sum())


def _mark_repeats(
    kernels: Kernels, events: RunEvents, placed: PlacedEvents, wanted: Array
) -> tuple[Array, Array, Array, Array]:
    """Flag deliveries of messages that no node broadcast, repeated ones and other second ends.

    Counts how many messages ended at each node, and gives all first deliveries their action.
    """
    limit = placed.message_limit
    padded = np.zeros(limit, dtype=bool)
    padded[: len(wanted)] = wanted
    created, repeat, again = (np.zeros(len(events.kind), dtype=bool) for _ in range(3))
    ended = np.zeros(len(events.names), dtype=np.int64)
    stamps = np.full((2, limit), -1, dtype=np.int32)
    kernels.mark_repeats(
        events.offsets, placed.delivers, placed.ends, placed.message, placed.messages.total, padded, stamps,
        placed.action, created, repeat, again, ended,
    )  # fmt: skip
    return created, repeat, again, ended


def _schedule(kernels: Kernels, offsets: Array, placed: PlacedEvents) -> Array:
    """Runs of events (node, first, end) in an order in which every broadcast precedes its deliveries."""
    messages, nodes = placed.messages, len(offsets) - 1
    reached = offsets[:-1].copy()
    first_waiter = np.full(messages.total, -1, dtype=np.int32)
    next_waiter = np.full(nodes, -1, dtype=np.int32)
    stack = np.arange(nodes - 1, -1, -1, dtype=np.int32)
    runs = np.empty((len(placed.action), 3), dtype=np.int64)  # touched only as far as it is used
    top, count, unfinished = nodes, 0, 0
    while True:
        count = kernels.advance(
            offsets, placed.action, placed.message, messages.event, messages.node, reached, first_waiter,
            next_waiter, stack, top, runs, count,
        )  # fmt: skip
        while unfinished < nodes and reached[unfinished] == offsets[unfinished + 1]:
            unfinished += 1
        if unfinished == nodes:
            return runs[:count].copy()
        stack[0] = kernels.break_circle(
            unfinished, placed.action, placed.message, messages.node, reached, first_waiter, next_waiter
        )
        top = 1


def _find_disordered(
    kernels: Kernels,
    events: RunEvents,
    placed: PlacedEvents,
    runs: Array,
    search: Search,
    witness_max: int | None,
    bounds: tuple[int, int],
) -> tuple[int, dict[int, Overtaken]]:
    """Count deliveries out of order in some columns, block by block, and explain the first of each block."""
    messages = placed.messages
    disordered = np.zeros(len(events.kind), dtype=bool)
    overtakings: dict[int, Overtaken] = {}
    dtype = rank_type(messages)
    row_bytes = max(1, messages.total * dtype.itemsize)
    width = max(1, min(PAST_BYTES // row_bytes, bounds[1] - bounds[0]))
    rank = messages.rank.astype(dtype)
    for low in range(*bounds, width):
        high = min(low + width, bounds[1])
        past = np.zeros((messages.total, high - low), dtype=dtype)
        known = np.zeros((len(events.names), high - low), dtype=dtype)
        own_past = np.zeros(len(events.names), dtype=dtype)
        kernels.find_disordered(
            runs, placed.action, placed.message, messages.column, rank, messages.column_of_node, low, high,
            past, known, own_past, disordered,
        )  # fmt: skip
        flagged = np.flatnonzero(disordered)
        column = messages.column[placed.message[flagged]]
        for event in flagged[(column >= low) & (column < high)][:witness_max].tolist():
            seen = past[:, messages.column[placed.message[event]] - low]
            overtakings[event] = search.causal(event, seen)
    return _count(disordered), overtakings


def rank_type(messages: Messages) -> np.dtype[Any]:
    """Vectors have 16 bits an entry while no origin has too many messages for that."""
    small = int(messages.rank.max(initial=0)) < np.iinfo(np.int16).max
    return np.dtype(np.int16 if small else np.int32)


def _find_overtaken(
    kernels: Kernels, events: RunEvents, placed: PlacedEvents, bounds: tuple[int, int]
) -> Array:
    """Flag deliveries after a later message of the same origin, for the origins of some columns."""
    messages = placed.messages
    overtaken = np.zeros(len(events.kind), dtype=bool)
    highest = np.zeros(messages.columns, dtype=np.int32)
    kernels.find_overtaken(
        events.offsets, placed.action, placed.message, messages.column, messages.rank, highest, overtaken
    )
    if bounds != (0, messages.columns):
        at = np.flatnonzero(overtaken)
        column = messages.column[placed.message[at]]
        overtaken[at[(column < bounds[0]) | (column >= bounds[1])]] = False
    return overtaken


def _find_overdue(events: RunEvents, placed: PlacedEvents, clock_slack_us: int) -> Array:
    """The first deliveries after the message's lifetime; none if the times were not loaded."""
    if events.timing is None:
        return np.empty(0, dtype=np.int64)
    time_us, lifetime_us = events.timing
    at = np.flatnonzero((placed.action == DELIVERY) | (placed.action == UNTIMELY))
    begun = placed.messages.event[placed.message[at]]
    return at[is_overdue(time_us[at] - time_us[begun], lifetime_us[begun], clock_slack_us)]


def is_overdue(age_us: Array, lifetime_us: Array, clock_slack_us: int) -> Array:
    """Flag the ages that are beyond their lifetimes."""
    # The slack is taken off the age: a lifetime may be as long as a 64-bit integer allows.
    late: Array = (lifetime_us >= 0) & (age_us - clock_slack_us > lifetime_us)
    return late


def _timed(events: RunEvents, placed: PlacedEvents, event: int) -> tuple[int, int, int, int]:
    assert events.timing is not None
    begun = placed.messages.event[placed.message[event]]
    time_us, lifetime_us = events.timing
    return event, int(time_us[event]), int(time_us[begun]), int(lifetime_us[begun])


# Findings, ordered by kind, node and `seq`

UNTIMELY_DETAIL = "delivered before it was broadcast: its broadcast depends on this very delivery"


def missing_by_node(analysis: Analysis) -> dict[str, int]:
    """How many messages each node misses, for those that miss any."""
    names = analysis.access.names
    return {names[node]: int(analysis.missing[node]) for node in np.flatnonzero(analysis.missing)}


def findings(analysis: Analysis, witness_max: int | None) -> list[Finding]:
    """At most `witness_max` findings (None: all) of each kind."""
    spell_out = {
        "causal": _causal,
        "fifo": _fifo,
        "duplicate": _duplicate,
        "late": _late,
        "created": _created,
        "missing": _missing,
        "malformed": _malformed,
    }
    return [finding for kind in KINDS for finding in islice(spell_out[kind](analysis), witness_max)]


def causal(analysis: Analysis, event: int) -> Finding:
    """One delivery out of order, with its witness."""
    found = analysis.overtakings[event]
    return _finding(
        analysis,
        "causal",
        event,
        other_event=found.other_event,
        chain=found.chain,
        detail="delivered after a message that depends on it",
    )


def _causal(analysis: Analysis) -> Iterator[Finding]:
    for event in sorted(analysis.overtakings):
        yield causal(analysis, event)


def _fifo(analysis: Analysis) -> Iterator[Finding]:
    for event in analysis.listed.fifo:
        found = analysis.search.fifo(event)
        yield _finding(
            analysis,
            "fifo",
            event,
            other_event=found.other_event,
            chain=found.chain,
            detail="delivered after a later message of the same origin",
        )


def _duplicate(analysis: Analysis) -> Iterator[Finding]:
    for event in analysis.listed.duplicate:
        _, part, _ = analysis.search.look_up(event)
        seq = _seq_before(analysis, event, part.delivers)
        yield _finding(analysis, "duplicate", event, detail=f"delivered before, at seq {seq}")


def _late(analysis: Analysis) -> Iterator[Finding]:
    for event, delivered_us, broadcast_us, lifetime_us in analysis.listed.late:
        _, part, at = analysis.search.look_up(event)
        begun = int(analysis.access.messages.event[part.message[at]])
        age_us = delivered_us - broadcast_us
        yield _finding(
            analysis,
            "late",
            event,
            chain=[analysis.search.step(begun), analysis.search.step(event)],
            broadcast_us=broadcast_us,
            delivered_us=delivered_us,
            detail=f"delivered {age_us} us after its broadcast, with a lifetime of {lifetime_us} us",
        )


def _created(analysis: Analysis) -> Iterator[Finding]:
    for event in analysis.listed.created:
        yield _finding(analysis, "created", event, detail="delivered, but never broadcast by its origin")


def _missing(analysis: Analysis) -> Iterator[Finding]:
    names, messages = analysis.access.names, analysis.access.messages
    for node in np.flatnonzero(analysis.missing).tolist():
        is_for = (messages.to < 0) | (messages.to == node)
        for which in np.flatnonzero(analysis.wanted & is_for & ~analysis.ended_at(node)).tolist():
            _, part, at = analysis.search.look_up(int(messages.event[which]))
            yield Finding(
                kind="missing",
                node=names[node],
                message=f"{names[messages.node[which]]}:{messages.number[which]}",
                detail=f"neither delivered nor expired; broadcast at seq {part.seq_at(at)}",
            )


def _malformed(analysis: Analysis) -> Iterator[Finding]:
    odd = [(event, UNTIMELY_DETAIL) for event in analysis.listed.untimely]
    for event in analysis.listed.again:
        _, part, at = analysis.search.look_up(event)
        seq = _seq_before(analysis, event, part.ends)
        what = "delivered" if part.delivers[at] else "expired"
        odd.append((event, f"{what}, although it had ended here before, at seq {seq}"))
    for event, detail in sorted(analysis.listed.malformed + odd):
        yield _finding(analysis, "malformed", event, detail=detail)


def _seq_before(analysis: Analysis, event: int, which: Any) -> int:
    """The `seq` of the node's first event among `which` that speaks of the same message."""
    _, part, at = analysis.search.look_up(event)
    before = which[:at] & (part.message[:at] == part.message[at])
    return part.seq_at(int(np.argmax(before)))


def _finding(
    analysis: Analysis, kind: str, event: int, *, detail: str, other_event: int | None = None, **more: Any
) -> Finding:
    search = analysis.search
    node, part, at = search.look_up(event)
    other_seq = None
    if other_event is not None:
        other_seq = part.seq_at(other_event - part.first)
    return Finding(
        kind=kind,
        node=analysis.access.names[node],
        message=search.name_of(event),
        seq=part.seq_at(at),
        other=None if other_event is None else search.name_of(other_event),
        other_seq=other_seq,
        detail=detail,
        **more,
    )


# Agreement where nodes join and leave


def disagreements(trace: Trace | Path | str, survivors: Iterable[str], run: str | None = None) -> list[str]:
    """The differences between the survivors of a run, in words; empty if they agree.

    Where nodes join and leave, no node knows the members, and a trace promises no completeness. What can be
    demanded of the nodes that were still there when the traffic had stopped:

    1. each has of every origin an unbroken row of messages, in order: from where it joined, without holes;
    2. all rows of one origin end with the same message;
    3. a node without any message of an origin had not joined (SAMPLE "joined") when the last of them was
       broadcast.

    The clocks that rule 3 compares are those of one machine, or must agree as well as the joins are apart.
    """
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
