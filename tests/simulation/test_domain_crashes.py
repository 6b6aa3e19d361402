"""A crash after every step of many scenarios: nothing lost, nothing twice, order kept; and each wrong order
is caught.

Paper 004, sections 3 and 5. The right order is: save, acknowledge, {merge the clock, dequeue, push or stamp
and enqueue} in one step, {reaction, outputs, dequeue} in one step.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pytest

from whence.core.effects import Effects
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import State
from whence.overlay.domain_graph import domain_graph
from whence.protocols.domains.domains import DomainPacket, Domains
from whence.session.durable import DurableServer
from whence.session.records import (
    RECORDS,
    Acknowledge,
    Output,
    Reacted,
    Record,
    RecordCodec,
    Release,
    Sent,
    Step,
    Transmit,
)
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, PromisesMade
from whence.verify.run import verify_table

# Durable servers in a world of crashes: every write, sync and release is a step after which one may stop.
#
# A trial is a few servers in domains, a script of messages, and agents that answer messages with messages.
# Each step is one of: an application sends, an agent reacts, a packet or an acknowledgement arrives (in any
# order, now and then twice or never), or the next part of a step that a server has begun: write, sync,
# release. Disks keep what was synced and any prefix of the rest. At the end, what the disks say is replayed
# into a trace and judged.

SYSTEMS = [
    [["a", "b", "c"]],
    [["a", "b"], ["b", "c"]],
    [["a", "b", "c"], ["c", "d"], ["d", "e"]],
    [["a", "b"], ["a", "c"], ["a", "d"]],
    [["a", "b", "c"], ["b", "d"], ["c", "e"]],
]
STEPS_MAX = 20_000
CODEC = RecordCodec(DomainPacket)
EVERYTHING = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=True)


class Plan(NamedTuple):
    """What a scenario's seed stands for."""

    groups: list[list[str]]
    script: list[tuple[str, str, bytes]]  # from, to, token
    depth: int
    stamps: str


class Verdict(NamedTuple):
    steps: int
    lost: int
    duplicated: int
    violations: int
    crashes: int

    @property
    def ok(self) -> bool:
        return not (self.lost or self.duplicated or self.violations)


def make_plan(seed: int) -> Plan:
    rng = random.Random(f"plan {seed}")
    groups = rng.choice(SYSTEMS)
    names = sorted({server for group in groups for server in group})
    script = []
    for at in range(rng.randint(1, 3)):
        source = rng.choice(names)
        script.append((source, rng.choice([name for name in names if name != source]), b"%d" % at))
    return Plan(groups, script, rng.randint(1, 2), rng.choice(["full", "updates", "updates-scan"]))


def answers(plan: Plan, me: str, token: bytes) -> list[Output]:
    """What an agent sends when it gets `token`: a function of the token alone, so that all tokens can be
    foretold."""
    if token.count(b"/") >= plan.depth:
        return []
    rng = random.Random(token)
    names = sorted({server for group in plan.groups for server in group} - {me})
    return [Output(rng.choice(names), token + b"/%d" % at) for at in range(rng.choice([0, 1, 1, 2]))]


def foretold(plan: Plan) -> Counter[tuple[str, bytes]]:
    """Every (destination, token) that must be reacted to, once."""
    found: Counter[tuple[str, bytes]] = Counter()
    todo = [(to, token) for _, to, token in plan.script]
    while todo:
        to, token = todo.pop()
        found[to, token] += 1
        todo += answers(plan, to, token)
    return found


@dataclass
class Disk:
    """Records of one server: the first `synced` are safe."""

    records: list[Record] = field(default_factory=list)
    synced: int = 0
    snapshot: bytes | None = None
    covered: int = 0  # records that the snapshot stands for


class Host:
    """One server's process: carries out steps in the right order. Wrong orders override `parts`."""

    server_type: type[DurableServer] = DurableServer

    def __init__(self, me: str, plan: Plan) -> None:
        self.me = me
        self.plan = plan
        self.disk = Disk()
        self.todo: list[Any] = []  # parts of begun steps
        self.server = self.fresh()

    def fresh(self) -> DurableServer:
        names = sorted({server for group in self.plan.groups for server in group})
        core = Domains(self.me, names, domains=self.plan.groups, stamps=self.plan.stamps)
        return self.server_type(core, self.agent)

    def agent(self, state: bytes, message: Message) -> tuple[bytes, list[Output]]:
        return b"%d" % (int(state or b"0") + 1), answers(self.plan, self.me, message.payload)

    def begin(self, steps: Step | list[Step]) -> None:
        for step in steps if isinstance(steps, list) else [steps]:
            self.todo += self.parts(step)

    def parts(self, step: Step) -> list[Any]:
        """Write, sync, then release."""
        return [*self.saving(step), *step.releases]

    def saving(self, step: Step) -> list[Any]:
        return [] if step.record is None else [("write", step.record), ("sync", None)]

    def save_snapshot(self) -> None:
        """Only between steps: the state is that of the records on disk."""
        self.disk.snapshot = msgspec.msgpack.encode(self.server.save())
        self.disk.covered = len(self.disk.records)

    def crash(self, rng: random.Random) -> None:
        """Lose memory and some of what was not synced; come back and send again what is not acknowledged."""
        disk = self.disk
        del disk.records[rng.randint(disk.synced, len(disk.records)) :]
        disk.synced = len(disk.records)
        self.server = self.fresh()
        if disk.snapshot is not None:
            state: State = msgspec.msgpack.decode(disk.snapshot)
            self.server.restore(state)
        self.server.replay(disk.records[disk.covered :])
        self.server.check()
        self.todo = list(self.server.outstanding())


