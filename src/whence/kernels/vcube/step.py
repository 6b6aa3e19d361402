"""The compiled step of VCube's kernel: the engine, the links and all nodes in one function.

The rules are those of protocols/vcube/core.py, in the same order; sim/engine.py and sim/links_static.py say
when what happens, what a packet costs and when it arrives. Nothing here is a decision:
tests/equivalence/test_vcube_kernel.py holds every event to the core's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.core.sizes import FRAME_BYTES
from whence.kernels.calendar import (
    FOLLOWING,
    KEY,
    TIME_US,
    first,
    insert,
    packed,
    receiver_of,
    remove_first,
    sender_of,
)
from whence.kernels.compile import cached, fingerprint, inlined, inner, trailing_zeros
from whence.kernels.rng import draw
from whence.kernels.vcube import state as a
from whence.kernels.vcube.state import VCubeArrays
from whence.protocols.vcube.wire import PAPER_ENTRY_BYTES, PAPER_PACKET_BYTES
from whence.trace.schema import Kind, Level

# Plain numbers, which numba takes as constants
BROADCAST, SEND, RECEIVE, DELIVER = (
    int(kind) for kind in (Kind.BROADCAST, Kind.SEND, Kind.RECEIVE, Kind.DELIVER)
)
DELIVERIES, ALL = int(Level.DELIVERIES), int(Level.ALL)

_LOW_32 = 0xFFFFFFFF
_ONE = np.uint64(1)


# Bytes in MessagePack: core/sizes.py


@inlined
def uint_bytes(value: int) -> int:
    """Bytes of a non-negative integer below 2^32."""
    return 1 if value < 0x80 else (2 if value < 0x100 else (3 if value < 0x10000 else 5))


@inlined
def array_bytes(length: int) -> int:
    """Bytes before the elements of an array."""
    return 1 if length < 16 else (3 if length < 0x10000 else 5)


@inlined
def binary_bytes(length: int) -> int:
    """Bytes before the contents of a byte string."""
    return 2 if length < 0x100 else (3 if length < 0x10000 else 5)


# Sending


@inlined
def send_freed(s: VCubeArrays, node: int, count: int, now_us: int) -> None:
    """To each child what was freed for it, in order of arrival, in as many packets as the MTU makes of it.

    The `count` freed messages are in the scratch, ascending by order of arrival, each with the levels
    that it was freed for.
    """
    settings, messages, scratch = s.settings, s.messages, s.scratch
    by_wire, mtu_bytes = settings[a.BY_WIRE] != 0, settings[a.MTU_BYTES]
    size_column = a.WIRE_BYTES if by_wire else a.PAPER_BYTES
    stop = 0
    for at in range(count):
        stop = max(stop, scratch[a.FREED_STOP, at])
    for level in range(stop):
        if s.links[node, level, a.CHILD] < 0:
            continue
        taken = taken_bytes = 0
        for at in range(count + 1):  # the last turn sends the rest
            message, more_bytes = -1, 0
            if at < count:
                if not scratch[a.FREED_LOW, at] <= level < scratch[a.FREED_STOP, at]:
                    continue
                message = scratch[a.FREED, at]
                more_bytes = messages[message, size_column]
            around_bytes = FRAME_BYTES + 1 + array_bytes(taken + 1) if by_wire else PAPER_PACKET_BYTES
            is_full = mtu_bytes > 0 and around_bytes + taken_bytes + more_bytes > mtu_bytes
            if taken and (message < 0 or is_full):
                if message >= 0:
                    s.tallies[a.T_SPLITS] += 1
                _ship(s, node, level, taken, now_us)
                taken = taken_bytes = 0
            if message >= 0:
                scratch[a.OUT, taken] = message
                taken += 1
                taken_bytes += more_bytes


@inlined
def _ship(s: VCubeArrays, node: int, level: int, count: int, now_us: int) -> None:
    """Give the first `count` of OUT to a link: queue, delay, processing."""
    settings, counters, packets, cells, out = s.settings, s.counters, s.packets, s.cells, s.scratch[a.OUT]
    link = s.links[node, level]
    number = link[a.SENT]
    link[a.SENT] = number + 1
    depart_us = now_us
    if settings[a.SERVICE_US]:
        depart_us = max(now_us, s.nodes[node, a.FREE_US]) + settings[a.SERVICE_US]
        s.nodes[node, a.FREE_US] = depart_us
    delay_us = draw(
        settings[a.DELAY_KIND], settings[a.DELAY_A], settings[a.DELAY_B], np.uint64(link[a.DRAWS]), number
    )
    head = -1
    for at in range(count - 1, 0, -1):
        cell = counters[a.CELLS_FREE]
        if cell >= 0:
            counters[a.CELLS_FREE] = cells[cell, 1]
            counters[a.CELLS_FREED] -= 1
        else:
            cell = counters[a.CELLS_USED]
            counters[a.CELLS_USED] += 1
        cells[cell, 0] = out[at]
        cells[cell, 1] = head
        head = cell
    packet = counters[a.PACKETS_FREE]
    if packet >= 0:
        counters[a.PACKETS_FREE] = packets[packet, FOLLOWING]
        counters[a.PACKETS_FREED] -= 1
    else:
        packet = counters[a.PACKETS_USED]
        counters[a.PACKETS_USED] += 1
    packets[packet, TIME_US] = depart_us + delay_us + settings[a.PROCESS_US]
    packets[packet, KEY] = packed(link[a.CHILD], node, number)
    packets[packet, a.CONTENT] = (head + 1) << 32 | out[0]
    insert(packets, s.heap, s.buckets, counters, packet)
    _tally_packet(s, node, count, depart_us - settings[a.SERVICE_US] - now_us)
    if settings[a.RECORD] >= ALL:
        packet_event(s, node, now_us, SEND, link[a.CHILD], a.OUT, count)


@inlined
def unpack(s: VCubeArrays, packet: int) -> int:
    """Put the messages of a packet into BATCH and free the packet; return how many there are."""
    counters, cells, batch = s.counters, s.cells, s.scratch[a.BATCH]
    content = s.packets[packet, a.CONTENT]
    batch[0] = content & _LOW_32
    cell = (content >> 32) - 1
    count = 1
    while cell >= 0:
        batch[count] = cells[cell, 0]
        count += 1
        following = cells[cell, 1]
        cells[cell, 1] = counters[a.CELLS_FREE]
        counters[a.CELLS_FREE] = cell
        counters[a.CELLS_FREED] += 1
        cell = following
    s.packets[packet, FOLLOWING] = counters[a.PACKETS_FREE]
    counters[a.PACKETS_FREE] = packet
    counters[a.PACKETS_FREED] += 1
    return count


@inlined
def count_messages(s: VCubeArrays, packet: int) -> int:
    """How many messages a packet carries."""
    count = 1
    cell = (s.packets[packet, a.CONTENT] >> 32) - 1
    while cell >= 0:
        count += 1
        cell = s.cells[cell, 1]
    return count


# Measures


@inlined
def _tally_packet(s: VCubeArrays, node: int, count: int, queued_us: int) -> None:
    tallies = s.tallies
    packet_bytes = PAPER_PACKET_BYTES
    for at in range(count):
        packet_bytes += s.messages[s.scratch[a.OUT, at], a.PAPER_BYTES]
    tallies[a.T_PACKETS] += 1
    tallies[a.T_COPIES] += count
    tallies[a.T_BYTES] += packet_bytes
    tallies[a.T_QUEUED_US] += queued_us
    tallies[a.T_QUEUED_MAX_US] = max(tallies[a.T_QUEUED_MAX_US], queued_us)
    tallies[a.T_BY_BYTES + min(packet_bytes, a.BYTES_MAX)] += 1
    tallies[a.T_BY_MESSAGES + count] += 1
    if count > 1:
        tallies[a.T_AGGREGATED] += 1
        tallies[a.T_AGGREGATED_MESSAGES] += count
    s.nodes[node, a.MESSAGES_MAX] = max(s.nodes[node, a.MESSAGES_MAX], count)


@inlined
def tally_reception(s: VCubeArrays, node: int, message: int, together: int, now_us: int) -> None:
    """A copy of another node's message has arrived, in a packet of `together` messages."""
    tallies = s.tallies
    latency_us = now_us - s.messages[message, a.BROADCAST_US]
    tallies[a.T_RECEIVED] += 1
    tallies[a.T_RECEPTION_US] += latency_us
    tallies[a.T_RECEPTION_MAX_US] = max(tallies[a.T_RECEPTION_MAX_US], latency_us)
    if s.settings[a.TRAIL]:
        s.trail[a.ARRIVED, node, message] = now_us
        s.trail[a.TOGETHER, node, message] = together


