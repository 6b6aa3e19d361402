"""The kernel of TDCA and ODCA against the cores in the simulator: bit by bit the same run."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from support.running import simulate
from support.simulating import KeptRows
from whence.errors import MisuseError
from whence.kernels.deadline import kernel as deadline
from whence.lab.run import run
from whence.protocols.deadline.tdca import HOLES_MAX
from whence.sim.files import from_dict, to_dict
from whence.sim.model import Scenario
from whence.studies.deadline.grid import VARIANTS, scenario
from whence.trace.schema import Kind, Level

# Runs of TDCA and ODCA, drawn; and the same run by cores and by the kernel, in comparable form.


def drawn_scenario(seed: int) -> Scenario:
    """Small groups over bad links, with every option that the kernel knows; on a coarse clock things tie."""
    draw = random.Random(f"deadline kernel {seed}")
    nodes = draw.choice([1, 2, 3, 4, 5, 7, 9, 12])
    unit_us = draw.choice([1, 100, 1_000])  # how coarse the times are
    is_odca = draw.random() < 0.7
    params: dict[str, Any] = {
        "deadlines": draw.random() < 0.5,
        "copies": draw.choice([1, 1, 2, 3]),
        "margin_us": draw.choice([0, 0, 5, 50]) * unit_us,
        "clock_error_us": draw.choice([0, 0, 0, 30]) * unit_us,
        "lifetime_us": draw.choice([50, 400, 2_000]) * unit_us,
    }
    if draw.random() < 0.3:
        params["buffer_bytes"] = draw.choice([0, 200, 2_000])
    if is_odca:
        params["pull"] = draw.choice(["window", "exact"])
        params["retry_us"] = draw.choice([0, 1, 30, 200]) * unit_us
        params["pulls"] = draw.choice([1, 2, 3, 6])
        params["reply_bytes"] = draw.choice([0, 300, 1_000, 16_384])
    scenario: dict[str, Any] = {
        "name": "kernel",
        "protocol": "odca" if is_odca else "tdca",
        "nodes": nodes,
        "seed": seed,
        "params": params,
        "link": _link(draw, unit_us),
        "workloads": [_workload(draw, unit_us) for _ in range(draw.choice([1, 1, 2]))],
        "stop": {"duration_us": draw.choice([500, 1_500]) * unit_us},
    }
    if draw.random() < 0.6:
        scenario["control"] = _link(draw, unit_us)
    if draw.random() < 0.2:
        scenario["stop"] |= draw.choice([{"drain": False}, {"drain_max_us": 100 * unit_us}])
    return from_dict(scenario)


def _link(draw: random.Random, unit_us: int) -> dict[str, Any]:
    mean_us = draw.choice([0, 5, 60, 100]) * unit_us
    delay = draw.choice(
        [
            {"kind": "constant", "value_us": mean_us},
            {"kind": "uniform", "low_us": mean_us // 2, "high_us": 2 * mean_us},
            {"kind": "normal", "mean_us": mean_us, "deviation_us": mean_us // draw.choice([1, 3])},
        ]
    )
    return {
        "delay": delay,
        "loss": draw.choice([0.0, 0.05, 0.4]),
        "hop_loss": draw.choice([0.0, 0.05, 0.2]),
        "hop_delay_us": draw.choice([0, 0, 3]) * unit_us,
        "process_us": draw.choice([0, 0, 2]) * unit_us,
    }


def _workload(draw: random.Random, unit_us: int) -> dict[str, Any]:
    load: dict[str, Any] = {"kind": "poisson", "interval_us": max(1, draw.choice([10, 40, 100]) * unit_us)}
    if draw.random() < 0.2:
        load |= {"interval_us": 1, "count": draw.choice([3, 20])}  # many in one tick
    load["payload_bytes"] = draw.choice([0, 64])
    if draw.random() < 0.5:
        load["payload_max_bytes"] = 400
    if draw.random() < 0.8:
        mean_us = draw.choice([60, 300, 1_000]) * unit_us
        load["lifetime"] = {"kind": "exponential", "mean_us": mean_us, "min_us": draw.choice([0, mean_us])}
    return load


def by_cores(scenario: Scenario) -> dict[str, Any]:
    """What the simulator says of a run."""
    rows = KeptRows()
    result = simulate(scenario, rows, level=Level.DELIVERIES)
    return _comparable(
        rows, result.broadcasts, result.packets, result.control_packets, result.lost_packets, result.discards,
        result.expiries,
    )  # fmt: skip


def by_kernel(scenario: Scenario) -> dict[str, Any]:
    """What the kernel says of a run."""
    rows = KeptRows()
    outcome = deadline.run(scenario, rows, Level.DELIVERIES)
    return _comparable(
        rows, outcome.broadcasts, outcome.packets, outcome.control_packets, outcome.lost_packets,
        outcome.discards, outcome.expiries,
    )  # fmt: skip


def _comparable(
    rows: KeptRows,
    broadcasts: int,
    packets: int,
    control_packets: int,
    lost: int,
    discards: dict[str, int],
    expiries: dict[str, int],
) -> dict[str, Any]:
    return {
        "broadcasts": broadcasts,
        "packets": packets,
        "control packets": control_packets,
        "lost": lost,
        "discards": discards,
        "expiries": expiries,
        "rows": rows.rows,
    }


# The tests


ALWAYS, ALL = 25, 1_000
PLAIN = {"kind": "poisson", "interval_us": 9_000}


def one_run(seed: int) -> Counter[str]:
    drawn = drawn_scenario(seed)
    assert deadline.refusal(drawn) is None, seed
    expected, got = by_cores(drawn), by_kernel(drawn)
    for what in expected:
        assert got[what] == expected[what], (seed, what)
    seen = Counter([f"{drawn.protocol} {drawn.params.get('pull', '')}"])
    seen["deliveries"] += sum(row[2] is Kind.DELIVER for row in expected["rows"])
    for counted in (expected["discards"], expected["expiries"]):
        seen.update(counted)
    seen["lost"] += expected["lost"]
    seen["control"] += expected["control packets"]
    return seen


def compare(first: int, last: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in range(first, last):
        seen.update(one_run(seed))
    return seen


def test_the_kernel_is_equal_to_the_cores() -> None:
    seen = compare(0, ALWAYS)
    assert seen["deliveries"] > 25_000
    assert min(seen[what] for what in ("tdca ", "odca window", "odca exact")) >= ALWAYS // 6, seen
    for what in ("expired", "overtaken", "duplicate", "no room", "lost", "control"):
        assert seen[what] > 500, (what, seen)  # every way to end has been taken


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_kernel_is_equal_to_the_cores_a_thousand_times() -> None:
    assert compare(ALWAYS, ALL)["deliveries"] > 500_000


@pytest.mark.parametrize("reading", ["fitted", "face"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_the_study_is_equal(reading: str, variant: str) -> None:
    """With the study's own network: delays, losses, lifetimes and sizes as they are run."""
    chosen = scenario(reading, 9, variant, 7, 700_000)
    assert deadline.refusal(chosen) is None
    assert by_kernel(chosen) == by_cores(chosen)


