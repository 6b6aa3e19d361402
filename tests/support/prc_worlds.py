"""PRC on the one net: overlays whose links open, break and close at any time; joins and crashes; schedules.

Each direction of a link keeps its order here, and one end may be down while the other does not know yet.
Causal order and duplicates are judged by `whence.verify` from the recorded events, the rest by sets.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from support.net import Flight, Net
from whence.core.effects import Effects
from whence.protocols.prc.links import RELAY
from whence.protocols.prc.prc import ACCEPT, OPEN, Prc
from whence.protocols.prc.wire import MESSAGE, RHO
from whence.trace.schema import Kind

FIN = None  # the end of a link, in order behind what was sent
FOUNDERS = 4
Pair = tuple[str, str]


class Overlay:
    """A host's part: who is there, which links are being opened and closed, and what joiners had missed."""

    def __init__(self, seed: int, make: Callable[..., Prc] = Prc, **params: Any) -> None:
        self.draw = Random(seed)
        self.net = Net(
            lambda name, _, **given: make(name, [name], links="dynamic", **given), (), step_us=1, **params
        )
        self.net.after = self._watch
        self.net.on_send = self._overtake
        self.net.on_close = lambda name, peer: self.hang_up(name, peer, tell=False)
        self.cores = self.net.cores
        self.alive: list[str] = []
        self.before: dict[str, set[Pair]] = {}  # what a joiner's contact had when it took it in
        self.took_in: dict[Pair, set[Pair]] = {}  # the same, for contacts that may be lost
        self.unwatched: set[str] = set()  # what a core held for a handshake with no timer that would end it
        # Ways in which a host can be wrong, for mutants
        self.control_overtakes = False
        self.control_survives_close = False
        self.second_contact = False
        self.ghosts_arrive = self.draw.random() < 0.5

    # Processes

    def add(self) -> str:
        name = f"p{len(self.cores):03d}"
        self.net.add(name)
        self.alive.append(name)
        self.before[name] = set()
        return name

    def found(self, count: int = FOUNDERS) -> None:
        """A first process, and others that join it one after the other."""
        self.cores[self.add()].found()
        for _ in range(count - 1):
            name = self.add()
            self.ask(name, self.draw.choice(self.members()))
            self.settle()

    def ask(self, joiner: str, contact: str) -> None:
        self.connect(joiner, contact)
        if self.second_contact:
            others = [each for each in self.members() if not self.net.is_linked(joiner, each)]
            if others:
                self.connect(joiner, self.draw.choice(others))
        self.net.do(joiner, lambda core, now_us: core.join(contact, now_us))

    def freeze(self, name: str) -> None:
        """It does nothing any more, and nobody can tell: its links stay up."""
        self.alive.remove(name)
        for key in [key for key in self.net.timers if key[0] == name]:
            del self.net.timers[key]

    def crash(self, name: str) -> None:
        net = self.net
        self.freeze(name)
        net.trace.event(name, net.now_us, Kind.CRASH)
        for other in self.alive:
            sent = self.queue(name, other)
            self.drop(name, other)
            self.drop(other, name)
            net.up[name, other] = 0
            if net.up.get((other, name)):
                is_joining = self.cores[other].contact == name
                kept = 0 if is_joining else self.draw.randrange(len(sent) + 1)
                net.flying += sent[:kept]
                self.finish(name, other)

    # Links

    def connect(self, one: str, other: str) -> None:
        """A host never mixes two incarnations of a link: what flies on the old one is lost."""
        self.drop(one, other)
        self.drop(other, one)
        self.net.link(one, other)

    def queue(self, one: str, other: str) -> list[Flight]:
        """What is on its way over the present link, in order."""
        life = self.net.up.get((other, one), 0)
        return [each for each in self.net.flying if each[:2] == (one, other) and each.life == life]

    def drop(self, one: str, other: str) -> None:
        self.net.flying = [each for each in self.net.flying if each[:2] != (one, other)]

    def finish(self, one: str, other: str) -> None:
        """The other end will learn that the link is gone, behind what was sent before."""
        self.net.flying.append(Flight(one, other, FIN, self.net.up[other, one]))

    def go_down(self, one: str, other: str, *, haunts: bool) -> None:
        """One end of the link is gone, and what flies to it, too, or it arrives without a link."""
        self.net.up[one, other] = 0
        ghosts = [each for each in self.net.flying if each[:2] == (other, one) and each.packet is not FIN]
        self.drop(other, one)
        if haunts:
            self.net.flying += ghosts

    def hang_up(self, one: str, other: str, *, tell: bool) -> None:
        """One end closes. The other end learns at once, or when all that was sent before has arrived."""
        net = self.net
        if not net.up.get((one, other)):
            return
        self.go_down(one, other, haunts=self.ghosts_arrive)
        if tell:
            net.do(one, lambda core, now_us: core.link_down(other, now_us))
        if not net.up.get((other, one)):
            return
        is_joining = self.cores[other].contact == one
        if self.control_survives_close and not is_joining:
            kept = [each for each in self.queue(one, other) if each.packet and each.packet.kind != MESSAGE]
            self.drop(one, other)
            net.flying += kept
            self.finish(one, other)
        elif is_joining or self.draw.random() < 0.5:
            self.go_down(other, one, haunts=self.ghosts_arrive and not is_joining)
            net.do(other, lambda core, now_us: core.link_down(one, now_us))
        else:
            self.finish(one, other)

    def _overtake(self, flight: Flight) -> None:
        """Control goes before messages, on a host that is wrong in this way."""
        if self.control_overtakes and flight.packet.kind != MESSAGE:
            others = self.queue(flight.sender, flight.to)[:-1]
            waiting = [each for each in others if each.packet and each.packet.kind != MESSAGE]
            self.drop(flight.sender, flight.to)
            self.net.flying += [*others[: len(waiting)], flight, *others[len(waiting) :]]

    # Steps

    def _watch(self, name: str, effects: Effects) -> None:
        """Whatever becomes of the others: a timer is set for all that a core keeps of a handshake."""
        core = self.cores[name]
        core.check()
        if not isinstance(core, Prc):  # preventive broadcast keeps its handshakes otherwise
            return
        keys = [OPEN + peer for peer in core.opening]
        keys += [ACCEPT + peer for peer in core.accepting]
        keys += [ACCEPT + peer for peer in core.closed if peer not in core.opening]
        keys += [f"{RELAY}{opener}\0{target}" for opener, target in core.relays]
        self.unwatched |= {f"{name} {key}" for key in keys if (name, key) not in self.net.timers}

    def arrive(self, pair: Pair, *, ghost: bool = False) -> None:
        """The first packet between the two arrives; a ghost is one whose link is gone."""
        net, (sender, to) = self.net, pair
        at = next(
            at for at, each in enumerate(net.flying) if each[:2] == pair and self.is_ghost(each) == ghost
        )
        packet = net.flying.pop(at).packet
        if packet is FIN:
            net.up[to, sender] = 0
            net.do(to, lambda core, now_us: core.link_down(sender, now_us))
            return
        core = self.cores[to]
        was_in, was_joined = sender in core.in_view, core.is_joined
        net.receive(to, sender, packet)
        if not was_in and sender in core.in_view and not self.cores[sender].is_joined:
            self.took_in[to, sender] = self.before[to] | {*net.delivered[to], *core.unechoed}
        if core.is_joined and not was_joined:
            self.before[to] = self.took_in.get((sender, to), set())

    def is_ghost(self, flight: Flight) -> bool:
        return self.net.up.get((flight.to, flight.sender)) != flight.life

    def busy(self, *, ghosts: bool = False) -> list[Pair]:
        """Between whom something is on its way, over a link that is there or over one that is gone."""
        flying = {each[:2] for each in self.net.flying if self.is_ghost(each) == ghosts}
        return [pair for pair in self.net.up if pair in flying and pair[1] in self.alive]

    def fire(self) -> None:
        """Timers that are due expire."""
        self.net.pass_time(self.net.now_us)

    def settle(self, steps_max: int = 200_000) -> bool:
        """Let everything arrive and every timer expire, until all is quiet."""
        for _ in range(steps_max):
            busy = self.busy()
            if busy:
                self.arrive(self.draw.choice(busy))
            elif haunted := self.busy(ghosts=True):
                self.arrive(self.draw.choice(haunted), ghost=True)
            elif self.net.timers:
                self.net.now_us = max(self.net.now_us, min(self.net.timers.values()))
                self.fire()
            else:
                return True
        return False

    # Judgement

    def safe_pairs(self) -> set[Pair]:
        """Links that are safe in both directions, at both ends, and that nobody wants to close."""
        ending = {frozenset(each[:2]) for each in self.net.flying if each.packet is FIN}
        return {
            (a, b)
            for (a, b), life in self.net.up.items()
            if a < b
            and life
            and self.net.up[b, a]
            and frozenset((a, b)) not in ending
            and self.cores[a].is_safe_with(b)
            and self.cores[b].is_safe_with(a)
            and b not in self.cores[a].closing
            and a not in self.cores[b].closing
        }

    def members(self) -> list[str]:
        return [name for name in self.alive if self.cores[name].is_joined]

    def neighbours(self, without: Pair | None = None) -> dict[str, list[str]]:
        """Of each member, by safe links."""
        near: dict[str, list[str]] = {name: [] for name in self.members()}
        for a, b in sorted(self.safe_pairs() - {without}):
            if a in near and b in near:
                near[a].append(b)
                near[b].append(a)
        return near

    def stays_connected(self, without_link: Pair | None = None, without: str | None = None) -> bool:
        near = self.neighbours(without_link)
        left = set(near) - {without}
        frontier = [min(left)] if left else []
        reached = set(frontier)
        while frontier:
            further = left.intersection(near[frontier.pop()]) - reached
            reached |= further
            frontier += further
        return bool(left) and reached == left

    def problems(self) -> set[str]:
        """What is wrong once all is quiet: duplicate, causal, created, lost, leak, unwatched."""
        found = {"unwatched"} if self.unwatched else set()
        counts = self.net.report(witness_max=0).counts
        found |= {
            kind for kind in ("duplicate", "causal", "fifo", "created", "malformed") if getattr(counts, kind)
        }
        has = {name: set(self.net.delivered[name]) for name in self.members()}
        everything = set().union(*(has[name] | self.before[name] for name in has))
        for name, own in has.items():
            if own & self.before[name]:
                found.add("duplicate")
            if own | self.before[name] != everything:
                found.add("lost")
        for name in self.alive:
            if self.cores[name].entries() or self.cores[name].explain():
                found.add("leak")
        return found


