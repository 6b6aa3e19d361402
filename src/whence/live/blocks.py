"""The files of a book on disk: batches as they are written, and tables that take them in now and then.

    NAME         a SQLite file with the tables
    NAME-log     the batches since they were last folded, each synced (`BatchFile`); gone after a clean end

    block(lsn, count, bytes, tops, body)     entries in order of delivery; `tops`: last number of each stream
    place(stream, number, lsn)               the same the other way round: the block that has a number
    stream(id, name, newest, floor)          every stream with its D and F
    done(lsn)                                what readers are done with, above the cursor
    key(key, stream, number, at)             messages that were broadcast with a key, the newest `KEYS_MAX`
    late(lsn)                                entries that were delivered with the flag
    life(at, stream)                         every opening that spoke
    outbox(ticket, key, until_us, payload)   what waits until a member has admitted this node
    state(name, value)                       next, first, cursor, size, checkpoint, and whose store it is

Earlier releases had a row with an index for each entry, which cost more than all else that a durable node
does. Opening such a store makes blocks of them, once.

One thread writes, another reads, each over a connection of its own: reading does not wait for a sync.
So a message costs its bytes in a file and a share of a block, and an opening reads at most as many batches as
are not folded, streams, lives and the state: it does not replay the log, and its time does not grow with it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from whence.core.lives import Stream
from whence.live.sqlite import SqliteFile
from whence.live.store import BatchFile
from whence.protocols.log.book import ENTRY_BYTES, Entry, entry_bytes, last_of, unplain
from whence.protocols.log.wire import GONE, Item
from whence.session.outbox import Outbox, Post

FORMAT = 2
_WITH_ROWS = 1  # the format of earlier releases: entries are rows
KEYS_MAX = 100_000  # the oldest go first
BLOCK_ENTRIES = 512
BLOCK_BYTES = 64 << 10  # of entries, about; one that is longer is a block of its own
FOLD_BYTES = 1 << 20  # of batches, before they are folded
_CACHED_BLOCKS = 4
_APPLICATION_ID = 0x57484E4C  # "WHNL"
_MESSAGE_FIELDS = 6  # of an entry; a gap has fewer
_ID, _PAYLOAD = itemgetter(0, 1), itemgetter(4)  # of a message
_GAP = GONE + 1  # the mark of a gap among the items of a block
_BLOCKS = """
CREATE TABLE IF NOT EXISTS block (
    lsn INTEGER PRIMARY KEY, count INTEGER NOT NULL, bytes INTEGER NOT NULL, tops BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS place (
    stream INTEGER NOT NULL, number INTEGER NOT NULL, lsn INTEGER NOT NULL, PRIMARY KEY (stream, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (
    ticket INTEGER PRIMARY KEY, key BLOB, until_us INTEGER, payload BLOB NOT NULL
)
"""
_TABLES = f"""
CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE stream (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, newest INTEGER NOT NULL, floor INTEGER NOT NULL
);
CREATE TABLE life (at INTEGER PRIMARY KEY, stream TEXT NOT NULL);
CREATE TABLE done (lsn INTEGER PRIMARY KEY);
CREATE TABLE late (lsn INTEGER PRIMARY KEY);
CREATE TABLE key (
    key BLOB PRIMARY KEY, stream INTEGER NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX key_by_age ON key (at);
{_BLOCKS}
"""
encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_items_of = msgspec.msgpack.Decoder(list[Item]).decode


class Batch(NamedTuple):
    """What one write makes durable."""

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


def decode_batch(data: bytes) -> Batch:
    """The batch that was encoded."""
    batch = Batch(*_decode(data))
    return batch._replace(entries=list(map(unplain, batch.entries)))


class Found(NamedTuple):
    """What a store holds besides its entries."""

    streams: list[tuple[Stream, int, int]]
    lives: list[Stream]
    done: set[int]
    late: set[int]
    outbox: Outbox
    state: dict[str, Any]


class BookFiles(SqliteFile):
    """Batches and tables. The process that opens them holds the lock beside them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _APPLICATION_ID, FORMAT, _TABLES, earlier=(_WITH_ROWS,))
        self.in_tables = 1  # entries below it are in the tables
        self.keys_in_tables = 0  # keys up to that age are
        self._unfolded: list[Batch] = []
        self._unfolded_bytes = 0
        self._cached: list[tuple[int, list[Entry]]] = []  # blocks that were read last, with their LSNs
        try:
            with self._errors():
                self._reader = sqlite3.connect(path, isolation_level=None, timeout=1, check_same_thread=False)
                self._reader.execute("PRAGMA query_only = ON")
                self._make_blocks()
                self._batches = BatchFile(self.batches_path, self._batch_key())
                self._take_up()
        except BaseException:
            self._db.close()
            raise

    def _own(self) -> None:
        """Who opens the book holds a lock: SQLite's exclusive mode would keep our reader out as well."""

    def _make_blocks(self) -> None:
        """Entries that are rows become blocks, all or none."""
        db = self._db
        if not db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'entry'").fetchone()[0]:
            return
        with self._transaction():
            for statement in _BLOCKS.split(";"):
                db.execute(statement)
            first = db.execute("SELECT min(lsn) FROM entry").fetchone()[0]
            rows = db.execute("SELECT body FROM entry ORDER BY lsn")
            self._insert(first or 1, (unplain(_decode(body)) for (body,) in rows))
            db.execute("DROP TABLE entry")

    def _batch_key(self) -> bytes:
        """The key of the file of batches, drawn once."""
        key: bytes | None = self._said("batch_seal")
        if key is None:
            key = self._draw_key()
            self.describe("batch_seal", key)
        return key

    def _take_up(self) -> None:
        """Fold what the last opening has left in the file of batches."""
        self._batch = self._said("batch") or 0  # number of the newest on the disk
        batches = self._batches.read(self._batch)
        if batches is None:
            raise self._problem(
                f"{self._batches.path.name} beside it is damaged, or belongs to another copy",
                "Restore both files from a copy",
            )
        self._batch += len(batches)
        self._unfolded = list(map(decode_batch, batches))
        self._fold()
        self.in_tables = self._said("next") or 1

    def _said(self, name: str) -> Any:
        row = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return None if row is None else _decode(row[0])

    def found(self) -> Found:
        """All but the entries: it does not grow with the log."""
        with self._errors():
            return self._found()

    def _found(self) -> Found:
        db = self._db
        rows = db.execute("SELECT id, name, newest, floor FROM stream ORDER BY id").fetchall()
        if [row[0] for row in rows] != list(range(len(rows))):
            raise self._problem("it is damaged (streams are missing)", "Restore the file from a copy")
        state = {name: _decode(value) for name, value in db.execute("SELECT name, value FROM state")}
        end = db.execute("SELECT lsn + count FROM block ORDER BY lsn DESC LIMIT 1").fetchone()
        if end is not None and end[0] != state.get("next", 1):
            reason = f"its newest entry is {end[0] - 1}, and it counts up to {state.get('next', 1) - 1}"
            raise self._problem(f"it is damaged ({reason})", "Restore the file from a copy")
        posts = db.execute("SELECT ticket, key, until_us, payload FROM outbox ORDER BY ticket")
        return Found(
            [(name, newest, floor) for _, name, newest, floor in rows],
            [life for (life,) in db.execute("SELECT stream FROM life ORDER BY at")],
            {lsn for (lsn,) in db.execute("SELECT lsn FROM done")},
            {lsn for (lsn,) in db.execute("SELECT lsn FROM late")},
            Outbox({ticket: Post(*post) for ticket, *post in posts}),
            state,
        )

    # Writing

    def describe(self, name: str, value: object) -> None:
        """One thing that the file must say from its beginning."""
        with self._errors(), self._transaction():
            self._db.execute("INSERT INTO state VALUES (?, ?)", (name, encode(value)))

    def write(self, batch: Batch) -> None:
        """Write a batch; it is on the disk when this returns. If it fails it has not happened."""
        with self._errors():
            if self._unfolded_bytes >= FOLD_BYTES:
                self._fold()
            data = encode(batch)
            self._batches.write(self._batch + 1, data)
        self._batch += 1
        self._unfolded.append(batch)
        self._unfolded_bytes += len(data)

    def _fold(self) -> None:
        """Take the batches of the file into the tables, all of them, or none if that fails."""
        if self._unfolded:
            state = self._take_in_all(self._unfolded)
            self.in_tables = state["next"]
            self.keys_in_tables = state.get("keys", self.keys_in_tables)
            self._unfolded, self._unfolded_bytes = [], 0
        self._batches.restart()

    def _take_in_all(self, batches: list[Batch]) -> dict[str, Any]:
        """Returns what they say of the state."""
        db = self._db
        state: dict[str, Any] = {}
        for batch in batches:
            state |= batch.state
        state["batch"] = self._batch
        with self._transaction():
            streams = {row[0]: row for batch in batches for row in batch.streams}
            db.executemany("INSERT OR REPLACE INTO stream VALUES (?, ?, ?, ?)", streams.values())
            lsn = batches[0].first_lsn
            skipped = max(0, state["first"] - lsn)  # they have been cut off already
            entries = [entry for batch in batches for entry in batch.entries][skipped:]
            self._insert(lsn + skipped, iter(entries))
            for batch in batches:
                self._take_in(batch)
            self._drop_below(state["first"], state["cursor"])
            db.executemany(
                "INSERT OR REPLACE INTO state VALUES (?, ?)",
                [(name, encode(value)) for name, value in state.items()],
            )
        return state

    def _take_in(self, batch: Batch) -> None:
        db = self._db
        db.executemany("INSERT INTO life VALUES (?, ?)", batch.lives)
        db.executemany("INSERT OR REPLACE INTO done VALUES (?)", [(lsn,) for lsn in batch.done])
        db.executemany("INSERT OR REPLACE INTO late VALUES (?)", [(lsn,) for lsn in batch.late])
        db.executemany("INSERT OR REPLACE INTO key VALUES (?, ?, ?, ?)", batch.keys)
        if batch.keys:
            db.execute("DELETE FROM key WHERE at <= ?", (batch.keys[-1][3] - KEYS_MAX,))
        posts = [(ticket, *post) for ticket, post in batch.posts]
        db.executemany("INSERT INTO outbox VALUES (?, ?, ?, ?)", posts)
        db.executemany("DELETE FROM outbox WHERE ticket = ?", [(ticket,) for ticket in batch.sent])

    def _insert(self, lsn: int, entries: Iterator[Entry]) -> None:
        """Write entries from an LSN on, in blocks."""
        while block := list(islice(entries, BLOCK_ENTRIES)):
            self._insert_block(lsn, block)
            lsn += len(block)

    def _insert_block(self, lsn: int, entries: list[Entry]) -> None:
        """One block, or several if it would be long."""
        if all(map(_MESSAGE_FIELDS.__eq__, map(len, entries))):  # as nearly always: no call for each
            items = cast(list[Item], entries)
            tops = dict(map(_ID, items))
            size = ENTRY_BYTES * len(items) + sum(map(len, map(_PAYLOAD, items)))
        else:
            items = list(map(_item, entries))
            tops = {entry[0]: last_of(entry) for entry in entries}
            size = sum(map(entry_bytes, entries))
        if size > BLOCK_BYTES and len(entries) > 1:
            half = len(entries) // 2
            self._insert_block(lsn, entries[:half])
            self._insert_block(lsn + half, entries[half:])
            return
        row = (lsn, len(entries), size, encode(tops), encode(items))
        self._db.execute("INSERT INTO block VALUES (?, ?, ?, ?, ?)", row)
        places = [(stream, number, lsn) for stream, number in tops.items()]
        self._db.executemany("INSERT INTO place VALUES (?, ?, ?)", places)

    def _drop_below(self, first: int, cursor: int) -> None:
        """What has been cut off, in whole blocks, and what readers have passed."""
        db = self._db
        gone = db.execute("SELECT tops FROM block WHERE lsn < ? AND lsn + count <= ?", (first, first))
        places = chain.from_iterable(_decode(tops).items() for (tops,) in gone.fetchall())
        db.executemany("DELETE FROM place WHERE stream = ? AND number = ?", places)
        db.execute("DELETE FROM block WHERE lsn < ? AND lsn + count <= ?", (first, first))
        db.execute("DELETE FROM late WHERE lsn < ?", (first,))
        db.execute("DELETE FROM done WHERE lsn < ?", (cursor,))

    # Reading

    def read(self, lsn: int, stop: int) -> list[Entry]:
        """The entries from `lsn` to `stop`, without it."""
        found: list[Entry] = []
        while lsn < stop:
            start, entries = self._block(lsn)
            found += entries[lsn - start : stop - start]
            lsn = start + len(entries)
        return found

    def find(self, stream: int, number: int, first: int) -> int | None:
        """The LSN of the oldest entry, from `first` on, with that number of a stream or a later one."""
        with self._errors():
            (oldest,) = self._reader.execute("SELECT max(lsn) FROM block WHERE lsn <= ?", (first,)).fetchone()
            places = self._reader.execute(
                "SELECT lsn FROM place WHERE stream = ? AND number >= ? AND lsn >= ? ORDER BY number LIMIT 2",
                (stream, number, oldest or 0),
            ).fetchall()
        for (start,) in places:  # two: of the oldest block only the end may be left
            for lsn, entry in enumerate(self._block(start)[1], start):
                if lsn >= first and entry[0] == stream and last_of(entry) >= number:
                    return lsn
        return None

    def tops(self, first: int, stop: int) -> tuple[dict[int, int], int]:
        """The last number of each stream among the entries from `first` to `stop`, and the bytes of those."""
        newest: dict[int, int] = {}
        size = 0
        with self._errors():
            rows = self._reader.execute(
                "SELECT lsn, count, bytes, tops FROM block WHERE lsn < ? AND lsn + count > ? ORDER BY lsn",
                (stop, first),
            ).fetchall()
        for lsn, count, block_bytes, tops in rows:
            if lsn >= first and lsn + count <= stop:
                newest |= _decode(tops)
                size += block_bytes
                continue
            for entry in self.read(max(first, lsn), min(stop, lsn + count)):
                newest[entry[0]] = last_of(entry)
                size += entry_bytes(entry)
        return newest, size

    def id_of(self, key: bytes) -> tuple[int, int] | None:
        """The message (stream, number) that was broadcast with a key."""
        with self._errors():
            row = self._reader.execute("SELECT stream, number FROM key WHERE key = ?", (key,)).fetchone()
        return None if row is None else (row[0], row[1])

    def _block(self, lsn: int) -> tuple[int, list[Entry]]:
        """The block that has an entry, and its first LSN. It never changes."""
        for start, entries in self._cached:
            if start <= lsn < start + len(entries):
                return start, entries
        with self._errors():
            row = self._reader.execute(
                "SELECT lsn, body FROM block WHERE lsn <= ? ORDER BY lsn DESC LIMIT 1", (lsn,)
            ).fetchone()
        entries = [] if row is None else list(map(_entry, _items_of(row[1])))
        if not entries or lsn >= row[0] + len(entries):
            raise self._problem(f"it is damaged (entry {lsn} is missing)", "Restore the file from a copy")
        self._cached = [(row[0], entries), *self._cached[: _CACHED_BLOCKS - 1]]
        return self._cached[0]

    def close(self) -> None:
        """Fold what was written, and close the files. All that was written is kept."""
        try:
            with self._errors():
                self._fold()
        finally:
            with self._errors():
                self._batches.close()
                self._reader.close()
            super().close()


def _item(entry: Entry) -> Item:
    """An entry as a block has it: all are of one shape."""
    if len(entry) == 6:
        return entry
    stream, first, last, reason = entry
    return stream, first, last, (), reason.encode(), _GAP


def _entry(item: Item) -> Entry:
    if item[5] != _GAP:
        return item
    return item[0], item[1], item[2], item[4].decode()
