"""The judge of streams: what it finds is what is found at rest, and within the horizon it finds all."""

from __future__ import annotations

import random

import msgspec

from support.audits import DELIVER, RESTART, SEND, log_of
from whence.foreign.judge import judge
from whence.foreign.model import Contract
from whence.foreign.running import Ranks, RunningAudit, StreamRow

NAMES = ("causal", "fifo", "duplicate")


def made(rng: random.Random) -> list[dict[str, object]]:
    """Broadcasts and deliveries in any order, as they come in; with ranks, dependencies, or sends."""
    way = rng.choice(["ranks", "deps", "sends"])
    rows: list[dict[str, object]] = []
    sent: list[str] = []
    senders: dict[str, str] = {}
    for place in range(rng.randint(5, 40)):
        proc = rng.choice("abc")
        if way == "sends" and (not sent or rng.random() < 0.4):
            sent.append(f"m{place}")
            senders[sent[-1]] = proc
            rows.append({"proc": proc, "kind": SEND, "msg": sent[-1], "pos": place, "line": place})
            continue
        if sent and rng.random() < 0.1:  # sent again, which is no new beginning
            again = rng.choice(sent)
            rows.append({"proc": senders[again], "kind": SEND, "msg": again, "pos": place, "line": place})
            continue
        if rng.random() < 0.05:
            rows.append({"proc": proc, "kind": RESTART, "pos": place, "line": place})
            continue
        message = rng.choice(sent) if way == "sends" else f"m{rng.randint(0, 9)}"
        row: dict[str, object] = {"proc": proc, "kind": DELIVER, "msg": message, "pos": place, "line": place}
        row |= {"scope": proc, "group": proc}
        number = int(message[1:])
        if way == "ranks":
            row |= {"channel": f"c{number % 2}", "rank": number // 2}
        elif way == "deps":
            row["deps"] = [f"m{each}" for each in (number // 2, number // 3) if each < number]
        rows.append(row)
    return rows


def running(rows: list[dict[str, object]], horizon: int, rng: random.Random) -> RunningAudit:
    state = RunningAudit(horizon=horizon)
    given = [StreamRow(ctx=row["proc"], **row) for row in rows]
    while given:
        size = rng.randint(1, 10)
        state.feed(given[:size])
        given = given[size:]
        state = msgspec.json.decode(msgspec.json.encode(state), type=RunningAudit)  # as between two batches
    return state


def test_a_long_horizon_finds_what_is_found_at_rest() -> None:
    total = dict.fromkeys(NAMES, 0)
    for seed in range(300):
        rng = random.Random(seed)
        rows = made(rng)
        audit = judge(log_of(rows, "seq"))
        state = running(rows, 10_000, rng)
        ranked = any("rank" in row for row in rows)
        for name in NAMES:
            if name == "fifo" and not ranked:
                continue  # of sends a stream judges causal order alone
            assert state.counts.get(name, 0) == audit.properties[name].count, (seed, name)
            total[name] += state.counts.get(name, 0)
    assert all(total.values()), total


def test_a_short_horizon_finds_nothing_that_is_not_there() -> None:
    found = 0
    for seed in range(300):
        rng = random.Random(seed)
        rows = made(rng)
        audit = judge(log_of(rows, "seq"))
        state = running(rows, rng.randint(1, 8), rng)
        for name in NAMES:
            assert state.counts.get(name, 0) <= audit.properties[name].count, (seed, name)
            found += state.counts.get(name, 0)
    assert found


def test_ranks_are_a_set_of_intervals() -> None:
    rng = random.Random(1)
    ranks, plain = Ranks(lows=[], highs=[]), set()
    for _ in range(500):
        rank = rng.randint(-40, 40)
        assert ranks.add(rank) is (rank not in plain)
        plain.add(rank)
        assert ranks.top == max(plain)
        assert [*zip(ranks.lows, ranks.highs, strict=True)] == [
            (low, next(high for high in range(low, 99) if high + 1 not in plain))
            for low in sorted(plain) if low - 1 not in plain
        ]  # fmt: skip


def test_what_lies_beyond_the_horizon_is_said() -> None:
    state = RunningAudit(horizon=5)
    state.feed([StreamRow("a", "a", DELIVER, each, "s", "g", pos=at) for at, each in enumerate("xy")])
    audit = state.audit("stream", Contract(require=("causal",)))
    assert (audit.verdict, audit.exit) == ("unknown", 3)
    assert [note.code for note in audit.notes] == ["beyond-horizon"]
