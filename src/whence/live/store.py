"""The durable store of one node: batches of records in the order of their commits, and snapshots.

One SQLite file in WAL mode with one owner, and beside it, until the node is closed, a file of the batches
since the last snapshot. `write` returns when the batch is on the disk; a batch that cannot be written has not
happened, and the next one tries again. What the bytes mean is durable.py's business.

Everything here blocks: durable.py calls it from a separate thread, so that the event loop never waits for
the disk and whatever arrives during a sync shares the next one.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias
from zlib import crc32

from whence.core.message import MessageId
from whence.errors import GroupClosedError, MisuseError, StoreError
from whence.live.sqlite import SqliteFile
from whence.session.durable import DurableServer
from whence.session.records import (
    Arrived,
    Commanded,
    Done,
    Passed,
    Record,
    RecordCodec,
    Restarted,
    Retired,
    Said,
)

FORMAT = 2
_WITH_ROWS = 1  # the format of earlier releases: batches are rows
_APPLICATION_ID = 0x57484E43  # "WHNC": other SQLite files are refused
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE log (id INTEGER PRIMARY KEY, batch BLOB NOT NULL);
CREATE TABLE snapshot (one INTEGER PRIMARY KEY CHECK (one = 1), last INTEGER NOT NULL, state BLOB NOT NULL)
"""


class Recovered(NamedTuple):
    """What a store holds: the state after the last snapshot, and the batches since."""

    snapshot: bytes | None
    batches: list[bytes]


_HEAD = struct.Struct(">IQ8sI")  # of a batch in its file: bytes, number, seal of the number, sum of the bytes
_LENGTH_BYTES = 4  # before the number
_AHEAD_BYTES = 64 << 10  # a file grows by so much more than it needs
_sync = getattr(os, "fdatasync", os.fsync)


class BatchFile:
    """Batches one after the other, each with its number, and a sum that shows whether all of it was written.

    A third of the cost of a row in SQLite, which writes each page with a sum of its own, and later again.
    After a snapshot the file begins anew at its front: behind the new batches are rests of old ones, with
    smaller numbers. Such rests hold payloads that any peer may have chosen: only who knows the store's `key`
    can seal a number, so that none of them is ever taken for a batch.
    """

    def __init__(self, path: Path, key: bytes) -> None:
        self.path = path
        self._key = key
        is_new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._at = 0  # where the next one begins
        self._size = os.fstat(self._file).st_size
        if is_new:
            folder = os.open(path.parent, os.O_RDONLY)
            os.fsync(folder)  # the name, too, must survive
            os.close(folder)

    def read(self, after: int) -> list[bytes] | None:
        """The batches with the numbers after `after`; None if the file is damaged, or lacks the first.

        The end is what is not whole, or not the next: it was never written, unless its successor is there.
        """
        data = self.path.read_bytes()
        batches: list[bytes] = []
        at, number = 0, 0
        while (found := self._batch_at(data, at)) is not None and number in (0, found[0] - 1):
            number, batch, at = found
            if number > after:
                if number != after + 1 + len(batches):
                    return None
                batches.append(batch)
        if self._is_anywhere(max(number, after) + 2, data, at):
            return None
        self._at = at if batches else 0
        return batches

    def write(self, number: int, batch: bytes) -> None:
        """Append a batch; it is on the disk when this returns."""
        data = _HEAD.pack(len(batch), number, self._seal(number), crc32(batch)) + batch
        try:
            if self._at + len(data) > self._size:
                self._grow(self._at + len(data))
            written = 0
            while written < len(data):
                written += os.pwrite(self._file, data[written:] if written else data, self._at + written)
            _sync(self._file)
        except OSError:
            with suppress(OSError):  # or it would be there after all, if the node stopped now
                os.pwrite(self._file, bytes(_HEAD.size), self._at)
            raise
        self._at += len(data)

    def _grow(self, stop: int) -> None:
        """Write zeros ahead: a sync of blocks that the file has need not put its size on the disk as well."""
        with suppress(OSError):  # where the disk is almost full, the batch may have room all the same
            ahead = bytes(stop + _AHEAD_BYTES - self._size)
            self._size += os.pwrite(self._file, ahead, self._size)

    def restart(self) -> None:
        """A snapshot holds all that was written."""
        self._at = 0

    def close(self) -> None:
        """Close the file; it is removed if nothing is lost with it."""
        os.close(self._file)
        if self._at == 0:
            self.path.unlink(missing_ok=True)

    def _seal(self, number: int) -> bytes:
        """To seal all bytes as well would cost five times their sum, a fifth of what a commit costs."""
        return blake2b(number.to_bytes(8), digest_size=8, key=self._key).digest()

    def _batch_at(self, data: bytes, at: int) -> tuple[int, bytes, int] | None:
        """The batch that begins there, if it is whole: its number, its bytes, where it ends."""
        if not 0 <= at <= len(data) - _HEAD.size:
            return None
        length, number, seal, total = _HEAD.unpack_from(data, at)
        stop = at + _HEAD.size + length
        if not length or stop > len(data) or self._seal(number) != seal:
            return None
        batch = data[at + _HEAD.size : stop]
        if crc32(batch) != total:
            return None
        return number, batch, stop

    def _is_anywhere(self, number: int, data: bytes, at: int) -> bool:
        """Whether the batch of this number is somewhere behind `at`."""
        mark = number.to_bytes(8)
        while (at := data.find(mark, at)) >= 0:
            found = self._batch_at(data, at - _LENGTH_BYTES)
            if found is not None and found[0] == number:
                return True
            at += 1
        return False


