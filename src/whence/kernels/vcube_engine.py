"""VCube's kernel: the simulation engine and all nodes in one compiled function.

The rules are those of protocols/vcube.py, in the same order; sim/engine.py and sim/network.py say
when what happens. Nothing here is a decision: tests/equivalence/test_vcube_kernel.py holds every
event to the core's.
"""

from __future__ import annotations

from collections.abc import Callable

from whence.kernels import vcube_arrays as a
from whence.kernels.calendar import KEY, TIME_US, first, receiver_of, remove_first, sender_of
from whence.kernels.compile import bare, cached, fingerprint, inlined
from whence.kernels.vcube_arrays import State
from whence.kernels.vcube_network import (
    ALL,
    BROADCAST,
    DELIVER,
    DELIVERIES,
    RECEIVE,
    array_bytes,
    binary_bytes,
    count_messages,
    message_event,
    packet_event,
    send_freed,
    tally_reception,
    uint_bytes,
    unpack,
)
from whence.kernels.vcube_rules import check_aggregation, check_delivery
from whence.protocols.vcube_wire import PAPER_ENTRY_BYTES


@bare
def _advance(s: State) -> int:
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
def _missing_room(s: State, is_broadcast: bool, packet: int) -> int:
    """A step begins only if there is room for whatever it can need; answers what must grow first.

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
def _broadcast(s: State, message: int, now_us: int) -> None:
    node, number = s.messages[message, a.ORIGIN], s.messages[message, a.NUMBER]
    s.messages[message, a.BROADCAST_US] = now_us
    _depend(s, node, message)
    s.counts[node, node, a.DELIVERED] = number
    if s.settings[a.RECORD] >= DELIVERIES:
        message_event(s, node, now_us, BROADCAST, message)
    root, to_root = s.settings[a.ROOT], s.links.shape[1] - 1
    scratch = s.scratch
    scratch[a.FREED, 0] = message
    if root < 0 or root == node:
        s.counts[node, node, a.RECEIVED] = number
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
def _depend(s: State, node: int, message: int) -> None:
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
    s.counters[a.DEPENDENCIES_USED] += count
    payload_bytes = messages[message, a.PAYLOAD_BYTES]
    messages[message, a.FIRST_DEPENDENCY] = start
    messages[message, a.DEPENDENCIES] = count
    messages[message, a.PAPER_BYTES] = payload_bytes + PAPER_ENTRY_BYTES * (count + 1)
    wire_bytes += array_bytes(2 * count) + binary_bytes(payload_bytes) + payload_bytes
    messages[message, a.WIRE_BYTES] = wire_bytes


# Receive (lines 13-22; rule 2)


@inlined
def _receive(s: State, packet: int, now_us: int) -> None:
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
def _take(s: State, node: int, message: int, together: int, now_us: int) -> None:
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
        s.counts[node, origin, a.RECEIVED] = newest
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


def _entry(sources: int) -> Callable[[State], int]:
    def advance(s: State) -> int:
        return _advance(s) if sources != 0 else a.DONE  # `sources` must be used to be in the closure

    return cached(advance)


# Run until all is done, or until something must grow; then it goes on where it stopped.
advance = _entry(fingerprint())
