"""The arrays that the kernel of `oppnet` works on, and the names of their columns.

N nodes, M messages, C contacts. Nodes, messages and contacts are named by their place; messages are in the
order in which they are broadcast. "None" is -1 and "never" NEVER_US. A *record* is a message at a node: its
own, or one that it has received. Direction 2 x contact is from the contact's lower node to the higher one,
2 x contact + 1 back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whence.core.rng import below, purpose, stream
from whence.kernels.compile import Array, inlined, inner
from whence.kernels.rng import bits
from whence.overlay.contacts import ContactPlan
from whence.protocols.barrier.carry import ORDER, SETUP
from whence.protocols.barrier.order import LATE_US as DEFAULT_LATE_US

NEVER_US = 1 << 62

# settings: what the run is given
SAFE = 0  # 1: the safe order, 0: the published one
TIMED = 1  # messages have a lifetime
SKEW_US = 2  # that the safe order allows for
GAP_US = 3
DELAY_US = 4  # of every packet
END_US = 5  # nothing happens then or later
SAMPLE_US = 6  # between two looks at the registries of watched nodes; 0: none
LATE_US = 7  # the safe order: how late a message may be and still be an outcome
RIGHT = 8  # all clocks are right: messages die in the order in which they were broadcast
SETTINGS = 9

# messages
ORIGIN, NUMBER, SENT_US, DEADLINE_US, FIRST_ENTRY, ENTRIES = range(6)
MESSAGE_COLUMNS = 6
# contacts
LOWER, HIGHER, STOP_US, HELLO_US = range(4)  # HELLO_US: when the lower node says HELLO
# directions
BASE_US, SLOT_US, ROW, QUEUED, PLACE = range(
    5
)  # as in carry.Contact; ROW of the queue; PLACE among the node's
DIRECTION_COLUMNS = 5
# nodes
OFFSET_US, WAKE_US, FIRST_PENDING, LAST_PENDING, PENDING, CARRIED, BARRIER, ACTIVE, CHECKED_US = range(9)
NODE_COLUMNS = 9
# records; the barrier that is still to be settled is pool[R_FIRST + R_AT : R_FIRST + R_COUNT];
# R_RECEIVED_US is -1 in one that is of no receive, but of a message that came too late
R_NODE, R_MESSAGE, R_RECEIVED_US, R_DELIVERED_US, R_EXPIRED_US, R_TURN = range(6)
R_FIRST, R_COUNT, R_AT, R_NEXT, R_PREVIOUS, R_CARRIED = range(
    6, 12
)  # R_CARRIED: the next that the node carries
RECORD_COLUMNS = 12
# samples
S_NODE, S_TIME_US, S_BARRIER, S_DELIVERED, S_PENDING = range(5)
SAMPLE_COLUMNS = 5

# counters
HEAPED, RECORDS_USED, POOL_USED, TURNS, ROWS_FREED, SAMPLES_USED = range(6)
SENT, LOST, DUPLICATES, TOO_LATE, EVENTS, BACKWARDS, OVERFLOWS = range(6, 13)
BROADCAST_SO_FAR, DEAD_SO_FAR = 13, 14  # messages; the second only where clocks are right
COUNTERS = 15

# what stops the kernel
DONE, GROW_HEAP, GROW_RECORDS, GROW_POOL, GROW_BARRIERS, GROW_SAMPLES = range(6)

# kinds of events, in the engine's order (sim/engine.py)
LINK_DOWN, RECEIVE, TIMER, BROADCAST, SAMPLE = 0, 3, 4, 5, 7
HELLO, ANSWER = -1, -2  # in place of a message: DATA of a RECEIVE
WORD_BITS = 62  # of a word of `had`, which stays positive
EVENT_COLUMNS = 4
TIME_US, KEY, DATA, FURTHER = range(4)  # of an event: what it is about, and the contact or direction


@dataclass(frozen=True)
class OppnetSettings:
    """The parameters of `protocols/barrier/oppnet.py`, the delay of every packet, and the nodes' clocks."""

    lifetime_us: int | None = None
    mode: str = "safe"
    skew_us: int = 0
    seed: int = 1
    gap_us: int = 125_000
    setup_max_us: int = 10_000_000
    late_us: int = DEFAULT_LATE_US
    delay_us: int = 2_000
    offsets_us: tuple[int, ...] = ()  # of the nodes' clocks; empty: all are right
    end_us: int | None = None  # nothing happens then or later; None: the plan's end


