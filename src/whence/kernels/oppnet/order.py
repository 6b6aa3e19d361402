"""The two orders of `protocols/barrier_*.py` on arrays.

Where the cores keep indexes, the kernel goes over the node's pending list: it is short (some forty messages
on average in the Östermalm study), and a look at one message is a look at its first open entry.
"""

from __future__ import annotations

from whence.kernels.compile import inlined, inner
from whence.kernels.oppnet import state as a
from whence.kernels.oppnet.state import NEVER_US, OppnetArrays


@inlined
def local(s: OppnetArrays, node: int, now_us: int) -> int:
    """What the node's clock shows (sim/faults.py's Clock without drift)."""
    return int(max(now_us + s.nodes[node, a.OFFSET_US], 0))


@inlined
def true_us(s: OppnetArrays, node: int, local_us: int) -> int:
    """The first time at which the node's clock shows that, or more."""
    if local_us <= max(s.nodes[node, a.OFFSET_US], 0):
        return 0
    return int(local_us - s.nodes[node, a.OFFSET_US])


@inlined
def _is_delivered(s: OppnetArrays, node: int, message: int) -> bool:
    newest = s.newest[node, s.messages[message, a.ORIGIN]]
    return bool(newest > 0 and s.messages[newest - 1, a.NUMBER] >= s.messages[message, a.NUMBER])


@inlined
def settle_entries(s: OppnetArrays, node: int, record: int, clock_us: int) -> bool:
    """Move on to the first entry that is neither delivered nor dead; False if there is none."""
    first, count = s.records[record, a.R_FIRST], s.records[record, a.R_COUNT]
    at = s.records[record, a.R_AT]
    while at < count:
        entry = s.pool[first + at]
        if s.messages[entry, a.DEADLINE_US] >= clock_us and not _is_delivered(s, node, entry):
            break
        at += 1
    s.records[record, a.R_AT] = at
    return bool(at < count)


@inlined
def hold(s: OppnetArrays, node: int, record: int) -> None:
    """Put a message at the end of the pending registry."""
    last = s.nodes[node, a.LAST_PENDING]
    s.records[record, a.R_PREVIOUS] = last
    s.records[record, a.R_NEXT] = -1
    if last >= 0:
        s.records[last, a.R_NEXT] = record
    else:
        s.nodes[node, a.FIRST_PENDING] = record
    s.nodes[node, a.LAST_PENDING] = record
    s.nodes[node, a.PENDING] += 1


@inlined
def _let_go(s: OppnetArrays, node: int, record: int) -> None:
    before, after = s.records[record, a.R_PREVIOUS], s.records[record, a.R_NEXT]
    if before >= 0:
        s.records[before, a.R_NEXT] = after
    else:
        s.nodes[node, a.FIRST_PENDING] = after
    if after >= 0:
        s.records[after, a.R_PREVIOUS] = before
    else:
        s.nodes[node, a.LAST_PENDING] = before
    s.nodes[node, a.PENDING] -= 1


# Code 3


@inner
def deliver(s: OppnetArrays, node: int, record: int, now_us: int) -> None:
    """Registries, and the record's own account."""
    message = s.records[record, a.R_MESSAGE]
    source = s.messages[message, a.ORIGIN]
    before = s.newest[node, source]
    if before > message + 1:
        _compact(s, node)
        s.counters[a.BACKWARDS] += 1
    s.newest[node, source] = message + 1
    if s.until_us.shape[0] > 1:
        s.until_us[node, source] = max(s.until_us[node, source], s.messages[message, a.DEADLINE_US])
    if s.settings[a.SAFE]:
        _cover(s, node, message)
    else:
        _replace(s, node, source)
    size = s.nodes[node, a.BARRIER]
    s.barriers[node, size] = message
    s.nodes[node, a.BARRIER] = size + 1
    s.records[record, a.R_DELIVERED_US] = now_us
    s.records[record, a.R_TURN] = s.counters[a.TURNS]
    s.counters[a.TURNS] += 1


@inlined
def _replace(s: OppnetArrays, node: int, source: int) -> None:
    """Code 3's c_barrier.put: one entry per source."""
    size = s.nodes[node, a.BARRIER]
    for at in range(size):
        if s.messages[s.barriers[node, at], a.ORIGIN] == source:
            s.barriers[node, at] = s.barriers[node, size - 1]
            s.nodes[node, a.BARRIER] = size - 1
            return


@inlined
def _cover(s: OppnetArrays, node: int, message: int) -> None:
    """The cover rule: forget what happened before the message and does not live longer."""
    messages, reach = s.messages, s.reach
    first = messages[message, a.FIRST_ENTRY]
    last = first + messages[message, a.ENTRIES]
    for at in range(first, last):
        other = s.pool[at]
        source = messages[other, a.ORIGIN]
        reach[source] = max(reach[source], messages[other, a.NUMBER])
    own = messages[message, a.ORIGIN]
    reach[own] = max(reach[own], messages[message, a.NUMBER] - 1)
    kept = 0
    for at in range(s.nodes[node, a.BARRIER]):
        entry = s.barriers[node, at]
        lives_longer = messages[entry, a.DEADLINE_US] > messages[message, a.DEADLINE_US]
        if lives_longer or messages[entry, a.NUMBER] > reach[messages[entry, a.ORIGIN]]:
            s.barriers[node, kept] = entry
            kept += 1
    s.nodes[node, a.BARRIER] = kept
    for at in range(first, last):
        reach[messages[s.pool[at], a.ORIGIN]] = 0
    reach[own] = 0


