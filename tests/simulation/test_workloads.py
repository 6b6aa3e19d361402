"""Workloads: when senders broadcast, exactly and in statistics, and that replies create causality."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean, pstdev
from typing import Any

import pytest

from support.running import simulate
from support.simulating import KeptRows
from whence.core.rng import stream
from whence.sim.files import from_dict
from whence.sim.model import Burst, Periodic, Poisson, Replies, Window, Workload
from whence.sim.workload import broadcast_times
from whence.trace.schema import Kind

KEY = stream(5, 5)


def times(workload: Workload, end_us: int = 10**9) -> list[int]:
    return list(broadcast_times(workload, KEY, end_us))


def run(**fields: Any) -> tuple[KeptRows, Any]:
    data = {"nodes": 3, "protocol": "fifo", "stop": {"duration_us": 1_000_000}, **fields}
    rows = KeptRows()
    return rows, simulate(from_dict(data), rows, check=True)


def test_periodic() -> None:
    assert times(Periodic(interval_us=10, start_us=3, count=4)) == [3, 13, 23, 33]
    assert times(Periodic(interval_us=10), 35) == [0, 10, 20, 30]
    late = times(Periodic(interval_us=100, jitter_us=100, count=2_000))
    assert late == sorted(late)
    delays = [time_us - 100 * index for index, time_us in enumerate(late)]
    assert (min(delays), max(delays)) == (0, 100)
    assert mean(delays) == pytest.approx(50, abs=2)


def test_poisson_gaps_are_exponential() -> None:
    found = times(Poisson(interval_us=1_000, start_us=50_000, count=20_000))
    gaps = [two - one for one, two in pairwise([50_000, *found])]
    assert len(gaps) == 20_000
    assert mean(gaps) == pytest.approx(1_000, rel=0.03)
    assert pstdev(gaps) == pytest.approx(1_000, rel=0.04)  # a property of the exponential distribution
    assert len(times(Poisson(interval_us=1_000), 1_000_000)) == pytest.approx(1_000, rel=0.1)


def test_window_is_uniform_and_exact_in_number() -> None:
    found = times(Window(count=10_000, start_us=1_000, stop_us=2_000))
    assert len(found) == 10_000
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1_000, 1_999)
    assert mean(found) == pytest.approx(1_500, abs=10)


def test_bursts() -> None:
    assert times(Burst(size=3, gap_us=2, interval_us=100, count=2, start_us=5)) == [5, 7, 9, 105, 107, 109]
    assert times(Burst(size=2, interval_us=10), 15) == [0, 0, 10, 10]


def test_replies_broadcast_nothing_by_themselves() -> None:
    assert times(Replies(probability=1.0)) == []


def test_broadcasts_happen_when_due_with_their_payload_and_end_with_the_run() -> None:
    rows, result = run(
        workloads=[{"kind": "periodic", "interval_us": 400_000, "senders": ["n1"], "payload_bytes": 17}]
    )
    found = [(row[0], row[1], row[4], row[6]) for row in rows.of(Kind.BROADCAST)]
    assert found == [("n1", 0, 1, 17), ("n1", 400_000, 2, 17), ("n1", 800_000, 3, 17)]
    assert result.broadcasts == 3


def test_a_sender_s_own_stop_is_heeded() -> None:
    rows, _ = run(workloads=[{"kind": "periodic", "interval_us": 100, "senders": "n0", "stop_us": 301}])
    assert [row[1] for row in rows.of(Kind.BROADCAST)] == [0, 100, 200, 300]


def test_drawn_senders_are_so_many_and_follow_the_seed() -> None:
    chosen = set()
    for seed in range(10):
        workloads = [{"kind": "periodic", "interval_us": 500_000, "senders": 2}]
        rows, _ = run(nodes=6, seed=seed, workloads=workloads)
        senders = {row[0] for row in rows.of(Kind.BROADCAST)}
        assert len(senders) == 2
        chosen.add(tuple(sorted(senders)))
    assert len(chosen) > 3


# Replies

ASK = {"kind": "periodic", "interval_us": 100_000, "senders": ["n0"], "count": 5}


def test_a_certain_reply_follows_each_delivery_at_once_or_after_its_delay() -> None:
    reply = {
        "kind": "replies",
        "senders": ["n1"],
        "probability": 1.0,
        "delay": {"kind": "constant", "value_us": 7},
    }
    rows, result = run(workloads=[ASK, reply])
    assert result.broadcasts == 10
    heard = [row[1] for row in rows.of(Kind.DELIVER, "n1") if row[3] == "n0"]
    answered = [row[1] for row in rows.of(Kind.BROADCAST, "n1")]
    assert answered == [time_us + 7 for time_us in heard]


def test_replies_to_replies_end_at_the_depth() -> None:
    for depth, expected in ((1, 2), (2, 2 + 4), (3, 2 + 4 + 8)):
        once = {**ASK, "count": 1}
        replies = {"kind": "replies", "probability": 1.0, "depth": depth}
        _, result = run(workloads=[once, replies])
        # Two others answer the question; each answer is answered by the two who did not write it; ...
        assert result.broadcasts == 1 + expected


def test_nobody_replies_to_itself_and_counts_are_limits() -> None:
    rows, _ = run(workloads=[ASK, {"kind": "replies", "senders": ["n0"], "probability": 1.0}])
    assert len(rows.of(Kind.BROADCAST)) == 5
    rows, _ = run(workloads=[ASK, {"kind": "replies", "senders": ["n1"], "probability": 1.0, "count": 2}])
    assert len(rows.of(Kind.BROADCAST, "n1")) == 2


def test_reply_windows_and_probability() -> None:
    window = {
        "kind": "replies",
        "senders": ["n1"],
        "probability": 1.0,
        "start_us": 150_000,
        "stop_us": 350_000,
    }
    rows, _ = run(workloads=[ASK, window])
    assert [row[1] for row in rows.of(Kind.BROADCAST, "n1")] == [201_000, 301_000]
    many = {"kind": "periodic", "interval_us": 500, "senders": ["n0"], "count": 1_000}
    rows, _ = run(workloads=[many, {"kind": "replies", "senders": ["n1"], "probability": 0.25}])
    assert len(rows.of(Kind.BROADCAST, "n1")) == pytest.approx(250, rel=0.15)


def test_replies_form_causal_chains() -> None:
    """Each reply is broadcast by a node that has delivered what it answers: the past grows by one."""
    rows, _ = run(
        nodes=4, workloads=[{**ASK, "count": 1}, {"kind": "replies", "probability": 0.6, "depth": 4}]
    )
    pasts: dict[tuple[str, int], set[tuple[str, int]]] = {}
    known: dict[str, set[tuple[str, int]]] = {f"n{at}": set() for at in range(4)}
    longest = 0
    for node, _, kind, origin, number, *_ in rows.rows:
        message = (origin, number)
        if kind is Kind.BROADCAST:
            pasts[message] = set(known[node])
        elif kind is Kind.DELIVER:
            known[node] |= pasts[message] | {message}
            longest = max(longest, len(pasts[message]))
    answers = [message for message in pasts if message != ("n0", 1)]
    assert answers
    assert all(("n0", 1) in pasts[message] for message in answers)
    assert longest >= 4
