"""The log of a durable node that remembers (`protocols/log/book.py` has the contract).

What the core asks for happens here at once, in memory, and is collected; `take` hands the collection to the
thread that writes it (`write`). The host releases nothing that followed before that has returned
(`BookWriter`). `NAME-lock` beside the files (blocks.py) says who has them.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from bisect import bisect_left
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from whence.core.lives import Stream, split_stream
from whence.core.protocol import State
from whence.errors import MisuseError, StoreError
from whence.live.blocks import Batch, BookFiles
from whence.live.sqlite import require_folder
from whence.protocols.log.book import ENTRY_BYTES, Entry, entry_bytes, last_of
from whence.protocols.log.wire import Item
from whence.session.log_host import LogHost
from whence.trace.schema import KILLED

RECENT_ENTRIES = 4096  # that are in the tables and stay in memory as well: what peers are sent most
RECENT_BYTES = 8 << 20


class SqliteBook:
    """A book on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = self._locked(path)
        try:
            self.files = BookFiles(path)
            self._begin()
        except BaseException:
            os.close(self._lock)
            raise
        self.commits = 0
        self._recent: list[Entry] = []  # from LSN `_recent_lsn` on; everything that is not in the tables
        self._recent_lsn = self.next
        self._recent_bytes = 0
        self._written = self.next  # entries below it are on the disk
        self._taken = self.next  # entries below it have been handed to the writer
        # Of each stream the numbers and LSNs of entries that are not in the tables, and from where to where.
        self._places: dict[int, tuple[list[int], list[int]]] = {}
        self._placed = (self.next, self.next)
        self._dirty: set[int] = set()  # streams whose D or F has changed
        self._new_lives: list[tuple[int, Stream]] = []
        self._new_done: list[int] = []
        self._new_late: list[int] = []
        self._new_keys: list[tuple[bytes, int, int, int]] = []
        self._keys: dict[bytes, tuple[int, int, int]] = {}  # those that are not in the tables, with their age
        self._keys_gone = 0  # up to which age
        self._new_state: dict[str, Any] = {}
        self._was_killed = False

    def _locked(self, path: Path) -> int:
        """One owner: SQLite's own exclusive mode would keep our second connection out as well."""
        lock = path.with_name(path.name + "-lock")
        require_folder(path)
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"store {path}", error.strerror or str(error), "Check the path") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise StoreError(
                f"store {path}", "another process uses it", "Stop that process, or give another file"
            ) from error
        return handle

    def _begin(self) -> None:
        found = self.files.found()
        self._names: list[Stream] = [name for name, _, _ in found.streams]
        self._newest: list[int] = [newest for _, newest, _ in found.streams]
        self._floor: list[int] = [floor for _, _, floor in found.streams]
        self._lives, self._done, self._late, self.outbox = found[1:5]
        self._state: dict[str, Any] = found.state
        self.first: int = found.state.get("first", 1)
        self.next: int = found.state.get("next", 1)
        self.cursor: int = found.state.get("cursor", 1)
        self.size_bytes: int = found.state.get("size_bytes", 0)

    # Whose store it is

    def meta(self) -> dict[str, Any]:
        """Whose store this is; empty if it is new."""
        found = self._state.get("meta", {})
        return dict(found)

    def describe(self, meta: Mapping[str, Any]) -> None:
        """Say whose store this is; once, when it is new."""
        self.files.describe("meta", dict(meta))
        self._state["meta"] = dict(meta)

    # Streams

    def streams(self) -> list[tuple[Stream, int, int]]:
        """Every stream with its D and F, in order of its index."""
        return list(zip(self._names, self._newest, self._floor, strict=True))

    def add_stream(self, stream: Stream) -> int:
        """A stream that is not in the book; returns its index."""
        self._names.append(stream)
        self._newest.append(0)
        self._floor.append(0)
        self._dirty.add(len(self._names) - 1)
        return len(self._names) - 1

    def raise_floor(self, stream: int, number: int) -> None:
        """F of a stream: a jump passes over what was never here."""
        if number > self._floor[stream]:
            self._floor[stream] = number
            self._dirty.add(stream)

    def lives(self) -> list[Stream]:
        """The streams of all openings of this book, the oldest first."""
        return list(self._lives)

    def add_life(self, stream: Stream) -> None:
        """The book is opened once more."""
        self._was_killed = bool(self._lives) and not self._state.get("ended", False)
        self._new_state["ended"] = False
        self._lives.append(stream)
        self._new_lives.append((len(self._lives), stream))

    def end(self) -> None:
        """The process ends in order: all that it did is here."""
        self._new_state["ended"] = True

    @property
    def opening(self) -> str:
        """The present life, and whether the one before ended without a word."""
        return split_stream(self._lives[-1])[1] + (KILLED if self._was_killed else "")

    @property
    def trace_parts(self) -> int | None:
        """How many parts of the node's trace tell of what is here; None: take all of them.

        A killed process may have written one or two that tell of steps which did not get here. More than that
        were written by another copy of this book, and what they tell has happened.
        """
        return self._state.get("trace_parts") if self._was_killed else None

    # Entries

    def append(self, entry: Entry) -> int:
        """One entry more; D of its stream becomes its last number."""
        lsn = self.next
        self.next = lsn + 1
        self._recent.append(entry)
        stream = entry[0]
        size = entry_bytes(entry)
        self.size_bytes += size
        self._recent_bytes += size
        self._newest[stream] = last_of(entry)
        self._dirty.add(stream)
        return lsn

    def append_run(self, entries: list[Item], payload_bytes: int) -> int:
        """As `append` for each of some messages of one stream; returns the LSN of the first."""
        lsn = self.next
        self.next = lsn + len(entries)
        self._recent += entries
        stream, number = entries[-1][:2]
        size = ENTRY_BYTES * len(entries) + payload_bytes
        self.size_bytes += size
        self._recent_bytes += size
        self._newest[stream] = number
        self._dirty.add(stream)
        return lsn

    def read(self, lsn: int, limit: int) -> list[Entry]:
        """Up to `limit` consecutive entries from `lsn` on, which is not below `first`."""
        if lsn < self.first:
            raise MisuseError(f"entry {lsn} of a log", "it has been cut off", "Read from `first` on")
        at = lsn - self._recent_lsn
        if at >= 0:
            return self._recent[at : at + limit]
        found = self.files.read(lsn, min(lsn + limit, self._recent_lsn))
        if len(found) < limit:
            found += self._recent[: limit - len(found)]
        return found

    def find(self, stream: int, number: int) -> int | None:
        """The LSN of the oldest entry of a stream with that number or a later one."""
        if number > self._newest[stream]:
            return None
        in_tables = self.files.in_tables
        found = self.files.find(stream, number, self.first) if self.first < in_tables else None
        if found is not None:
            return found
        self._place(in_tables)
        numbers, lsns = self._places.get(stream, ([], []))
        at = max(bisect_left(numbers, number), bisect_left(lsns, self.first))
        return lsns[at] if at < len(lsns) else None

    def _place(self, start: int) -> None:
        """Say where the entries from `start` on are: when someone asks, and only of those that are new."""
        placed_from, placed_to = self._placed
        if placed_from != start:
            self._places, placed_to = {}, start
        for lsn, entry in enumerate(self._recent[placed_to - self._recent_lsn :], placed_to):
            numbers, lsns = self._places.setdefault(entry[0], ([], []))
            numbers.append(last_of(entry))
            lsns.append(lsn)
        self._placed = (start, self.next)

    def cut(self, lsn: int) -> dict[int, int]:
        """Drop what is below `lsn`, not above `cursor`; returns what F became of streams that it raised."""
        lsn = min(lsn, self.cursor)
        if lsn <= self.first:
            return {}
        in_tables = self.files.in_tables
        newest, size = self.files.tops(self.first, min(lsn, in_tables))
        start = max(self.first, in_tables) - self._recent_lsn
        for entry in self._recent[start : max(start, lsn - self._recent_lsn)]:
            newest[entry[0]] = last_of(entry)
            size += entry_bytes(entry)
        self.size_bytes -= size
        raised = {}
        for stream, number in sorted(newest.items()):
            if number > self._floor[stream]:
                raised[stream] = self._floor[stream] = number
                self._dirty.add(stream)
        self.first = lsn
        return raised

    # Readers

    def done(self, lsn: int) -> None:
        """The reader has no need of an entry any more; in any order."""
        if not self.cursor <= lsn < self.next or lsn in self._done:
            return
        if lsn == self.cursor and not self._done:
            self.cursor += 1
            return
        self._done.add(lsn)
        self._new_done.append(lsn)
        while self.cursor in self._done:
            self._done.remove(self.cursor)
            self.cursor += 1

    def done_before(self, lsn: int) -> None:
        """The same of everything below an LSN."""
        if lsn > self.cursor:
            self.cursor = min(lsn, self.next)
            self._done = {each for each in self._done if each >= self.cursor}
            while self.cursor in self._done:
                self._done.remove(self.cursor)
                self.cursor += 1

    def is_done(self, lsn: int) -> bool:
        """Whether the reader has no need of an entry any more."""
        return lsn < self.cursor or lsn in self._done

    def mark_late(self, lsn: int) -> None:
        """The entry was delivered with the flag, which a reader must see again after a restart."""
        self._late.add(lsn)
        self._new_late.append(lsn)

    def is_late(self, lsn: int) -> bool:
        """Whether the entry was delivered with the flag."""
        return lsn in self._late

    # Keys

    def id_of(self, key: bytes) -> tuple[int, int] | None:
        """The message (stream, number) that was broadcast with a key."""
        found = self._keys.get(key)
        return self.files.id_of(key) if found is None else found[:2]

    def add_key(self, key: bytes, stream: int, number: int) -> None:
        """A message is broadcast with a key; the oldest key goes where there are too many."""
        at = self._state.get("keys", 0) + 1
        self._state["keys"] = self._new_state["keys"] = at
        self._keys[key] = (stream, number, at)
        self._new_keys.append((key, stream, number, at))

    # Readers by name, of a node that carries for others

    def readers(self) -> dict[str, int]:
        """The first LSN that each named reader has not said to be done with."""
        return dict(self._state.get("readers", {}))

    def set_reader(self, name: str, lsn: int) -> None:
        """A named reader is done with everything below an LSN."""
        readers = {**self._state.get("readers", {}), name: lsn}
        self._state["readers"] = self._new_state["readers"] = readers

    # Checkpoints

    def checkpoint(self, state: State) -> None:
        """What the core knows besides the entries, as of `next`; only the newest is kept."""
        self._state["checkpoint"] = self._new_state["checkpoint"] = [self.next, state]

    def last_checkpoint(self) -> tuple[int, State] | None:
        """The newest checkpoint, with the `next` at which it was made."""
        found = self._state.get("checkpoint")
        return None if found is None else (found[0], found[1])

    # Writing

    @property
    def written(self) -> int:
        """The first LSN that is not on the disk."""
        return self._written

    @property
    def is_shut(self) -> bool:
        """Whether something that a peer or a caller could notice is not with the writer yet."""
        return bool(
            self._taken < self.next
            or self._dirty
            or self._new_lives
            or self._new_keys
            or self._new_late
            or self._new_state
            or self.outbox.added
            or self.outbox.dropped
        )

    @property
    def has_news(self) -> bool:
        """Whether anything is not with the writer yet, be it only what a reader is done with."""
        return self.is_shut or self._state.get("cursor", 1) != self.cursor or bool(self._new_done)

    def take(self, trace_parts: int | None = None) -> Batch:
        """Hand over what has happened since the last time, and how many parts of a trace tell of it."""
        state = self._new_state
        if trace_parts is not None:
            state["trace_parts"] = trace_parts
        state.update(first=self.first, next=self.next, cursor=self.cursor, size_bytes=self.size_bytes)
        self._state["cursor"] = self.cursor
        streams = [(at, self._names[at], self._newest[at], self._floor[at]) for at in sorted(self._dirty)]
        batch = Batch(
            self._recent[self._taken - self._recent_lsn :],
            self._taken,
            streams,
            self._new_lives,
            [lsn for lsn in self._new_done if lsn >= self.cursor],
            self._new_late,
            self._new_keys,
            *self.outbox.take(),
            state,
        )
        self._taken = self.next
        self._dirty = set()
        self._new_lives, self._new_done, self._new_late, self._new_keys = [], [], [], []
        self._new_state = {}
        return batch

    def write(self, batch: Batch) -> None:
        """Write a batch; it is on the disk when this returns. In the writer's thread."""
        self.files.write(batch)

    def wrote(self, batch: Batch) -> None:
        """The batch is on the disk: entries that are in the tables need not stay in memory."""
        self.commits += 1
        self._written = batch.first_lsn + len(batch.entries)
        in_tables = self.files.in_tables
        keep_from = in_tables
        if self._recent_bytes <= RECENT_BYTES:
            keep_from = min(in_tables, max(self.first, self._written - RECENT_ENTRIES))
        gone = keep_from - self._recent_lsn
        if gone > RECENT_ENTRIES or (gone > 0 and self._recent_bytes > RECENT_BYTES):
            self._recent_bytes -= sum(map(entry_bytes, self._recent[:gone]))
            del self._recent[:gone]
            self._recent_lsn += gone
        if self._keys_gone < (age := self.files.keys_in_tables):
            self._keys = {key: value for key, value in self._keys.items() if value[2] > age}
            self._keys_gone = age

    def close(self) -> None:
        """Close the files. All that was written is kept."""
        try:
            self.files.close()
        finally:
            os.close(self._lock)


