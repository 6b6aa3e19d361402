"""A certificate of cleanness: proof that a run has no finding, without a schedule of its events.

Most runs are clean, and to prove that takes less than to find what is wrong. Two walks over each node's own
events, nodes in any order:

1. Own broadcasts are numbered 1, 2, 3 ...; of each origin the node delivers 1, 2, 3 ... and in the end all
   that there are; own messages are broadcast first. So nothing is malformed, created, repeated, missing or
   out of its origin's order. V(m) is what m's origin had delivered, and how many it had broadcast itself,
   when it broadcast m.
2. Whenever a node delivers m, it has delivered all that V(m) counts.

Then V(m) is the causal past of m: by 2, what a node has delivered is closed under V, so V grows along every
chain of broadcasts and deliveries. A circle of messages that wait for each other cannot pass: V(m) would
count m itself, and it counts its origin's earlier messages only. And 2 says that nothing is delivered before
its past.

No certificate is no verdict: the run goes to `analyse`. There is none for runs in which something expires,
crashes or has one destination, nor where times are judged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.trace.schema import Kind
from whence.verify.analysis import PAST_BYTES
from whence.verify.kernels import Array, Kernels
from whence.verify.load import RunEvents, places_of

CACHED_BYTES = 1 << 19  # of vectors that one turn of all nodes should need


def certify(kernels: Kernels, events: RunEvents) -> int | None:
    """The number of broadcasts of a run that is proved to be clean; None if it is not proved."""
    if events.timing is not None or len(events.to) or not events.is_node.all():
        return None
    broadcasts = np.diff(np.searchsorted(places_of(events.kind, Kind.BROADCAST), events.offsets))
    starts = np.concatenate([[0], np.cumsum(broadcasts)]).astype(np.int32)
    speaks = broadcasts > 0
    column = np.where(speaks, np.cumsum(speaks) - 1, -1).astype(np.int32)
    most = int(broadcasts.max(initial=0))
    dtype: np.dtype[Any] = np.dtype(np.int16 if most < np.iinfo(np.int16).max else np.int32)
    total, width = int(starts[-1]), int(np.count_nonzero(speaks))
    if not total or total * width * dtype.itemsize > PAST_BYTES:
        return None
    vectors: Array = np.empty((total, width), dtype=dtype)
    columns = (events.offsets, events.kind, events.origin, events.number, column, starts)
    if not kernels.count_on(*columns, np.zeros(width, dtype=dtype), vectors):
        return None
    same = np.empty(total, dtype=np.int32)
    kernels.find_equal(vectors, np.full(1 << max(4, total.bit_length()), -1, dtype=np.int32), same)
    nodes = len(events.offsets) - 1
    passed = kernels.follow_pasts(
        *columns, vectors, same, max(64, CACHED_BYTES // vectors[0].nbytes), events.offsets[:-1].copy(),
        np.zeros((nodes, width), dtype=dtype), np.full(nodes, -1, dtype=np.int32),
    )  # fmt: skip
    return total if passed else None
