"""The packets in flight, in the engine's order, without a heap of millions.

A calendar: time is cut into buckets of equal width, each a linked list; the bucket that is being
worked off is a small binary heap by (time, key). What belongs to a bucket that has been reached goes
straight into the heap, and the last bucket takes everything beyond, so the order is right however
badly the width was guessed; the guess only decides the speed.

A packet is a row of `packets` (int64), of which the columns below belong to the calendar. KEY packs
what breaks ties in the engine: receiver, sender, number on the link. `heap` has room for every packet;
`counters` keeps the state.
"""

from __future__ import annotations

from whence.kernels.compile import Array, inlined

TIME_US, KEY, FOLLOWING = 0, 1, 2  # columns of `packets`; FOLLOWING: the next one of the same list
IN_FLIGHT, REACHED, HEAPED, WIDTH_US = 0, 1, 2, 3  # places in `counters`

NODE_BITS = 16
NUMBER_BITS = 63 - 2 * NODE_BITS
NODES_MAX = 1 << NODE_BITS


@inlined
def packed(receiver: int, sender: int, number: int) -> int:
    """The key of a packet."""
    return receiver << (NUMBER_BITS + NODE_BITS) | sender << NUMBER_BITS | number


@inlined
def receiver_of(key: int) -> int:
    """The receiver in a key."""
    return key >> (NUMBER_BITS + NODE_BITS)


@inlined
def sender_of(key: int) -> int:
    """The sender in a key."""
    return key >> NUMBER_BITS & (NODES_MAX - 1)


@inlined
def insert(packets: Array, heap: Array, buckets: Array, counters: Array, packet: int) -> None:
    """Add a packet whose time and key are set."""
    counters[IN_FLIGHT] += 1
    bucket = min(packets[packet, TIME_US] // counters[WIDTH_US], buckets.shape[0] - 1)
    if bucket <= counters[REACHED]:
        _push(packets, heap, counters, packet)
    else:
        packets[packet, FOLLOWING] = buckets[bucket]
        buckets[bucket] = packet


@inlined
def first(packets: Array, heap: Array, buckets: Array, counters: Array) -> int:
    """The packet that arrives next; -1 if none is in flight."""
    if counters[IN_FLIGHT] == 0:
        return -1
    while counters[HEAPED] == 0:
        counters[REACHED] += 1
        packet = int(buckets[counters[REACHED]])
        while packet >= 0:
            following = packets[packet, FOLLOWING]
            _push(packets, heap, counters, packet)
            packet = following
    return int(heap[0])


@inlined
def remove_first(packets: Array, heap: Array, counters: Array) -> None:
    """Take away the packet that `first` has just answered."""
    counters[IN_FLIGHT] -= 1
    counters[HEAPED] -= 1
    size = counters[HEAPED]
    moved = int(heap[size])
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        one = int(heap[child])
        if child + 1 < size:
            other = int(heap[child + 1])
            if _is_before(packets, other, one):
                child, one = child + 1, other
        if _is_before(packets, moved, one):
            break
        heap[at] = one
        at = child
    heap[at] = moved


@inlined
def _push(packets: Array, heap: Array, counters: Array, packet: int) -> None:
    at = counters[HEAPED]
    counters[HEAPED] += 1
    while at > 0:
        parent = (at - 1) // 2
        other = int(heap[parent])
        if _is_before(packets, other, packet):
            break
        heap[at] = other
        at = parent
    heap[at] = packet


@inlined
def _is_before(packets: Array, one: int, other: int) -> bool:
    left, right = packets[one, TIME_US], packets[other, TIME_US]
    return bool(left < right or (left == right and packets[one, KEY] < packets[other, KEY]))
