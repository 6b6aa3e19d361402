"""The engine: faults, timers, samples, drains and promises, and FIFO's broken causality, in small runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from support.running import simulate
from support.simulating import KeptRows
from whence.core.effects import CancelTimer, Effects, Reason, SetTimer, Stop
from whence.core.message import NodeId
from whence.errors import InvariantError
from whence.protocols.baselines.fifo import Fifo
from whence.protocols.baselines.vector import Vector
from whence.sim.files import from_dict
from whence.sim.outcome import Outcome
from whence.trace.schema import Kind, Level

ONE = {"kind": "periodic", "interval_us": 100, "senders": ["n0"], "count": 1}


def run(*, make: Any = None, level: Level | None = None, **fields: Any) -> tuple[KeptRows, Outcome]:
    data = {
        "nodes": 2,
        "protocol": "vector",
        "link": {"delay": {"kind": "constant", "value_us": 10}},
        "workloads": [ONE],
        "stop": {"duration_us": 100_000},
        **fields,
    }
    rows = KeptRows()
    return rows, simulate(from_dict(data), rows, make=make, level=level, check=True)


def constant(value_us: int) -> dict[str, Any]:
    return {"kind": "constant", "value_us": value_us}


# Rows


def test_the_rows_of_one_broadcast() -> None:
    rows, _ = run()
    found = [(row[0], row[1], row[2].name, row[3], row[4], row[5], row[6]) for row in rows.rows]
    assert found == [
        ("n0", 0, "LINK_UP", None, 0, "n1", 0),
        ("n1", 0, "LINK_UP", None, 0, "n0", 0),
        ("n0", 0, "BROADCAST", "n0", 1, None, 64),
        ("n0", 0, "DELIVER", "n0", 1, None, 64),
        ("n0", 0, "SEND", "n0", 1, "n1", 75),
        ("n1", 10, "RECEIVE", "n0", 1, "n0", 75),
        ("n1", 10, "DELIVER", "n0", 1, None, 64),
    ]
    assert rows.rows[4][7] == rows.rows[5][7] == 11  # control bytes


def test_levels_leave_rows_out() -> None:
    faults = [{"kind": "crash", "nodes": "n1", "at_us": 500, "restart_us": 600}]
    record = {"sample_every_us": 1_000}
    busy = [{"kind": "periodic", "interval_us": 3_000, "senders": ["n0"]}]
    rows, _ = run(level=Level.DELIVERIES, faults=faults, record=record, workloads=busy)
    assert {row[2] for row in rows.rows} == {
        Kind.BROADCAST, Kind.DELIVER, Kind.CRASH, Kind.RESTART, Kind.SAMPLE,
    }  # fmt: skip
    rows, _ = run(level=Level.MEASURES, faults=faults, record=record, workloads=busy)
    assert {row[2] for row in rows.rows} == {Kind.BROADCAST, Kind.CRASH, Kind.RESTART, Kind.SAMPLE}


def test_duplicates_become_discards_with_a_reason() -> None:
    rows, result = run(link={"delay": constant(10), "duplicate": 1.0})
    discards = rows.of(Kind.DISCARD)
    assert [(row[0], row[3], row[4], row[5], row[8]) for row in discards] == [
        ("n1", "n0", 1, "n0", "duplicate")
    ]
    assert result.discards == {"duplicate": 1}
    assert result.duplicated_packets == 1


def test_samples_are_taken_of_nodes_that_are_up_until_all_is_quiet() -> None:
    rows, result = run(
        workloads=[{"kind": "periodic", "interval_us": 1_000, "senders": ["n0"], "count": 3}],
        faults=[{"kind": "crash", "nodes": "n1", "at_us": 900, "restart_us": 1_100}],
        record={"sample_every_us": 500},
    )
    found = [(row[0], row[1], row[8], row[4]) for row in rows.of(Kind.SAMPLE)]
    assert {(node, time_us) for node, time_us, _, _ in found} == {
        ("n0", 500), ("n1", 500), ("n0", 1_000), ("n0", 1_500), ("n1", 1_500), ("n0", 2_000), ("n1", 2_000),
        ("n0", 2_500), ("n1", 2_500),
    }  # fmt: skip
    assert {detail for _, _, detail, _ in found} == {"entries", "held"}
    assert result.final_us == 2_010


# The end


def test_without_drain_packets_stay_in_flight() -> None:
    late = [{**ONE, "start_us": 99_995}]
    _, result = run(workloads=late, stop={"duration_us": 100_000, "drain": False})
    assert not result.drained
    assert (result.in_flight, result.undelivered) == (1, 1)
    assert not result.promises.complete
    _, result = run(workloads=late)
    assert result.drained
    assert (result.in_flight, result.undelivered, result.final_us) == (0, 0, 100_005)


def test_drain_has_a_limit() -> None:
    stop = {"duration_us": 1_000, "drain_max_us": 50}
    _, result = run(link={"delay": constant(2_000)}, stop=stop)
    assert not result.drained
    assert result.in_flight == 1
    assert result.final_us == 0


def test_progress_is_told_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.sim.engine.PROGRESS_STEPS", 10)
    seen: list[int] = []
    data = {
        "nodes": 2,
        "protocol": "fifo",
        "workloads": [{"kind": "periodic", "interval_us": 100}],
        "stop": {"duration_us": 5_000},
    }
    result = simulate(from_dict(data), progress=seen.append)
    assert seen == sorted(seen)
    assert len(seen) == result.steps // 10


# Crashes


def test_a_crashed_node_neither_receives_nor_broadcasts_and_keeps_its_state() -> None:
    rows, result = run(
        workloads=[{"kind": "periodic", "interval_us": 100, "count": 5}],
        faults=[{"kind": "crash", "nodes": "n1", "at_us": 150, "restart_us": 350}],
    )
    n1 = [(row[1], row[2].name, row[4]) for row in rows.rows if row[0] == "n1" and row[2] is not Kind.SEND]
    down = [each for each in n1 if 150 < each[0] < 350]
    assert down == []
    assert (150, "CRASH", 0) in n1
    assert (350, "RESTART", 0) in n1
    assert result.skipped_broadcasts == 2  # of n1, at 200 and 300
    assert [each[2] for each in n1 if each[1] == "BROADCAST"] == [1, 2, 3]  # numbering goes on
    assert result.lost_packets == 2
    # n0:3 and n0:4 were lost, so n0:5 is held for ever, and the run says so.
    assert [held.message for held in result.waiting["n1"]] == ["n0:5"]
    assert result.waiting["n1"][0].missing == ["n0:3", "n0:4"]
    assert not result.promises.complete


def test_on_retransmitting_links_a_restarted_node_misses_nothing() -> None:
    _, result = run(
        nodes=4,
        link={"delay": constant(10), "retransmit_us": 30},
        workloads=[{"kind": "periodic", "interval_us": 100, "count": 50}],
        faults=[{"kind": "random_crashes", "count": 6, "stop_us": 4_000, "lasting": constant(300)}],
    )
    assert result.skipped_broadcasts > 0
    assert (result.undelivered, result.waiting, result.lost_packets) == (0, {}, 0)
    assert result.promises.complete


def test_a_crash_without_restart_is_the_end() -> None:
    rows, result = run(
        link={"delay": constant(10), "retransmit_us": 30},
        workloads=[{"kind": "periodic", "interval_us": 100, "senders": ["n0"], "count": 5}],
        faults=[{"kind": "crash", "nodes": "n1", "at_us": 150}],
    )
    assert len(rows.of(Kind.DELIVER, "n1")) == 2
    assert not rows.of(Kind.RESTART)
    assert result.drained
    assert not result.promises.complete


# Partitions


class GivesUp(Fifo):
    """Leaves the group at its first timer."""

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        return [*super().link_up(peer, now_us), SetTimer("enough", 15_000)]

    def timer(self, key: str, now_us: int) -> Effects:
        return [Stop(Reason.LEFT)]


def test_a_core_that_stops_itself_is_given_nothing_more_whatever_was_planned() -> None:
    def make(me: NodeId, members: Sequence[NodeId]) -> Fifo:
        return (GivesUp if me == "n1" else Fifo)(me, members)

    rows, result = run(
        make=make,
        nodes=3,
        link={"delay": constant(2_000)},
        workloads=[{"kind": "periodic", "interval_us": 4_000}],
        faults=[{"kind": "crash", "nodes": "n1", "at_us": 20_000, "restart_us": 25_000}],
        stop={"duration_us": 40_000},
    )
    of_n1 = [row for row in rows.rows if row[0] == "n1"]
    assert of_n1[-1][1:3] == (15_000, Kind.CRASH)
    assert result.drained
    assert result.skipped_broadcasts > 0


def test_a_partition_splits_drawn_groups_and_heals() -> None:
    for seed in range(5):
        _, result = run(
            nodes=6,
            seed=seed,
            link={"delay": constant(10), "retransmit_us": 50},
            workloads=[{"kind": "periodic", "interval_us": 100, "count": 20}],
            faults=[{"kind": "partition", "start_us": 500, "stop_us": 1_500, "parts": 3}],
        )
        assert (result.undelivered, result.waiting) == (0, {})
        assert result.final_us >= 1_910
        assert result.promises.complete


def test_a_partition_on_lossy_links_loses() -> None:
    _, result = run(
        workloads=[{"kind": "periodic", "interval_us": 100, "count": 20}],
        faults=[{"kind": "partition", "start_us": 500, "stop_us": 1_500}],
    )
    assert result.lost_packets == 2 * 10
    assert not result.promises.complete
    assert result.waiting


# Promises


@pytest.mark.parametrize(
    ("fields", "complete"),
    [
        ({}, True),
        ({"link": {"loss": 0.1}}, False),
        ({"link": {"loss": 0.1, "retransmit_us": 50}}, True),
        ({"link": {"duplicate": 0.5}}, True),
        ({"nodes": 4, "overrides": [{"from_nodes": "n0", "loss": 0.1}]}, False),
        ({"faults": [{"kind": "slow", "nodes": "n0", "factor": 5.0}]}, True),
        ({"faults": [{"kind": "skew", "nodes": "n0", "offset_us": 50}]}, True),
        ({"nodes": 4, "params": {"relay": False}}, True),
        ({"nodes": 4, "params": {"relay": False}, "topology": {"kind": "ring"}}, False),
        (
            {"link": {"retransmit_us": 5}, "faults": [{"kind": "partition", "start_us": 5, "stop_us": 500}]},
            True,
        ),
        ({"link": {"retransmit_us": 5}, "faults": [{"kind": "partition", "start_us": 5}]}, False),
    ],
)
def test_completeness_is_promised_only_where_it_must_hold(fields: dict[str, Any], complete: bool) -> None:
    _, result = run(**fields)
    assert result.promises.complete is complete
    assert result.promises.causal
    if complete:
        assert (result.undelivered, result.waiting) == (0, {})


# Clocks and timers


class Ticking(Fifo):
    """Sets timers when it broadcasts: one that fires, one that is replaced, one that is cancelled."""

    def __init__(self, me: NodeId, members: Sequence[NodeId]) -> None:
        super().__init__(me, members)
        self.seen_us: list[int] = []

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        effects = super().broadcast(payload, now_us)
        effects += [
            SetTimer("fires", now_us + 500),
            SetTimer("replaced", now_us + 100),
            SetTimer("replaced", now_us + 700),
            SetTimer("cancelled", now_us + 50),
            CancelTimer("cancelled"),
            CancelTimer("never set"),
            SetTimer("past", 0),
        ]
        return effects

    def timer(self, key: str, now_us: int) -> Effects:
        return [SetTimer("again", now_us + 5), SetTimer("overdue", 3)] if key == "fires" else []


def fired(rows: KeptRows) -> list[tuple[int, str]]:
    return [(row[1], row[8]) for row in rows.of(Kind.TIMER)]


def test_timers_fire_once_are_replaced_and_cancelled() -> None:
    rows, result = run(make=Ticking)
    assert fired(rows) == [(0, "past"), (500, "fires"), (500, "overdue"), (505, "again"), (700, "replaced")]
    assert result.drained


def test_timers_follow_the_node_s_own_clock() -> None:
    faults = [{"kind": "skew", "nodes": "n0", "offset_us": 1_000, "drift_ppm": 250_000}]
    rows, _ = run(make=Ticking, faults=faults)
    # The clock shows 1000 at the broadcast and 1500 after 400 true microseconds; then 5 take 4.
    assert fired(rows) == [(0, "past"), (400, "fires"), (400, "overdue"), (404, "again"), (560, "replaced")]


def test_timers_that_come_due_while_the_node_is_down_fire_at_its_restart() -> None:
    rows, _ = run(make=Ticking, faults=[{"kind": "crash", "nodes": "n0", "at_us": 400, "restart_us": 600}])
    assert fired(rows) == [(0, "past"), (600, "fires"), (600, "overdue"), (605, "again"), (700, "replaced")]
    rows, result = run(make=Ticking, faults=[{"kind": "crash", "nodes": "n0", "at_us": 400}])
    assert fired(rows) == [(0, "past")]
    assert result.drained


def test_a_core_sees_its_own_clock_and_the_trace_true_time() -> None:
    shown: list[int] = []

    class Watching(Vector):
        def receive(self, peer: NodeId, packet: Any, now_us: int) -> Effects:
            shown.append(now_us)
            return super().receive(peer, packet, now_us)

    rows, _ = run(make=Watching, faults=[{"kind": "skew", "nodes": "n1", "offset_us": 77}])
    assert shown == [87]
    assert rows.of(Kind.RECEIVE, "n1")[0][1] == 10


# Checks


def test_check_finds_a_core_that_breaks_its_invariants() -> None:
    class Broken(Vector):
        def receive(self, peer: NodeId, packet: Any, now_us: int) -> Effects:
            effects = super().receive(peer, packet, now_us)
            self.last += 1
            return effects

    with pytest.raises(InvariantError, match="own messages"):
        run(make=Broken)


# Causality


def slow_link(protocol: str) -> tuple[KeptRows, Outcome]:
    """n0 asks, n1 answers, and the question is late at n2."""
    return run(
        nodes=3,
        protocol=protocol,
        params={"relay": False},
        overrides=[{"from_nodes": "n0", "to_nodes": "n2", "delay": constant(500)}],
        workloads=[ONE, {"kind": "replies", "senders": ["n1"], "probability": 1.0}],
    )


def test_fifo_breaks_causality_where_a_slow_link_is_overtaken() -> None:
    rows, _ = slow_link("fifo")
    assert [(row[1], row[3], row[4]) for row in rows.of(Kind.DELIVER, "n2")] == [
        (20, "n1", 1),
        (500, "n0", 1),
    ]


def test_vector_waits_for_the_question() -> None:
    rows, result = slow_link("vector")
    assert [(row[1], row[3], row[4]) for row in rows.of(Kind.DELIVER, "n2")] == [
        (500, "n0", 1),
        (500, "n1", 1),
    ]
    assert result.promises.causal
