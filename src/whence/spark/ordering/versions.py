"""The state of `whence stream`: one object for each partition and batch, on any file system that Arrow knows.

    ROOT/header.json                 what the state was begun with; other options are refused
    ROOT/flushed                     the order has ended: no more rows are taken
    ROOT/state/<partition>/<batch>   the bucket after that batch: all of it, or what the batch changed
    ROOT/time/<batch>/<partition>.<us>.json   its largest time, in the name, and what it holds

State (p, b) is a function of (p, b - 1) and of batch b, and is written whole under its final name. So a batch
that is done again, by a restarted query or a second attempt at a task, writes the same once more, and as
Spark commits a batch with its output, rows are ordered exactly once. Nothing is renamed, locked or listed
but the times of one batch. The number of a batch is a property of Spark's tasks that is not documented:
tests/spark/test_stream_versions.py guards it.

A version holds what its batch changed, until the changes since the last whole one are larger than that.
Versions of as many batches are kept as Spark keeps of its state (`spark.sql.streaming.minBatchesToRetain`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pyspark import TaskContext

from whence.errors import DataError, MisuseError, PlatformError
from whence.spark.ordering.buckets import Bucket, StepCounts, without_collector
from whence.spark.ordering.columns import OrderSettings
from whence.trace.dataset import open_place, put_whole

TICK = "__tick_us"
BATCH_PROPERTY = "streaming.sql.batchId"
_WHOLE_AGAIN = 20  # versions that a reader must put together at most


class StateHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a state was begun with; all of it decides which rows go where and when."""

    version: int = 1
    query: dict[str, str]  # what the caller said of the order
    columns: str  # of the rows, as Spark writes a schema in one line
    partitions: int


class OrderTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a task must know."""

    root: str
    maker: str  # of the state: the header's fingerprint
    partitions: int
    retain: int
    delay_us: int
    ids: str = ""  # a column for the ids of rows, the same if the batch is done again
    settings: tuple[Any, ...]


class StateSize(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition holds after a batch, and what the batch did there."""

    keys: int
    waiting: int
    state_bytes: int  # of the versions that make it up
    wake_us: int | None
    counts: StepCounts


class _Version(msgspec.Struct, array_like=True):
    """The state of a partition after a batch."""

    before: list[int]  # the versions to read before this one, the whole one first; none: this is whole
    whole_bytes: int
    since_bytes: int  # of the changes after the whole one
    alive: list[tuple[int, int]]  # older versions that are kept, each with the whole one that it needs
    bucket: bytes


