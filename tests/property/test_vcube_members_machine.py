"""Hypothesis drives a VCube whose members crash, leave, join and are cut off, in any order it can think of.

The judges are the independent verifier and an oracle of vectors in `support/vcube_world.py`: neither
knows the protocol's state.
"""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.vcube_world import INTERVAL_US, TIMEOUT_US, World, quiet

places = st.integers(0, 4)


class MembersMachine(RuleBasedStateMachine):
    """Up to five members; time passes only when a rule says so."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(1, 0)

    @initialize(size=st.integers(2, 5), seed=st.integers(0, 99), aggregate=st.booleans())
    def start(self, size: int, seed: int, aggregate: bool) -> None:
        self.world = World(size, seed, check=True, aggregate=aggregate)
        self.slow: set[tuple[str, str]] = set()
        self.world.delay_us = self._delay_us

    def _delay_us(self, sender: str, to: str, _: bool) -> int:
        extra_us = 3 * TIMEOUT_US if (sender, to) in self.slow else 0
        return extra_us + self.world.draw.randrange(300, 6_000)

    def _name(self, place: int) -> str:
        return self.world.names[place % len(self.world.names)]

    @rule(place=places)
    def broadcast(self, place: int) -> None:
        self.world.broadcast(self._name(place))

    @rule(place=places, after=st.integers(0, 2))
    def crash_in_broadcast(self, place: int, after: int) -> None:
        self.world.current[self._name(place)].crash_after = after
        self.world.broadcast(self._name(place))

    @rule(place=places)
    def crash(self, place: int) -> None:
        self.world.crash(self._name(place))

    @rule(place=places)
    def leave(self, place: int) -> None:
        self.world.leave(self._name(place))

    @rule(place=places, noticed=st.booleans())
    def join(self, place: int, noticed: bool) -> None:
        self.world.run(self.world.now_us + 1_000)  # a life is named by its millisecond
        self.world.join(self._name(place), noticed=noticed)

    @rule(one=places, other=places)
    def slow_down(self, one: int, other: int) -> None:
        self.slow.add((self._name(one), self._name(other)))

    @rule()
    def speed_up(self) -> None:
        self.slow.clear()

    @rule(time_us=st.sampled_from([1_000, 5_000, INTERVAL_US, TIMEOUT_US, 2 * TIMEOUT_US]))
    def wait(self, time_us: int) -> None:
        self.world.run(self.world.now_us + time_us)

    @rule(place=places)
    def come_back_from_disk(self, place: int) -> None:
        """A core that is saved and restored is the same core."""
        state = self.world.current[self._name(place)].core.save()
        fresh = self.world.net.fresh(self._name(place))
        fresh.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(state)))  # as a host would
        assert fresh.save() == state
        self.world.restart(self._name(place))

    @invariant()
    def pasts_are_kept(self) -> None:
        assert self.world.violations == []

    def teardown(self) -> None:
        if not self.world.pasts:
            return
        self.slow.clear()
        self.world.run(self.world.now_us + 4 * TIMEOUT_US)  # what was slow arrives
        quiet(self.world, rounds=70)
        assert self.world.verdict().ok, self.world.verdict()
        assert self.world.disagreements() == []


def test_members_machine() -> None:
    case = MembersMachine.TestCase
    case.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
    case("runTest").runTest()
