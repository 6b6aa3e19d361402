"""Small traces for tests: a notation, a random generator with planted faults, and a brute-force oracle.

A run is a dict: node -> list of rows, a row is (kind, origin, number). Beside it come times and lifetimes,
and which messages are for one node only (`to`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, PromisesMade
from whence.verify.report import RunReport
from whence.verify.run import verify_table

Row = tuple[Kind, str | None, int]
Run = dict[str, list[Row]]
Rows = dict[str, list[tuple[Kind, str, int]]]  # a run in which every row has an origin
Id = tuple[str | None, int]
Timing = dict[tuple[str, int], tuple[int, str | None]]  # (node, seq) -> time_us, detail
To = dict[Id, str]  # message -> the one node that it is for

_LETTERS = {"b": Kind.BROADCAST, "d": Kind.DELIVER, "x": Kind.EXPIRE, "s": Kind.SEND}
_WORDS = {"crash": Kind.CRASH, "restart": Kind.RESTART}


def parse(**nodes: str) -> Run:
    """`parse(a="b:a1 d:a1", b="d:a1 crash")`: b broadcasts, d delivers, x expires; names are letters."""
    run: Run = {}
    for node, text in nodes.items():
        run[node] = []
        for word in text.split():
            if word in _WORDS:
                run[node].append((_WORDS[word], None, 0))
            else:
                letter, _, message = word.partition(":")
                run[node].append((_LETTERS[letter], message[0], int(message[1:])))
    return run


def record(run: Run, timing: Timing | None = None, to: To | None = None) -> MemoryTrace:
    """The run as a recorder holds it; without a timing an event's time is its `seq`."""
    memory = MemoryTrace()
    for node, rows in run.items():
        for seq, (kind, origin, number) in enumerate(rows):
            time_us, detail = (timing or {}).get((node, seq), (seq, None))
            peer = (to or {}).get((origin, number)) if kind is Kind.BROADCAST else None
            memory.event(node, time_us, kind, origin, number, peer, detail=detail)
    return memory


def verify(run: Run, members: list[str] | None = None, **options: Any) -> RunReport:
    """Verify in memory; all members are those that have rows, unless more are given."""
    promises = options.pop("promises", PromisesMade(complete=True))
    memory = record(run, options.pop("timing", None), options.pop("to", None))
    table = memory.table("r", options.pop("segment_events", 4096))
    return verify_table(table, promises, members or list(run), options.pop("witness_max", None), run="r")


# ---------------------------------------------------------------------------------------------------
# The oracle: sets and recursion, nothing shared with the verifier.
# ---------------------------------------------------------------------------------------------------