def test_a_run_that_outgrows_its_room_is_repeated_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = scenario("fitted", 4, "ODCA", 1, 500_000)
    expected = by_kernel(chosen)
    whole, rooms = deadline.make_state, []

    def small(*values: object) -> object:
        state = whole(*values)  # type: ignore[arg-type]  # passed on as they came
        rooms.append(values[-1])
        return state._replace(pool=state.pool[: 4 << len(rooms)], events=state.events[: 9 << len(rooms)])

    monkeypatch.setattr(deadline, "make_state", small)
    assert by_kernel(chosen) == expected
    assert rooms[:3] == [1, 2, 4]


def changed(chosen: Scenario, **changes: object) -> Scenario:
    return from_dict(to_dict(chosen) | changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"protocol": "vector", "params": {}, "workloads": [PLAIN]}, "no kernel for protocol"),
        ({"params": {"mode": "published"}}, "printed algorithm"),
        ({"link": {"duplicate": 0.1}}, "more than delay and lose"),
        ({"control": {"retransmit_us": 500}}, "more than delay and lose"),
        ({"link": {"delay": {"kind": "exponential", "mean_us": 9}}}, "not constant, uniform or normal"),
        ({"topology": {"kind": "ring"}}, "not full"),
        ({"faults": [{"kind": "skew", "nodes": "all", "offset_us": 5}]}, "faults"),
        ({"workloads": [{"kind": "burst", "size": 2, "interval_us": 5, "count": 2}]}, "broadcast at random"),
        ({"record": {"sample_every_us": 100}}, "sampled"),
    ],
)
def test_what_it_does_not_know_it_refuses(changes: dict[str, object], reason: str) -> None:
    chosen = changed(scenario("fitted", 4, "TDCA", 1, 500_000), **changes)
    assert reason in str(deadline.refusal(chosen))
    with pytest.raises(MisuseError, match=reason):
        deadline.run(chosen)


def test_more_messages_than_it_can_remember_are_refused() -> None:
    """The cores forget holes beyond a limit; the kernel never does, so it does not go there."""
    load = {"kind": "poisson", "interval_us": 1, "count": HOLES_MAX + 1}
    chosen = changed(scenario("fitted", 2, "TDCA", 1, 500_000), workloads=[load])
    with pytest.raises(MisuseError, match="broadcasts more than"):
        deadline.run(chosen)


@pytest.mark.parametrize("level", [Level.MEASURES, Level.DELIVERIES])
def test_a_run_says_the_same_of_either_path(level: Level) -> None:
    chosen = scenario("fitted", 6, "ODCA", 2, 900_000)
    rows = KeptRows(), KeptRows()
    by_kernel = run(chosen, recorder=rows[0], level=level, kernel="always")
    by_cores = run(chosen, recorder=rows[1], level=level, kernel="never")
    assert (by_kernel.path, by_cores.path) == ("kernel", "core")
    assert rows[0].rows == rows[1].rows
    for name in by_kernel.__struct_fields__:
        value = getattr(by_kernel, name)
        if value is not None and name not in ("path", "why", "detail"):
            assert value == getattr(by_cores, name), name


def test_a_trace_of_all_packets_is_the_cores() -> None:
    outcome = run(scenario("fitted", 4, "ODCA", 1, 500_000), level=Level.ALL, kernel="always")
    assert outcome.path == "core"
    assert "every packet" in outcome.why
