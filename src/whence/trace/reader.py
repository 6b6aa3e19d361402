"""Reads a trace, and refuses what is not one: corrupt, truncated, foreign or incomplete.

`open_trace` checks everything that can be checked without decoding the events (manifests, sizes, hashes,
Parquet schema, row counts, dense `seq`); `Trace.batches` checks the rest as it streams; `check_trace` decodes
every event and computes the trace hashes anew, which is what `whence trace check` does. No path reads a part
of a trace and keeps silent about the other part.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from whence.errors import TraceError
from whence.trace.schema import (
    FORMAT,
    MANIFEST_SUFFIX,
    VERSION,
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

BATCH_ROWS = 64  # up to 64 x 4096 events in memory at a time


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

    def has_peers(self, run: str) -> bool:
        """Whether any event of a run may have a peer: the files' statistics say so without being decoded."""
        for path in self.part_files(run):
            with _open_parquet(path) as parquet:
                about = parquet.metadata
                at = [about.schema.column(each).path for each in range(about.num_columns)].index(
                    "peer.list.element"
                )
                for group in range(about.num_row_groups):
                    found = about.row_group(group).column(at).statistics
                    if found is None or found.max is None or found.max >= 0:
                        return True
        return False

    def batches(
        self, columns: Sequence[str] | None = None, run: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The packed rows in stored order, a bounded number at a time."""
        import pyarrow as pa

        from whence.trace import columns as packed

        wanted = None if columns is None else list(columns)
        for path in self.part_files(run):
            try:
                with _open_parquet(path) as parquet:
                    for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
                        batch.validate(full=True)
                        problem = packed.batch_problem(batch)
                        if problem is not None:
                            raise _damaged(path, problem)
                        yield batch
            except (OSError, ValueError, pa.ArrowException) as error:
                raise _damaged(path, f"it cannot be decoded ({error})") from error

    def events(self, run: str | None = None) -> Iterator[Event]:
        """The flat view: every event, in stored order (each node's own order is kept)."""
        for batch in self.batches(run=run):
            for row in batch.to_pylist():
                names: list[str | None] = [*row["names"], None]  # index -1 is the last: none
                columns = (
                    row["time_us"], row["kind"], row["origin"], row["number"], row["peer"],
                    row["total_bytes"], row["control_bytes"], row["detail"],
                )  # fmt: skip
                for seq, values in enumerate(zip(*columns, strict=True), row["first_seq"]):
                    time_us, kind, origin, number, peer, total_bytes, control_bytes, detail = values
                    yield Event(
                        row["run"], row["node"], seq, time_us, Kind(kind), names[origin], number,
                        names[peer], total_bytes, control_bytes, detail,
                    )  # fmt: skip


def open_trace(path: Path | str, *, hashes: bool = True) -> Trace:
    """Open a trace folder, a sweep's folder of `run=<id>/` traces, or one writer's manifest.

    `hashes=False` leaves out the SHA-256 over the part files, for a caller that is about to check it
    elsewhere or has just written them.
    """
    path = Path(path)
    manifests, leftovers = ([path], []) if path.is_file() else _find_manifests(path)
    sources = [TraceSource(manifest.parent, load_manifest(manifest)) for manifest in manifests]
    sources.sort(key=lambda source: (source.manifest.run, source.manifest.writer, str(source.folder)))
    _check_agreement(path, sources)
    if path.is_dir():
        leftovers += _unlisted(sources)
    next_seq: dict[tuple[str, str], list[tuple[int, int, Path]]] = {}
    for source in sources:
        for part in source.manifest.parts:
            _check_part(source, part, hashes, next_seq)
        listed = sum(part.events for part in source.manifest.parts)
        if listed != source.manifest.events:
            name = source.folder / f"{source.manifest.writer}{MANIFEST_SUFFIX}"
            raise _damaged(name, f"it counts {source.manifest.events} events, its parts {listed}")
    _check_dense(next_seq)
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
    if header.get("version") != VERSION:
        raise TraceError(
            str(path),
            f"it has format version {header.get('version')!r}; this Whence reads version {VERSION}",
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


def _check_part(
    source: TraceSource,
    part: Part,
    hashes: bool,
    segments: dict[tuple[str, str], list[tuple[int, int, Path]]],
) -> None:
    """Check one part against its manifest entry, and note where its segments begin and end."""
    import pyarrow as pa

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
    try:
        with _open_parquet(path) as parquet:
            problem = packed.schema_problem(parquet.schema_arrow)
            if problem is not None:
                raise TraceError(str(path), f"it is not a trace file: {problem}", "See docs/trace-format.md")
            keys = parquet.read(columns=["run", "node", "first_seq", "events"]).to_pydict()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _damaged(path, f"it cannot be decoded ({error})") from error
    if any(None in values for values in keys.values()):
        raise _damaged(path, "it has a null in run, node, first_seq or events")
    if len(keys["run"]) != part.rows or sum(keys["events"]) != part.events:
        raise _damaged(
            path, f"it does not hold the {part.rows} rows and {part.events} events of its manifest"
        )
    for run, node, first_seq, events in zip(*keys.values(), strict=True):
        if run != source.manifest.run:
            raise _damaged(
                path, f"it holds events of run {run!r}, its manifest is of {source.manifest.run!r}"
            )
        segments.setdefault((run, node), []).append((first_seq, events, path))


def _open_parquet(path: Path) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: names that are not UTF-8
        raise _damaged(path, f"it is not a readable Parquet file ({error})") from error


def _check_dense(segments: dict[tuple[str, str], list[tuple[int, int, Path]]]) -> None:
    """Every node's events must be numbered 0, 1, 2 ... without hole or overlap."""
    for (run, node), found in sorted(segments.items()):
        expected = 0
        for first_seq, events, path in sorted(found, key=lambda each: each[:2]):
            if first_seq != expected:
                what = "are missing" if first_seq > expected else "are there twice"
                low, high = sorted((first_seq, expected))
                raise _damaged(path, f"events {low} to {high - 1} of node {node!r} in run {run!r} {what}")
            expected += events


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
