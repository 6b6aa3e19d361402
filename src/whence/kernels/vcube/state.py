"""The arrays that VCube's kernel works on, and the names of their columns.

N nodes, M messages, d levels. Messages are numbered by (origin, number): message `base[origin] +
number - 1`, so that the previous message of the same origin is the one before. "None" is -1. Rows,
not columns, lie together in memory: a step looks at all of one row and at few rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whence.kernels.compile import Array

# settings: what the run is given
ROOT = 0  # of the single tree; -1: every source has its own
AGGREGATE = 1
BY_WIRE = 2  # the MTU counts bytes on the wire, otherwise by the paper's account
MTU_BYTES = 3  # 0: no limit
SERVICE_US, PROCESS_US = 4, 5
DELAY_KIND, DELAY_A, DELAY_B = 6, 7, 8  # kernels/rng.py
END_US = 9
REPEATED = 10  # some node broadcasts more than once
RECORD = 11  # trace/schema.py's Level: which events are written
TRAIL = 12  # write arrival and delivery of each copy
SETTINGS = 13

# messages
ORIGIN, NUMBER, PAYLOAD_BYTES, BROADCAST_US, FIRST_DEPENDENCY, DEPENDENCIES, WIRE_BYTES, PAPER_BYTES = range(
    8
)
# links
CHILD, SENT, DRAWS = range(3)  # the node at the other end; packets sent; key of the delays
# counts, by node and origin: the newest number received (without a hole), and delivered
RECEIVED, DELIVERED = range(2)
# heads, by node and origin: of the lists of pending messages that wait for one of the origin's
BLOCKED, HELD = range(2)
# nodes
FREE_US, ARRIVALS, BLOCKED_NOW, HELD_NOW, HELD_PEAK, MESSAGES_MAX = range(6)
# packets, after the columns of calendar.py: the first message, and the cell of the second one
CONTENT = 3
# pending: as in protocols/vcube/core.py; NEXT links those that wait for a message of the same origin
# (MEMBER, COUNT) to be received, NEXT_HELD those that wait for AFTER to be delivered
P_MESSAGE, P_ORDER, P_SINCE_US, P_LEVEL, P_HELD, P_MEMBER, P_COUNT, P_NEXT, P_AFTER, P_NEXT_HELD = range(10)
# scratch: rows of room for the work on one packet
BATCH, WOKEN, OUT, READY, READY_ENTRY, FREED, FREED_LOW, FREED_STOP, FREED_ORDER = range(9)
# events
E_NODE, E_TIME_US, E_KIND, E_ORIGIN, E_NUMBER, E_PEER, E_TOTAL_BYTES, E_CONTROL_BYTES, E_MESSAGES = range(9)

# counters, after those of calendar.py; of what grows: rows used; list of those free again; its length
BROADCASTS, STEPS, FINAL_US = 4, 5, 6
PACKETS_USED, PACKETS_FREE, PACKETS_FREED = 7, 8, 9
CELLS_USED, CELLS_FREE, CELLS_FREED = 10, 11, 12
PENDING_USED, PENDING_FREE, PENDING_FREED = 13, 14, 15
DEPENDENCIES_USED, EVENTS_USED, LISTED_USED = 16, 17, 18
COUNTERS = 19

# tallies: sums, then two histograms of the packets: by bytes (the paper's account) and by messages
T_PACKETS, T_COPIES, T_BYTES, T_AGGREGATED, T_AGGREGATED_MESSAGES, T_QUEUED_US, T_QUEUED_MAX_US = range(7)
T_RECEIVED, T_RECEPTION_US, T_RECEPTION_MAX_US, T_DELIVERED, T_DELIVERY_US, T_DELIVERY_MAX_US = range(7, 13)
T_DELAYED, T_HELD_US, T_HELD_MAX_US, T_SPLITS = range(13, 17)
T_BY_BYTES = 17
BYTES_MAX = 8192  # the last place takes all that is larger
T_BY_MESSAGES = T_BY_BYTES + BYTES_MAX + 1

# trail
ARRIVED, GIVEN, TOGETHER = range(3)  # time of arrival; of delivery; messages in the packet that brought it

DONE, MORE_PACKETS, MORE_CELLS, MORE_PENDING, MORE_DEPENDENCIES, MORE_EVENTS = range(6)  # see `grown`


class VCubeArrays(NamedTuple):
    """Everything that a run works on."""

    settings: Array  # int64
    heights: Array  # int8 [N, N]: of a node in the tree of a source
    base: Array  # int64 [N + 1]: the first message of each origin
    starts: Array  # int64 [M, 2]: the broadcasts in order: time, message
    messages: Array  # int64 [M, 8]
    links: Array  # int64 [N, d + 1, 3]: by level; the last is to the root of the single tree
    counts: Array  # int16 or int32 [N, N, 2]: apart from the heads, because whole rows of it are searched
    heads: Array  # int32 [N, N, 2]
    nodes: Array  # int64 [N, 6]
    known: Array  # bool [N, M], if REPEATED: received
    place: Array  # int32 [N, M], if REPEATED: the row in `pending`
    reported: Array  # int32 [N, N], if REPEATED: delivered at the last broadcast
    # Unless REPEATED, in bits, which are in the cache where lists are not:
    wanted: Array  # uint64 [M, N / 64]: the dependencies of a message
    lacking: Array  # uint64 [N, 2, N / 64]: of whom a node has not received, or delivered, the message
    scratch: Array  # int64 [9, M + 1]: no step has more than all messages at hand
    counters: Array  # int64
    tallies: Array  # int64
    trail: Array  # int64 [3, N, M], if TRAIL
    buckets: Array  # int32
    # These grow when the kernel asks for it.
    packets: Array  # int64 [., 4]
    heap: Array  # int32, as long as `packets`
    cells: Array  # int64 [., 2]: a further message of a packet; the next cell
    pending: Array  # int64 [., 10]
    dependencies: Array  # int32 [., 2]: member, count
    events: Array  # int64 [., 9]
    listed: Array  # int64: the messages of the packets in `events`, one packet after the other


def make_state(
    settings: Array, heights: Array, starts: Array, messages: Array, links: Array, buckets: int, room: int
) -> VCubeArrays:
    """A state before the first step; `room` rows for what can grow."""
    count, total = len(heights), len(messages)
    square, copies, words = (count, count), (count, total), -(-count // 64)
    repeated, trail, record = settings[REPEATED], settings[TRAIL], settings[RECORD]
    narrow = messages[:, NUMBER].max(initial=0) < 2**15  # the smaller, the faster; the kernel takes both
    counters = np.zeros(COUNTERS, np.int64)
    counters[[PACKETS_FREE, CELLS_FREE, PENDING_FREE]] = -1
    base = np.zeros(count + 1, np.int64)
    base[1:] = np.cumsum(np.bincount(messages[:, ORIGIN], minlength=count))
    return VCubeArrays(
        settings=settings,
        heights=heights,
        base=base,
        starts=starts,
        messages=messages,
        links=links,
        counts=np.zeros((*square, 2), np.int16 if narrow else np.int32),
        heads=np.full((*square, 2), -1, np.int32),
        nodes=np.zeros((count, 6), np.int64),
        known=np.zeros(copies if repeated else (1, 1), np.bool_),
        place=np.full(copies if repeated else (1, 1), -1, np.int32),
        reported=np.zeros(square if repeated else (1, 1), np.int32),
        wanted=np.zeros((1, 1) if repeated else (total, words), np.uint64),
        lacking=np.full((1, 2, 1) if repeated else (count, 2, words), ~np.uint64(0)),
        scratch=np.zeros((9, total + 1), np.int64),
        counters=counters,
        tallies=np.zeros(T_BY_MESSAGES + total + 1, np.int64),
        trail=np.full((3, *copies) if trail else (3, 1, 1), -1, np.int64),
        buckets=np.full(buckets, -1, np.int32),
        packets=np.empty((room, 4), np.int64),
        heap=np.empty(room, np.int32),
        cells=np.empty((room // 4, 2), np.int64),
        pending=np.empty((room // 4, 10), np.int64),
        dependencies=np.empty((room, 2), np.int32),
        events=np.empty((room if record else 0, 9), np.int64),
        listed=np.empty(room if record else 0, np.int64),
    )


def grown(state: VCubeArrays, what: int) -> VCubeArrays:
    """The state with more room for what the kernel has asked for."""
    names = {
        MORE_PACKETS: ("packets", "heap"),
        MORE_CELLS: ("cells",),
        MORE_PENDING: ("pending",),
        MORE_DEPENDENCIES: ("dependencies",),
        MORE_EVENTS: ("events", "listed"),
    }[what]
    parts: dict[str, Any] = {name: _larger(getattr(state, name)) for name in names}
    return state._replace(**parts)


def _larger(array: Array) -> Array:
    larger = np.empty((array.shape[0] * 3 // 2 + 1, *array.shape[1:]), array.dtype)
    larger[: array.shape[0]] = array
    return larger
