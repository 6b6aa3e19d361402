"""The durable store of one node: batches of records in the order of their commits, and snapshots.

One SQLite file in WAL mode with one owner. `write` returns when the batch is on the disk; a batch that cannot
be written has not happened, and the next one tries again. What the bytes mean is durable.py's business.

Everything here blocks: durable.py calls it from a thread of its own, so that the event loop never waits for
the disk and whatever arrives during a sync shares the next one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from whence.errors import StoreError

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


class Store:
    """See the module. Open it, `recover` what it holds, then `write`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = 0  # number of the newest batch on the disk
        self.log_bytes = 0  # since the last snapshot
        self.commits = self.snapshots = 0
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Used by one thread at a time: opened here, written by durable.py's.
            self._db = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        try:
            with self._errors():
                self._open()
                self._check()
        except StoreError:
            self._db.close()
            raise

    # Opening

    def _open(self) -> None:
        db = self._db
        # One owner: a second process that opens the same store finds out at once.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")  # a commit returns when it is on the disk
        with self._transaction():
            fresh = not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if fresh:
                for statement in _TABLES.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {FORMAT}")

    def _check(self) -> None:
        db = self._db
        if db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise self._problem("it is not a store of Whence", "Give another file")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != FORMAT:
            raise self._problem(
                f"it has format {version}, and this release reads {FORMAT}", "Use the release that wrote it"
            )
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
        """Write who the store belongs to; once, when it is new."""
        with self._errors(), self._transaction():
            self._db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())

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

    def close(self) -> None:
        """Close the file. All that was written is kept."""
        with self._errors():
            self._db.close()

    # Errors

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk may have rolled it back already
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise self._typed(str(error)) from error

    def _typed(self, text: str) -> StoreError:
        if "full" in text:
            return self._problem(f"there is no room for it ({text})", "Make room; the node goes on by itself")
        if "locked" in text:
            return self._problem("another process uses it", "Stop that process, or give another file")
        if "malformed" in text or "not a database" in text:
            return self._problem(f"it is damaged ({text})", "Restore the file from a copy")
        return self._problem(text, "Check the path, its permissions and the disk")

    def _problem(self, reason: str, fix: str) -> StoreError:
        return StoreError(f"store {self.path}", reason, fix)
