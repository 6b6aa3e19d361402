"""Random runs of barrier cores: skewed clocks, lifetimes, loss, copies, cut links; judged by the verifier."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from whence.core.effects import CancelTimer, Deliver, Discard, Effects, Expire, Send, SetTimer
from whence.core.message import MessageId, NodeId, Packet
from whence.core.protocol import Protocol
from whence.protocols import registry
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, PromisesMade
from whence.verify.report import RunReport
from whence.verify.run import verify_table

ORDERED = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=False)


class Net:
    """Cores, their clocks and what is in flight; time is true time, and each clock is off by a constant."""

    def __init__(
        self,
        protocol: str,
        offsets_us: dict[NodeId, int],
        links: list[tuple[str, str]] | None = None,
        **params: Any,
    ) -> None:
        self.offsets_us = offsets_us
        self.names = sorted(offsets_us)
        self.protocol, self.params = protocol, params
        self.cores: dict[NodeId, Protocol] = {me: self.fresh(me) for me in self.names}
        self.now_us = 1_000
        self.flying: list[
            tuple[NodeId, NodeId, Packet, int]
        ] = []  # (from, to, packet, which life of the link)
        self.linked: dict[frozenset[NodeId], int] = {}
        self.lives = 0
        self.timers: dict[tuple[NodeId, str], int] = {}  # -> on the node's own clock
        self.deadlines: dict[MessageId, int] = {}  # on the origin's clock, as it travels
        self.delivered: dict[NodeId, list[MessageId]] = {me: [] for me in self.names}
        self.expired: list[tuple[NodeId, MessageId]] = []
        self.late = 0
        self.came: set[tuple[NodeId, MessageId]] = set()
        self.unsaid: list[tuple[NodeId, MessageId]] = []  # came first when it was late, and was no outcome
        self.discards: list[Discard] = []
        self.trace = MemoryTrace()
        pairs = [(a, b) for a in self.names for b in self.names if a < b] if links is None else links
        for one, other in pairs:
            self.link(one, other)

    def fresh(self, me: NodeId) -> Protocol:
        return registry.make(self.protocol, me, self.names, self.params)

    def clock(self, node: NodeId) -> int:
        return self.now_us + self.offsets_us[node]

    def link(self, one: NodeId, other: NodeId) -> None:
        self.lives += 1
        self.linked[frozenset((one, other))] = self.lives
        for me, peer in ((one, other), (other, one)):
            self.carry_out(me, self.cores[me].link_up(peer, self.clock(me)))

    def cut(self, one: NodeId, other: NodeId) -> None:
        del self.linked[frozenset((one, other))]
        for me, peer in ((one, other), (other, one)):
            self.carry_out(me, self.cores[me].link_down(peer, self.clock(me)))

    def broadcast(self, node: NodeId, lifetime_us: int | None = None) -> MessageId:
        core = self.cores[node]
        now_us = self.clock(node)
        payload = b"x" * 3
        if lifetime_us is None:
            effects = core.broadcast(payload, now_us)
        else:
            effects = core.broadcast_within(payload, lifetime_us, now_us)
        id_ = MessageId(node, core.last)
        if core.last_lifetime_us is not None:
            self.deadlines[id_] = now_us + core.last_lifetime_us
        self.trace.event(node, self.now_us, Kind.BROADCAST, node, core.last, None, len(payload))
        self.carry_out(node, effects)
        return id_

    def arrive(self, at: int, *, keep: bool = False) -> None:
        sender, to, packet, life = self.flying[at] if keep else self.flying.pop(at)
        if self.linked.get(frozenset((sender, to))) != life:  # the link was cut meanwhile
            return
        self.carry_out(to, self.cores[to].receive(sender, packet, self.clock(to)))
        id_ = self.cores[to].message_of(packet)
        if id_ is not None and id_.origin != to and (to, id_) not in self.came:
            self.came.add((to, id_))
            late_us = self.clock(to) - self.deadlines.get(id_, self.clock(to))
            if 0 < late_us <= self.params.get("late_us", 0) and (to, id_) not in self.expired:
                self.unsaid.append((to, id_))

    def move(self, id_: MessageId, to: NodeId, *, sender: NodeId | None = None, keep: bool = False) -> None:
        """The first flying copy of a message for that node arrives."""
        for at, (source, target, packet, _) in enumerate(self.flying):
            if target == to and sender in (None, source) and self.cores[to].message_of(packet) == id_:
                self.arrive(at, keep=keep)
                return
        raise AssertionError(f"no copy of {id_} flies to {to}")

    def pass_time(self, until_us: int) -> None:
        """True time goes on; timers come due on the nodes' own clocks."""
        while True:
            due = [
                (max(at_us - self.offsets_us[node], self.now_us), node, key)
                for (node, key), at_us in self.timers.items()
            ]
            if not due or min(due)[0] > until_us:
                break
            self.now_us, node, key = min(due)
            del self.timers[node, key]
            self.carry_out(node, self.cores[node].timer(key, self.clock(node)))
        self.now_us = max(self.now_us, until_us)

    def restart(self, node: NodeId) -> None:
        state = self.cores[node].save()
        self.cores[node] = self.fresh(node)
        self.cores[node].restore(state)
        assert self.cores[node].save() == state

    def carry_out(self, node: NodeId, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.flying += [
                    (node, to, effect.packet, self.linked[frozenset((node, to))]) for to in effect.to
                ]
            elif isinstance(effect, Deliver):
                id_ = effect.message.id
                self.delivered[node].append(id_)
                self.late += self.deadlines.get(id_, self.clock(node)) < self.clock(node)
                self.trace.event(node, self.now_us, Kind.DELIVER, *id_)
            elif isinstance(effect, Expire):
                assert effect.id not in self.delivered[node]
                assert (node, effect.id) not in self.expired
                self.expired.append((node, effect.id))
                self.trace.event(node, self.now_us, Kind.EXPIRE, *effect.id, detail="expired")
            elif isinstance(effect, SetTimer):
                self.timers[node, effect.key] = effect.at_us
            elif isinstance(effect, CancelTimer):
                self.timers.pop((node, effect.key), None)
            else:
                self.discards.append(effect)
        self.cores[node].check()

    def report(self) -> RunReport:
        return verify_table(self.trace.table("run"), ORDERED, self.names, run="run")

    def ids(self, node: NodeId) -> list[str]:
        return [str(id_) for id_ in self.delivered[node]]


def random_run(
    seed: int,
    protocol: str = "barrier",
    *,
    skew_us: int | None = None,
    assumed_us: int | None = None,
    world: Callable[..., Net] = Net,
    **params: Any,
) -> Net:
    """3 to 6 nodes whose clocks differ by `skew_us` at the most, and a world that does what it likes.

    The cores are told so, or something else (`assumed_us`).
    """
    draw = random.Random(f"{protocol}/{seed}")
    skew_us = draw.choice([0, 0, 3, 20, 100]) if skew_us is None else skew_us
    names = [f"n{at}" for at in range(draw.randrange(3, 7))]
    offsets_us = {name: draw.randint(0, skew_us) for name in names}
    assumed_us = skew_us if assumed_us is None else assumed_us
    given = {"skew_us": assumed_us, **params} if assumed_us else dict(params)
    if protocol == "oppnet":
        given |= {"seed": seed, "setup_max_us": 4, "gap_us": draw.choice([1, 3])}
        given.setdefault("capacity", draw.choice([0, 3, 6]))
    given.setdefault("late_us", (0, 20, 10_000)[seed % 3])
    pairs = [(a, b) for a in names for b in names if a < b]
    links = [pair for pair in pairs if draw.random() < 0.7] if protocol == "oppnet" else None
    net = world(protocol, offsets_us, links, **given)
    timed = draw.choice(["all", "some", "none"]) if "lifetime_us" not in params else "group"
    for _ in range(draw.choice([60, 120])):
        _step(net, draw, timed, pairs)
    net.pass_time(net.now_us + 300)
    return net


def _step(net: Net, draw: random.Random, timed: str, pairs: list[tuple[str, str]]) -> None:
    happening = draw.random()
    if happening < 0.25:
        mortal = timed == "all" or (timed == "some" and draw.random() < 0.7)
        # Now and then a lifetime of a few microseconds between long ones: F4, F5.
        lifetime_us = draw.choice([2, 15, 60, draw.randint(1, 200)]) if mortal else None
        net.broadcast(draw.choice(net.names), lifetime_us)
    elif happening < 0.75 and net.flying:
        for _ in range(draw.randrange(1, 4)):
            if net.flying:
                net.arrive(draw.randrange(len(net.flying)), keep=draw.random() < 0.15)
    elif happening < 0.80 and net.flying:
        net.flying.pop(draw.randrange(len(net.flying)))
    elif happening < 0.83:
        net.restart(draw.choice(net.names))
    elif happening < 0.88 and net.protocol == "oppnet":
        one, other = draw.choice(pairs)
        if frozenset((one, other)) in net.linked:
            net.cut(one, other)
        else:
            net.link(one, other)
    else:
        net.pass_time(net.now_us + draw.choice([0, 1, 1, 2, 5, 30]))
