"""The arrays that the kernel of `oppnet` works on, and the names of their columns.

N nodes, M messages, C contacts. Nodes, messages and contacts are named by their place; messages are in the
order in which they are broadcast. "None" is -1 and "never" NEVER_US. A *record* is a message at a node: its
own, or one that it has received. Direction 2 x contact is from the contact's lower node to the higher one,
2 x contact + 1 back.
"""

from __future__ import annotations

from typing import NamedTuple

from whence.kernels.compile import Array

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


class State(NamedTuple):
    """All of it."""

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
