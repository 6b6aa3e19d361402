"""Durable servers in a world of crashes: every write, sync and release is a step after which a server may
stop.

A trial is a few servers in domains, a script of messages, and agents that answer messages with messages. Each
step is one of: an application sends, an agent reacts, frames leave for a connection or arrive from it (in
order, until it is cut), or the next part of what a server has begun: write a record, sync, apply it. Disks
keep what was synced and any prefix of the rest. Connections are cut now and then, and by every crash; then
both ends say what they have received, and go on from there. At the end, what the disks say is applied again
into a trace and judged.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from session.pairs import Nothing
from whence.core.message import Message, Packet
from whence.errors import FrameError, HandshakeError
from whence.overlay.domain_graph import domain_graph
from whence.protocols.domains.domains import DomainPacket, Domains
from whence.session.addresses import Address
from whence.session.durable import DurableServer
from whence.session.links import Link
from whence.session.records import RECORDS, Output, Reacted, Record, RecordCodec, Submitted
from whence.session.wire import Ack, FrameReader, ack_frame
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, PromisesMade
from whence.verify.run import verify_table

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
    faults: int  # frames and HELLOs that a peer refused

    @property
    def ok(self) -> bool:
        return not (self.lost or self.duplicated or self.violations or self.faults)


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


class Rim:
    """One server's process: its disk, and what must happen to an input in which order. Wrong orders override
    `parts`, or what an input is written as."""

    server_type: type[DurableServer] = DurableServer

    def __init__(self, me: str, plan: Plan, now_us: Any) -> None:
        self.me = me
        self.plan = plan
        self.now_us = now_us
        self.names = sorted({server for group in plan.groups for server in group})
        self.disk = Disk()
        self.todo: deque[Any] = deque()  # parts of inputs that were begun
        self.server, self.links = self.fresh()

    def fresh(self) -> tuple[DurableServer, dict[str, Link]]:
        core = Domains(self.me, self.names, domains=self.plan.groups, stamps=self.plan.stamps)
        links = {
            peer: Link(peer, Address("127.0.0.1", 1), dials=self.me < peer) for peer in sorted(core.linked)
        }
        return self.server_type(core, links, Nothing(), Nothing(), self.now_us), links

    # Inputs: what is written for each

    def sends(self, to: str, token: bytes) -> None:
        self.begin(Submitted(self.server.now_us(), to, token))

    def arrives(self, peer: str, packets: list[Packet]) -> None:
        self.begin(self.server.arrival(self.links[peer], packets))

    def reacts(self) -> None:
        message = self.server.hand_out()
        state = b"%d" % (int(self.server.agent_state or b"0") + 1)
        self.begin(*self.reaction(state, answers(self.plan, self.me, message.payload)))

    def reaction(self, state: bytes, outputs: list[Output]) -> list[Record]:
        return [Reacted(self.server.now_us(), state, tuple(outputs))]

    def begin(self, *records: Any) -> None:
        for record in records:
            self.todo += self.parts(record)

    def parts(self, record: Any) -> list[tuple[str, Any]]:
        """Write, sync, and only then let it happen."""
        return [("write", record), ("sync", None), ("apply", record)]

    # The disk

    def save_snapshot(self) -> None:
        """Only between inputs: the state is that of the records on disk."""
        self.disk.snapshot = msgspec.msgpack.encode(self.server.save())
        self.disk.covered = len(self.disk.records)

    def crash(self, rng: random.Random) -> None:
        """Lose memory and some of what was not synced; come back as what the disk says."""
        disk = self.disk
        del disk.records[rng.randint(disk.synced, len(disk.records)) :]
        disk.synced = len(disk.records)
        self.todo.clear()
        self.server, self.links = self.fresh()
        state = None if disk.snapshot is None else msgspec.msgpack.decode(disk.snapshot)
        self.server.recover(state, disk.records[disk.covered :])
        self.server.check()


class Wire:
    """One direction of a connection: bytes in order, and what has been read of them."""

    def __init__(self) -> None:
        self.data: deque[bytes] = deque()
        self.reader = FrameReader(DomainPacket, 1 << 20)


class Trial:
    """One run of a plan. `crash_at`: the server that takes that step stops after it; `crash_chance`: any
    step."""

    def __init__(self, plan: Plan, seed: int, rim: type[Rim] = Rim) -> None:
        self.plan = plan
        self.rng = random.Random(f"trial {seed}")
        self.rims = {name: rim(name, plan, lambda: self.steps) for name in domain_graph(plan.groups).servers}
        self.wires: dict[tuple[str, str], Wire] = {}  # (from, to) -> while they are connected
        self.refused: set[tuple[str, str]] = set()  # pairs that cannot go on with each other
        self.steps = self.crashes = self.faults = 0
        for rim_ in self.rims.values():
            for record in rim_.server.links_up():
                rim_.disk.records.append(record)
                rim_.server.apply(record)
            rim_.disk.synced = len(rim_.disk.records)

    def run(self, crash_at: int | None = None, crash_chance: float = 0.0) -> Verdict:
        while self.steps < STEPS_MAX:
            actor = self._act()
            if actor is None:
                break
            self.steps += 1
            if self.steps - 1 == crash_at or (self.crashes < 60 and self.rng.random() < crash_chance):
                self.crashes += 1
                actor.crash(self.rng)
                for peer in actor.links:
                    self._cut(actor.me, peer)
        else:
            raise AssertionError("the trial does not come to rest")
        return self._judge()

    # One step

    def _act(self) -> Rim | None:
        """Take one step; returns the server that took it, None if all is at rest."""
        choices: list[tuple[Any, Any]] = [(self._do_part, rim) for rim in self.rims.values() if rim.todo]
        choices += [(self._react, rim) for rim in self.rims.values() if not rim.todo and rim.server.inbox]
        choices += [(self._send, each) for each in self._unsent()]
        for me, rim in self.rims.items():
            for peer, link in rim.links.items():
                if (me, peer) not in self.wires:
                    if me < peer and (me, peer) not in self.refused:
                        choices.append((self._connect, (me, peer)))
                elif link.out.pending or link.incoming.received > link.incoming.told:
                    choices.append((self._flush, (me, peer)))
        choices += [(self._arrive, pair) for pair, wire in self.wires.items() if wire.data]
        if not choices:
            return None
        act, what = self.rng.choice(choices)
        actor: Rim = act(what)
        return actor

    def _do_part(self, rim: Rim) -> Rim:
        kind, record = rim.todo.popleft()
        if kind == "write":
            rim.disk.records.append(_through_bytes(record))
        elif kind == "sync":
            rim.disk.synced = len(rim.disk.records)
        elif kind == "apply":
            rim.server.apply(_through_bytes(record))
            if not rim.todo and self.rng.random() < 0.15:
                rim.save_snapshot()
        elif (rim.me, record) in self.wires:  # a wrong order acknowledges what is not on disk
            wire = self.wires[rim.me, record]
            wire.data.append(ack_frame(rim.links[record].arrived))
        return rim

    def _react(self, rim: Rim) -> Rim:
        rim.reacts()
        return rim

    def _send(self, what: tuple[str, str, bytes]) -> Rim:
        source, to, token = what
        self.rims[source].sends(to, token)
        return self.rims[source]

    def _unsent(self) -> list[tuple[str, str, bytes]]:
        """The script's messages that are not on disk; of an idle server, or one would be sent twice."""
        return [
            (source, to, token)
            for source, to, token in self.plan.script
            if not self.rims[source].todo
            and not any(
                isinstance(record, Submitted) and record.payload == token
                for record in self.rims[source].disk.records
            )
        ]

    # Connections

    def _connect(self, pair: tuple[str, str]) -> Rim:
        """Both say how much they have received, and go on from there."""
        me, peer = pair
        one, other = self.rims[me].links[peer], self.rims[peer].links[me]
        try:
            for link, received in ((one, other.incoming.received), (other, one.incoming.received)):
                link.begin()
                link.attach(None, 1, received)  # type: ignore[arg-type]  # frames are taken below
        except HandshakeError:  # one of them has lost what the other one counts on
            self.faults += 1
            self.refused.add(pair)
            return self.rims[me]
        self.wires[me, peer], self.wires[peer, me] = Wire(), Wire()
        return self.rims[me]

    def _cut(self, me: str, peer: str) -> None:
        """What is under way is lost."""
        for pair in ((me, peer), (peer, me)):
            self.wires.pop(pair, None)

    def _flush(self, pair: tuple[str, str]) -> Rim:
        """Frames leave, a few at a time, behind the acknowledgement of what has happened here."""
        me, peer = pair
        link, wire = self.rims[me].links[peer], self.wires[pair]
        if link.incoming.received > link.incoming.told and self.rng.random() < 0.5:
            wire.data.append(link.incoming.ack())
        elif link.out.pending:
            wire.data.append(link.out.take(self.rng.randint(1, 3)))
        else:
            wire.data.append(link.incoming.ack())
        return self.rims[me]

    def _arrive(self, pair: tuple[str, str]) -> Rim:
        """The next bytes arrive, unless the connection is cut."""
        source, to = pair
        rim = self.rims[to]
        if self.rng.random() < 0.03:
            self._cut(source, to)
            return rim
        wire = self.wires[pair]
        packets = wire.reader.feed(wire.data.popleft())
        assert wire.reader.error is None
        while wire.reader.control:
            control = wire.reader.control.pop()
            assert isinstance(control, Ack)
            try:
                rim.links[source].out.acknowledge(control.received)
            except FrameError:  # it closes the connection
                self.faults += 1
                self._cut(source, to)
                return rim
        if packets:
            rim.arrives(source, packets)
        return rim

    # The end

    def _judge(self) -> Verdict:
        trace, reacted = MemoryTrace(), Counter[tuple[str, bytes]]()
        for me, rim in self.rims.items():
            assert rim.disk.synced == len(rim.disk.records)
            self._audit(me, rim, trace, reacted)
        report = verify_table(trace.table("trial"), EVERYTHING, list(self.rims))
        expected = foretold(self.plan)
        counts = report.counts
        return Verdict(
            steps=self.steps,
            lost=sum((expected - reacted).values()),
            duplicated=sum((reacted - expected).values()),
            violations=counts.causal + counts.fifo + counts.created + counts.malformed + counts.duplicate,
            crashes=self.crashes,
            faults=self.faults,
        )

    def _audit(self, me: str, rim: Rim, trace: MemoryTrace, reacted: Counter[tuple[str, bytes]]) -> None:
        """What the disk says, as trace rows: apply it from the first record."""
        server, _ = rim.fresh()
        core = server.core
        for at, record in enumerate(rim.disk.records):
            if isinstance(record, Submitted):
                trace.event(me, at, Kind.BROADCAST, me, core.last + 1, record.to)
            if isinstance(record, Reacted):
                message = server.inbox[0]
                assert isinstance(message, Message)
                reacted[me, message.payload] += 1
                trace.event(me, at, Kind.DELIVER, message.origin, message.number)
                for place, output in enumerate(record.outputs):
                    trace.event(me, at, Kind.BROADCAST, me, core.last + 1 + place, output.to)
            server.apply(record)


def _through_bytes(record: Any) -> Any:
    """What a log would hold; the records of wrong servers are not those of a log."""
    if type(record) not in RECORDS.values():
        return record
    return CODEC.decode(CODEC.encode(record))


def crash_everywhere(seed: int, rim: type[Rim] = Rim) -> Iterator[Verdict]:
    """The scenario of a seed, with a crash after each of its steps, and once with many crashes."""
    plan = make_plan(seed)
    calm = Trial(plan, seed, rim).run()
    yield calm
    for at in range(calm.steps):
        yield Trial(plan, seed, rim).run(crash_at=at)
    yield Trial(plan, seed, rim).run(crash_chance=0.05)