class Oracle:
    """What is wrong in a run, by brute force. Findings are sets of (node, message, seq)."""

    def __init__(self, run: Run, members: list[str], timing: Timing | None = None, slack_us: int = 0) -> None:
        self.run = run
        self.timing = timing
        self.members = sorted({*members, *run})
        self.malformed: list[tuple[str, Id, int]] = []
        self.begins: dict[Id, tuple[str, int]] = {}  # message -> (node, seq) of its broadcast
        self._find_broadcasts()
        self.first: dict[tuple[str, int], Id] = {}  # (node, seq) of valid first deliveries -> message
        self.duplicate, self.created = [], []
        self._find_deliveries()
        self._drop_untimely()
        self.pasts: dict[Id, set[Id]] = {}
        self.causal = self._late(lambda late, other: late in self.past(other))
        self.fifo = self._late(
            lambda late, other: late[0] == other[0] and self.begins[late] < self.begins[other]
        )
        self.missing = self._find_missing()
        self.late: list[tuple[str, Id, int, int, int]] = []  # with the two times
        self._find_late(slack_us)

    def _find_broadcasts(self) -> None:
        for node, rows in self.run.items():
            previous, restarted = 0, False
            for seq, (kind, origin, number) in enumerate(rows):
                restarted |= kind is Kind.RESTART
                if kind is not Kind.BROADCAST:
                    continue
                if origin != node or (origin, number) in self.begins:
                    self.malformed.append((node, (origin, number), seq))
                    continue
                self.begins[origin, number] = (node, seq)
                # A member that comes back, or late, may begin with any larger number.
                if number <= previous or (number != previous + 1 and not restarted):
                    self.malformed.append((node, (origin, number), seq))
                previous, restarted = number, False

    def _find_deliveries(self) -> None:
        for node, rows in self.run.items():
            delivered: set[Id] = set()
            ended: set[Id] = set()
            for seq, (kind, origin, number) in enumerate(rows):
                which, known = (origin, number), (origin, number) in self.begins
                if kind is Kind.EXPIRE and (not known or which in ended):
                    self.malformed.append((node, which, seq))
                if kind is Kind.EXPIRE and known:
                    ended.add(which)
                if kind is not Kind.DELIVER:
                    continue
                if which in ended and which not in delivered:
                    self.malformed.append((node, which, seq))
                if origin is not None:
                    ended.add(which)
                if origin is None:
                    self.malformed.append((node, which, seq))
                elif which in delivered:
                    self.duplicate.append((node, which, seq))
                elif not known:
                    self.created.append((node, which, seq))
                else:
                    self.first[node, seq] = which
                delivered.add(which)

    def _drop_untimely(self) -> None:
        """Walk through the run; where nobody can go on, drop a delivery that waits in a circle."""
        at = dict.fromkeys(self.members, 0)

        def waits_for(node: str) -> str | None:
            which = self.first.get((node, at[node]))
            if which is None:
                return None
            origin, seq = self.begins[which]
            return origin if seq >= at[origin] else None

        while True:
            moved = True
            while moved:
                moved = False
                for node in self.members:
                    while at[node] < len(self.run.get(node, [])) and waits_for(node) is None:
                        at[node] += 1
                        moved = True
            stuck = [node for node in self.members if at[node] < len(self.run.get(node, []))]
            if not stuck:
                return
            path = [stuck[0]]
            while path.count(path[-1]) < 2:
                path.append(waits_for(path[-1]))
            chosen = min(path[path.index(path[-1]) :])
            self.malformed.append((chosen, self.first.pop((chosen, at[chosen])), at[chosen]))

    def direct(self, which: Id) -> set[Id]:
        """The messages that its origin broadcast or delivered before."""
        origin, end = self.begins[which]
        own = {other for other, (node, seq) in self.begins.items() if node == origin and seq < end}
        return own | {other for (node, seq), other in self.first.items() if node == origin and seq < end}

    def past(self, which: Id) -> set[Id]:
        """All that happened before the broadcast of `which`."""
        if which not in self.pasts:
            direct = self.direct(which)
            self.pasts[which] = direct.union(*(self.past(other) for other in direct))
        return self.pasts[which]

    def _late(self, overtakes: Any) -> list[tuple[str, Id, int, Id]]:
        found = []
        for (node, seq), which in self.first.items():
            earlier = sorted((s, m) for (n, s), m in self.first.items() if n == node and s < seq)
            others = [other for _, other in earlier if overtakes(which, other)]
            if others:
                found.append((node, which, seq, others[0]))
        return found

    def _find_late(self, slack_us: int) -> None:
        if self.timing is None:
            return
        for which, begun in self.begins.items():
            text = self.timing[begun][1]
            if text is None:
                continue
            if not text or set(text) - set("0123456789"):
                self.malformed.append((begun[0], which, begun[1]))
                continue
            for node, rows in self.run.items():
                delivered = [seq for seq, row in enumerate(rows) if row == (Kind.DELIVER, *which)]
                if delivered:
                    sent_us, got_us = self.timing[begun][0], self.timing[node, delivered[0]][0]
                    if got_us - sent_us > int(text) + slack_us:
                        self.late.append((node, which, delivered[0], sent_us, got_us))

    def _find_missing(self) -> list[tuple[str, Id]]:
        def survives(node: str) -> bool:
            turns = [kind for kind, _, _ in self.run.get(node, []) if kind in (Kind.CRASH, Kind.RESTART)]
            return not turns or turns[-1] is Kind.RESTART

        survivors = [node for node in self.members if survives(node)]
        ends = {
            node: {(o, n) for kind, o, n in self.run.get(node, []) if kind in (Kind.DELIVER, Kind.EXPIRE)}
            for node in survivors
        }
        delivered = {
            (o, n) for node in survivors for kind, o, n in self.run.get(node, []) if kind is Kind.DELIVER
        }
        wanted = [which for which in self.begins if which[0] in survivors or which in delivered]
        return [(node, which) for node in survivors for which in wanted if which not in ends[node]]

    def distance(self, start: Id, end: Id) -> int:
        """Hops from one message to another along direct precedence."""
        far = {end: 0}
        queue = deque([end])
        while start not in far:
            current = queue.popleft()
            for other in self.direct(current):
                if other not in far:
                    far[other] = far[current] + 1
                    queue.append(other)
        return far[start]


