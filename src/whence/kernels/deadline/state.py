"""The arrays that the kernel of TDCA and ODCA works on, and the names of their columns.

N nodes, M messages. A node is named by its place, which is also its place among the members; a message by its
place when messages are sorted by (origin, number), so that places compare as those do.
"""

from __future__ import annotations

from typing import NamedTuple

from whence.kernels.compile import Array, inner

# settings: what the run is given; the options are those of protocols/deadline/tdca.py and deadline_pull.py
END_US = 0  # nothing happens then or later
KEEPS = 1  # ODCA: messages are stored for others
EXACT = 2  # pull = "exact"
DEADLINES, COPIES, MARGIN_US, CLOCK_ERROR_US, BUFFER_BYTES = 3, 4, 5, 6, 7
RETRY_US, PULLS, REPLY_BYTES = 8, 9, 10
SEPARATE = 11  # control packets have a path of their own
DELAY_KIND, DELAY_A, DELAY_B = 12, 13, 14  # of the common path; those of the control path are 3 further on
SETTINGS = 18

# messages
ORIGIN, NUMBER, STAMP, DEADLINE_US, PAYLOAD_BYTES, BROADCAST_US, LIFETIME_US = range(7)
MESSAGE_COLUMNS = 7
# nodes
GREATEST_STAMP, USED_BYTES, QUEUED_COUNT, DUE_COUNT, STORED_COUNT, MOVED = range(6)
ARMED_US, FIRES_US = 6, 7  # what the core's timer is set to, and when the engine lets it fire
NODE_COLUMNS = 8
# links
DELAY_DRAWS, LOSS_DRAWS, EXTRA_US, SENT_COUNT = range(4)
LINK_COLUMNS = 4
# packets: the calendar has the first three columns
KIND, CONTENT, LENGTH = 3, 4, 5  # CONTENT: the message, or where its part of the pool begins
PACKET_COLUMNS = 6
MESSAGE, WINDOW, WANTS, REPLY = range(4)  # kinds; a solicitation is WINDOW or WANTS
# events, in their order
E_TIME_US, E_KIND, E_NODE, E_MESSAGE = range(4)
EVENT_COLUMNS = 4
BROADCAST, DELIVER, EXPIRED, OVERTAKEN = range(4)  # kinds

# flags: what a node knows of a message
QUEUED = 1
CAME = 2  # resolved, and it had come (late)
LAPSED = 4  # resolved by its deadline alone
HOLE = 8  # up to V, and it never came
STORED = 16
RESOLVED = CAME | LAPSED

# due: when << 22 | what << 20 | message, so that entries compare as the core's tuples do
LAPSE, RETRY, FORCE = 0, 1, 2
MESSAGE_BITS, DUE_BITS = 20, 22

# counters; the calendar has the first four
PACKETS_USED, POOL_USED, EVENTS_USED, STARTED, QUESTIONS = range(4, 9)
OVERFLOWS = 9  # something had no room: the run is to be repeated with more
SENT, CONTROL, LOST, DUPLICATES, NO_ROOM, EXPIRIES, OVERTAKINGS = range(10, 17)
COUNTERS = 17

NEVER_US = 1 << 62


class DeadlineArrays(NamedTuple):
    """All of it. Numbers have 64 bits unless it says otherwise: each further type would compile each function
    that is given both once more."""

    settings: Array
    messages: Array  # [M, MESSAGE_COLUMNS]
    first: Array  # [N + 1]: the place of each member's message 1
    starts: Array  # [M]: messages in the order in which they are broadcast
    after: Array  # [M, N]
    left: Array  # [M, N], or [1, 1] without `deadlines`
    accepted: Array  # [N, N]: V
    frontier: Array  # [N, N]: W
    ends_us: Array  # [N, N]
    flags: Array  # [N, M] uint8
    blocker: Array  # [N, M]: a member whose frontier held it back
    asked: Array  # [N, M]: how often it was asked for
    lapse_us: Array  # [N, M]: the last LAPSE that was put on the heap
    nodes: Array  # [N, NODE_COLUMNS]
    order: Array  # [N, M]: Q in stamp order
    due: Array  # [N, room]: heaps
    stored: Array  # [N, room]: heaps of deadline << 20 | message
    links: Array  # [2, N, N, LINK_COLUMNS]: the common path and the control path
    loss: Array  # [2, N, N] float64
    packets: Array
    heap: Array  # of the calendar
    buckets: Array
    pool: Array  # what solicitations and replies hold
    events: Array
    chosen: Array  # [M]: scratch
    question_to: Array  # [2 M]: what is to be asked in this step: of whom
    question_for: Array  # [2 M]: and for which message
    counters: Array


# What a node keeps (as in `protocols/deadline/tdca.py`, under the same names), and the run's events


