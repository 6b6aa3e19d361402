"""What all readers of foreign traces share: lines, numbers, errors, an account of what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from whence.errors import ImportFormatError
from whence.overlay.contacts import TIME_US_MAX, ContactPlan

SECOND_US = 1_000_000


@dataclass(frozen=True)
class Reading:
    """A plan, and what became of every line that it was read from."""

    plan: ContactPlan
    source: str
    format: str
    lines: int
    rows: int  # lines (or rows of tables) that are in the plan
    begin_s: float  # the plan's time 0, on the clock of the source
    left_out: dict[str, int] = field(default_factory=dict)  # why, and how many


class Line(NamedTuple):
    """One line of a text."""

    path: Path
    number: int  # from 1
    words: list[str]

    def wrong(self, reason: str, fix: str) -> ImportFormatError:
        """The error that names this line."""
        return ImportFormatError(f"{self.path}, line {self.number}", reason, fix)

    def time_us(self, word: str, what: str = "time") -> int:
        """Seconds, whole or decimal, as microseconds."""
        if word.isdecimal() and len(word) < 13:
            return int(word) * SECOND_US
        try:
            value = Decimal(word)
        except InvalidOperation:
            value = Decimal("NaN")
        if not value.is_finite():
            raise self.wrong(f"its {what} {word!r} is not a number", "Write seconds, as 12 or 12.5")
        if not 0 <= value <= TIME_US_MAX // SECOND_US:
            raise self.wrong(f"its {what} {word} is negative or too large", "Count seconds from 0")
        return int((value * SECOND_US).to_integral_value())

    def number_of(self, word: str, what: str) -> float:
        """A finite number."""
        try:
            value = float(word)
        except ValueError as error:
            raise self.wrong(f"its {what} {word!r} is not a number", "Correct the line") from error
        if not -1e12 < value < 1e12:  # also false for NaN
            raise self.wrong(f"its {what} {word} is not a sensible number", "Correct the line")
        return value


def read_bytes(path: Path) -> bytes:
    """The file's bytes, or an error that says why not."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = f"it cannot be read ({error.strerror})"
        raise ImportFormatError(str(path), reason, "Check the path") from error


def lines_of(path: Path) -> list[str]:
    """The lines of a UTF-8 text."""
    raw = read_bytes(path)
    try:
        return raw.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        where = raw.count(b"\n", 0, error.start) + 1
        raise ImportFormatError(f"{path}, line {where}", "it is not UTF-8", "Convert it to UTF-8") from error


def rows_of(path: Path, left_out: dict[str, int]) -> Iterator[Line]:
    """The lines that have words on them; blank ones and comments (`#`) are counted in `left_out`."""
    for number, text in enumerate(lines_of(path), 1):
        words = text.split()
        if not words:
            count(left_out, "blank lines")
        elif words[0].startswith("#"):
            count(left_out, "comments")
        else:
            yield Line(path, number, words)


def count(left_out: dict[str, int], why: str, many: int = 1) -> None:
    """`many` more are left out for this reason."""
    if many:
        left_out[why] = left_out.get(why, 0) + many


def in_order(name: str) -> tuple[bool, int, str]:
    """A key to sort names by: numbers first, as numbers."""
    return (not name.isdecimal(), len(name) if name.isdecimal() else 0, name)


class Names:
    """Names of nodes, numbered as they appear; sorted at the end, numbers as numbers."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def of(self, name: str) -> int:
        """The number of a name."""
        return self._index.setdefault(name, len(self._index))

    def sorted(self) -> tuple[list[str], list[int]]:
        """All names in order, and for each number that `of` gave its place in that order."""
        names = sorted(self._index, key=in_order)
        place = {name: at for at, name in enumerate(names)}
        return names, [place[name] for name in self._index]


def nothing(path: Path, what: str) -> ImportFormatError:
    """The error for a file that has none of what was looked for."""
    return ImportFormatError(str(path), f"there is no {what} in it", "Check the file and its format")
