"""The engine and the store-carry-forward layer (`sim/engine.py`, `protocols/barrier/carry.py`) on arrays.

What a peer is known to have needs no packets here: it is what the peer had, alive, when it told all it had,
and what it got since, one delay later (HELLO, ANSWER, HAVE).
"""

from __future__ import annotations

from collections.abc import Callable

from whence.kernels.compile import cached, fingerprint, inlined, inner
from whence.kernels.oppnet import state as a
from whence.kernels.oppnet.order import (
    deliver,
    ends_us,
    expire,
    hold,
    local,
    make_barrier,
    release,
    settle_entries,
    true_us,
)
from whence.kernels.oppnet.state import NEVER_US, NODE_BITS, OppnetArrays, drop_first, push, put, take

_MARGIN = 64  # events that one step adds besides those for its contacts


# Contacts


@inlined
def _sender(s: OppnetArrays, direction: int) -> int:
    return int(s.contacts[direction >> 1, a.LOWER if direction & 1 == 0 else a.HIGHER])


@inlined
def _receiver(s: OppnetArrays, direction: int) -> int:
    return int(s.contacts[direction >> 1, a.HIGHER if direction & 1 == 0 else a.LOWER])


@inlined
def _is_known(s: OppnetArrays, direction: int, message: int, now_us: int) -> bool:
    """Whether the sender knows that the receiver has the message."""
    peer = _receiver(s, direction)
    record = s.slots[peer, message] - 1
    if record < 0:
        return False
    told_us = s.contacts[direction >> 1, a.HELLO_US]
    if direction & 1 == 0:
        told_us += s.settings[a.DELAY_US]
    received_us = s.records[record, a.R_RECEIVED_US]
    if received_us <= told_us:
        return bool(s.messages[message, a.DEADLINE_US] >= local(s, peer, told_us))
    return bool(received_us + s.settings[a.DELAY_US] <= now_us)