class Schedule:
    """Random actions on an overlay; each keeps the graph of safe links connected, as the protocol assumes."""

    def __init__(self, overlay: Overlay, *, most: int = 7, crashes: bool = True, joins: bool = True) -> None:
        self.overlay, self.net, self.draw = overlay, overlay.net, overlay.draw
        self.most = most
        self.actions: list[tuple[Callable[[], None], int]] = [
            (self.arrive, 60),
            (self.broadcast, 10),
            (self.open, 9),
            (self.open_again, 1),
            (self.close, 3),
            (self.hang_up, 3),
            (self.wait, 2),
        ]
        if joins:
            self.actions.append((self.join, 1))
        if crashes:
            self.actions.append((self.crash, 1))
        self.actions.append((self.haunt, 3))
        if overlay.control_survives_close:
            self.actions += [(self.hang_up_under_control, 60), (self.broadcast, 5), (self.open, 20)]

    def run(self, steps: int) -> None:
        acts = [act for act, _ in self.actions]
        weights = [weight for _, weight in self.actions]
        for act in self.draw.choices(acts, weights, k=steps):
            act()
            self.overlay.fire()
            self.rejoin()

    def arrive(self) -> None:
        busy = self.overlay.busy()
        if busy:
            self.overlay.arrive(self.draw.choice(busy))

    def haunt(self) -> None:
        haunted = self.overlay.busy(ghosts=True)
        if haunted:
            self.overlay.arrive(self.draw.choice(haunted), ghost=True)

    def broadcast(self) -> None:
        self.net.broadcast(self.draw.choice(self.overlay.members()))

    def wait(self) -> None:
        self.net.now_us += self.draw.choice([10, 100, 1_000])

    def open(self) -> None:
        """Two processes at a distance of two or three, sometimes both at the same time."""
        overlay, net = self.overlay, self.net
        near = overlay.neighbours()
        opener = self.draw.choice(sorted(near))
        if not near[opener]:
            return
        route = [opener, self.draw.choice(near[opener])]
        for _ in range(self.draw.choice([1, 1, 1, 2])):
            further = [each for each in near[route[-1]] if each not in route]
            if not further:
                return
            route.append(self.draw.choice(further))
        target = route[-1]
        if net.is_linked(opener, target):
            return
        overlay.connect(opener, target)
        if len(route) == 3 and self.draw.random() < 0.7:
            net.do(route[1], lambda core, now_us: core.mediate(opener, target, now_us))
        net.do(opener, lambda core, now_us: core.open(target, tuple(route), now_us))
        if self.draw.random() < 0.3:
            for _ in range(self.draw.choice([0, 5, 20])):
                self.arrive()
            if net.up.get((target, opener)) and target in overlay.alive and opener in overlay.alive:
                back = tuple(reversed(route))
                net.do(target, lambda core, now_us: core.open(opener, back, now_us))

    def open_again(self) -> None:
        """A view is a multiset: the overlay may name a neighbour again."""
        overlay, net = self.overlay, self.net
        pairs = sorted(overlay.safe_pairs())
        if not pairs:
            return
        a, c = self.draw.choice(pairs)
        between = [
            b for b in overlay.members() if net.cores[a].is_safe_with(b) and net.cores[b].is_safe_with(c)
        ]
        if between:
            net.do(a, lambda core, now_us: core.open(c, (a, between[0], c), now_us))

    def close(self) -> None:
        """The overlay's wish: as soon as no handshake needs it."""
        overlay, net = self.overlay, self.net
        pairs = sorted(overlay.safe_pairs())
        if pairs:
            pair = self.draw.choice(pairs)
            if overlay.stays_connected(without_link=pair):
                one, other = self.draw.sample(pair, 2)
                net.do(one, lambda core, now_us: core.close(other, now_us))

    def hang_up(self) -> None:
        """A link breaks, whatever it is being used for."""
        overlay, net = self.overlay, self.net
        pairs = sorted(pair for pair in net.up if pair[0] < pair[1] and net.up[pair] and net.up[pair[::-1]])
        pairs = [pair for pair in pairs if all(each in overlay.alive for each in pair)]
        if pairs:
            pair = self.draw.choice(pairs)
            # Even one that is safe at one end only may be the last link of a process that has just joined.
            if overlay.stays_connected(without_link=pair):
                one, other = self.draw.sample(pair, 2)
                overlay.hang_up(one, other, tell=True)

    def hang_up_under_control(self) -> None:
        """Just where it hurts: under the last word of a handshake that has messages before it."""
        overlay, net = self.overlay, self.net
        for one, other in sorted(pair for pair, life in net.up.items() if life):
            kinds = [each.packet.kind for each in overlay.queue(one, other) if each.packet is not FIN]
            pair = (min(one, other), max(one, other))
            is_under = RHO in kinds and MESSAGE in kinds[: kinds.index(RHO)] and other in overlay.alive
            if is_under and overlay.stays_connected(without_link=pair):
                overlay.hang_up(one, other, tell=True)
                return

    def crash(self) -> None:
        overlay = self.overlay
        name = self.draw.choice(overlay.members())
        if len(overlay.members()) > 3 and overlay.stays_connected(without=name):
            overlay.crash(name)

    def join(self) -> None:
        overlay = self.overlay
        if len(overlay.alive) < self.most:
            contact = self.draw.choice(overlay.members())
            overlay.ask(overlay.add(), contact)

    def rejoin(self) -> None:
        """Who waits for a contact that is gone asks another one: it has seen nothing yet."""
        overlay, net = self.overlay, self.net
        for name in list(overlay.alive):
            core = net.cores[name]
            if not core.is_joined and core.contact is None:
                others = [each for each in overlay.members() if not net.is_linked(name, each)]
                if others:
                    overlay.ask(name, self.draw.choice(others))

    def end(self) -> None:
        """Until all is quiet, and everybody is in."""
        for _ in range(20):
            self.overlay.settle()
            self.rejoin()


def one_run(
    seed: int, steps: int = 250, *, prepare: Callable[[Overlay], None] | None = None, **params: Any
) -> Overlay:
    """An overlay after a random schedule, when all is quiet again."""
    draw = Random(~seed)
    given = {
        "timeout_us": draw.choice([40, 150, 600, 5_000]),
        "attempts": draw.choice([1, 2, 3]),
        "own_after_echo": draw.random() < 0.25,
        **params,
    }
    overlay = Overlay(seed, **given)
    if prepare is not None:
        prepare(overlay)
    overlay.found()
    schedule = Schedule(overlay)
    schedule.run(draw.randrange(steps // 2, steps))
    schedule.end()
    return overlay
