"""The kernel of oppnet against its cores: the same receives, ends, times, orders and barriers, bit by bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.hashing import HashingRecorder
from support.oppnet_runs import small_scenario
from support.running import simulate
from support.simulating import KeptRows
from whence.core.protocol import Protocol
from whence.errors import MisuseError
from whence.kernels.oppnet import kernel as oppnet
from whence.kernels.oppnet.kernel import OppnetDetail, run_plan, since_entry
from whence.kernels.oppnet.state import OppnetSettings
from whence.lab.run import run
from whence.overlay.contacts import ContactPlan, make_plan
from whence.protocols.barrier.oppnet import Oppnet
from whence.sim.files import from_dict, to_dict
from whence.sim.model import Scenario
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, Level, PromisesMade
from whence.verify.run import verify_table


def by_cores(scenario: Scenario) -> dict[str, Any]:
    """Each node's receives, deliveries and expiries in order, and the size of every barrier."""
    barriers: dict[tuple[str, int], int] = {}

    def make(me: str, members: Sequence[str]) -> Protocol:
        core = Oppnet(me, members, **scenario.params)
        broadcast = core.order.broadcast

        def noted(*given: Any) -> Any:
            packet = broadcast(*given)
            barriers[me, packet.number] = len(packet.barrier)
            return packet

        core.order.broadcast = noted  # type: ignore[method-assign]  # only to look at what it makes
        return core

    rows = KeptRows()
    result = simulate(scenario, rows, make=make, level=Level.ALL)
    discarded = {row[:2] + row[3:6] for row in rows.of(Kind.DISCARD)}
    late = _late(rows)
    return {
        "broadcasts": sorted((row[0], row[1], row[4]) for row in rows.of(Kind.BROADCAST)),
        "receives": sorted(
            (row[0], row[1], row[3], row[4])
            for row in rows.of(Kind.RECEIVE)
            if row[3] is not None and row[:2] + row[3:6] not in discarded and row[:2] + row[3:5] not in late
        ),
        "ends": _by_node(
            (row[0], row[1], str(row[2]), row[3], row[4])
            for row in rows.rows
            if row[2] in (Kind.DELIVER, Kind.EXPIRE)
        ),
        "late": len(late),
        "barriers": barriers,
        "discards": sum(result.discards.values()),
    }


def _late(rows: KeptRows) -> set[Any]:
    """(node, time, origin, number) of what ended on its arrival."""
    arrivals = Counter(row[:2] + row[3:5] for row in rows.of(Kind.RECEIVE))
    arrivals.subtract(row[:2] + row[3:5] for row in rows.of(Kind.DISCARD))
    return {key for row in rows.of(Kind.EXPIRE) if arrivals[key := row[:2] + row[3:5]] > 0}


def by_kernel(scenario: Scenario) -> dict[str, Any]:
    rows = KeptRows()
    outcome = oppnet.run(scenario, rows, Level.DELIVERIES).detail
    names = outcome.names
    own = outcome.is_own
    received = zip(
        outcome.node[~own].tolist(), outcome.received_us[~own].tolist(), outcome.message[~own], strict=True
    )
    return {
        "broadcasts": sorted((row[0], row[1], row[4]) for row in rows.of(Kind.BROADCAST)),
        "receives": sorted(
            (names[node], time_us, names[outcome.origin[message]], int(outcome.number[message]))
            for node, time_us, message in received
        ),
        "ends": _by_node(
            (row[0], row[1], str(row[2]), row[3], row[4])
            for row in rows.rows
            if row[2] in (Kind.DELIVER, Kind.EXPIRE)
        ),
        "barriers": {
            (names[origin], number): entries
            for origin, number, entries in zip(
                outcome.origin.tolist(),
                outcome.number.tolist(),
                outcome.barrier_entries.tolist(),
                strict=True,
            )
        },
        "late": len(outcome.late),
        "discards": outcome.duplicates + outcome.too_late - len(outcome.late),
    }


def _by_node(rows: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row[1:])
    return found


ALWAYS, ALL = 60, 1_000
ORDERED = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=False)


def one_run(seed: int) -> Counter[str]:
    scenario = small_scenario(seed)
    assert oppnet.refusal(scenario) is None, seed
    expected, got = by_cores(scenario), by_kernel(scenario)
    for what in expected:
        assert got[what] == expected[what], (seed, what)
    return Counter(
        receives=len(expected["receives"]),
        expiries=sum(end[1] == "5" for ends in expected["ends"].values() for end in ends),
        discards=expected["discards"],
        late=expected["late"],
        skewed=bool(scenario.faults),
        safe=scenario.params["mode"] == "safe",
    )


