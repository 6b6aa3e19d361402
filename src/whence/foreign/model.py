"""A log that we did not write, as columns: what every reader yields, and the only thing that the judge sees.

An event has a `proc` (what owns one physical clock) and a `ctx`, a sequential context: order holds inside one
ctx and nowhere else. `pos` is its place in the ctx, counted from 0 without holes (equal for what the log does
not order), or -1: then the event is an interval of its proc's clock, `t0` to `t1`, in a ctx of its own.

`scope` is the receiver's session in which deliveries are compared, `group` that in which a second delivery is
a duplicate, `channel` that in which the order of sends (`rank`) is kept. `deps` are messages that the event's
message names as its causes, `links` the events (by their `ref`) that the event names as its causes, `vc` its
vector clock. Times are nanoseconds. What an event does not have is -1, or `NO_TIME`, or an empty list.

    builder = LogBuilder(order="line")
    builder.add(proc="a", kind=EventKind.SEND, msg="x", pos=1, t0=0)
    log = builder.log()
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[Any]
Number = int | Decimal

NO_TIME = -(1 << 63)  # no time was logged
NO_RANK = -(1 << 63)
INT64_MAX = (1 << 63) - 1

# The text of a number; Spark reads it by the same. A number may have parts, the first counts most: a list of
# columns (`3 | 17`), an id of a Redis stream (`1526919030474-1`), a place in PostgreSQL (`16/B374D848`).
_ONE = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?"
_PARTS = r"\d{1,19}(?: \| \d{1,19})+|\d{1,19}-\d{1,19}|[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}"
PLAIN_NUMBER = rf"^\s*({_ONE})\s*$"
NUMBER = rf"^\s*({_ONE}|{_PARTS})\s*$"
_BETWEEN = re.compile(r" \| |-|/")  # its parts
_PART_BITS = 64


class EventKind(IntEnum):
    """What an event is. ACK is a delivery in a log that has no others, and internal in one that has."""

    INTERNAL = 0
    SEND = 1
    RECEIVE = 2
    DELIVER = 3
    CRASH = 4
    RESTART = 5
    ACK = 6


# Where places come from, the strongest first: numbers of the log, own entries of clocks, lines, times.
ORDERS = ("seq", "clock", "line", "time", "interval")


class Note(msgspec.Struct, frozen=True):
    """Something that a reader of the verdict should know and that breaks nothing. Codes are stable."""

    code: str
    text: str
    count: int = 1


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """What a log is held to. None and empty: nothing is stated, and nothing is required."""

    order: str | None = None  # causal, fifo, none
    delivery: str | None = None  # exactly-once, at-least-once, at-most-once, unstated
    complete: tuple[str, ...] = ()  # which rows the log has all of: sends, deliveries, ranks
    members: tuple[str, ...] = ()  # who must deliver every message: processes or groups
    max_skew_ns: int | None = None  # how far two clocks may be apart
    require: tuple[str, ...] = ()  # properties that must be judged


class Ragged(NamedTuple):
    """Several values per event: those of event e are `values[offsets[e] : offsets[e + 1]]`."""

    offsets: Array
    values: Array

    def of(self, event: int) -> Array:
        """The values of one event."""
        return self.values[self.offsets[event] : self.offsets[event + 1]]

    def owners(self) -> Array:
        """For each value its event."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


class History(NamedTuple):
    """Operations on registers; an event may have several (a transaction). Values are unique per key."""

    reads: list[tuple[int, str, str | None]]  # event, key, value; None: the initial value
    writes: list[tuple[int, str, str]]

    def writers(self) -> dict[tuple[str, str], int]:
        """The event that wrote each value of a key."""
        made: dict[tuple[str, str], int] = {}
        for event, key, value in self.writes:
            made.setdefault((key, value), event)
        return made

    def reads_from(self) -> Array:
        """Pairs (writer, reader)."""
        writers = self.writers()
        pairs = [
            (writers[key, value], event)
            for event, key, value in self.reads
            if value is not None and (key, value) in writers
        ]
        return np.array(sorted(set(pairs)), dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True, kw_only=True)
