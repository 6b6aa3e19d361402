"""Rebuilds happened-before and tests every delivery against it: the exact algorithm, driven over the kernels.

docs/verification.md has the argument. In short: broadcasts of one origin are totally ordered, so the causal
past of a message is a vector with one count per origin; a delivery comes too late if its message is in the
past of a message that the node delivered earlier.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whence.trace.schema import Kind
from whence.verify import kernel
from whence.verify.kernel import DELIVERY, UNTIMELY, Kernels
from whence.verify.load import Events
from whence.verify.messages import Messages, Placed, place
from whence.verify.witness import Overtaken, Search

Array = npt.NDArray[Any]

COMPILED_EVENTS = 200_000  # below this, loading numba takes longer than running without it
PAST_BYTES = 4 << 30  # causal pasts in memory at a time; more of them are done in blocks of columns


class Analysis(NamedTuple):
    """What is wrong in a run. Arrays over events are flags; docs/verification.md defines each."""

    events: Events
    placed: Placed
    search: Search
    disordered: Array
    overtaken: Array
    repeat: Array
    created: Array
    untimely: Array
    again: Array
    overdue: Array
    missing: Array  # per node: how many wanted messages it neither delivered nor expired
    wanted: Array  # per message: every surviving node that it is for must deliver it
    overtakings: dict[int, Overtaken]  # the first deliveries out of order, explained


def analyse(events: Events, witness_max: int | None, clock_slack_us: int = 0) -> Analysis:
    """Verify one run; `witness_max` deliveries out of order (None: all) are explained."""
    kernels = choose_kernels(len(events.kind))
    placed = place(events)
    created = placed.delivers & (placed.message >= placed.messages.total)
    wanted, survives = _wanted(events, placed)
    repeat, again, ended = _mark_repeats(kernels, events, placed, wanted)
    first = placed.delivers & ~created & ~repeat
    placed.action[first] = DELIVERY
    runs = _schedule(kernels, events.offsets, placed)
    search = Search(events, placed.messages, placed.message, placed.action)
    disordered, overtakings = _find_disordered(kernels, events, placed, runs, search, witness_max)
    return Analysis(
        events=events,
        placed=placed,
        search=search,
        disordered=disordered,
        overtaken=_find_overtaken(kernels, events, placed),
        repeat=repeat,
        created=created & ~repeat,
        untimely=placed.action == UNTIMELY,
        again=again,
        overdue=_find_overdue(events, placed, first, clock_slack_us),
        missing=np.where(survives, _wanted_at(placed.messages, wanted, len(survives)) - ended, 0),
        wanted=wanted,
        overtakings=overtakings,
    )


def choose_kernels(events: int) -> Kernels:
    """The compiled loops where they are loaded already or will pay for being loaded, else the plain ones."""
    wanted = events >= COMPILED_EVENTS or kernel.compiled.cache_info().currsize > 0
    return (kernel.compiled() if wanted else None) or kernel.plain()


def _wanted(events: Events, placed: Placed) -> tuple[Array, Array]:
    """Which messages must reach every survivor, and who survives.

    A survivor is a member that has not crashed for good. What one survivor broadcast or delivered must
    reach them all.
    """
    survives = events.is_node.copy()
    turning = np.flatnonzero((events.kind == Kind.CRASH) | (events.kind == Kind.RESTART))
    for event in turning:  # in the order of each node: the last one decides
        node = int(events.node_of(event))
        survives[node] = events.kind[event] == Kind.RESTART
    wanted = survives[placed.messages.node]
    delivered = placed.delivers
    if not survives.all():
        delivered = delivered & np.repeat(survives, np.diff(events.offsets))
    reached = np.zeros(placed.message_limit, dtype=bool)
    reached[placed.message[delivered]] = True
    return wanted | reached[: placed.messages.total], survives


def _wanted_at(messages: Messages, wanted: Array, nodes: int) -> Array:
    """How many messages must come to an end at each node: those for everybody, and those for it alone."""
    to = messages.to[wanted]
    return np.bincount(to[to >= 0], minlength=nodes) + int((to < 0).sum())


def _mark_repeats(
    kernels: Kernels, events: Events, placed: Placed, wanted: Array
) -> tuple[Array, Array, Array]:
    limit = placed.message_limit
    padded = np.zeros(limit, dtype=bool)
    padded[: len(wanted)] = wanted
    repeat = np.zeros(len(events.kind), dtype=bool)
    again = np.zeros(len(events.kind), dtype=bool)
    ended = np.zeros(len(events.names), dtype=np.int64)
    stamps = np.full((2, limit), -1, dtype=np.int32)
    kernels.mark_repeats(
        events.offsets, placed.delivers, placed.ends, placed.message, padded, stamps, repeat, again, ended
    )
    return repeat, again, ended


def _schedule(kernels: Kernels, offsets: Array, placed: Placed) -> Array:
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
    events: Events,
    placed: Placed,
    runs: Array,
    search: Search,
    witness_max: int | None,
) -> tuple[Array, dict[int, Overtaken]]:
    """Flag deliveries out of order, block by block of columns, and explain the first of each block."""
    messages = placed.messages
    disordered = np.zeros(len(events.kind), dtype=bool)
    overtakings: dict[int, Overtaken] = {}
    dtype = np.int16 if int(messages.rank.max(initial=0)) < np.iinfo(np.int16).max else np.int32
    row_bytes = max(1, messages.total * np.dtype(dtype).itemsize)
    width = min(max(1, PAST_BYTES // row_bytes), messages.columns)
    rank = messages.rank.astype(dtype)
    for low in range(0, messages.columns, max(1, width)):
        high = min(low + width, messages.columns)
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
            node = int(events.node_of(event))
            seen = past[:, messages.column[placed.message[event]] - low]
            overtakings[event] = search.causal(event, node, seen)
    return disordered, overtakings


def _find_overtaken(kernels: Kernels, events: Events, placed: Placed) -> Array:
    messages = placed.messages
    overtaken = np.zeros(len(events.kind), dtype=bool)
    highest = np.zeros(messages.columns, dtype=np.int32)
    kernels.find_overtaken(
        events.offsets, placed.action, placed.message, messages.column, messages.rank, highest, overtaken
    )
    return overtaken


def _find_overdue(events: Events, placed: Placed, first: Array, clock_slack_us: int) -> Array:
    """Flag first deliveries after the message's lifetime; none if the times were not loaded."""
    overdue = np.zeros(len(events.kind), dtype=bool)
    if events.timing is None:
        return overdue
    time_us, lifetime_us = events.timing
    at = np.flatnonzero(first)
    begun = placed.messages.event[placed.message[at]]
    age_us = time_us[at] - time_us[begun]
    # The slack is taken off the age: a lifetime may be as long as a 64-bit integer allows.
    overdue[at] = (lifetime_us[begun] >= 0) & (age_us - clock_slack_us > lifetime_us[begun])
    return overdue