@inlined
def _queue_lacking(s: OppnetArrays, node: int, direction: int, now_us: int) -> None:
    """With right clocks: a peer that has a message is known to have it, but for what it got just now."""
    peer = _receiver(s, direction)
    dead = s.counters[a.DEAD_SO_FAR]
    while dead < s.counters[a.BROADCAST_SO_FAR] and s.messages[dead, a.DEADLINE_US] < now_us:
        dead += 1
    s.counters[a.DEAD_SO_FAR] = dead
    for word in range(dead // a.WORD_BITS, s.counters[a.BROADCAST_SO_FAR] // a.WORD_BITS + 1):
        lacking = s.had[node, word] & ~s.had[peer, word]
        message = word * a.WORD_BITS
        while lacking:
            if lacking & 1 and message >= dead:
                put(s, direction, message)
            lacking >>= 1
            message += 1
    record = s.nodes[peer, a.CARRIED]
    while record >= 0 and s.records[record, a.R_RECEIVED_US] + s.settings[a.DELAY_US] > now_us:
        message = s.records[record, a.R_MESSAGE]
        has = s.had[node, message // a.WORD_BITS] >> (message % a.WORD_BITS) & 1
        if has and message >= dead and not _is_known(s, direction, message, now_us):
            put(s, direction, message)
        record = s.records[record, a.R_CARRIED]


@inlined
def _queue_carried(s: OppnetArrays, node: int, direction: int, now_us: int) -> None:
    """Look at all that the node carries, and purge what is dead."""
    clock_us = local(s, node, now_us)
    before, record = -1, s.nodes[node, a.CARRIED]
    while record >= 0:
        following = s.records[record, a.R_CARRIED]
        message = s.records[record, a.R_MESSAGE]
        if s.messages[message, a.DEADLINE_US] < clock_us:  # purge
            if before >= 0:
                s.records[before, a.R_CARRIED] = following
            else:
                s.nodes[node, a.CARRIED] = following
        else:
            if not _is_known(s, direction, message, now_us):
                put(s, direction, message)
            before = record
        record = following


@inner
def _exchange(s: OppnetArrays, direction: int, now_us: int) -> None:
    """The sender has been told what the other has: queue what it lacks."""
    node = _sender(s, direction)
    s.counters[a.ROWS_FREED] -= 1
    directions = s.directions
    directions[direction, a.BASE_US] = now_us
    directions[direction, a.SLOT_US] = NEVER_US
    directions[direction, a.ROW] = s.free_rows[s.counters[a.ROWS_FREED]]
    directions[direction, a.QUEUED] = 0
    directions[direction, a.PLACE] = s.nodes[node, a.ACTIVE]
    s.active[node, s.nodes[node, a.ACTIVE]] = direction
    s.nodes[node, a.ACTIVE] += 1
    if s.settings[a.RIGHT]:
        _queue_lacking(s, node, direction, now_us)
    else:
        _queue_carried(s, node, direction, now_us)
    _plan_slot(s, direction, now_us)


@inner
def _part(s: OppnetArrays, direction: int) -> None:
    """A contact ends, as seen from one side."""
    if s.directions[direction, a.BASE_US] == NEVER_US:
        return
    node = _sender(s, direction)
    place, last = s.directions[direction, a.PLACE], s.nodes[node, a.ACTIVE] - 1
    moved = s.active[node, last]
    s.active[node, place] = moved
    s.directions[moved, a.PLACE] = place
    s.nodes[node, a.ACTIVE] = last
    s.free_rows[s.counters[a.ROWS_FREED]] = s.directions[direction, a.ROW]
    s.counters[a.ROWS_FREED] += 1
    s.directions[direction, a.BASE_US] = NEVER_US
    s.directions[direction, a.SLOT_US] = NEVER_US


@inlined
def _plan_slot(s: OppnetArrays, direction: int, now_us: int) -> None:
    directions = s.directions
    directions[direction, a.SLOT_US] = NEVER_US
    if directions[direction, a.QUEUED] > 0:
        gap_us, base_us = s.settings[a.GAP_US], directions[direction, a.BASE_US]
        slot_us = base_us + ((now_us - base_us) // gap_us + 1) * gap_us
        directions[direction, a.SLOT_US] = slot_us
        push(s, slot_us, a.TIMER, _sender(s, direction), 1 + _receiver(s, direction), 0, direction)


@inner
def _send(s: OppnetArrays, direction: int, now_us: int) -> None:
    """The end of a slot: the next message that the peer is not known to have goes out."""
    node = _sender(s, direction)
    clock_us = local(s, node, now_us)
    while s.directions[direction, a.QUEUED] > 0:
        message = take(s, direction)
        if s.messages[message, a.DEADLINE_US] >= clock_us and not _is_known(s, direction, message, now_us):
            s.counters[a.SENT] += 1
            arrive_us = now_us + s.settings[a.DELAY_US]
            if arrive_us < s.contacts[direction >> 1, a.STOP_US]:
                push(s, arrive_us, a.RECEIVE, _receiver(s, direction), node, message, direction)
            else:
                s.counters[a.LOST] += 1
            break
    _plan_slot(s, direction, now_us)


@inner
def _acquire(s: OppnetArrays, node: int, record: int, giver: int, now_us: int) -> None:
    """Carry a message, and queue it for all contacts but the one that it came from."""
    message = s.records[record, a.R_MESSAGE]
    s.slots[node, message] = record + 1
    s.had[node, message // a.WORD_BITS] |= 1 << (message % a.WORD_BITS)
    s.records[record, a.R_CARRIED] = s.nodes[node, a.CARRIED]
    s.nodes[node, a.CARRIED] = record
    for at in range(s.nodes[node, a.ACTIVE]):
        direction = s.active[node, at]
        peer = _receiver(s, direction)
        # Of two packets that arrive together the smaller node's is first: the peer's HAVE, or this.
        known_us = now_us - 1 if peer > giver else now_us
        if peer != giver and not _is_known(s, direction, message, known_us):
            put(s, direction, message)
            if s.directions[direction, a.SLOT_US] == NEVER_US:
                _plan_slot(s, direction, now_us)


# Events


@inlined
def _make_record(s: OppnetArrays, node: int, message: int, now_us: int) -> int:
    record = s.counters[a.RECORDS_USED]
    s.counters[a.RECORDS_USED] += 1
    s.records[record, a.R_NODE] = node
    s.records[record, a.R_MESSAGE] = message
    s.records[record, a.R_RECEIVED_US] = now_us
    s.records[record, a.R_DELIVERED_US] = -1
    s.records[record, a.R_EXPIRED_US] = -1
    s.records[record, a.R_FIRST] = s.messages[message, a.FIRST_ENTRY]
    s.records[record, a.R_COUNT] = s.messages[message, a.ENTRIES]
    s.records[record, a.R_AT] = 0
    return int(record)


@inlined
def _end_late(s: OppnetArrays, node: int, message: int, now_us: int) -> None:
    """What first comes after its deadline has ended (`protocols/barrier/order.py`); it is no receive."""
    record = _make_record(s, node, message, -1)
    s.records[record, a.R_EXPIRED_US] = now_us
    s.records[record, a.R_TURN] = s.counters[a.TURNS]
    s.counters[a.TURNS] += 1
    s.slots[node, message] = -1


@inner
def _receive(s: OppnetArrays, node: int, message: int, direction: int, now_us: int) -> None:
    if message == a.HELLO:
        _exchange(s, direction, now_us)
        delay_us = s.settings[a.DELAY_US]
        if now_us + delay_us < s.contacts[direction >> 1, a.STOP_US]:
            push(s, now_us + delay_us, a.RECEIVE, _receiver(s, direction), node, a.ANSWER, direction ^ 1)
        return
    if message == a.ANSWER:
        _exchange(s, direction, now_us)
        return
    clock_us = local(s, node, now_us)
    if s.messages[message, a.DEADLINE_US] < clock_us:
        s.counters[a.TOO_LATE] += 1
        in_time = s.messages[message, a.DEADLINE_US] + s.settings[a.LATE_US] >= clock_us
        if s.settings[a.SAFE] and in_time and s.slots[node, message] == 0:
            _end_late(s, node, message, now_us)
        return
    if s.slots[node, message] > 0:
        s.counters[a.DUPLICATES] += 1
        return
    record = _make_record(s, node, message, now_us)
    if settle_entries(s, node, record, clock_us):
        hold(s, node, record)
        end_us = ends_us(s, record)
        if end_us < NEVER_US:
            s.nodes[node, a.WAKE_US] = min(s.nodes[node, a.WAKE_US], true_us(s, node, end_us + 1))
    else:
        deliver(s, node, record, now_us)
        release(s, node, now_us)
    _acquire(s, node, record, _sender(s, direction), now_us)


@inner
def _broadcast(s: OppnetArrays, node: int, message: int, now_us: int) -> None:
    s.messages[message, a.SENT_US] = now_us
    s.counters[a.BROADCAST_SO_FAR] = message + 1
    make_barrier(s, node, message, now_us)
    record = _make_record(s, node, message, now_us)
    deliver(s, node, record, now_us)
    _acquire(s, node, record, -1, now_us)


@inner
def _sample(s: OppnetArrays, now_us: int) -> None:
    """The registries of the watched nodes, as large as they would be after a look at the clock."""
    for at in range(s.watched.shape[0]):
        node = s.watched[at]
        clock_us = local(s, node, now_us)
        barrier, delivered = 0, 0
        safe_us = clock_us - s.settings[a.SKEW_US] if s.settings[a.TIMED] else 0
        for place in range(s.nodes[node, a.BARRIER]):
            if not s.settings[a.SAFE] or s.messages[s.barriers[node, place], a.DEADLINE_US] >= safe_us:
                barrier += 1
        for source in range(s.newest.shape[1]):
            newest = s.newest[node, source]
            if newest == 0:
                continue
            if s.settings[a.SAFE]:
                delivered += s.until_us[node, source] >= safe_us or source == node
            else:  # Code 12 forgets only when it looks
                delivered += s.messages[newest - 1, a.DEADLINE_US] >= s.nodes[node, a.CHECKED_US]
        row = s.counters[a.SAMPLES_USED]
        s.counters[a.SAMPLES_USED] += 1
        s.samples[row, a.S_NODE] = node
        s.samples[row, a.S_TIME_US] = now_us
        s.samples[row, a.S_BARRIER] = barrier
        s.samples[row, a.S_DELIVERED] = delivered
        s.samples[row, a.S_PENDING] = s.nodes[node, a.PENDING]


@inner
def _present_us(s: OppnetArrays, node: int, now_us: int) -> int:
    """Now, if the node is there; otherwise when it enters next, or never."""
    for at in range(s.first_stay[node], s.first_stay[node + 1]):
        if now_us < s.stays[at, 1]:
            return int(max(now_us, s.stays[at, 0]))
    return NEVER_US


@inlined
def _step(s: OppnetArrays) -> None:
    now_us, key = s.heap[0, a.TIME_US], s.heap[0, a.KEY]
    data, further = s.heap[0, a.DATA], s.heap[0, a.FURTHER]
    drop_first(s)
    s.counters[a.EVENTS] += 1
    kind = key >> (2 * NODE_BITS)
    node = key >> NODE_BITS & ((1 << NODE_BITS) - 1)
    source = key & ((1 << NODE_BITS) - 1)
    if kind == a.LINK_DOWN:
        _part(s, 2 * further)
        _part(s, 2 * further + 1)
        return
    if kind == a.SAMPLE:
        _sample(s, now_us)
        if now_us + s.settings[a.SAMPLE_US] < s.settings[a.END_US]:
            push(s, now_us + s.settings[a.SAMPLE_US], a.SAMPLE, 0, 0, 0, 0)
        return
    if kind == a.TIMER and source == 0:
        present_us = _present_us(s, node, now_us)
        s.planned_us[node] = NEVER_US
        if present_us > now_us:  # timers wait while the node is away
            s.planned_us[node] = present_us
            if present_us < NEVER_US:
                push(s, present_us, a.TIMER, node, 0, 0, 0)
            return
    if kind == a.TIMER and source > 0 and s.directions[further, a.SLOT_US] != now_us:
        return  # of a contact that has ended; its node may be away
    if s.nodes[node, a.WAKE_US] <= now_us:
        expire(s, node, now_us)
    if kind == a.RECEIVE:
        _receive(s, node, data, further, now_us)
    elif kind == a.BROADCAST:
        _broadcast(s, node, data, now_us)
    elif source > 0:
        _send(s, further, now_us)
    wake_us = s.nodes[node, a.WAKE_US]
    if wake_us < s.planned_us[node]:
        s.planned_us[node] = wake_us
        push(s, wake_us, a.TIMER, node, 0, 0, 0)


@inner
def _room(s: OppnetArrays) -> int:
    """What must grow before the next step."""
    counters = s.counters
    if counters[a.HEAPED] + s.active.shape[1] + _MARGIN > s.heap.shape[0]:
        return a.GROW_HEAP
    if counters[a.RECORDS_USED] + 1 > s.records.shape[0]:
        return a.GROW_RECORDS
    node = s.heap[0, a.KEY] >> NODE_BITS & ((1 << NODE_BITS) - 1)
    pending = s.nodes[node, a.PENDING]
    if s.nodes[node, a.BARRIER] + pending + 2 > s.barriers.shape[1]:
        return a.GROW_BARRIERS
    copied = 1 if s.settings[a.SAFE] else 1 + pending  # barriers that one step may write
    if counters[a.POOL_USED] + s.barriers.shape[1] * copied > s.pool.shape[0]:
        return a.GROW_POOL
    if counters[a.SAMPLES_USED] + s.watched.shape[0] > s.samples.shape[0]:
        return a.GROW_SAMPLES
    return a.DONE


def _entry(sources: int) -> Callable[[OppnetArrays], int]:
    def advance(s: OppnetArrays) -> int:
        while sources != 0 and s.counters[a.HEAPED] > 0 and s.heap[0, a.TIME_US] < s.settings[a.END_US]:
            lacking = _room(s)
            if lacking != a.DONE:
                return lacking
            _step(s)
        return a.DONE

    return cached(advance)


# Run until all is done, or until something must grow; then it goes on where it stopped.
advance = _entry(fingerprint())
