"""PRC under any order of events: links that open, close and break, joins, crashes and broadcasts at random.

Judged from the recorded deliveries by `whence.verify`, and by sets of what every survivor must have
(prc_worlds.py).
"""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support import prc_worlds
from support.parts import parts
from support.prc_worlds import Overlay, Schedule

ALWAYS, ALL = 100, 300  # random schedules


class PrcMachine(RuleBasedStateMachine):
    """Hypothesis chooses what happens next; which process it happens to comes from its seed."""

    @initialize(
        seed=st.integers(0, 10**6),
        timeout_us=st.sampled_from([40, 600, 100_000]),
        own_after_echo=st.booleans(),
    )
    def start(self, seed: int, timeout_us: int, own_after_echo: bool) -> None:
        self.overlay = Overlay(seed, timeout_us=timeout_us, own_after_echo=own_after_echo)
        self.overlay.found()
        self.schedule = Schedule(self.overlay)

    def after(self) -> None:
        self.overlay.fire()
        self.schedule.rejoin()

    @rule(times=st.integers(1, 12))
    def arrive(self, times: int) -> None:
        for _ in range(times):
            self.schedule.arrive()
            self.after()

    @rule()
    def broadcast(self) -> None:
        self.schedule.broadcast()

    @rule()
    def open(self) -> None:
        self.schedule.open()
        self.after()

    @rule()
    def open_again(self) -> None:
        self.schedule.open_again()

    @rule()
    def close(self) -> None:
        self.schedule.close()
        self.after()

    @rule()
    def hang_up(self) -> None:
        self.schedule.hang_up()
        self.after()

    @rule()
    def crash(self) -> None:
        self.schedule.crash()
        self.after()

    @rule()
    def join(self) -> None:
        self.schedule.join()

    @rule()
    def haunt(self) -> None:
        self.schedule.haunt()

    @rule()
    def wait(self) -> None:
        self.schedule.wait()
        self.after()

    @rule(pick=st.integers(0))
    def restart_from_saved_state(self, pick: int) -> None:
        name = self.overlay.alive[pick % len(self.overlay.alive)]
        state = self.overlay.cores[name].save()
        self.overlay.net.restart(name)
        assert self.overlay.cores[name].save() == state

    @invariant()
    def nobody_has_a_message_twice(self) -> None:
        if hasattr(self, "overlay"):
            for ids in self.overlay.net.delivered.values():
                assert len(ids) == len(set(ids))

    @invariant()
    def every_handshake_ends_whatever_the_others_do(self) -> None:
        if hasattr(self, "overlay"):
            assert self.overlay.unwatched == set()

    def teardown(self) -> None:
        if hasattr(self, "overlay"):
            self.schedule.end()
            assert self.overlay.problems() == set()


def test_machine():
    case = PrcMachine.TestCase
    case.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
    case("runTest").runTest()


def one_run(seed: int) -> Overlay:
    overlay = prc_worlds.one_run(seed)
    assert overlay.problems() == set(), seed
    return overlay


@pytest.mark.parametrize("part", parts(ALL // ALWAYS, fast=1))
def test_three_hundred_random_schedules(part):
    runs = map(one_run, range(part * ALWAYS, part * ALWAYS + ALWAYS))
    assert sum(len(overlay.safe_pairs()) for overlay in runs) > 300


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_random_schedules(part):
    for seed in range(1_000 * (part + 1), 1_000 * (part + 2)):
        one_run(seed)