@inlined
def tally_delivery(s: VCubeArrays, node: int, message: int, since_us: int, now_us: int) -> None:
    """Another node's message, which arrived at `since_us`, is delivered."""
    tallies = s.tallies
    latency_us = now_us - s.messages[message, a.BROADCAST_US]
    tallies[a.T_DELIVERED] += 1
    tallies[a.T_DELIVERY_US] += latency_us
    tallies[a.T_DELIVERY_MAX_US] = max(tallies[a.T_DELIVERY_MAX_US], latency_us)
    if since_us < now_us:
        tallies[a.T_DELAYED] += 1
        tallies[a.T_HELD_US] += now_us - since_us
        tallies[a.T_HELD_MAX_US] = max(tallies[a.T_HELD_MAX_US], now_us - since_us)
    if s.settings[a.TRAIL]:
        s.trail[a.GIVEN, node, message] = now_us


# Events: one row each, as the simulator's driver writes them


@inlined
def message_event(s: VCubeArrays, node: int, now_us: int, kind: int, message: int) -> None:
    """A message is broadcast or delivered."""
    row = s.events[s.counters[a.EVENTS_USED]]
    s.counters[a.EVENTS_USED] += 1
    row[a.E_NODE], row[a.E_TIME_US], row[a.E_KIND] = node, now_us, kind
    row[a.E_ORIGIN], row[a.E_NUMBER] = s.messages[message, a.ORIGIN], s.messages[message, a.NUMBER]
    row[a.E_PEER], row[a.E_MESSAGES] = -1, 0
    row[a.E_TOTAL_BYTES], row[a.E_CONTROL_BYTES] = s.messages[message, a.PAYLOAD_BYTES], 0


