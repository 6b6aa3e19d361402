"""A crash after every step of many scenarios: nothing lost, nothing twice, order kept; and each wrong order
is caught.

Paper 004, sections 3 and 5. The right order is: save, acknowledge, {merge the clock, dequeue, push or stamp
and enqueue} in one step, {reaction, outputs, dequeue} in one step.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any, NamedTuple

import pytest

from support.crash_trial import Host, Trial, Verdict, crash_everywhere, make_plan
from whence.core.effects import Effects
from whence.core.message import NodeId, Packet
from whence.session.durable import DurableServer
from whence.session.records import Acknowledge, Reacted, Sent, Step, Transmit


def total(verdicts: list[Verdict]) -> Counter[str]:
    found: Counter[str] = Counter()
    for verdict in verdicts:
        found += Counter(verdict._asdict())
    return found


def test_a_crash_at_every_step_of_20_scenarios() -> None:
    for seed in range(20):
        for at, verdict in enumerate(crash_everywhere(seed)):
            assert verdict.ok, (seed, at, verdict)
            assert verdict.crashes or at == 0 or verdict.steps < 20


@pytest.mark.slow
def test_a_crash_at_every_step_of_200_scenarios() -> None:
    for seed in range(20, 220):
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


class AcknowledgesBeforeSaving(Host):
    def parts(self, step: Step) -> list[Any]:
        early = [each for each in step.releases if isinstance(each, Acknowledge)]
        late = [each for each in step.releases if not isinstance(each, Acknowledge)]
        return [*early, *self.saving(step), *late]


class TransmitsBeforeSavingTheStamp(Host):
    def parts(self, step: Step) -> list[Any]:
        early = [each for each in step.releases if isinstance(each, Transmit)]
        late = [each for each in step.releases if not isinstance(each, Transmit)]
        return [*early, *self.saving(step), *late]


class ReleasesBeforeSync(Host):
    """Written, but not synced: the record may be in a buffer."""

    def parts(self, step: Step) -> list[Any]:
        saving = self.saving(step)
        return [*saving[:1], *step.releases, *saving[1:]]


# Wrong orders of the server: what is one step comes apart into two records


class Merged(NamedTuple):
    """The clock has taken in a packet."""

    peer: NodeId
    seq: int
    packet: Packet


class Pushed(NamedTuple):
    """What came of a packet is in the queues."""

    peer: NodeId
    packet: Packet


class Apart(DurableServer):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.pending: Effects = []

    def _step(self, record: Any) -> Step:
        if isinstance(record, Merged):
            self._take(record.peer, record.seq)
            self.pending = self.core.receive(record.peer, record.packet, 0)
            return Step(record, [Acknowledge(record.peer, record.seq)], [])
        if isinstance(record, Pushed):
            effects = self.effects_of(record)
            return Step(record, [*self._enqueue(effects)], effects)
        return super()._step(record)

    def effects_of(self, record: Pushed) -> Effects:
        effects, self.pending = self.pending, []
        return effects


class ClockThenPush(Apart):
    def receive(self, peer: NodeId, seq: int, packet: Packet, now_us: int) -> Any:
        if self._is_taken(peer, seq):
            return super().receive(peer, seq, packet, now_us)
        return [self._step(Merged(peer, seq, packet)), self._step(Pushed(peer, packet))]


class PushThenClock(Apart):
    def receive(self, peer: NodeId, seq: int, packet: Packet, now_us: int) -> Any:
        if self._is_taken(peer, seq):
            return super().receive(peer, seq, packet, now_us)
        return [self._step(Pushed(peer, packet)), self._step(Merged(peer, seq, packet))]

    def effects_of(self, record: Pushed) -> Effects:
        return copy.deepcopy(self.core).receive(record.peer, record.packet, 0)


class OutputsThenDequeue(DurableServer):
    """The reaction's messages are on disk one by one before the message that caused them is taken out."""

    def react(self, now_us: int) -> Any:
        state, outputs = self.agent(self.agent_state, self.queue_in[0])
        steps = [self._step(Sent(now_us, *output)) for output in outputs]
        return [*steps, self._step(Reacted(now_us, state, ()))]


class DequeueThenOutputs(DurableServer):
    """The message is taken out first."""

    def react(self, now_us: int) -> Any:
        state, outputs = self.agent(self.agent_state, self.queue_in[0])
        first = self._step(Reacted(now_us, state, ()))
        return [first, *(self._step(Sent(now_us, *output)) for output in outputs)]


def host_of(server: type[DurableServer]) -> type[Host]:
    return type(f"HostOf{server.__name__}", (Host,), {"server_type": server})


WRONG = [
    (AcknowledgesBeforeSaving, "lost"),
    (TransmitsBeforeSavingTheStamp, "lost"),
    (ReleasesBeforeSync, "lost"),
    (host_of(ClockThenPush), "lost"),
    (host_of(PushThenClock), "duplicated"),
    (host_of(OutputsThenDequeue), "duplicated"),
    (host_of(DequeueThenOutputs), "lost"),
]


@pytest.mark.parametrize(("wrong", "shows"), WRONG, ids=lambda each: getattr(each, "__name__", each))
def test_a_wrong_order_is_caught(wrong: type[Host], shows: str) -> None:
    """And is right as long as nothing crashes: only the crash at the right step tells."""
    found: Counter[str] = Counter()
    for seed in range(12):
        calm, *crashed = crash_everywhere(seed, wrong)
        assert calm.ok
        found += total(crashed)
        if found[shows]:
            break
    assert found[shows] > 0, found
