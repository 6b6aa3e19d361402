"""Judges a foreign log: which properties hold, which are broken, and which cannot be told from it.

    audit = judge(read_log("orders.csv", mapping))

Every property needs evidence; without it the answer is "not judged", with the reason and the column or option
that would change it. Nothing is inferred from times but offsets of clocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from whence.errors import MisuseError
from whence.foreign.clocks import Clocks, read_clocks
from whence.foreign.graph import SOURCES, Graph, Sends, build, find_sends
from whence.foreign.kernels import choose_kernels
from whence.foreign.model import INT64_MAX, NO_RANK, NO_TIME, Array, Contract, EventKind, History, Log, Note
from whence.foreign.report import (
    EXITS,
    FINDINGS_MAX,
    NOT_JUDGED,
    OK,
    PROPERTIES,
    Audit,
    AuditFinding,
    AuditStep,
    Judged,
    demands,
    verdict_of,
)
from whence.foreign.timing import read_times

TABLE_BYTES = 512 << 20  # of the table of earliest ends; more scopes are judged in blocks
_CONTRACT = {
    "order": ("causal", "fifo", "none"),
    "delivery": ("exactly-once", "at-least-once", "at-most-once", "unstated"),
    "complete": ("sends", "deliveries", "ranks"),
    "require": PROPERTIES,
}


def check_contract(contract: Contract) -> Contract:
    """The contract, if it uses known words only."""
    for name, known in _CONTRACT.items():
        value = getattr(contract, name)
        for word in value if isinstance(value, tuple) else [value]:
            if word is not None and word not in known:
                raise MisuseError(
                    f"contract {name}", f"{word!r} is not one", f"Choose from: {', '.join(known)}"
                )
    return contract


def judge(
    log: Log,
    source: str = "log",
    *,
    contract: Contract | None = None,
    table_bytes: int = TABLE_BYTES,
    findings_max: int | None = FINDINGS_MAX,
    block: tuple[int, int] = (0, 1),
) -> Audit:
    """The verdict on a log, held to its own contract unless another is given.

    `block` (which, of how many) judges order in a part of the scopes only: they are independent.
    """
    contract = check_contract(log.contract if contract is None else contract)
    case = Case(log, contract, table_bytes, findings_max, block)
    demanded, required = demands(contract, log.spans)
    verdict, properties = verdict_of({name: getattr(case, name)() for name in PROPERTIES}, demanded, required)
    return Audit(
        source=source, verdict=verdict, exit=EXITS[verdict], events=len(log), order=log.order,
        contract=contract, properties=properties, notes=case.notes(),
    )  # fmt: skip


def _not_judged(why: str, remedy: str) -> Judged:
    return Judged(status=NOT_JUDGED, why=why, remedy=remedy)


class Case:
    """One log before the judge: a method per property."""

    def __init__(
        self,
        log: Log,
        contract: Contract,
        table_bytes: int = TABLE_BYTES,
        findings_max: int | None = FINDINGS_MAX,
        block: tuple[int, int] = (0, 1),
    ) -> None:
        self.log = log
        self.contract = contract
        self._table_bytes = table_bytes
        self._max = findings_max
        self.clocks: Clocks = read_clocks(log)
        self.sends: Sends = find_sends(log)
        self.claims: Graph = build(log, self.sends, self.clocks)
        self.times = read_times(log, self.claims, contract.max_skew_ns)
        self.graph = self.claims  # without circles: what is in one leaves the judgement
        free = np.ones(self.claims.nodes, dtype=bool)
        if self.claims.circles:
            circling = np.array(sorted(node for circle in self.claims.circles for node in circle))
            free[circling] = False
            self.graph = build(log, self.sends, read_clocks(log, every=True), circling)
        self._free_message: Array = free[self.graph.message_node]
        found = first_deliveries(log)
        kept = free[found.event] & self._free_message[found.message]
        self._in_circles = len(kept) > 0 and not kept.any()
        kept &= found.column % block[1] == block[0]
        self.first: FirstDeliveries = found._replace(
            event=found.event[kept], message=found.message[kept], column=found.column[kept],
            start=found.start[kept], end=found.end[kept],
            first=np.searchsorted(found.message[kept], np.arange(len(log.msgs) + 1)),
        )  # fmt: skip
        self.channels: ChannelOrder = order_in_channels(log, self.sends)
        self._delivered = (log.kind == EventKind.DELIVER) & (log.msg >= 0)
        has_row = np.zeros(len(log.msgs), dtype=bool)
        has_row[log.msg[log.msg >= 0]] = True
        self._known_cause: Array = has_row[
            log.deps.values
        ]  # which of the causes named are messages of the log

    # Order

    def _no_deliveries(self) -> Judged | None:
        log = self.log
        if not self._delivered.any():
            return self._nothing_delivered()
        if self._in_circles:
            return _not_judged("every delivery is in a circle of causes", "repair what `cycle` shows")
        in_scope = self._delivered & (log.scope >= 0)
        if in_scope.any() and not np.any(in_scope & ((log.pos >= 0) | (log.t0 != NO_TIME))):
            return _not_judged("deliveries have no place and no time", "map `order` or `time`")
        if not len(self.first.event):
            lacking = " or ".join(log.lacking) or "`session`"
            return _not_judged(
                "deliveries have no scope in which they may be compared", f"log {lacking}, or give --scope"
            )
        return None

    def _nothing_delivered(self) -> Judged:
        log = self.log
        if np.any(log.kind == EventKind.DELIVER):
            return _not_judged(
                "deliveries have no message ids", "map `message`, or add patterns with (?P<msg>...)"
            )
        if np.any((log.kind == EventKind.RECEIVE) & (log.msg >= 0)):
            return _not_judged(
                "messages arrive in the log, and none is said to be handed over",
                "if that is the same, map `kind` with those words as `deliver`",
            )
        return _not_judged(
            "no event is known to be a delivery of a message",
            "map `kind` and `message`, or add [[lines]] patterns with (?P<msg>...)",
        )

    def causal(self) -> Judged:
        """Deliveries after one that depends on them."""
        if (nothing := self._no_deliveries()) is not None:
            return nothing
        first, sends = self.first, self.sends
        evidence = (sends.event >= 0) | ((sends.rank != NO_RANK) & (sends.channel >= 0))
        owner = self.log.deps.owners()[self._known_cause]
        evidence[self.log.deps.values[self._known_cause]] = True
        evidence[self.log.msg[owner][self.log.msg[owner] >= 0]] = True
        judged = evidence[first.message]
        if not judged.any() and not self._known_cause.all():
            return _not_judged(
                "no cause that a message names is a message of the log",
                "map `message` and `depends_on` to the same names",
            )
        if not judged.any():
            return _not_judged(
                "nothing says what precedes what: no sends, no dependencies, no ranks of what is delivered",
                "log the sends, or map `depends_on` or `send_order`",
            )
        late = late_causally(self.graph, first, self._table_bytes)
        return self._judged(int(judged.sum()), np.flatnonzero(late), self._causal_finding)

    def fifo(self) -> Judged:
        """Deliveries after a later one of their channel."""
        if (nothing := self._no_deliveries()) is not None:
            return nothing
        late, judged = late_in_channel(self.first, self.channels, self._free_message)
        if not judged.any():
            return _not_judged(
                "no channel has two sends in a known order",
                "log the sends, or map `channel` and `send_order`",
            )
        return self._judged(int(judged.sum()), np.flatnonzero(late), self._fifo_finding)

    def _judged(
        self, judged: int, found: Sequence[int] | Array, tell: Callable[[int], AuditFinding]
    ) -> Judged:
        told = [tell(int(each)) for each in found[: self._max]]
        return Judged(status=OK, count=len(found), judged=judged, findings=told)

    def _causal_finding(self, row: int) -> AuditFinding:
        first, graph = self.first, self.graph
        before = np.flatnonzero((first.column == first.column[row]) & (first.end < first.start[row]))
        goals = {int(graph.message_node[first.message[each]]): int(each) for each in before}
        start = int(graph.message_node[first.message[row]])
        goal, steps = _nearest(graph, start, goals)
        return self._overtaken(row, goals[goal], [(-1, start), *steps])

    def _fifo_finding(self, row: int) -> AuditFinding:
        first, order = self.first, self.channels
        key = order.key[first.message]
        later = (key == key[row]) & (first.column == first.column[row]) & (first.end < first.start[row])
        later &= order.sent[first.message] > order.sent_end[first.message[row]]
        other = int(np.flatnonzero(later)[np.argmin(first.end[later])])
        nodes = [int(self.graph.message_node[first.message[each]]) for each in (row, other)]
        sent = int(self.sends.event[first.message[row]])
        ranked = (
            self.sends.channel[first.message[row]] >= 0 and self.sends.rank[first.message[row]] != NO_RANK
        )
        by = "rank" if ranked else "order" if self.log.pos[sent] >= 0 else "interval"
        return self._overtaken(row, other, [(-1, nodes[0]), (-2, nodes[1])], by)

    def _overtaken(self, row: int, other: int, steps: list[tuple[int, int]], by: str = "") -> AuditFinding:
        log, first = self.log, self.first
        late, early = int(first.event[row]), int(first.event[other])
        return AuditFinding(
            text=f"{log.name(early)}, and only then {log.name(late)}; yet",
            message=log.msgs[first.message[row]], other=log.msgs[first.message[other]],
            scope=log.scopes[log.scope[late]], line=int(log.line[late]),
            events=[early, late, *(node for _, node in steps if node < len(log))],
            chain=[
                AuditStep(self._node_name(node), {-1: "", -2: by}.get(source, SOURCES[source]))
                for source, node in steps if node < len(log) + len(log.msgs)
            ],
        )  # fmt: skip

    def _node_name(self, node: int) -> str:
        if node < len(self.log):
            return self.log.name(node)
        return f"{self.log.msgs[node - len(self.log)]} is sent (not in the log)"

    # Deliveries

    def duplicate(self) -> Judged:
        """Second deliveries in a group."""
        log = self.log
        at = np.flatnonzero(self._delivered & (log.group >= 0))
        if not len(at):
            return _not_judged("no delivery has a message id and a group", "map `message` and `group`")
        at = at[np.lexsort((at, log.pos[at], log.msg[at], log.group[at]))]
        again = (np.diff(log.group[at]) == 0) & (np.diff(log.msg[at]) == 0)
        found = at[1:][again]

        def tell(event: int) -> AuditFinding:
            text = f"{log.name(event)} again, in {log.groups[log.group[event]]}"
            return self._about(event, text)

        return self._judged(len(at), np.sort(found), tell)

    def created(self) -> Judged:
        """Deliveries of what no one sent."""
        log = self.log
        if "sends" not in self.contract.complete:
            return _not_judged("the log may lack sends", 'state `complete = ["sends"]` if it has them all')
        if not self._delivered.any():
            return _not_judged("no delivery has a message id", "map `message`")
        sent = np.zeros(len(log.msgs), dtype=bool)
        sent[log.msg[(log.kind == EventKind.SEND) & (log.msg >= 0)]] = True
        at = np.flatnonzero(self._delivered)
        where = np.where(log.group[at] >= 0, log.group[at], -2 - log.proc[at])
        at = at[np.unique(np.stack([where, log.msg[at]]), axis=1, return_index=True)[1]]
        found = np.sort(at[~sent[log.msg[at]]])
        return self._judged(
            len(at), found, lambda event: self._about(event, f"{log.name(event)}, which no one sent")
        )

    def _about(self, event: int, text: str) -> AuditFinding:
        log = self.log
        message = log.msgs[log.msg[event]] if log.msg[event] >= 0 else None
        return AuditFinding(text=text, message=message, line=int(log.line[event]), events=[event])

    def lost(self) -> Judged:
        """Messages that a member did not deliver."""
        log, complete = self.log, self.contract.complete
        if "deliveries" not in complete or not {"sends", "ranks"} & set(complete):
            return _not_judged(
                "the log may lack sends or deliveries",
                'state `complete = ["sends", "deliveries"]` if it has all',
            )
        if not self.contract.members and not len(log.to.values):
            return _not_judged("nothing says whom a message is for", "state `members`, or map `to`")
        if not np.any((log.kind == EventKind.SEND) & (log.msg >= 0)) and "ranks" not in complete:
            return _not_judged("no send has a message id", "log the sends, or map `message`")
        pairs = self._expected()
        got = self._delivered_by()
        found = [(message, member) for message, member in pairs if (message, member) not in got]
        told = [
            AuditFinding(text=f"{member} never delivers {message}", message=message)
            for message, member in found[: self._max]
        ]
        by_rank = "ranks" in complete and bool(self.contract.members)
        if by_rank and log.rank_base is None:
            return _not_judged(
                "ranks have parts or decimals, so that nothing says which are missing", "map whole numbers"
            )
        gaps, ranked, missing = self._gaps() if by_rank else ([], 0, 0)
        told += [AuditFinding(text=text) for text in gaps]
        return Judged(status=OK, count=len(found) + missing, judged=len(pairs) + ranked, findings=told)

    def _expected(self) -> list[tuple[str, str]]:
        """Messages, and who must deliver each. A sender need not, unless it delivers some of its own."""
        log = self.log
        at = np.flatnonzero((log.kind == EventKind.SEND) & (log.msg >= 0))
        senders: dict[int, set[int]] = {}
        to: dict[int, set[str]] = {}
        for event in at.tolist():
            message = int(log.msg[event])
            senders.setdefault(message, set()).add(int(log.proc[event]))
            to.setdefault(message, set()).update(log.procs[each] for each in log.to.of(event))
        own = {
            int(log.proc[event])
            for event in np.flatnonzero(self._delivered).tolist()
            if int(log.proc[event]) in senders.get(int(log.msg[event]), ())
        }
        gone = self._gone()
        pairs = []
        for message, sent_by in senders.items():
            silent = {log.procs[each] for each in sent_by - own}
            members = to[message] or set(self.contract.members) - silent
            pairs += [(log.msgs[message], each) for each in sorted(members - gone)]
        return pairs

    def _delivered_by(self) -> set[tuple[str, str]]:
        log = self.log
        got: set[tuple[str, str]] = set()
        for event in np.flatnonzero(self._delivered).tolist():
            message = log.msgs[log.msg[event]]
            got.add((message, log.procs[log.proc[event]]))
            if log.group[event] >= 0:
                got.add((message, log.groups[log.group[event]]))
        return got

    def _gaps(self) -> tuple[list[str], int, int]:
        """Ranks that a member lacks between a channel's first and last: some, all looked at, all missing."""
        log, gone = self.log, self._gone()
        ranked = (log.rank != NO_RANK) & (log.channel >= 0)
        told: list[str] = []
        looked = missing = 0
        for channel in np.unique(log.channel[ranked]):
            here = ranked & (log.channel == channel)
            low, high = int(log.rank[here].min()), int(log.rank[here].max())
            for member in sorted(set(self.contract.members) - gone):
                mine = here & self._delivered & self._is_of(member)
                has = np.unique(log.rank[mine]).tolist()
                looked += high - low + 1
                missing += high - low + 1 - len(has)
                holes = pairwise([low - 1, *has, high + 1])
                lacks = (rank for before, after in holes for rank in range(before + 1, after))
                told += [
                    f"{member} never delivers {log.channels[channel]} @ {rank + (log.rank_base or 0)}"
                    for rank in islice(lacks, self._max)
                ]
        return told[: self._max], looked, missing

    def _is_of(self, member: str) -> Array:
        log = self.log
        of_proc = np.array([name == member for name in log.procs], dtype=bool)
        of_group = np.array([*(name == member for name in log.groups), False], dtype=bool)
        either: Array = of_proc[log.proc] | of_group[log.group]
        return either

    def _gone(self) -> set[str]:
        """Processes with a crash after which they did nothing: by places in its context, else by lines."""
        log = self.log
        last = np.full(len(log.ctxs), -1, dtype=np.int64)
        np.maximum.at(last, log.ctx, log.pos)
        gone = set()
        for crash in np.flatnonzero((log.kind == EventKind.CRASH) & (log.pos == last[log.ctx])).tolist():
            elsewhere = (log.proc == log.proc[crash]) & (log.ctx != log.ctx[crash])
            if not np.any(log.line[elsewhere] > log.line[crash]):
                gone.add(log.procs[log.proc[crash]])
        return gone

    def stuck(self) -> Judged:
        """What was received and never delivered."""
        log = self.log
        received = np.flatnonzero((log.kind == EventKind.RECEIVE) & (log.msg >= 0))
        if not len(received):
            return _not_judged("the log has no arrivals with ids", "map `kind` with `receive`")
        if "deliveries" not in self.contract.complete:
            return _not_judged(
                "the log may lack deliveries", 'state `complete = ["deliveries"]` if it has all'
            )
        got = set(zip(log.proc[self._delivered].tolist(), log.msg[self._delivered].tolist(), strict=True))
        gone = self._gone()
        waits: dict[tuple[int, int], int] = {}
        for event in received.tolist():
            key = (int(log.proc[event]), int(log.msg[event]))
            if key not in got and log.procs[key[0]] not in gone:
                waits.setdefault(key, event)

        def tell(event: int) -> AuditFinding:
            missing = [
                log.msgs[dep] for dep in self._deps_of(int(log.msg[event]))
                if (int(log.proc[event]), dep) not in got
            ]  # fmt: skip
            tail = f"; it misses {', '.join(missing)}" if missing else ""
            return self._about(event, f"{log.name(event)} and never delivers it{tail}")

        return self._judged(len(received), sorted(waits.values()), tell)

    def _deps_of(self, message: int) -> list[int]:
        log = self.log
        rows = np.flatnonzero(log.msg == message).tolist()
        return sorted({int(dep) for row in rows for dep in log.deps.of(row)})

    # Clocks, circles, times, registers

    def clock(self) -> Judged:
        """Vector clocks that cannot be true."""
        if not self.clocks.events:
            return _not_judged("no event has a vector clock", "map `clock`")
        why = {fault.event: fault.why for fault in self.clocks.faults}
        return self._judged(
            self.clocks.events,
            sorted(why),
            lambda event: self._about(event, f"{self.log.name(event)}: {why[event]}"),
        )

    def cycle(self) -> Judged:
        """Circles of causes."""
        edges = len(self.claims.to)
        if not edges:
            return _not_judged("nothing is the cause of anything", "map `context`, `message` or `depends_on`")
        return self._judged(edges, range(len(self.claims.circles)), self._circle_finding)

    def _circle_finding(self, which: int) -> AuditFinding:
        graph, inside = self.claims, set(self.claims.circles[which])
        starts = sorted(inside)[:1000]  # the shortest of the circles through these
        paths = ((start, graph.path(start, start, inside)) for start in starts)
        start, steps = min(paths, key=lambda found: (len(found[1]), found[0]))
        nodes = [(-1, start), *steps]
        return AuditFinding(
            text=f"{len(steps)} events are causes of each other",
            events=[node for _, node in nodes if node < len(self.log)],
            chain=[
                AuditStep(self._node_name(node), SOURCES[source] if source >= 0 else "")
                for source, node in nodes if node < len(self.log) + len(self.log.msgs)
            ],
        )  # fmt: skip

    def time(self) -> Judged:
        """Effects stamped before their causes by one clock; clocks farther apart than allowed."""
        log, times = self.log, self.times
        if not times.pairs:
            return _not_judged(
                "no cause and effect both have a time", "map `time`, and log both ends of messages"
            )
        told = [
            AuditFinding(
                text=f"{log.name(effect)} is stamped before its cause, {log.name(cause)}",
                events=[cause, effect], line=int(log.line[effect]),
            )
            for cause, effect in times.backwards[: self._max]
        ] + [
            AuditFinding(text=f"{second} is {found.low} to {found.high} ns ahead of {first}")
            for first, second, found in times.apart[: self._max]
        ]  # fmt: skip
        return Judged(
            status=OK, count=len(times.backwards) + len(times.apart), judged=times.pairs, findings=told
        )

    def reads(self) -> Judged:
        """Reads that no causal store returns."""
        history = self.log.history
        if history is None:
            return _not_judged("it is not a history of registers", 'use format = "history"')
        if len(history.writers()) < len(history.writes):
            return _not_judged("a value is written to a key more than once", "write unique values")
        if not history.reads:
            return _not_judged("it has no read of a value that was surely written", "log how writes ended")
        in_circle = {node for circle in self.claims.circles for node in circle}
        found = _bad_reads(self.log, history, self.graph, in_circle)

        def tell(at: int) -> AuditFinding:
            bad = found[at]
            text = f"{self.log.name(bad.event)}: {bad.why}"
            return AuditFinding(text=text, line=int(self.log.line[bad.event]), events=bad.shown_by)

        return self._judged(len(history.reads), range(len(found)), tell)

    # Notes

    def notes(self) -> list[Note]:
        """What breaks nothing, and should be known."""
        log = self.log
        notes = [*log.notes, *self.times.notes]

        def note(code: str, text: str, count: int) -> None:
            if count:
                notes.append(Note(code, text.format(n=count), count))

        restarts = int(np.sum(log.kind == EventKind.RESTART))
        note("restart", "{n} restarts: each begins a new scope in which order is kept anew", restarts)
        hedged = int(self.sends.ambiguous.sum())
        note(
            "ambiguous-send",
            "{n} messages are sent by several contexts: no order is taken from those sends",
            hedged,
        )
        note(
            "swapped",
            "{n} neighbouring events of a context stand in the other order in a weaker source",
            _swapped(log),
        )
        if self.first.split:
            notes.append(scope_split(self.first.split))
        unknown = int(np.sum(~self._known_cause))
        note("unknown-cause", "{n} causes that messages name are no messages of the log", unknown)
        note("clock-own", "{n} clocks have no entry of their own context", self.clocks.ownless)
        note("clock-gap", "{n} entries of clocks name events that the log does not have", self.clocks.absent)
        if self.channels.by_interval or np.any(log.pos[self.first.event] < 0):
            text = "events of one process that do not overlap are taken to be in the order of its clock"
            note("assumed", text, 1)
        return notes


