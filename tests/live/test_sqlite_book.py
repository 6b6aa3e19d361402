"""The book on disk does what the book in memory does, whenever it is written, closed and opened again."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from whence.errors import MisuseError, StoreError
from whence.live import blocks
from whence.live.book import SqliteBook
from whence.protocols.log.book import Entry, MemoryBook


def commit(book: SqliteBook) -> None:
    batch = book.take()
    book.write(batch)
    book.wrote(batch)


def kill(book: SqliteBook) -> None:
    """As after `kill -9`: nothing is folded, nothing removed."""
    book.files._reader.close()
    book.files._db.close()
    os.close(book.files._batches._file)
    os.close(book._lock)


def compare(disk: SqliteBook, memory: MemoryBook, draw: random.Random, late: set[int]) -> None:
    for name in ("first", "next", "cursor", "size_bytes"):
        assert getattr(disk, name) == getattr(memory, name), name
    assert disk.streams() == memory.streams()
    assert disk.lives() == memory.lives()
    assert disk.last_checkpoint() == memory.last_checkpoint()
    assert disk.read(memory.first, 10_000) == memory.read(memory.first, 10_000)
    for _ in range(5):
        lsn, limit = draw.randint(memory.first, memory.next), draw.randint(1, 40)
        assert disk.read(lsn, limit) == memory.read(lsn, limit)
        assert disk.is_done(lsn) == memory.is_done(lsn)
        assert disk.is_late(lsn) == (lsn in late)
        if memory.streams():
            stream, number = draw.randrange(len(memory.streams())), draw.randint(0, 60)
            assert disk.find(stream, number) == memory.find(stream, number)
        key = b"%d" % draw.randint(0, 30)
        assert disk.id_of(key) == memory.id_of(key)


class Both:
    """The same asked of both books."""

    def __init__(self, path: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.path = path
        self.disk, self.memory = SqliteBook(path), MemoryBook()
        self.late: set[int] = set()

    def step(self) -> None:
        draw, disk, memory = self.draw, self.disk, self.memory
        streams = memory.streams()
        what = draw.choice(
            ["append"] * 8 + ["stream", "done", "done", "cut", "floor", "key", "life", "check"]
        )
        if what == "stream" or not streams:
            name = f"n{len(streams)}/{len(streams):016x}"
            assert disk.add_stream(name) == memory.add_stream(name)
        elif what == "append":
            stream = draw.randrange(len(streams))
            number = streams[stream][1] + 1
            entry: Entry = (stream, number, 0, (0, number), draw.randbytes(draw.randint(0, 60)), 0)
            if draw.random() < 0.2:
                entry = (stream, number, number + draw.randint(0, 4), "expired")
            lsn = disk.append(entry)
            assert lsn == memory.append(entry)
            if draw.random() < 0.05:
                disk.mark_late(lsn)
                self.late.add(lsn)
        elif what == "done":
            lsn = memory.cursor + draw.randint(0, 5)
            if lsn < memory.next:
                disk.done(lsn)
                memory.done(lsn)
        elif what == "cut":
            lsn = draw.randint(memory.first, memory.cursor)
            assert disk.cut(lsn) == memory.cut(lsn)
            self.late = {each for each in self.late if each >= memory.first}
        elif what == "floor":
            stream = draw.randrange(len(streams))
            number = draw.randint(0, streams[stream][1])  # what was never accounted for was not cut off
            disk.raise_floor(stream, number)
            memory.raise_floor(stream, number)
        elif what == "key":
            key, id_ = b"%d" % draw.randint(0, 30), (draw.randrange(len(streams)), draw.randint(1, 9))
            disk.add_key(key, *id_)
            memory.add_key(key, *id_)
        elif what == "life":
            disk.add_life(f"me/{len(memory.lives()):016x}")
            memory.add_life(f"me/{len(memory.lives()):016x}")
        else:
            state = {"past": [1, draw.randint(0, 9)], "name": b"x"}
            disk.checkpoint(state)
            memory.checkpoint(state)

    def reopen(self) -> None:
        commit(self.disk)
        self.draw.choice([kill, SqliteBook.close])(self.disk)
        self.disk = SqliteBook(self.path)


@pytest.mark.parametrize("seed", range(12))
def test_a_book_on_disk_is_a_book(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "FOLD_BYTES", (1, 300, 3_000, 1 << 20)[seed % 4])
    monkeypatch.setattr(blocks, "BLOCK_ENTRIES", (1, 3, 40)[seed % 3])
    both = Both(tmp_path / "a.db", seed)
    for at in range(400):
        both.step()
        if both.draw.random() < 0.1:
            commit(both.disk)
        if at % 10 == 0:
            compare(both.disk, both.memory, both.draw, both.late)
        if both.draw.random() < 0.01:
            both.reopen()
    both.reopen()
    compare(both.disk, both.memory, both.draw, both.late)
    assert not both.disk.is_shut
    both.disk.close()


def test_what_was_not_written_is_gone_and_what_was_is_whole(tmp_path: Path) -> None:
    book = SqliteBook(tmp_path / "a.db")
    book.add_stream("a/0000000000000000")
    book.append((0, 1, 0, (), b"one", 0))
    commit(book)
    book.append((0, 2, 0, (), b"two", 0))
    book.add_key(b"k", 0, 2)
    assert book.id_of(b"k") == (0, 2)
    book.close()  # a crash: the second step was never with the writer
    again = SqliteBook(tmp_path / "a.db")
    assert again.next == 2
    assert again.streams() == [("a/0000000000000000", 1, 0)]
    assert again.id_of(b"k") is None
    assert again.read(1, 9) == [(0, 1, 0, (), b"one", 0)]
    with pytest.raises(MisuseError, match="cut off"):
        again.read(0, 1)
    again.close()


def long_batches(path: Path) -> tuple[SqliteBook, blocks.Batch, blocks.Batch]:
    """A book, one entry, and 58 more of a thousand bytes each."""
    book = SqliteBook(path)
    book.add_stream("a/0000000000000000")
    book.append((0, 1, 0, (), bytes(1000), 0))
    first = book.take()
    for number in range(2, 60):
        book.append((0, number, 0, (), bytes(1000), 0))
    return book, first, book.take()


def test_a_batch_that_cannot_be_written_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, first, second = long_batches(tmp_path / "a.db")
    book.write(first)
    book.wrote(first)
    write = os.pwrite

    def full(file: int, data: bytes, at: int) -> int:
        if len(data) > 1000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreError, match="no room"):
        book.write(second)
    assert book.read(2, 1) == [(0, 2, 0, (), bytes(1000), 0)]
    monkeypatch.setattr(os, "pwrite", write)
    book.write(second)
    book.wrote(second)
    kill(book)
    again = SqliteBook(tmp_path / "a.db")
    assert again.streams()[0][1] == 59
    assert len(again.read(1, 100)) == 59
    again.close()


def test_tables_that_are_full_refuse_the_next_batch_and_lose_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "FOLD_BYTES", 10_000)
    book, first, second = long_batches(tmp_path / "a.db")
    pages = book.files._db.execute("PRAGMA page_count").fetchone()[0]
    book.files._db.execute(f"PRAGMA max_page_count = {pages}")
    for batch in (first, second):
        book.write(batch)
        book.wrote(batch)
    book.append((0, 60, 0, (), b"third", 0))
    third = book.take()
    for _ in range(2):
        with pytest.raises(StoreError, match="no room"):
            book.write(third)
    assert len(book.read(1, 100)) == 60
    assert book.find(0, 60) == 60
    with pytest.raises(StoreError, match="no room"):
        book.close()
    again = SqliteBook(tmp_path / "a.db")  # with room
    assert len(again.read(1, 100)) == 59
    again.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db", "a.db-lock"]


def test_the_oldest_keys_are_forgotten_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "KEYS_MAX", 3)
    book = SqliteBook(tmp_path / "a.db")
    book.add_stream("a/0000000000000000")
    for number in range(1, 6):
        book.append((0, number, 0, (), b"", 0))
        book.add_key(b"%d" % number, 0, number)
        commit(book)
    for end in (kill, SqliteBook.close):
        end(book)
        book = SqliteBook(tmp_path / "a.db")
        assert [book.id_of(b"%d" % number) for number in range(1, 6)] == [None, None, (0, 3), (0, 4), (0, 5)]
    book.close()


def test_batches_of_another_copy_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    book, first, second = long_batches(path)
    book.write(first)
    book.files._fold()
    book.files._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = path.read_bytes()
    book.write(second)
    book.files._fold()
    book.append((0, 60, 0, (), b"third", 0))
    book.write(book.take())
    kill(book)
    for rest in ("a.db-wal", "a.db-shm"):
        path.with_name(rest).unlink(missing_ok=True)
    path.write_bytes(copy)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"a\.db-log beside it is damaged, or belongs to another copy"):
            SqliteBook(path)
    path.with_name("a.db-log").unlink()  # a rollback, which peers will notice
    again = SqliteBook(path)
    assert again.next == 2
    again.close()


def test_one_owner_and_no_other_file(tmp_path: Path) -> None:
    book = SqliteBook(tmp_path / "a.db")
    with pytest.raises(StoreError, match="another process uses it"):
        SqliteBook(tmp_path / "a.db")
    book.close()
    (tmp_path / "b.db").write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(StoreError, match="damaged"):
        SqliteBook(tmp_path / "b.db")
    with pytest.raises(StoreError, match="damaged"):  # and the lock was given back
        SqliteBook(tmp_path / "b.db")


def test_opening_reads_a_few_rows_however_long_the_log(tmp_path: Path) -> None:
    """Recovery must not grow with the age of the group: count what SQLite does, not how long it takes."""
    steps = []
    for count in (1_000, 20_000):
        path = tmp_path / f"{count}.db"
        book = SqliteBook(path)
        book.add_stream("a/0000000000000000")
        for number in range(1, count + 1):
            book.append((0, number, 0, (), b"x" * 50, 0))
            book.done(number)
        commit(book)
        book.close()
        work = 0

        def progress() -> int:
            nonlocal work
            work += 1
            return 0

        original = blocks.BookFiles._own

        def own(self: blocks.BookFiles) -> None:
            self._db.set_progress_handler(progress, 10)

        blocks.BookFiles._own = own  # type: ignore[method-assign]
        try:
            SqliteBook(path).close()
        finally:
            blocks.BookFiles._own = original  # type: ignore[method-assign]
        steps.append(work)
    assert 0 < steps[1] <= steps[0] + 5, steps
