"""Deliveries whose messages are named by a number: judged as columns, in one pass and one sort.

In the log of a topic or a stream a message is a stem (the stream, the partition) and its rank there, and
every row is a delivery. Then all that names something (process, context, session, group, channel, stem) has
few values: a `KeyEncoder` reads each combination of them once, by the mapping's own closures, and leaves
numbers. Sorted by rank, the highest first, a `RankedJudge` needs no memory but a few numbers per session and
channel: a delivery is late iff one of a higher rank stands before it.

A log that is not of that kind is found out while it is read (`Unsuited`), and must be judged as a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from whence.foreign.kernels import NEVER, choose_kernels, fresh_ranks
from whence.foreign.mapping import LogMapping, Normaliser, compile_text, kind_rule, order_of, parse, text_of
from whence.foreign.model import Array, EventKind
from whence.foreign.report import AuditFinding

if TYPE_CHECKING:
    import pyarrow as pa

KEYS_MAX = 1_000_000  # combinations of names in one task
_KEY_FIELDS = ("process", "context", "session", "group", "channel", "sender")
_FIELDS = {*_KEY_FIELDS, "kind", "message", "send_order", "order", "time", "end"}


class Unsuited(Exception):
    """The log is not one of ranked deliveries alone. Never leaves the package."""


class RankedPlan(NamedTuple):
    """What of a row is read, by column."""

    keys: tuple[str, ...]  # columns with few values, which name things
    stem: tuple[str, ...]  # those of them that are in the message's name
    rank: str
    order: str | None  # None: the line


def plan_of(mapping: LogMapping) -> RankedPlan | None:
    """How to read a log by ranks, if its mapping lets a message be a stem and a rank."""
    event = mapping.event
    channel = event.get("channel") or event.get("sender")
    placed = order_of(mapping) in {"seq", "line"}
    if set(event) - _FIELDS or not placed or mapping.contract.complete or channel is None:
        return None
    rank, order = _column(event.get("send_order")), _column(event.get("order"))
    if rank is None or (order is None and "order" in event) or not _is_separable(event.get("message")):
        return None
    named = _columns(event["message"])
    stem = tuple(column for column in named if column != rank)
    if rank not in named or not set(stem) <= set(_columns(channel)):
        return None
    keys: list[str] = []
    for field in _KEY_FIELDS:
        keys += _columns(event[field]) if field in event else []
    kind = kind_rule(event.get("kind", "deliver")).column
    keys += _columns(kind) if kind else []
    if {rank, order} & set(keys):
        return None
    return RankedPlan(tuple(dict.fromkeys(keys)), stem, rank, order)


def _columns(expression: Any) -> list[str]:
    return [column for template in parse(expression) for column in template.columns]


def _column(expression: Any) -> str | None:
    """The one column that an expression is."""
    parts = [part for template in parse(expression) for part in template.parts] if expression else []
    return parts[0][1] if len(parts) == 1 and parts[0][0] else None


def _is_separable(expression: Any) -> bool:
    """Whether a text stands between each two columns of a message's name, so that no two names are equal."""
    if expression is None or len(parse(expression)) != 1:
        return False
    parts = parse(expression)[0].parts
    return not any(one[0] and other[0] for one, other in pairwise(parts))


class EncodedRows(NamedTuple):
    """Deliveries as numbers."""

    stem: Array  # hashes of the stem
    key: Array  # and of the combination of names
    rank: Array
    pos: Array


class KeyEncoder:
    """Turns batches of columns into numbers, and keeps what these mean."""

    def __init__(self, mapping: LogMapping, plan: RankedPlan) -> None:
        self._plan = plan
        self._reader = KeyReader(mapping, plan)
        self._known: dict[tuple[Any, ...], tuple[int, int, int]] = {}  # values -> hash of stem and key, kind
        self._new: list[tuple[int, int, str]] = []
        self._taken: set[int] = set()

    def encode(self, batch: pa.RecordBatch, line: Array) -> EncodedRows:
        """The deliveries of a batch; `line` is where its rows stand."""
        code, uniques = _combined([batch.column(name) for name in self._plan.keys], batch.num_rows)
        read = np.array([self._key(values) for values in uniques], dtype=np.int64).reshape(-1, 3)
        self._taken |= set(read[:, 2].tolist())
        if {EventKind.DELIVER, EventKind.ACK} <= self._taken:
            raise Unsuited("deliveries and acknowledgements")
        stem, key, kind = read[code].T
        kept = np.flatnonzero(kind != EventKind.INTERNAL)
        rank = _whole(batch.column(self._plan.rank), kept)
        pos = line[kept] if self._plan.order is None else _whole(batch.column(self._plan.order), kept)
        return EncodedRows(stem[kept], key[kept], rank, pos)

    def new_keys(self) -> list[tuple[int, int, str]]:
        """What was met since this was last asked: the hashes of stem and key, and the values as JSON."""
        new, self._new = self._new, []
        return new

    def _key(self, values: tuple[Any, ...]) -> tuple[int, int, int]:
        found = self._known.get(values)
        if found is None:
            if len(self._known) >= KEYS_MAX:
                raise Unsuited("too many names")
            texts = [text_of(value) for value in values]
            told = msgspec.json.encode(texts)
            read = self._reader.read(texts)
            found = self._known[values] = (_hash(read.stem.encode()), _hash(told), read.kind)
            self._new.append((*found[:2], told.decode()))
        return found


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)


