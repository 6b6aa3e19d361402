"""Tables of many runs on any file system: few large files, and commits that list them.

    ROOT/segments/, runs/, measures/, verdicts/, findings/, summaries/   Parquet files under unique names
    ROOT/commits/<task>.<attempt>.json                                   what one task has written, whole

A task writes its files, then one commit object that lists them with size and SHA-256. Readers list commits
only: a file that no commit names is of a task that was killed, and is ignored. So nothing is renamed and
nothing is locked, and one atomic PUT is all that is asked of the storage. Runs are deterministic: if a task
was done twice, either attempt will do, and two that differ in their `digest` are an error.

The root is a path or a URL of Arrow's file systems (`s3://bucket/path`, `gs://`, `abfs://`, `hdfs://`).
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from whence.errors import PlatformError, TraceError
from whence.trace.columns import TEXT_COLUMNS, compacted

FORMAT, VERSION = "whence-tables", 1
COMMITS = "commits"
TABLES = ("segments", "runs", "measures", "verdicts", "findings", "summaries")


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of a table."""

    table: str
    path: str  # below the root
    rows: int
    size_bytes: int
    sha256: str


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """What one task has written."""

    format: str = FORMAT
    version: int = VERSION
    task: str  # the same for every attempt at it
    digest: str  # of the contents, as far as they depend on the task alone
    about: dict[str, Any] = {}
    files: list[File]


def url_of(path: Path | str) -> str:
    """A root as it was typed: `Path` makes one slash of two."""
    return re.sub(r"^([a-z][a-z0-9+.-]+):/(?!/)", r"\1://", str(path))


def is_url(path: Path | str) -> bool:
    """Whether it names another file system than this machine's."""
    return "://" in url_of(path)


def _shown(url: str) -> str:
    """A URL without a key and a secret in it."""
    return re.sub(r"//[^/@]*@", "//", url)


