"""Follows a log that grows: every complete line is judged once, within a horizon, as it comes.

    follower = Follower("orders.jsonl", mapping, state="orders.state")
    for name, finding in follower.read(): ...
    print(follower.audit().headline())

The state (what was judged, and up to which byte) is saved after each reading, so that the next process goes
on. A file that became shorter, or another one, is read from its beginning, and a note says so.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from whence.errors import ImportFormatError, MisuseError
from whence.foreign.mapping import LogMapping, Normaliser, order_of
from whence.foreign.model import Note
from whence.foreign.report import Audit, AuditFinding
from whence.foreign.running import HORIZON_ROWS, RunningAudit, StreamRow
from whence.foreign.tables import LineRules, json_row

FOLLOWED = ("jsonl", "csv", "lines")
_PIECE_BYTES = 4 << 20  # that are read at once
_FEED_ROWS = 1_000  # after which what lies beyond the horizon is left behind


class _Followed(msgspec.Struct):
    """What is kept between two readings."""

    mapping: str  # its hash: another one would judge the rest of the log otherwise
    audit: RunningAudit
    file: int = 0  # which file it was
    at_byte: int = 0
    lines: int = 0
    header: list[str] = []
    had: list[str] = []  # columns with a value in some row
    replaced: int = 0
    unmatched: int = 0


class Follower:
    """Judges what is new in a file."""

    def __init__(
        self, path: Path | str, mapping: LogMapping, *, state: Path | str | None = None,
        horizon: int = HORIZON_ROWS,
    ) -> None:  # fmt: skip
        self._path = Path(path)
        self._mapping = mapping
        if mapping.format not in FOLLOWED or order_of(mapping) not in {"line", "seq"}:
            raise MisuseError(
                f"following {path}", "only lines of JSON, CSV or text are judged as they come",
                "Judge it at rest with whence verify, or give a mapping that orders rows by lines or `order`",
            )  # fmt: skip
        self._file = None if state is None else Path(state)
        digest = blake2b(msgspec.json.encode(mapping), digest_size=16).hexdigest()
        self._now = _Followed(digest, RunningAudit(horizon=horizon))
        if self._file is not None and self._file.exists():
            self._now = msgspec.json.decode(self._file.read_bytes(), type=_Followed)
            if self._now.mapping != digest:
                raise MisuseError(
                    str(self._file), "it was made with another mapping or contract", "Remove it to begin anew"
                )
        self._rules = LineRules(mapping)
        self._normaliser = Normaliser(self._rules.mapping)
        self._normaliser.remember(self._now.had)

    def read(self) -> Iterator[tuple[str, AuditFinding]]:
        """Judge all complete lines that are new; gives what they show to be wrong, with its property."""
        if not self._path.exists():
            raise ImportFormatError(str(self._path), "there is no such file", "Check the path")
        now, about = self._now, self._path.stat()
        if now.file and (about.st_ino != now.file or about.st_size < now.at_byte):
            now.replaced += 1
            now.at_byte, now.lines, now.header = 0, 0, []
        now.file = about.st_ino
        with self._path.open("rb") as file:
            while True:
                file.seek(now.at_byte)
                piece = file.read(_PIECE_BYTES)
                complete = piece[: piece.rfind(b"\n") + 1]
                if not complete:
                    break
                rows = self._ordered(complete)
                slices = (rows[at : at + _FEED_ROWS] for at in range(0, len(rows), _FEED_ROWS))
                news = [found for some in slices for found in now.audit.feed(some)]
                now.at_byte += len(complete)
                now.had = sorted(self._normaliser.had)
                self._save()
                yield from news

    def _ordered(self, data: bytes) -> list[StreamRow]:
        rows = [self._normaliser.row(*each) for each in self._rows(data.decode("utf-8-sig").split("\n")[:-1])]
        if order_of(self._mapping) == "seq":
            rows.sort(key=lambda row: (row[2] is None, row[2] or 0))  # late rows within a piece are sorted
        return [StreamRow.of(row) for row in rows]

    def _rows(self, lines: list[str]) -> Iterator[tuple[Any, ...]]:
        """The arguments of `Normaliser.row` for each line that is an event."""
        read: Callable[[str, str], tuple[Any, ...] | None] = {
            "jsonl": self._json, "csv": self._csv, "lines": self._text,
        }[self._mapping.format or ""]  # fmt: skip
        for line in (each.rstrip("\r") for each in lines):
            self._now.lines += 1
            where = f"{self._path}, line {self._now.lines}"
            found = read(line, where) if line.strip() else None
            if found is not None:
                yield found

    def _json(self, line: str, where: str) -> tuple[Mapping[str, Any], int]:
        if line.lstrip().startswith("["):
            raise ImportFormatError(where, "it is a list", "Followed rows must be one object per line")
        return json_row(line, where), self._now.lines

    def _csv(self, line: str, where: str) -> tuple[Mapping[str, Any], int] | None:
        try:
            (cells,) = csv.reader(
                [line], strict=True, delimiter=self._mapping.delimiter or ",",
                skipinitialspace=any(name.startswith(" ") for name in self._now.header),
            )  # fmt: skip
        except csv.Error as error:
            raise ImportFormatError(
                where, f"it is not a row of CSV ({error})", "Followed rows must be one line each"
            ) from error
        if not self._now.header:
            self._now.header = cells
            return None
        if len(cells) > len(self._now.header):
            raise ImportFormatError(where, "it has more cells than the header", "Quote")
        return dict(zip(map(str.lstrip, self._now.header), cells, strict=False)), self._now.lines

    def _text(self, line: str, where: str) -> tuple[Any, ...] | None:
        kind, row = self._rules.read(line)
        if kind is None:
            self._now.unmatched += 1
            return None
        return row, self._now.lines, kind, line

    def audit(self) -> Audit:
        """The verdict so far."""
        audit = self._now.audit.audit(str(self._path), self._mapping.contract)
        notes = [*audit.notes, *(self._normaliser.notes() if audit.events else ())]
        if self._now.replaced:
            times = f"the file was replaced {self._now.replaced} times"
            text = f"{times}: what it had after the last reading is not judged"
            notes.append(Note("replaced", text, self._now.replaced))
        if self._now.unmatched:
            text = f"{self._now.unmatched} lines match no pattern"
            notes.append(Note("unmatched", text, self._now.unmatched))
        return msgspec.structs.replace(audit, notes=notes)

    def _save(self) -> None:
        if self._file is not None:
            aside = self._file.with_name(f"{self._file.name}.tmp")
            aside.write_bytes(msgspec.json.encode(self._now))
            aside.replace(self._file)
