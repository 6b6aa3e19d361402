"""A crash after every step of many scenarios: nothing lost, nothing twice, order kept; and each wrong order
is caught.

Paper 004, sections 3 and 5. The right order is: save, acknowledge, {merge the clock, dequeue, push or stamp
and enqueue} in one step, {reaction, outputs, dequeue} in one step.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from simulation.crash_trial import SYSTEMS, Rim, Trial, crash_everywhere, make_plan
from whence.core.effects import Effects
from whence.core.message import MessageId, NodeId, Packet
from whence.session.durable import DurableServer
from whence.session.records import Arrived, Output, Reacted, Record, Submitted

# Most are short, for n steps cost n runs of n steps; of every system of servers, with every kind of stamps.
# Each wrong order below breaks at least two of them.
FEW = (0, 1, 5, 7, 8, 12, 13, 14, 16, 19)
ALL = 20


def storms_of(seeds: Sequence[int]) -> int:
    """How often servers crashed in the stormy runs of scenarios, in all of whose runs nothing went wrong."""
    storms = 0
    for seed in seeds:
        calm, *crashed, stormy = crash_everywhere(seed)
        for at, verdict in enumerate([calm, *crashed, stormy]):
            assert verdict.ok, (seed, at, verdict)
        assert all(verdict.crashes == 1 for verdict in crashed)
        storms += stormy.crashes
    return storms


def test_a_crash_at_every_step_of_a_few_scenarios() -> None:
    plans = [make_plan(seed) for seed in FEW]
    assert all(groups in [plan.groups for plan in plans] for groups in SYSTEMS)
    assert {plan.stamps for plan in plans} == {"full", "updates", "updates-scan"}
    assert storms_of(FEW) > 18


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_a_crash_at_every_step_of_20_scenarios(part: int) -> None:
    assert storms_of(range(part * 7, min(part * 7 + 7, ALL))) > 18


@pytest.mark.slow
@pytest.mark.timeout(900)  # 100 CPU-s
def test_a_crash_at_every_step_of_200_scenarios() -> None:
    for seed in range(ALL, ALL + 200):
        for at, verdict in enumerate(crash_everywhere(seed)):
            assert verdict.ok, (seed, at, verdict)


def test_many_crashes_in_one_run() -> None:
    crashes = 0
    for seed in range(60):
        verdict = Trial(make_plan(seed), seed).run(crash_chance=0.2)
        assert verdict.ok, (seed, verdict)
        crashes += verdict.crashes
    assert crashes > 1_000


# Wrong orders of the host: something leaves before the record is safe


class AcknowledgesBeforeSaving(Rim):
    def parts(self, record: Any) -> list[tuple[str, Any]]:
        early = [("acknowledge", record.peer)] if isinstance(record, Arrived) else []
        return [*early, *super().parts(record)]


class TransmitsBeforeSavingTheStamp(Rim):
    def parts(self, record: Any) -> list[tuple[str, Any]]:
        if isinstance(record, Arrived):
            return super().parts(record)
        write, sync, apply = super().parts(record)
        return [apply, write, sync]


class ReleasesBeforeSync(Rim):
    """Written, but not synced: the record may be in a buffer."""

    def parts(self, record: Any) -> list[tuple[str, Any]]:
        write, sync, apply = super().parts(record)
        return [write, apply, sync]


# Wrong orders of the server: what is one step comes apart into two records


class Merged(NamedTuple):
    """The clock has taken in packets."""

    arrived: Arrived


class Pushed(NamedTuple):
    """What came of packets is in the queues."""

    arrived: Arrived


class Apart(DurableServer):
    """Keeps the effects of packets until they are pushed."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.kept: Effects = []

    def receive(self, peer: NodeId, packets: list[Packet], now_us: int | None = None) -> None:
        self.kept = [effect for packet in packets for effect in self.core.receive(peer, packet, now_us or 0)]

    def apply(self, record: Any, data_bytes: int = 0) -> MessageId | None:
        if isinstance(record, Merged):
            return super().apply(record.arrived)
        if isinstance(record, Pushed):
            self.push(record.arrived)
            return None
        return super().apply(record, data_bytes)

    def push(self, arrived: Arrived) -> None:
        self._carry_out(self.kept)
        self.kept = []


class FromACopy(Apart):
    """The queues are filled first, by a copy of the clock."""

    def push(self, arrived: Arrived) -> None:
        here = self._links[arrived.peer].incoming.received + 1 - arrived.seq
        core = copy.deepcopy(self.core)
        for packet in arrived.packets[here:]:
            self._carry_out(core.receive(arrived.peer, packet, 0))


class ClockThenPush(Rim):
    server_type = Apart

    def begin(self, *records: Any) -> None:
        for record in records:
            if isinstance(record, Arrived):
                super().begin(Merged(record), Pushed(record))
            else:
                super().begin(record)


class PushThenClock(Rim):
    server_type = FromACopy

    def begin(self, *records: Any) -> None:
        for record in records:
            if isinstance(record, Arrived):
                super().begin(Pushed(record), Merged(record))
            else:
                super().begin(record)


class OutputsThenDequeue(Rim):
    """The reaction's messages are on disk one by one before the message that caused them is taken out."""

    def reaction(self, state: bytes, outputs: list[Output]) -> list[Record]:
        now_us = self.server.now_us()
        return [*(Submitted(now_us, *output) for output in outputs), Reacted(now_us, state, ())]


class DequeueThenOutputs(Rim):
    """The message is taken out first."""

    def reaction(self, state: bytes, outputs: list[Output]) -> list[Record]:
        now_us = self.server.now_us()
        return [Reacted(now_us, state, ()), *(Submitted(now_us, *output) for output in outputs)]


WRONG = [
    (AcknowledgesBeforeSaving, "lost"),
    (TransmitsBeforeSavingTheStamp, "lost"),
    (ReleasesBeforeSync, "lost"),
    (ClockThenPush, "lost"),
    (PushThenClock, "duplicated"),
    (OutputsThenDequeue, "duplicated"),
    (DequeueThenOutputs, "lost"),
]


@pytest.mark.parametrize(("wrong", "shows"), WRONG, ids=lambda each: getattr(each, "__name__", each))
def test_a_wrong_order_is_caught(wrong: type[Rim], shows: str) -> None:
    """And is right as long as nothing crashes: only the crash at the right step tells."""
    found: Counter[str] = Counter()
    for seed in range(12):
        runs = crash_everywhere(seed, wrong)
        assert next(runs).ok
        for verdict in runs:
            found += Counter(verdict._asdict())
            if found[shows]:
                return
    pytest.fail(f"only {dict(found)} was found")