# ---------------------------------------------------------------------------------------------------
# Random runs with planted faults.
# ---------------------------------------------------------------------------------------------------


def random_run(rng: random.Random) -> tuple[Run, list[str]]:
    """A run of a few nodes: deliveries in causal, FIFO or any order, then damaged in 0 to 3 ways."""
    nodes = [chr(ord("a") + i) for i in range(rng.randint(1, 5))]
    members = [*nodes, "z"] if rng.random() < 0.05 else list(nodes)
    run: Run = {node: [] for node in nodes}
    waiting: dict[str, list[Id]] = {node: [] for node in nodes}
    patience = rng.choice([0.0, 0.3, 1.0])  # how often a node takes the oldest message first
    sent = 0
    for _ in range(rng.randint(0, 40)):
        node = rng.choice(nodes)
        if rng.random() < 0.35 and sent < 12:
            number = 1 + sum(kind is Kind.BROADCAST for kind, _, _ in run[node])
            run[node].append((Kind.BROADCAST, node, number))
            sent += 1
            for other in nodes:
                if other == node and rng.random() < 0.8:
                    run[node].append((Kind.DELIVER, node, number))
                else:
                    waiting[other].append((node, number))
        elif waiting[node]:
            take = 0 if rng.random() < patience else rng.randrange(len(waiting[node]))
            run[node].append((Kind.DELIVER, *waiting[node].pop(take)))
        if rng.random() < 0.05:
            run[node].append((Kind.SEND, node, 1))
    if rng.random() < 0.5:
        for node in nodes:
            run[node] += [(Kind.DELIVER, *which) for which in waiting[node]]
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        rng.choice(FAULTS)(run, rng)
    return run, members


def causal_run(rng: random.Random) -> Rows:
    """A clean run: nodes broadcast and deliver at random, each message after its past."""
    names = [f"n{at}" for at in range(rng.randint(1, 5))]
    speakers = rng.sample(names, rng.randint(1, len(names)))
    rows: Rows = {name: [] for name in names}
    past: dict[tuple[str, int], dict[str, int]] = {}
    seen = {name: dict.fromkeys(names, 0) for name in names}
    sent = dict.fromkeys(names, 0)
    budget = rng.randint(1, 15)
    while True:
        moves = [("broadcast", name, name) for name in speakers if sum(sent.values()) < budget]
        for name in names:
            for origin in names:
                number = seen[name][origin] + 1
                needs = past.get((origin, number))
                if needs is not None and all(seen[name][each] >= count for each, count in needs.items()):
                    moves.append(("deliver", name, origin))
        if not moves:
            return rows
        what, name, origin = rng.choice(moves)
        if what == "broadcast":
            past[name, sent[name] + 1] = seen[name] | {name: sent[name]}
            sent[name] += 1
            rows[name].append((Kind.BROADCAST, name, sent[name]))
        else:
            seen[name][origin] += 1
            rows[name].append((Kind.DELIVER, origin, seen[name][origin]))


def damage(rows: Rows, rng: random.Random) -> Rows:
    """One change at one node: two events swapped, one lost, repeated or moved."""
    rows = {node: list(of_node) for node, of_node in rows.items()}
    of_node = rows[rng.choice([node for node in rows if rows[node]])]
    at, to = rng.randrange(len(of_node)), rng.randrange(len(of_node))
    match rng.randrange(4):
        case 0:
            of_node[at], of_node[to] = of_node[to], of_node[at]
        case 1:
            of_node.pop(at)
        case 2:
            of_node.insert(to, of_node[at])
        case _:
            of_node.insert(to, of_node.pop(at))
    return rows


def random_tables(rng: random.Random, count: int) -> Iterator[tuple[pa.Table, PromisesMade, list[str]]]:
    """Broadcast and point-to-point runs in turn, damaged or not, cut at random."""
    for _ in range(count):
        run, members = random_run(rng)
        timing = random_timing(run, rng)
        promises = PromisesMade(complete=True, timely=rng.random() < 0.7, clock_slack_us=rng.choice([0, 30]))
        memory = record(run, timing)
        yield memory.table("r", segment_events=rng.randint(1, 6)), promises, members
        run, members, to = random_unicast_run(rng)
        memory = record(run, to=to)
        yield memory.table("r", segment_events=rng.randint(1, 6)), PromisesMade(complete=True), members