@inlined
def packet_event(
    s: VCubeArrays, node: int, now_us: int, kind: int, peer: int, source: int, count: int
) -> None:
    """A packet with the first `count` messages of a row of the scratch is sent or received."""
    total_bytes = FRAME_BYTES + 1 + array_bytes(count)
    payload_bytes = 0
    for at in range(count):
        message = s.scratch[source, at]
        total_bytes += s.messages[message, a.WIRE_BYTES]
        payload_bytes += s.messages[message, a.PAYLOAD_BYTES]
        s.listed[s.counters[a.LISTED_USED]] = message
        s.counters[a.LISTED_USED] += 1
    message_event(s, node, now_us, kind, s.scratch[source, 0])
    row = s.events[s.counters[a.EVENTS_USED] - 1]
    row[a.E_PEER], row[a.E_MESSAGES] = peer, count
    row[a.E_TOTAL_BYTES], row[a.E_CONTROL_BYTES] = total_bytes, total_bytes - payload_bytes


# VCube's kernel: when a message is passed on, and when it is delivered (protocols/vcube/core.py).


# Pending messages


@inlined
def _pend(s: VCubeArrays, node: int, message: int, now_us: int) -> int:
    counters, pending = s.counters, s.pending
    entry = counters[a.PENDING_FREE]
    if entry >= 0:
        counters[a.PENDING_FREE] = pending[entry, a.P_NEXT]
        counters[a.PENDING_FREED] -= 1
    else:
        entry = counters[a.PENDING_USED]
        counters[a.PENDING_USED] += 1
    pending[entry, a.P_MESSAGE] = message
    pending[entry, a.P_ORDER] = s.nodes[node, a.ARRIVALS]
    pending[entry, a.P_SINCE_US] = now_us
    pending[entry, a.P_LEVEL] = 0
    pending[entry, a.P_HELD] = 0
    if s.settings[a.REPEATED]:
        s.place[node, message] = entry
    return int(entry)


