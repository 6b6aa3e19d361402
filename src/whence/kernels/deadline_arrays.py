"""The arrays that the kernel of TDCA and ODCA works on, and the names of their columns.

N nodes, M messages. A node is named by its place, which is also its place among the members; a message by its
place when messages are sorted by (origin, number), so that places compare as those do.
"""

from __future__ import annotations

from typing import NamedTuple

from whence.kernels.compile import Array

# settings: what the run is given; the options are those of protocols/deadline_state.py and deadline_pull.py
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


class State(NamedTuple):
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