class StateStore:
    """The objects below one root."""

    def __init__(self, root: str) -> None:
        self.root = re.sub(r"//[^/@]*@", "//", root)
        self._fs, self._base = open_place(root)

    # What the driver asks and says

    def header(self) -> StateHeader | None:
        """What the state was begun with; None: it was not."""
        content = self._get("header.json")
        return None if content is None else msgspec.json.decode(content, type=StateHeader)

    def begin(self, header: StateHeader, *, fresh: bool) -> StateHeader:
        """Begin a state, or go on with one: with its partitions, and only with the same options.

        `fresh`: the query has not run yet, so that a state must be another's.
        """
        known = self.header()
        if known is None:
            if not fresh:
                raise MisuseError(
                    f"state {self.root}",
                    "the checkpoint has batches, and there is no such state: it is of an older version of "
                    "Whence, or was begun with another --state",
                    "Name its --state, or begin another checkpoint and another out folder",
                )
            self._put("header.json", msgspec.json.encode(header))
            return header
        if fresh and self._names("state"):
            raise MisuseError(
                f"state {self.root}",
                "it belongs to another checkpoint: this one has not begun",
                "Remove the state, or name another --state",
            )
        header = msgspec.structs.replace(header, partitions=known.partitions)
        for name, now, then in _told_apart(header, known):
            raise MisuseError(
                f"checkpoint with its state in {self.root}",
                f"{name} was {then} when it was begun, and is {now} now",
                "Give the same options to go on, or begin another checkpoint and another out folder",
            )
        return known

    def is_flushed(self) -> bool:
        """Whether the order has ended."""
        return self._get("flushed") is not None

    def mark_flushed(self) -> None:
        """Note that no more rows will be taken."""
        self._put("flushed", b"the order has ended\n")

    def newest_batch(self) -> int | None:
        """The newest batch that was ordered, whether Spark has committed it or not."""
        found = [int(name) for name in self._names("time") if name.isdigit()]
        return max(found, default=None)

    def sizes(self, batch: int) -> list[StateSize]:
        """What each partition holds after a batch."""
        found = [self._get(f"time/{batch}/{name}") for name in self._names(f"time/{batch}")]
        return [msgspec.json.decode(each, type=StateSize) for each in found if each is not None]

    def due_us(self, batch: int, partitions: int, delay_us: int) -> int | None:
        """The time up to which rows should have ended by the times of a batch; None: no row waits so long."""
        sizes = self.sizes(batch)
        if len(sizes) != partitions:  # a batch that was stopped, and will be done again
            return None
        until_us = self.newest_us(batch, partitions) - delay_us
        due = any(size.waiting and size.wake_us is not None and size.wake_us < until_us for size in sizes)
        return until_us if due else None

    def put_tick(self, until_us: int | None) -> None:
        """Where the root is a folder of ticks: a file that carries a time; None: the folder alone."""
        try:
            self._fs.create_dir(self._base, recursive=True)
        except (OSError, pa.ArrowException) as error:
            raise self._failed("", "made", error) from error
        if until_us is not None:
            self._put(f"{uuid.uuid4().hex}.json", msgspec.json.encode({"us": until_us}))

    # What tasks do

    def newest_us(self, batch: int, partitions: int) -> int:
        """The largest time of all rows up to a batch."""
        if batch < 0:
            return 0
        times: dict[int, set[int]] = {}
        for name in self._names(f"time/{batch}"):
            partition, us, _ = name.split(".")
            times.setdefault(int(partition), set()).add(int(us))
        if len(times) != partitions or any(len(found) > 1 for found in times.values()):
            raise DataError(
                f"{self.root}/time/{batch}",
                f"it has the times of {len(times)} of {partitions} partitions, or several of one",
                "Restore the state and the checkpoint together, or begin both anew",
            )
        return max(us for found in times.values() for us in found)

    def versions(self, partition: int, batch: int) -> list[_Version]:
        """What makes up a partition's state after a batch, the whole one first."""
        newest = self._version(partition, batch)
        return [*(self._version(partition, each) for each in newest.before), newest]

    def save(self, partition: int, batch: int, bucket: Bucket, known: list[_Version], retain: int) -> None:
        """Write a partition's state after a batch; then remove what is older than what is kept."""
        last = known[-1] if known else None
        changes = bucket.changes() if last is not None else b""
        is_whole = last is None or last.since_bytes + len(changes) > last.whole_bytes
        if last is None or is_whole or len(last.before) >= _WHOLE_AGAIN:
            content = bucket.save()
            made = _Version([], len(content), 0, [], content)
        else:
            before = [*last.before, batch - 1]
            made = _Version(before, last.whole_bytes, last.since_bytes + len(changes), [], changes)
        alive = [] if last is None else [*last.alive, (batch - 1, (last.before or [batch - 1])[0])]
        needed = [whole for each, whole in alive if each >= batch - retain]
        floor = min([*needed, *made.before[:1], batch])
        made.alive = [pair for pair in alive if pair[0] >= floor]
        self._put(f"state/{partition}/{batch}", msgspec.msgpack.encode(made))
        size = StateSize(
            keys=bucket.keys,
            waiting=bucket.waiting,
            state_bytes=made.whole_bytes + made.since_bytes,
            wake_us=bucket.wake_us,
            counts=bucket.counts,
        )
        self._put(f"time/{batch}/{partition}.{bucket.newest_us}.json", msgspec.json.encode(size))
        for each, _ in alive:
            if each < floor:
                self._remove(f"state/{partition}/{each}")
        if partition == 0 and batch > retain:
            self._remove(f"time/{batch - retain - 1}")

    def _version(self, partition: int, batch: int) -> _Version:
        content = self._get(f"state/{partition}/{batch}")
        if content is None:
            raise DataError(
                f"{self.root}/state/{partition}/{batch}",
                "the state after the batch before is missing",
                "Restore the state and the checkpoint together, or begin both anew",
            )
        return msgspec.msgpack.decode(content, type=_Version)

    # Objects

    def _get(self, path: str) -> bytes | None:
        whole = f"{self._base}/{path}"
        try:
            with self._fs.open_input_file(whole) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as error:
            raise self._failed(path, "read", error) from error

    def _put(self, path: str, content: bytes) -> None:
        try:
            put_whole(self._fs, f"{self._base}/{path}", content)
        except (OSError, pa.ArrowException) as error:
            raise self._failed(path, "written", error) from error

    def _names(self, path: str) -> list[str]:
        try:
            listed: Any = self._fs.get_file_info(
                fs.FileSelector(f"{self._base}/{path}", allow_not_found=True)
            )
        except (OSError, pa.ArrowException) as error:
            raise self._failed(path, "listed", error) from error
        return sorted(str(info.base_name) for info in listed if not str(info.base_name).endswith(".part"))

    def _remove(self, path: str) -> None:
        whole = f"{self._base}/{path}"
        try:
            found: Any = self._fs.get_file_info(whole)
            if found.type == fs.FileType.Directory:
                self._fs.delete_dir(whole)
            elif found.type == fs.FileType.File:
                self._fs.delete_file(whole)
        except (OSError, pa.ArrowException):
            return  # another attempt at the same batch has removed it

    def _failed(self, path: str, verb: str, error: Exception) -> PlatformError:
        return PlatformError(
            f"{self.root}/{path}", f"it cannot be {verb} ({error})", "Check the address and permissions"
        )


