"""The certificate of one run by many tasks: nodes are shared out, and what they broadcast is exchanged.

Phase 1: each share reads the row groups that hold its nodes, follows them (`Certifier`), and leaves in a
scratch folder what it counted. Phase 2: each share reads the vectors of all, and looks whether its nodes
delivered every message after its past. In between, `agreed` compares what the shares counted. The scratch
folder must be storage that all tasks see; its files are plain arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from whence.trace.reader import Trace, opened_part
from whence.verify.certificate import Certifier, Counted, Proof, interned, is_ordered
from whence.verify.kernels import Array, Kernels

ARRAYS = ("vectors", "past", "speaker", "log", "stretch_node", "stretch_end")


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a share counted."""

    nodes: list[str]
    speakers: list[str]
    sent: list[int]  # by the share's own nodes, of each speaker
    delivered: list[int]  # of each speaker, by every node of the share
    events: int
    broadcasts: int
    deliveries: int


class Cut(msgspec.Struct, frozen=True):
    """How nodes are shared out: share i has the names from bounds[i - 1] on and below bounds[i]."""

    bounds: list[str]

    @classmethod
    def of(cls, nodes: Sequence[str], shares: int) -> Cut:
        """About equally many nodes in each share."""
        names = sorted(nodes)
        return cls([names[len(names) * at // shares] for at in range(1, shares)])

    def share_of(self, name: str) -> int:
        """The share that a node belongs to, listed or not."""
        return bisect_right(self.bounds, name)


def count_share(
    kernels: Kernels, trace: Trace, run: str, cut: Cut, share: int, scratch: Path, memory_bytes: int
) -> Share | None:
    """Phase 1; None: there is no certificate."""

    def belongs(name: str) -> bool:
        return cut.share_of(name) == share

    members = list(filter(belongs, trace.nodes(run)))
    certifier = Certifier(kernels, members, memory_bytes, belongs=belongs)
    if not all(map(certifier.add, _groups(trace, run, cut, share))):
        return None
    found = certifier.counted(by_name=True)
    if len(found.delivered) and not (found.delivered == found.delivered[0]).all():
        return None
    past = interned(kernels, found.vectors)
    distinct, past = np.unique(past, return_inverse=True)
    arrays = found._asdict() | {"vectors": found.vectors[distinct], "past": past.astype(np.int32)}
    for name in ARRAYS:
        np.save(scratch / f"{share}.{name}.npy", arrays[name], allow_pickle=False)
    return Share(
        nodes=found.nodes,
        speakers=found.speakers,
        sent=found.sent.tolist(),
        delivered=found.delivered[0].tolist() if len(found.delivered) else found.sent.tolist(),
        events=found.events,
        broadcasts=len(found.speaker),
        deliveries=len(found.log),
    )


def _groups(trace: Trace, run: str, cut: Cut, share: int) -> Iterator[pa.RecordBatch]:
    """The row groups that may hold nodes of a share: the files' statistics tell."""
    for path in trace.part_files(run):
        with opened_part(path) as stored:
            for group in range(stored.groups):
                low, high = stored.statistics(group, "node")
                if low is None or cut.share_of(low) <= share <= cut.share_of(high):
                    yield stored.read(group, stored.columns_judged(group, timed=False))


def agreed(shares: Sequence[Share | None], events: int) -> Proof | None:
    """What the run consists of, if every node delivered all that was broadcast; the order is not judged."""
    found = [share for share in shares if share is not None]
    if len(found) < len(shares) or any(share.speakers != found[0].speakers for share in found):
        return None
    sent = [sum(counts) for counts in zip(*(share.sent for share in found), strict=True)]
    if not sent or any(share.delivered != sent for share in found):
        return None
    nodes, judged, broadcasts, deliveries = (
        sum(each)
        for each in zip(
            *((len(share.nodes), share.events, share.broadcasts, share.deliveries) for share in found),
            strict=True,
        )
    )
    return Proof(nodes, judged, broadcasts, deliveries) if judged == events else None


def follow_share(kernels: Kernels, counts: Sequence[Share], share: int, scratch: Path) -> bool:
    """Phase 2, for a run whose shares agree."""
    parts = [{name: _load(scratch, at, name) for name in ARRAYS[:3]} for at in range(len(counts))]
    dtype: Any = max((part["vectors"].dtype for part in parts), key=lambda each: each.itemsize)
    # Vectors have whole words: a share with wider lanes has another number of them.
    speakers = len(counts[share].speakers)
    words = -(-speakers * dtype.itemsize // 8)
    vectors: Array = np.zeros(
        (sum(len(part["vectors"]) for part in parts), words * 8 // dtype.itemsize), dtype
    )
    pasts: list[Array] = []
    begin = 0
    for part in parts:
        of_share = part["vectors"]
        vectors[begin : begin + len(of_share), :speakers] = of_share[:, :speakers]
        pasts.append(part["past"] + np.int32(begin))
        begin += len(of_share)
    own = counts[share]
    counted = Counted(
        nodes=own.nodes,
        speakers=own.speakers,
        sent=np.array(own.sent),
        delivered=vectors[:0],
        vectors=vectors,
        speaker=parts[share]["speaker"],
        log=_load(scratch, share, "log"),
        stretch_node=_load(scratch, share, "stretch_node"),
        stretch_end=_load(scratch, share, "stretch_end"),
        events=own.events,
    )
    speaker = np.concatenate([part["speaker"] for part in parts])
    return is_ordered(kernels, counted, vectors, np.concatenate(pasts), speaker)


def _load(scratch: Path, share: int, name: str) -> Array:
    found: Array = np.load(scratch / f"{share}.{name}.npy", allow_pickle=False)
    return found