@inlined
def _forget(s: VCubeArrays, node: int, entry: int) -> None:
    """It is neither held nor blocked any more."""
    if s.settings[a.REPEATED]:
        s.place[node, s.pending[entry, a.P_MESSAGE]] = -1
    s.pending[entry, a.P_NEXT] = s.counters[a.PENDING_FREE]
    s.counters[a.PENDING_FREE] = entry
    s.counters[a.PENDING_FREED] += 1


@inlined
def _sort_woken(s: VCubeArrays, count: int, column: int) -> None:
    """Sort WOKEN by a column of `pending`.

    The lists run from the newest to the oldest, so turned around they are nearly in order.
    """
    pending, woken = s.pending, s.scratch[a.WOKEN]
    for at in range(count // 2):
        woken[at], woken[count - 1 - at] = woken[count - 1 - at], woken[at]
    for at in range(1, count):
        entry = woken[at]
        place = at
        while place > 0 and pending[woken[place - 1], column] > pending[entry, column]:
            woken[place] = woken[place - 1]
            place -= 1
        woken[place] = entry


@inlined
def _count(s: VCubeArrays, node: int, origin: int, which: int, number: int) -> None:
    """Whatever a node has RECEIVED or DELIVERED of an origin goes up to a number."""
    s.counts[node, origin, which] = number
    if not s.settings[a.REPEATED]:
        s.lacking[node, which, origin >> 6] &= ~(_ONE << np.uint64(origin & 63))


# CheckAgg (lines 18-21 and 23-28; rules 3 and 4)


@inlined
def check_aggregation(
    s: VCubeArrays, node: int, message: int, has_advanced: bool, now_us: int
) -> tuple[int, int]:
    """Find what the message unblocks: return how many are in FREED, and its own row if it is blocked."""
    origin = s.messages[message, a.ORIGIN]
    top = int(s.heights[node, origin])
    level, member, number = _level(s, node, message)
    entry = -1
    if level:
        entry = _pend(s, node, message, now_us)
        _block(s, node, entry, level, member, number)
    count = 0
    if has_advanced and s.heads[node, origin, a.BLOCKED] >= 0:
        for at in range(_wake_blocked(s, node, origin)):
            each = s.scratch[a.WOKEN, at]
            before = s.pending[each, a.P_LEVEL]
            s.pending[each, a.P_LEVEL] = 0
            s.nodes[node, a.BLOCKED_NOW] -= 1
            level_now, member, number = _level(s, node, s.pending[each, a.P_MESSAGE])
            if level_now < before:
                order = s.pending[each, a.P_ORDER]
                _free(s, count, s.pending[each, a.P_MESSAGE], level_now, before, order)
                count += 1
            if level_now:
                _block(s, node, each, level_now, member, number)
            elif not s.pending[each, a.P_HELD]:
                _forget(s, node, each)
    if level < top:
        _free(s, count, message, level, top, s.nodes[node, a.ARRIVALS])
        count += 1
    return count, entry


@inlined
def _free(s: VCubeArrays, count: int, message: int, low: int, stop: int, order: int) -> None:
    """Add a message to FREED, which is kept in order of arrival."""
    scratch = s.scratch
    place = count
    while place > 0 and scratch[a.FREED_ORDER, place - 1] > order:
        for row in range(a.FREED, a.FREED_ORDER + 1):
            scratch[row, place] = scratch[row, place - 1]
        place -= 1
    scratch[a.FREED, place] = message
    scratch[a.FREED_LOW, place] = low
    scratch[a.FREED_STOP, place] = stop
    scratch[a.FREED_ORDER, place] = order


@inlined
def _block(s: VCubeArrays, node: int, entry: int, level: int, member: int, number: int) -> None:
    s.nodes[node, a.BLOCKED_NOW] += 1
    s.pending[entry, a.P_LEVEL] = level
    s.pending[entry, a.P_MEMBER] = member
    s.pending[entry, a.P_COUNT] = number
    s.pending[entry, a.P_NEXT] = s.heads[node, member, a.BLOCKED]
    s.heads[node, member, a.BLOCKED] = entry


@inlined
def _wake_blocked(s: VCubeArrays, node: int, origin: int) -> int:
    """Take out into WOKEN whose watched dependency has arrived; return how many."""
    pending, heads = s.pending, s.heads[node, origin]
    have = s.counts[node, origin, a.RECEIVED]
    entry = int(heads[a.BLOCKED])
    heads[a.BLOCKED] = -1
    count = 0
    while entry >= 0:
        following = pending[entry, a.P_NEXT]
        if pending[entry, a.P_COUNT] <= have:
            s.scratch[a.WOKEN, count] = entry
            count += 1
        else:
            pending[entry, a.P_NEXT] = heads[a.BLOCKED]
            heads[a.BLOCKED] = entry
        entry = following
    # By message, that is by (origin, number): a level builds on that of the message before.
    _sort_woken(s, count, a.P_MESSAGE if s.settings[a.REPEATED] else a.P_ORDER)
    return count


@inlined
def _level(s: VCubeArrays, node: int, message: int) -> tuple[int, int, int]:
    """B(p), as far as it concerns p's own children, and the dependency that sets it."""
    heights, counts, dependencies = s.heights[node], s.counts[node], s.dependencies
    origin = s.messages[message, a.ORIGIN]
    top = int(heights[origin])
    if top == 0:
        return 0, -1, -1
    previous = s.messages[message, a.NUMBER] - 1
    if counts[origin, a.RECEIVED] < previous:
        return top, int(origin), int(previous)
    if not s.settings[a.REPEATED]:
        return _level_once(s, node, message, top)
    level, member, number = 0, -1, -1
    if previous > 0:
        entry = int(s.place[node, message - 1])
        if entry >= 0 and s.pending[entry, a.P_LEVEL] > 0:
            level = int(s.pending[entry, a.P_LEVEL])
            member, number = int(s.pending[entry, a.P_MEMBER]), int(s.pending[entry, a.P_COUNT])
    start = s.messages[message, a.FIRST_DEPENDENCY]
    for at in range(start, start + s.messages[message, a.DEPENDENCIES]):
        other = int(dependencies[at, 0])
        height = int(heights[other])
        if height > level and counts[other, a.RECEIVED] < dependencies[at, 1]:
            level, member, number = min(height, top), other, int(dependencies[at, 1])
            if level == top:
                break
    return level, member, number


@inlined
def _level_once(s: VCubeArrays, node: int, message: int, top: int) -> tuple[int, int, int]:
    """As `_level`, where nobody broadcasts twice: only dependencies that have not arrived are looked at."""
    level, member, number = 0, -1, -1
    for word in range(s.wanted.shape[1]):
        left = s.wanted[message, word] & s.lacking[node, a.RECEIVED, word]
        while left and level < top:
            other = 64 * word + int(trailing_zeros(left))
            left &= left - _ONE
            height = int(s.heights[node, other])
            if height > level:
                level, member, number = min(height, top), other, 1
    return level, member, number


# CheckDelivery (lines 29-33; rule 5)


@inlined
def check_delivery(s: VCubeArrays, node: int, message: int, entry: int, now_us: int) -> None:
    """Deliver the message and all that waited for it, to a fixed point; or hold it."""
    pending, scratch = s.pending, s.scratch
    member, number = _obstacle(s, node, message)
    if member >= 0:
        if entry < 0:
            entry = _pend(s, node, message, now_us)
        s.nodes[node, a.HELD_NOW] += 1
        _hold(s, node, entry, member, number)
        return
    scratch[a.READY, 0] = message
    scratch[a.READY_ENTRY, 0] = entry
    count = 1
    at = 0
    while at < count:
        each, entry = scratch[a.READY, at], scratch[a.READY_ENTRY, at]
        at += 1
        since_us = now_us
        if entry >= 0:
            since_us = pending[entry, a.P_SINCE_US]
            s.nodes[node, a.HELD_NOW] -= pending[entry, a.P_HELD]
            pending[entry, a.P_HELD] = 0
            if pending[entry, a.P_LEVEL] == 0:
                _forget(s, node, entry)
        origin = s.messages[each, a.ORIGIN]
        _count(s, node, origin, a.DELIVERED, s.messages[each, a.NUMBER])
        tally_delivery(s, node, each, since_us, now_us)
        if s.settings[a.RECORD] >= DELIVERIES:
            message_event(s, node, now_us, DELIVER, each)
        if s.heads[node, origin, a.HELD] < 0:
            continue
        for place in range(_wake_held(s, node, origin)):
            waiting = scratch[a.WOKEN, place]
            member, number = _obstacle(s, node, pending[waiting, a.P_MESSAGE])
            if member >= 0:
                _hold(s, node, waiting, member, number)
            else:
                scratch[a.READY, count] = pending[waiting, a.P_MESSAGE]
                scratch[a.READY_ENTRY, count] = waiting
                count += 1


@inlined
def _hold(s: VCubeArrays, node: int, entry: int, member: int, number: int) -> None:
    s.pending[entry, a.P_HELD] = 1
    s.pending[entry, a.P_AFTER] = number
    s.pending[entry, a.P_NEXT_HELD] = s.heads[node, member, a.HELD]
    s.heads[node, member, a.HELD] = entry


@inlined
def _wake_held(s: VCubeArrays, node: int, origin: int) -> int:
    """Take out into WOKEN, in order of arrival, what waited for this origin's newest delivery."""
    pending, heads = s.pending, s.heads[node, origin]
    have = s.counts[node, origin, a.DELIVERED]
    entry = int(heads[a.HELD])
    heads[a.HELD] = -1
    count = 0
    while entry >= 0:
        following = pending[entry, a.P_NEXT_HELD]
        if pending[entry, a.P_AFTER] <= have:
            s.scratch[a.WOKEN, count] = entry
            count += 1
        else:
            pending[entry, a.P_NEXT_HELD] = heads[a.HELD]
            heads[a.HELD] = entry
        entry = following
    _sort_woken(s, count, a.P_ORDER)
    return count


@inlined
def _obstacle(s: VCubeArrays, node: int, message: int) -> tuple[int, int]:
    """The first predecessor that is not delivered at the node."""
    if not s.settings[a.REPEATED]:
        for word in range(s.wanted.shape[1]):
            left = s.wanted[message, word] & s.lacking[node, a.DELIVERED, word]
            if left:
                return 64 * word + int(trailing_zeros(left)), 1
        return -1, -1
    counts, dependencies = s.counts[node], s.dependencies
    origin, previous = s.messages[message, a.ORIGIN], s.messages[message, a.NUMBER] - 1
    if counts[origin, a.DELIVERED] < previous:
        return int(origin), int(previous)
    start = s.messages[message, a.FIRST_DEPENDENCY]
    for at in range(start, start + s.messages[message, a.DEPENDENCIES]):
        if counts[dependencies[at, 0], a.DELIVERED] < dependencies[at, 1]:
            return int(dependencies[at, 0]), int(dependencies[at, 1])
    return -1, -1


@inner
def _advance(s: VCubeArrays) -> int:
    settings, counters = s.settings, s.counters
    end_us, total = settings[a.END_US], s.starts.shape[0]
    while True:
        packet = first(s.packets, s.heap, s.buckets, counters)
        at = counters[a.BROADCASTS]
        is_broadcast = at < total and (packet < 0 or s.starts[at, 0] < s.packets[packet, TIME_US])
        if not is_broadcast and packet < 0:
            return a.DONE
        now_us = s.starts[at, 0] if is_broadcast else s.packets[packet, TIME_US]
        if now_us >= end_us:
            return a.DONE
        needed = _missing_room(s, is_broadcast, packet)
        if needed != a.DONE:
            return needed
        counters[a.FINAL_US] = now_us
        counters[a.STEPS] += 1
        if is_broadcast:
            counters[a.BROADCASTS] += 1
            _broadcast(s, s.starts[at, 1], now_us)
        else:
            _receive(s, packet, now_us)


@inlined
def _missing_room(s: VCubeArrays, is_broadcast: bool, packet: int) -> int:
    """A step begins only if there is room for all that it can need; return what must grow first.

    Each message that is blocked or arrives can go to each child in a packet of its own, and each that
    is held or arrives can be delivered.
    """
    counters = s.counters
    moving, taken, held = 1, 0, 1
    if not is_broadcast:
        node = receiver_of(s.packets[packet, KEY])
        taken = count_messages(s, packet)
        moving = taken + s.nodes[node, a.BLOCKED_NOW]
        held = taken + s.nodes[node, a.HELD_NOW]
    copies = moving * s.links.shape[1]
    if len(s.packets) - counters[a.PACKETS_USED] + counters[a.PACKETS_FREED] < copies:
        return a.MORE_PACKETS
    if len(s.cells) - counters[a.CELLS_USED] + counters[a.CELLS_FREED] < copies:
        return a.MORE_CELLS
    if len(s.pending) - counters[a.PENDING_USED] + counters[a.PENDING_FREED] < taken:
        return a.MORE_PENDING
    if is_broadcast and len(s.dependencies) - counters[a.DEPENDENCIES_USED] < len(s.heights):
        return a.MORE_DEPENDENCIES
    if s.settings[a.RECORD] >= DELIVERIES and (
        len(s.events) - counters[a.EVENTS_USED] < 1 + copies + held
        or len(s.listed) - counters[a.LISTED_USED] < taken + copies
    ):
        return a.MORE_EVENTS
    return a.DONE


# Broadcast (lines 5-12; rule 1)


@inlined
def _broadcast(s: VCubeArrays, message: int, now_us: int) -> None:
    node, number = s.messages[message, a.ORIGIN], s.messages[message, a.NUMBER]
    s.messages[message, a.BROADCAST_US] = now_us
    _depend(s, node, message)
    _count(s, node, node, a.DELIVERED, number)
    if s.settings[a.RECORD] >= DELIVERIES:
        message_event(s, node, now_us, BROADCAST, message)
    root, to_root = s.settings[a.ROOT], s.links.shape[1] - 1
    scratch = s.scratch
    scratch[a.FREED, 0] = message
    if root < 0 or root == node:
        _count(s, node, node, a.RECEIVED, number)
        if s.settings[a.REPEATED]:
            s.known[node, message] = True
        scratch[a.FREED_LOW, 0] = 0
        scratch[a.FREED_STOP, 0] = s.heights[node, node]
    else:
        scratch[a.FREED_LOW, 0] = to_root
        scratch[a.FREED_STOP, 0] = to_root + 1
    send_freed(s, node, 1, now_us)
    if s.settings[a.TRAIL]:
        s.trail[a.GIVEN, node, message] = now_us
    if s.settings[a.RECORD] >= DELIVERIES:
        message_event(s, node, now_us, DELIVER, message)


@inlined
def _depend(s: VCubeArrays, node: int, message: int) -> None:
    """The message's dependencies, what was delivered since the node's previous one, and its size."""
    messages, dependencies = s.messages, s.dependencies
    is_repeated = s.settings[a.REPEATED] != 0
    start = s.counters[a.DEPENDENCIES_USED]
    count = 0
    wire_bytes = array_bytes(4) + uint_bytes(node) + uint_bytes(messages[message, a.NUMBER])
    for member in range(s.heights.shape[0]):
        delivered = int(s.counts[node, member, a.DELIVERED])
        if member == node or delivered <= (int(s.reported[node, member]) if is_repeated else 0):
            continue
        dependencies[start + count, 0] = member
        dependencies[start + count, 1] = delivered
        count += 1
        wire_bytes += uint_bytes(member) + uint_bytes(delivered)
        if is_repeated:
            s.reported[node, member] = delivered
        else:
            s.wanted[message, member >> 6] |= _ONE << np.uint64(member & 63)
    s.counters[a.DEPENDENCIES_USED] += count
    payload_bytes = messages[message, a.PAYLOAD_BYTES]
    messages[message, a.FIRST_DEPENDENCY] = start
    messages[message, a.DEPENDENCIES] = count
    messages[message, a.PAPER_BYTES] = payload_bytes + PAPER_ENTRY_BYTES * (count + 1)
    wire_bytes += array_bytes(2 * count) + binary_bytes(payload_bytes) + payload_bytes
    messages[message, a.WIRE_BYTES] = wire_bytes


# Receive (lines 13-22; rule 2)


@inlined
def _receive(s: VCubeArrays, packet: int, now_us: int) -> None:
    key = s.packets[packet, KEY]
    node = receiver_of(key)
    remove_first(s.packets, s.heap, s.counters)
    count = unpack(s, packet)
    if s.settings[a.RECORD] >= ALL:
        packet_event(s, node, now_us, RECEIVE, sender_of(key), a.BATCH, count)
    for at in range(count):
        _take(s, node, s.scratch[a.BATCH, at], count, now_us)
    s.nodes[node, a.HELD_PEAK] = max(s.nodes[node, a.HELD_PEAK], s.nodes[node, a.HELD_NOW])


@inlined
def _take(s: VCubeArrays, node: int, message: int, together: int, now_us: int) -> None:
    """A first copy (the network of this model makes no others)."""
    origin, number = s.messages[message, a.ORIGIN], s.messages[message, a.NUMBER]
    if origin != node:
        tally_reception(s, node, message, together, now_us)
    s.nodes[node, a.ARRIVALS] += 1
    has_advanced = s.counts[node, origin, a.RECEIVED] == number - 1
    newest = number
    if s.settings[a.REPEATED]:
        s.known[node, message] = True
        base, end = s.base[origin], s.base[origin + 1]
        while base + newest < end and s.known[node, base + newest]:
            newest += 1
    if has_advanced:
        _count(s, node, origin, a.RECEIVED, newest)
    count, entry = 0, -1
    if s.settings[a.AGGREGATE]:
        count, entry = check_aggregation(s, node, message, has_advanced, now_us)
    elif s.heights[node, origin] > 0:
        s.scratch[a.FREED, 0] = message
        s.scratch[a.FREED_LOW, 0] = 0
        s.scratch[a.FREED_STOP, 0] = s.heights[node, origin]
        count = 1
    if count > 0:
        send_freed(s, node, count, now_us)
    if origin != node:
        check_delivery(s, node, message, entry, now_us)


def _entry(sources: int) -> Callable[[VCubeArrays], int]:
    def advance(s: VCubeArrays) -> int:
        return _advance(s) if sources != 0 else a.DONE  # `sources` must be used to be in the closure

    return cached(advance)


# Run until all is done, or until something must grow; then it goes on where it stopped.
advance = _entry(fingerprint())
