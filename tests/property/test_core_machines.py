"""Hypothesis drives small groups of cores through every order of events that it can think of.

The judge is an oracle of sets: the past of a message is what its origin had broadcast or delivered
before. It shares nothing with the cores.
"""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.net import Net

MEMBERS = "abcd"
RING = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
nodes = st.sampled_from(MEMBERS)


class CoreMachine(RuleBasedStateMachine):
    """Broadcasts, arrivals in any order, duplicates and restarts, over a mesh or a ring."""

    protocol = ""
    causal = False

    def __init__(self) -> None:
        super().__init__()
        self.net = Net(self.protocol, MEMBERS, step_us=1)
        self.past: dict[str, set[str]] = {}
        self.seen = dict.fromkeys(MEMBERS, 0)

    @rule(ring=st.booleans(), relay=st.booleans())
    @precondition(lambda self: not self.past)
    def start_again(self, ring: bool, relay: bool) -> None:
        self.net = Net(self.protocol, MEMBERS, RING if ring else None, step_us=1, relay=relay or ring)

    @rule(node=nodes, payload=st.binary(max_size=4))
    def broadcast(self, node: str, payload: bytes) -> None:
        before = set(self.net.ids(node))
        self.net.broadcast(node, payload=payload)
        self.past[f"{node}:{self.net.cores[node].last}"] = before

    @rule(pick=st.integers(min_value=0), keep=st.booleans())
    @precondition(lambda self: self.net.flying)
    def arrive(self, pick: int, keep: bool) -> None:
        self.net.arrive(pick % len(self.net.flying), keep=keep)

    @rule(node=nodes)
    def restart(self, node: str) -> None:
        state = self.net.cores[node].save()
        assert state == self.net.cores[node].save()
        json.dumps(state, default=lambda value: value.hex())  # plain data: any codec can carry it
        self.net.restart(node)
        assert self.net.cores[node].save() == state

    @invariant()
    def order_holds(self) -> None:
        for node in MEMBERS:
            ids = self.net.ids(node)
            for at in range(self.seen[node], len(ids)):
                earlier = set(ids[:at])
                assert ids[at] not in earlier, f"{node} delivered {ids[at]} twice"
                needed = self.past[ids[at]]
                if not self.causal:
                    needed = {past for past in needed if past.split(":")[0] == ids[at].split(":")[0]}
                assert needed <= earlier, f"{node} delivered {ids[at]} before {needed - earlier}"
            self.seen[node] = len(ids)

    @invariant()
    def invariants_hold(self) -> None:
        for core in self.net.cores.values():
            core.check()
            for waiting in core.explain():
                assert waiting.missing
                assert not {str(id_) for id_ in waiting.missing} & set(self.net.ids(core.me))

    def teardown(self) -> None:
        self.net.settle()
        self.order_holds()
        for node in MEMBERS:
            assert set(self.net.ids(node)) == set(self.past), "everything arrives everywhere"
            assert self.net.cores[node].explain() == []


class FifoMachine(CoreMachine):
    protocol = "fifo"


class VectorMachine(CoreMachine):
    protocol = "vector"
    causal = True


@pytest.mark.parametrize("machine", [FifoMachine, VectorMachine])
def test_machine(machine):
    case = machine.TestCase
    case.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
    case("runTest").runTest()