PROBE_S = 0.5  # while the disk fails, this often the batch is tried again
IDLE_S = 0.05  # what only says that messages were read waits this long for company


class BookWriter:
    """Writes what a book has collected, one batch after the other, and lets what waited for it happen.

    While the disk fails, the batch that failed is tried again; nothing that followed from it leaves the node.
    `refused` hears of each failure, `released` that something has happened, `fail` that the node has failed.
    """

    def __init__(
        self,
        book: SqliteBook,
        host: LogHost,
        refused: Callable[[StoreError], None],
        released: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self.book = book
        self.broken: StoreError | None = None  # the last write failed, and none has succeeded since
        self.entries = 0
        self._host = host
        self._refused = refused
        self._released = released
        self._fail = fail
        self._waiters: list[asyncio.Future[None]] = []  # of tasks that wait for the next batch
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="whence-book")
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """There is something to write."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._task is None and self.book.has_news:
            self._task = self._loop.create_task(self._write_all())

    def wake_later(self) -> None:
        """There is something to write that no one waits for."""
        if self._idle is None and self._task is None:
            self._idle = self._loop.call_later(IDLE_S, self.wake)

    def check(self) -> None:
        """Raise the `StoreError` of a disk that fails."""
        if self.broken is not None:
            raise StoreError(self.broken.what, self.broken.reason, self.broken.fix)

    async def written(self) -> None:
        """Wait until all that has happened so far is on the disk; `StoreError` if that fails now."""
        if not self.book.has_news:
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        self.wake()
        await waiter

    async def _write_all(self) -> None:
        try:
            while self.book.has_news:
                await self._write_batch()
        finally:
            self._task = None

    async def _write_batch(self) -> None:
        batch = self.book.take(self._host.flush_rows() if self.book.is_shut else None)
        steps = self._host.waiting_for_disk()
        waiters, self._waiters = self._waiters, []
        while True:
            try:
                await self._loop.run_in_executor(self._thread, self.book.write, batch)
                break
            except StoreError as error:
                self.broken = error
                self._disappoint([*waiters, *self._waiters], error)
                waiters, self._waiters = [], []
                self._refused(error)
                await asyncio.sleep(PROBE_S)
        self.broken = None
        self.entries += len(batch.entries)
        self.book.wrote(batch)
        try:
            self._host.release(steps)
            if not self.book.is_shut:  # what came meanwhile waited only for its turn
                self._host.release(self._host.waiting_for_disk())
        except Exception as error:  # noqa: BLE001 - the node has failed, and this task must not end silently
            self._fail(error)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._released()

    def _disappoint(self, waiters: list[asyncio.Future[None]], error: StoreError) -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(
                    StoreError(
                        error.what,
                        f"{error.reason}; it is kept in memory, and leaves if there is room in time",
                        "Make room; a broadcast that is tried again with the same key is sent once",
                    )
                )

    async def close(self) -> None:
        """Write what waits, if the disk lets us; close the book."""
        self.book.end()
        self.wake()
        task = self._task
        if task is not None:
            done, _ = await asyncio.wait([task], timeout=None if self.broken is None else 2 * PROBE_S)
            if not done:
                task.cancel()
        if not self.book.is_shut:
            self._host.release(self._host.waiting_for_disk())
        await self._loop.run_in_executor(self._thread, self.book.close)
        self._thread.shutdown()