def open_place(root: Path | str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URL, and the path in it. Hadoop's names of S3 (`s3a://`) are known."""
    address = re.sub(r"^s3[an]://", "s3://", url_of(root))
    try:
        if is_url(address):
            files, base = fs.FileSystem.from_uri(address)
            return files, base
        return fs.LocalFileSystem(), str(Path(address.removeprefix("file:")).resolve())
    except (OSError, ValueError, pa.ArrowException) as error:
        fix = "Give a path or a URL that Arrow can open"
        raise PlatformError(_shown(address), str(error), fix) from error


def put_whole(files: fs.FileSystem, path: str, content: Any) -> None:
    """Write an object that no reader sees in part, however many write it at a time."""
    if isinstance(files, fs.LocalFileSystem):
        files.create_dir(path.rsplit("/", 1)[0], recursive=True)
        # A local file grows under its name, an object appears whole: make the local one do so too.
        aside = f"{path}.{uuid.uuid4().hex}.part"
        with files.open_output_stream(aside) as out:
            out.write(content)
        files.move(aside, path)
    else:
        with files.open_output_stream(path) as out:
            out.write(content)


class Dataset:
    """The tables below one root."""

    def __init__(self, root: Path | str) -> None:
        self.root = _shown(url_of(root))
        self._fs, self._base = open_place(root)

    @property
    def exists(self) -> bool:
        """Whether there is a commit, or a place for one."""
        found: Any = self._fs.get_file_info(f"{self._base}/{COMMITS}")
        return bool(found.type == fs.FileType.Directory)

    def write(self, table: str, rows: pa.Table, **options: Any) -> File:
        """A new file of a table; it is part of it when a commit lists it."""
        path = f"{table}/{uuid.uuid4().hex}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, **({"compression": "zstd"} | options))
        content = sink.getvalue()
        self._put(path, content)
        return File(
            table=table,
            path=path,
            rows=rows.num_rows,
            size_bytes=content.size,
            sha256=hashlib.sha256(content).hexdigest(),
        )

    def _put(self, path: str, content: Any) -> None:
        try:
            put_whole(self._fs, f"{self._base}/{path}", content)
        except (OSError, pa.ArrowException) as error:
            raise PlatformError(
                f"{self.root}/{path}", f"it cannot be written ({error})", "Check the address and permissions"
            ) from error

    def commit(self, task: str, files: Sequence[File], digest: str, about: Mapping[str, Any]) -> Commit:
        """Make files part of their tables."""
        made = Commit(task=task, digest=digest, about=dict(about), files=list(files))
        self._put(f"{COMMITS}/{task}.{uuid.uuid4().hex}.json", msgspec.json.encode(made))
        return made

    def commits(self, kind: str = "") -> dict[str, Commit]:
        """One commit for each task whose name begins so; sorted by task."""
        selector = fs.FileSelector(f"{self._base}/{COMMITS}", allow_not_found=True)
        found: dict[str, Commit] = {}
        try:
            listed: Any = self._fs.get_file_info(selector)
        except (OSError, pa.ArrowException) as error:
            raise PlatformError(
                self.root, f"it cannot be listed ({error})", "Check the address and permissions"
            ) from error
        for info in sorted(listed, key=lambda each: str(each.path)):
            name = str(info.base_name)
            if not name.endswith(".json") or not name.startswith(kind):
                continue
            commit = self._load(str(info.path))
            if found.setdefault(commit.task, commit).digest != commit.digest:
                raise TraceError(
                    f"{self.root}/{COMMITS}/{name}",
                    f"two attempts at task {commit.task} differ, though runs are deterministic",
                    "Remove one of the two commits; check that all workers have the same version of Whence",
                )
        return found

    def _load(self, path: str) -> Commit:
        try:
            with self._fs.open_input_file(path) as file:
                commit = msgspec.json.decode(file.read(), type=Commit)
        except (OSError, msgspec.DecodeError) as error:
            raise TraceError(
                path, f"it is not a commit ({error})", "Remove it, and run the task again"
            ) from error
        if (commit.format, commit.version) != (FORMAT, VERSION):
            raise TraceError(
                path,
                f"it is {commit.format!r} version {commit.version}",
                f"This Whence reads {FORMAT} {VERSION}",
            )
        return commit

    def files(self, table: str, commits: Mapping[str, Commit] | None = None) -> list[File]:
        """The files of a table."""
        commits = self.commits() if commits is None else commits
        return [file for commit in commits.values() for file in commit.files if file.table == table]

    def open(self, file: File, *, hashes: bool = True) -> pq.ParquetFile:
        """A file for reading; its size and hash are checked."""
        path = f"{self._base}/{file.path}"
        try:
            with self._fs.open_input_file(path) as source:
                content = source.read_buffer()
            if content.size != file.size_bytes or (
                hashes and hashlib.sha256(content).hexdigest() != file.sha256
            ):
                raise TraceError(
                    f"{self.root}/{file.path}",
                    "its contents do not match size and SHA-256 in its commit",
                    "Remove the commit that lists it, and run the task again",
                )
            texts = list(TEXT_COLUMNS) if file.table == "segments" else None
            return pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts)
        except (OSError, pa.ArrowException) as error:
            raise TraceError(
                f"{self.root}/{file.path}", f"it cannot be read ({error})", "Run the task again"
            ) from error

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table | None:
        """All rows of a table; None if it has no file."""
        files = self.files(table)
        if not files:
            return None
        wanted = None if columns is None else list(columns)
        return pa.concat_tables([self.open(file).read(columns=wanted) for file in files])

    def arrow_dataset(self, table: str) -> Any:
        """The committed files of a table for engines that read Arrow's datasets; None if it has none."""
        import pyarrow.dataset as ds

        paths = [f"{self._base}/{file.path}" for file in self.files(table)]
        return ds.dataset(paths, format="parquet", filesystem=self._fs) if paths else None


def runs_in(
    parquet: pq.ParquetFile, bounds: Sequence[tuple[int, int]], columns: Sequence[str]
) -> Iterator[list[pa.RecordBatch]]:
    """The rows `first : first + count` of a segments file, for each of the bounds, which ascend."""
    group, begin = -1, 0
    batch: Any = None
    for first, count in bounds:
        pieces: list[pa.RecordBatch] = []
        at = first
        while at < first + count:
            while batch is None or at >= begin + batch.num_rows:
                begin += 0 if batch is None else batch.num_rows
                group += 1
                table = parquet.read_row_group(group, columns=list(columns), use_threads=False)
                (batch,) = table.unify_dictionaries().combine_chunks().to_batches()
            piece = batch.slice(at - begin, min(first + count, begin + batch.num_rows) - at)
            pieces.append(compacted(piece))
            at += piece.num_rows
        yield pieces