def scope_split(count: int) -> Note:
    """Said where deliveries of a scope are in several contexts."""
    return Note("scope-split", f"{count} scopes go over several contexts and are compared within each", count)


def _swapped(log: Log) -> int:
    """Neighbours in a context whose order a weaker source reverses: lines below numbers, times below both."""
    at = np.flatnonzero(log.pos >= 0)
    at = at[np.lexsort((at, log.pos[at], log.ctx[at]))]
    next_ = (np.diff(log.ctx[at]) == 0) & (np.diff(log.pos[at]) > 0)
    swapped = np.zeros(len(next_), dtype=bool)
    if log.order in {"seq", "clock"}:
        swapped |= next_ & (np.diff(log.line[at]) < 0)
    timed = (log.t0[at][:-1] != NO_TIME) & (log.t0[at][1:] != NO_TIME)
    swapped |= next_ & timed & (log.t0[at][1:] < log.t0[at][:-1])
    return int(swapped.sum())


def _nearest(graph: Graph, start: int, goals: dict[int, int]) -> tuple[int, list[tuple[int, int]]]:
    """The nearest of some nodes that a node leads to, and a shortest way there."""
    seen = {start}
    reached = deque([start])
    while reached:
        node = reached.popleft()
        for other in graph.to[graph.first[node] : graph.first[node + 1]].tolist():
            if other in seen:
                continue
            if other in goals:
                return other, graph.path(start, other)
            seen.add(other)
            reached.append(other)
    raise MisuseError(f"node {start}", "nothing after it was delivered earlier", "Report this")


