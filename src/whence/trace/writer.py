"""Writes a trace: buffers each node's events, packs them into segments, streams them to Parquet.

Memory is bounded by `BUFFERED_EVENTS` unpacked events plus `GROUP_EVENTS` packed ones, whatever the length
of the run and the number of nodes. A part file appears under its name only when it is complete, and the
manifest is replaced after each part: what had been flushed when a process is killed stays readable. A writer
may go on with a trace that is there (`resume`): a durable node that starts again does.
"""

from __future__ import annotations

import hashlib
import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from whence.errors import MisuseError, TraceError
from whence.trace.reader import Trace, TraceSource, load_manifest, segments_of
from whence.trace.schema import (
    FLAT_COLUMNS,
    MANIFEST_SUFFIX,
    SEGMENT_EVENTS,
    Kind,
    Level,
    Manifest,
    Part,
    PromisesMade,
    Segment,
)

if TYPE_CHECKING:
    from hashlib import _Hash

    import pyarrow as pa
    import pyarrow.parquet as pq

BUFFERED_EVENTS = 1 << 18  # unpacked events over all nodes: some 50 MB
GROUP_EVENTS = 1 << 17  # packed events per Parquet row group
PART_BYTES = 128 << 20  # a part that has grown to this is closed
FULL = 8 * SEGMENT_EVENTS  # length of a buffer that holds a whole segment: 8 values per event
# What decodes fastest: half the time of zstd for a tenth more bytes. A dictionary is never dropped half-way.
_DELTAS = ("seq", "time_us")
PARQUET_OPTIONS: dict[str, Any] = {
    "compression": "lz4",
    "use_dictionary": [name for name in FLAT_COLUMNS if name not in _DELTAS],
    "column_encoding": dict.fromkeys(_DELTAS, "DELTA_BINARY_PACKED"),
    "dictionary_pagesize_limit": 1 << 30,
    "store_schema": False,
}


@contextmanager
def _whole() -> Iterator[None]:
    """A step that Ctrl-C ends before or after, but not in between: what is on the disk stays a trace."""
    asked: list[int] = []
    is_raised = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        before = (
            signal.signal(signal.SIGINT, lambda number, frame: asked.append(number)) if is_raised else None
        )
    except ValueError:  # only the main thread is interrupted
        before = None
    if before is None:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


class Past(NamedTuple):
    """A writer's state after the parts that are kept: what it must know of them to go on."""

    manifest: Manifest
    digest: _Hash
    next: dict[str, tuple[int, int]]  # node -> next segment number, next seq


def resume(path: Path, new: Manifest, parts: int) -> Past:
    """The state after the first `parts` parts of the manifest at `path`, which must be of the same writer."""
    old = load_manifest(path)
    for field in ("run", "writer", "protocol", "parameters", "level"):
        if getattr(old, field) != getattr(new, field):
            raise TraceError(
                str(path),
                f"its {field} is {getattr(old, field)!r}, not {getattr(new, field)!r}",
                "Go on with the trace of this very node, or begin anew in another folder",
            )
    if len(old.parts) < parts:
        raise TraceError(
            str(path),
            f"it has {len(old.parts)} parts, and {parts} were written",
            "Restore the trace from a copy, or start the node without a trace",
        )
    kept = old.parts[:parts]
    digest = hashlib.sha256()
    following: dict[str, tuple[int, int]] = {}
    nodes = sorted({*old.nodes, *new.nodes})  # a system of servers may have changed
    manifest = msgspec.structs.replace(old, parts=kept, nodes=nodes)
    for number, segment in segments_of(Trace(path.parent, [TraceSource(path.parent, manifest)], []), digest):
        following[segment.node] = (number + 1, segment.first_seq + segment.events)
    return Past(
        msgspec.structs.replace(
            manifest, events=sum(part.events for part in kept), trace_hash=digest.hexdigest()
        ),
        digest,
        following,
    )


def _is_unfinished(path: Path) -> bool:
    """Whether the writer of a trace was interrupted: then it may be written again."""
    with suppress(TraceError):
        return load_manifest(path).unfinished is True
    return False


def manifest_of(folder: Path, writer: str) -> Manifest | None:
    """The manifest of a writer's trace; None if there is no such trace."""
    path = folder / f"{writer}{MANIFEST_SUFFIX}"
    return load_manifest(path) if path.exists() else None


