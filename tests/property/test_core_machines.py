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

from support.cores import Bench

MEMBERS = "abcd"
RING = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
nodes = st.sampled_from(MEMBERS)


class CoreMachine(RuleBasedStateMachine):
    """Broadcasts, arrivals in any order, duplicates and restarts, over a mesh or a ring."""

    protocol = ""
    causal = False

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(self.protocol, MEMBERS)
        self.past: dict[str, set[str]] = {}
        self.seen = dict.fromkeys(MEMBERS, 0)

    @rule(ring=st.booleans(), relay=st.booleans())
    @precondition(lambda self: not self.past)
    def start_again(self, ring: bool, relay: bool) -> None:
        self.bench = Bench(self.protocol, MEMBERS, links=RING if ring else None, relay=relay or ring)

    @rule(node=nodes, payload=st.binary(max_size=4))
    def broadcast(self, node: str, payload: bytes) -> None:
        before = set(self.bench.ids(node))
        self.bench.broadcast(node, payload)
        self.past[f"{node}:{self.bench.cores[node].last}"] = before

    @rule(pick=st.integers(min_value=0), keep=st.booleans())
    @precondition(lambda self: self.bench.flying)
    def arrive(self, pick: int, keep: bool) -> None:
        self.bench.arrive(pick % len(self.bench.flying), keep=keep)

    @rule(node=nodes)
    def restart(self, node: str) -> None:
        state = self.bench.cores[node].save()
        assert state == self.bench.cores[node].save()
        json.dumps(state, default=lambda value: value.hex())  # plain data: any codec can carry it
        self.bench.restart(node)
        assert self.bench.cores[node].save() == state

    @invariant()
    def order_holds(self) -> None:
        for node in MEMBERS:
            ids = self.bench.ids(node)
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
        for core in self.bench.cores.values():
            core.check()
            for waiting in core.explain():
                assert waiting.missing
                assert not {str(id_) for id_ in waiting.missing} & set(self.bench.ids(core.me))

    def teardown(self) -> None:
        self.bench.settle()
        self.order_holds()
        for node in MEMBERS:
            assert set(self.bench.ids(node)) == set(self.past), "everything arrives everywhere"
            assert self.bench.cores[node].explain() == []


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
