"""Group commit: inputs wait for the sync that they share, and happen, in their order, once they are on disk.

    input -> append -> [ encode, write, sync: one batch, in a thread ] -> apply, in order -> effects

So nothing that an input causes can be seen by anybody before the input is on the disk, and an input whose
batch cannot be written has not happened: whoever waits for it is told so with `StoreError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from whence.core.message import MessageId
from whence.errors import MisuseError, StoreError
from whence.live.store import Store
from whence.mom.records import Record, RecordCodec, Taken

PROBE_S = 0.5  # while the disk fails, this often a write is tried
IDLE_S = 0.05  # what only says that messages were taken waits this long for company


class Entry(NamedTuple):
    """An input that waits: its record, who waits for it, how many bytes it came in."""

    record: Record
    waiter: asyncio.Future[MessageId | None] | None
    data_bytes: int


class CommitLog:
    """See the module.

    `apply` carries an input out; `committed` answers a state to keep as a snapshot, if it is time for one;
    `refused` is told that the inputs that waited have not happened; `fail` that the node cannot go on.
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
        self._waiting: list[Entry] = []
        self._taken = self._taken_on_disk = 0
        self._writer: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="whence-store")
        self._loop = asyncio.get_running_loop()

    def append(self, record: Record, data_bytes: int = 0) -> None:
        """An input that nobody waits for."""
        self._waiting.append(Entry(record, None, data_bytes))
        self._start()

    def submit(self, record: Record) -> asyncio.Future[MessageId | None]:
        """An input that somebody waits for: done when it is on the disk and has happened."""
        if self.broken is not None:
            raise StoreError(self.broken.what, self.broken.reason, self.broken.fix)
        waiter: asyncio.Future[MessageId | None] = self._loop.create_future()
        self._waiting.append(Entry(record, waiter, 0))
        self._start()
        return waiter

    def took(self, count: int) -> None:
        """The application is done with so many messages: told to the disk when something else is, or soon."""
        self._taken = count
        if self._idle is None and self._writer is None:
            self._idle = self._loop.call_later(IDLE_S, self._start)

    def resume(self, taken: int) -> None:
        """After a recovery: so many messages were taken."""
        self._taken = self._taken_on_disk = taken

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
            while self._waiting or self._taken > self._taken_on_disk or self.broken is not None:
                if not await self._write_batch():
                    await asyncio.sleep(PROBE_S)
        finally:
            self._writer = None

    async def _write_batch(self) -> bool:
        batch, self._waiting = self._waiting, []
        records = [entry.record for entry in batch]
        taken = self._taken
        if taken > self._taken_on_disk:
            records.append(Taken(taken))
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
        if taken > self._taken_on_disk:
            self._taken_on_disk = taken
            self._carry_out(Entry(Taken(taken), None, 0))
        try:
            state = self._committed()
        except Exception as error:  # noqa: BLE001 - the node has failed, and this task must not end silently
            self._fail(error)
            return True
        if state is not None:
            await self._snapshot(state)
        return True

    def _carry_out(self, entry: Entry) -> None:
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

    def _refuse(self, batch: list[Entry], error: StoreError) -> None:
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