class TraceWriter:
    """One writer's share of a trace folder; a `Recorder`, and a context manager that closes it.

    `keep_parts` goes on with a trace that is there, after that many of its parts; the rest is dropped.
    `loses`: if its process is killed, others may have what its last rows told of; so the manifest says that
    it is unfinished, until it is closed. Without a folder the rows stay in memory, in `batches`, and the
    manifest lists no parts.
    """

    def __init__(
        self,
        folder: Path | str | None,
        *,
        run: str,
        writer: str,
        protocol: str,
        parameters: Mapping[str, Any],
        promises: PromisesMade,
        seed: int | None,
        nodes: Iterable[str],
        level: Level,
        overwrite: bool = False,
        keep_parts: int | None = None,
        loses: bool = False,
    ) -> None:
        from importlib.metadata import version  # heavy, and needed by what writes a trace alone

        from whence.trace import columns

        self._columns = columns
        self._in_memory = folder is None
        self.folder = Path(folder or "")
        self.batches: list[pa.RecordBatch] = []
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", writer):
            raise MisuseError(
                f"trace writer {writer!r}",
                "its name becomes a file name",
                "Use letters, digits, '.', '_' and '-' only",
            )
        self._manifest = Manifest(
            run=run,
            writer=writer,
            protocol=protocol,
            parameters=dict(parameters),
            promises=promises,
            seed=seed,
            software=f"whence {version('whence')}",
            nodes=sorted(nodes),
            level=level.name.lower(),
            events=0,
            trace_hash=hashlib.sha256().hexdigest(),
            parts=[],
            unfinished=loses or msgspec.UNSET,
        )
        self._loses = loses
        self._buffers: dict[str, list[Any]] = {}  # node -> FIELDS values per event
        self._next: dict[str, tuple[int, int]] = {}  # node -> next segment number, next seq
        self._room = BUFFERED_EVENTS
        self._group: list[tuple[int, Segment]] = []  # packed, not yet written: (segment number, segment)
        self._group_events = 0
        self._digest = hashlib.sha256()
        self._parquet: pq.ParquetWriter | None = None
        self._part_events = 0
        self._closed = False
        if not self._in_memory:
            self._prepare_folder(overwrite, keep_parts)

    @property
    def parts(self) -> int:
        """How many parts are finished: a durable node's snapshot counts on them."""
        return len(self._manifest.parts)

    @property
    def manifest_path(self) -> Path:
        """Where this writer's manifest is."""
        return self.folder / f"{self._manifest.writer}{MANIFEST_SUFFIX}"

    def event(
        self,
        node: str,
        time_us: int,
        kind: Kind,
        origin: str | None = None,
        number: int = 0,
        peer: str | None = None,
        total_bytes: int = 0,
        control_bytes: int = 0,
        detail: str | None = None,
    ) -> None:
        """Record one event of `node`; its `seq` is the number of events recorded there before."""
        # The hot path of simulator and live node. One flat list per node: a tuple kept per event would cost
        # 60 % more, most of it in the garbage collector, and eight lists 15 % more.
        try:
            flat = self._buffers[node]
        except KeyError:
            flat = self._new_buffer(node)
        flat += (time_us, kind, origin, number, peer, total_bytes, control_bytes, detail)
        self._room -= 1
        if len(flat) >= FULL:
            self._seal(node)
        elif self._room <= 0:
            self._make_room()

    def flush(self) -> None:
        """Put everything recorded so far into a finished part."""
        for node in sorted(self._buffers):
            self._seal(node)
        self._write_group()
        self._finish_part()

    def announce(self) -> None:
        """Write the manifest of what there is so far: readers find a trace while it is being written."""
        self._write_manifest()

    def close(self, *, promises: PromisesMade | None = None) -> Manifest:
        """Flush and end the trace; calling it again only returns the manifest.

        `promises` replaces those that the writer was made with, for a host that knows only at the end of
        the run what its protocol could promise.
        """
        if not self._closed:
            self.flush()
            if promises is not None:
                self._manifest = msgspec.structs.replace(self._manifest, promises=promises)
            if self._loses:
                self._manifest = msgspec.structs.replace(self._manifest, unfinished=msgspec.UNSET)
            self._write_manifest()  # a run without events has one too
            self._closed = True
            self._buffers.clear()  # so that a late `event` does not find its buffer
        return self._manifest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or self._closed:
            self.close()
            return
        promises = msgspec.structs.replace(self._manifest.promises, complete=False)
        self._manifest = msgspec.structs.replace(self._manifest, unfinished=True, promises=promises)
        with suppress(TraceError):  # the disk may be what has ended the work
            self.close()

    def _prepare_folder(self, overwrite: bool, keep_parts: int | None) -> None:
        old = self.manifest_path
        kept: set[str] = set()
        if keep_parts:
            past = resume(old, self._manifest, keep_parts)
            self._manifest, self._digest, self._next = past.manifest, past.digest, past.next
            self._buffers = {node: [] for node in past.next}
            kept = {part.file for part in past.manifest.parts}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            is_new = keep_parts is None and not overwrite
            if is_new and old.exists() and (self._loses or not _is_unfinished(old)):
                raise TraceError(
                    str(old),
                    "a trace of this writer is already there",
                    "Choose another folder or writer name",
                )
            if not kept:
                old.unlink(missing_ok=True)  # the manifest first: parts without it are not a trace
            name = re.compile(rf"{re.escape(self._manifest.writer)}-\d{{5,}}\.parquet(\.tmp)?")
            for path in self.folder.iterdir():
                if name.fullmatch(path.name) and path.name not in kept:
                    path.unlink()
        except OSError as error:
            raise self._unwritable(error) from error
        if kept:
            self._write_manifest()

    def _new_buffer(self, node: str) -> list[Any]:
        if self._closed:
            raise MisuseError(str(self.folder), "the trace is closed", "Record events before closing it")
        flat = self._buffers[node] = []
        self._next[node] = (0, 0)
        return flat

    @_whole()
    def _seal(self, node: str) -> None:
        """Pack the buffered events of one node."""
        flat = self._buffers[node]
        if not flat:
            return
        number, first_seq = self._next[node]
        segment = self._columns.pack(node, first_seq, flat)
        flat.clear()
        self._columns.update_hash(self._digest, segment)
        self._next[node] = (number + 1, first_seq + segment.events)
        self._room += segment.events
        self._group.append((number, segment))
        self._group_events += segment.events
        if self._group_events >= GROUP_EVENTS:
            self._write_group()

    def _make_room(self) -> None:
        """Pack the largest buffers until half the room is free: few, long segments."""
        for node in sorted(self._buffers, key=lambda node: (-len(self._buffers[node]), node)):
            self._seal(node)
            if self._room >= BUFFERED_EVENTS // 2:
                break

    @_whole()
    def _write_group(self) -> None:
        if not self._group:
            return
        numbers, segments = zip(*self._group, strict=True)
        batch = self._columns.flat_batch(self._manifest.run, numbers, segments)
        self._part_events += self._group_events
        self._group.clear()
        self._group_events = 0
        if self._in_memory:
            self.batches.append(batch)
            return
        try:
            if self._parquet is None:
                self._parquet = self._open_part()
            self._parquet.write_batch(batch)
            size_bytes = self._part_path(".parquet.tmp").stat().st_size
        except OSError as error:
            raise self._unwritable(error) from error
        if size_bytes >= PART_BYTES:
            self._finish_part()

    def _part_path(self, suffix: str) -> Path:
        return self.folder / f"{self._manifest.writer}-{len(self._manifest.parts):05d}{suffix}"

    def _open_part(self) -> pq.ParquetWriter:
        import pyarrow.parquet as pq

        return pq.ParquetWriter(
            self._part_path(".parquet.tmp"), self._columns.CODED_SCHEMA, **PARQUET_OPTIONS
        )

    @_whole()
    def _finish_part(self) -> None:
        if self._in_memory:
            self._manifest = msgspec.structs.replace(
                self._manifest, events=self._part_events, trace_hash=self._digest.hexdigest()
            )
        if self._parquet is None:
            return
        temporary, path = self._part_path(".parquet.tmp"), self._part_path(".parquet")
        try:
            self._parquet.close()
            with temporary.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            size_bytes = temporary.stat().st_size
            temporary.replace(path)
        except OSError as error:
            raise self._unwritable(error) from error
        part = Part(
            file=path.name,
            rows=self._part_events,
            events=self._part_events,
            size_bytes=size_bytes,
            sha256=sha256,
        )
        self._manifest = msgspec.structs.replace(
            self._manifest,
            events=self._manifest.events + part.events,
            trace_hash=self._digest.hexdigest(),
            parts=[*self._manifest.parts, part],
        )
        self._parquet = None
        self._part_events = 0
        self._write_manifest()

    def _write_manifest(self) -> None:
        if self._in_memory:
            return
        temporary = self.manifest_path.with_name(self.manifest_path.name + ".tmp")
        try:
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self._manifest), indent=2))
            temporary.replace(self.manifest_path)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> TraceError:
        return TraceError(
            str(self.folder),
            f"the trace cannot be written ({error.strerror or error})",
            "Check the path, its permissions and the free space",
        )
