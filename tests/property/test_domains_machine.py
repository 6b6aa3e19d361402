"""Hypothesis drives servers in domains through every order of events that it can think of.

The judge is an oracle of sets, as in `test_core_machines`; here a message is for one server.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.net import Net

MEMBERS = "abcde"
CHAIN = [["a", "b", "c"], ["c", "d"], ["d", "e"]]
STAR = [["a", "b"], ["a", "c"], ["a", "d"], ["a", "e"]]
nodes = st.sampled_from(MEMBERS)


class UnicastMachine(RuleBasedStateMachine):
    """Sends, arrivals in any order, duplicates and restarts."""

    protocol = "domains"
    params: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.net = Net(self.protocol, MEMBERS, step_us=1, **self.params)
        self.past: dict[str, set[str]] = {}  # message -> all that was sent causally before it
        self.to: dict[str, str] = {}
        self.known: dict[str, set[str]] = {node: set() for node in MEMBERS}
        self.seen = dict.fromkeys(MEMBERS, 0)

    @rule(node=nodes, to=nodes, payload=st.binary(max_size=4))
    def send(self, node: str, to: str, payload: bytes) -> None:
        net = self.net
        message = f"{node}:{net.cores[node].last + 1}"
        self.past[message] = set(self.known[node])
        self.to[message] = to
        self.known[node].add(message)
        net.do(node, lambda core, now_us: core.send(to, payload, now_us))

    @rule(pick=st.integers(min_value=0), keep=st.booleans())
    @precondition(lambda self: self.net.flying)
    def arrive(self, pick: int, keep: bool) -> None:
        self.net.arrive(pick % len(self.net.flying), keep=keep)

    @rule(node=nodes)
    def restart(self, node: str) -> None:
        state = self.net.cores[node].save()
        json.dumps(state, default=lambda value: value.hex())  # plain data: any codec can carry it
        self.net.restart(node)
        assert self.net.cores[node].save() == state

    @invariant()
    def order_holds(self) -> None:
        for node in MEMBERS:
            ids = self.net.ids(node)
            for at in range(self.seen[node], len(ids)):
                earlier = set(ids[:at])
                assert self.to[ids[at]] == node
                assert ids[at] not in earlier, f"{node} delivered {ids[at]} twice"
                needed = {past for past in self.past[ids[at]] if self.to[past] == node}
                assert needed <= earlier, f"{node} delivered {ids[at]} before {needed - earlier}"
                self.known[node] |= self.past[ids[at]] | {ids[at]}
            self.seen[node] = len(ids)

    @invariant()
    def invariants_hold(self) -> None:
        for core in self.net.cores.values():
            core.check()
            assert all(waiting.missing for waiting in core.explain())

    def teardown(self) -> None:
        self.net.settle()
        self.order_holds()
        for node in MEMBERS:
            assert set(self.net.ids(node)) == {m for m, to in self.to.items() if to == node}
            assert self.net.cores[node].explain() == []


MACHINES = [
    ("matrix", {"stamps": "full"}),
    ("matrix", {"stamps": "updates"}),
    ("domains", {"domains": CHAIN, "stamps": "updates"}),
    ("domains", {"domains": STAR, "stamps": "updates-scan"}),
    ("domains", {"domains": "tree", "size": 3, "stamps": "full"}),
]


@pytest.mark.parametrize(("protocol", "params"), MACHINES)
def test_machine(protocol: str, params: dict[str, Any]) -> None:
    machine = type("Machine", (UnicastMachine,), {"protocol": protocol, "params": params})
    case = machine.TestCase
    case.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
    case("runTest").runTest()
