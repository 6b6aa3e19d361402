"""The file of batches beside a store: what was written is found, torn ends are not, and damage is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from whence.errors import StoreError
from whence.live import store as module
from whence.live.blocks import BookFiles
from whence.live.sqlite import SqliteFile
from whence.live.store import BatchFile, Store

HEAD_BYTES = 24  # of each batch: length, number, seal, sum


@pytest.fixture(autouse=True)
def short_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files grow often, and by little: some tests spoil every byte of them."""
    monkeypatch.setattr(module, "_AHEAD_BYTES", 50)


def stopped(store: Store) -> None:
    """As after `kill -9`: no snapshot, nothing removed."""
    store._db.close()


def reopened(path: Path) -> tuple[bytes | None, list[bytes]]:
    store = Store(path)
    snapshot, batches = store.recover()
    stopped(store)
    return snapshot, batches


def test_batches_follow_the_snapshot_and_a_clean_end_leaves_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = Store(path)
    store.write(b"one")
    store.write(b"two")
    stopped(store)
    assert reopened(path) == (None, [b"one", b"two"])
    store = Store(path)
    store.snapshot(b"state")
    store.write(b"three")
    stopped(store)
    assert reopened(path) == (b"state", [b"three"])
    store = Store(path)
    assert (store.last, store.log_bytes) == (3, 5)
    store.snapshot(b"later")
    store.close()
    assert [each.name for each in tmp_path.iterdir()] == ["a.db"]
    assert reopened(path) == (b"later", [])


def test_a_torn_end_was_never_written_wherever_it_is_torn(tmp_path: Path) -> None:
    path, log = tmp_path / "a.db", tmp_path / "a.db-log"
    store = Store(path)
    for batch in (b"old " * 20, b"older" * 9):
        store.write(batch)
    store.snapshot(b"state")  # what follows is written over those
    store.write(b"first")
    before = log.read_bytes()
    store.write(b"second batch")
    after = log.read_bytes()
    stopped(store)
    [start] = [at for at in range(len(before)) if before[at] != after[at]][:1]
    end = start + len(b"second batch") + HEAD_BYTES
    for at in range(start, end):
        log.write_bytes(after[:at] + before[at:])
        assert reopened(path) == (b"state", [b"first"])
        log.write_bytes(after[:at])
        assert reopened(path) == (b"state", [b"first"])
    log.write_bytes(after)
    assert reopened(path) == (b"state", [b"first", b"second batch"])


def test_damage_before_the_end_is_refused_bit_by_bit(tmp_path: Path) -> None:
    path, log = tmp_path / "a.db", tmp_path / "a.db-log"
    store = Store(path)
    for batch in (b"first", b"second", b"third"):
        store.write(batch)
    stopped(store)
    whole = log.read_bytes()
    for at in range(HEAD_BYTES + 5 + HEAD_BYTES + 6):  # the heads and bytes of the first two
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        with pytest.raises(StoreError, match=r"a\.db-log beside it is damaged"):
            Store(path)
    log.write_bytes(whole)
    assert reopened(path) == (None, [b"first", b"second", b"third"])


def test_a_log_of_a_later_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = Store(path)
    store.write(b"one")
    store.close()
    old = {each.name: each.read_bytes() for each in tmp_path.iterdir() if each.suffix == ".db"}
    store = Store(path)
    store.snapshot(b"state")
    store.write(b"two")
    store.write(b"three")
    stopped(store)
    for name, data in old.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "a.db-wal").unlink(missing_ok=True)
    with pytest.raises(StoreError, match="belongs to another copy"):
        Store(path)


@pytest.mark.parametrize("kind", [Store, BookFiles])
def test_batches_of_another_store_are_refused(kind: type[SqliteFile], tmp_path: Path) -> None:
    """So are those of an earlier build of this release, whose seals nobody can tell from others."""
    (tmp_path / "a.db-log").write_bytes(b"batches")
    for _ in range(2):
        with pytest.raises(StoreError, match="belongs to another store"):
            kind(tmp_path / "a.db")  # type: ignore[call-arg]  # each kind needs its path alone
    assert (tmp_path / "a.db-log").read_bytes() == b"batches"