# First deliveries, and the order among them: causal and per channel. Order uses the first delivery of a
# message in a scope. Two deliveries of a scope are compared by their places in one context, or, where they
# are intervals, by one process's clock; so a scope that goes over several contexts is compared within each.


class FirstDeliveries(NamedTuple):
    """One row per message and scope, by message."""

    event: Array
    message: Array
    column: Array  # the scope, split by context (or process, where deliveries are intervals)
    start: Array  # earliest start ...
    end: Array  # ... and earliest end of its deliveries there
    columns: int
    split: int  # scopes that go over several contexts
    first: Array  # message m has the rows first[m] : first[m + 1]


def first_deliveries(log: Log) -> FirstDeliveries:
    """The deliveries that order is judged on."""
    comparable = (log.pos >= 0) | ((log.t0 != NO_TIME) & log.clocked[log.proc])
    event = np.flatnonzero((log.kind == EventKind.DELIVER) & (log.msg >= 0) & (log.scope >= 0) & comparable)
    placed = log.pos[event] >= 0
    owner = np.where(placed, log.ctx[event], -1 - log.proc[event])
    parts, column = np.unique(np.stack([log.scope[event], owner]), axis=1, return_inverse=True)
    t0, t1 = intervals(log, event)
    start, end = np.where(placed, log.pos[event], t0), np.where(placed, log.pos[event], t1)
    by_message = np.lexsort((event, start, column, log.msg[event]))
    event, column, start, end = event[by_message], column[by_message], start[by_message], end[by_message]
    message = log.msg[event]
    if len(event):
        firsts = np.flatnonzero(np.append(True, (np.diff(message) != 0) | (np.diff(column) != 0)))
        end = np.minimum.reduceat(end, firsts)
        event, message, column, start = event[firsts], message[firsts], column[firsts], start[firsts]
    split = len(parts[0]) - len(np.unique(parts[0])) if len(event) else 0
    first = np.searchsorted(message, np.arange(len(log.msgs) + 1))
    return FirstDeliveries(
        event, message.astype(np.int64), column.astype(np.int64), start, end, parts.shape[1], split, first
    )