class OppnetArrays(NamedTuple):
    """Everything that a run works on."""

    settings: Array
    messages: Array
    contacts: Array
    directions: Array
    nodes: Array
    stays: Array  # [stay, 2]: entering and leaving, by node
    first_stay: Array  # [N + 1]
    hashes: Array  # [N] uint64: of the nodes' names
    keys: Array  # [2 C] uint64: of the random order in each direction
    slots: Array  # [N, M] int32: 1 + the record of a message at a node; -1: it came there too late
    had: Array  # [N, M / WORD_BITS] int64: which messages a node has broadcast or received, one bit each
    newest: Array  # [N, N] int32: 1 + the newest delivered message of each source
    until_us: Array  # [N, N] or [1, 1]: the latest deadline delivered of each source (safe, watched)
    barriers: Array  # [N, room] int32: each node's next barrier
    reach: Array  # [N] int64: of each source the newest number in the barrier that is looked at; else zeros
    active: Array  # [N, room] int32: the directions in which a node sends
    queue_keys: Array  # [rows, room] uint64: heaps
    queue_messages: Array  # [rows, room] int32
    free_rows: Array
    records: Array
    pool: Array  # int32: barriers
    heap: Array  # [room, 4]: events
    samples: Array
    watched: Array
    planned_us: Array  # [N]: the earliest timer on the heap
    counters: Array


NODE_BITS = 20  # of an event's key: kind, node, source


# The heap of events


@inlined
def _is_before(s: OppnetArrays, one: int, other: int) -> bool:
    heap = s.heap
    if heap[one, TIME_US] != heap[other, TIME_US]:
        return bool(heap[one, TIME_US] < heap[other, TIME_US])
    return bool(heap[one, KEY] < heap[other, KEY])


@inlined
def _swap(s: OppnetArrays, one: int, other: int) -> None:
    for column in range(EVENT_COLUMNS):
        kept = s.heap[one, column]
        s.heap[one, column] = s.heap[other, column]
        s.heap[other, column] = kept


@inner
def push(s: OppnetArrays, time_us: int, kind: int, node: int, source: int, data: int, further: int) -> None:
    """Put an event on the heap."""
    at = s.counters[HEAPED]
    s.counters[HEAPED] += 1
    s.heap[at, TIME_US] = time_us
    s.heap[at, KEY] = (kind << NODE_BITS | node) << NODE_BITS | source
    s.heap[at, DATA] = data
    s.heap[at, FURTHER] = further
    while at > 0:
        parent = (at - 1) // 2
        if not _is_before(s, at, parent):
            break
        _swap(s, at, parent)
        at = parent


@inner
def drop_first(s: OppnetArrays) -> None:
    """Take the first event away."""
    size = s.counters[HEAPED] - 1
    s.counters[HEAPED] = size
    for column in range(EVENT_COLUMNS):
        s.heap[0, column] = s.heap[size, column]
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _is_before(s, child + 1, child):
            child += 1
        if not _is_before(s, child, at):
            break
        _swap(s, child, at)
        at = child


# Queues of messages, one per direction


@inlined
def put(s: OppnetArrays, direction: int, message: int) -> None:
    """Queue a message, at its random place."""
    origin = s.messages[message, ORIGIN]
    place = bits(s.keys[direction] ^ s.hashes[origin], s.messages[message, NUMBER])
    row, at = s.directions[direction, ROW], s.directions[direction, QUEUED]
    s.directions[direction, QUEUED] = at + 1
    keys, messages = s.queue_keys, s.queue_messages
    while at > 0:
        parent = (at - 1) // 2
        if keys[row, parent] <= place:
            break
        keys[row, at] = keys[row, parent]
        messages[row, at] = messages[row, parent]
        at = parent
    keys[row, at] = place
    messages[row, at] = message


@inlined
def take(s: OppnetArrays, direction: int) -> int:
    """Take the first message out of a queue that is not empty."""
    row, size = s.directions[direction, ROW], s.directions[direction, QUEUED] - 1
    s.directions[direction, QUEUED] = size
    keys, messages = s.queue_keys, s.queue_messages
    first = messages[row, 0]
    key, message = keys[row, size], messages[row, size]
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and keys[row, child + 1] < keys[row, child]:
            child += 1
        if key <= keys[row, child]:
            break
        keys[row, at] = keys[row, child]
        messages[row, at] = messages[row, child]
        at = child
    keys[row, at] = key
    messages[row, at] = message
    return int(first)


# Made from a contact plan and a list of broadcasts, and made larger on demand