def _told_apart(now: StateHeader, then: StateHeader) -> Iterator[tuple[str, str, str]]:
    """What differs: its name, and both values."""
    if now.version != then.version:
        yield "the version of the state", str(now.version), str(then.version)
    for name in sorted(now.query | then.query):
        if now.query.get(name) != then.query.get(name):
            yield name.replace("_", "-"), now.query.get(name, "not given"), then.query.get(name, "not given")
    if now.columns != then.columns:
        yield "the columns of the rows", now.columns, then.columns


def order_partition(
    batches: Iterable[pa.RecordBatch], given: Mapping[str, Any], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of one partition in one batch: the state before it, the order, the state after it.

    `given` has the fields of an `OrderTask`: a closure must not name our classes before they are found.
    """
    with without_collector():
        ended = _order_rows(batches, OrderTask(**given), schema)
    yield from ended.combine_chunks().to_batches(max_chunksize=10_000)


def _order_rows(batches: Iterable[pa.RecordBatch], task: OrderTask, schema: pa.Schema) -> pa.Table:
    """The rows that end; nothing else is left when it returns."""
    context: Any = TaskContext.get()
    partition, batch = int(context.partitionId()), int(context.getLocalProperty(BATCH_PROPERTY))
    store = StateStore(task.root)
    known = store.versions(partition, batch - 1) if batch else []
    bucket = Bucket(OrderSettings(*task.settings), schema, task.maker, [each.bucket for each in known])
    until_us = store.newest_us(batch - 1, task.partitions) - task.delay_us
    rows = None
    held = list(batches)
    if held:
        rows = pa.Table.from_batches(held).combine_chunks()
        ticks = rows.column(TICK)
        if ticks.null_count < len(ticks):
            until_us = max([until_us, *(us for us in ticks.unique().to_pylist() if us is not None)])
            rows = rows.filter(pc.is_null(ticks))
    ended = bucket.step(rows, until_us)
    store.save(partition, batch, bucket, known, task.retain)
    if task.ids:
        ids = [f"{batch}.{partition}.{number}" for number in range(ended.num_rows)]
        ended = ended.append_column(task.ids, pa.array(ids, pa.string()))
    return ended
