"""Lateness in simulated runs: what keeps deadlines passes, what does not is found, clocks get their slack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from support.running import simulate
from whence.core.message import NodeId
from whence.core.protocol import Protocol
from whence.protocols.deadline.tdca import Tdca
from whence.protocols.deadline.wire import DeadlineMessage
from whence.sim.files import Scenario, from_dict
from whence.sim.promises import clock_slack_us
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Level
from whence.verify.report import RunReport
from whence.verify.run import verify_table

NODES = ["n0", "n1", "n2", "n3"]


def scenario(protocol: str = "tdca", **more: Any) -> Scenario:
    """Lifetimes about as long as packets take, over links that lose."""
    base: dict[str, Any] = {
        "nodes": 4,
        "protocol": protocol,
        "seed": 3,
        "stop": {"duration_us": 300_000},
        "link": {"delay": {"kind": "uniform", "low_us": 500, "high_us": 30_000}, "loss": 0.1},
        "workloads": [
            {
                "kind": "poisson",
                "interval_us": 8_000,
                "lifetime": {"kind": "uniform", "low_us": 5_000, "high_us": 60_000},
            }
        ],
    }
    return from_dict(base | more)


def judged(described: Scenario, **options: Any) -> RunReport:
    slack_us = options.pop("slack_us", None)
    memory = MemoryTrace()
    result = simulate(described, memory, level=Level.DELIVERIES, **options)
    promises = result.promises
    assert promises.timely
    if slack_us is not None:
        promises = msgspec.structs.replace(promises, clock_slack_us=slack_us)
    return verify_table(memory.table("r"), promises, NODES, None, run="r")


@pytest.mark.parametrize("protocol", ["tdca", "odca"])
def test_deadlines_are_kept_in_true_time(protocol: str) -> None:
    report = judged(scenario(protocol))
    assert report.ok, report.findings[:3]
    assert report.promises.clock_slack_us == 0
    assert report.expiries > 10


class Careless(Tdca):
    """A broken core: it never looks at the clock."""

    def _is_late(self, message: DeadlineMessage, now_us: int) -> bool:
        return False


def test_a_core_that_does_not_look_at_the_clock_is_found() -> None:
    def make(me: NodeId, members: Sequence[NodeId]) -> Protocol:
        return Careless(me, members)

    report = judged(scenario(), make=make)
    assert report.broken == ["late"]
    assert report.counts.late > 10
    late = report.findings[0]
    assert late.delivered_us is not None
    assert late.broadcast_us is not None
    assert f"delivered {late.delivered_us - late.broadcast_us} us after" in late.detail


def skew(nodes: list[str], offset_us: int = 0, drift_ppm: int = 0) -> dict[str, Any]:
    return {"kind": "skew", "nodes": nodes, "offset_us": offset_us, "drift_ppm": drift_ppm}


@pytest.mark.parametrize(
    ("faults", "slack_us"),
    [
        ([], 0),
        ([skew(["n0"], 700)], 701),
        ([skew(["n0"], 700), skew(["n1"], -300)], 1_001),
        ([skew(NODES, 700)], 1),  # all wrong in the same way: but for rounding, they agree
        ([skew(["n0"], 0, 1_000)], 1_001),  # a millionth of a second every millisecond, for a second
        ([skew(NODES, -5_000)], 5_001),  # clocks do not show less than 0: these stand still at first
    ],
)
def test_slack_is_the_greatest_difference_of_two_clocks(faults: list[Any], slack_us: int) -> None:
    assert clock_slack_us(scenario(faults=faults), 1_000_000) == slack_us


@pytest.mark.parametrize("protocol", ["tdca", "odca"])
def test_skewed_clocks_cost_their_difference_and_no_more(protocol: str) -> None:
    wrong = scenario(protocol, faults=[skew(["n0", "n1"], 4_000, 20_000), skew(["n2"], -2_000)])
    assert judged(wrong, slack_us=0).counts.late > 0
    report = judged(wrong)
    assert report.promises.clock_slack_us > 6_000
    assert report.counts.late == 0
    assert report.ok, report.findings[:3]