def random_timing(run: Run, rng: random.Random) -> Timing:
    """Times that grow along each node's rows, and lifetimes of about as long as a delivery takes."""
    timing: Timing = {}
    for node, rows in run.items():
        time_us = rng.randrange(100)
        for seq, (kind, _, _) in enumerate(rows):
            time_us += rng.choice([0, 1, 5, 20])
            lifetime = rng.choice([None, "0", "5", "60", "200", "9223372036854775807"])
            if rng.random() < 0.01:
                lifetime = rng.choice(["", "soon", "-1", "1.5", "\u0661"])
            timing[node, seq] = (time_us, lifetime if kind is Kind.BROADCAST else rng.choice([None, "7"]))
    return timing


def _some_rows(run: Run, rng: random.Random) -> list[Row]:
    return run[rng.choice(sorted(run))] or [(Kind.SEND, None, 0)]


def _swap(run: Run, rng: random.Random) -> None:
    rows = _some_rows(run, rng)
    first, second = rng.randrange(len(rows)), rng.randrange(len(rows))
    rows[first], rows[second] = rows[second], rows[first]


def _swap_neighbours(run: Run, rng: random.Random) -> None:
    rows = _some_rows(run, rng)
    first = rng.randrange(len(rows))
    second = min(first + 1, len(rows) - 1)
    rows[first], rows[second] = rows[second], rows[first]


def _drop(run: Run, rng: random.Random) -> None:
    rows = _some_rows(run, rng)
    rows.pop(rng.randrange(len(rows)))


def _repeat(run: Run, rng: random.Random) -> None:
    rows = _some_rows(run, rng)
    rows.insert(rng.randint(0, len(rows)), rng.choice(rows))


def _move(run: Run, rng: random.Random) -> None:
    rows = _some_rows(run, rng)
    rows.insert(rng.randrange(len(rows)), rows.pop(rng.randrange(len(rows))))


def _shuffle(run: Run, rng: random.Random) -> None:
    rng.shuffle(_some_rows(run, rng))


def _create(run: Run, rng: random.Random) -> None:
    rows = _some_rows(run, rng)
    row = (rng.choice([Kind.DELIVER, Kind.EXPIRE]), rng.choice(["a", "b", "y", None]), rng.randint(-1, 9))
    rows.insert(rng.randint(0, len(rows)), row)


def _forge(run: Run, rng: random.Random) -> None:
    rows = _some_rows(run, rng)
    rows.insert(rng.randint(0, len(rows)), (Kind.BROADCAST, rng.choice(["a", "b", None]), rng.randint(0, 6)))


def _renumber(run: Run, rng: random.Random) -> None:
    """A whole origin's numbers move up by a hole, in every row: order findings must not change."""
    origin, above, by = rng.choice(sorted(run)), rng.randint(0, 3), rng.choice([1, 5, 10**12])
    for rows in run.values():
        rows[:] = [
            (kind, o, number + by if o == origin and number > above else number) for kind, o, number in rows
        ]


def _expire(run: Run, rng: random.Random) -> None:
    rows = _some_rows(run, rng)
    at = rng.randrange(len(rows))
    if rows[at][0] is Kind.DELIVER:
        rows[at] = (Kind.EXPIRE, *rows[at][1:])


def _end_again(run: Run, rng: random.Random) -> None:
    """A message that is delivered here expires here as well, before or after."""
    rows = _some_rows(run, rng)
    delivered = [row for row in rows if row[0] is Kind.DELIVER]
    if delivered:
        rows.insert(rng.randint(0, len(rows)), (Kind.EXPIRE, *rng.choice(delivered)[1:]))


def _crash(run: Run, rng: random.Random) -> None:
    rows = _some_rows(run, rng)
    del rows[rng.randint(0, len(rows)) :]
    rows.append((Kind.CRASH, None, 0))


def _restart(run: Run, rng: random.Random) -> None:
    rows = _some_rows(run, rng)
    at = rng.randint(0, len(rows))
    rows[at:at] = [(Kind.CRASH, None, 0), (Kind.RESTART, None, 0)]


FAULTS = [
    _swap, _swap_neighbours, _drop, _repeat, _move, _shuffle, _create, _forge, _renumber, _expire, _end_again,
    _crash, _restart,
]  # fmt: skip


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
