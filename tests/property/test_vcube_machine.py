"""VCube under any order of events: exactly once, in causal order, whatever the size of the group.

The judge is an oracle of sets (`Net.problems`), which shares nothing with the core.
"""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.parts import parts
from support.vcube_worlds import cube, drive

ALWAYS, ALL = 100, 1_000  # random runs
EXAMPLES, EXAMPLES_SLOW = 80, 1_000
PARAMS = [
    {},
    {"aggregate": False},
    {"tree": "single"},
    {"tree": "single", "aggregate": False},
    {"mtu_bytes": 60},
    {"mtu_bytes": 0, "size_model": "paper"},
]


class VCubeMachine(RuleBasedStateMachine):
    """Broadcasts, arrivals in any order, copies and restarts."""

    @initialize(count=st.integers(min_value=1, max_value=9), params=st.sampled_from(PARAMS))
    def start(self, count: int, params: dict[str, object]) -> None:
        self.net = cube(count, **params)

    @rule(node=st.integers(min_value=0, max_value=8))
    def broadcast(self, node: int) -> None:
        self.net.broadcast(self.net.names[node % len(self.net.names)])

    @rule(pick=st.integers(min_value=0), keep=st.booleans())
    @precondition(lambda self: self.net.flying)
    def arrive(self, pick: int, keep: bool) -> None:
        self.net.arrive(pick % len(self.net.flying), keep=keep)

    @rule(node=st.integers(min_value=0, max_value=8))
    def restart(self, node: int) -> None:
        self.net.restart(self.net.names[node % len(self.net.names)])

    @invariant()
    def nothing_is_wrong(self) -> None:
        if not hasattr(self, "net"):
            return
        assert self.net.problems() <= {"missing"}
        for node, core in self.net.cores.items():
            core.check()
            for waiting in core.explain():
                assert waiting.missing
                assert not set(waiting.missing) & set(self.net.delivered[node])

    def teardown(self) -> None:
        if not hasattr(self, "net"):
            return
        self.net.settle()
        assert self.net.problems() == set()
        assert not any(core.pending for core in self.net.cores.values()), "nothing waits when all is quiet"


def drive_machine(examples: int) -> None:
    case = VCubeMachine.TestCase
    case.settings = settings(max_examples=examples, stateful_step_count=40, deadline=None)
    case("runTest").runTest()


def test_machine():
    drive_machine(EXAMPLES)


@pytest.mark.slow
def test_machine_for_longer():
    drive_machine(EXAMPLES_SLOW)


def one_run(seed: int) -> int:
    draw = random.Random(seed)
    net = cube(draw.choice([1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17]), **draw.choice(PARAMS))
    drive(net, seed, replies=draw.random() < 0.5, copies=draw.random() < 0.5)
    assert net.problems() == set(), seed
    for core in net.cores.values():
        core.check()
        assert not core.pending
    return sum(map(len, net.delivered.values()))


@pytest.mark.parametrize("part", parts(ALL // ALWAYS, fast=1))
def test_a_thousand_random_runs(part):
    assert sum(map(one_run, range(part * ALWAYS, part * ALWAYS + ALWAYS))) > 4_000


@pytest.mark.slow
def test_ten_thousand_more():
    for seed in range(ALL, 11_000):
        one_run(seed)
