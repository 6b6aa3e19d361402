"""TDCA and ODCA under any order of events: in order, once, in time, and every message that came has an end.

The judge is an oracle of sets: the past of a message is what its origin had broadcast or delivered before,
with their pasts. It shares nothing with the cores.
"""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.net import Net
from whence.protocols.deadline.odca import Odca
from whence.protocols.deadline.tdca import Tdca

MEMBERS = "abcd"
APART_US = 1_000  # how far two clocks may be apart
nodes = st.sampled_from(MEMBERS)
options = st.fixed_dictionaries(
    {
        "deadlines": st.booleans(),
        "copies": st.integers(1, 2),
        "margin_us": st.sampled_from([0, 50]),
        "clock_error_us": st.just(APART_US),
    }
)
pulls = st.fixed_dictionaries(
    {
        "pull": st.sampled_from(["window", "exact"]),
        "retry_us": st.sampled_from([0, 1, 300]),
        "pulls": st.just(4),
    }
)


class DeadlineMachine(RuleBasedStateMachine):
    """Broadcasts, arrivals in any order, copies, losses, sleeping hosts, wrong clocks and restarts."""

    protocol: type[Tdca] = Tdca

    @initialize(
        params=options, more=pulls, offsets=st.lists(st.integers(0, APART_US), min_size=4, max_size=4)
    )
    def start(self, params: dict[str, object], more: dict[str, object], offsets: list[int]) -> None:
        if self.protocol is Odca:
            params |= more
        clocks = dict(zip(MEMBERS, offsets, strict=True))
        self.net = Net(self.protocol, MEMBERS, offsets_us=clocks, start_us=10_000, **params)
        self.past: dict[str, set[str]] = {}
        self.ends_us: dict[str, int] = {}
        self.reached: dict[str, set[str]] = {node: set() for node in MEMBERS}
        self.seen = dict.fromkeys(MEMBERS, 0)

    @rule(node=nodes, lifetime_us=st.integers(1, 5_000))
    def broadcast(self, node: str, lifetime_us: int) -> None:
        known = self.net.ids(node)
        message = str(self.net.broadcast(node, lifetime_us))
        self.past[message] = set(known).union(*(self.past[each] for each in known))
        self.ends_us[message] = self.net.now_us + lifetime_us

    @rule(pick=st.integers(min_value=0), keep=st.booleans())
    @precondition(lambda self: self.net.flying)
    def arrive(self, pick: int, keep: bool) -> None:
        net = self.net
        at = pick % len(net.flying)
        flight = net.flying[at]
        self.reached[flight.to].update(net.carried(flight))
        net.arrive(at, keep=keep)

    @rule(pick=st.integers(min_value=0))
    @precondition(lambda self: self.net.flying)
    def lose(self, pick: int) -> None:
        self.net.lose(pick % len(self.net.flying))

    @rule(for_us=st.integers(0, 3_000))
    def wait(self, for_us: int) -> None:
        self.net.pass_time(self.net.now_us + for_us)

    @rule(for_us=st.integers(0, 3_000))
    def sleep(self, for_us: int) -> None:
        self.net.now_us += for_us

    @rule(node=nodes)
    def restart(self, node: str) -> None:
        state = self.net.cores[node].save()
        json.dumps(state, default=lambda value: value.hex())  # plain data: any codec can carry it
        self.net.restart(node)
        assert self.net.cores[node].save() == state

    @invariant()
    def order_and_time_hold(self) -> None:
        for node in MEMBERS if hasattr(self, "net") else ():
            delivered = self.net.ids(node)
            for at in range(self.seen[node], len(delivered)):
                message, earlier = delivered[at], delivered[:at]
                assert message not in earlier, f"{node} delivered {message} twice"
                assert not any(message in self.past[each] for each in earlier), f"{message} out of order"
                at_us = self.net.delivered_us[node, self.net.delivered[node][at]]
                assert at_us <= self.ends_us[message], f"{message} late at {node}"
            self.seen[node] = len(delivered)

    @invariant()
    def invariants_hold(self) -> None:
        for core in self.net.cores.values() if hasattr(self, "net") else ():
            core.check()
            for waiting in core.explain():
                assert waiting.missing
                assert not {str(id_) for id_ in waiting.missing} & set(self.net.ids(core.me))

    def teardown(self) -> None:
        if not hasattr(self, "net"):
            return
        self.net.pass_time(self.net.now_us + 1_000_000)
        self.order_and_time_hold()
        for node in MEMBERS:
            ended = [each.split()[0] for each in self.net.ends(node)]
            assert len(ended) == len(set(ended)), "a message expires once"
            remote = {each for each in self.net.ids(node) if not each.startswith(node)}
            assert not remote & set(ended), "what is delivered does not expire"
            assert remote | set(ended) == self.reached[node], "every message that came has an end"
            assert self.net.cores[node].explain() == []


class OdcaMachine(DeadlineMachine):
    protocol = Odca


@pytest.mark.parametrize("machine", [DeadlineMachine, OdcaMachine])
def test_machine(machine):
    case = machine.TestCase
    case.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
    case("runTest").runTest()
