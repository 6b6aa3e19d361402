"""What a log claims about cause and effect, as a graph; every edge knows its source.

Nodes are the events, then one for each message without a usable send, then junctions between events that the
log does not order among themselves. Claimed are: the order in a context; first send -> delivery; the causes
that a message names; parents and links of spans; the order of ranks in a channel; entries of vector clocks;
and, in histories, write -> read. Everything else follows from these. Time is never a source.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from whence.foreign.clocks import Clocks
from whence.foreign.kernels import choose_kernels
from whence.foreign.model import NO_RANK, Array, EventKind, Log

# Where an edge comes from; the index is the code.
SOURCES = ("order", "message", "dependency", "link", "rank", "clock", "read")
ORDER, MESSAGE, DEPENDENCY, LINK, RANK, CLOCK, READ = range(len(SOURCES))


class Sends(NamedTuple):
    """Per message, where it began."""

    event: Array  # its first send, -1 where none was logged or several contexts sent it
    ambiguous: Array  # several contexts sent it
    channel: Array  # explicit channel, -1
    rank: Array  # NO_RANK


def find_sends(log: Log) -> Sends:
    """The first send of each message, and the channel and rank that any of its rows names."""
    total = len(log.msgs)
    event = np.full(total, -1, dtype=np.int64)
    ambiguous = np.zeros(total, dtype=bool)
    sends = np.flatnonzero((log.kind == EventKind.SEND) & (log.msg >= 0))
    # A context's own order decides; spans are contexts of their own, so the process and its clock do.
    where = np.where(log.pos[sends] >= 0, log.ctx[sends], -1 - log.proc[sends])
    when = np.where(log.pos[sends] >= 0, log.pos[sends], log.t0[sends])
    by_message = np.lexsort((sends, when, log.msg[sends]))
    sends, where = sends[by_message], where[by_message]
    message = log.msg[sends]
    starts = np.flatnonzero(np.append(True, np.diff(message) != 0)) if len(sends) else sends
    event[message[starts]] = sends[starts]
    first_where = np.repeat(where[starts], np.diff(np.append(starts, len(sends))))
    ambiguous[message[where != first_where]] = True
    event[ambiguous] = -1
    channel = np.full(total, -1, dtype=np.int64)
    rank = np.full(total, NO_RANK, dtype=np.int64)
    named = np.flatnonzero((log.msg >= 0) & ((log.channel >= 0) | (log.rank != NO_RANK)))[::-1]
    # Of several rows the last one written here counts: one with a rank, a send, the first in the log.
    told = named[np.lexsort((-named, log.kind[named] == EventKind.SEND, log.rank[named] != NO_RANK))]
    channel[log.msg[told]] = log.channel[told]
    rank[log.msg[told]] = log.rank[told]
    return Sends(event, ambiguous, channel, rank)


class Graph(NamedTuple):
    """Edges in compressed rows; and the order of causality, or the circles."""

    nodes: int
    first: Array
    to: Array
    source: Array
    message_node: Array  # message -> node
    order: Array  # the nodes, causes first; none if there is a circle
    circles: list[list[int]]  # the nodes of each, causes of each other

    def path(self, start: int, goal: int, inside: set[int] | None = None) -> list[tuple[int, int]]:
        """A shortest way from one node to another as (source, node) steps; to itself: around a circle."""
        came: dict[int, tuple[int, int]] = {}
        reached = deque([start])
        while reached:
            node = reached.popleft()
            for edge in range(self.first[node], self.first[node + 1]):
                other = int(self.to[edge])
                if other in came or (inside is not None and other not in inside):
                    continue
                came[other] = (node, int(self.source[edge]))
                if other == goal:
                    return _steps(came, start, goal)
                reached.append(other)
        return []


def _steps(came: dict[int, tuple[int, int]], start: int, goal: int) -> list[tuple[int, int]]:
    steps = []
    node = goal
    while True:
        before, source = came[node]
        steps.append((source, node))
        node = before
        if node == start:
            return steps[::-1]


class _Edges:
    """Collects edges in pieces."""

    def __init__(self, nodes: int, left_out: Array | None) -> None:
        self.nodes = nodes
        self._out = np.zeros(nodes, dtype=bool)
        if left_out is not None:
            self._out[left_out[left_out < nodes]] = True
        self._pieces: list[tuple[Array, Array, int]] = []

    def add(self, causes: Array, effects: Array, source: int) -> None:
        kept = (causes != effects) & ~self._out[causes] & ~self._out[effects]
        self._append(causes[kept], effects[kept], source)

    def _append(self, causes: Array, effects: Array, source: int) -> None:
        self._pieces.append((causes, effects, source))

    def chain(self, group: Array, place: Array, node: Array, source: int) -> None:
        """Edges from each place of a group to the next one; those of one place are not ordered."""
        kept = ~self._out[node]
        group, place, node = group[kept], place[kept], node[kept]
        if not len(node):
            return
        by_place = np.lexsort((node, place, group))
        group, place, node = group[by_place], place[by_place], node[by_place]
        new = np.append(True, (np.diff(group) != 0) | (np.diff(place) != 0))
        starts = np.append(np.flatnonzero(new), len(node))
        size = np.diff(starts)
        left = np.flatnonzero(group[starts[:-2]] == group[starts[1:-1]]) if len(size) > 1 else starts[:0]
        single = left[(size[left] == 1) & (size[left + 1] == 1)]
        self.add(node[starts[single]], node[starts[single + 1]], source)
        causes: list[int] = []
        effects: list[int] = []
        for at in left[(size[left] > 1) | (size[left + 1] > 1)].tolist():
            here = node[starts[at] : starts[at + 1]].tolist()
            there = node[starts[at + 1] : starts[at + 2]].tolist()
            if len(here) == 1 or len(there) == 1:
                pairs = [(cause, effect) for cause in here for effect in there]
            else:
                pairs = [(cause, self.nodes) for cause in here] + [(self.nodes, effect) for effect in there]
                self.nodes += 1
            causes += [pair[0] for pair in pairs]
            effects += [pair[1] for pair in pairs]
        self._append(np.array(causes, dtype=np.int64), np.array(effects, dtype=np.int64), source)

    def rows(self) -> tuple[Array, Array, Array, Array]:
        """Causes, effects, sources, and the first edge of each node; by cause, without repetition."""
        causes = np.concatenate([piece[0] for piece in self._pieces]).astype(np.int64)
        effects = np.concatenate([piece[1] for piece in self._pieces]).astype(np.int64)
        sources = np.concatenate([np.full(len(piece[0]), piece[2], np.int8) for piece in self._pieces])
        # Of two claims the more telling is kept: that an event is the next of its context says least.
        by_cause = np.lexsort((sources, sources == ORDER, effects, causes))
        causes, effects, sources = causes[by_cause], effects[by_cause], sources[by_cause]
        if len(causes):
            new = np.append(True, (np.diff(causes) != 0) | (np.diff(effects) != 0))
            causes, effects, sources = causes[new], effects[new], sources[new]
        first = np.searchsorted(causes, np.arange(self.nodes + 1))
        return causes, effects, sources, first


def build(log: Log, sends: Sends, clocks: Clocks, left_out: Array | None = None) -> Graph:
    """The graph of a log, without the nodes that are `left_out`."""
    message_node = np.where(sends.event >= 0, sends.event, len(log) + np.arange(len(log.msgs)))
    edges = _Edges(len(log) + len(log.msgs), left_out)
    placed = np.flatnonzero(log.pos >= 0)
    edges.chain(log.ctx[placed], log.pos[placed], placed, ORDER)
    takes = (log.kind == EventKind.DELIVER) | (log.kind == EventKind.RECEIVE)
    taken = np.flatnonzero(takes & (log.msg >= 0))
    taken = taken[~sends.ambiguous[log.msg[taken]]]
    edges.add(message_node[log.msg[taken]], taken, MESSAGE)
    owner = log.deps.owners()
    mine = np.where(log.msg[owner] >= 0, message_node[log.msg[owner]], owner)
    edges.add(message_node[log.deps.values], mine, DEPENDENCY)
    _add_links(log, edges)
    ranked = np.flatnonzero((sends.channel >= 0) & (sends.rank != NO_RANK))
    edges.chain(sends.channel[ranked], sends.rank[ranked], message_node[ranked], RANK)
    edges.add(clocks.causes, clocks.effects, CLOCK)
    if log.history is not None:
        reads = log.history.reads_from()
        edges.add(reads[:, 0], reads[:, 1], READ)
    causes, effects, sources, first = edges.rows()
    order, circles = _sort(edges.nodes, causes, effects, first)
    return Graph(edges.nodes, first, effects, sources, message_node, order, circles)


def _add_links(log: Log, edges: _Edges) -> None:
    where = np.full(len(log.refs), -1, dtype=np.int64)
    named = np.flatnonzero(log.ref >= 0)[::-1]
    where[log.ref[named]] = named  # the first of each
    owner = log.links.owners()
    there = where[log.links.values] >= 0
    edges.add(where[log.links.values[there]], owner[there], LINK)


def _sort(nodes: int, causes: Array, effects: Array, first: Array) -> tuple[Array, list[list[int]]]:
    """The nodes, causes first; or, where that cannot be, the circles."""
    kernels = choose_kernels(nodes)
    order = np.zeros(nodes, dtype=np.int64)
    count = kernels.peel(first, effects, np.bincount(effects, minlength=nodes), order)
    if count == nodes:
        return order, []
    return order[:0], _circles(nodes, causes, effects, order[:count])


def _circles(nodes: int, causes: Array, effects: Array, done: Array) -> list[list[int]]:
    """The strongly connected components with more than one node (Tarjan 1972, without recursion)."""
    rest = np.ones(nodes, dtype=bool)
    rest[done] = False
    kept = rest[causes] & rest[effects]
    after: dict[int, list[int]] = {}
    for cause, effect in zip(causes[kept].tolist(), effects[kept].tolist(), strict=True):
        after.setdefault(cause, []).append(effect)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    found: list[list[int]] = []
    for root in np.flatnonzero(rest).tolist():
        if root in index:
            continue
        work = [(root, iter(after.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    work.append((other, iter(after.get(other, ()))))
                    break
                if low[other] >= 0:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = [stack.pop()]
                    while component[-1] != node:
                        component.append(stack.pop())
                    low.update(dict.fromkeys(component, -1))
                    if len(component) > 1:
                        found.append(sorted(component))
    return sorted(found)
