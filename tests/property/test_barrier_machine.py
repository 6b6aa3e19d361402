"""Causal barriers under any sequence of events that hypothesis finds; the verifier judges the whole."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.net import Net

NAMES = ["a", "b", "c", "d"]
SKEW_US = 20
nodes = st.sampled_from(NAMES)


class BarrierMachine(RuleBasedStateMachine):
    """Broadcasts with and without lifetimes, arrivals in any order, copies, losses, restarts, time."""

    protocol = "barrier"

    @initialize(offsets_us=st.lists(st.integers(0, SKEW_US), min_size=4, max_size=4))
    def start(self, offsets_us: list[int]) -> None:
        clocks = dict(zip(NAMES, offsets_us, strict=True))
        extra = {"gap_us": 2, "setup_max_us": 0, "capacity": 3} if self.protocol == "oppnet" else {}
        self.net = Net(
            self.protocol, NAMES, offsets_us=clocks, start_us=1_000, check=True, skew_us=SKEW_US, **extra
        )

    @rule(node=nodes, lifetime_us=st.none() | st.sampled_from([1, 5, 30, 100]))
    def broadcast(self, node: str, lifetime_us: int | None) -> None:
        self.net.broadcast(node, lifetime_us)

    @rule(pick=st.integers(min_value=0), keep=st.booleans())
    @precondition(lambda self: self.net.flying)
    def arrive(self, pick: int, keep: bool) -> None:
        self.net.arrive(pick % len(self.net.flying), keep=keep)

    @rule(pick=st.integers(min_value=0))
    @precondition(lambda self: self.net.flying)
    def lose(self, pick: int) -> None:
        self.net.lose(pick % len(self.net.flying))

    @rule(step_us=st.sampled_from([0, 1, 2, 10, 60]))
    def pass_time(self, step_us: int) -> None:
        self.net.pass_time(self.net.now_us + step_us)

    @rule(node=nodes)
    def restart(self, node: str) -> None:
        self.net.restart(node)

    @rule(pair=st.sampled_from([(a, b) for a in NAMES for b in NAMES if a < b]))
    @precondition(lambda self: self.protocol == "oppnet")
    def meet_or_part(self, pair: tuple[str, str]) -> None:
        if self.net.is_linked(*pair):
            self.net.cut(*pair)
        else:
            self.net.link(*pair)

    @invariant()
    def nothing_is_late_and_what_waits_is_explained(self) -> None:
        if not hasattr(self, "net"):
            return
        assert self.net.late == 0
        for node, core in self.net.cores.items():
            for waiting in core.explain():
                assert waiting.missing
                assert not set(waiting.missing) & set(self.net.delivered[node])

    def teardown(self) -> None:
        if hasattr(self, "net"):
            report = self.net.report()
            assert report.ok, report.findings


class OppnetMachine(BarrierMachine):
    """The same over contacts that come and go, with caches of three messages."""

    protocol = "oppnet"


@pytest.mark.parametrize("machine", [BarrierMachine, OppnetMachine])
def test_machine(machine: type[BarrierMachine]) -> None:
    case = machine.TestCase
    case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
    case("runTest").runTest()