def compare(first: int, last: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in range(first, last):
        seen.update(one_run(seed))
    return seen


def test_the_kernel_is_equal_to_the_cores() -> None:
    seen = compare(0, ALWAYS)
    assert seen["receives"] > 100 * ALWAYS
    assert min(seen["expiries"], seen["discards"]) > 2 * ALWAYS
    assert seen["late"] > ALWAYS // 2
    assert ALWAYS // 5 < seen["skewed"] < ALWAYS * 4 // 5
    assert ALWAYS // 5 < seen["safe"] < ALWAYS * 4 // 5


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_kernel_is_equal_to_the_cores_a_thousand_times() -> None:
    assert compare(ALWAYS, ALL)["receives"] > 100 * (ALL - ALWAYS)


def crowd(nodes: int = 30, seed: int = 1) -> ContactPlan:
    """Many short contacts of nodes that come and go."""
    draw = np.random.default_rng(seed)
    second_us = 1_000_000
    presence = [(node, int(node * 5 * second_us), int((node * 5 + 200) * second_us)) for node in range(nodes)]
    rows = []
    for _ in range(60 * nodes):
        one, other = sorted(draw.choice(nodes, 2, replace=False).tolist())
        start_us, stop_us = presence[other][1], presence[one][2]
        if stop_us - start_us > second_us:
            begins_us = int(draw.integers(start_us, stop_us))
            rows.append(
                (one, other, begins_us, min(begins_us + int(draw.integers(1, 20 * second_us)), stop_us))
            )
    return make_plan([f"x{node}" for node in range(nodes)], rows, presence)


def verified(plan: ContactPlan, settings: OppnetSettings) -> tuple[OppnetDetail, int]:
    outcome = run_plan(plan, settings, since_entry(plan, 3_000_000, 4_000_000))
    trace = MemoryTrace()
    oppnet.record(outcome, trace)
    report = verify_table(trace.table("run"), ORDERED, outcome.names, run="run")
    assert (report.counts.duplicate, report.counts.malformed, report.counts.created) == (0, 0, 0)
    return outcome, report.counts.causal


def test_in_a_crowd_safe_mode_breaks_nothing_and_loses_nothing_that_published_mode_expires() -> None:
    plan = crowd()
    lifetime_us = 60_000_000
    published, _ = verified(plan, OppnetSettings(lifetime_us=lifetime_us, mode="published"))
    safe, broken = verified(plan, OppnetSettings(lifetime_us=lifetime_us))
    assert broken == 0
    before, after = published.measures(), safe.measures()
    assert before.receives == after.receives > 3_000  # the layer below does not depend on the order above
    assert before.expiries > 0
    assert after.expiries == 0
    assert after.barrier_mean < before.barrier_mean
    assert after.deliveries + after.waiting == after.broadcasts + after.receives


def test_skewed_clocks_break_published_mode_and_not_safe_mode() -> None:
    plan = crowd()
    offsets_us = tuple(
        int(each) for each in np.random.default_rng(2).integers(0, 10_000_000, len(plan.nodes))
    )
    skewed = OppnetSettings(lifetime_us=20_000_000, offsets_us=offsets_us)
    _, broken = verified(plan, replace(skewed, mode="published"))
    assert broken > 0
    _, broken = verified(plan, replace(skewed, skew_us=10_000_000))
    assert broken == 0


def test_registries_stay_bounded_where_nodes_come_and_go() -> None:
    plan = crowd(60)
    settings = OppnetSettings(lifetime_us=30_000_000)
    outcome = run_plan(plan, settings, since_entry(plan, 3_000_000, 4_000_000), watch=[0, 30])
    rows = outcome.registries
    assert set(rows[:, 0].tolist()) == {0, 30}
    assert (np.diff(rows[rows[:, 0] == 30][:, 1]) == 1_000_000).all()
    during = rows[(rows[:, 0] == 30) & (rows[:, 1] > 160_000_000) & (rows[:, 1] < 350_000_000)]
    heard_of = len(set(outcome.origin[outcome.message[outcome.node == 30]].tolist()))
    assert 0 < during[:, 3].max() < heard_of  # it has forgotten who left long ago


def test_watched_registries_are_those_of_the_core() -> None:
    """At the end of a run, when nothing has been left to forget."""
    scenario = from_dict(
        {
            "nodes": 3, "protocol": "oppnet", "params": {"gap_us": 50, "setup_max_us": 0},
            "topology": {"kind": "contacts", "rows": [[0, 1, 1_000, 9_000], [1, 2, 4_000, 6_000]]},
            "workloads": [{"kind": "periodic", "interval_us": 700}],
            "stop": {"duration_us": 8_000, "drain": False},
        }
    )  # fmt: skip
    from whence.sim.engine import Engine

    engine = Engine(scenario, lambda me, members: _core(me, scenario.params))
    engine.run()
    plan = make_plan("012", [(0, 1, 1_000, 9_000), (1, 2, 4_000, 6_000)])
    rows = np.array(sorted((at, node) for node in range(3) for at in range(0, 8_000, 700)))
    settings = OppnetSettings(gap_us=50, setup_max_us=0, delay_us=1_000, end_us=8_000)
    outcome = run_plan(plan, settings, rows, watch=[0, 1, 2], sample_us=7_999)
    orders = [driver.core.order for driver in engine.drivers]  # type: ignore[attr-defined]  # of Oppnet
    expected = [list(order.registries()) for order in orders]
    assert outcome.registries[:, 2:].tolist() == expected


def _core(me: str, params: dict[str, object]) -> object:
    from whence.protocols import registry

    return registry.make("oppnet", me, [], params)


def test_measures_are_defined_as_in_the_paper() -> None:
    plan = make_plan(
        "abc", [(0, 1, 1_000_000, 5_000_000)], [(0, 0, 9_000_000), (1, 0, 9_000_000), (2, 0, 9_000_000)]
    )
    settings = OppnetSettings(setup_max_us=0, gap_us=100_000, delay_us=2_000)
    outcome = run_plan(plan, settings, np.array([(500_000, 0), (2_000_000, 1), (6_000_000, 2)]))
    measures = outcome.measures()
    assert (measures.broadcasts, measures.receives, measures.deliveries) == (3, 2, 5)
    assert measures.delivery_ratio == 1.0
    # b begins at 1.002 s and a at 1.004 s; slots end every 0.1 s after that; a packet takes 2 ms
    assert sorted(outcome.delay_us.tolist()) == [2_002_000 - 2_000_000 + 2_000, 1_104_000 + 2_000 - 500_000]
    assert (measures.latency.count, measures.latency.max_us, measures.expiries) == (2, 0, 0)
    assert (measures.age.max_us, measures.barrier_max) == (606_000, 1)


@pytest.mark.parametrize("level", [Level.MEASURES, Level.DELIVERIES])
def test_a_run_says_the_same_of_either_path(level: Level) -> None:
    for seed in range(30):
        scenario = small_scenario(seed)
        hashes = HashingRecorder(), HashingRecorder()
        by_kernel = run(scenario, recorder=hashes[0], level=level, kernel="always")
        by_cores = run(scenario, recorder=hashes[1], level=level, kernel="never")
        assert (by_kernel.path, by_cores.path) == ("kernel", "core")
        assert hashes[0].hexdigest() == hashes[1].hexdigest(), seed
        for name in by_kernel.__struct_fields__:
            value = getattr(by_kernel, name)
            if value is not None and name not in ("path", "why", "detail"):
                assert value == getattr(by_cores, name), (seed, name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"protocol": "barrier", "params": {}}, "no kernel for protocol 'barrier'"),
        ({"link": {"loss": 0.1}}, "more than delay"),
        ({"link": {"delay": {"kind": "uniform", "low_us": 1, "high_us": 9}}}, "constant"),
        ({"params": {"capacity": 5}}, "limited"),
        ({"faults": [{"kind": "skew", "nodes": "n0", "offset_us": 5}]}, "skew_us"),
        ({"faults": [{"kind": "skew", "nodes": "n0", "offset_us": -5}]}, "behind"),
    ],
)
def test_what_is_not_covered_is_refused(change: dict[str, object], reason: str) -> None:
    plain = to_dict(small_scenario(3)) | {"faults": [], "params": {}} | change
    scenario = from_dict(plain)
    assert reason in str(oppnet.refusal(scenario))
    with pytest.raises(MisuseError, match=reason):
        oppnet.run(scenario)
    simulate(scenario)  # the cores can