class RankedKey(NamedTuple):
    """What a combination of values names; None is nothing."""

    kind: int
    stem: str
    ctx: str
    scope: str | None
    group: str | None
    channel: str


class KeyReader:
    """Reads a combination as the mapping's closures read a row."""

    def __init__(self, mapping: LogMapping, plan: RankedPlan) -> None:
        self._plan = plan
        kept = {field: mapping.event[field] for field in (*_KEY_FIELDS, "kind") if field in mapping.event}
        self.normaliser = Normaliser(msgspec.structs.replace(mapping, event=kept))
        self._message = compile_text(mapping.event["message"])
        parts = parse(mapping.event["message"])[0].parts
        self._separators = {letter for is_column, text in parts if not is_column for letter in text}
        self._read: dict[tuple[str | None, ...], RankedKey] = {}

    def read(self, texts: list[str | None]) -> RankedKey:
        """What the values of the plan's keys name."""
        found = self._read.get(tuple(texts))
        if found is None:
            found = self._read[tuple(texts)] = self._made(texts)
        return found

    def _made(self, texts: list[str | None]) -> RankedKey:
        row = dict(zip(self._plan.keys, texts, strict=True))
        _, ctx, _, kind, _, _, scope, group, channel, *_ = self.normaliser.row(row, 0)
        stem = [row[column] for column in self._plan.stem]
        if kind not in {EventKind.DELIVER, EventKind.ACK, EventKind.INTERNAL} or self.normaliser.odd_kinds:
            raise Unsuited("other kinds of rows")
        if kind != EventKind.INTERNAL and (channel is None or None in stem):
            raise Unsuited("rows without a name")
        if any(self._separators & set(text or "") for text in stem):
            raise Unsuited("names that could be read in two ways")
        return RankedKey(kind, msgspec.json.encode(stem).decode(), ctx, scope, group, channel)

    def message(self, texts: list[str | None], rank: int) -> str:
        """The name of a message."""
        row: Mapping[str, Any] = {**dict(zip(self._plan.keys, texts, strict=True)), self._plan.rank: rank}
        return self._message(row) or ""