def test_a_payload_that_looks_like_batches_is_never_taken_for_one(tmp_path: Path) -> None:
    """A peer knows the format and guesses numbers, but not the key: neither a forged input nor a refusal."""
    guess = BatchFile(tmp_path / "guess", bytes(16))
    for number in range(3, 9):
        guess.write(number, b"forged")
    frames = guess.path.read_bytes()[: 6 * (HEAD_BYTES + len(b"forged"))]
    path, log = tmp_path / "a.db", tmp_path / "a.db-log"
    store = Store(path)
    store.write(b"first")
    front = HEAD_BYTES + len(b"first")
    store.snapshot(b"state")
    store.write(b"SECOND"[: len(b"first")])
    stopped(store)
    whole = log.read_bytes()[:front]
    for shift in range(len(frames)):
        log.write_bytes(whole + frames[shift:] + frames)
        assert reopened(path) == (b"state", [b"SECON"])


def test_a_batch_whose_sync_fails_has_not_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    store = Store(path)
    store.write(b"one")

    def failing(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_sync", failing)
        with pytest.raises(StoreError, match="Input/output error"):
            store.write(b"refused")
    stopped(store)
    assert reopened(path) == (None, [b"one"])


def test_a_batch_that_follows_needs_no_longer_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AHEAD_BYTES", 4096)
    path, log = tmp_path / "a.db", tmp_path / "a.db-log"
    store = Store(path)
    store.write(b"one")
    size_bytes = log.stat().st_size
    store.write(b"two")
    assert log.stat().st_size == size_bytes
    assert size_bytes > 4096
    stopped(store)
    assert reopened(path) == (None, [b"one", b"two"])


def test_a_disk_without_room_for_zeros_takes_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    store = Store(path)
    pwrite = module.os.pwrite

    def almost_full(file: int, data: bytes, at: int) -> int:
        if not any(data):
            raise OSError(28, "No space left on device")
        return pwrite(file, data, at)

    monkeypatch.setattr(module.os, "pwrite", almost_full)
    store.write(b"one")
    store.write(b"two")
    stopped(store)
    assert reopened(path) == (None, [b"one", b"two"])


def test_a_store_of_the_earlier_format_keeps_its_rows_and_goes_on_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = Store(path)
    store._db.execute("INSERT INTO snapshot VALUES (1, 7, x'41')")
    store._db.executemany("INSERT INTO log VALUES (?, ?)", [(8, b"row 8"), (9, b"row 9")])
    store._db.execute("PRAGMA user_version = 1")
    stopped(store)
    store = Store(path)
    assert store._db.execute("PRAGMA user_version").fetchone() == (module.FORMAT,)
    store.write(b"ten")
    stopped(store)
    assert reopened(path) == (b"A", [b"row 8", b"row 9", b"ten"])
    store = Store(path)
    store.snapshot(b"B")
    store.write(b"eleven")
    stopped(store)
    assert reopened(path) == (b"B", [b"eleven"])


@pytest.mark.parametrize("seed", range(40))
def test_any_course_of_writes_snapshots_and_stops(seed: int, tmp_path: Path) -> None:
    """A stop may tear the last write: any of its bytes may be those that were there before."""
    rng = random.Random(seed)
    path, log = tmp_path / "a.db", tmp_path / "a.db-log"
    state: bytes | None = None
    batches: list[bytes] = []
    store = Store(path)
    for step in range(30):
        kind = rng.choice(["write"] * 6 + ["snapshot", "close", "stop", "torn"])
        batch = rng.randbytes(rng.randrange(1, 90))
        if kind == "write":
            store.write(batch)
            batches.append(batch)
        elif kind == "snapshot":
            state, batches = b"state %d" % step, []
            store.snapshot(state)
        elif kind == "close":
            store.close()
            store = Store(path)
        elif kind == "stop":
            stopped(store)
            store = Store(path)
        else:
            before = log.read_bytes()
            store.write(batch)
            stopped(store)
            after = log.read_bytes()
            before = before.ljust(len(after), b"\0")
            torn = bytes(rng.choice(pair) for pair in zip(before, after, strict=True))
            if torn == after:
                batches.append(batch)
            log.write_bytes(torn)
            store = Store(path)
        assert tuple(store.recover()) == (state, batches)
        assert store.log_bytes == sum(map(len, batches))
    stopped(store)
