"""The log of a durable node that remembers, in one SQLite file (`protocols/log/book.py` has the contract).

What the core asks for happens here at once, in memory, and is collected; `take` hands the collection to the
thread that writes it in one transaction (`write`). The host releases nothing that followed before that has
returned (`BookWriter`). Old entries are read back from the file, in small batches, over a connection of
their own, so that reading does not wait for a sync.

    entry(lsn, stream, number, bytes, body)  in order of delivery; `number` is the last of the entry's
    stream(id, name, newest, floor)          every stream with its D and F
    done(lsn)                                what readers are done with, above the cursor
    key(key, stream, number, at)             messages that were broadcast with a key, the newest `KEYS_MAX`
    late(lsn)                                entries that were delivered with the flag
    life(at, stream)                         every opening that spoke
    outbox(ticket, key, until_us, payload)   what waits until a member has admitted this node
    state(name, value)                       next, first, cursor, size, checkpoint, and whose store it is

Opening reads streams, lives and the state: it does not replay the log, and its time does not grow with it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from whence.core.lives import Stream, split_stream
from whence.core.protocol import State
from whence.errors import MisuseError, StoreError
from whence.live.sqlite import SqliteFile, require_folder
from whence.protocols.log.book import Entry, unplain
from whence.protocols.log.wire import Item
from whence.session.log_host import LogHost
from whence.session.outbox import Outbox, Post
from whence.trace.schema import KILLED

FORMAT = 1
KEYS_MAX = 100_000  # the oldest go first
RECENT_ENTRIES = 4096  # that are on the disk and stay in memory as well: what peers are sent most
RECENT_BYTES = 8 << 20
_APPLICATION_ID = 0x57484E4C  # "WHNL"
_ENTRY_BYTES = 96  # about what an entry costs besides its payload
_TABLES = """
CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE entry (
    lsn INTEGER PRIMARY KEY, stream INTEGER NOT NULL, number INTEGER NOT NULL, bytes INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX entry_by_number ON entry (stream, number);
CREATE TABLE stream (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, newest INTEGER NOT NULL, floor INTEGER NOT NULL
);
CREATE TABLE life (at INTEGER PRIMARY KEY, stream TEXT NOT NULL);
CREATE TABLE done (lsn INTEGER PRIMARY KEY);
CREATE TABLE late (lsn INTEGER PRIMARY KEY);
CREATE TABLE key (
    key BLOB PRIMARY KEY, stream INTEGER NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX key_by_age ON key (at)
"""
# A table that stores of an earlier release lack.
_OUTBOX = """
CREATE TABLE IF NOT EXISTS outbox (
    ticket INTEGER PRIMARY KEY, key BLOB, until_us INTEGER, payload BLOB NOT NULL
)
"""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Batch(NamedTuple):
    """What one transaction writes."""

    entries: list[Entry]
    first_lsn: int  # of `entries`
    streams: list[tuple[int, Stream, int, int]]
    lives: list[tuple[int, Stream]]
    done: list[int]
    late: list[int]
    keys: list[tuple[bytes, int, int, int]]
    posts: list[tuple[int, Post]]
    sent: list[int]  # tickets of posts that have left the outbox
    state: dict[str, Any]


class SqliteBook(SqliteFile):
    """A book on disk."""

    def __init__(self, path: Path) -> None:
        self._lock = self._locked(path)
        try:
            super().__init__(path, _APPLICATION_ID, FORMAT, _TABLES)
            with self._errors():
                self._reader = sqlite3.connect(path, isolation_level=None, timeout=1, check_same_thread=False)
                self._reader.execute("PRAGMA query_only = ON")
                self._load()
        except BaseException:
            os.close(self._lock)
            raise
        self.commits = 0
        self._recent: list[Entry] = []  # from LSN `_recent_lsn` on; everything that is not on the disk
        self._recent_lsn = self.next
        self._recent_bytes = 0
        self._written = self.next  # entries below it are on the disk
        self._taken = self.next  # entries below it have been handed to the writer
        self._dirty: set[int] = set()  # streams whose D or F has changed
        self._new_lives: list[tuple[int, Stream]] = []
        self._new_done: list[int] = []
        self._new_late: list[int] = []
        self._new_keys: dict[bytes, tuple[int, int, int]] = {}
        self._writing_keys: dict[bytes, tuple[int, int, int]] = {}
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

    def _own(self) -> None:
        """The lock is held already."""

    def _load(self) -> None:
        db = self._db
        rows = db.execute("SELECT id, name, newest, floor FROM stream ORDER BY id").fetchall()
        self._names: list[Stream] = [name for _, name, _, _ in rows]
        self._newest: list[int] = [newest for _, _, newest, _ in rows]
        self._floor: list[int] = [floor for _, _, _, floor in rows]
        if [row[0] for row in rows] != list(range(len(rows))):
            raise self._problem("it is damaged (streams are missing)", "Restore the file from a copy")
        self._lives: list[Stream] = [life for (life,) in db.execute("SELECT stream FROM life ORDER BY at")]
        self._state: dict[str, Any] = {
            name: _decode(value) for name, value in db.execute("SELECT name, value FROM state")
        }
        self.first: int = self._state.get("first", 1)
        self.next: int = self._state.get("next", 1)
        self.cursor: int = self._state.get("cursor", 1)
        self.size_bytes: int = self._state.get("size_bytes", 0)
        newest = db.execute("SELECT max(lsn) FROM entry").fetchone()[0]
        if newest is not None and newest != self.next - 1:
            reason = f"it is damaged (its newest entry is {newest}, and it counts up to {self.next - 1})"
            raise self._problem(reason, "Restore the file from a copy")
        self._done: set[int] = {lsn for (lsn,) in db.execute("SELECT lsn FROM done")}
        self._late: set[int] = {lsn for (lsn,) in db.execute("SELECT lsn FROM late")}
        db.execute(_OUTBOX)
        posts = db.execute("SELECT ticket, key, until_us, payload FROM outbox ORDER BY ticket")
        self.outbox = Outbox({ticket: Post(*post) for ticket, *post in posts})

    # Whose store it is

    def meta(self) -> dict[str, Any]:
        """Whose store this is; empty if it is new."""
        found = self._state.get("meta", {})
        return dict(found)

    def describe(self, meta: Mapping[str, Any]) -> None:
        """Say whose store this is; once, when it is new."""
        with self._errors(), self._transaction():
            self._db.execute("INSERT INTO state VALUES ('meta', ?)", (_encode(dict(meta)),))
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
        size = _size_of(entry)
        self.size_bytes += size
        self._recent_bytes += size
        self._newest[stream] = _last_of(entry)
        self._dirty.add(stream)
        return lsn

    def append_run(self, entries: list[Item], payload_bytes: int) -> int:
        """As `append` for each of some messages of one stream; returns the LSN of the first."""
        lsn = self.next
        self.next = lsn + len(entries)
        self._recent += entries
        stream, number = entries[-1][:2]
        size = _ENTRY_BYTES * len(entries) + payload_bytes
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
        with self._errors():
            rows = self._reader.execute(
                "SELECT body FROM entry WHERE lsn >= ? AND lsn < ? ORDER BY lsn",
                (lsn, min(lsn + limit, self._recent_lsn)),
            ).fetchall()
        found = [unplain(_decode(body)) for (body,) in rows]
        if len(found) < limit:
            found += self._recent[: limit - len(found)]
        return found

    def find(self, stream: int, number: int) -> int | None:
        """The LSN of the oldest entry of a stream with that number or a later one."""
        if number > self._newest[stream]:
            return None
        if self.first < self._written:
            with self._errors():
                row = self._reader.execute(
                    "SELECT lsn FROM entry WHERE stream = ? AND number >= ? AND lsn >= ? "
                    "ORDER BY number LIMIT 1",
                    (stream, number, self.first),
                ).fetchone()
            if row is not None:
                return int(row[0])
        start = max(self._written, self.first)
        for at, entry in enumerate(self._recent[start - self._recent_lsn :], start):
            if entry[0] == stream and _last_of(entry) >= number:
                return at
        return None

    def cut(self, lsn: int) -> dict[int, int]:
        """Drop what is below `lsn`, not above `cursor`; returns what F became of streams that it raised."""
        lsn = min(lsn, self.cursor)
        if lsn <= self.first:
            return {}
        newest: dict[int, int] = {}
        with self._errors():
            rows = self._reader.execute(
                "SELECT stream, max(number), sum(bytes) FROM entry WHERE lsn >= ? AND lsn < ? "
                "GROUP BY stream",
                (self.first, min(lsn, self._written)),
            )
            for stream, number, size in rows:
                newest[stream] = number
                self.size_bytes -= size
        start = max(self.first, self._written)
        for entry in self._recent[start - self._recent_lsn : max(0, lsn - self._recent_lsn)]:
            newest[entry[0]] = _last_of(entry)
            self.size_bytes -= _size_of(entry)
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
        for waiting in (self._new_keys, self._writing_keys):
            if key in waiting:
                return waiting[key][:2]
        with self._errors():
            row = self._reader.execute("SELECT stream, number FROM key WHERE key = ?", (key,)).fetchone()
        return None if row is None else (row[0], row[1])

    def add_key(self, key: bytes, stream: int, number: int) -> None:
        """A message is broadcast with a key; the oldest key goes where there are too many."""
        at = self._state.get("keys", 0) + 1
        self._state["keys"] = self._new_state["keys"] = at
        self._new_keys[key] = (stream, number, at)

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
            [(key, *value) for key, value in self._new_keys.items()],
            *self.outbox.take(),
            state,
        )
        self._taken = self.next
        self._writing_keys, self._new_keys = self._new_keys, {}
        self._dirty = set()
        self._new_lives, self._new_done, self._new_late, self._new_state = [], [], [], {}
        return batch

    def write(self, batch: Batch) -> None:
        """Write a batch; it is on the disk when this returns. In the writer's thread."""
        entries = [
            (lsn, entry[0], _last_of(entry), _size_of(entry), _encode(entry))
            for lsn, entry in enumerate(batch.entries, batch.first_lsn)
        ]
        first, cursor = batch.state["first"], batch.state["cursor"]
        with self._errors(), self._transaction():
            db = self._db
            db.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", entries)
            db.executemany("INSERT OR REPLACE INTO stream VALUES (?, ?, ?, ?)", batch.streams)
            db.executemany("INSERT INTO life VALUES (?, ?)", batch.lives)
            db.executemany("INSERT OR REPLACE INTO done VALUES (?)", [(lsn,) for lsn in batch.done])
            db.executemany("INSERT OR REPLACE INTO late VALUES (?)", [(lsn,) for lsn in batch.late])
            db.executemany("INSERT OR REPLACE INTO key VALUES (?, ?, ?, ?)", batch.keys)
            db.executemany(
                "INSERT INTO outbox VALUES (?, ?, ?, ?)", [(ticket, *post) for ticket, post in batch.posts]
            )
            db.executemany("DELETE FROM outbox WHERE ticket = ?", [(ticket,) for ticket in batch.sent])
            if batch.keys:
                db.execute("DELETE FROM key WHERE at <= ?", (batch.keys[-1][3] - KEYS_MAX,))
            db.execute("DELETE FROM entry WHERE lsn < ?", (first,))
            db.execute("DELETE FROM late WHERE lsn < ?", (first,))
            db.execute("DELETE FROM done WHERE lsn < ?", (cursor,))
            db.executemany(
                "INSERT OR REPLACE INTO state VALUES (?, ?)",
                [(name, _encode(value)) for name, value in batch.state.items()],
            )

    def wrote(self, batch: Batch) -> None:
        """The batch is on the disk: its older entries need not stay in memory."""
        self.commits += 1
        self._writing_keys = {}
        self._written = batch.first_lsn + len(batch.entries)
        keep_from = max(self.first, self._written - RECENT_ENTRIES)
        if self._recent_bytes > RECENT_BYTES:
            keep_from = self._written
        gone = min(keep_from, self._written) - self._recent_lsn
        if gone > RECENT_ENTRIES or (gone > 0 and self._recent_bytes > RECENT_BYTES):
            self._recent_bytes -= sum(map(_size_of, self._recent[:gone]))
            del self._recent[:gone]
            self._recent_lsn += gone

    def close(self) -> None:
        """Close the file. All that was written is kept."""
        try:
            with self._errors():
                self._reader.close()
            super().close()
        finally:
            os.close(self._lock)


def _last_of(entry: Entry) -> int:
    return entry[1] if len(entry) == 6 else entry[2]


def _size_of(entry: Entry) -> int:
    return _ENTRY_BYTES + (len(entry[4]) if len(entry) == 6 else 0)


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
        self._waiter: asyncio.Future[None] | None = None  # of those that wait for the next batch
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
        if self._waiter is None:
            self._waiter = self._loop.create_future()
        waiter = self._waiter
        self.wake()
        await asyncio.shield(waiter)

    async def _write_all(self) -> None:
        try:
            while self.book.has_news:
                await self._write_batch()
        finally:
            self._task = None

    async def _write_batch(self) -> None:
        batch = self.book.take(self._host.flush_rows() if self.book.is_shut else None)
        steps = self._host.waiting_for_disk()
        waiter, self._waiter = self._waiter, None
        while True:
            try:
                await self._loop.run_in_executor(self._thread, self.book.write, batch)
                break
            except StoreError as error:
                self.broken = error
                self._disappoint(waiter, error)
                self._disappoint(self._waiter, error)
                waiter = self._waiter = None
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
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        self._released()

    def _disappoint(self, waiter: asyncio.Future[None] | None, error: StoreError) -> None:
        if waiter is not None and not waiter.done():
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
