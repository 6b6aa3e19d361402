"""Judges a foreign log as it comes, in bounded memory: what is found is certain.

Ranks of a channel are kept as intervals, so that order and repeats of ranked messages are exact however long
a stream is. All else is known within a horizon of the last rows: repeats in a group, and causes that messages
name (`depends_on`) or that their senders had delivered. A delivery with nothing within the horizon that says
what precedes it is counted in `beyond`, and the verdict says so.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import msgspec

from whence.foreign.model import Contract, EventKind, Note
from whence.foreign.report import (
    EXITS,
    FINDINGS_MAX,
    NOT_JUDGED,
    OK,
    PROPERTIES,
    Audit,
    AuditFinding,
    Judged,
    demands,
    verdict_of,
)

HORIZON_ROWS = 10_000
_SEEN_BYTES = 1 << 16  # of a scope's memory of what it delivered beyond the horizon
_SEVERAL = "\0several"  # in place of a context's name
STREAMED = ("causal", "fifo", "duplicate")


class Ranks(msgspec.Struct):
    """A set of whole numbers as intervals [low, high], in order."""

    lows: list[int] = []
    highs: list[int] = []

    def add(self, rank: int) -> bool:
        """Add a number; returns whether it is new."""
        at = bisect_right(self.lows, rank) - 1
        if at >= 0 and rank <= self.highs[at]:
            return False
        joins_left = at >= 0 and self.highs[at] == rank - 1
        joins_right = at + 1 < len(self.lows) and self.lows[at + 1] == rank + 1
        if joins_left and joins_right:
            self.highs[at] = self.highs.pop(at + 1)
            del self.lows[at + 1]
        elif joins_left:
            self.highs[at] = rank
        elif joins_right:
            self.lows[at + 1] = rank
        else:
            self.lows.insert(at + 1, rank)
            self.highs.insert(at + 1, rank)
        return True

    @property
    def top(self) -> int | None:
        """The largest."""
        return self.highs[-1] if self.highs else None


class BloomSet(msgspec.Struct):
    """A set of names in a fixed number of bits (Bloom 1970): it may hold more than was added, never less."""

    bits: bytearray = msgspec.field(default_factory=lambda: bytearray(_SEEN_BYTES))

    def add(self, name: str) -> None:
        """Add a name."""
        for place in self._places(name):
            self.bits[place >> 3] |= 1 << (place & 7)

    def may_hold(self, name: str) -> bool:
        """Whether a name may have been added."""
        return all(self.bits[place >> 3] >> (place & 7) & 1 for place in self._places(name))

    def _places(self, name: str) -> list[int]:
        digest = blake2b(name.encode(), digest_size=16).digest()
        return [each % (8 * len(self.bits)) for each in struct.unpack("<4I", digest)]


class StreamRow(msgspec.Struct, frozen=True):
    """One event, as far as a stream is judged."""

    proc: str
    ctx: str
    kind: int
    msg: str | None = None
    scope: str | None = None
    group: str | None = None
    channel: str | None = None
    rank: int | None = None
    deps: list[str] = []
    line: int = -1
    pos: int | Decimal | None = None  # its place in the context

    @classmethod
    def of(cls, row: Sequence[Any]) -> StreamRow:
        """From a row in the order of `LogBuilder.add`."""
        proc, ctx, pos, kind, msg, _, scope, group, channel, rank, deps, *_, line, _ = row
        whole = rank if isinstance(rank, int) else None
        return cls(proc, ctx, kind, msg, scope, group, channel, whole, list(deps), line, pos)


class RunningAudit(msgspec.Struct):
    """The state of the judge between two batches: plain data, to be saved and read back."""

    horizon: int = HORIZON_ROWS
    rows: int = 0
    beyond: int = 0  # deliveries that could not be judged
    late: int = 0  # rows that do not come behind all others of their context
    places: dict[str, int | Decimal] = {}  # context -> the last place in it
    judged: dict[str, int] = {}
    counts: dict[str, int] = {}
    findings: dict[str, list[AuditFinding]] = {}
    ranked: dict[str, Ranks] = {}  # by scope, context and channel
    repeated: dict[str, Ranks] = {}  # by group and channel
    ids: dict[str, int] = {}  # group and message -> row
    delivered: dict[str, dict[str, int]] = {}  # scope -> message -> row
    behind: dict[str, dict[str, int]] = {}  # scope -> what precedes something delivered there -> row of that
    past: dict[str, list[str]] = {}  # message -> what precedes it
    known: dict[str, list[str]] = {}  # context -> what it has sent and delivered, with their pasts
    earlier: dict[str, BloomSet] = {}  # scope -> what it delivered beyond the horizon
    followers: dict[str, list[str]] = {}  # message -> those that name it as a cause
    first: dict[str, int] = {}  # message -> row of its first mention
    senders: dict[str, str] = {}  # message -> the context that sent it first
    sent: BloomSet = msgspec.field(default_factory=BloomSet)  # what was sent beyond the horizon
    lives: dict[str, int] = {}  # process -> its restarts: each begins new sessions
    handed: bool = False  # there are deliveries, so that acknowledgements are none
    news: list[tuple[str, AuditFinding]] = []  # found in the rows that are being fed

    def feed(self, rows: Sequence[StreamRow]) -> list[tuple[str, AuditFinding]]:
        """Judge the next rows, those of one context in its order; returns what they show to be wrong."""
        self.handed = self.handed or any(row.kind == EventKind.DELIVER for row in rows)
        for row in rows:
            self.rows += 1
            if row.kind == EventKind.RESTART:
                self.lives[row.proc] = self.lives.get(row.proc, 0) + 1
            for message in ([row.msg] if row.msg is not None else []) + row.deps:
                self.first.setdefault(message, self.rows)
            in_order = self._in_order(row)
            if row.msg is None:
                continue
            if row.deps:
                for each in row.deps:
                    followers = self.followers.setdefault(each, [])
                    if row.msg not in followers:
                        followers.append(row.msg)
                self._learn(row.msg, row.deps)
            if row.kind == EventKind.SEND:
                self._send(row.ctx, row.msg, in_order)
            elif row.kind == EventKind.DELIVER or (row.kind == EventKind.ACK and not self.handed):
                self._deliver(row, row.msg, in_order)
        self._forget()
        news, self.news = self.news, []
        return news

    def _in_order(self, row: StreamRow) -> bool:
        """Whether a row stands behind all that came of its context; what it follows is not known else."""
        last = self.places.get(row.ctx)
        if row.pos is None or (last is not None and row.pos <= last):
            self.late += 1
            return False
        self.places[row.ctx] = row.pos
        return True

    def _send(self, ctx: str, message: str, in_order: bool) -> None:
        """A message began with its first send; one that several contexts send gives no order at all."""
        sender = self.senders.get(message)
        if sender is None and not self.sent.may_hold(message):
            self.senders[message] = ctx
            self._learn(message, self.known.get(ctx, []) if in_order else [])
            self._knows(ctx, message)
        elif sender not in {None, ctx, _SEVERAL}:
            self.senders[message] = _SEVERAL
            self.past.pop(message, None)
            for table in (self.past, self.known):
                for name, before in table.items():
                    table[name] = [each for each in before if each != message]
            for behind in self.behind.values():
                behind.pop(message, None)

    def _learn(self, message: str, before: Iterable[str]) -> None:
        """What precedes a message; then so it does for all that name the message."""
        waiting = [(message, list(before))]
        while waiting:
            which, causes = waiting.pop()
            known = self.past.get(which)
            made = dict.fromkeys(known or ())
            for each in causes:
                made.update(dict.fromkeys([each, *self.past.get(each, ())]))
            made.pop(which, None)
            if known is not None and len(made) == len(known):
                continue
            self.past[which] = list(made)
            for scope, delivered in self.delivered.items():
                if which in delivered:
                    self._hold(scope, which, delivered[which])
            waiting += [(follower, [which]) for follower in self.followers.get(which, ())]

    def _knows(self, ctx: str, message: str) -> None:
        if self.senders.get(message) == _SEVERAL:
            return
        known = dict.fromkeys(self.known.get(ctx, ()))
        known.update(dict.fromkeys([message, *self.past.get(message, ())]))
        self.known[ctx] = list(known)

    def _hold(self, scope: str, message: str, place: int) -> None:
        """From `place` on, all that precedes a message is late in a scope if it was not delivered before."""
        delivered, behind = self.delivered[scope], self.behind.setdefault(scope, {})
        for each in self.past.get(message, ()):
            if each in delivered:
                if delivered[each] > place and behind.get(each) is None:
                    self._found("causal", each, scope, f"{each} comes after {message}, which depends on it")
                    behind[each] = place
            elif not self._earlier(scope, each):
                behind.setdefault(each, place)

    def _earlier(self, scope: str, message: str) -> bool:
        """Whether a scope may have delivered a message beyond the horizon."""
        return scope in self.earlier and self.earlier[scope].may_hold(message)

    def _deliver(self, row: StreamRow, message: str, in_order: bool) -> None:
        self._duplicate(row, message)
        if row.scope is None:
            return
        scope = f"{row.scope}\0{row.ctx}\0{self.lives.get(row.proc, 0)}"
        if not in_order:  # it may have come first
            self.earlier.setdefault(scope, BloomSet()).add(message)
            self.behind.get(scope, {}).pop(message, None)
            self._knows(row.ctx, message)
            return
        overtaken = self._fifo(row, message, scope)
        delivered = self.delivered.setdefault(scope, {})
        if message not in delivered and not self._earlier(scope, message):
            self._count("causal")
            delivered[message] = self.rows
            if message not in self.past and row.rank is None:
                self.beyond += 1
            if overtaken or message in self.behind.get(scope, {}):
                self._found("causal", message, scope, f"{message} is delivered after what depends on it")
            self._hold(scope, message, self.rows)
        self._knows(row.ctx, message)

    def _fifo(self, row: StreamRow, message: str, scope: str) -> bool:
        """Whether a first delivery comes after one of a higher rank."""
        if row.channel is None or row.rank is None:
            return False
        ranks = self.ranked.setdefault(f"{scope}\0{row.channel}", Ranks(lows=[], highs=[]))
        top = ranks.top
        if not ranks.add(row.rank):
            return False
        self._count("fifo")
        if top is None or row.rank > top:
            return False
        self._found("fifo", message, scope, f"{message} ({row.channel} @ {row.rank}) is after {top}")
        return True

    def _duplicate(self, row: StreamRow, message: str) -> None:
        if row.group is None:
            return
        self._count("duplicate")
        if row.channel is not None and row.rank is not None:
            ranks = self.repeated.setdefault(f"{row.group}\0{row.channel}", Ranks(lows=[], highs=[]))
            again = not ranks.add(row.rank)
        else:
            again = f"{row.group}\0{message}" in self.ids
            self.ids[f"{row.group}\0{message}"] = self.rows
        if again:
            self._found("duplicate", message, row.group, f"{message} is delivered again in {row.group}")

    def _count(self, name: str) -> None:
        self.judged[name] = self.judged.get(name, 0) + 1

    def _found(self, name: str, message: str, scope: str, text: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
        finding = AuditFinding(text=text, message=message, scope=scope.partition("\0")[0])
        self.news.append((name, finding))
        told = self.findings.setdefault(name, [])
        if len(told) < FINDINGS_MAX:
            told.append(finding)

    def _forget(self) -> None:
        """Leave behind what lies beyond the horizon."""
        oldest = self.rows - self.horizon
        if oldest <= 0:
            return
        gone = {message for message, row in self.first.items() if row <= oldest}
        self.first = {message: row for message, row in self.first.items() if row > oldest}
        self.ids = {key: row for key, row in self.ids.items() if row > oldest}
        self.past = {m: [x for x in each if x not in gone] for m, each in self.past.items() if m not in gone}
        self.followers = {m: each for m, each in self.followers.items() if m not in gone}
        self.known = {ctx: [x for x in each if x not in gone] for ctx, each in self.known.items()}
        for message in self.senders.keys() & gone:
            del self.senders[message]
            self.sent.add(message)
        for scope, delivered in self.delivered.items():
            for message in delivered.keys() & gone:
                self.earlier.setdefault(scope, BloomSet()).add(message)
        for table in (self.delivered, self.behind):
            for scope, each in table.items():
                table[scope] = {message: row for message, row in each.items() if message not in gone}

    def audit(self, source: str, contract: Contract) -> Audit:
        """The verdict so far; what a stream cannot tell is not judged."""
        properties = {}
        for name in PROPERTIES:
            if self.judged.get(name):
                properties[name] = Judged(
                    status=OK, count=self.counts.get(name, 0), judged=self.judged[name],
                    findings=self.findings.get(name, []),
                )  # fmt: skip
            else:
                streamed = name in STREAMED
                why = "no row of the stream shows it" if streamed else "it is not judged on a stream"
                properties[name] = Judged(status=NOT_JUDGED, why=why, remedy="judge the log at rest")
        causal = properties["causal"]
        if causal.status != NOT_JUDGED and not causal.count and self.beyond == causal.judged:
            why = f"the past of all {self.beyond} deliveries lies beyond the horizon of {self.horizon} rows"
            properties["causal"] = Judged(status=NOT_JUDGED, why=why, remedy="give a longer horizon")
        verdict, made = verdict_of(properties, *demands(contract, spans=False))
        return Audit(
            source=source, verdict=verdict, exit=EXITS[verdict], events=self.rows, order="stream",
            contract=contract, properties=made, notes=self._notes(),
        )  # fmt: skip

    def _notes(self) -> list[Note]:
        notes = []
        if self.beyond:
            told = f"{self.beyond} deliveries have nothing within {self.horizon} rows"
            notes.append(Note("beyond-horizon", f"{told} that says what precedes them", self.beyond))
        if self.late:
            told = f"{self.late} rows have no place behind all that came of their context before them"
            notes.append(Note("late-rows", f"{told}: their order is not judged", self.late))
        return notes
