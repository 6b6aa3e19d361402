"""The durable store of one node: batches of records in the order of their commits, and snapshots.

One SQLite file in WAL mode with one owner. `write` returns when the batch is on the disk; a batch that cannot
be written has not happened, and the next one tries again. What the bytes mean is durable.py's business.

Everything here blocks: durable.py calls it from a separate thread, so that the event loop never waits for
the disk and whatever arrives during a sync shares the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from whence.core.message import MessageId
from whence.errors import MisuseError, StoreError
from whence.live.sqlite import SqliteFile
from whence.session.records import Done, Record, RecordCodec

FORMAT = 1
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


class Store(SqliteFile):
    """Batches and snapshots. Open it, `recover` what it holds, then `write`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _APPLICATION_ID, FORMAT, _TABLES)
        self.last = 0  # number of the newest batch on the disk
        self.log_bytes = 0  # since the last snapshot
        self.commits = self.snapshots = 0
        try:
            with self._errors():
                self._check()
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
        self.last = max(before, newest or 0)
        self.log_bytes = int(size)

    # Reading

    def recover(self) -> Recovered:
        """What was written, in order."""
        with self._errors():
            row = self._db.execute("SELECT state FROM snapshot").fetchone()
            batches = self._db.execute("SELECT batch FROM log ORDER BY id").fetchall()
        return Recovered(None if row is None else row[0], [batch for (batch,) in batches])

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
        with self._errors(), self._transaction():
            self._db.execute("INSERT INTO log VALUES (?, ?)", (self.last + 1, batch))
        self.last += 1
        self.log_bytes += len(batch)
        self.commits += 1

    def snapshot(self, state: bytes) -> None:
        """Replace all batches by the state after them."""
        with self._errors(), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?)", (self.last, state))
            self._db.execute("DELETE FROM log")
        self.log_bytes = 0
        self.snapshots += 1


# Group commit: inputs wait for the sync that they share, and happen, in their order, once they are on disk.
#
#     input -> append -> [ encode, write, sync: one batch, in a thread ] -> apply, in order -> effects
#
# So nothing that an input causes can be seen by anybody before the input is on the disk, and an input whose
# batch cannot be written has not happened: a task that waits for it receives `StoreError`.


PROBE_S = 0.5  # while the disk fails, this often a write is tried
IDLE_S = 0.05  # what only says that messages were taken waits this long for company


class LogEntry(NamedTuple):
    """An input that waits: its record, who waits for it, how many bytes it came in."""

    record: Record
    waiter: asyncio.Future[MessageId | None] | None
    data_bytes: int


class CommitLog:
    """Writes inputs in batches, and carries them out once they are on the disk.

    `apply` carries an input out; `committed` returns a state to keep as a snapshot, if it is time for one;
    `refused` is called when the inputs that waited have not happened; `fail` when the node cannot go on.
    """

    def __init__(
        self,
        store: Store,
        codec: RecordCodec,
        apply: Callable[[Record, int], MessageId | None],
        committed: Callable[[], bytes | None],
        refused: Callable[[StoreError], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self.store = store
        self.codec = codec
        self.broken: StoreError | None = None  # the last write failed, and none has succeeded since
        self.records = 0
        self._apply = apply
        self._committed = committed
        self._refused = refused
        self._fail = fail
        self._waiting: list[LogEntry] = []
        self._done: list[MessageId] = []
        self._writer: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="whence-store")
        self._loop = asyncio.get_running_loop()

    def append(self, record: Record, data_bytes: int = 0) -> None:
        """An input that no task waits for."""
        self._waiting.append(LogEntry(record, None, data_bytes))
        self._start()

    def submit(self, record: Record) -> asyncio.Future[MessageId | None]:
        """An input that a task waits for: done when it is on the disk and has happened."""
        if self.broken is not None:
            raise StoreError(self.broken.what, self.broken.reason, self.broken.fix)
        waiter: asyncio.Future[MessageId | None] = self._loop.create_future()
        self._waiting.append(LogEntry(record, waiter, 0))
        self._start()
        return waiter

    async def submit_all(self, records: Sequence[Record]) -> None:
        """Inputs that share a commit, if they can; returns when all are on the disk and have happened."""
        await asyncio.gather(*[self.submit(record) for record in records])

    def later(self, work: Callable[[], None]) -> None:
        """Do something with the store in its thread."""
        self._loop.run_in_executor(self._thread, work)

    async def pause(self) -> None:
        """Wait for as long as it takes to try a write again while the disk fails."""
        await asyncio.sleep(PROBE_S)

    def done(self, id_: MessageId) -> None:
        """The application is done with a message: written with something else, or soon."""
        self._done.append(id_)
        if self._idle is None and self._writer is None:
            self._idle = self._loop.call_later(IDLE_S, self._start)

    def _start(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._writer is None:
            self._writer = self._loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        """One sync after the other while anything waits; what comes meanwhile shares the next one.

        While the disk fails, empty batches ask whether it still does.
        """
        try:
            while self._waiting or self._done or self.broken is not None:
                if not await self._write_batch():
                    await asyncio.sleep(PROBE_S)
        finally:
            self._writer = None

    async def _write_batch(self) -> bool:
        batch, self._waiting = self._waiting, []
        records = [entry.record for entry in batch]
        done = Done(tuple(self._done))
        if done.ids:
            records.append(done)
        try:
            await self._loop.run_in_executor(self._thread, self.store.write, self.codec.encode_batch(records))
        except StoreError as error:
            self.broken = error
            self._refuse(batch, error)
            return False
        self.broken = None
        self.records += len(records)
        for entry in batch:
            self._carry_out(entry)
        if done.ids:
            del self._done[: len(done.ids)]
            self._carry_out(LogEntry(done, None, 0))
        try:
            state = self._committed()
        except Exception as error:  # noqa: BLE001 - the node has failed, and this task must not end silently
            self._fail(error)
            return True
        if state is not None:
            await self._snapshot(state)
        return True

    def _carry_out(self, entry: LogEntry) -> None:
        record, waiter, data_bytes = entry
        try:
            id_ = self._apply(record, data_bytes)
        except MisuseError as error:
            # The caller's mistake: the core has refused it, and will again in a replay.
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
            return
        except Exception as error:  # noqa: BLE001 - the node has failed, and this task must not end silently
            self._fail(error)
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
            return
        if waiter is not None and not waiter.done():
            waiter.set_result(id_)

    def _refuse(self, batch: list[LogEntry], error: StoreError) -> None:
        lost = [*batch, *self._waiting]  # what came meanwhile may depend on what is refused
        self._waiting = []
        for _, waiter, _ in lost:
            if waiter is not None and not waiter.done():
                waiter.set_exception(StoreError(error.what, error.reason, error.fix))
        self._refused(error)

    async def _snapshot(self, state: bytes) -> None:
        try:
            await self._loop.run_in_executor(self._thread, self.store.snapshot, state)
        except StoreError as error:
            self.broken = error  # the log is whole; a later commit tries again

    async def close(self, state: Callable[[], bytes] | None) -> None:
        """Write what waits, then a last snapshot of `state`; close the store."""
        self._start()
        writer = self._writer
        if writer is not None:
            done, _ = await asyncio.wait([writer], timeout=None if self.broken is None else 2 * PROBE_S)
            if not done:
                writer.cancel()
        if state is not None and self.broken is None:
            await self._snapshot(state())
        await self._loop.run_in_executor(self._thread, self.store.close)
        self._thread.shutdown()
