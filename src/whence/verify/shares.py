"""One run by many tasks: its nodes are shared out for the certificate, its columns where that proves nothing.

The certificate. Phase 1: each share reads the row groups that hold its nodes, follows them (`Certifier`), and
leaves in a scratch folder what it counted. Phase 2: each share reads the vectors of all, and looks whether
its nodes delivered every message after its past. In between, `agreed` compares what the shares counted.

Columns. One task places the run (`place_run`) and leaves it in the scratch folder; each of the others judges
a block of its columns (`judge_block`), and has of the files in memory what it looks at.

The scratch folder must be storage that all tasks see; its files are plain arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from whence.trace.reader import Trace, opened_part
from whence.trace.schema import PromisesMade
from whence.verify.analysis import Analysis, Block, Prepared, judge, prepare
from whence.verify.certificate import Certifier, Counted, Pasts, Proof, is_ordered, pasts_of
from whence.verify.kernels import Array, Kernels
from whence.verify.load import EventTimes, RunEvents
from whence.verify.messages import Messages, PlacedEvents
from whence.verify.run import has_lives, load_events, names_in, needed_bytes

SHARED = ("speaker", "row", "block", "joined", "vectors")  # what every share may need
OWN = ("log", "stretch_node", "stretch_end")

# How a run can be cut into blocks: it has been placed, each must look at the files itself, or not at all.
Cuttable = Literal["placed", "in parts", "not"]
NESTED: dict[str, Any] = {
    "events": RunEvents, "timing": EventTimes, "placed": PlacedEvents, "messages": Messages,
}  # fmt: skip
PLAIN = "plain.json"


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

    nodes = trace.nodes(run)
    members = list(filter(belongs, nodes))
    events = sum(manifest.events for manifest in trace.of_run(run)) * len(members) // max(1, len(nodes))
    certifier = Certifier(kernels, members, memory_bytes, events, belongs)
    if not all(map(certifier.add, _groups(trace, run, cut, share))):
        return None
    found = certifier.counted(by_name=True)
    if len(found.delivered) and not (found.delivered == found.delivered[0]).all():
        return None
    pasts = pasts_of(kernels, found.vectors, found.speaker)
    distinct, row = np.unique(pasts.row, return_inverse=True)
    arrays = found._asdict() | pasts._asdict()
    arrays |= {"vectors": found.vectors[distinct], "row": row.astype(np.int32)}
    for name in (*SHARED, *OWN):
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
    """Phase 2, for a run whose shares agree; most need the vectors of none, which are the most to read."""
    own, parts = counts[share], range(len(counts))
    speaker, row, block, joined = ([_load(scratch, at, name) for at in parts] for name in SHARED[:4])
    sizes = [int(each.max(initial=-1)) + 1 for each in row]
    dtype: Any = max((each.dtype for each in joined), key=lambda each: each.itemsize)

    def stacked(arrays: list[Array]) -> Array:
        # Vectors have whole words: a share with wider lanes has another number of them.
        words = -(-len(own.speakers) * dtype.itemsize // 8)
        made: Array = np.zeros((sum(map(len, arrays)), words * 8 // dtype.itemsize), dtype)
        begin = 0
        for each in arrays:
            made[begin : begin + len(each), : len(own.speakers)] = each[:, : len(own.speakers)]
            begin += len(each)
        return made

    pasts = Pasts(
        speaker=np.concatenate(speaker),
        row=np.concatenate(_shifted(row, sizes)),
        block=np.concatenate(_shifted(block, list(map(len, joined)))),
        joined=stacked(joined),
    )
    counted = Counted(
        nodes=own.nodes,
        speakers=own.speakers,
        sent=np.array(own.sent),
        delivered=pasts.joined[:0],
        vectors=pasts.joined[:0],
        speaker=speaker[share],
        events=own.events,
        **{name: _load(scratch, share, name) for name in OWN},
    )
    return is_ordered(
        kernels, counted, pasts, lambda: stacked([_load(scratch, at, "vectors") for at in parts])
    )


def _shifted(indices: list[Array], sizes: list[int]) -> list[Array]:
    """Indices into arrays of these sizes, as indices into all of them end to end."""
    begins = np.cumsum([0, *sizes[:-1]])
    return [each + np.int32(begin) for each, begin in zip(indices, begins, strict=True)]


def _load(scratch: Path, share: int, name: str) -> Array:
    found: Array = np.load(scratch / f"{share}.{name}.npy", allow_pickle=False)
    return found


def place_run(trace: Trace, run: str, promises: PromisesMade, folder: Path, memory_bytes: int) -> Cuttable:
    """Load and place a run once, and leave it in a new folder for the tasks that judge its blocks."""
    if has_lives(names_in(trace, run), trace.nodes(run)):
        return "not"  # lives are judged row by row
    if needed_bytes(trace, run, promises) > memory_bytes:
        return "in parts"
    folder.mkdir(exist_ok=True)  # a task may be done again
    plain = _put(prepare(load_events(trace, run, promises)), folder, "")
    (folder / PLAIN).write_bytes(msgspec.json.encode(plain))
    return "placed"


def judge_block(folder: Path, witness_max: int | None, clock_slack_us: int, block: Block) -> Analysis:
    """Judge some columns of a run that has been placed."""
    plain = msgspec.json.decode((folder / PLAIN).read_bytes())
    return judge(_got(Prepared, plain, folder, ""), witness_max, clock_slack_us, block)


def _put(found: Any, folder: Path, prefix: str) -> dict[str, Any]:
    """Write the arrays of a named tuple, a file each; returns the rest."""
    plain: dict[str, Any] = {}
    for name, value in found._asdict().items():
        if isinstance(value, np.ndarray):
            np.save(folder / f"{prefix}{name}.npy", value, allow_pickle=False)
        else:
            plain[name] = value if name not in NESTED or value is None else _put(value, folder, f"{name}.")
    return plain


def _got(kind: Any, plain: dict[str, Any], folder: Path, prefix: str) -> Any:
    """A named tuple that `_put` wrote; pages of its arrays are read when they are looked at."""
    fields: dict[str, Any] = {}
    for name in kind._fields:
        if name not in plain:
            mapped = np.load(folder / f"{prefix}{name}.npy", mmap_mode="c", allow_pickle=False)
            fields[name] = np.asarray(mapped)
        elif name in NESTED and plain[name] is not None:
            fields[name] = _got(NESTED[name], plain[name], folder, f"{name}.")
        else:
            fields[name] = [tuple(each) for each in plain[name]] if name == "malformed" else plain[name]
    return kind(**fields)
