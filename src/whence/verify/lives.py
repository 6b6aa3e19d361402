"""Runs in which every opening of a node is a life of its own: no silent loss, and what is stable.

An origin is then a stream, `name/life`. For the order of messages the lives of a node are put end to end
(`fold`): they follow each other at one node. What is judged besides, row by row and independently of any
protocol:

- *numbers*: a node delivers of each stream 1, 2, 3 ...; where some are left out, a MISSED row says so before.
- *prefix*: what happened before a delivered message was delivered there before, or is in a MISSED row, or had
  a lifetime that was over.
- *stable*: what is delivered after a STABLE row, and not flagged as late, follows all that the row calls so.

A message's past is a number for each stream. Nodes are gone through as far as their deliveries' broadcasts
are known, so no clock is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from whence.trace.reader import Event
from whence.trace.schema import Kind
from whence.verify.kernels import Array
from whence.verify.report import Finding

LATE = "late"  # the detail of a delivery that is flagged
_STREAM = re.compile(r"(.+)/[0-9a-f]{16}", re.DOTALL)


def node_of_stream(name: str, nodes: frozenset[str]) -> str | None:
    """The node of a stream; None if the name is that of no node's life."""
    found = _STREAM.fullmatch(name)
    return found[1] if found is not None and found[1] in nodes and name not in nodes else None


def fold(
    names: Sequence[str], is_node: Array, kind: Array, origin: Array, number: Array
) -> tuple[Array, Array, Array]:
    """Kinds, origins and numbers with each node's lives put end to end; the same where there are none."""
    nodes = frozenset(name for name, member in zip(names, is_node.tolist(), strict=True) if member)
    owners = [node_of_stream(name, nodes) for name in names]
    if not any(owner is not None for owner in owners):
        return kind, origin, number
    kind = np.where(kind == Kind.SPEAK, np.int64(Kind.BROADCAST), kind).astype(kind.dtype)
    offset = np.zeros(len(names) + 1, dtype=np.int64)
    spoken: dict[str, int] = {}
    for at in np.flatnonzero(kind == Kind.BROADCAST):  # by node, in the node's own order
        stream = int(origin[at])
        owner = owners[stream] if stream >= 0 else None
        if owner is not None:
            if number[at] == 1:
                offset[stream] = spoken.get(owner, 0)
            spoken[owner] = spoken.get(owner, 0) + 1
    place = {name: at for at, name in enumerate(names)}
    node = np.array([at if owner is None else place[owner] for at, owner in enumerate(owners)] + [-1])
    return kind, node[origin].astype(origin.dtype), number + offset[origin]


def judge_lives(events: Iterable[Event], slack_us: int = 0) -> list[Finding]:
    """What is wrong with numbers, prefixes and stable cuts; nothing where origins are no streams.

    Events come in any order, and findings by node and `seq`.
    """
    return sorted(_Judge(events, slack_us).run(), key=lambda finding: (finding.node, finding.seq))


class _Mind:
    """One node, as far as its rows were gone through."""

    def __init__(self) -> None:
        self.rows: list[Event] = []
        self.at = 0
        self.have: dict[str, int] = {}  # of each stream, the newest number accounted for
        self.before: dict[str, int] = {}  # what happened before its next broadcast
        self.stable: dict[str, int] = {}


class _Judge:
    def __init__(self, events: Iterable[Event], slack_us: int) -> None:
        self.slack_us = slack_us
        self.minds: dict[str, _Mind] = {}
        self.findings: list[Finding] = []
        self.pasts: dict[tuple[str, int], dict[str, int]] = {}
        self.dies_us: dict[tuple[str, int], int] = {}
        wanted = (Kind.BROADCAST, Kind.SPEAK, Kind.DELIVER, Kind.EXPIRE, Kind.MISSED, Kind.STABLE)
        for event in events:
            mind = self.minds.setdefault(event.node, _Mind())
            if event.kind in wanted and event.origin is not None:
                mind.rows.append(event)
        for mind in self.minds.values():
            mind.rows.sort(key=lambda event: event.seq)
        self.nodes = frozenset(self.minds)

    def run(self) -> list[Finding]:
        going = True
        while going:
            going = False
            for mind in self.minds.values():
                going |= self._go_on(mind)
        return self.findings

    def _go_on(self, mind: _Mind) -> bool:
        """As far as possible; returns whether there was anything."""
        start = mind.at
        while mind.at < len(mind.rows):
            row = mind.rows[mind.at]
            if row.kind == Kind.DELIVER and (row.origin, row.number) not in self.pasts:
                break  # its broadcast is still to come, or never was: then the order's judge says so
            mind.at += 1
            if node_of_stream(row.origin or "", self.nodes) is not None:
                self._take(mind, row)
        return mind.at > start

    def _take(self, mind: _Mind, row: Event) -> None:
        stream, number = row.origin or "", row.number
        if row.kind in (Kind.BROADCAST, Kind.SPEAK):
            self.pasts[stream, number] = {**mind.before, stream: number}
            if row.kind == Kind.BROADCAST and row.detail is not None and row.detail.isdigit():
                self.dies_us[stream, number] = row.time_us + int(row.detail)
        elif row.kind == Kind.MISSED:
            first = (row.detail or "").partition(" ")[0]
            unread = (row.detail or "").endswith("unread")
            if not unread:
                if not first.isdigit() or int(first) != mind.have.get(stream, 0) + 1 or number < int(first):
                    self._note("malformed", row, f"it should miss from {mind.have.get(stream, 0) + 1} on")
                mind.have[stream] = max(number, mind.have.get(stream, 0))
        elif row.kind == Kind.STABLE:
            mind.stable[stream] = max(number, mind.stable.get(stream, 0))
        elif row.kind == Kind.DELIVER:
            self._deliver(mind, row)

    def _deliver(self, mind: _Mind, row: Event) -> None:
        stream, number = row.origin or "", row.number
        past = self.pasts[stream, number]
        newest = mind.have.get(stream, 0)
        if number > newest + 1:
            self._note("malformed", row, f"it follows {newest}, and nothing says why the rest is missed")
        for source, count in past.items():
            first = mind.have.get(source, 0) + 1
            if source != stream and any(
                not self._is_dead(source, each, row) for each in range(first, count + 1)
            ):
                why = "neither it nor a MISSED row came before what follows it"
                self._note("causal", row, why, other=f"{source}:{count}")
                break
        if row.detail != LATE:
            for source, count in mind.stable.items():
                if past.get(source, 0) < count:
                    why = "it is concurrent with what is stable here, and not flagged"
                    self._note("causal", row, why, other=f"{source}:{count}")
                    break
        mind.have[stream] = max(newest, number)
        for source, count in past.items():
            if count > mind.before.get(source, 0):
                mind.before[source] = count

    def _is_dead(self, stream: str, number: int, row: Event) -> bool:
        dies_us = self.dies_us.get((stream, number))
        return dies_us is not None and dies_us - self.slack_us < row.time_us

    def _note(self, kind: str, row: Event, why: str, **more: Any) -> None:
        self.findings.append(
            Finding(
                kind=kind,
                node=row.node,
                message=f"{row.origin}:{row.number}",
                seq=row.seq,
                detail=why,
                **more,
            )
        )
