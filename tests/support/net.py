"""The one network of the tests: cores, and what happens to them, in the test's hands.

Packets wait in a bag (`flying`) until the test lets one arrive, arrive and stay (a copy), or get lost.
Links go up and down; a packet of an earlier life of its link does not arrive. Time stands still until the
test lets it pass: then timers expire, and what the test planned happens (`at`). Each clock may be off by a
constant. A node may be restarted from what it saved.

What is particular to a protocol or to a host hooks in: `before` and `after` see the effects of every input,
`on_send` every packet, `on_close` and `on_stop` what a core asks of its host. The judges know nothing of a
core's state: `problems` compares sets, `report` asks the verifier about the recorded events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import combinations
from typing import Any, NamedTuple

from whence.core.effects import (
    CancelTimer,
    CloseLink,
    Deliver,
    Discard,
    Effects,
    Expire,
    Internal,
    Missed,
    Reason,
    Send,
    SetTimer,
    Stable,
    Stop,
    Tell,
)
from whence.core.lives import News
from whence.core.message import Message, MessageId, NodeId
from whence.protocols import registry
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, PromisesMade
from whence.verify.report import RunReport
from whence.verify.run import WITNESS_MAX, verify_table

ORDERED = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=False)
Make = Callable[..., Any]


class Flight(NamedTuple):
    """A packet on its way, in one life of its link."""

    sender: NodeId
    to: NodeId
    packet: Any
    life: int


class Net:
    """Cores of `make` (a function, or a protocol's name) on a full mesh or on the given links.

    `step_us` passes before each input. With `check` a core's invariants must hold after each input, it sends
    where there is a link only, a message ends once, and a restart saves what it restored. Timers that are due
    together expire in the order in which they were set, or with `ties_by_name` in the order of names.
    """

    def __init__(
        self,
        make: str | Make,
        names: Iterable[NodeId] = "abc",
        pairs: Iterable[tuple[NodeId, NodeId]] | None = None,
        *,
        offsets_us: dict[NodeId, int] | None = None,
        start_us: int = 0,
        step_us: int = 0,
        check: bool = False,
        ties_by_name: bool = False,
        **params: Any,
    ) -> None:
        self.make = make
        self.params = params
        self.now_us = start_us
        self.step_us = step_us
        self.check = check
        self.ties_by_name = ties_by_name
        self.offsets_us = offsets_us or {}  # what a clock shows beyond the true time
        self.flying: list[Flight] = []
        self.sent: list[Flight] = []  # all that ever flew
        self.up: dict[tuple[NodeId, NodeId], int] = {}  # (a, b): the life of a's end of the link, 0 if down
        self.lives = 0
        self.timers: dict[tuple[NodeId, str], int] = {}  # on the node's own clock
        self.agenda: list[tuple[int, str, int, Callable[..., None], tuple[Any, ...]]] = []
        self.serial = 0
        self.delivered: dict[NodeId, list[MessageId]] = {}
        self.delivered_us: dict[tuple[NodeId, MessageId], int] = {}  # true time, of the last delivery
        self.expired: list[tuple[NodeId, MessageId]] = []
        self.why: dict[tuple[NodeId, MessageId], Reason] = {}
        self.discarded: dict[NodeId, list[Discard]] = {}
        self.past: dict[MessageId, set[MessageId]] = {}  # what its origin had delivered before
        self.deadlines: dict[MessageId, int] = {}  # on the origin's clock, as it travels
        self.late = 0  # deliveries after the deadline, on the receiver's clock
        self.trace = MemoryTrace()
        self.before: Callable[[NodeId, Effects], None] = lambda node, effects: None
        self.after: Callable[[NodeId, Effects], None] = lambda node, effects: None
        self.on_send: Callable[[Flight], None] = lambda flight: None
        self.on_close: Callable[[NodeId, NodeId], None] = self.cut
        self.on_stop: Callable[[NodeId, Reason], None] = lambda node, reason: None
        self.missed: dict[NodeId, list[Missed]] = {}
        self.stable: dict[NodeId, dict[NodeId, int]] = {}
        self.news: dict[NodeId, list[News]] = {}
        self.called: dict[NodeId, NodeId] = {}  # what a clone's core calls itself
        self.names = list(names)
        self.cores: dict[NodeId, Any] = {}
        for name in self.names:
            self.add(name)
        for one, other in combinations(self.names, 2) if pairs is None else pairs:
            self.link(one, other)

    # Nodes

    def fresh(self, name: NodeId, **more: Any) -> Any:
        """A new core."""
        params = {**self.params, **more}
        if isinstance(self.make, str):
            return registry.make(self.make, name, self.names, params)
        return self.make(name, self.names, **params)

    def add(self, name: NodeId, **more: Any) -> None:
        """One node more, without links."""
        if name not in self.names:
            self.names.append(name)
        self.cores[name] = self.fresh(name, **more)
        self.delivered.setdefault(name, [])
        self.discarded.setdefault(name, [])

    def restart(self, name: NodeId) -> None:
        """Replace a core by one that is restored from what it saved."""
        state = self.cores[name].save()
        self.cores[name] = self.fresh(name)
        self.cores[name].restore(state)
        if self.check:
            assert self.cores[name].save() == state

    # Links

    def link(self, one: NodeId, other: NodeId) -> None:
        """A link between the two goes up, at both ends."""
        self.lives += 1
        self.up[one, other] = self.up[other, one] = self.lives
        for me, peer in ((one, other), (other, one)):
            self.do(me, lambda core, now_us, peer=peer: core.link_up(self.name_of(peer), now_us))

    def cut(self, one: NodeId, other: NodeId) -> None:
        """The link goes down, at both ends, and what is under way on it will not arrive."""
        self.up[one, other] = self.up[other, one] = 0
        for me, peer in ((one, other), (other, one)):
            self.do(me, lambda core, now_us, peer=peer: core.link_down(self.name_of(peer), now_us))

    def drop(self, name: NodeId) -> None:
        """A node is gone: its links end, and the others are told."""
        for other in [other for other in self.cores if self.up.get((name, other))]:
            self.up[name, other] = self.up[other, name] = 0
            self.do(other, lambda core, now_us: core.link_down(self.name_of(name), now_us))
        del self.cores[name]
        self.timers = {key: at_us for key, at_us in self.timers.items() if key[0] != name}

    def name_of(self, node: NodeId) -> NodeId:
        """What the others call a node; a clone has the name of another."""
        return self.called.get(node, node)

    def end_of(self, node: NodeId, peer: NodeId) -> NodeId:
        """The node at the other end of the link that `node` calls `peer`."""
        if not self.called:
            return peer
        ends = [other for other in self.cores if self.name_of(other) == peer and self.up.get((node, other))]
        return ends[0] if ends else peer

    def is_linked(self, one: NodeId, other: NodeId) -> bool:
        """At one end or at both."""
        return bool(self.up.get((one, other)) or self.up.get((other, one)))

    # Time

    def clock(self, node: NodeId) -> int:
        """What a node's clock shows."""
        return self.now_us + self.offsets_us.get(node, 0)

    def at(self, time_us: int, action: Callable[..., None], *args: Any, tie: str = "") -> None:
        """Plan something; what is planned for one time happens by `tie`, then in the order of planning."""
        self.serial += 1
        heappush(self.agenda, (max(time_us, self.now_us), tie, self.serial, action, args))

    def pass_time(self, until_us: int) -> None:
        """Let everything happen that is due by then. (A host that is busy: set `now_us` first.)"""
        while self.agenda and self.agenda[0][0] <= until_us:
            time_us, _, _, action, args = heappop(self.agenda)
            self.now_us = max(self.now_us, time_us)
            action(*args)
        self.now_us = max(self.now_us, until_us)

    def _expire_timer(self, node: NodeId, key: str, at_us: int) -> None:
        if self.timers.get((node, key)) == at_us:  # neither cancelled nor replaced
            del self.timers[node, key]
            self.do(node, lambda core, now_us: core.timer(key, now_us))

    # Inputs

    def do(self, node: NodeId, act: Callable[[Any, int], Effects | None]) -> None:
        """Give a core an input, with the time on its clock, and carry out what it asks for."""
        self.now_us += self.step_us
        self.carry_out(node, act(self.cores[node], self.clock(node)) or [])

    def broadcast(self, node: NodeId, lifetime_us: int | None = None, payload: bytes = b"x") -> MessageId:
        """A node broadcasts; returns the id."""
        self.now_us += self.step_us
        core, now_us = self.cores[node], self.clock(node)
        before = set(self.delivered[node])
        if lifetime_us is None:
            effects = core.broadcast(payload, now_us)
        else:
            effects = core.broadcast_within(payload, lifetime_us, now_us)
        id_ = MessageId(core.origin, core.last)
        self.past[id_] = before
        if core.last_lifetime_us is not None:
            self.deadlines[id_] = now_us + core.last_lifetime_us
        self.trace.event(node, self.now_us, Kind.BROADCAST, *id_, None, len(payload))
        self.carry_out(node, effects)
        return id_

    def receive(self, node: NodeId, peer: NodeId, packet: Any) -> None:
        """A node is given a packet, whether anybody sent it or not."""
        self.do(node, lambda core, now_us: core.receive(peer, packet, now_us))

    def arrive(self, at: int, *, keep: bool = False) -> None:
        """Packet number `at` in flight arrives; with `keep` a copy stays in flight."""
        sender, to, packet, life = self.flying[at] if keep else self.flying.pop(at)
        if self.up.get((to, sender)) == life:
            self.receive(to, self.name_of(sender), packet)

    def lose(self, at: int) -> None:
        """Packet number `at` in flight is lost."""
        del self.flying[at]

    def find(self, to: NodeId, message: str | MessageId | None = None, sender: NodeId | None = None) -> int:
        """The place in `flying` of the oldest packet for a node: with that message, from that sender."""
        for at, flight in enumerate(self.flying):
            is_between = flight.to == to and sender in (None, flight.sender)
            if is_between and (message is None or str(message) in self.carried(flight)):
                return at
        raise AssertionError(f"nothing of {message} is on its way from {sender} to {to}")

    def move(
        self,
        to: NodeId,
        message: str | MessageId | None = None,
        sender: NodeId | None = None,
        *,
        keep: bool = False,
    ) -> None:
        """The packet that `find` names arrives."""
        self.arrive(self.find(to, message, sender), keep=keep)

    def heads(self) -> list[int]:
        """The places in `flying` of what may arrive next where links are FIFO: the oldest of each link."""
        seen: set[tuple[NodeId, NodeId]] = set()
        places = []
        for at, flight in enumerate(self.flying):
            if (flight.sender, flight.to) not in seen:
                seen.add((flight.sender, flight.to))
                places.append(at)
        return places

    def settle(self) -> None:
        """Let everything in flight arrive, the oldest first."""
        while self.flying:
            self.arrive(0)

    # Effects

    def carry_out(self, node: NodeId, effects: Effects) -> None:
        """Do what a core asks for, in order."""
        self.before(node, effects)
        for effect in effects:
            match effect:
                case Send(to, packet):
                    for peer in to:
                        self.put(node, self.end_of(node, peer), packet)
                case Deliver(message) | Internal(message):
                    self.give(node, message)
                case Missed():
                    self.missed.setdefault(node, []).append(effect)
                case Stable(cut):
                    self.stable.setdefault(node, {}).update(cut)
                case Tell(news):
                    self.news.setdefault(node, []).append(news)
                case SetTimer(key, at_us):
                    self.timers[node, key] = at_us
                    true_us = at_us - self.offsets_us.get(node, 0)
                    tie = f"{node} {key}" if self.ties_by_name else ""
                    self.at(true_us, self._expire_timer, node, key, at_us, tie=tie)
                case CancelTimer(key):
                    self.timers.pop((node, key), None)
                case Discard():
                    self.discarded[node].append(effect)
                case Expire(id_, reason):
                    self._end(node, id_, reason)
                case CloseLink(peer):
                    self.on_close(node, peer)
                case Stop(reason):
                    self.on_stop(node, reason)
        if self.check:
            self.cores[node].check()
        self.after(node, effects)

    def put(self, sender: NodeId, to: NodeId, packet: Any) -> None:
        """A node sends a packet. It is lost if the link is not up at both ends."""
        life = self.up.get((sender, to), 0)
        assert life or not self.check, f"{sender} sends to {to}, and there is no link"
        if life and self.up.get((to, sender)):
            flight = Flight(sender, to, packet, life)
            self.flying.append(flight)
            self.sent.append(flight)
            self.on_send(flight)

    def give(self, node: NodeId, message: Message) -> None:
        """A node delivers a message."""
        id_ = message.id
        self.delivered[node].append(id_)
        self.delivered_us[node, id_] = self.now_us
        self.late += self.deadlines.get(id_, self.clock(node)) < self.clock(node)
        self.trace.event(node, self.now_us, Kind.DELIVER, *id_, None, len(message.payload))

    def _end(self, node: NodeId, id_: MessageId, reason: Reason) -> None:
        if self.check:
            assert id_ not in self.delivered[node]
            assert (node, id_) not in self.expired
        self.expired.append((node, id_))
        self.why[node, id_] = reason
        self.trace.event(node, self.now_us, Kind.EXPIRE, *id_, detail=str(reason))

    # What can be seen

    @property
    def discards(self) -> list[Discard]:
        """Of all nodes."""
        return [discard for discards in self.discarded.values() for discard in discards]

    def carried(self, flight: Flight) -> list[str]:
        """The messages in a packet, as "a:1"."""
        core = self.cores[flight.sender]
        first = core.message_of(flight.packet)
        return [str(first), *map(str, core.further_messages_of(flight.packet))] if first else []

    def packets(self, sender: NodeId, to: NodeId | None = None) -> list[Any]:
        """What is in flight from a node, to one other or to anybody."""
        return [each.packet for each in self.flying if each.sender == sender and to in (None, each.to)]

    def ids(self, node: NodeId) -> list[str]:
        """What a node has delivered, in order, as "a:1"."""
        return [str(id_) for id_ in self.delivered[node]]

    def ends(self, node: NodeId) -> list[str]:
        """What has ended at a node undelivered, in order, as "a:1 expired"."""
        return [f"{id_} {self.why[at, id_]}" for at, id_ in self.expired if at == node]

    # Judgement

    def report(self, witness_max: int | None = WITNESS_MAX) -> RunReport:
        """What the verifier says of the order."""
        return verify_table(self.trace.table("run"), ORDERED, sorted(self.cores), witness_max, run="run")

    def problems(self) -> set[str]:
        """What is wrong by sets: "causal", "duplicate", "missing", and "sent twice" to the same node."""
        sent = Counter(
            (flight.sender, flight.to, id_) for flight in self.sent for id_ in self.carried(flight)
        )
        found = {"sent twice"} if any(times > 1 for times in sent.values()) else set()
        for ids in self.delivered.values():
            seen: set[MessageId] = set()
            for id_ in ids:
                if id_ in seen:
                    found.add("duplicate")
                if not self.past[id_] <= seen:
                    found.add("causal")
                seen.add(id_)
            if seen != set(self.past):
                found.add("missing")
        return found
