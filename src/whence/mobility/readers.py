"""Readers of foreign contact traces: Haggle, SocioPatterns, The ONE; and what all readers share.

Shared are lines, numbers, errors that name the line, and an account of what was left out. The formats:

Haggle (CRAWDAD cambridge/haggle): `a b start end n gap`, in seconds. Device a saw device b in each of its
scans from `start` to `end`; this is the n-th time, `gap` seconds after the time before. Each device reports
for itself, so a pair's contact is what either saw. A start that equals the end means one scan (an instant).
Files of The ONE made from such experiments are recognised and read.

SocioPatterns (`tij` files): lines `t i j`, further columns (groups) are ignored. Badges i and j were in
contact during the time slot, usually 20 s, that ends at t. Slots that follow each other are one contact. t is
often a Unix time: the plan's time 0 is the begin of the first slot.

The ONE (StandardEventsReader): `time CONN a b up|down`, in order of time. A link has no direction in The ONE,
but converted sightings often have: each device that saw the other makes its own events, so that `a b up` may
be followed by `b a up`. So each direction is followed separately, and the pair is linked while either is up.
A `down` ends its own direction or, if that is not up, the other one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from whence.errors import ImportFormatError, writing
from whence.overlay.contacts import TIME_US_MAX, ChangeKind, ContactPlan, make_plan

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


class ContactLine(NamedTuple):
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


def rows_of(path: Path, left_out: dict[str, int]) -> Iterator[ContactLine]:
    """The lines that have words on them; blank ones and comments (`#`) are counted in `left_out`."""
    for number, text in enumerate(lines_of(path), 1):
        words = text.split()
        if not words:
            count(left_out, "blank lines")
        elif words[0].startswith("#"):
            count(left_out, "comments")
        else:
            yield ContactLine(path, number, words)


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


# Haggle

_HAGGLE_FIX = "Lines read: a b start end n gap"


def read_haggle(path: Path | str, *, external: bool = False) -> Reading:
    """Read sightings; the plan's time 0 is the first start that is read.

    Only devices that report sightings are members of the experiment; others, such as telephones passing by,
    are counted and left out unless `external`.
    """
    path = Path(path)
    left_out: dict[str, int] = {}
    rows: list[tuple[str, str, int, int]] = []
    last = 0
    for line in rows_of(path, left_out):
        last = line.number
        if not rows and line.words[1:2] == ["CONN"]:
            return read_the_one(path)
        if len(line.words) != 6:
            raise line.wrong(f"it has {len(line.words)} columns, not 6", _HAGGLE_FIX)
        one, other, start, end, nth, gap = line.words
        start_us, stop_us = line.time_us(start, "start"), line.time_us(end, "end")
        for word, what in ((nth, "count"), (gap, "gap")):
            line.time_us(word, what)
        if stop_us < start_us:
            raise line.wrong(f"it ends at {end}, before it starts at {start}", _HAGGLE_FIX)
        if one == other:
            count(left_out, "devices that saw themselves")
        else:
            rows.append((one, other, start_us, stop_us))
    inside = {row[0] for row in rows}
    kept = rows if external else [row for row in rows if row[1] in inside]
    count(left_out, "sightings of devices that took no part", len(rows) - len(kept))
    if not kept:
        raise nothing(path, "sighting")
    names = Names()
    begin_us = min(row[2] for row in kept)
    contacts = [(names.of(a), names.of(b), start - begin_us, stop - begin_us) for a, b, start, stop in kept]
    order, place = names.sorted()
    plan = make_plan(order, ((place[a], place[b], start, stop) for a, b, start, stop in contacts))
    return Reading(plan, str(path), "haggle", last, len(kept), begin_us / SECOND_US, left_out)


# SocioPatterns

SLOT_S = 20
_SOCIO_FIX = "Lines read: t i j, with t in whole time slots"


def read_sociopatterns(path: Path | str, *, slot_s: int = SLOT_S) -> Reading:
    """Read a `tij` file."""
    path = Path(path)
    left_out: dict[str, int] = {}
    names = Names()
    slot_us = slot_s * SECOND_US
    rows: list[tuple[int, int, int]] = []
    last = 0
    for line in rows_of(path, left_out):
        last = line.number
        if len(line.words) not in (3, 5):
            raise line.wrong(f"it has {len(line.words)} columns, not 3 (or 5, with groups)", _SOCIO_FIX)
        when, one, other = line.words[:3]
        if one == other:
            raise line.wrong(f"badge {one!r} meets itself", "Leave such lines out")
        at_us = line.time_us(when)
        if rows and (at_us - rows[0][0]) % slot_us:
            raise line.wrong(
                f"its time {when} is not a whole number of {slot_s}-s slots from the first", _SOCIO_FIX
            )
        rows.append((at_us, names.of(one), names.of(other)))
    if not rows:
        raise nothing(path, "contact")
    begin_us = min(row[0] for row in rows) - slot_us
    order, place = names.sorted()
    contacts = ((place[a], place[b], at - begin_us - slot_us, at - begin_us) for at, a, b in rows)
    plan = make_plan(order, contacts)
    return Reading(plan, str(path), "sociopatterns", last, len(rows), begin_us / SECOND_US, left_out)


# The ONE

_OTHER_EVENTS = frozenset(("C", "S", "DE", "A", "DR", "R"))  # of messages: made, sent, delivered, ...
_ONE_FIX = "Lines read: time CONN a b up|down, in order of time"


def read_the_one(path: Path | str, nodes: Collection[str] | None = None) -> Reading:
    """Read connection events; other events of The ONE (messages) are counted and left out.

    `nodes`, if given, are all names that may appear, including those that meet no other. What is still up at
    the end ends with the last event, and is counted in `left_out` as well (its end was not seen).
    """
    path = Path(path)
    left_out: dict[str, int] = {}
    names = Names()
    for name in nodes or ():
        names.of(name)
    up: dict[tuple[int, int], int] = {}
    contacts: list[tuple[int, int, int, int]] = []
    now_us = events = last = 0
    for line in rows_of(path, left_out):
        last = line.number
        if len(line.words) < 2 or line.words[1] != "CONN":
            if len(line.words) > 1 and line.words[1] in _OTHER_EVENTS:
                count(left_out, f"events {line.words[1]}")
                continue
            raise line.wrong("it is no connection event", _ONE_FIX)
        at_us, one, other = _event(line, names, nodes)
        if at_us < now_us:
            raise line.wrong(f"its time {line.words[0]} is before that of the line above", _ONE_FIX)
        now_us = at_us
        events += 1
        if line.words[4] == "up":
            if (one, other) in up:
                raise line.wrong(f"{line.words[2]} and {line.words[3]} are up already", _ONE_FIX)
            up[one, other] = now_us
            continue
        direction = (one, other) if (one, other) in up else (other, one)
        if direction not in up:
            raise line.wrong(f"{line.words[2]} and {line.words[3]} go down, but are not up", _ONE_FIX)
        contacts.append((*direction, up.pop(direction), now_us))
    if not events:
        raise nothing(path, "connection event")
    count(left_out, "ends of contacts that are up at the end of the file", len(up))
    contacts += [(*direction, start_us, now_us) for direction, start_us in up.items()]
    order, place = names.sorted()
    plan = make_plan(order, ((place[a], place[b], start, stop) for a, b, start, stop in contacts))
    return Reading(plan, str(path), "the-one", last, events, 0.0, left_out)


def _event(line: ContactLine, names: Names, nodes: Collection[str] | None) -> tuple[int, int, int]:
    if len(line.words) != 5 or line.words[4] not in ("up", "down"):
        raise line.wrong(f"it has {len(line.words)} columns, or no up or down at its end", _ONE_FIX)
    for name in line.words[2:4]:
        if nodes is not None and name not in nodes:
            raise line.wrong(f"there is no node {name!r}", "Name all nodes, or none")
    if line.words[2] == line.words[3]:
        raise line.wrong(f"node {line.words[2]!r} meets itself", "Leave such lines out")
    return line.time_us(line.words[0]), names.of(line.words[2]), names.of(line.words[3])


def write_the_one(plan: ContactPlan, path: Path | str) -> int:
    """Write a plan's contacts as connection events and return how many lines; presence has no place there."""
    words = {ChangeKind.UP: "up", ChangeKind.DOWN: "down"}
    lines = [
        f"{_seconds(at_us)} CONN {plan.nodes[a]} {plan.nodes[b]} {words[kind]}\n"
        for at_us, kind, a, b in plan.changes()
        if kind in words
    ]
    with writing(path):
        Path(path).write_text("".join(lines), encoding="utf-8")
    return len(lines)


def _seconds(at_us: int) -> str:
    whole, rest = divmod(at_us, SECOND_US)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)
