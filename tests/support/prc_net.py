"""PRC processes wired by hand, with links that open, break and close at any time, joins, leaves and crashes.

The net knows nothing of the protocol's buffers: it moves packets, keeps each direction of each link in order,
and judges by sets. Causal order and duplicates are judged by `whence.verify` from the recorded events.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from whence.core.effects import CancelTimer, CloseLink, Deliver, Effects, Send, SetTimer
from whence.core.message import Message
from whence.protocols.prc.links import RELAY
from whence.protocols.prc.prc import ACCEPT, OPEN, Prc
from whence.protocols.prc.wire import MESSAGE
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, PromisesMade
from whence.verify.run import verify_table

FIN = None  # the end of a link, in order behind what was sent
ORDERED = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=False)
FOUNDERS = 4


class Net:
    """Cores, the packets between them, and what a judge needs to know."""

    def __init__(self, seed: int, make: Callable[..., Prc] = Prc, **params: Any) -> None:
        self.draw = random.Random(seed)
        self.make, self.params = make, {"links": "dynamic", **params}
        self.now_us = 0
        self.cores: dict[str, Prc] = {}
        self.alive: list[str] = []
        self.wire: dict[tuple[str, str], deque[Any]] = {}  # what is in flight from one to the other
        self.up: set[tuple[str, str]] = set()  # (a, b): a's end of the link to b is up
        self.ghosts: dict[tuple[str, str], deque[Any]] = {}  # in flight on a link that is gone
        self.timers: dict[tuple[str, str], int] = {}
        self.trace = MemoryTrace()
        self.delivered: dict[str, list[tuple[str, int]]] = {}
        self.before: dict[str, set[tuple[str, int]]] = {}  # what a joiner's contact had when it took it in
        self.took_in: dict[
            tuple[str, str], set[tuple[str, int]]
        ] = {}  # the same, for contacts that may be lost
        self.made = 0
        self.unwatched: set[str] = set()  # what a core held for a handshake with no timer that would end it
        # Ways in which a host can be wrong, for mutants
        self.control_overtakes = False
        self.control_survives_close = False
        self.second_contact = False
        self.ghosts_arrive = self.draw.random() < 0.5

    # Processes

    def add(self) -> str:
        name = f"p{self.made:03d}"
        self.made += 1
        self.cores[name] = self.make(name, [name], **self.params)
        self.alive.append(name)
        self.delivered[name] = []
        self.before[name] = set()
        return name

    def found(self, count: int = FOUNDERS) -> None:
        """A first process, and others that join it one after the other."""
        first = self.add()
        self.cores[first].found()
        for _ in range(count - 1):
            name = self.add()
            self.ask(name, self.draw.choice([each for each in self.alive if self.cores[each].is_joined]))
            self.settle()

    def ask(self, joiner: str, contact: str) -> None:
        self.connect(joiner, contact)
        if self.second_contact:
            others = [each for each in self.members() if not self.is_linked(joiner, each)]
            if others:
                self.connect(joiner, self.draw.choice(others))
        self.do(joiner, lambda core: core.join(contact, self.now_us))

    def crash(self, name: str) -> None:
        self.alive.remove(name)
        self.trace.event(name, self.now_us, Kind.CRASH)
        self.timers = {key: at for key, at in self.timers.items() if key[0] != name}
        for other in list(self.alive):
            if (other, name) in self.up:
                sent = self.wire[name, other]
                is_joining = self.cores[other].contact == name
                kept = 0 if is_joining else self.draw.randrange(len(sent) + 1)
                while len(sent) > kept:
                    sent.pop()
                sent.append(FIN)
            self.wire.pop((other, name), None)
        self.up = {pair for pair in self.up if pair[0] != name}
        self.ghosts = {pair: packets for pair, packets in self.ghosts.items() if name not in pair}

    def freeze(self, name: str) -> None:
        """It does nothing any more, and nobody can tell: its links stay up."""
        self.alive.remove(name)
        self.timers = {key: at for key, at in self.timers.items() if key[0] != name}

    # Links

    def connect(self, one: str, other: str) -> None:
        for a, b in ((one, other), (other, one)):
            self.wire[a, b] = deque()
            self.ghosts.pop((a, b), None)  # a host never mixes two incarnations of a link
            self.up.add((a, b))
            self.do(a, lambda core, peer=b: core.link_up(peer, self.now_us))

    def is_linked(self, one: str, other: str) -> bool:
        """Not even half closed: a new link may come only when the old one is gone at both ends."""
        return (one, other) in self.up or (other, one) in self.up

    def hang_up(self, one: str, other: str, *, tell: bool) -> None:
        """One end closes. The other end learns at once, or when all that was sent before has arrived."""
        if (one, other) not in self.up:
            return
        self.up.discard((one, other))
        lost = self.wire[other, one]
        if self.ghosts_arrive:
            self.ghosts[other, one] = deque(packet for packet in lost if packet is not FIN)
        self.wire[other, one] = deque()
        if tell:
            self.do(one, lambda core: core.link_down(other, self.now_us))
        if (other, one) not in self.up:
            return
        is_joining = self.cores[other].contact == one
        if self.control_survives_close and not is_joining:
            kept = [
                packet for packet in self.wire[one, other] if packet is not FIN and packet.kind != MESSAGE
            ]
            self.wire[one, other] = deque([*kept, FIN])
        elif is_joining or self.draw.random() < 0.5:
            self.up.discard((other, one))
            if self.ghosts_arrive and not is_joining:
                self.ghosts[one, other] = deque(self.wire[one, other])
            self.wire[one, other] = deque()
            self.do(other, lambda core: core.link_down(one, self.now_us))
        else:
            self.wire[one, other].append(FIN)

    # Steps

    def do(self, name: str, act: Callable[[Prc], Effects | None]) -> None:
        self.now_us += 1
        core = self.cores[name]
        self.carry_out(name, act(core) or [])
        core.check()
        self.watch(name)

    def watch(self, name: str) -> None:
        """Whatever becomes of the others: a timer is set for all that a core keeps of a handshake."""
        core = self.cores[name]
        if not isinstance(core, Prc):  # preventive broadcast keeps its handshakes otherwise
            return
        keys = [OPEN + peer for peer in core.opening]
        keys += [ACCEPT + peer for peer in core.accepting]
        keys += [ACCEPT + peer for peer in core.closed if peer not in core.opening]
        keys += [f"{RELAY}{opener}\0{target}" for opener, target in core.relays]
        self.unwatched |= {f"{name} {key}" for key in keys if (name, key) not in self.timers}

    def broadcast(self, name: str) -> None:
        core = self.cores[name]
        self.now_us += 1
        effects = core.broadcast(b"x", self.now_us)
        self.trace.event(name, self.now_us, Kind.BROADCAST, name, core.last, None, 1)
        self.carry_out(name, effects)
        core.check()

    def carry_out(self, name: str, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                for to in effect.to:
                    if (name, to) in self.up and (to, name) in self.up:
                        self.put(name, to, effect.packet)
            elif isinstance(effect, Deliver):
                self.give(name, effect.message)
            elif isinstance(effect, SetTimer):
                self.timers[name, effect.key] = effect.at_us
            elif isinstance(effect, CancelTimer):
                self.timers.pop((name, effect.key), None)
            elif isinstance(effect, CloseLink):
                self.hang_up(name, effect.peer, tell=False)

    def put(self, name: str, to: str, packet: Any) -> None:
        queue = self.wire[name, to]
        if self.control_overtakes and packet.kind != MESSAGE:
            waiting = [each for each in queue if each is not FIN and each.kind != MESSAGE]
            queue.insert(len(waiting), packet)
        else:
            queue.append(packet)

    def give(self, name: str, message: Message) -> None:
        self.delivered[name].append((message.origin, message.number))
        self.trace.event(name, self.now_us, Kind.DELIVER, message.origin, message.number, None, 1)

    def taken(self, name: str) -> set[tuple[str, int]]:
        return {*self.delivered[name], *self.cores[name].unechoed}

    def arrive(self, pair: tuple[str, str], ghost: bool = False) -> None:
        sender, to = pair
        packet = (self.ghosts if ghost else self.wire)[pair].popleft()
        if packet is FIN:
            self.up.discard((to, sender))
            self.do(to, lambda core: core.link_down(sender, self.now_us))
            return
        core = self.cores[to]
        was_in, was_joined = sender in core.in_view, core.is_joined
        self.do(to, lambda core: core.receive(sender, packet, self.now_us))
        if not was_in and sender in core.in_view and not self.cores[sender].is_joined:
            self.took_in[to, sender] = self.before[to] | self.taken(to)
        if core.is_joined and not was_joined:
            self.before[to] = self.took_in.get((sender, to), set())

    def busy(self) -> list[tuple[str, str]]:
        return [pair for pair, queue in self.wire.items() if queue and pair[1] in self.alive]

    def haunted(self) -> list[tuple[str, str]]:
        return [pair for pair, queue in self.ghosts.items() if queue and pair[1] in self.alive]

    def fire(self) -> None:
        for (name, key), at in sorted(self.timers.items(), key=lambda item: (item[1], item[0])):
            if at <= self.now_us and self.timers.get((name, key)) == at:
                del self.timers[name, key]
                self.do(name, lambda core, key=key: core.timer(key, self.now_us))

    def settle(self, steps_max: int = 200_000) -> bool:
        """Let everything arrive and every timer come due, until all is quiet."""
        for _ in range(steps_max):
            busy = self.busy()
            if busy:
                self.arrive(self.draw.choice(busy))
            elif self.haunted():
                self.arrive(self.draw.choice(self.haunted()), ghost=True)
            elif self.timers:
                self.now_us = max(self.now_us, min(self.timers.values()))
                self.fire()
            else:
                return True
        return False

    # Judgement

    def safe_pairs(self) -> set[tuple[str, str]]:
        """Links that are safe in both directions, at both ends, and that nobody wants to close."""
        return {
            (a, b)
            for a, b in self.up
            if a < b
            and (b, a) in self.up
            and FIN not in self.wire[a, b]
            and FIN not in self.wire[b, a]
            and self.cores[a].is_safe_with(b)
            and self.cores[b].is_safe_with(a)
            and b not in self.cores[a].closing
            and a not in self.cores[b].closing
        }

    def members(self) -> list[str]:
        return [name for name in self.alive if self.cores[name].is_joined]

    def stays_connected(
        self, without_link: tuple[str, str] | None = None, without: str | None = None
    ) -> bool:
        names = {name for name in self.members() if name != without}
        near: dict[str, set[str]] = {name: set() for name in names}
        for a, b in self.safe_pairs() - {without_link}:
            if a in names and b in names:
                near[a].add(b)
                near[b].add(a)
        if not names:
            return False
        seen = {min(names)}
        frontier = list(seen)
        while frontier:
            for other in near[frontier.pop()] - seen:
                seen.add(other)
                frontier.append(other)
        return seen == names

    def problems(self) -> set[str]:
        """What is wrong once all is quiet: duplicate, causal, created, lost, leak, unwatched."""
        found = {"unwatched"} if self.unwatched else set()
        report = verify_table(self.trace.table("prc"), ORDERED, sorted(self.cores), 0, run="prc")
        for kind in ("duplicate", "causal", "fifo", "created", "malformed"):
            if getattr(report.counts, kind):
                found.add(kind)
        members = self.members()
        everything = set().union(*({*self.delivered[name]} | self.before[name] for name in members))
        for name in members:
            own = set(self.delivered[name])
            if own & self.before[name]:
                found.add("duplicate")
            if own | self.before[name] != everything:
                found.add("lost")
        for name in self.alive:
            if self.cores[name].entries() or self.cores[name].explain():
                found.add("leak")
        return found
