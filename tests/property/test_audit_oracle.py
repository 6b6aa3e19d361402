"""The judge of foreign logs against brute force, on random logs; compiled loops against plain ones."""

from __future__ import annotations

import random
from itertools import pairwise, product
from typing import Any

import pytest

from support.audits import CRASH, DELIVER, RECEIVE, RESTART, SEND, Row, log_of, random_log
from whence.foreign import kernels
from whence.foreign.judge import judge
from whence.foreign.model import Contract, Log
from whence.foreign.report import NOT_JUDGED, Audit


def lasts(row: Row) -> tuple[float, float]:
    """From when to when an interval lasts: without an end forever; set back, over what lies between."""
    end = float("inf") if row["t1"] is None else row["t1"]
    return min(row["t0"], end), max(row["t0"], end)


class Brute:
    """What must be found in a log: closures over sets, nothing shared with ours.

    Only what a row says is used, one pair at a time.
    """

    def __init__(self, rows: list[Row], order: str, complete: set[str], members: set[str]) -> None:
        self.rows = [{"ctx": row.get("ctx") or row["proc"], **row} for row in rows]
        for row in self.rows:
            row["ctx"] = row.get("ctx") or row["proc"]
        self.order = order
        self.complete, self.members = complete, members
        self.messages = {row["msg"] for row in self.rows if row.get("msg") is not None}
        self.messages |= {dep for row in self.rows for dep in row.get("deps", ())}
        self._find_sends()
        self.faulty = self._faulty_clocks()
        edges = self._edges(set())
        reach = _closure(self._nodes(), edges)
        self.in_circle = {node for node in reach if node in reach[node]}
        self.cycle = len({frozenset(other for other in reach[node] if node in reach[other])
                          for node in self.in_circle})  # fmt: skip
        self.reach = _closure(self._nodes() - self.in_circle, self._edges(self.in_circle))

    def _nodes(self) -> set[Any]:
        return set(range(len(self.rows))) | set(self.messages)

    def _of_kind(self, kind: int) -> list[int]:
        return [at for at, row in enumerate(self.rows) if row["kind"] == kind and row.get("msg") is not None]

    def _find_sends(self) -> None:
        self.node: dict[str, Any] = {message: message for message in self.messages}
        self.hedged: set[str] = set()
        self.sent = {self.rows[at]["msg"] for at in self._of_kind(SEND)}
        for message in self.sent:
            sends = [at for at in self._of_kind(SEND) if self.rows[at]["msg"] == message]
            where = {(row["ctx"], "") if row.get("pos") is not None else ("", row["proc"])
                     for row in (self.rows[at] for at in sends)}  # fmt: skip
            if len(where) > 1:
                self.hedged.add(message)
            else:
                self.node[message] = min(sends, key=lambda at: (self._when(at), at))

    def _when(self, at: int) -> int:
        row = self.rows[at]
        return row["pos"] if row.get("pos") is not None else row["t0"]

    def rank(self, message: str) -> tuple[str, int] | None:
        """Channel and rank, by the first send that says so, else by the first row that does."""
        named = [row for row in self.rows if row.get("msg") == message and row.get("rank") is not None]
        named.sort(key=lambda row: row["kind"] != SEND)
        return (named[0]["channel"], named[0]["rank"]) if named else None

    def channel(self, message: str) -> str | None:
        """The channel, of a row with a rank, of a send, of any row."""
        named = [row for row in self.rows if row.get("msg") == message and row.get("channel") is not None]
        named.sort(key=lambda row: (row.get("rank") is None, row["kind"] != SEND))
        return named[0]["channel"] if named else None

    def _by_own_entry(self) -> dict[str, list[int]]:
        made: dict[str, list[int]] = {}
        for at, row in enumerate(self.rows):
            if row.get("vc"):
                made.setdefault(row["ctx"], []).append(at)
        for host, events in made.items():
            events.sort(key=lambda at: (self.rows[at]["vc"].get(host, 0), at))
        return made

    def _faulty_clocks(self) -> set[int]:
        vc = {at: row["vc"] for at, row in enumerate(self.rows) if row.get("vc")}
        self.named: dict[tuple[str, int], list[int]] = {}
        faulty = set()
        for host, events in self._by_own_entry().items():
            for at in events:
                same = self.named.setdefault((host, vc[at].get(host, 0)), [])
                if same:
                    faulty.add(at)
                same.append(at)
        for host, events in self._by_own_entry().items():
            for before, at in pairwise([None, *events]):
                known = {} if before is None else vc[before]
                grown = [
                    (other, n) for other, n in vc[at].items() if other != host and n > known.get(other, 0)
                ]
                below = [
                    known,
                    *(vc[self.named[key][0]] for key in grown if len(self.named.get(key, [])) == 1),
                ]
                if any(vc[at].get(other, 0) < n for each in below for other, n in each.items()):
                    faulty.add(at)
        return faulty

    def _edges(self, without: set[Any]) -> set[tuple[Any, Any]]:
        rows, edges = self.rows, set()
        for one, two in product(range(len(rows)), repeat=2):
            first, second = rows[one], rows[two]
            placed = first.get("pos") is not None and second.get("pos") is not None
            if placed and first["ctx"] == second["ctx"] and first["pos"] < second["pos"]:
                edges.add((one, two))
        owner: dict[str, int] = {}
        for at, row in enumerate(rows):
            if row.get("ref") is not None:
                owner.setdefault(row["ref"], at)
        for at, row in enumerate(rows):
            message = row.get("msg")
            if row["kind"] in (RECEIVE, DELIVER) and message is not None and message not in self.hedged:
                edges.add((self.node[message], at))
            for dep in row.get("deps", ()):
                edges.add((self.node[dep], self.node[message] if message is not None else at))
            edges |= {(owner[link], at) for link in row.get("links", ()) if link in owner}
            if row.get("vc") and at not in self.faulty:
                for key in row["vc"].items():
                    if key[0] != row["ctx"] and key[1] > 0 and len(self.named.get(key, [])) == 1:
                        edges.add((self.named[key][0], at))
        for one, two in product(self.messages, repeat=2):
            first, second = self.rank(one), self.rank(two)
            if first and second and first[0] == second[0] and first[1] < second[1]:
                edges.add((self.node[one], self.node[two]))
        return {(one, two) for one, two in edges if one != two and not {one, two} & without}

    # Deliveries

    def firsts(self) -> dict[tuple[Any, ...], tuple[int, int, int, str]]:
        """(scope, owner of its order, message) -> earliest start, earliest end, event, message."""
        made: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
        for at in self._of_kind(DELIVER):
            row = self.rows[at]
            if row.get("scope") is None:
                continue
            if row.get("pos") is not None:
                lives = sum(
                    other["pos"] <= row["pos"] if other["ctx"] == row["ctx"] else other["line"] < row["line"]
                    for other in self.rows
                    if other["kind"] == RESTART and other["proc"] == row["proc"]
                )
                key: tuple[Any, ...] = (row["scope"], lives, "ctx", row["ctx"], row["msg"])
                made.setdefault(key, []).append((row["pos"], row["pos"], at))
            else:
                key = (row["scope"], 0, "proc", row["proc"], row["msg"])
                made.setdefault(key, []).append((*lasts(row), at))
        found = {}
        for key, each in made.items():
            start, event = min((start, at) for start, _, at in each)
            found[key] = (start, min(end for _, end, _ in each), event, key[-1])
        return {key: each for key, each in found.items()
                if each[2] not in self.in_circle and self.node[each[3]] not in self.in_circle}  # fmt: skip

    def _late(self, precedes: Any) -> set[tuple[Any, ...]]:
        firsts = self.firsts()
        return {
            key for key, (start, _, _, message) in firsts.items()
            if any(other[:-1] == key[:-1] and end < start and precedes(message, before)
                   for other, (_, end, _, before) in firsts.items())
        }  # fmt: skip

    def causal(self) -> set[tuple[Any, ...]]:
        return self._late(lambda one, two: self.node[two] in self.reach[self.node[one]])

    def fifo(self) -> set[tuple[Any, ...]]:
        return self._late(self._sent_before)

    def _sent_before(self, one: str, two: str) -> bool:
        ranks = self.rank(one), self.rank(two)
        if ranks[0] or ranks[1]:
            return bool(ranks[0] and ranks[1] and ranks[0][0] == ranks[1][0] and ranks[0][1] < ranks[1][1])
        first, second = self.node[one], self.node[two]
        if isinstance(first, str) or isinstance(second, str) or self.channel(one) != self.channel(two):
            return False
        a, b = self.rows[first], self.rows[second]
        if a.get("pos") is not None and b.get("pos") is not None:
            return bool(a["ctx"] == b["ctx"] and a["pos"] < b["pos"])
        return bool(
            a.get("pos") is None
            and b.get("pos") is None
            and a["proc"] == b["proc"]
            and lasts(a)[1] < lasts(b)[0]
        )

    def duplicate(self) -> int:
        groups = [(row["group"], row["msg"]) for row in map(self.rows.__getitem__, self._of_kind(DELIVER))
                  if row.get("group") is not None]  # fmt: skip
        return len(groups) - len(set(groups))

    def created(self) -> int:
        return len({
            (row.get("group"), row["proc"] if row.get("group") is None else "", row["msg"])
            for row in map(self.rows.__getitem__, self._of_kind(DELIVER)) if row["msg"] not in self.sent
        })  # fmt: skip

    def gone(self) -> set[str]:
        def is_later(row: Row, crash: Row) -> bool:
            if row["ctx"] == crash["ctx"]:
                return bool(row["pos"] is not None and row["pos"] > crash["pos"])
            return bool(row.get("line", -1) > crash.get("line", -1))

        return {
            crash["proc"] for crash in self.rows
            if crash["kind"] == CRASH
            and not any(is_later(row, crash) for row in self.rows if row["proc"] == crash["proc"])
        }  # fmt: skip

    def lost(self) -> int:
        deliveries = [self.rows[at] for at in self._of_kind(DELIVER)]
        senders: dict[str, set[str]] = {}
        for at in self._of_kind(SEND):
            senders.setdefault(self.rows[at]["msg"], set()).add(self.rows[at]["proc"])
        own = {row["proc"] for row in deliveries if row["proc"] in senders.get(row["msg"], ())}
        return sum(
            not any(row["msg"] == message and member in (row["proc"], row.get("group")) for row in deliveries)
            for message in self.sent
            for member in self.members - (senders[message] - own) - self.gone()
        )

    def stuck(self) -> int:
        got = {(self.rows[at]["proc"], self.rows[at]["msg"]) for at in self._of_kind(DELIVER)}
        came = {(self.rows[at]["proc"], self.rows[at]["msg"]) for at in self._of_kind(RECEIVE)}
        return len({each for each in came - got if each[0] not in self.gone()})


