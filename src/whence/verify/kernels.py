"""The inner loops of the verifier: plain Python over numpy arrays, compiled by numba for large traces.

There is one source: `compiled()` gives these functions through `numba.njit`, `plain()` as they stand, and
`choose_kernels` decides by the number of events. Every array comes from outside, so memory is the caller's
decision.

Arrays over events are ordered by (node, seq): node i's events are `offsets[i] : offsets[i + 1]`. `message[e]`
is the index of the event's message; messages are ordered by (origin, order of broadcast). `action[e]` says
what the event does to knowledge.

The first five loops have all events of a run in memory. The last two, for the bounded path, have a window of
each node's events and the pasts of messages in flight: node i has events `first[i] : end[i]`, at `at[i]` of
the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whence.trace.schema import Kind

Array = npt.NDArray[Any]

COMPILED_EVENTS = 200_000  # below this, loading numba takes longer than running without it

BROADCAST_KIND, DELIVER_KIND, SPEAK_KIND = int(Kind.BROADCAST), int(Kind.DELIVER), int(Kind.SPEAK)
EXPIRE_KIND, CRASH_KIND, RESTART_KIND = int(Kind.EXPIRE), int(Kind.CRASH), int(Kind.RESTART)

NOTHING = 0  # an expiry, a repeated delivery, a delivery of what was never broadcast
BROADCAST = 1
DELIVERY = 2  # the node's first delivery of a message that was broadcast
UNTIMELY = 3  # such a delivery, but its broadcast comes causally after it: impossible in a real execution


def mark_repeats(
    offsets: Array, delivers: Array, ends: Array, message: Array, total: int, wanted: Array, stamps: Array,
    action: Array, created: Array, repeat: Array, again: Array, ended: Array,
) -> None:  # fmt: skip
    """Tell first deliveries from second ones, and count the wanted messages that ended at each node.

    `delivers[e]`: a delivery; `ends[e]`: a delivery or an expiry. A first delivery of one of the `total`
    messages that were broadcast gets the action DELIVERY, one of another becomes `created`; `again[e]`
    becomes: a second end that is not a second delivery, so that the node contradicts itself. `stamps` has two
    rows over messages, all -1: the last node that delivered the message, and the last one at which it ended.
    (Nodes come one after the other: one stamp per message does what a table of nodes times messages would.)
    """
    for node in range(offsets.shape[0] - 1):
        for event in range(offsets[node], offsets[node + 1]):
            if not ends[event]:
                continue
            which = message[event]
            if delivers[event]:
                if stamps[0, which] == node:
                    repeat[event] = True
                else:
                    if stamps[1, which] == node:
                        again[event] = True
                    if which < total:
                        action[event] = DELIVERY
                    else:
                        created[event] = True
                stamps[0, which] = node
            elif stamps[1, which] == node:
                again[event] = True
            if stamps[1, which] != node and wanted[which]:
                ended[node] += 1
            stamps[1, which] = node


def advance(
    offsets: Array, action: Array, message: Array, message_event: Array, message_node: Array, reached: Array,
    first_waiter: Array, next_waiter: Array, stack: Array, top: int, runs: Array, count: int,
) -> int:  # fmt: skip
    """Advance the nodes on the stack, and all that they wake, until each has finished or waits.

    A node goes on until it delivers a message that its origin has not `reached` yet: then it waits for it
    (`first_waiter` over messages and `next_waiter` over nodes are the lists of those that wait). Only each
    node's own order is trusted. Appends `(node, first event, end event)` to `runs`; returns the new `count`.
    """
    while top > 0:
        top -= 1
        node = stack[top]
        start = reached[node]
        event = start
        while event < offsets[node + 1]:
            if action[event] == BROADCAST:  # the nodes that wait for it go on after this node's turn
                waiter = first_waiter[message[event]]
                first_waiter[message[event]] = -1
                while waiter >= 0:
                    stack[top] = waiter
                    top += 1
                    waiter = next_waiter[waiter]
            elif action[event] == DELIVERY:
                which = message[event]
                origin = message_node[which]
                if message_event[which] >= (event if origin == node else reached[origin]):
                    next_waiter[node] = first_waiter[which]
                    first_waiter[which] = node
                    break
            event += 1
        reached[node] = event
        if event > start:
            runs[count, 0] = node
            runs[count, 1] = start
            runs[count, 2] = event
            count += 1
    return count


def break_circle(
    node: int, action: Array, message: Array, message_node: Array, reached: Array, first_waiter: Array,
    next_waiter: Array,
) -> int:  # fmt: skip
    """All unfinished nodes wait, so they wait in circles: let one delivery of a circle pass as UNTIMELY.

    It is the circle that `node` waits for, and the delivery at its first node: the same one whatever the
    order in which nodes were advanced. Returns that node.
    """
    for _ in range(reached.shape[0]):  # after as many steps we are on the circle
        node = message_node[message[reached[node]]]
    chosen = node
    other = message_node[message[reached[node]]]
    while other != node:
        chosen = min(chosen, other)
        other = message_node[message[reached[other]]]
    which = message[reached[chosen]]
    action[reached[chosen]] = UNTIMELY
    if first_waiter[which] == chosen:
        first_waiter[which] = next_waiter[chosen]
    else:
        waiter = first_waiter[which]
        while next_waiter[waiter] != chosen:
            waiter = next_waiter[waiter]
        next_waiter[waiter] = next_waiter[chosen]
    return chosen


def merge(row: Array, before: Array) -> None:
    """`row` becomes the larger of the two, entry by entry. (`compiled` says this one line as a loop.)"""
    np.maximum(row, before, out=row)


def find_disordered(
    runs: Array, action: Array, message: Array, message_column: Array, message_rank: Array, own_column: Array,
    low: int, high: int, past: Array, known: Array, own_past: Array, disordered: Array,
) -> None:  # fmt: skip
    """Flag every delivery of a message that is in the past of one delivered earlier at the same node.

    A column is an origin; this call looks at columns `low` to `high` only (they are independent). `past[m]`
    becomes the causal past of message m: how many messages of each origin. `known[i]` is what node i's next
    broadcast will have in its past. A node knows its own broadcasts before it delivers them to itself, so
    for those the test needs `own_past[i]`: how many of them are in the past of what i has delivered.
    """
    width = high - low
    for at in range(runs.shape[0]):
        node = runs[at, 0]
        row = known[node]
        own = own_column[node] - low
        for event in range(runs[at, 1], runs[at, 2]):
            if action[event] == BROADCAST:
                which = message[event]
                past[which] = row
                if 0 <= own < width:
                    row[own] = message_rank[which]
            elif action[event] == DELIVERY:
                which = message[event]
                column = message_column[which] - low
                before = past[which]
                if 0 <= column < width:
                    if (own_past[node] if column == own else row[column]) >= message_rank[which]:
                        disordered[event] = True
                    elif row[column] < message_rank[which]:
                        row[column] = message_rank[which]
                if 0 <= own < width and before[own] > own_past[node]:
                    own_past[node] = before[own]
                merge(row, before)


def find_overtaken(
    offsets: Array, action: Array, message: Array, message_column: Array, message_rank: Array, highest: Array,
    overtaken: Array,
) -> None:  # fmt: skip
    """Flag every delivery after a later message of the same origin. `highest` (over columns) is scratch."""
    for node in range(offsets.shape[0] - 1):
        highest[:] = 0
        for event in range(offsets[node], offsets[node + 1]):
            if action[event] == DELIVERY:
                which = message[event]
                column = message_column[which]
                if highest[column] > message_rank[which]:
                    overtaken[event] = True
                else:
                    highest[column] = message_rank[which]


# The loops of the certificate (certificate.py says what they prove)

# Why `count_on` or `follow_pasts` returned.
COUNTED, BROKEN, NEW_ORIGIN, NO_LANE, NO_VECTORS = range(5)
# Entries of its `progress`.
STRETCH, EVENT, ROWS, LOGGED = range(4)
LUCK = 16  # comparisons with joined pasts that may fail before they become rare


def count_on(  # noqa: PLR0912 - one loop on purpose, as below
    node: Array, starts: Array, stops: Array, base: Array, name_column: Array, name_id: Array, kind: Array,
    origin: Array, number: Array, column: Array, own: Array, delivered: Array, most: int, vectors: Array,
    speaker: Array, log: Array, ends: Array, progress: Array,
) -> int:  # fmt: skip
    """Follow nodes alone: numbers without gaps; note the vector of every broadcast, and whose is delivered.

    Stretches of events: stretch s is of `node[s]`, from `starts[s]` to `stops[s]`, its origins are entries
    from `base[s]` of `name_column` (-1: it has none yet) and `name_id`. `column`, `own` (broadcasts so far)
    and `delivered` are over nodes. In the log a stretch ends at `ends[s]`. `progress` is where to go on;
    entries of vectors may be up to `most`.
    """
    rows, logged = progress[ROWS], progress[LOGGED]
    for stretch in range(progress[STRETCH], node.shape[0]):
        me, first = node[stretch], base[stretch]
        here, mine = delivered[me], column[me]
        status = COUNTED
        for event in range(max(progress[EVENT], starts[stretch]), stops[stretch]):
            what, index = kind[event], origin[event]
            if what == DELIVER_KIND:
                at = name_column[first + index] if index >= 0 else -1
                if at < 0:
                    status = NEW_ORIGIN if index >= 0 and name_id[first + index] >= 0 else BROKEN
                elif number[event] != here[at] + 1 or (at == mine and number[event] > own[me]):
                    status = BROKEN
                elif number[event] > most:
                    status = NO_LANE
                else:
                    here[at] += 1
                    log[logged] = at
                    logged += 1
                    continue
            elif what == BROADCAST_KIND:
                if index < 0 or name_id[first + index] != me or number[event] != own[me] + 1:
                    status = BROKEN
                elif mine < 0 or number[event] > most:
                    status = NEW_ORIGIN if mine < 0 else NO_LANE
                else:
                    vectors[rows] = here
                    vectors[rows, mine] = own[me]
                    speaker[rows] = mine
                    rows += 1
                    own[me] += 1
                    continue
            elif what not in (EXPIRE_KIND, CRASH_KIND, RESTART_KIND, SPEAK_KIND):
                continue
            else:
                status = BROKEN
            progress[STRETCH], progress[EVENT] = stretch, event
            break
        progress[ROWS], progress[LOGGED] = rows, logged
        if status != COUNTED:
            return status
        ends[stretch] = logged
    return COUNTED


def find_equal(vectors: Array, table: Array, same: Array) -> None:
    """`same[m]` becomes a row equal to row m, mostly; `table` is scratch, all -1."""
    mask = np.uint64(table.shape[0] - 1)
    for which in range(vectors.shape[0]):
        row = vectors[which]
        place = np.int64(mix(row) & mask)
        other = table[place]
        if other >= 0 and (vectors[other] == row).all():
            same[which] = other
        else:
            same[which] = table[place] = which


def mix(row: Array) -> Any:
    """A hash of some 64-bit words. (`compiled` has another one.)"""
    return np.uint64(hash(row.tobytes()) & 0xFFFFFFFF)


def is_delivered(row: Array, delivered: Array, mask: Any) -> bool:
    """Whether no lane is above that of `delivered`, whose highest bits are set. (Compiled: as a loop.)"""
    return bool(((delivered - row) & mask == mask).all())


def add_up(vectors: Array, past: Array, row_size: Array, size: Array) -> None:
    """`size[m]` becomes the sum of the lanes of m's past; `row_size` (over rows, all -1) is scratch."""
    for message in range(past.shape[0]):
        which = past[message]
        if row_size[which] < 0:
            row_size[which] = vectors[which].sum()
        size[message] = row_size[which]