class Log:
    """Events as columns of one length; names are lists that the columns index."""

    procs: list[str]
    ctxs: list[str]
    msgs: list[str]
    scopes: list[str]
    groups: list[str]
    channels: list[str]
    refs: list[str]
    proc: Array
    ctx: Array
    pos: Array
    kind: Array
    msg: Array
    scope: Array
    group: Array
    channel: Array
    rank: Array
    ref: Array
    t0: Array
    t1: Array
    line: Array
    to: Ragged  # procs
    deps: Ragged  # msgs
    links: Ragged  # refs
    vc: Ragged  # ctxs
    vc_count: Array  # the clock's count for each of `vc.values`
    text: Sequence[str | None]
    order: str = "line"  # where `pos` comes from, one of ORDERS
    spans: bool = False
    clocked: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))  # procs whose clock is known
    resolution_ns: int = 1
    # What was taken off every rank so that it fits 64 bits; None: ranks say which is higher, and no more.
    rank_base: int | None = 0
    contract: Contract = field(default_factory=Contract)
    history: History | None = None
    # Pairs (e, f): e is assumed to end before f ends, as a server does before its client. For offsets alone.
    returns: Array = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    lacking: tuple[str, ...] = ()  # attributes that would have given a scope
    notes: tuple[Note, ...] = ()

    def __len__(self) -> int:
        return len(self.kind)

    def name(self, event: int) -> str:
        """An event for a reader: who does what, and where that stands."""
        verb = ("does", "sends", "receives", "delivers", "crashes", "restarts", "acknowledges")
        who, where = self.ctxs[self.ctx[event]], f"line {self.line[event]}"
        if self.spans:  # each is a context of its own, whose ids are not read
            who, where = self.procs[self.proc[event]], f"{self.text[event]}, span {who.rpartition(':')[2]}"
        elif self.line[event] < 0:
            where = f"event {event}"
        words = [who, verb[self.kind[event]]]
        if self.msg[event] >= 0:
            words.append(self.msgs[self.msg[event]])
        elif self.text[event] and not self.spans:
            words.append(repr(self.text[event]))
        return f"{' '.join(words)} ({where})"


def number(value: object) -> Number | None:
    """A number exactly, from a number or its text; None where it is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    found = re.match(NUMBER, str(value), re.ASCII)
    if found is None:
        return None
    if re.fullmatch(_PARTS, found[1], re.ASCII):
        base = 16 if "/" in found[1] else 10
        return reduce(lambda made, part: made << _PART_BITS | int(part, base), _BETWEEN.split(found[1]), 0)
    made = Decimal(found[1])
    return int(made) if made == made.to_integral_value() else made


class LogBuilder:
    """Collects rows with names as texts, and makes a `Log` of them."""

    def __init__(self, order: str, **about: Any) -> None:
        self._about: dict[str, Any] = {"order": order, **about}
        self._rows: list[tuple[Any, ...]] = []
        self._notes: list[Note] = []

    def add(
        self,
        *,
        proc: str,
        kind: int,
        ctx: str | None = None,
        pos: Any = None,
        msg: str | None = None,
        to: Sequence[str] = (),
        scope: str | None = None,
        group: str | None = None,
        channel: str | None = None,
        rank: Any = None,
        deps: Sequence[str] = (),
        links: Sequence[str] = (),
        ref: str | None = None,
        vc: dict[str, int] | None = None,
        t0: int | None = None,
        t1: int | None = None,
        line: int = -1,
        text: str | None = None,
    ) -> None:
        """Add an event. `ctx` is the proc unless given; `pos` and `rank` are any comparable numbers."""
        self._rows.append(
            (proc, proc if ctx is None else ctx, pos, kind, msg, to, scope, group, channel, rank, deps,
             links, ref, vc, t0, t1, line, text)
        )  # fmt: skip

    def note(self, code: str, text: str, count: int = 1) -> None:
        """Add a note."""
        self._notes.append(Note(code, text, count))

    def log(self) -> Log:
        """The log of all rows so far."""
        return make_log(self._rows, notes=tuple(self._notes), **self._about)


def make_log(rows: Sequence[tuple[Any, ...]], **about: Any) -> Log:
    """A log from rows in the order of `LogBuilder.add`; `about` has the rest of `Log`'s fields."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 18
    (proc, ctx, pos, kind, msg, to, scope, group, channel, rank, deps, links, ref, vc, t0, t1, line, text) = (
        columns
    )
    procs, ctxs, msgs, refs = _Names(), _Names(), _Names(), _Names()
    scopes, groups, channels = _Names(), _Names(), _Names()
    made_ctx = ctxs.column(ctx)
    clocks = [each or {} for each in vc]
    kinds = _acks(np.array(kind, dtype=np.int8))
    places = _places(made_ctx, *_numbers(pos)[:2])
    made_scope = scopes.column(scope)
    made_proc, lines = procs.column(proc), np.array(line, dtype=np.int64)
    made_scope = _incarnations(scopes, made_scope, made_proc, made_ctx, places, lines, kinds)
    about.setdefault("clocked", np.ones(len(set(proc)), dtype=bool))
    ranks, ranked, rank_base = _numbers(rank)
    return Log(
        proc=made_proc, ctx=made_ctx, pos=places, kind=kinds,
        msg=msgs.column(msg), scope=made_scope, group=groups.column(group), channel=channels.column(channel),
        rank=np.where(ranked, ranks, NO_RANK), rank_base=rank_base, ref=refs.column(ref),
        t0=_times(t0), t1=_times(t1), line=lines, to=procs.ragged(to), deps=msgs.ragged(deps),
        links=refs.ragged(links), vc=ctxs.ragged(clocks),
        vc_count=np.array([count for clock in clocks for count in clock.values()], dtype=np.int64),
        text=text, procs=procs.names, ctxs=ctxs.names, msgs=msgs.names, scopes=scopes.names,
        groups=groups.names, channels=channels.names, refs=refs.names, **about,
    )  # fmt: skip


