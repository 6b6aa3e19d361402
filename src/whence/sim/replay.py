"""Replay: give the recorded inputs to fresh cores, and compare every effect with the recorded one.

A trace at level `all` has every input in each node's own order, but not the packets' contents. These
come from the replayed cores themselves: what p sends to q while its own inputs are replayed is what
q receives. A node waits until the sender of its next packet has got that far (a worklist; no clock
is trusted), so the traces of separate live processes replay as well as a simulation.

A RECEIVE row is matched with what its peer sent by message and sizes; the n-th receive is the n-th
such send, and further receives are copies that the network made. Payloads are replaced by zeros of
the same length: no protocol may look at them. Inputs get the recorded time as `now_us`; where a
simulated clock was skewed, the scenario in the manifest says how.

A packet that no member sent comes from outside of the trace. If the core refused it, it is reported
as unexplained; in a simulation, which has no outside, it is a difference.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import Protocol as Core
from whence.errors import MisuseError, TraceError, WhenceError
from whence.protocols import registry
from whence.sim.cores import Make, cores_of
from whence.sim.driver import Driver
from whence.sim.faults import clocks_of
from whence.sim.files import from_dict
from whence.sim.outcome import WRITER
from whence.trace.reader import Event, Trace, open_trace
from whence.trace.rows import About, held
from whence.trace.schema import KILLED, Kind, Level, Manifest, command_of

LISTED_MAX = 100  # differences that are listed; all are counted

EFFECTS = frozenset(
    {Kind.SEND, Kind.DELIVER, Kind.EXPIRE, Kind.DISCARD, Kind.MISSED, Kind.SPEAK, Kind.STABLE}
)

# One event as it is compared: kind, origin, number, peer, total_bytes, control_bytes, detail.
Compared: TypeAlias = tuple[Kind, str | None, int, str | None, int, int, str | None]
Parcels: TypeAlias = tuple[
    NodeId, NodeId, str | None, int, int, int, str | None
]  # from, to, and what About has


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is not what the replayed core does; None where one side has nothing."""

    node: str
    seq: int
    expected: str | None  # recorded
    got: str | None  # replayed


class Unexplained(msgspec.Struct, frozen=True, kw_only=True):
    """A packet from outside of the trace, which the core refused."""

    node: str
    seq: int
    event: str


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a recorded run compares with its replay."""

    run: str
    protocol: str
    nodes: list[str]
    events: int
    inputs: int  # given to the cores
    effects: int  # compared
    mismatch_count: int
    mismatches: list[Mismatch]
    unexplained_count: int
    unexplained: list[Unexplained]
    ok: bool


def replay(folder: Path | str | Trace, run: str | None = None, *, make: Make | None = None) -> ReplayReport:
    """Replay one run of a trace folder (or opened trace); `make` makes other cores than the registry's."""
    trace = folder if isinstance(folder, Trace) else open_trace(folder)
    if run is None:
        if len(trace.runs) != 1:
            raise MisuseError(
                str(trace.path), f"it holds {len(trace.runs)} runs", f"Choose one of: {', '.join(trace.runs)}"
            )
        run = trace.runs[0]
    manifests = trace.of_run(run)
    for manifest in manifests:
        if manifest.level != Level.ALL.name.lower():
            raise TraceError(
                str(trace.path),
                f"writer {manifest.writer!r} recorded only {manifest.level}, and a replay needs every event",
                "Record the run with level 'all'",
            )
    return _Replay(trace, run, manifests[0], make).run()


