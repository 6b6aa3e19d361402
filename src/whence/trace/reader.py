"""Reads a trace, and refuses what is not one: corrupt, truncated, foreign or incomplete.

`open_trace` checks everything that can be checked without decoding the events (manifests, sizes, hashes,
Parquet schema, row counts) and that `seq` is dense; `Trace.batches` checks the rest as it streams;
`check_trace` decodes every event and computes the trace hashes anew, which is what `whence trace check` does.
No path reads a part of a trace and keeps silent about the other part.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from whence.errors import TraceError
from whence.trace.schema import (
    FORMAT,
    MANIFEST_SUFFIX,
    VERSIONS,
    Kind,
    Manifest,
    Part,
    PromisesMade,
    Segment,
)

if TYPE_CHECKING:
    from hashlib import _Hash

    import pyarrow as pa
    import pyarrow.parquet as pq


class Event(NamedTuple):
    """One event of the flat view."""

    run: str
    node: str
    seq: int
    time_us: int
    kind: Kind
    origin: str | None
    number: int
    peer: str | None
    total_bytes: int
    control_bytes: int
    detail: str | None


class TraceSource(NamedTuple):
    """A manifest and the folder that its parts are in."""

    folder: Path
    manifest: Manifest


class Trace:
    """An opened trace: one run by one or more writers, or the runs of a sweep."""

    def __init__(self, path: Path, sources: Sequence[TraceSource], leftovers: Sequence[Path]) -> None:
        self.path = path
        self.sources = list(sources)
        self.leftovers = list(leftovers)  # unfinished files of a killed writer: not part of the trace
        self._by_run: dict[str, list[Manifest]] = {}
        for source in self.sources:
            self._by_run.setdefault(source.manifest.run, []).append(source.manifest)

    @property
    def manifests(self) -> list[Manifest]:
        """Every writer's manifest, ordered by run and writer."""
        return [source.manifest for source in self.sources]

    @property
    def runs(self) -> list[str]:
        """The run ids, sorted."""
        return sorted(self._by_run)

    @property
    def event_count(self) -> int:
        """Events over all runs."""
        return sum(manifest.events for manifest in self.manifests)

    def of_run(self, run: str) -> list[Manifest]:
        """The manifests of one run."""
        if run not in self._by_run:
            raise TraceError(
                str(self.path), f"it holds no run {run!r}", f"Choose from: {', '.join(self.runs)}"
            )
        return self._by_run[run]

    def nodes(self, run: str) -> list[str]:
        """All members of a run that any of its writers knows of, sorted."""
        return sorted({node for manifest in self.of_run(run) for node in manifest.nodes})

    def promises(self, run: str) -> PromisesMade:
        """The promises of the run's protocol."""
        return self.of_run(run)[0].promises

    def part_files(self, run: str | None = None) -> list[Path]:
        """The Parquet files of one run or of all."""
        return [
            source.folder / part.file
            for source in self.sources
            if run is None or source.manifest.run == run
            for part in source.manifest.parts
        ]

    def batches(
        self, columns: Sequence[str] | None = None, run: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The packed rows in stored order, a bounded number at a time."""
        import pyarrow as pa

        from whence.trace import columns as packed

        wanted = list(packed.PACKED_SCHEMA.names if columns is None else columns)
        for source in self.sources:
            if run not in (None, source.manifest.run):
                continue
            for part in source.manifest.parts:
                with opened_part(source.folder / part.file) as stored:
                    for group in range(stored.groups):
                        if stored.is_flat:
                            flat = stored.read(group, packed.FLAT_SCHEMA.names)
                            yield packed.packed_of(source.manifest.run, flat).select(wanted)
                        else:
                            plain = pa.schema([packed.PACKED_SCHEMA.field(name) for name in wanted])
                            yield stored.read(group, wanted).cast(plain)

    def stored(self, run: str, *, timed: bool) -> Iterator[pa.RecordBatch]:
        """The row groups of a run as they are stored, of either form: what a verifier must read of them."""
        for path in self.part_files(run):
            with opened_part(path) as stored:
                for group in range(stored.groups):
                    yield stored.read(group, stored.columns_judged(group, timed=timed))

    def events(self, run: str | None = None) -> Iterator[Event]:
        """The flat view: every event, in stored order (each node's own order is kept)."""
        for batch in self.batches(run=run):
            yield from events_in(batch)


def events_in(batch: pa.RecordBatch) -> Iterator[Event]:
    """The flat view of packed rows; columns of bytes that were left out count nothing."""
    for row in batch.to_pylist():
        nothing = [0] * row["events"]
        names: list[str | None] = [*row["names"], None]  # index -1 is the last: none
        columns = (
            row["time_us"], row["kind"], row["origin"], row["number"], row["peer"],
            row.get("total_bytes", nothing), row.get("control_bytes", nothing), row["detail"],
        )  # fmt: skip
        for seq, values in enumerate(zip(*columns, strict=True), row["first_seq"]):
            time_us, kind, origin, number, peer, total_bytes, control_bytes, detail = values
            yield Event(
                row["run"], row["node"], seq, time_us, Kind(kind), names[origin], number,
                names[peer], total_bytes, control_bytes, detail,
            )  # fmt: skip


class StoredPart:
    """A part file, opened: row groups of either form, decoded one at a time."""

    def __init__(self, path: Path) -> None:
        from whence.trace.columns import is_flat

        self.path = path
        self._parquet = _open_parquet(path)
        self.schema = self._parquet.schema_arrow
        self.is_flat = is_flat(self.schema)
        self._parquet = _with_dictionaries(self._parquet, path)
        self.groups: int = self._parquet.num_row_groups

    def close(self) -> None:
        """Close the file."""
        self._parquet.close()

    @property
    def rows(self) -> int:
        """Parquet rows of all groups."""
        return int(self._parquet.metadata.num_rows)

    def read(self, group: int, columns: Sequence[str]) -> pa.RecordBatch:
        """One row group, checked."""
        import pyarrow as pa

        from whence.trace import columns as packed

        try:
            batch = self._read(group, list(columns))
            packed.validate(batch)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise _damaged(self.path, f"it cannot be decoded ({error})") from error
        problem = packed.batch_problem(batch)
        if problem is not None:
            raise _damaged(self.path, problem)
        return batch

    def _read(self, group: int, columns: list[str]) -> pa.RecordBatch:
        import pyarrow as pa

        try:
            table = self._parquet.read_row_group(group, columns=columns, use_threads=False)
        except pa.ArrowNotImplementedError:
            # With very many names a writer drops their dictionary half-way: Arrow does not join the two.
            self._parquet.close()
            self._parquet = _open_parquet(self.path)
            table = self._parquet.read_row_group(group, columns=columns, use_threads=False)
        batches = table.to_batches()
        if len(batches) != 1:
            batches = table.unify_dictionaries().combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)

    def columns_judged(self, group: int, *, timed: bool) -> list[str]:
        """What a verifier must read of a group; peers only where the statistics do not rule them out."""
        keys = ["node", "seq"] if self.is_flat else ["run", "node", "first_seq", "events", "names"]
        wanted = [*keys, "kind", "origin", "number", *(("time_us", "detail") if timed else ())]
        most = self.statistics(group, "peer")[1]
        return wanted if most in ("", -1) else [*wanted, "peer"]

    def names(self, group: int) -> set[str]:
        """The names that the events of a group use."""
        from whence.trace.columns import NONE, text_codes

        found: set[str] = set()
        batch = self.read(group, ["origin", "peer"] if self.is_flat else ["names"])
        columns: list[Any] = batch.columns
        for column in columns:
            found.update(text_codes(column if self.is_flat else column.flatten()).dictionary.to_pylist())
        return found - {NONE} if self.is_flat else found

    def statistics(self, group: int, column: str) -> tuple[Any, Any]:
        """Smallest and largest value of a column of a group; None where the file does not say."""
        about = self._parquet.metadata.row_group(group)
        for at in range(about.num_columns):
            found = about.column(at)
            if found.path_in_schema.split(".")[0] == column:
                known = found.statistics
                return (known.min, known.max) if known is not None and known.has_min_max else (None, None)
        return None, None


@contextmanager
def opened_part(path: Path) -> Iterator[StoredPart]:
    """A part file, closed in the end."""
    part = StoredPart(path)
    try:
        yield part
    finally:
        part.close()


def open_trace(path: Path | str, *, hashes: bool = True, dense: bool = True) -> Trace:
    """Open a trace folder, a sweep's folder of `run=<id>/` traces, or one writer's manifest.

    `hashes=False` leaves out the SHA-256 over the part files, for a caller that is about to check it
    elsewhere or has just written them; `dense=False` the check of `seq`, for one that follows every event.
    """
    path = Path(path)
    manifests, leftovers = ([path], []) if path.is_file() else _find_manifests(path)
    sources = [TraceSource(manifest.parent, load_manifest(manifest)) for manifest in manifests]
    sources.sort(key=lambda source: (source.manifest.run, source.manifest.writer, str(source.folder)))
    _check_agreement(path, sources)
    if path.is_dir():
        leftovers += _unlisted(sources)
    keys: dict[str, _Keys] = {}
    for source in sources:
        for part in source.manifest.parts:
            of_run = keys.setdefault(source.manifest.run, _Keys()) if dense else None
            _check_part(source, part, hashes, of_run)
        listed = sum(part.events for part in source.manifest.parts)
        if listed != source.manifest.events:
            name = source.folder / f"{source.manifest.writer}{MANIFEST_SUFFIX}"
            raise _damaged(name, f"it counts {source.manifest.events} events, its parts {listed}")
    for run in sorted(keys):
        keys[run].check_dense(run)
    return Trace(path, sources, leftovers)


def _damaged(path: Path, reason: str) -> TraceError:
    return TraceError(str(path), reason, "Record the run again, or restore the file from its source")


def _find_manifests(folder: Path) -> tuple[list[Path], list[Path]]:
    """The manifests in a folder and in its `run=*` folders, and files that a killed writer left."""
    if not folder.is_dir():
        raise TraceError(str(folder), "there is no such folder", "Give the folder that a run was recorded to")
    folders = [folder, *sorted(child for child in folder.glob("run=*") if child.is_dir())]
    manifests = sorted(path for each in folders for path in each.glob(f"*{MANIFEST_SUFFIX}"))
    if not manifests:
        raise TraceError(
            str(folder),
            f"it is not a trace: there is no *{MANIFEST_SUFFIX} in it or in a run=* folder",
            "Give the folder that a run was recorded to; 'whence verify' judges foreign logs as they are",
        )
    without = [each for each in folders[1:] if not any(each.glob(f"*{MANIFEST_SUFFIX}"))]
    for each in without:
        if any(each.glob("*.parquet")):
            raise TraceError(
                str(each), "it has Parquet files but no manifest", "Run that part of the sweep again"
            )
    leftovers = sorted(path for each in folders for path in each.glob("*.parquet.tmp"))
    return manifests, leftovers


def load_manifest(path: Path) -> Manifest:
    """Read and check one manifest."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _damaged(path, f"it cannot be read ({error.strerror})") from error
    try:
        header = msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _damaged(path, f"it is not a manifest ({error})") from error
    if header.get("format") != FORMAT:
        raise TraceError(
            str(path), f"its format is {header.get('format')!r}, not {FORMAT!r}", "Give a Whence trace"
        )
    if header.get("version") not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        raise TraceError(
            str(path),
            f"it has format version {header.get('version')!r}; this Whence reads versions {known}",
            "Read it with the version of Whence that is named in its field 'software'",
        )
    try:
        return msgspec.json.decode(raw, type=Manifest)
    except msgspec.ValidationError as error:
        raise _damaged(path, f"it is not a valid manifest ({error})") from error


def _check_agreement(path: Path, sources: Sequence[TraceSource]) -> None:
    """The writers of one run must tell the same story."""
    first: dict[str, TraceSource] = {}
    seen: set[tuple[str, str]] = set()
    for source in sources:
        manifest = source.manifest
        if (manifest.run, manifest.writer) in seen:
            raise TraceError(
                str(path),
                f"writer {manifest.writer!r} of run {manifest.run!r} is there twice",
                "Keep one of the two copies",
            )
        seen.add((manifest.run, manifest.writer))
        other = first.setdefault(manifest.run, source).manifest
        if (manifest.protocol, manifest.promises) != (other.protocol, other.promises):
            raise TraceError(
                str(source.folder),
                f"writers {other.writer!r} and {manifest.writer!r} of run {manifest.run!r} disagree on the "
                "protocol or its promises",
                "Give each run its own run id",
            )


def _unlisted(sources: Sequence[TraceSource]) -> list[Path]:
    """Parquet files that no manifest lists: refused, but for the one that a kill can leave behind.

    A writer renames a part just before it lists it; killed between the two it leaves exactly one more part.
    """
    listed: dict[Path, set[str]] = {}
    next_parts: dict[Path, set[str]] = {}
    for folder, manifest in sources:
        listed.setdefault(folder, set()).update(part.file for part in manifest.parts)
        following = f"{manifest.writer}-{len(manifest.parts):05d}.parquet"
        next_parts.setdefault(folder, set()).add(following)
    found: list[Path] = []
    for folder, names in listed.items():
        for path in sorted(folder.glob("*.parquet")):
            if path.name in next_parts[folder]:
                found.append(path)
            elif path.name not in names:
                raise TraceError(
                    str(path),
                    "no manifest in its folder lists it",
                    "Restore the manifest of its writer, or move the file away",
                )
    return found


def _check_part(source: TraceSource, part: Part, hashes: bool, keys: _Keys | None) -> None:
    """Check one part against its manifest entry, and note in `keys` where its stretches begin and end."""
    from whence.trace import columns as packed

    if Path(part.file).name != part.file or not re.fullmatch(r"[^\0]+\.parquet", part.file):
        raise _damaged(source.folder, f"its manifest lists the impossible part name {part.file!r}")
    path = source.folder / part.file
    if not path.is_file():
        raise _damaged(path, "the file is missing")
    size_bytes = path.stat().st_size
    if size_bytes != part.size_bytes:
        word = "truncated" if size_bytes < part.size_bytes else "changed"
        raise _damaged(path, f"it is {word}: {size_bytes} bytes instead of {part.size_bytes}")
    if hashes:
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != part.sha256:
                raise _damaged(path, "its contents do not match the SHA-256 in the manifest")
    with opened_part(path) as stored:
        problem = packed.schema_problem(stored.schema)
        if problem is not None:
            raise TraceError(str(path), f"it is not a trace file: {problem}", "See docs/trace-format.md")
        events = stored.rows if stored.is_flat else 0
        for group in range(stored.groups):
            if stored.statistics(group, "run") != (source.manifest.run,) * 2:
                _check_run(source, path, stored.read(group, ["run"]))
            if not stored.is_flat:
                # Names cost most of this, and who leaves `keys` out reads them itself.
                batch = stored.read(group, ["events", *(("node", "first_seq", "names") if keys else ())])
                events += int(packed.numbers_of(batch.column("events")).sum())
            elif keys is not None:
                batch = stored.read(group, ["node", "seq"])
            if keys is not None:
                keys.add(batch, path)
        if stored.rows != part.rows or events != part.events:
            raise _damaged(
                path, f"it does not hold the {part.rows} rows and {part.events} events of its manifest"
            )


def _check_run(source: TraceSource, path: Path, batch: pa.RecordBatch) -> None:
    found: Any = batch.column("run").unique()
    for run in found.to_pylist():
        if run != source.manifest.run:
            raise _damaged(
                path, f"it holds events of run {run!r}, its manifest is of {source.manifest.run!r}"
            )


def _open_parquet(path: Path) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, memory_map=True)
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: names that are not UTF-8
        raise _damaged(path, f"it is not a readable Parquet file ({error})") from error


def _with_dictionaries(plain: pq.ParquetFile, path: Path) -> pq.ParquetFile:
    """The same file, opened so that names come as they are stored."""
    import pyarrow.parquet as pq

    from whence.trace.columns import TEXT_COLUMNS

    about = plain.metadata
    there = {about.schema.column(at).path for at in range(about.num_columns)}
    texts = [name for name in (*TEXT_COLUMNS, "names.list.element") if name in there]
    plain.close()
    return pq.ParquetFile(path, memory_map=True, metadata=about, read_dictionary=texts)


class _Keys:
    """Where the stretches of one run's events begin and end."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._found: list[tuple[Any, Any, Any, Path]] = []  # of each group: nodes, first seqs, lengths, file

    def add(self, batch: pa.RecordBatch, path: Path) -> None:
        """Note those of a row group."""
        import numpy as np

        from whence.trace.columns import stretches_of

        stretches = stretches_of(batch)
        texts = stretches.nodes.to_pylist()
        ids = np.array([self._ids.setdefault(name, len(self._ids)) for name in texts], dtype=np.int64)
        self._found.append((ids[stretches.node], stretches.first_seq, stretches.lengths, path))

    def check_dense(self, run: str) -> None:
        """Every node's events must be numbered 0, 1, 2 ... without hole or overlap."""
        import numpy as np

        node, first, length = (np.concatenate([each[at] for each in self._found]) for at in range(3))
        order = np.lexsort((length, first, node))
        node, first, end = node[order], first[order], (first + length)[order]
        expected = np.where(node[1:] == node[:-1], end[:-1], 0)
        wrong = np.flatnonzero(first != np.concatenate([[0], expected])[: len(first)])
        if len(wrong):
            at = int(wrong[0])
            begins, due = int(first[at]), int(expected[at - 1]) if at else 0
            counts = np.cumsum([len(each[0]) for each in self._found])
            path = self._found[int(np.searchsorted(counts, order[at], side="right"))][3]
            what = "are missing" if begins > due else "are there twice"
            low, high = sorted((begins, due))
            name = list(self._ids)[node[at]]
            raise _damaged(path, f"events {low} to {high - 1} of node {name!r} in run {run!r} {what}")


# The hashes, computed anew


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One writer's share of a trace, read and found in order."""

    run: str
    writer: str
    events: int
    trace_hash: str


def segments_of(trace: Trace, digest: _Hash) -> Iterator[tuple[int, Segment]]:
    """Every segment with its number, in stored order; `digest` becomes their hash."""
    from whence.trace.columns import INTEGER_COLUMNS, update_hash

    for batch in trace.batches():
        for row in batch.to_pylist():
            layout = struct.Struct(f"<{row['events']}q")
            integers = [layout.pack(*row[name]) for name in INTEGER_COLUMNS]
            segment = Segment(row["node"], row["first_seq"], row["names"], integers, row["detail"])
            update_hash(digest, segment)
            yield row["segment"], segment


def check_trace(trace: Trace | Path | str) -> list[Checked]:
    """Decode every event and compare counts and trace hashes with the manifests; raises `TraceError`."""
    opened = trace if isinstance(trace, Trace) else open_trace(trace)
    checked: list[Checked] = []
    for source in opened.sources:
        digest = hashlib.sha256()
        segments = segments_of(Trace(opened.path, [source], []), digest)
        events = sum(segment.events for _, segment in segments)
        found = digest.hexdigest()
        if found != source.manifest.trace_hash:
            raise TraceError(
                f"writer {source.manifest.writer!r} of run {source.manifest.run!r} in {source.folder}",
                f"the events hash to {found}, the manifest says {source.manifest.trace_hash}",
                "The trace was not written by what its manifest says; record the run again",
            )
        checked.append(
            Checked(run=source.manifest.run, writer=source.manifest.writer, events=events, trace_hash=found)
        )
    return checked