def log_of_table(table: pa.Table, **about: Any) -> Log:
    """A log from a table whose columns are the arguments of `LogBuilder.add`, names as texts."""
    column: dict[str, Any] = {name: table.column(name).combine_chunks() for name in table.column_names}
    procs, proc, to = _encoded(column["proc"], column["to"])
    msgs, msg, deps = _encoded(column["msg"], column["deps"])
    refs, ref, links = _encoded(column["ref"], column["links"])
    ctxs, ctx, vc = _encoded(column["ctx"], column["vc"])
    kinds = _acks(column["kind"].to_numpy(zero_copy_only=False).astype(np.int8))
    places = _places(ctx, *_arrow_numbers(column["pos"])[:2])
    scopes, groups, channels = _Names(), _Names(), _Names()
    scope, group, channel = (
        names.arrow(column[name])
        for names, name in ((scopes, "scope"), (groups, "group"), (channels, "channel"))
    )
    lines = column["line"].to_numpy(zero_copy_only=False)
    scope = _incarnations(scopes, scope, proc, ctx, places, lines, kinds)
    rank, ranked, rank_base = _arrow_numbers(column["rank"])
    about.setdefault("clocked", np.ones(len(procs), dtype=bool))
    times = {name: column[name].fill_null(NO_TIME).to_numpy(zero_copy_only=False) for name in ("t0", "t1")}
    counts = column["vc"].items.to_numpy(zero_copy_only=False).astype(np.int64)
    return Log(
        procs=procs, ctxs=ctxs, msgs=msgs, scopes=scopes.names, groups=groups.names, channels=channels.names,
        refs=refs, proc=proc, ctx=ctx, pos=places, kind=kinds, msg=msg, scope=scope, group=group,
        channel=channel, rank=np.where(ranked, rank, NO_RANK), rank_base=rank_base, ref=ref,
        t0=times["t0"], t1=times["t1"], line=lines, to=to, deps=deps, links=links, vc=vc,
        vc_count=counts, text=[None] * len(table), **about,
    )  # fmt: skip


def _encoded(one: Any, several: Any) -> tuple[list[str], Array, Ragged]:
    """Names, a column of them, and a column of lists (or of keys of maps) of them."""
    import pyarrow as pa

    inner = several.keys if pa.types.is_map(several.type) else several.flatten()
    names = _Names()
    both = names.arrow(pa.concat_arrays([one.cast(pa.string()), inner.cast(pa.string())]))
    sizes = np.diff(several.offsets.to_numpy(zero_copy_only=False))
    offsets = np.append(0, np.cumsum(np.where(several.is_valid().to_numpy(zero_copy_only=False), sizes, 0)))
    return names.names, both[: len(one)], Ragged(offsets, both[len(one) :])