class _Node:
    """One node's recorded events and how far its replay is."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.rows: list[Event] = []
        self.at = 0
        self.waits_for: NodeId | None = None  # the peer whose packet is next
        self.takes_a_copy = False  # the next packet is one that the network copied


class _Replay:
    """The worklist; also the `DriverHost` of the drivers and their `Recorder`."""

    def __init__(self, trace: Trace, run: str, manifest: Manifest, make: Make | None) -> None:
        self.run_id = run
        self.manifest = manifest
        self.own = {each.writer: each for each in trace.of_run(run)}
        self.members = trace.nodes(run)
        self.is_closed_world = manifest.writer == WRITER
        scenario = from_dict(manifest.parameters) if self.is_closed_world else None
        self.make = make or (self._live if scenario is None else cores_of(scenario))
        self.got: list[Compared] = []  # what the driver recorded for the input that is being replayed
        self.sent: dict[Parcels, list[Packet]] = {}
        self.received: Counter[Parcels] = Counter()
        self.recorded_sends: Counter[Parcels] = Counter()
        self.inputs = self.effects = self.mismatch_count = self.unexplained_count = 0
        self.mismatches: list[Mismatch] = []
        self.unexplained: list[Unexplained] = []
        clocks = {} if scenario is None else clocks_of(scenario)
        self.nodes = {
            name: _Node(Driver(at, self.make(name, self.members), self, recorder=self, clock=clocks.get(at)))
            for at, name in enumerate(self.members)
        }
        for event in trace.events(run):
            if event.node not in self.nodes:
                raise TraceError(
                    str(trace.path), f"{event.node!r} is no member of run {run!r}", "Record it again"
                )
            if event.kind is Kind.RESTART and (event.detail or "").endswith(KILLED):
                raise TraceError(
                    str(trace.path),
                    f"{event.node!r} was killed, and what it sent last is not in its trace",
                    "Verify it; a replay needs nodes that left in order",
                )
            self.nodes[event.node].rows.append(event)
            if event.kind is Kind.SEND and event.peer is not None:
                self.recorded_sends[_parcels(event.node, event.peer, event)] += 1
        self.ready = deque(self.members)

    def _live(self, me: NodeId, members: Sequence[NodeId]) -> Core:
        # A live node writes its own manifest, and may have been given something that others were not.
        parameters = self.own.get(me, self.manifest).parameters
        protocol = parameters.get("protocol", self.manifest.protocol)
        return registry.make(protocol, me, members, parameters.get("params", {}))

    def run(self) -> ReplayReport:
        """Replay everything that can be replayed."""
        while self.ready:
            self._advance(self.nodes[self.ready.popleft()])
            if not self.ready:
                self._assume_a_copy()
        for name in self.members:  # who still waits, waits for a send that did not happen again
            node = self.nodes[name]
            if node.at < len(node.rows):
                self._differs(node, node.rows[node.at], "the peer's replay never sends this packet")
        return ReplayReport(
            run=self.run_id,
            protocol=self.manifest.protocol,
            nodes=self.members,
            events=sum(len(node.rows) for node in self.nodes.values()),
            inputs=self.inputs,
            effects=self.effects,
            mismatch_count=self.mismatch_count,
            mismatches=self.mismatches,
            unexplained_count=self.unexplained_count,
            unexplained=self.unexplained,
            ok=self.mismatch_count == 0,
        )

    def _advance(self, node: _Node) -> None:
        """Replay a node until its trace ends or its next packet has not been sent yet."""
        node.waits_for = None
        while node.at < len(node.rows):
            row = node.rows[node.at]
            if row.kind is Kind.SAMPLE:
                self._compare_sample(node, row)
                node.at += 1
                continue
            end = node.at + 1
            while end < len(node.rows) and node.rows[end].kind in EFFECTS:
                end += 1
            packet: Packet = ()
            if row.kind is Kind.RECEIVE:
                parcels = _parcels(row.peer or "", node.driver.name, row)
                if not self.recorded_sends[parcels]:
                    self._from_outside(node, row, node.rows[node.at + 1 : end])
                    node.at = end
                    continue
                taken = self._take(node, parcels)
                if taken is None:
                    node.waits_for = row.peer
                    return
                packet = taken
            node.at = self._replay_input(node, row, packet, end)

    def _assume_a_copy(self) -> None:
        """No node can go on: let the first that waits for a packet that was sent before take it once more.

        A protocol may send the same words twice, and the network may copy the first. Then the second
        receive is not the second send, which perhaps waits for what follows that very receive.
        """
        for name in self.members:
            node = self.nodes[name]
            if node.waits_for is None or node.at >= len(node.rows):
                continue
            if self.sent.get(_parcels(node.waits_for, name, node.rows[node.at])):
                node.takes_a_copy = True
                self.ready.append(name)
                return

    # Inputs

    def _take(self, node: _Node, parcels: Parcels) -> Packet | None:
        """The packet that is received next; None if its sender has not got that far."""
        sent = self.sent.get(parcels, [])
        if node.takes_a_copy:
            node.takes_a_copy = False
            return sent[-1]
        wanted = min(self.received[parcels], self.recorded_sends[parcels] - 1)
        if wanted >= len(sent):
            return None
        self.received[parcels] += 1
        return sent[wanted]

    def _from_outside(self, node: _Node, row: Event, effects: list[Event]) -> None:
        was_refused = len(effects) == 1 and effects[0].kind is Kind.DISCARD
        if self.is_closed_world or not was_refused:
            self._differs(node, row, "no member sent this packet")
            return
        self.unexplained_count += 1
        if len(self.unexplained) < LISTED_MAX:
            text = f"{_text(_compared(row))}, {_text(_compared(effects[0]))}"
            self.unexplained.append(Unexplained(node=row.node, seq=row.seq, event=text))

    def _replay_input(self, node: _Node, row: Event, packet: Packet, end: int) -> int:
        """Give one input and compare its effects; returns where the next input's row is."""
        self.got = []
        self.inputs += 1
        try:
            self._give(node.driver, row, packet)
        except WhenceError as error:  # an input that no host gives, e.g. a link of a node to itself
            self._differs(node, row, str(error))
            return end
        for kind, *_ in self.got[1:]:  # the links that the core closed itself: behind all other effects
            if kind is Kind.LINK_DOWN and end < len(node.rows) and node.rows[end].kind is kind:
                end += 1
        self._compare(node, node.rows[node.at : end])
        return end

    def _compare(self, node: _Node, recorded: list[Event]) -> None:
        self.effects += len(recorded) - 1
        for at in range(max(len(recorded), len(self.got))):
            expected = _compared(recorded[at]) if at < len(recorded) else None
            got = self.got[at] if at < len(self.got) else None
            if expected != got:
                where = recorded[min(at, len(recorded) - 1)]
                self._note(node, where.seq, expected and _text(expected), got and _text(got))
                return  # what follows in the same step differs because this does

    def _give(self, driver: Driver, row: Event, packet: Packet) -> None:
        kind, time_us, peer = row.kind, row.time_us, row.peer or ""
        if kind is Kind.RECEIVE:
            driver.receive(peer, packet, time_us)
        elif kind is Kind.BROADCAST and row.peer is not None:
            driver.send(peer, bytes(row.total_bytes), time_us)
        elif kind is Kind.BROADCAST:
            lifetime_us = None if row.detail is None else int(row.detail)
            driver.broadcast(bytes(row.total_bytes), time_us, lifetime_us)
        elif kind is Kind.LINK_UP:
            driver.link_up(peer, time_us)
        elif kind is Kind.LINK_DOWN:
            driver.link_down(peer, time_us)
        elif kind is Kind.TIMER:
            driver.timer(row.detail or "", time_us)
        elif kind is Kind.COMMAND:
            driver.command(*command_of(row.detail), time_us)
        elif kind is Kind.CRASH:
            driver.crash(time_us)
        elif kind is Kind.RESTART:
            driver.restart(self.make(driver.name, self.members), time_us, row.detail)
        # Anything else is an effect that follows no input: nothing is given, and nothing will match.

    def _compare_sample(self, node: _Node, row: Event) -> None:
        core = node.driver.core
        if row.detail == "entries":
            value = core.entries()
        elif row.detail == "held":
            value = held(core)
        else:
            return  # a gauge of the host, not of the core
        if value != row.number:
            self._differs(node, row, f"SAMPLE {value} {row.detail!r}")

    # Differences

    def _differs(self, node: _Node, row: Event, got: str | None) -> None:
        self._note(node, row.seq, _text(_compared(row)), got)

    def _note(self, node: _Node, seq: int, expected: str | None, got: str | None) -> None:
        self.mismatch_count += 1
        if len(self.mismatches) < LISTED_MAX:
            self.mismatches.append(Mismatch(node=node.driver.name, seq=seq, expected=expected, got=got))

    # What the drivers record and hand over

    def event(
        self,
        node: str,
        time_us: int,
        kind: Kind,
        origin: str | None = None,
        number: int = 0,
        peer: str | None = None,
        total_bytes: int = 0,
        control_bytes: int = 0,
        detail: str | None = None,
    ) -> None:
        """A row of the replay."""
        self.got.append((kind, origin, number, peer, total_bytes, control_bytes, detail))

    def send(
        self, node: int, to: tuple[NodeId, ...], packet: Packet, time_us: int, about: About | None
    ) -> None:
        """Keep the packet for its receivers, and wake those who wait for it."""
        assert about is not None, "everything is recorded, so everything is described"
        name = self.members[node]
        for peer in to:
            self.sent.setdefault((name, peer, *about), []).append(packet)
            receiver = self.nodes.get(peer)
            if receiver is not None and receiver.waits_for == name:
                receiver.waits_for = None
                self.ready.append(peer)

    def delivered(self, node: int, message: Message, time_us: int) -> None:
        """The application is not replayed: its broadcasts are in the trace."""

    def set_timer(self, node: int, key: str, at_us: int) -> None:
        """The trace says when timers came due."""

    def cancel_timer(self, node: int, key: str) -> None:
        """The trace says which timers came due."""

    def stop(self, node: int, time_us: int) -> None:
        """The trace says when a node went down."""

    def close_link(self, node: int, peer: NodeId, time_us: int) -> None:
        """The trace says which links went down."""


def _parcels(sender: NodeId, receiver: NodeId, row: Event) -> Parcels:
    return sender, receiver, row.origin, row.number, row.total_bytes, row.control_bytes, row.detail


def _compared(row: Event) -> Compared:
    return row.kind, row.origin, row.number, row.peer, row.total_bytes, row.control_bytes, row.detail


def _text(compared: Compared) -> str:
    """One event in words, e.g. "SEND n0:7 peer n3, 74 bytes (10 control)"."""
    kind, origin, number, peer, total_bytes, control_bytes, detail = compared
    words = [kind.name]
    if origin is not None:
        words.append(f"{origin}:{number}")
    elif number:
        words.append(str(number))
    if peer is not None:
        words.append(f"peer {peer}")
    if total_bytes or control_bytes:
        words.append(f"{total_bytes} bytes ({control_bytes} control)")
    if detail is not None:
        words.append(repr(detail))
    return " ".join(words)
