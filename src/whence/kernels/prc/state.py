"""The arrays of PRC's kernel, and how they grow.

processes   adjacency as rows sorted by peer: `hot` is what every message needs, `cold` the rest; a row is an
            odd number of cache lines apart from the next one, so that all of a cache is used
links       one row for each pair that is linked, with its handshake
messages    a row of E for each message in transit: for each process a bit mask of in-link slots
logs        what each process delivered last: buffers are intervals of it
ring        what is in flight, in the order of sending, which with equal delays is that of arrival
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.kernels.compile import Array

# Settings
NODES, DURATION_US, WINDOW_US, WORDS, SEED, BY_AUTHORS = range(6)
# Counters
HEAD, TAIL, NEXT, MEMBERS, LINKS_USED, LINKS_FREE, ROWS_USED, ROWS_FREE = range(8)
TIME_US, EXPECTED, BUFFERED, DEGREE, PROCESSES, DEGREE_MAX, LINKED_MAX = range(8, 15)
CONTROL, DELIVERIES, RECEIPTS, OPENED, BROADCASTS, TOKEN, FAULT, OVERLAY = range(15, 23)
COUNTERS = 23
# `hot`: the peer, its slot for us, and how the link is used: not yet, from SINCE on, or (0) for all in flight
IS_UNUSED, IS_NEW = 1, 2
SLOT_BITS, PEER_BITS = 2, 18  # where they begin
# Columns of `cold`
LINK, SLOT, SLOT_US = 0, 1, 2  # the link; our slot for it (-1: not in the in-view); since when
SINCE = 3  # the ring's entry from which on the link is used, if it IS_NEW
COLD_COLUMNS = 4
HOT_PAD, COLD_PAD, LOG_PAD = 8, 2, 8  # a cache line more than a power of two
# `log`: the message, and when it was delivered
LOG_BITS = 32  # where the message begins
LOG_UNIT_BITS = 10  # the time is in units of 2^10 µs
# Columns of `links`
OPENER, MEDIATOR, TARGET, ARCS, HOLDS, MADE, AT_ALPHA, AT_BETA, AT_PI, AT_RHO, AT_BUFFER = range(11)
LINK_COLUMNS = 11
# Columns of `rows`
MESSAGE_NUMBER, IN_FLIGHT, BITS = range(3)
# Columns of `people`
DEGREE_IN, LINKED, NAMED, LOGGED, BUFFERING, LOG_HASH = range(6)
PEOPLE_COLUMNS = 6
# Columns of `ring`: time; what << 56 | process or link << 24 | row
R_TIME_US, R_WHAT = 0, 1
# Columns of `externals`
E_TIME_US, E_WHAT, E_NODE, E_NUMBER = range(4)
# Columns of `windows`
W_PROCESS, W_EXPECTED, W_BUFFERED, W_DEGREE, W_CONTROL, W_DELIVERIES, W_RECEIPTS, W_OVERLAY = range(8)
WINDOW_COLUMNS = 8

DONE, MORE_RING, MORE_LINKS, MORE_ROWS, MORE_SLOTS, BROKEN = range(6)


class PrcArrays(NamedTuple):
    """Everything that the kernel works on."""

    settings: Array  # int64
    counters: Array  # int64
    points: Array  # int64 [., 2]: time and delay
    externals: Array  # int64 [., 4], sorted
    ring: Array  # int64 [2^k, 2]
    people: Array  # int64 [nodes, 6]
    hot: Array  # int64 [nodes, 64 words + 8]
    cold: Array  # int64 [nodes, 64 words + 2, 4]
    arcs: Array  # int32 [nodes, 64 words]
    slots: Array  # uint64 [nodes, words]: the in-view
    links: Array  # int64 [., 11]
    rows: Array  # int64 [., 3]
    masks: Array  # uint64 [rows, words, nodes]: E; most processes need the first word only
    row_of: Array  # int32 [messages]
    stamps: Array  # int64 [2, messages]
    senders: Array  # int32 [messages]: drawn; -1: not yet broadcast
    log: Array  # int64 [nodes, 2^k + 8]
    members: Array  # int32 [nodes]
    free_links: Array  # int32
    free_rows: Array  # int32
    windows: Array  # int64 [., 8]
    scratch: Array  # int64 [4, 64 words]


def grown(state: PrcArrays, needed: int) -> PrcArrays:
    """The same state with more room."""
    if needed == MORE_RING:
        counters, size = state.counters, len(state.ring)
        ring = np.zeros((2 * size, 2), dtype=np.int64)
        entries = np.arange(counters[HEAD], counters[TAIL])
        ring[entries & (2 * size - 1)] = state.ring[entries & (size - 1)]
        return state._replace(ring=ring)
    if needed == MORE_LINKS:
        return state._replace(links=_doubled(state.links), free_links=_doubled(state.free_links))
    if needed == MORE_ROWS:
        return state._replace(
            rows=_longer(state.rows), masks=_longer(state.masks), free_rows=_longer(state.free_rows)
        )
    settings = state.settings.copy()
    settings[WORDS] += 1  # one word at a time: hubs are few, and every process pays for them
    return state._replace(
        settings=settings,
        hot=_widened(state.hot, 64),
        cold=_widened(state.cold, 64),
        arcs=_widened(state.arcs, 64),
        slots=_widened(state.slots, 1),
        masks=_widened(state.masks, 1),
        scratch=_widened(state.scratch, 64),
    )


def _doubled(array: Array) -> Array:
    larger = np.zeros((2 * len(array), *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def _longer(array: Array) -> Array:
    """By a half: the masks are most of the memory."""
    larger = np.zeros((len(array) + max(len(array) // 2, 1), *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def _widened(array: Array, more: int) -> Array:
    """Longer rows, by what a word more takes."""
    larger = np.zeros((array.shape[0], array.shape[1] + more, *array.shape[2:]), dtype=array.dtype)
    larger[tuple(slice(0, size) for size in array.shape)] = array
    return larger