def make_state(
    plan: ContactPlan,
    settings: OppnetSettings,
    broadcasts: Array,
    names: list[str],
    watched: list[int],
    sample_us: int,
    room: int,
) -> OppnetArrays:
    """All arrays, with every contact and every broadcast on the heap."""
    count = len(names)
    hashes = [purpose(name) for name in names]
    offsets_us = np.array(settings.offsets_us or [0] * count, dtype=np.int64)
    messages = _messages(broadcasts, settings, offsets_us, count)
    contacts = _contacts(plan, settings, hashes, offsets_us)
    stays, first_stay = _stays(plan)
    degree, together = _crowds(plan, count)
    safe = settings.mode == "safe"
    nodes = np.full((count, NODE_COLUMNS), -1, dtype=np.int64)
    nodes[:, OFFSET_US] = offsets_us
    nodes[:, WAKE_US] = NEVER_US
    nodes[:, [PENDING, BARRIER, ACTIVE, CHECKED_US]] = 0
    directions = np.full((2 * len(contacts), DIRECTION_COLUMNS), NEVER_US, dtype=np.int64)
    rows = 2 * together + 2
    queue = _longest_queue(plan, broadcasts, messages, offsets_us) + 1
    state = OppnetArrays(
        settings=_settings(plan, settings, sample_us),
        messages=messages,
        contacts=contacts,
        directions=directions,
        nodes=nodes,
        stays=stays,
        first_stay=first_stay,
        hashes=np.array(hashes, dtype=np.uint64),
        keys=_keys(contacts, settings.seed, hashes),
        slots=np.zeros((count, max(len(messages), 1)), dtype=np.int32),
        had=np.zeros((count, len(messages) // WORD_BITS + 1), dtype=np.int64),
        newest=np.zeros((count, count), dtype=np.int32),
        until_us=np.zeros((count, count) if safe and watched else (1, 1), dtype=np.int64),
        barriers=np.zeros((count, 64), dtype=np.int32),
        reach=np.zeros(count, dtype=np.int64),
        active=np.zeros((count, degree + 1), dtype=np.int32),
        queue_keys=np.zeros((rows, queue), dtype=np.uint64),
        queue_messages=np.zeros((rows, queue), dtype=np.int32),
        free_rows=np.arange(rows, dtype=np.int64),
        records=np.zeros((max(room, 4 * len(messages)), RECORD_COLUMNS), dtype=np.int64),
        pool=np.zeros(4 * room, dtype=np.int32),
        heap=np.zeros((room + 2 * (2 * len(contacts) + len(messages)), EVENT_COLUMNS), dtype=np.int64),
        samples=np.zeros((1024 if watched else 0, SAMPLE_COLUMNS), dtype=np.int64),
        watched=np.array(watched, dtype=np.int64),
        planned_us=np.full(count, NEVER_US, dtype=np.int64),
        counters=np.zeros(COUNTERS, dtype=np.int64),
    )
    state.counters[ROWS_FREED] = rows
    _begin(state, broadcasts, sample_us)
    return state


def _settings(plan: ContactPlan, settings: OppnetSettings, sample_us: int) -> Array:
    values = np.zeros(SETTINGS, dtype=np.int64)
    values[SAFE] = settings.mode == "safe"
    values[TIMED] = settings.lifetime_us is not None
    values[SKEW_US] = settings.skew_us
    values[GAP_US] = settings.gap_us
    values[DELAY_US] = settings.delay_us
    values[END_US] = plan.stop_us if settings.end_us is None else settings.end_us
    values[SAMPLE_US] = sample_us
    values[LATE_US] = settings.late_us
    values[RIGHT] = not any(settings.offsets_us)
    return values


def _messages(broadcasts: Array, settings: OppnetSettings, offsets_us: Array, count: int) -> Array:
    messages = np.full((len(broadcasts), MESSAGE_COLUMNS), -1, dtype=np.int64)
    if not len(broadcasts):
        return messages
    times_us, origins = broadcasts[:, 0], broadcasts[:, 1]
    messages[:, ORIGIN] = origins
    numbers = np.zeros(count, dtype=np.int64)
    for at, origin in enumerate(origins.tolist()):
        numbers[origin] += 1
        messages[at, NUMBER] = numbers[origin]
    lifetime_us = settings.lifetime_us
    messages[:, DEADLINE_US] = (
        NEVER_US if lifetime_us is None else times_us + offsets_us[origins] + lifetime_us
    )
    return messages


def _contacts(plan: ContactPlan, settings: OppnetSettings, hashes: list[int], offsets_us: Array) -> Array:
    """Contacts that last, with the time at which the lower node says HELLO."""
    rows = []
    for lower, higher, start_us, stop_us in plan.contacts:
        if start_us < stop_us:
            key = stream(settings.seed, SETUP, hashes[lower], hashes[higher])
            begin_us = start_us + int(offsets_us[lower])  # on the lower node's clock
            setup_us = below(key, begin_us, settings.setup_max_us + 1)
            rows.append((lower, higher, stop_us, start_us + setup_us))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _keys(contacts: Array, seed: int, hashes: list[int]) -> Array:
    keys = np.zeros(2 * len(contacts), dtype=np.uint64)
    made: dict[tuple[int, int], int] = {}
    for at, (lower, higher) in enumerate(contacts[:, [LOWER, HIGHER]].tolist()):
        for direction, pair in ((2 * at, (lower, higher)), (2 * at + 1, (higher, lower))):
            if pair not in made:
                made[pair] = stream(seed, ORDER, hashes[pair[0]], hashes[pair[1]])
            keys[direction] = made[pair]
    return keys


def _stays(plan: ContactPlan) -> tuple[Array, Array]:
    """Presence by node; who stays to the plan's end stays on."""
    by_node: list[list[tuple[int, int]]] = [[] for _ in plan.nodes]
    for node, start_us, stop_us in plan.presence:
        by_node[node].append((start_us, NEVER_US if stop_us == plan.stop_us else stop_us))
    first = np.cumsum([0, *map(len, by_node)])
    rows = [stay for stays in by_node for stay in stays]
    return np.array(rows, dtype=np.int64).reshape(-1, 2), first


def _crowds(plan: ContactPlan, count: int) -> tuple[int, int]:
    """The most contacts that one node has at a time, and that all have together."""
    changes = sorted(
        change
        for lower, higher, start_us, stop_us in plan.contacts
        if start_us < stop_us
        for change in ((start_us, 1, lower, higher), (stop_us, 0, lower, higher))
    )
    degrees, degree, now, together = [0] * count, 0, 0, 0
    for _, is_up, lower, higher in changes:
        step = 1 if is_up else -1
        now += step
        for node in (lower, higher):
            degrees[node] += step
        degree = max(degree, degrees[lower], degrees[higher])
        together = max(together, now)
    return degree, together


def _longest_queue(plan: ContactPlan, broadcasts: Array, messages: Array, offsets_us: Array) -> int:
    """At most: the messages that were sent before a contact ends and are alive when it begins."""
    spans_us = [(row.start_us, row.stop_us) for row in plan.contacts if row.start_us < row.stop_us]
    if not len(messages) or not spans_us:
        return 0
    starts_us, stops_us = np.array(spans_us, dtype=np.int64).T
    dead = np.searchsorted(np.sort(messages[:, DEADLINE_US]), starts_us + int(offsets_us.min()))
    return int((np.searchsorted(broadcasts[:, 0], stops_us) - dead).max())


def _begin(state: OppnetArrays, broadcasts: Array, sample_us: int) -> None:
    """Put what is planned on the heap: events in order are one."""
    lower, higher, stop_us, hello_us = state.contacts.T
    came_us = hello_us + state.settings[DELAY_US]
    met = np.flatnonzero(came_us < stop_us)
    said = np.flatnonzero(broadcasts[:, 0] < state.settings[END_US])
    parts = [
        _events(came_us[met], RECEIVE, higher[met], lower[met], HELLO, 2 * met + 1),
        _events(stop_us[met], LINK_DOWN, lower[met], higher[met], 0, met),
        _events(broadcasts[said, 0], BROADCAST, broadcasts[said, 1], 0, said, 0),
        _events(np.full(int(sample_us > 0), sample_us), SAMPLE, 0, 0, 0, 0),
    ]
    events = np.concatenate(parts)
    order = np.lexsort((events[:, DATA], events[:, KEY], events[:, TIME_US]))
    state.heap[: len(events)] = events[order]
    state.counters[HEAPED] = len(events)


def _events(
    times_us: Array,
    kind: int,
    node: Array | int,
    source: Array | int,
    data: Array | int,
    further: Array | int,
) -> Array:
    """Rows of the heap, one for each time."""
    rows = np.zeros((len(times_us), EVENT_COLUMNS), dtype=np.int64)
    rows[:, TIME_US] = times_us
    rows[:, KEY] = (kind << NODE_BITS | node) << NODE_BITS | source
    rows[:, DATA] = data
    rows[:, FURTHER] = further
    return rows


def grown(state: OppnetArrays, lacking: int) -> OppnetArrays:
    """The same state with twice the room for what has run out of it."""
    name = {
        GROW_HEAP: "heap",
        GROW_RECORDS: "records",
        GROW_POOL: "pool",
        GROW_BARRIERS: "barriers",
        GROW_SAMPLES: "samples",
    }[lacking]
    old: Array = getattr(state, name)
    axis = 1 if lacking == GROW_BARRIERS else 0
    return state._replace(**{name: np.concatenate([old, np.zeros_like(old)], axis=axis)})