@inner
def log(s: DeadlineArrays, time_us: int, kind: int, node: int, message: int) -> None:
    """Write an event down."""
    at = s.counters[EVENTS_USED]
    if at >= len(s.events):
        s.counters[OVERFLOWS] += 1
        return
    s.counters[EVENTS_USED] = at + 1
    s.events[at, E_TIME_US] = time_us
    s.events[at, E_KIND] = kind
    s.events[at, E_NODE] = node
    s.events[at, E_MESSAGE] = message


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
def push_due(s: DeadlineArrays, node: int, when_us: int, what: int, message: int) -> None:
    """Something is due at `when_us`."""
    size = s.nodes[node, DUE_COUNT]
    if size >= s.due.shape[1]:
        s.counters[OVERFLOWS] += 1
        return
    push(s.due[node], size, when_us << DUE_BITS | what << MESSAGE_BITS | message)
    s.nodes[node, DUE_COUNT] = size + 1


@inner
def pop_due(s: DeadlineArrays, node: int) -> None:
    """Take away what is due first."""
    pop(s.due[node], s.nodes[node, DUE_COUNT])
    s.nodes[node, DUE_COUNT] -= 1


# The queue


@inner
def _place(s: DeadlineArrays, node: int, message: int) -> int:
    """Where a message stands in the queue, or would: by stamp, then by name."""
    low, high = 0, s.nodes[node, QUEUED_COUNT]
    stamp = s.messages[message, STAMP]
    while low < high:
        middle = (low + high) // 2
        other = s.order[node, middle]
        its = s.messages[other, STAMP]
        if its < stamp or (its == stamp and other < message):
            low = middle + 1
        else:
            high = middle
    return int(low)


@inner
def enqueue(s: DeadlineArrays, node: int, message: int) -> None:
    """Put a message into the queue."""
    place, count = _place(s, node, message), s.nodes[node, QUEUED_COUNT]
    for at in range(count, place, -1):
        s.order[node, at] = s.order[node, at - 1]
    s.order[node, place] = message
    s.nodes[node, QUEUED_COUNT] = count + 1
    s.nodes[node, USED_BYTES] += s.messages[message, PAYLOAD_BYTES]
    s.flags[node, message] |= QUEUED


@inner
def dequeue(s: DeadlineArrays, node: int, message: int) -> None:
    """Take a message out of the queue."""
    place, count = _place(s, node, message), s.nodes[node, QUEUED_COUNT] - 1
    for at in range(place, count):
        s.order[node, at] = s.order[node, at + 1]
    s.nodes[node, QUEUED_COUNT] = count
    s.nodes[node, USED_BYTES] -= s.messages[message, PAYLOAD_BYTES]
    s.flags[node, message] &= ~QUEUED


@inner
def is_ready(s: DeadlineArrays, node: int, message: int) -> bool:
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
def is_missing(s: DeadlineArrays, node: int, message: int) -> bool:
    """Whether it may still come and be of use."""
    origin, number = s.messages[message, ORIGIN], s.messages[message, NUMBER]
    return bool(number > s.frontier[node, origin] and not s.flags[node, message] & (QUEUED | RESOLVED))


@inner
def is_late(s: DeadlineArrays, message: int, now_us: int) -> bool:
    """Whether its deadline has passed."""
    return bool(now_us + s.settings[CLOCK_ERROR_US] > s.messages[message, DEADLINE_US])


# The store


@inner
def drop(s: DeadlineArrays, node: int) -> None:
    """Forget the stored message with the least time left."""
    message = s.stored[node, 0] & ((1 << MESSAGE_BITS) - 1)
    pop(s.stored[node], s.nodes[node, STORED_COUNT])
    s.nodes[node, STORED_COUNT] -= 1
    s.nodes[node, USED_BYTES] -= s.messages[message, PAYLOAD_BYTES]
    s.flags[node, message] &= ~STORED


@inner
def make_room(s: DeadlineArrays, node: int, size_bytes: int) -> bool:
    """Drop stored messages until there is room for so many bytes, or none is left."""
    limit_bytes = s.settings[BUFFER_BYTES] - size_bytes
    while s.nodes[node, USED_BYTES] > limit_bytes and s.nodes[node, STORED_COUNT]:
        drop(s, node)
    return bool(s.nodes[node, USED_BYTES] <= limit_bytes)


@inner
def keep(s: DeadlineArrays, node: int, message: int) -> None:
    """Store an own or delivered message for others."""
    payload_bytes = s.messages[message, PAYLOAD_BYTES]
    if s.settings[KEEPS] and make_room(s, node, payload_bytes):
        size = s.nodes[node, STORED_COUNT]
        push(s.stored[node], size, s.messages[message, DEADLINE_US] << MESSAGE_BITS | message)
        s.nodes[node, STORED_COUNT] = size + 1
        s.nodes[node, USED_BYTES] += payload_bytes
        s.flags[node, message] |= STORED