class Store(SqliteFile):
    """Batches and snapshots. Open it, `recover` what it holds, then `write`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _APPLICATION_ID, FORMAT, _TABLES, earlier=(_WITH_ROWS,))
        self.last = 0  # number of the newest batch on the disk
        self.log_bytes = 0  # since the last snapshot
        self.commits = self.snapshots = 0
        try:
            with self._errors():
                self._check()
                self._batches = BatchFile(self.batches_path, self._batch_key())
                batches = self._written()
                self.last += len(batches)
                self.log_bytes += sum(map(len, batches))
        except StoreError:
            self._db.close()
            raise

    def _check(self) -> None:
        db = self._db
        damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise self._problem(f"it is damaged ({damage})", "Restore the file from a copy")
        at, oldest, newest, count, size = db.execute(
            "SELECT (SELECT last FROM snapshot), min(id), max(id), count(*), total(length(batch)) FROM log"
        ).fetchone()
        before = at or 0
        if count and (oldest != before + 1 or newest - oldest + 1 != count):
            raise self._problem(
                f"it is damaged (batches {oldest} to {newest} are {count}, after a snapshot at {before})",
                "Restore the file from a copy",
            )
        self.last = self._last_in_tables = max(before, newest or 0)
        self.log_bytes = int(size)

    def _batch_key(self) -> bytes:
        """The key of the file of batches, drawn once; stores of earlier releases have none yet."""
        with self._transaction():
            self._db.execute("CREATE TABLE IF NOT EXISTS batch_seal (key BLOB NOT NULL)")
            row = self._db.execute("SELECT key FROM batch_seal").fetchone()
            if row is None:
                row = (self._draw_key(),)
                self._db.execute("INSERT INTO batch_seal VALUES (?)", row)
        key: bytes = row[0]
        return key

    # Reading

    def recover(self) -> Recovered:
        """What was written, in order."""
        with self._errors():
            row = self._db.execute("SELECT state FROM snapshot").fetchone()
            batches = self._db.execute("SELECT batch FROM log ORDER BY id").fetchall()
            written = self._written()
        return Recovered(None if row is None else row[0], [*(batch for (batch,) in batches), *written])

    def _written(self) -> list[bytes]:
        """The batches in their file."""
        batches = self._batches.read(self._last_in_tables)
        if batches is None:
            raise self._problem(
                f"{self._batches.path.name} beside it is damaged, or belongs to another copy",
                "Restore both files from a copy",
            )
        return batches

    def meta(self) -> dict[str, bytes]:
        """Who the store belongs to; empty if it is new."""
        with self._errors():
            return dict(self._db.execute("SELECT key, value FROM meta").fetchall())

    # Writing

    def describe(self, meta: Mapping[str, bytes]) -> None:
        """Write who the store belongs to, when it is new, and its lives."""
        with self._errors(), self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())

    def write(self, batch: bytes) -> None:
        """Append a batch; it is on the disk when this returns."""
        with self._errors():
            self._batches.write(self.last + 1, batch)
        self.last += 1
        self.log_bytes += len(batch)
        self.commits += 1

    def close(self) -> None:
        """Close the files. All that was written is kept."""
        with self._errors():
            self._batches.close()
        super().close()

    def snapshot(self, state: bytes) -> None:
        """Replace all batches by the state after them."""
        with self._errors(), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?)", (self.last, state))
            self._db.execute("DELETE FROM log")  # which earlier releases wrote
        self._batches.restart()
        self._last_in_tables = self.last
        self.log_bytes = 0
        self.snapshots += 1


# Group commit: inputs wait for the sync that they share, and happen, in their order, once they are on disk.
#
#     inputs of a turn -> [ encode, write, sync: one batch, in a thread ] -> apply all, in order -> effects
#
# What comes while the thread writes shares the next batch, and so do the tasks that a batch lets go on.
# So nothing that an input causes can be seen by anybody before the input is on the disk, and an input whose
# batch cannot be written has not happened: a task that waits for it receives `StoreError`.


PROBE_S = 0.5  # while the disk fails, this often a write is tried
IDLE_S = 0.05  # what only says that messages were taken waits this long for company
# In a dense stream packets wait for company, too, if no task waits: a sync costs as much as many packets.
DENSE_INPUTS = 128  # packets and broadcasts of the last batch, in such a stream
FEW_PACKETS = 1024  # fewer wait, at most so long:
COMPANY_S = 0.004

Outcomes: TypeAlias = list[MessageId | MisuseError]  # of what an input submits


class LogEntry(NamedTuple):
    """An input that waits: its record, how many bytes it came in, who waits for it."""

    record: Record
    data_bytes: int = 0
    waiter: asyncio.Future[MessageId | None] | None = None

    @property
    def inputs(self) -> int:
        return 1

    @property
    def is_said_once(self) -> bool:
        """Nobody says it again: what became of lives and links waits until the disk takes it."""
        return self.waiter is None and isinstance(self.record, Commanded | Restarted | Retired)

    def happened(self, outcomes: Outcomes) -> None:
        """It is on the disk, and carried out."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(next((id_ for id_ in outcomes if isinstance(id_, MessageId)), None))

    def refuse(self, error: Exception) -> None:
        """It has not happened, and will not."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(_fresh(error))


class Saying:
    """What tasks broadcast between two commits: one record, for which all of them wait together.

    A future as asyncio's tasks know them (`asyncio.isfuture`). One of asyncio's own for each broadcast costs
    half as much again: a handle of the loop for each task, where these are woken in one.
    """

    __slots__ = (
        "_asyncio_future_blocking", "_is_over", "_loop", "_outcomes", "_tasks", "data_bytes", "payloads",
        "record",
    )  # fmt: skip

    def __init__(self, now_us: int, loop: asyncio.AbstractEventLoop) -> None:
        self.payloads: list[bytes] = []
        self.record = Said(now_us, self.payloads)
        self.data_bytes = 0
        self._is_over = False  # it has happened, or will not
        self._outcomes: Outcomes | Exception = []
        self._loop = loop
        self._tasks: list[tuple[Context, Callable[[object], object]]] = []
        self._asyncio_future_blocking = False

    @property
    def inputs(self) -> int:
        return len(self.payloads)

    def happened(self, outcomes: Outcomes) -> None:
        """All of it is on the disk, and carried out."""
        self._end(outcomes)

    def refuse(self, error: Exception) -> None:
        """Nothing of it has happened, or will."""
        self._end(error)

    def _end(self, outcomes: Outcomes | Exception) -> None:
        self._outcomes = outcomes
        self._is_over = True
        self._loop.call_soon(self._wake)

    def outcome(self, at: int) -> MessageId:
        """The id of the message with the `at`-th payload; or raise why there is none."""
        if isinstance(self._outcomes, Exception):
            raise _fresh(self._outcomes)
        outcome = self._outcomes[at]
        if isinstance(outcome, MisuseError):
            raise outcome
        return outcome

    def _wake(self) -> None:
        tasks, self._tasks = self._tasks, []
        for at, (context, go_on) in enumerate(tasks):
            try:
                context.run(go_on, self)
            except BaseException:  # the program ends: the others must go on to hear of it
                self._tasks += tasks[at + 1 :]
                self._loop.call_soon(self._wake)
                raise

    # For asyncio's tasks

    def __await__(self) -> Generator[Self, None, None]:
        while not self._is_over:  # another task may have been cancelled, which wakes all
            self._asyncio_future_blocking = True
            yield self

    def add_done_callback(self, go_on: Callable[[object], object], *, context: Context) -> None:
        """A task waits."""
        self._tasks.append((context, go_on))

    def result(self) -> None:
        """What a task is given that wakes up."""

    def cancel(self, msg: object = None) -> bool:
        """A task is cancelled, and does not say which: it is told when it wakes up, so all do."""
        self._loop.call_soon(self._wake)
        return False


class Batch(NamedTuple):
    """What one commit writes: what readers are done with, then inputs in their order."""

    passed: int
    done: tuple[MessageId, ...]
    entries: list[LogEntry | Saying]

    def records(self) -> Iterable[Record]:
        """As they are written."""
        if self.passed:
            yield Passed(self.passed)
        if self.done:
            yield Done(self.done)
        for entry in self.entries:
            yield entry.record


class CommitLog:
    """Writes inputs in batches, and carries them out once they are on the disk.

    `apply` carries an input out and returns the ids of what it submits (None: the node has failed);
    `committed` follows each batch, and returns a state to keep as a snapshot, if it is time for one;
    `refused` is called when the inputs that waited have not happened; `fail` when the node cannot go on.
    """

    def __init__(
        self,
        store: Store,
        codec: RecordCodec,
        host: DurableServer,
        apply: Callable[[Record, int], Outcomes | None],
        committed: Callable[[], bytes | None],
        refused: Callable[[StoreError], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self.store = store
        self.codec = codec
        self.broken: StoreError | None = None  # the last write failed, and none has succeeded since
        self.records = 0
        self._host = host
        self._apply = apply
        self._committed = committed
        self._refused = refused
        self._fail = fail
        self._waiting: list[LogEntry | Saying] = []
        self._saying: Saying | None = None  # the last of them, if more may be said with it
        self._packets = 0  # that wait
        self._is_urgent = False  # something waits that is not packets
        self._is_dense = False  # the stream of packets
        self._done: list[MessageId] = []
        self._is_busy = False  # a batch is being written, or will be in this turn of the loop
        self._later: asyncio.TimerHandle | None = None  # of a batch that need not be written now
        self._closed: asyncio.Future[None] | None = None  # nothing waits, and no more will come
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="whence-store")
        self._loop = asyncio.get_running_loop()

    def append(self, record: Record) -> None:
        """An input that no task waits for."""
        self._put(LogEntry(record))

    def arrived(self, record: Arrived, data_bytes: int) -> None:
        """Packets, which may wait for more."""
        self._packets += len(record.packets)
        self._waiting.append(LogEntry(record, data_bytes))
        self._saying = None
        if self._may_wait():
            if not self._is_busy:
                self._start_later(COMPANY_S)
        else:
            self._start()

    def _may_wait(self) -> bool:
        return self._is_dense and self._packets < FEW_PACKETS and not self._is_urgent and self._closed is None

    def _put(self, entry: LogEntry | Saying) -> None:
        self._waiting.append(entry)
        self._saying = None
        self._is_urgent = True
        self._start()

    def submit(self, record: Record) -> asyncio.Future[MessageId | None]:
        """An input that a task waits for: done when it is on the disk and has happened."""
        self._check()
        waiter: asyncio.Future[MessageId | None] = asyncio.Future(loop=self._loop)
        self._put(LogEntry(record, 0, waiter))
        return waiter

    def say(self, payload: bytes) -> tuple[Saying, int]:
        """A broadcast that a task waits for, with others that share a record; and which of them it is."""
        saying = self._saying
        if saying is None:
            self._check()
            saying = Saying(self._host.now_us(), self._loop)
            self._put(saying)
            self._saying = saying
        payloads = saying.payloads
        payloads.append(payload)
        return saying, len(payloads) - 1

    async def submit_all(self, records: Sequence[Record]) -> None:
        """Inputs that share a commit, if they can; returns when all are on the disk and have happened."""
        await asyncio.gather(*[self.submit(record) for record in records])

    def _check(self) -> None:
        if self.broken is not None:
            raise StoreError(self.broken.what, self.broken.reason, self.broken.fix)

    def later(self, work: Callable[[], None]) -> None:
        """Do something with the store in its thread."""
        self._loop.run_in_executor(self._thread, work)

    async def pause(self) -> None:
        """Wait for as long as it takes to try a write again while the disk fails."""
        await asyncio.sleep(PROBE_S)

    def done(self, id_: MessageId) -> None:
        """The application is done with a message: written with something else, or soon."""
        self._done.append(id_)
        if not self._is_busy:
            self._start_later()

    def passed(self) -> None:
        """A loop has passed a message, and the disk knew of all before it."""
        if not self._is_busy:
            self._start_later()

    # One batch after the other, while anything waits

    def _start(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            if self._later is not None:
                self._later.cancel()
                self._later = None
            self._loop.call_soon(self._cut)

    def _start_later(self, delay_s: float = IDLE_S) -> None:
        at_s = self._loop.time() + delay_s
        if self._later is None or self._later.when() > at_s:
            if self._later is not None:
                self._later.cancel()
            self._later = self._loop.call_at(at_s, self._start)

    def _cut(self) -> None:
        """Give all that waits to the thread. While the disk fails, that may be nothing: does it still?"""
        self._later = None
        batch = Batch(self._host.passed, tuple(self._done), self._waiting)
        self._waiting, self._saying = [], None
        self._is_dense = self._packets + sum(entry.inputs for entry in batch.entries) >= DENSE_INPUTS
        self._packets, self._is_urgent = 0, False
        self._thread.submit(self._write, batch)

    def _write(self, batch: Batch) -> None:
        """In the thread."""
        error: Exception | None = None
        try:
            self.store.write(self.codec.encode_batch(batch.records()))
        except Exception as problem:  # noqa: BLE001 - the loop must hear of it, whatever it is
            error = problem
        self._loop.call_soon_threadsafe(self._written, batch, error)

    def _written(self, batch: Batch, error: Exception | None) -> None:
        """If a batch could not be written, nothing of it has happened; else all of it does now, in order."""
        if error is not None:
            if isinstance(error, StoreError):
                self.broken = error
            else:
                self._fail(error)
            self._refuse(batch, error)
            if self._closed is None:
                self._later = self._loop.call_later(PROBE_S, self._cut)
            else:
                self._close()
            return
        self.broken = None
        self._carry_out(batch)
        try:
            state = self._committed()
        except Exception as problem:  # noqa: BLE001 - the node has failed, and must say so
            self._fail(problem)
            state = None
        if state is None:
            self._go_on()
        else:
            self._thread.submit(self._keep, state, self._host.passed)

    def _keep(self, state: bytes, passed: int) -> None:
        """In the thread: the log is whole if it fails, and a later commit tries again."""
        try:
            self.store.snapshot(state)
        except StoreError:
            passed = 0
        self._loop.call_soon_threadsafe(self._kept, passed)

    def _kept(self, passed: int) -> None:
        self._host.kept(passed)
        self._go_on()

    def _go_on(self) -> None:
        """The tasks that were waiting go on first, so that what they say is in the next batch."""
        if (self._waiting and not self._may_wait()) or (
            self._closed is not None and (self._host.passed or self._done)
        ):
            self._loop.call_soon(self._cut)
            return
        self._is_busy = False
        if self._closed is not None:
            self._close()
        elif self._waiting:
            self._start_later(COMPANY_S)
        elif self._host.passed or self._done:
            self._start_later()

    def _close(self) -> None:
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _carry_out(self, batch: Batch) -> None:
        if batch.passed:
            self._carry_out_one(LogEntry(Passed(batch.passed)))
        if batch.done:
            del self._done[: len(batch.done)]
            self._carry_out_one(LogEntry(Done(batch.done)))
        for entry in batch.entries:
            self._carry_out_one(entry)

    def _carry_out_one(self, entry: LogEntry | Saying) -> None:
        self.records += entry.inputs
        try:
            outcomes = self._apply(entry.record, entry.data_bytes)
        except MisuseError as error:
            # The caller's mistake: the core has refused it, and will again in a replay.
            entry.refuse(error)
            return
        except Exception as error:  # noqa: BLE001 - the node has failed, and must say so
            self._fail(error)
            entry.refuse(error)
            return
        if outcomes is None:
            entry.refuse(self._too_late())
        else:
            entry.happened(outcomes)

    def _too_late(self) -> GroupClosedError:
        return GroupClosedError(
            f"store {self.store.path}",
            "the node failed while the message was written",
            "Start it again: the message leaves then",
        )

    def _refuse(self, batch: Batch, error: Exception) -> None:
        lost = [*batch.entries, *self._waiting]  # what came meanwhile may depend on what is refused
        self._waiting, self._saying = [], None
        for entry in lost:
            if isinstance(entry, LogEntry) and entry.is_said_once:
                self._waiting.append(entry)
            else:
                entry.refuse(error)
        if isinstance(error, StoreError):
            self._refused(error)

    async def close(self, state: Callable[[], bytes] | None) -> None:
        """Write what waits, then a last snapshot of `state`; close the store."""
        if self._is_busy or self._waiting or self._host.passed or self._done:
            self._closed = self._loop.create_future()
            self._start()
            await self._closed
        if state is not None and self.broken is None:
            with suppress(StoreError):
                await self._loop.run_in_executor(self._thread, self.store.snapshot, state())
        await self._loop.run_in_executor(self._thread, self.store.close)
        self._thread.shutdown()


def _fresh(error: Exception) -> Exception:
    """One of the store is shared by all that waited, and raising it twice mixes up its traceback."""
    if isinstance(error, StoreError):
        return StoreError(error.what, error.reason, error.fix)
    return error