def _closure(nodes: set[Any], edges: set[tuple[Any, Any]]) -> dict[Any, set[Any]]:
    after: dict[Any, set[Any]] = {node: set() for node in nodes}
    for one, two in edges:
        after[one].add(two)
    reach: dict[Any, set[Any]] = {}
    for node in nodes:
        seen: set[Any] = set()
        front = list(after[node])
        while front:
            each = front.pop()
            if each not in seen:
                seen.add(each)
                front += after[each]
        reach[node] = seen
    return reach


CONTRACT = Contract(complete=("sends", "deliveries"), members=("a", "b", "g"))


def count(audit: Audit, name: str) -> int | None:
    each = audit.properties[name]
    return None if each.status == NOT_JUDGED else each.count


def late(log: Log, audit: Audit, name: str) -> set[tuple[Any, ...]]:
    """Which deliveries were found to be late, and that their witnesses hold."""
    found = set()
    for each in audit.properties[name].findings:
        early, event = each.events[:2]
        assert log.scope[early] == log.scope[event]
        assert (log.msgs[log.msg[event]], log.msgs[log.msg[early]]) == (each.message, each.other)
        found.add(event)
    return found


def compare(seed: int) -> dict[str, int]:
    """One random log; returns what was found, so that the caller can see that something was."""
    rng = random.Random(seed)
    rows, order = random_log(rng)
    log = log_of(rows, order, contract=CONTRACT)
    table_bytes = rng.choice([1 << 20, 8])  # scopes together, or one by one
    audit = judge(log, findings_max=None, table_bytes=table_bytes)
    brute = Brute(rows, order, set(CONTRACT.complete), set(CONTRACT.members))
    firsts = brute.firsts()
    for name, expected in (("causal", brute.causal()), ("fifo", brute.fifo())):
        found = count(audit, name)
        assert (found or 0) == len(expected), (seed, name, found, expected)
        assert late(log, audit, name) == {firsts[key][2] for key in expected}, (seed, name)
    scalar = {
        "duplicate": brute.duplicate(), "created": brute.created(), "lost": brute.lost(),
        "stuck": brute.stuck(), "clock": len(brute.faulty), "cycle": brute.cycle,
    }  # fmt: skip
    for name, expected_count in scalar.items():
        found = count(audit, name)
        assert (found or 0) == expected_count, (seed, name, found, expected_count)
    return {name: count(audit, name) or 0 for name in audit.properties}


def compare_many(seeds: range) -> None:
    total: dict[str, int] = {}
    for seed in seeds:
        for name, found in compare(seed).items():
            total[name] = total.get(name, 0) + bool(found)
    for name in ("causal", "fifo", "duplicate", "created", "lost", "stuck", "clock", "cycle"):
        assert total[name] > len(seeds) // 100, (name, total)


def test_random_logs_are_judged_as_by_brute_force() -> None:
    compare_many(range(400))


@pytest.mark.slow
def test_ten_thousand_random_logs() -> None:
    compare_many(range(1_000, 11_000))


def test_compiled_loops_give_the_same_report(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [log_of(*random_log(random.Random(seed)), contract=CONTRACT) for seed in range(60)]
    monkeypatch.setattr(kernels, "COMPILED_NODES", 1 << 60)
    monkeypatch.setattr(kernels, "compiled", _never())
    expected = [judge(log) for log in logs]
    monkeypatch.undo()
    monkeypatch.setattr(kernels, "COMPILED_NODES", 0)
    assert [judge(log) for log in logs] == expected


def _never() -> Any:
    class Never:
        def cache_info(self) -> Any:
            return type("Info", (), {"currsize": 0})

    return Never()
