"""What a node of the kernel of TDCA and ODCA keeps: the queue, the heaps, the store, and the run's events.

As in `protocols/deadline_state.py`, under the same names.
"""

from __future__ import annotations

from whence.kernels import deadline_arrays as a
from whence.kernels.compile import Array, inner
from whence.kernels.deadline_arrays import State


@inner
def log(s: State, time_us: int, kind: int, node: int, message: int) -> None:
    """Write an event down."""
    at = s.counters[a.EVENTS_USED]
    if at >= len(s.events):
        s.counters[a.OVERFLOWS] += 1
        return
    s.counters[a.EVENTS_USED] = at + 1
    s.events[at, a.E_TIME_US] = time_us
    s.events[at, a.E_KIND] = kind
    s.events[at, a.E_NODE] = node
    s.events[at, a.E_MESSAGE] = message


# Heaps of numbers, one per node


@inner
def push(heap: Array, size: int, value: int) -> None:
    """Add a value to a heap that has room."""
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if heap[parent] <= value:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = value


@inner
def pop(heap: Array, size: int) -> None:
    """Take the smallest value away."""
    last = size - 1
    value = heap[last]
    at = 0
    while 2 * at + 1 < last:
        child = 2 * at + 1
        if child + 1 < last and heap[child + 1] < heap[child]:
            child += 1
        if value <= heap[child]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = value


@inner
def push_due(s: State, node: int, when_us: int, what: int, message: int) -> None:
    """Something is due at `when_us`."""
    size = s.nodes[node, a.DUE_COUNT]
    if size >= s.due.shape[1]:
        s.counters[a.OVERFLOWS] += 1
        return
    push(s.due[node], size, when_us << a.DUE_BITS | what << a.MESSAGE_BITS | message)
    s.nodes[node, a.DUE_COUNT] = size + 1


@inner
def pop_due(s: State, node: int) -> None:
    """Take away what is due first."""
    pop(s.due[node], s.nodes[node, a.DUE_COUNT])
    s.nodes[node, a.DUE_COUNT] -= 1


# The queue


@inner
def _place(s: State, node: int, message: int) -> int:
    """Where a message stands in the queue, or would: by stamp, then by name."""
    low, high = 0, s.nodes[node, a.QUEUED_COUNT]
    stamp = s.messages[message, a.STAMP]
    while low < high:
        middle = (low + high) // 2
        other = s.order[node, middle]
        its = s.messages[other, a.STAMP]
        if its < stamp or (its == stamp and other < message):
            low = middle + 1
        else:
            high = middle
    return int(low)


@inner
def enqueue(s: State, node: int, message: int) -> None:
    """Put a message into the queue."""
    place, count = _place(s, node, message), s.nodes[node, a.QUEUED_COUNT]
    for at in range(count, place, -1):
        s.order[node, at] = s.order[node, at - 1]
    s.order[node, place] = message
    s.nodes[node, a.QUEUED_COUNT] = count + 1
    s.nodes[node, a.USED_BYTES] += s.messages[message, a.PAYLOAD_BYTES]
    s.flags[node, message] |= a.QUEUED


@inner
def dequeue(s: State, node: int, message: int) -> None:
    """Take a message out of the queue."""
    place, count = _place(s, node, message), s.nodes[node, a.QUEUED_COUNT] - 1
    for at in range(place, count):
        s.order[node, at] = s.order[node, at + 1]
    s.nodes[node, a.QUEUED_COUNT] = count
    s.nodes[node, a.USED_BYTES] -= s.messages[message, a.PAYLOAD_BYTES]
    s.flags[node, message] &= ~a.QUEUED


@inner
def is_ready(s: State, node: int, message: int) -> bool:
    """Whether nothing before it is to be waited for; else remembers a member that holds it back."""
    blocker = s.blocker[node, message]
    if s.after[message, blocker] > s.frontier[node, blocker]:
        return False
    for member in range(len(s.nodes)):
        if s.after[message, member] > s.frontier[node, member]:
            s.blocker[node, message] = member
            return False
    return True


@inner
def is_missing(s: State, node: int, message: int) -> bool:
    """Whether it may still come and be of use."""
    origin, number = s.messages[message, a.ORIGIN], s.messages[message, a.NUMBER]
    return bool(number > s.frontier[node, origin] and not s.flags[node, message] & (a.QUEUED | a.RESOLVED))


@inner
def is_late(s: State, message: int, now_us: int) -> bool:
    """Whether its deadline has passed."""
    return bool(now_us + s.settings[a.CLOCK_ERROR_US] > s.messages[message, a.DEADLINE_US])


# The store


@inner
def drop(s: State, node: int) -> None:
    """Forget the stored message with the least time left."""
    message = s.stored[node, 0] & ((1 << a.MESSAGE_BITS) - 1)
    pop(s.stored[node], s.nodes[node, a.STORED_COUNT])
    s.nodes[node, a.STORED_COUNT] -= 1
    s.nodes[node, a.USED_BYTES] -= s.messages[message, a.PAYLOAD_BYTES]
    s.flags[node, message] &= ~a.STORED


@inner
def make_room(s: State, node: int, size_bytes: int) -> bool:
    """Drop stored messages until there is room for so many bytes, or none is left."""
    limit_bytes = s.settings[a.BUFFER_BYTES] - size_bytes
    while s.nodes[node, a.USED_BYTES] > limit_bytes and s.nodes[node, a.STORED_COUNT]:
        drop(s, node)
    return bool(s.nodes[node, a.USED_BYTES] <= limit_bytes)


@inner
def keep(s: State, node: int, message: int) -> None:
    """Store an own or delivered message for others."""
    payload_bytes = s.messages[message, a.PAYLOAD_BYTES]
    if s.settings[a.KEEPS] and make_room(s, node, payload_bytes):
        size = s.nodes[node, a.STORED_COUNT]
        push(s.stored[node], size, s.messages[message, a.DEADLINE_US] << a.MESSAGE_BITS | message)
        s.nodes[node, a.STORED_COUNT] = size + 1
        s.nodes[node, a.USED_BYTES] += payload_bytes
        s.flags[node, message] |= a.STORED