@inner
def _compact(s: OppnetArrays, node: int) -> None:
    """The published registry is about to go backwards: what it has settled so far stays settled.

    Otherwise pending barriers are looked at only where it matters. Here each becomes a copy of what is still
    open, at the end of the pool.
    """
    record = s.nodes[node, a.FIRST_PENDING]
    while record >= 0:
        first, count = s.records[record, a.R_FIRST], s.records[record, a.R_COUNT]
        start = s.counters[a.POOL_USED]
        kept = 0
        if start + count > s.pool.shape[0]:
            s.counters[a.OVERFLOWS] += 1  # the run must be begun again with more room
            return
        for at in range(s.records[record, a.R_AT], count):
            entry = s.pool[first + at]
            if not _is_delivered(s, node, entry):
                s.pool[start + kept] = entry
                kept += 1
        s.counters[a.POOL_USED] = start + kept
        s.records[record, a.R_FIRST] = start
        s.records[record, a.R_COUNT] = kept
        s.records[record, a.R_AT] = 0
        record = s.records[record, a.R_NEXT]


# Codes 7 and 13


@inner
def release(s: OppnetArrays, node: int, now_us: int) -> None:
    """Passes over the pending registry until one delivers nothing; then see when to look again."""
    clock_us = local(s, node, now_us)
    s.nodes[node, a.CHECKED_US] = clock_us
    has_delivered = True
    wake_us = NEVER_US
    while has_delivered:
        has_delivered = False
        wake_us = NEVER_US
        record = s.nodes[node, a.FIRST_PENDING]
        while record >= 0:
            following = s.records[record, a.R_NEXT]
            if settle_entries(s, node, record, clock_us):
                wake_us = min(wake_us, ends_us(s, record))
            else:
                _let_go(s, node, record)
                deliver(s, node, record, now_us)
                has_delivered = True
            record = following
    s.nodes[node, a.WAKE_US] = NEVER_US if wake_us == NEVER_US else true_us(s, node, wake_us + 1)


@inlined
def ends_us(s: OppnetArrays, record: int) -> int:
    """The deadline at which time alone changes something for a pending message, on the node's clock."""
    end_us = s.messages[s.records[record, a.R_MESSAGE], a.DEADLINE_US]
    if s.settings[a.SAFE]:
        obstacle = s.pool[s.records[record, a.R_FIRST] + s.records[record, a.R_AT]]
        end_us = min(end_us, s.messages[obstacle, a.DEADLINE_US])
    return int(end_us)


# Codes 10 and 12; oppnet_discard


@inner
def expire(s: OppnetArrays, node: int, now_us: int) -> None:
    """Do what was due: end what is dead, the earliest deadline first, and release what waited for it."""
    clock_us = local(s, node, now_us)
    record = _first_dead(s, node, clock_us)
    while record >= 0:
        _let_go(s, node, record)
        s.records[record, a.R_EXPIRED_US] = now_us
        s.records[record, a.R_TURN] = s.counters[a.TURNS]
        s.counters[a.TURNS] += 1
        if not s.settings[a.SAFE]:  # as printed: each is reported, and the pending are looked at, in turn
            release(s, node, now_us)
        record = _first_dead(s, node, clock_us)
    if s.settings[a.SAFE]:
        release(s, node, now_us)
    else:
        _look_ahead(s, node)


@inlined
def _first_dead(s: OppnetArrays, node: int, clock_us: int) -> int:
    found, earliest_us = -1, clock_us
    record = s.nodes[node, a.FIRST_PENDING]
    while record >= 0:
        end_us = s.messages[s.records[record, a.R_MESSAGE], a.DEADLINE_US]
        if end_us < earliest_us:
            found, earliest_us = record, end_us
        record = s.records[record, a.R_NEXT]
    return int(found)


@inlined
def _look_ahead(s: OppnetArrays, node: int) -> None:
    """Published: when the next pending message dies."""
    wake_us = NEVER_US
    record = s.nodes[node, a.FIRST_PENDING]
    while record >= 0:
        wake_us = min(wake_us, ends_us(s, record))
        record = s.records[record, a.R_NEXT]
    s.nodes[node, a.WAKE_US] = NEVER_US if wake_us == NEVER_US else true_us(s, node, wake_us + 1)


# Code 9


@inner
def make_barrier(s: OppnetArrays, node: int, message: int, now_us: int) -> None:
    """Leave out what is expired, and write the message's barrier."""
    clock_us = local(s, node, now_us)
    if s.settings[a.TIMED]:
        _fade(s, node, clock_us - (s.settings[a.SKEW_US] if s.settings[a.SAFE] else 0))
    size, start = s.nodes[node, a.BARRIER], s.counters[a.POOL_USED]
    for at in range(size):
        s.pool[start + at] = s.barriers[node, at]
    s.counters[a.POOL_USED] = start + size
    s.messages[message, a.FIRST_ENTRY] = start
    s.messages[message, a.ENTRIES] = size
    if not s.settings[a.SAFE]:
        s.nodes[node, a.BARRIER] = 0
        return
    # What the message itself covers; `deliver` would find all of it in the barrier, one by one.
    kept = 0
    for at in range(size):
        if s.messages[s.barriers[node, at], a.DEADLINE_US] > s.messages[message, a.DEADLINE_US]:
            s.barriers[node, kept] = s.barriers[node, at]
            kept += 1
    s.nodes[node, a.BARRIER] = kept


@inlined
def _fade(s: OppnetArrays, node: int, before_us: int) -> None:
    """Forget the entries of a node's barrier whose deadline is before that."""
    kept = 0
    for at in range(s.nodes[node, a.BARRIER]):
        entry = s.barriers[node, at]
        if s.messages[entry, a.DEADLINE_US] >= before_us:
            s.barriers[node, kept] = entry
            kept += 1
    s.nodes[node, a.BARRIER] = kept
