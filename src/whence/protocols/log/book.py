"""The log of a node behind a small port: entries in local delivery order, cursors, keys.

An entry is a plain tuple, because one is made for every delivery:

    message   (stream, number, until, after, payload, mark)   as it travels (`wire.py`)
    gap       (stream, first, last, reason)                   numbers that will not be delivered here

Streams are indices that the book gives out and keeps forever. `D[stream]` is the newest number accounted
for, `F[stream]` the newest that was cut off. Entries that one step appends become durable together, before
the effects of the step are carried out: that is the host's work (`commit` of a book on disk), as is reading
back what was not done when a book is opened. `tests/live/test_sqlite_book.py` holds the book on disk against
the one here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice
from typing import Any, Protocol, TypeAlias

from whence.core.lives import Stream
from whence.core.message import State
from whence.errors import MisuseError
from whence.protocols.log.wire import Item

Gap: TypeAlias = tuple[int, int, int, str]
Entry: TypeAlias = Item | Gap


GAP_MAX = 10_000  # numbers of a gap that can be found one by one
ENTRY_BYTES = 96  # about what an entry costs besides its payload


def entry_bytes(entry: Entry) -> int:
    """About what an entry costs where it is kept."""
    return ENTRY_BYTES + (len(entry[4]) if len(entry) == 6 else 0)


def last_of(entry: Entry) -> int:
    """The newest number that an entry accounts for."""
    return entry[1] if len(entry) == 6 else entry[2]


class Book(Protocol):
    """What a core needs of its log. LSNs count from 1 without holes."""

    first: int  # LSN of the oldest entry; `next` if there is none
    cursor: int  # the first LSN that is not done

    @property
    def size_bytes(self) -> int:
        """Payloads and entries that are kept, about."""

    @property
    def next(self) -> int:
        """LSN of the next entry."""

    def streams(self) -> list[tuple[Stream, int, int]]:
        """Every stream with its D and F, in order of its index."""

    def add_stream(self, stream: Stream) -> int:
        """A stream that is not in the book; returns its index."""

    def append(self, entry: Entry) -> int:
        """One entry more; D of its stream becomes its last number. Returns its LSN."""

    def append_run(self, entries: list[Item], payload_bytes: int) -> int:
        """Messages of one stream, one after the other, of that many bytes; returns the LSN of the first."""

    def read(self, lsn: int, limit: int) -> list[Entry]:
        """Up to `limit` consecutive entries from `lsn` on, which is not below `first`."""

    def find(self, stream: int, number: int) -> int | None:
        """The LSN of the oldest entry of a stream with that number or a later one; None if there is none."""

    def cut(self, lsn: int) -> dict[int, int]:
        """Drop what is below `lsn` (not above `cursor`); returns F of the streams where that raised it."""

    def raise_floor(self, stream: int, number: int) -> None:
        """F of a stream: a jump passes over what was never here."""

    def lives(self) -> list[Stream]:
        """The streams of all openings of this book, the oldest first."""

    def add_life(self, stream: Stream) -> None:
        """The book is opened once more."""

    def done(self, lsn: int) -> None:
        """The reader has no need of an entry any more; in any order."""

    def is_done(self, lsn: int) -> bool:
        """Whether the reader has no need of an entry any more."""

    def done_before(self, lsn: int) -> None:
        """The reader has no need of anything below `lsn`."""

    def id_of(self, key: bytes) -> tuple[int, int] | None:
        """The message (stream, number) that was broadcast with a key."""

    def add_key(self, key: bytes, stream: int, number: int) -> None:
        """A message is broadcast with a key."""

    def checkpoint(self, state: State) -> None:
        """What the core knows besides the entries, as of `next`; only the newest is kept."""

    def last_checkpoint(self) -> tuple[int, State] | None:
        """The newest checkpoint, with the `next` at which it was made."""


class MemoryBook:
    """A book that dies with its process, and the definition of what a book does."""

    def __init__(self, keys_max: int = 100_000) -> None:
        self.first = 1
        self.cursor = 1
        self._keys_max = keys_max
        self._entries: list[Entry] = []  # from LSN `_base` on; those below `first` are dropped now and then
        self._base = 1
        self._names: list[Stream] = []
        self._floor: list[int] = []
        # Of each stream: the number of its first place, and of this and all later numbers the LSN.
        self._begins: list[int] = []
        self._lsns: list[list[int]] = []
        self._lives: list[Stream] = []
        self._done: set[int] = set()  # LSNs above the cursor
        self._keys: dict[bytes, tuple[int, int]] = {}
        self._checkpoint: tuple[int, State] | None = None
        self.size_bytes = 0  # payloads and entries that are kept, about

    @property
    def next(self) -> int:
        """LSN of the next entry."""
        return self._base + len(self._entries)

    def streams(self) -> list[tuple[Stream, int, int]]:
        """Every stream with its D and F, in order of its index."""
        newest = [begin + len(lsns) - 1 for begin, lsns in zip(self._begins, self._lsns, strict=True)]
        return list(zip(self._names, newest, self._floor, strict=True))

    def add_stream(self, stream: Stream) -> int:
        """A stream that is not in the book; returns its index."""
        self._names.append(stream)
        self._floor.append(0)
        self._begins.append(1)
        self._lsns.append([])
        return len(self._names) - 1

    def append(self, entry: Entry) -> int:
        """One entry more; D of its stream becomes its last number."""
        entries = self._entries
        lsn = self._base + len(entries)
        entries.append(entry)
        if len(entry) == 6:
            self._lsns[entry[0]].append(lsn)
            self.size_bytes += ENTRY_BYTES + len(entry[4])
        else:
            self._skip(entry[0], entry[2], lsn)
            self.size_bytes += ENTRY_BYTES
        return lsn

    def append_run(self, entries: list[Item], payload_bytes: int) -> int:
        """As `append` for each of some messages of one stream; returns the LSN of the first."""
        lsn = self._base + len(self._entries)
        self._entries += entries
        self._lsns[entries[0][0]] += range(lsn, lsn + len(entries))
        self.size_bytes += ENTRY_BYTES * len(entries) + payload_bytes
        return lsn

    def _skip(self, stream: int, last: int, lsn: int) -> None:
        """A gap: its numbers have its LSN. Before a long one nothing needs to be found any more."""
        lsns = self._lsns[stream]
        missing = last - (self._begins[stream] + len(lsns)) + 1
        if missing > GAP_MAX:
            lsns.clear()
            self._begins[stream] = last + 1
        else:
            lsns += [lsn] * missing

    def read(self, lsn: int, limit: int) -> list[Entry]:
        """Up to `limit` consecutive entries from `lsn` on, which is not below `first`."""
        if lsn < self.first:
            raise MisuseError(f"entry {lsn} of a log", "it has been cut off", "Read from `first` on")
        at = lsn - self._base
        return self._entries[at : at + limit]

    def find(self, stream: int, number: int) -> int | None:
        """The LSN of the oldest entry of a stream with that number or a later one."""
        lsns = self._lsns[stream]
        at = max(number - self._begins[stream], 0)
        if at < len(lsns) and lsns[at] < self.first:
            at = bisect_left(lsns, self.first)
        return lsns[at] if at < len(lsns) else None

    def cut(self, lsn: int) -> dict[int, int]:
        """Drop what is below `lsn` (not above `cursor`)."""
        raised: dict[int, int] = {}
        for entry in self._entries[self.first - self._base : lsn - self._base]:
            stream, last = entry[0], last_of(entry)
            self.size_bytes -= entry_bytes(entry)
            if last > self._floor[stream]:
                raised[stream] = self._floor[stream] = last
        self.first = max(self.first, lsn)
        if self.first - self._base > len(self._entries) // 2:
            self._drop()
        return raised

    def _drop(self) -> None:
        """Give back the memory of what was cut, when it is half of all."""
        gone = self.first - self._base
        touched = {entry[0] for entry in islice(self._entries, gone)}
        del self._entries[:gone]
        self._base = self.first
        for stream in touched:
            at = bisect_left(self._lsns[stream], self.first)
            del self._lsns[stream][:at]
            self._begins[stream] += at

    def raise_floor(self, stream: int, number: int) -> None:
        """F of a stream: a jump passes over what was never here."""
        self._floor[stream] = max(self._floor[stream], number)

    def lives(self) -> list[Stream]:
        """The streams of all openings of this book, the oldest first."""
        return list(self._lives)

    def add_life(self, stream: Stream) -> None:
        """The book is opened once more."""
        self._lives.append(stream)

    def done(self, lsn: int) -> None:
        """The reader has no need of an entry any more; in any order."""
        if lsn == self.cursor and not self._done:
            self.cursor += 1
        elif self.cursor <= lsn < self.next:
            self._done.add(lsn)
            while self.cursor in self._done:
                self._done.remove(self.cursor)
                self.cursor += 1

    def done_before(self, lsn: int) -> None:
        """The reader has no need of anything below `lsn`."""
        if lsn > self.cursor:
            self.cursor = min(lsn, self.next)
            self._done = {each for each in self._done if each > self.cursor}

    def is_done(self, lsn: int) -> bool:
        """Whether the reader has no need of an entry any more."""
        return lsn < self.cursor or lsn in self._done

    def id_of(self, key: bytes) -> tuple[int, int] | None:
        """The message (stream, number) that was broadcast with a key."""
        return self._keys.get(key)

    def add_key(self, key: bytes, stream: int, number: int) -> None:
        """A message is broadcast with a key; the oldest key goes where there are too many."""
        self._keys[key] = (stream, number)
        if len(self._keys) > self._keys_max:
            del self._keys[next(iter(self._keys))]

    def checkpoint(self, state: State) -> None:
        """What the core knows besides the entries, as of `next`."""
        self._checkpoint = (self.next, state)

    def last_checkpoint(self) -> tuple[int, State] | None:
        """The newest checkpoint, with the `next` at which it was made."""
        return self._checkpoint

    def save(self) -> State:
        """The whole book as plain data: the disk of a simulated node."""
        return {
            "first": self.first,
            "cursor": self.cursor,
            "done": sorted(self._done),
            "streams": [[name, newest, floor] for name, newest, floor in self.streams()],
            "entries": [plain(each) for each in self._entries[self.first - self._base :]],
            "lives": list(self._lives),
            "keys": [[key, *id_] for key, id_ in self._keys.items()],
            "checkpoint": None if self._checkpoint is None else list(self._checkpoint),
        }

    def restore(self, state: State) -> None:
        """Become the book that `save` described; only an empty one."""
        self.first = self._base = state["first"]
        self.cursor, self._done = state["cursor"], set(state["done"])
        entries = [unplain(entry) for entry in state["entries"]]
        for stream, newest, floor in state["streams"]:
            index = self.add_stream(stream)
            self._floor[index] = floor
            self._begins[index] = newest + 1
        for entry in reversed(entries):  # a stream begins with its oldest entry that is kept
            self._begins[entry[0]] = min(self._begins[entry[0]], entry[1])
        for entry in entries:
            self.append(entry)
        self._lives = list(state["lives"])
        self._keys = {key: (stream, number) for key, stream, number in state["keys"]}
        saved = state["checkpoint"]
        self._checkpoint = None if saved is None else (saved[0], saved[1])


def plain(entry: Entry) -> list[Any]:
    """An entry as plain data."""
    return [list(part) if isinstance(part, tuple) else part for part in entry]


def unplain(saved: Iterable[Any]) -> Entry:
    """The entry that `plain` was given."""
    return tuple(tuple(part) if isinstance(part, list) else part for part in saved)  # type: ignore[return-value]
