"""VCube's kernel: what a packet costs, when it arrives (sim/network.py), what is measured and recorded."""

from __future__ import annotations

import numpy as np

from whence.core.sizes import FRAME_BYTES
from whence.kernels import vcube_arrays as a
from whence.kernels.calendar import FOLLOWING, KEY, TIME_US, insert, packed
from whence.kernels.compile import inlined
from whence.kernels.rng import draw
from whence.kernels.vcube_arrays import State
from whence.protocols.vcube_wire import PAPER_PACKET_BYTES
from whence.trace.schema import Kind, Level

# Plain numbers, which numba takes as constants
BROADCAST, SEND, RECEIVE, DELIVER = (
    int(kind) for kind in (Kind.BROADCAST, Kind.SEND, Kind.RECEIVE, Kind.DELIVER)
)
DELIVERIES, ALL = int(Level.DELIVERIES), int(Level.ALL)

_LOW_32 = 0xFFFFFFFF


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
def send_freed(s: State, node: int, count: int, now_us: int) -> None:
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
                _ship(s, node, level, taken, now_us)
                taken = taken_bytes = 0
            if message >= 0:
                scratch[a.OUT, taken] = message
                taken += 1
                taken_bytes += more_bytes


@inlined
def _ship(s: State, node: int, level: int, count: int, now_us: int) -> None:
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
def unpack(s: State, packet: int) -> int:
    """Put the messages of a packet into BATCH and free the packet; answers how many there are."""
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
def count_messages(s: State, packet: int) -> int:
    """How many messages a packet carries."""
    count = 1
    cell = (s.packets[packet, a.CONTENT] >> 32) - 1
    while cell >= 0:
        count += 1
        cell = s.cells[cell, 1]
    return count


# Measures


@inlined
def _tally_packet(s: State, node: int, count: int, queued_us: int) -> None:
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
def tally_reception(s: State, node: int, message: int, together: int, now_us: int) -> None:
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
def tally_delivery(s: State, node: int, message: int, since_us: int, now_us: int) -> None:
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
def message_event(s: State, node: int, now_us: int, kind: int, message: int) -> None:
    """A message is broadcast or delivered."""
    row = s.events[s.counters[a.EVENTS_USED]]
    s.counters[a.EVENTS_USED] += 1
    row[a.E_NODE], row[a.E_TIME_US], row[a.E_KIND] = node, now_us, kind
    row[a.E_ORIGIN], row[a.E_NUMBER] = s.messages[message, a.ORIGIN], s.messages[message, a.NUMBER]
    row[a.E_PEER], row[a.E_MESSAGES] = -1, 0
    row[a.E_TOTAL_BYTES], row[a.E_CONTROL_BYTES] = s.messages[message, a.PAYLOAD_BYTES], 0


@inlined
def packet_event(s: State, node: int, now_us: int, kind: int, peer: int, source: int, count: int) -> None:
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