def _combined(columns: list[Any], rows: int) -> tuple[Array, list[tuple[Any, ...]]]:
    """For each row the number of its combination of values; and the combinations."""
    code = np.zeros(rows, dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        size = len(encoded.dictionary) + 1
        mine = encoded.indices.fill_null(size - 1).to_numpy(zero_copy_only=False).astype(np.int64)
        code = distinct(code)[0] if code.max(initial=0) * size > 1 << 40 else code
        code = code * size + mine
    code, first = distinct(code)
    values = [column.take(first).to_pylist() for column in columns]
    return code, list(zip(*values, strict=True)) if values else [()] * len(first)


def distinct(values: Array) -> tuple[Array, Array]:
    """For each value its number among those that differ, and where each of these stands first."""
    import pyarrow as pa

    found = pa.array(values).dictionary_encode()
    code: Array = found.indices.to_numpy().astype(np.int64)
    first = np.zeros(len(found.dictionary), dtype=np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    return code, first


def _whole(column: Any, kept: Array) -> Array:
    """Whole numbers, written as such; nothing else will do."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column.take(kept)
    if column.null_count:
        raise Unsuited("rows without a number")
    if not pa.types.is_integer(column.type):
        try:
            made = column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise Unsuited("numbers that are not whole") from error
        if not pc.all(pc.equal(made.cast(pa.string()), column)).as_py():
            raise Unsuited("numbers written in several ways")
        column = made
    whole: Array = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if len(whole) and max(int(whole.max()), -int(whole.min())) >= NEVER:
        raise Unsuited("numbers that are too large")
    return whole


class RankedCounts(msgspec.Struct):
    """What a part of the log shows; parts that share no stem are added up."""

    rows: int = 0
    late: int = 0
    again: int = 0
    grouped: int = 0
    channels: dict[str, tuple[int, int, int]] = {}  # first deliveries, lowest and highest rank
    scopes: dict[str, list[str]] = {}  # scope -> contexts
    had: list[str] = []  # columns of the session that some delivery has
    late_findings: list[AuditFinding] = []
    again_findings: list[AuditFinding] = []

    def add(self, other: RankedCounts) -> None:
        """Take in another part."""
        for name in ("rows", "late", "again", "grouped"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for channel, (count, low, high) in other.channels.items():
            mine = self.channels.get(channel, (0, low, high))
            self.channels[channel] = (mine[0] + count, min(mine[1], low), max(mine[2], high))
        for scope, ctxs in other.scopes.items():
            self.scopes[scope] = sorted({*self.scopes.get(scope, ()), *ctxs})
        self.had = sorted({*self.had, *other.had})
        self.late_findings += other.late_findings
        self.again_findings += other.again_findings


class RankedJudge:
    """Counts what is late and what comes again, given deliveries by blocks of ranks, the highest first."""

    def __init__(self, mapping: LogMapping, plan: RankedPlan, keys: dict[int, str]) -> None:
        self._reader = KeyReader(mapping, plan)
        self._by_line = plan.order is None
        self._ids = np.array(sorted(keys), dtype=np.int64)
        self._texts: list[list[str | None]] = [msgspec.json.decode(keys[key]) for key in self._ids.tolist()]
        self._keys = [self._reader.read(texts) for texts in self._texts]
        self._stem = _numbered(key.stem for key in self._keys)
        self._group = _numbered(key.group for key in self._keys)
        self._channel = _numbered(key.channel for key in self._keys)
        self._lane = _numbered(
            None if key.scope is None else (key.scope, key.ctx, key.channel) for key in self._keys
        )
        sizes = (int(each.max(initial=-1)) + 1 for each in (self._lane, self._group, self._channel))
        self._state = fresh_ranks(*sizes)

    def feed(self, key: Array, rank: Array, pos: Array) -> None:
        """Take all deliveries of some ranks, in any order; what is fed later is of lower ranks."""
        key = np.searchsorted(self._ids, key)
        lanes = len(self._state.late)
        order = _sorted(rank.max(initial=0) - rank, self._stem[key] * (lanes + 1) + self._lane[key] + 1, pos)
        choose_kernels(len(order)).scan_ranks(
            rank[order], pos[order], key[order], self._stem, self._lane, self._group, self._channel,
            self._state,
        )  # fmt: skip

    def counts(self, findings_max: int) -> RankedCounts:
        """What was found, once all rows are there."""
        state = self._state
        if state.mixed[0]:
            raise Unsuited("messages in several channels")
        made = RankedCounts(
            rows=int(state.rows[0]), late=int(state.late.sum()), again=int(state.again.sum()),
            grouped=int(state.grouped.sum()), had=sorted(self._reader.normaliser.had),
            late_findings=list(self._late(findings_max)), again_findings=list(self._again(findings_max)),
        )  # fmt: skip
        for at, key in zip(self._channel.tolist(), self._keys, strict=True):
            if state.firsts[at]:
                found = (int(state.firsts[at]), int(state.lowest[at]), int(state.highest[at]))
                made.channels[key.channel] = found
            if key.scope is not None:
                made.scopes[key.scope] = sorted({*made.scopes.get(key.scope, ()), key.ctx})
        return made

    def _late(self, most: int) -> Iterator[AuditFinding]:
        """The first of each session and channel that has some."""
        state = self._state
        for lane in np.flatnonzero(state.late)[:most].tolist():
            at, rank = int(state.late_key[lane]), int(state.late_rank[lane])
            key, message = self._keys[at], self._reader.message(self._texts[at], rank)
            after = f"after {state.late_top[lane]} of it"
            text = f"{key.ctx} delivers {message} ({key.channel} @ {rank}) {after}"
            line = int(state.late_pos[lane]) if self._by_line else None
            yield AuditFinding(text=text, message=message, scope=key.scope, line=line)

    def _again(self, most: int) -> Iterator[AuditFinding]:
        """One of each group that has some."""
        state = self._state
        for group in np.flatnonzero(state.again)[:most].tolist():
            at = int(state.again_key[group])
            message = self._reader.message(self._texts[at], int(state.again_rank[group]))
            text = f"{message} is delivered again in {self._keys[at].group}"
            yield AuditFinding(text=text, message=message)


def _numbered(names: Any) -> Array:
    """Equal names have one number; None has -1."""
    places: dict[Any, int] = {}
    return np.array(
        [-1 if name is None else places.setdefault(name, len(places)) for name in names], dtype=np.int64
    )


def _sorted(*columns: Array) -> Array:
    """The order of rows by the first column, then the next: by one number for each, if they fit one."""
    lows = [int(column.min(initial=NEVER)) for column in columns]
    widths = [int(column.max(initial=low)) - low + 1 for column, low in zip(columns, lows, strict=True)]
    if prod(widths) >= NEVER:
        return np.lexsort(columns[::-1])
    one = np.zeros(len(columns[0]), dtype=np.int64)
    for column, low, width in zip(columns, lows, widths, strict=True):
        one = one * width + (column - low)
    return np.argsort(one)
