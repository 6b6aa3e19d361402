"""Traces of point-to-point messages: random runs with planted faults, and the brute-force oracle for them.

A run is as in `support.traces`; beside it, `to` says which messages are for one node only.
"""

from __future__ import annotations

import random

from support.traces import FAULTS, Id, Oracle, Run, _renumber
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, PromisesMade
from whence.verify.report import RunReport
from whence.verify.run import verify_table

To = dict[Id, str]
NOTHING = (Kind.SEND, None, 0)


def record(run: Run, to: To) -> MemoryTrace:
    memory = MemoryTrace()
    for node, rows in run.items():
        for seq, (kind, origin, number) in enumerate(rows):
            peer = to.get((origin, number)) if kind is Kind.BROADCAST else None
            memory.event(node, seq, kind, origin, number, peer)
    return memory


def verify(run: Run, to: To, members: list[str] | None = None, segment_events: int = 4096) -> RunReport:
    table = record(run, to).table("r", segment_events)
    return verify_table(table, PromisesMade(complete=True), members or list(run), None, run="r")


class UnicastOracle(Oracle):
    """A message with a destination ends there alone: elsewhere it is malformed and counts for nothing."""

    def __init__(self, run: Run, members: list[str], to: To) -> None:
        begun = {
            (origin, number): (node, seq)
            for node, rows in run.items()
            for seq, (kind, origin, number) in reversed(list(enumerate(rows)))
            if kind is Kind.BROADCAST and origin == node
        }
        self.to = {which: there for which, there in to.items() if which in begun}
        wrong, cleaned = [], {}
        for node, rows in run.items():
            cleaned[node] = list(rows)
            for seq, (kind, *which) in enumerate(rows):
                if kind in (Kind.DELIVER, Kind.EXPIRE) and self.to.get(tuple(which), node) != node:
                    wrong.append((node, tuple(which), seq))
                    cleaned[node][seq] = NOTHING
        super().__init__(cleaned, members)
        there = set(self.members)
        strange = [(begun[m][0], m, begun[m][1]) for m, name in self.to.items() if name not in there]
        self.malformed += wrong + strange
        self.missing = [(node, m) for node, m in self.missing if self.to.get(m, node) == node]


def random_unicast_run(rng: random.Random) -> tuple[Run, list[str], To]:
    """Deliveries at each destination in causal, FIFO or any order, then damaged in 0 to 3 ways."""
    nodes = [chr(ord("a") + i) for i in range(rng.randint(2, 5))]
    members = [*nodes, "z"] if rng.random() < 0.05 else list(nodes)
    run: Run = {node: [] for node in nodes}
    to: To = {}
    waiting: dict[str, list[Id]] = {node: [] for node in nodes}
    patience = rng.choice([0.0, 0.3, 1.0])  # how often a node takes the oldest message first
    mixed = rng.random() < 0.3  # some messages for everybody among them
    sent = 0
    for _ in range(rng.randint(0, 45)):
        node = rng.choice(nodes)
        if rng.random() < 0.45 and sent < 14:
            number = 1 + sum(kind is Kind.BROADCAST for kind, _, _ in run[node])
            run[node].append((Kind.BROADCAST, node, number))
            sent += 1
            receivers = list(nodes)
            if not (mixed and rng.random() < 0.4):
                to[node, number] = rng.choice(nodes) if rng.random() < 0.97 else "w"
                receivers = [to[node, number]] if to[node, number] != "w" else []
            for other in receivers:
                waiting[other].append((node, number))
        elif waiting[node]:
            take = 0 if rng.random() < patience else rng.randrange(len(waiting[node]))
            run[node].append((Kind.DELIVER, *waiting[node].pop(take)))
    if rng.random() < 0.7:
        for node in nodes:
            run[node] += [(Kind.DELIVER, *which) for which in waiting[node]]
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        rng.choice([*(fault for fault in FAULTS if fault is not _renumber), _misplace])(run, rng)
    return run, members, to


def _misplace(run: Run, rng: random.Random) -> None:
    """A delivery happens at another node, too."""
    rows = run[rng.choice(sorted(run))]
    ends = [row for row in rows if row[0] is Kind.DELIVER]
    if ends:
        other = run[rng.choice(sorted(run))]
        other.insert(rng.randint(0, len(other)), rng.choice(ends))