def _arrow_numbers(column: Any) -> tuple[Array, Array, int | None]:
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        there = column.is_valid().to_numpy(zero_copy_only=False)
        return column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), there, 0
    return _numbers([number(value) for value in column.to_pylist()])


class _Names:
    """Texts by number, in order of appearance."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._places: dict[str, int] = {}

    def at(self, name: str) -> int:
        place = self._places.setdefault(name, len(self.names))
        if place == len(self.names):
            self.names.append(name)
        return place

    def column(self, values: Iterable[str | None]) -> Array:
        at = self.at
        return np.array([-1 if value is None else at(value) for value in values], dtype=np.int32)

    def arrow(self, values: Any) -> Array:
        """A column of texts; this must be the only one of these names."""
        encoded = values.dictionary_encode()
        self.names = encoded.dictionary.to_pylist()
        self._places = {name: at for at, name in enumerate(self.names)}
        made: Array = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
        return made

    def ragged(self, lists: Sequence[Iterable[str]]) -> Ragged:
        made = [[self.at(value) for value in values] for values in lists]
        offsets = np.zeros(len(made) + 1, dtype=np.int64)
        np.cumsum([len(each) for each in made], out=offsets[1:])
        return Ragged(offsets, np.array([value for each in made for value in each], dtype=np.int32))


def _numbers(values: Sequence[Any]) -> tuple[Array, Array, int | None]:
    """Comparable values as int64 in the same order, which there are, and what was taken off each.

    Numbers that do not fit after that either become their places, 0, 1, 2 (None was taken off).
    """
    there = np.array([value is not None for value in values], dtype=bool)
    given = [value for value in values if value is not None]
    base: int | None = 0
    if not all(isinstance(value, int) and -INT64_MAX <= value <= INT64_MAX for value in given):
        low = min(given)
        if all(isinstance(value, int) for value in given) and max(given) - low <= INT64_MAX:
            base, given = low, [value - low for value in given]
        else:
            place = {value: at for at, value in enumerate(sorted(set(given)))}
            base, given = None, [place[value] for value in given]
    made = np.zeros(len(values), dtype=np.int64)
    made[there] = np.array(given, dtype=np.int64)
    return made, there, base


def _times(values: Sequence[int | None]) -> Array:
    return np.array([NO_TIME if value is None else value for value in values], dtype=np.int64)


def _places(ctx: Array, made: Array, there: Array) -> Array:
    """Places in each ctx, without holes; equal values share one."""
    places = np.full(len(made), -1, dtype=np.int64)
    if there.any():
        at = np.flatnonzero(there)
        at = at[np.lexsort((made[at], ctx[at]))]
        new_ctx = np.append(True, np.diff(ctx[at]) != 0)
        step = np.append(True, np.diff(made[at]) != 0) | new_ctx
        count = np.cumsum(step) - 1
        first = np.maximum.accumulate(np.where(new_ctx, count, 0))
        places[at] = count - first
    return places


def _acks(kind: Array) -> Array:
    """Acknowledgements are deliveries where no delivery was logged."""
    has = bool(np.any(kind == EventKind.DELIVER))
    made: Array = np.where(kind == EventKind.ACK, EventKind.INTERNAL if has else EventKind.DELIVER, kind)
    return made.astype(np.int8)


def _incarnations(
    scopes: _Names, scope: Array, proc: Array, ctx: Array, pos: Array, line: Array, kind: Array
) -> Array:
    """Scopes that begin anew after each restart of their process.

    In the context of the restart its place decides; in others of the process only the lines can.
    """
    restarts = np.flatnonzero((kind == EventKind.RESTART) & (pos >= 0))
    if not len(restarts):
        return scope
    made = scope.copy()
    for event in np.flatnonzero((scope >= 0) & (pos >= 0) & np.isin(proc, proc[restarts])).tolist():
        mine = restarts[proc[restarts] == proc[event]]
        same = ctx[mine] == ctx[event]
        before = np.where(same, pos[mine] <= pos[event], line[mine] < line[event])
        if before.any():
            made[event] = scopes.at(f"{scopes.names[scope[event]]} (life {int(before.sum()) + 1})")
    return made
