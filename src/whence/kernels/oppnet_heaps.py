"""The heaps of oppnet's kernel: one of events, and one of messages for each direction of a contact."""

from __future__ import annotations

from whence.kernels import oppnet_arrays as a
from whence.kernels.compile import bare, inlined
from whence.kernels.oppnet_arrays import State
from whence.kernels.rng import bits

NODE_BITS = 20  # of an event's key: kind, node, source


# The heap of events


@inlined
def _is_before(s: State, one: int, other: int) -> bool:
    heap = s.heap
    if heap[one, a.TIME_US] != heap[other, a.TIME_US]:
        return bool(heap[one, a.TIME_US] < heap[other, a.TIME_US])
    return bool(heap[one, a.KEY] < heap[other, a.KEY])


@inlined
def _swap(s: State, one: int, other: int) -> None:
    for column in range(a.EVENT_COLUMNS):
        kept = s.heap[one, column]
        s.heap[one, column] = s.heap[other, column]
        s.heap[other, column] = kept


@bare
def push(s: State, time_us: int, kind: int, node: int, source: int, data: int, further: int) -> None:
    """Put an event on the heap."""
    at = s.counters[a.HEAPED]
    s.counters[a.HEAPED] += 1
    s.heap[at, a.TIME_US] = time_us
    s.heap[at, a.KEY] = (kind << NODE_BITS | node) << NODE_BITS | source
    s.heap[at, a.DATA] = data
    s.heap[at, a.FURTHER] = further
    while at > 0:
        parent = (at - 1) // 2
        if not _is_before(s, at, parent):
            break
        _swap(s, at, parent)
        at = parent


@bare
def drop_first(s: State) -> None:
    """Take the first event away."""
    size = s.counters[a.HEAPED] - 1
    s.counters[a.HEAPED] = size
    for column in range(a.EVENT_COLUMNS):
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
def put(s: State, direction: int, message: int) -> None:
    """Queue a message, at its random place."""
    origin = s.messages[message, a.ORIGIN]
    place = bits(s.keys[direction] ^ s.hashes[origin], s.messages[message, a.NUMBER])
    row, at = s.directions[direction, a.ROW], s.directions[direction, a.QUEUED]
    s.directions[direction, a.QUEUED] = at + 1
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
def take(s: State, direction: int) -> int:
    """Take the first message out of a queue that is not empty."""
    row, size = s.directions[direction, a.ROW], s.directions[direction, a.QUEUED] - 1
    s.directions[direction, a.QUEUED] = size
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
