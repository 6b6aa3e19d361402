"""What the stores of nodes share: a SQLite file with one owner, transactions, and typed errors.

Everything here blocks. A writer does it from a separate thread, so that the event loop never waits for
the disk and whatever arrives during a sync shares the next one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whence.errors import StoreError

KEY_BYTES = 16


def require_folder(path: Path) -> None:
    """Refuse a store in a folder that is not there: it would be a typing error that loses a node's past."""
    if not path.parent.is_dir():
        raise StoreError(
            f"store {path}", f"there is no folder {path.parent}", "Make the folder, or give another path"
        )
    if path.is_dir():
        raise StoreError(f"store {path}", "it is a folder", "Check the path: it should be a file")


class SqliteFile:
    """One SQLite file in WAL mode: a commit returns when it is on the disk."""

    def __init__(
        self, path: Path, application_id: int, version: int, tables: str, earlier: tuple[int, ...] = ()
    ) -> None:
        """With `earlier` formats, which become this one."""
        self.path = path
        self._earlier = earlier
        self._application_id = application_id
        self._version = version
        with self._errors():
            require_folder(path)
            # Used by one thread at a time: opened here, written by another.
            self._db = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        try:
            with self._errors():
                self._open(tables)
                self._check_kind()
        except StoreError:
            self._db.close()
            raise

    def _open(self, tables: str) -> None:
        db = self._db
        self._own()
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            fresh = not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if fresh:
                for statement in tables.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {self._application_id}")
                db.execute(f"PRAGMA user_version = {self._version}")

    def _own(self) -> None:
        """A second process that opens the same store finds out immediately."""
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")

    def _check_kind(self) -> None:
        if self._db.execute("PRAGMA application_id").fetchone()[0] != self._application_id:
            raise self._problem("it is not a store of Whence for this kind of group", "Give another file")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version in self._earlier:
            self._db.execute(f"PRAGMA user_version = {self._version}")
        elif version != self._version:
            raise self._problem(
                f"it has format {version}, and this release reads {self._version}",
                "Use the release that wrote it",
            )

    def close(self) -> None:
        """Close the file. All that was written is kept."""
        with self._errors():
            self._db.close()

    @property
    def batches_path(self) -> Path:
        """The file of batches beside this one."""
        return self.path.with_name(self.path.name + "-log")

    def _draw_key(self) -> bytes:
        """The key with which the numbers of batches are sealed; their file is not there yet."""
        path = self.batches_path
        if path.exists() and path.stat().st_size:
            raise self._problem(
                f"{path.name} beside it belongs to another store, or an earlier build left it",
                "Start that build again and let it end, or restore both files from a copy",
            )
        return os.urandom(KEY_BYTES)

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
        if "full" in text or "No space" in text:
            return self._problem(f"there is no room for it ({text})", "Make room; the node goes on by itself")
        if "locked" in text:
            return self._problem("another process uses it", "Stop that process, or give another file")
        if "malformed" in text or "not a database" in text:
            return self._problem(f"it is damaged ({text})", "Restore the file from a copy")
        return self._problem(text, "Check the path, its permissions and the disk")

    def _problem(self, reason: str, fix: str) -> StoreError:
        return StoreError(f"store {self.path}", reason, fix)