class Trial:
    """One run of a plan. `crash_at`: the server that takes that step stops after it; `crash_chance`: any
    step."""

    def __init__(self, plan: Plan, seed: int, host: type[Host] = Host) -> None:
        self.plan = plan
        self.rng = random.Random(f"trial {seed}")
        self.graph = domain_graph(plan.groups)
        self.hosts = {name: host(name, plan) for name in self.graph.servers}
        self.flying: list[tuple[str, str, Release]] = []  # from, to, what
        self.steps = self.crashes = 0
        for me, started in self.hosts.items():
            peers = {peer for at in self.graph.domains_of[me] for peer in plan.groups[at]} - {me}
            for peer in sorted(peers):
                started.disk.records.append(started.server.link(peer, True, 0).record)
            started.disk.synced = len(started.disk.records)

    def run(self, crash_at: int | None = None, crash_chance: float = 0.0) -> Verdict:
        while self.steps < STEPS_MAX:
            actor = self._act()
            if actor is None:
                break
            self.steps += 1
            if self.steps - 1 == crash_at or (self.crashes < 60 and self.rng.random() < crash_chance):
                self.crashes += 1
                actor.crash(self.rng)
        else:
            raise AssertionError("the trial does not come to rest")
        return self._judge()

    def _act(self) -> Host | None:
        """Take one step; answers who took it, None if all is at rest."""
        rng = self.rng
        busy = [host for host in self.hosts.values() if host.todo]
        idle = [host for host in self.hosts.values() if not host.todo]
        choices: list[tuple[str, Any]] = [("part", host) for host in busy]
        choices += [("react", host) for host in idle if host.server.queue_in]
        choices += [("send", (self.hosts[source], to, token)) for source, to, token in self._unsent()]
        arrivals = [at for at, flying in enumerate(self.flying) if not self.hosts[flying[1]].todo]
        choices += [("arrive", at) for at in arrivals[:6]]
        if not choices:
            outstanding = [host for host in idle if host.server.outstanding()]
            if not outstanding:
                return None
            for host in outstanding:  # all is quiet and something was lost: send it again
                host.todo += host.server.outstanding()
            return self._act()
        kind, what = rng.choice(choices)
        if kind == "part":
            return self._do_part(what)
        if kind == "react":
            what.begin(what.server.react(self.steps))
            return what
        if kind == "send":
            host, to, token = what
            host.begin(host.server.send(to, token, self.steps))
            return host
        return self._arrive(what)

    def _unsent(self) -> list[tuple[str, str, bytes]]:
        """The script's messages that are not on disk; of a server that is idle: it takes one thing at a
        time."""
        return [
            (source, to, token)
            for source, to, token in self.plan.script
            if not self.hosts[source].todo
            and not any(
                isinstance(record, Sent) and record.payload == token
                for record in self.hosts[source].disk.records
            )
        ]

    def _do_part(self, host: Host) -> Host:
        part = host.todo.pop(0)
        if isinstance(part, Transmit | Acknowledge):
            if self.rng.random() > 0.03:  # else it is lost on the way
                self.flying.append((host.me, part.peer, part))
        elif part[0] == "write":
            host.disk.records.append(_through_bytes(part[1]))
        else:
            host.disk.synced = len(host.disk.records)
            if not host.todo and self.rng.random() < 0.15:
                host.save_snapshot()
        return host

    def _arrive(self, at: int) -> Host:
        source, to, what = self.flying[at] if self.rng.random() < 0.05 else self.flying.pop(at)
        host = self.hosts[to]
        if isinstance(what, Transmit):
            host.begin(host.server.receive(source, what.seq, what.packet, self.steps))
        else:
            host.begin(host.server.acknowledged(source, what.seq))
        return host

    def _judge(self) -> Verdict:
        trace, reacted = MemoryTrace(), Counter[tuple[str, bytes]]()
        for me, host in self.hosts.items():
            assert host.disk.synced == len(host.disk.records)
            self._audit(me, host, trace, reacted)
        report = verify_table(trace.table("trial"), EVERYTHING, list(self.hosts))
        expected = foretold(self.plan)
        counts = report.counts
        return Verdict(
            steps=self.steps,
            lost=sum((expected - reacted).values()),
            duplicated=sum((reacted - expected).values()),
            violations=counts.causal + counts.fifo + counts.created + counts.malformed + counts.duplicate,
            crashes=self.crashes,
        )

    def _audit(self, me: str, host: Host, trace: MemoryTrace, reacted: Counter[tuple[str, bytes]]) -> None:
        """What the disk says, as trace rows: replay it from the first record."""
        server = host.fresh()
        for at, record in enumerate(host.disk.records):
            if isinstance(record, Sent):
                trace.event(me, at, Kind.BROADCAST, me, server.core.last + 1, record.to)
            if isinstance(record, Reacted):
                message = server.queue_in[0]
                reacted[me, message.payload] += 1
                trace.event(me, at, Kind.DELIVER, message.origin, message.number)
                for place, output in enumerate(record.outputs):
                    trace.event(me, at, Kind.BROADCAST, me, server.core.last + 1 + place, output.to)
            server.replay([record])


def _through_bytes(record: Any) -> Any:
    """What a log would hold; the records of wrong servers are not those of a log."""
    if type(record) not in RECORDS.values():
        return record
    return CODEC.decode(CODEC.encode(record))


def crash_everywhere(seed: int, host: type[Host] = Host) -> list[Verdict]:
    """The scenario of a seed, with a crash after each of its steps, and once with many crashes."""
    plan = make_plan(seed)
    calm = Trial(plan, seed, host).run()
    verdicts = [calm]
    verdicts += [Trial(plan, seed, host).run(crash_at=at) for at in range(calm.steps)]
    verdicts.append(Trial(plan, seed, host).run(crash_chance=0.05))
    return verdicts


# The tests


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
