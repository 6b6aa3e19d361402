"""Random foreign logs. A row is a dict of the arguments of `LogBuilder.add`."""

from __future__ import annotations

import random
from typing import Any

from whence.foreign.model import EventKind, Log, LogBuilder

SEND, RECEIVE, DELIVER = int(EventKind.SEND), int(EventKind.RECEIVE), int(EventKind.DELIVER)
CRASH, RESTART = int(EventKind.CRASH), int(EventKind.RESTART)
Row = dict[str, Any]


def log_of(rows: list[Row], order: str, **about: Any) -> Log:
    builder = LogBuilder(order, **about)
    for row in rows:
        builder.add(**row)
    return builder.log()


# Random logs


def random_log(rng: random.Random) -> tuple[list[Row], str]:
    """Rows and where their order comes from: made up freely, or a run that may be broken."""
    make = rng.choice([_made_up, _made_up, _run, _run, _clocked, _intervals])
    rows, order = make(rng)
    if rng.random() < 0.3:
        rng.shuffle(rows)
    for line, row in enumerate(rows, 1):
        row["line"] = line
    return rows, order


def _shape(rng: random.Random, row: Row, numbers: dict[str, int]) -> Row:
    """A delivery's scope and group, a message's channel and rank, in one of several ways."""
    if row["kind"] == DELIVER:
        if rng.random() < 0.9:
            row["scope"] = rng.choice([row["proc"], row.get("ctx") or row["proc"], "all"])
        row["group"] = rng.choice([row["proc"], "g"])
    if numbers.get(row.get("msg") or "", -1) >= 0 and rng.random() < 0.8:
        row["channel"], row["rank"] = f"c{numbers[row['msg']] % 2}", numbers[row["msg"]] // 2
    return row


def _made_up(rng: random.Random) -> tuple[list[Row], str]:
    messages = [f"m{n}" for n in range(rng.randint(1, 6))]
    ranked = rng.random() < 0.4
    numbers = {message: rng.randint(0, 7) for message in messages} if ranked else {}
    rows: list[Row] = []
    for number in range(rng.randint(2, 14)):
        proc = rng.choice("abc")
        kind = rng.choice([SEND, SEND, DELIVER, DELIVER, DELIVER, RECEIVE, 0, CRASH, RESTART])
        row: Row = {"proc": proc, "kind": kind, "pos": rng.choice([number, number, rng.randint(0, 6)])}
        if rng.random() < 0.2:
            row["ctx"] = f"{proc}/{rng.randint(1, 2)}"
        if kind in (SEND, DELIVER, RECEIVE) and rng.random() < 0.95:
            row["msg"] = rng.choice(messages)
            if rng.random() < 0.2:
                row["deps"] = rng.sample(messages, 1)
        if rng.random() < 0.3:
            row["ref"] = f"r{rng.randint(0, 4)}"
        if rng.random() < 0.1:
            row["links"] = [f"r{rng.randint(0, 4)}"]
        rows.append(_shape(rng, row, numbers))
    return rows, "seq"


def _run(rng: random.Random) -> tuple[list[Row], str]:
    """A run of broadcasts with deliveries in any order, some lost, some repeated, sends not always logged."""
    nodes = "abc"[: rng.randint(2, 3)]
    rows: list[Row] = []
    sent: list[str] = []
    inbox: dict[str, list[str]] = {node: [] for node in nodes}
    explicit = rng.random() < 0.3
    numbers: dict[str, int] = {}
    for place in range(rng.randint(4, 24)):
        node = rng.choice(nodes)
        if inbox[node] and rng.random() < 0.7:
            message = inbox[node].pop(0 if rng.random() < 0.6 else rng.randrange(len(inbox[node])))
            row: Row = {"proc": node, "kind": DELIVER, "msg": message, "pos": place}
            if rng.random() < 0.1:
                inbox[node].append(message)
        elif rng.random() < 0.1:
            row = {"proc": node, "kind": RESTART, "pos": place}
        else:
            message = f"{node}{place}"
            if explicit:
                numbers[message] = 2 * len(sent) + nodes.index(node) % 2
            sent.append(message)
            for each in nodes:
                inbox[each].append(message)
            row = {"proc": node, "kind": SEND, "msg": message, "pos": place}
            if rng.random() < 0.2:
                continue  # a send that was not logged
        row = _shape(rng, row, numbers)
        if not explicit:
            row.pop("rank", None)
            row.pop("channel", None)
        rows.append(row)
    return rows or [{"proc": "a", "kind": 0, "pos": 0}], "seq"


def _clocked(rng: random.Random) -> tuple[list[Row], str]:
    """Hosts with vector clocks, some of them wrong, and ids on some of the lines."""
    known: dict[str, dict[str, int]] = {host: {} for host in "abc"}
    flying: list[tuple[str, dict[str, int]]] = []
    rows: list[Row] = []
    for number in range(rng.randint(3, 14)):
        host = rng.choice("abc")
        clock = known[host]
        row: Row = {"proc": host, "kind": 0}
        if flying and rng.random() < 0.5:
            message, carried = rng.choice(flying)
            for other, count in carried.items():
                clock[other] = max(clock.get(other, 0), count)
            row |= {"kind": DELIVER, "msg": message, "scope": host, "group": host}
        clock[host] = clock.get(host, 0) + 1
        if row["kind"] == 0 and rng.random() < 0.6:
            row |= {"kind": SEND, "msg": f"m{number}"}
            flying.append((f"m{number}", dict(clock)))
        said = dict(clock)
        if rng.random() < 0.15:
            other = rng.choice("abc")
            said[other] = max(0 if other != host else 1, said.get(other, 0) + rng.choice([-1, 1, 2]))
        row["vc"] = said
        row["pos"] = said.get(host, 0)
        rows.append(row)
    return rows, "clock"


def _intervals(rng: random.Random) -> tuple[list[Row], str]:
    """Spans: contexts of their own, with parents and links."""
    rows: list[Row] = []
    messages = [f"m{n}" for n in range(rng.randint(1, 5))]
    numbers = {message: rng.randint(0, 7) for message in messages} if rng.random() < 0.3 else {}
    for number in range(rng.randint(2, 12)):
        start = rng.randint(0, 30)
        proc = rng.choice("ab")
        kind = rng.choice([SEND, DELIVER, DELIVER, 0])
        row: Row = {"proc": proc, "ctx": f"s{number}", "kind": kind, "t0": start, "ref": f"s{number}"}
        row["t1"] = rng.choice([start + rng.randint(0, 6)] * 8 + [None, start - rng.randint(1, 6)])
        if kind:
            row["msg"] = rng.choice(messages)
        if number and rng.random() < 0.4:
            row["links"] = [f"s{rng.randrange(number)}"]
        if kind == SEND and rng.random() < 0.5:
            row["channel"] = "k"
        rows.append(_shape(rng, row, numbers))
    return rows, "interval"