def intervals(log: Log, event: Array) -> tuple[Array, Array]:
    """When events began and ended, by the clocks of their processes.

    One that has no end in a log of intervals was not seen to end: nothing is known to come after it. One that
    ends before it begins had its clock set back: it covers all that lies between.
    """
    t0, t1 = log.t0[event], log.t1[event]
    ends = np.where(t1 == NO_TIME, INT64_MAX if log.order == "interval" else t0, t1)
    return np.minimum(t0, ends), np.maximum(t0, ends)


def late_causally(graph: Graph, found: FirstDeliveries, table_bytes: int = TABLE_BYTES) -> Array:
    """Which first deliveries come after one that depends on them ended in the scope."""
    late = np.zeros(len(found.event), dtype=bool)
    if not len(found.event):
        return late
    kernels = choose_kernels(graph.nodes)
    message = np.full(graph.nodes, -1, dtype=np.int64)
    message[graph.message_node] = np.arange(len(graph.message_node))
    width = max(1, min(found.columns, table_bytes // (8 * graph.nodes)))
    table = np.empty((graph.nodes, width), dtype=np.int64)
    for low in range(0, found.columns, width):
        kernels.find_late(
            graph.order, graph.first, graph.to, message, found.first, found.column, found.start, found.end,
            low, table, late,
        )  # fmt: skip
    return late


class ChannelOrder(NamedTuple):
    """Per message, where it stands among the sends of its channel."""

    key: Array  # the channel, split so that all sends of one key can be compared; -1: none
    sent: Array  # place, rank or start of the send ...
    sent_end: Array  # ... and its end
    by_interval: bool
    ordered: Array  # keys with two sends that are ordered


def order_in_channels(log: Log, sends: Sends) -> ChannelOrder:
    """The order of sends: ranks, else places in one context, else intervals of one process."""
    total = len(log.msgs)
    known = sends.event >= 0
    event = np.where(known, sends.event, 0)
    has = len(log) > 0
    pos = log.pos[event] if has else np.zeros(total, np.int64)
    t0, t1 = intervals(log, event) if has else (pos, pos)
    ctx, proc = (log.ctx[event], log.proc[event]) if has else (pos, pos)
    ranked = (sends.rank != NO_RANK) & (sends.channel >= 0)
    placed = known & ~ranked & (pos >= 0)
    timed = known & ~ranked & (pos < 0) & (t0 != NO_TIME)
    if has:
        timed &= log.clocked[proc]
    sort = np.select([ranked, placed, timed], [0, 1, 2], -1)
    owner = np.select([ranked, placed, timed], [np.zeros(total, np.int64), ctx, proc], 0)
    _, key = np.unique(np.stack([sort, sends.channel, owner]), axis=1, return_inverse=True)
    key = np.where(sort >= 0, key, -1)
    sent = np.select([ranked, placed, timed], [sends.rank, pos, t0], 0)
    sent_end = np.select([ranked, placed, timed], [sends.rank, pos, t1], 0)
    keys = int(key.max(initial=-1)) + 1
    earliest, latest = np.full(keys, (1 << 63) - 1), np.full(keys, -(1 << 63))
    np.minimum.at(earliest, key[key >= 0], sent_end[key >= 0])
    np.maximum.at(latest, key[key >= 0], sent[key >= 0])
    return ChannelOrder(key, sent, sent_end, bool(timed.any()), earliest < latest)


def late_in_channel(found: FirstDeliveries, order: ChannelOrder, free: Array) -> tuple[Array, Array]:
    """Which first deliveries come after a later send of their channel, and which could be judged.

    `free[m]`: message m is in no circle.
    """
    key = order.key[found.message]
    judged = (key >= 0) & free[found.message]
    judged[judged] = order.ordered[key[judged]]
    late = np.zeros(len(found.event), dtype=bool)
    at = np.flatnonzero(judged)
    if not len(at):
        return late, judged
    sent = order.sent[found.message]
    at = at[np.lexsort((sent[at], key[at], found.column[at]))]
    new = np.append(True, (np.diff(key[at]) != 0) | (np.diff(found.column[at]) != 0))
    groups = np.append(np.flatnonzero(new), len(at))
    flags = np.zeros(len(at), dtype=bool)
    choose_kernels(len(at)).find_overtaken(
        groups, sent[at], order.sent_end[found.message][at], found.start[at], found.end[at],
        np.zeros(len(at), dtype=np.int64), flags,
    )  # fmt: skip
    late[at] = flags
    return late, judged


# Histories of registers


class BadRead(NamedTuple):
    """A read that is wrong, and the events that show it: the reader last."""

    event: int
    key: str
    why: str
    shown_by: list[int]


def _bad_reads(log: Log, history: History, graph: Graph, in_circle: set[int]) -> list[BadRead]:
    """Every read of an event in no circle that no causally consistent store can return.

    The bad patterns of Bouajjani, Enea, Guerraoui and Hamza (2017), exact where values are unique per key: a
    value that no one wrote; the initial value although a write is in the reader's past; a value although the
    reader's past holds a write to the key that came after it. (The fourth, a circle, is found with all
    others; `graph` has none.)
    """
    writers = history.writers()
    past = _pasts(log, graph, in_circle)
    own = {(event, key, value) for event, key, value in history.writes}
    writes: dict[str, dict[int, list[tuple[int, int]]]] = {}  # key -> context -> (place, event), in order
    for event, key, _ in history.writes:
        if event in past:
            writes.setdefault(key, {}).setdefault(int(log.ctx[event]), []).append(
                (int(log.pos[event]), event)
            )
    for of_key in writes.values():
        for of_ctx in of_key.values():
            of_ctx.sort()
    found = []
    for event, key, value in history.reads:
        if event not in past or (value is not None and (event, key, value) in own):
            continue
        newest = _newest(past[event], writes.get(key, {}), event)
        if value is None:
            if newest:
                why = f"it reads the initial value of {key}, yet {log.name(newest[0])} is in its past"
                found.append(BadRead(event, key, why, [newest[0], event]))
            continue
        writer = writers.get((key, value))
        if writer is None:
            found.append(BadRead(event, key, f"it reads {value} of {key}, which no one wrote", [event]))
            continue
        for newer in newest:
            if writer in past and newer != writer and _precedes(log, past, writer, newer):
                why = f"it reads {value} of {key}, yet {log.name(newer)} came after that and is in its past"
                found.append(BadRead(event, key, why, [writer, newer, event]))
                break
    return found


Past = dict[int, int]  # context -> the place of its last event in the past


def _pasts(log: Log, graph: Graph, in_circle: set[int]) -> dict[int, Past]:
    past: dict[int, Past] = {node: {} for node in graph.order.tolist() if node not in in_circle}
    for node, known in past.items():
        mine = known
        if node < len(log):
            ctx = int(log.ctx[node])
            mine = {**known, ctx: max(known.get(ctx, -1), int(log.pos[node]))}
        for other in graph.to[graph.first[node] : graph.first[node + 1]].tolist():
            theirs = past[other]
            for ctx, place in mine.items():
                if theirs.get(ctx, -1) < place:
                    theirs[ctx] = place
    return past


def _newest(past: Past, writes: dict[int, list[tuple[int, int]]], reader: int) -> list[int]:
    """The last write of each context that is in a past; earlier ones precede it."""
    newest = []
    for ctx, of_ctx in writes.items():
        at = bisect_right(of_ctx, (past.get(ctx, -1), np.iinfo(np.int64).max)) - 1
        if at >= 0 and of_ctx[at][1] != reader:
            newest.append(of_ctx[at][1])
    return newest


def _precedes(log: Log, past: dict[int, Past], first: int, second: int) -> bool:
    return past[second].get(int(log.ctx[first]), -1) >= int(log.pos[first])