def join_pasts(vectors: Array, past: Array, order: Array, size: int, joined: Array) -> None:
    """Row b of `joined`, zeros, becomes the largest of `size` pasts, lane by lane: those next in `order`."""
    for at in range(order.shape[0]):
        merge(joined[at // size], vectors[past[order[at]]])


def follow_pasts(
    head: Array, following: Array, begin: Array, end: Array, log: Array, vectors: Array, past: Array,
    joined: Array, block: Array, starts: Array, delivered: Array, lanes: Array, high: int, mask: Any,
    chunk: int, reached: Array, last: Array, passed: Array,
) -> int:  # fmt: skip
    """Whether every delivery comes after all that its message's vector names: COUNTED, or BROKEN.

    Node i's deliveries are the stretches `begin[s] : end[s]` of the log, from `head[i]` on by `following`
    (-1: the last). `delivered` is over nodes and 64-bit words of lanes, `lanes` the same memory lane by lane;
    the highest bit `high` of each lane is set. Nodes advance by `chunk` events in turn, so that the vectors
    that they need stay in the cache. Delivered counts only grow, so nothing is compared twice: neither the
    vector that a node compared last, nor those of a `block` of messages whose `joined` vectors it has all
    delivered (`passed[i]`, all -1, remembers some blocks). Where joined vectors mostly fail they are seldom
    tried. NO_VECTORS: those are needed and not given; the next call goes on.
    """
    busy = True
    slots = passed.shape[1] - 1
    while busy:
        busy = False
        for node in range(head.shape[0]):
            stretch, at = head[node], reached[node]
            here, counts, seen, known = delivered[node], lanes[node], last[node], passed[node]
            left, luck = chunk, LUCK
            while stretch >= 0 and left > 0:
                stop = min(end[stretch], at + left)
                left -= stop - at
                while at < stop:
                    column = log[at]
                    message = starts[column] + counts[column] - high
                    group = block[message]
                    if known[group & slots] != group:
                        which = past[message]
                        if which != seen:
                            holds = False
                            if luck > 0 or at % LUCK == 0:
                                holds = is_delivered(joined[group], here, mask)
                                luck = LUCK if holds else luck - 1
                            if holds:
                                known[group & slots] = group
                            elif vectors.shape[0] == 0:
                                head[node], reached[node], last[node] = stretch, at, seen
                                return NO_VECTORS
                            elif is_delivered(vectors[which], here, mask):
                                seen = which
                            else:
                                return BROKEN
                    counts[column] += 1
                    at += 1
                if at == end[stretch]:
                    stretch = following[stretch]
                    at = begin[stretch] if stretch >= 0 else at
            head[node], reached[node], last[node] = stretch, at, seen
            busy = busy or stretch >= 0
    return COUNTED


# The loops of the bounded path

# Entries of `state`.
TOP, FREE, FOUND = range(3)
STATES = 3
# Why `run_windows` returned.
DONE, NO_ROW, NO_SPACE = range(3)


def mark_part(
    node: int, nodes: int, delivers: Array, ends: Array, message: Array, total: int, to: Array, place: Array,
    row_bits: int, delivered: Array, ended: Array, repeat: Array, again: Array,
) -> None:  # fmt: skip
    """Find second deliveries and second ends among the next events of `node`.

    `delivered` and `ended` have one bit per node and message for every node, then one per message for one
    node; `place[m]` is the message's place among those of its kind. Where nothing expires they are one table.
    """
    for event in range(message.shape[0]):
        which = message[event]
        if not ends[event] or which >= total:
            continue
        cell = (node if to[which] < 0 else nodes) * row_bits + place[which]
        byte, mask = cell >> 3, 1 << (cell & 7)
        if delivers[event]:
            if delivered[byte] & mask:
                repeat[event] = True
            elif ended[byte] & mask:
                again[event] = True
            delivered[byte] |= mask
        elif ended[byte] & mask:
            again[event] = True
        ended[byte] |= mask


def run_windows(  # noqa: PLR0912, PLR0915 - one loop on purpose: calls would cost more than the work
    state: Array, stack: Array, at: Array, first: Array, end: Array, pool_message: Array, pool_action: Array,
    reached: Array, message_event: Array, message_node: Array, message_rank: Array, message_column: Array,
    own_column: Array, low: int, high: int, first_waiter: Array, next_waiter: Array, keep: bool, slot: Array,
    pending: Array, free: Array, past: Array, known: Array, highest: Array, tally: Array,
    own_past: Array, found_event: Array, found_fifo: Array,
) -> int:  # fmt: skip
    """Advance the nodes on the stack, and all that they wake, to their windows' ends or until they wait.

    `advance`, `find_disordered` and `find_overtaken` in one, for columns `low` to `high`. The past of
    a message is in row `slot` of `past` from its broadcast until its last delivery (`pending` counts them
    down); with `keep` it stays, in the row of the message's own number. Findings go to `found_event` and
    `found_fifo`, and are counted in `tally`: by column, out of causal order and out of the origin's own.
    """
    width = high - low
    while state[TOP] > 0:
        state[TOP] -= 1
        node = stack[state[TOP]]
        shift = at[node] - first[node]
        row = known[node]
        own = own_column[node] - low
        event = reached[node]
        status = DONE
        while event < end[node]:
            action = pool_action[event + shift]
            which = pool_message[event + shift]
            if action == BROADCAST:
                if keep:
                    past[which] = row
                elif pending[which] > 0:
                    if state[FREE] == 0:
                        status = NO_ROW
                        break
                    state[FREE] -= 1
                    slot[which] = free[state[FREE]]
                    past[slot[which]] = row
                if 0 <= own < width:
                    row[own] = message_rank[which]
                waiter = first_waiter[which]
                first_waiter[which] = -1
                while waiter >= 0:
                    stack[state[TOP]] = waiter
                    state[TOP] += 1
                    waiter = next_waiter[waiter]
            elif action == DELIVERY:
                origin = message_node[which]
                if message_event[which] >= (event if origin == node else reached[origin]):
                    next_waiter[node] = first_waiter[which]
                    first_waiter[which] = node
                    break
                if state[FOUND] + 2 > found_event.shape[0]:
                    status = NO_SPACE
                    break
                before = past[which if keep else slot[which]]
                column = message_column[which] - low
                if 0 <= column < width:
                    rank = message_rank[which]
                    if highest[node, column] > rank:
                        found_event[state[FOUND]] = event
                        found_fifo[state[FOUND]] = True
                        state[FOUND] += 1
                        tally[1, column] += 1
                    else:
                        highest[node, column] = rank
                    if (own_past[node] if column == own else row[column]) >= rank:
                        found_event[state[FOUND]] = event
                        found_fifo[state[FOUND]] = False
                        state[FOUND] += 1
                        tally[0, column] += 1
                    elif row[column] < rank:
                        row[column] = rank
                if 0 <= own < width and before[own] > own_past[node]:
                    own_past[node] = before[own]
                merge(row, before)
                pending[which] -= 1
                if pending[which] == 0 and not keep:
                    free[state[FREE]] = slot[which]
                    state[FREE] += 1
            elif action == UNTIMELY:
                pending[which] -= 1
                if pending[which] == 0 and slot[which] >= 0 and not keep:
                    free[state[FREE]] = slot[which]
                    state[FREE] += 1
            event += 1
        reached[node] = event
        if status != DONE:
            stack[state[TOP]] = node
            state[TOP] += 1
            return status
    return DONE


class Kernels(NamedTuple):
    """The loops, compiled or not."""

    mark_repeats: Callable[..., None]
    advance: Callable[..., int]
    break_circle: Callable[..., int]
    find_disordered: Callable[..., None]
    find_overtaken: Callable[..., None]
    mark_part: Callable[..., None]
    run_windows: Callable[..., int]
    count_on: Callable[..., int]
    find_equal: Callable[..., None]
    add_up: Callable[..., None]
    join_pasts: Callable[..., None]
    follow_pasts: Callable[..., int]

    @property
    def are_compiled(self) -> bool:
        """Whether these are not the plain ones."""
        return self.advance is not advance


def plain() -> Kernels:
    """The loops as they stand: no start-up cost."""
    return Kernels(
        mark_repeats, advance, break_circle, find_disordered, find_overtaken, mark_part, run_windows,
        count_on, find_equal, add_up, join_pasts, follow_pasts,
    )  # fmt: skip


@cache
def compiled() -> Kernels | None:
    """The loops through numba, kept on disk between processes; None where numba is not installed."""
    try:
        from numba.extending import overload
    except ImportError:
        return None

    def merge_compiled(row: Array, before: Array) -> Callable[[Array, Array], None]:
        def loop(row: Array, before: Array) -> None:  # numba knows no `out=`, but makes this SIMD
            for column in range(row.shape[0]):
                row[column] = max(row[column], before[column])

        return loop

    def is_delivered_compiled(row: Array, delivered: Array, mask: Any) -> Callable[..., bool]:
        def loop(row: Array, delivered: Array, mask: Any) -> bool:  # without an early end it is SIMD, too
            holds = mask
            for word in range(row.shape[0]):
                holds &= delivered[word] - row[word]
            return bool(holds & mask == mask)

        return loop

    def mix_compiled(row: Array) -> Callable[[Array], Any]:
        def loop(row: Array) -> Any:
            key = np.uint64(0)
            for word in range(row.shape[0]):
                key += row[word] * np.uint64(2 * word + 1)
            return key ^ (key >> np.uint64(17)) ^ (key >> np.uint64(31))

        return loop

    overload(mix)(mix_compiled)
    overload(merge)(merge_compiled)
    overload(is_delivered)(is_delivered_compiled)
    return Kernels(*map(_through_numba, plain()))


def _through_numba(function: Callable[..., Any]) -> Callable[..., Any]:
    """A loop compiled, and kept on disk between processes where numba finds a folder for it."""
    from numba import njit

    kept: Callable[..., Any] = njit(cache=True)
    fresh: Callable[..., Any] = njit()
    try:
        made: Callable[..., Any] = kept(function)
    except RuntimeError:  # numba finds no folder that it may write to: compile anew in every process
        made = fresh(function)
    return made


def choose_kernels(events: int) -> Kernels:
    """The compiled loops where they are loaded already or will pay for being loaded, else the plain ones."""
    wanted = events >= COMPILED_EVENTS or compiled.cache_info().currsize > 0
    return (compiled() if wanted else None) or plain()
