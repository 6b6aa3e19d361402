"""Random schedules of a PRC net: everything that can happen, at any time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from support.prc_net import FIN, Net
from whence.protocols.prc.wire import MESSAGE, RHO


class Schedule:
    """Random actions on a net; each keeps the graph of safe links connected, which the protocol assumes."""

    def __init__(self, net: Net, *, most: int = 7, crashes: bool = True, joins: bool = True) -> None:
        self.net, self.draw = net, net.draw
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
        if net.control_survives_close:
            self.actions += [(self.hang_up_under_control, 60), (self.broadcast, 5), (self.open, 20)]

    def run(self, steps: int) -> None:
        acts = [act for act, _ in self.actions]
        weights = [weight for _, weight in self.actions]
        for act in self.draw.choices(acts, weights, k=steps):
            act()
            self.net.fire()
            self.rejoin()

    def arrive(self) -> None:
        busy = self.net.busy()
        if busy:
            self.net.arrive(self.draw.choice(busy))

    def haunt(self) -> None:
        haunted = self.net.haunted()
        if haunted:
            self.net.arrive(self.draw.choice(haunted), ghost=True)

    def broadcast(self) -> None:
        self.net.broadcast(self.draw.choice(self.net.members()))

    def wait(self) -> None:
        self.net.now_us += self.draw.choice([10, 100, 1_000])

    def open(self) -> None:
        """Two processes at a distance of two or three, sometimes both at the same time."""
        net = self.net
        near: dict[str, list[str]] = {name: [] for name in net.members()}
        for a, b in sorted(net.safe_pairs()):
            if a in near and b in near:
                near[a].append(b)
                near[b].append(a)
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
        net.connect(opener, target)
        if len(route) == 3 and self.draw.random() < 0.7:
            net.do(route[1], lambda core: core.mediate(opener, target, net.now_us))
        net.do(opener, lambda core: core.open(target, tuple(route), net.now_us))
        if self.draw.random() < 0.3:
            for _ in range(self.draw.choice([0, 5, 20])):
                self.arrive()
            if (target, opener) in net.up and target in net.alive and opener in net.alive:
                back = tuple(reversed(route))
                net.do(target, lambda core: core.open(opener, back, net.now_us))

    def open_again(self) -> None:
        """A view is a multiset: the overlay may name a neighbour again."""
        net = self.net
        pairs = sorted(net.safe_pairs())
        if not pairs:
            return
        a, c = self.draw.choice(pairs)
        between = [b for b in net.members() if net.cores[a].is_safe_with(b) and net.cores[b].is_safe_with(c)]
        if between:
            net.do(a, lambda core: core.open(c, (a, between[0], c), net.now_us))

    def close(self) -> None:
        """The overlay's wish: as soon as no handshake needs it."""
        net = self.net
        pairs = sorted(net.safe_pairs())
        if pairs:
            pair = self.draw.choice(pairs)
            if net.stays_connected(without_link=pair):
                one, other = self.draw.sample(pair, 2)
                net.do(one, lambda core: core.close(other, net.now_us))

    def hang_up(self) -> None:
        """A link breaks, whatever it is being used for."""
        net = self.net
        pairs = sorted(pair for pair in net.up if pair[0] < pair[1] and pair[::-1] in net.up)
        pairs = [pair for pair in pairs if all(each in net.alive for each in pair)]
        if pairs:
            pair = self.draw.choice(pairs)
            # Even one that is safe at one end only may be the last link of a process that has just joined.
            if net.stays_connected(without_link=pair):
                one, other = self.draw.sample(pair, 2)
                net.hang_up(one, other, tell=True)

    def hang_up_under_control(self) -> None:
        """Just where it hurts: under the last word of a handshake that has messages before it."""
        net = self.net
        for one, other in sorted(net.up):
            kinds = [packet.kind for packet in net.wire.get((one, other), ()) if packet is not FIN]
            pair = (min(one, other), max(one, other))
            is_under = RHO in kinds and MESSAGE in kinds[: kinds.index(RHO)] and other in net.alive
            if is_under and net.stays_connected(without_link=pair):
                net.hang_up(one, other, tell=True)
                return

    def crash(self) -> None:
        net = self.net
        name = self.draw.choice(net.members())
        if len(net.members()) > 3 and net.stays_connected(without=name):
            net.crash(name)

    def join(self) -> None:
        net = self.net
        if len(net.alive) < self.most:
            contact = self.draw.choice(net.members())
            net.ask(net.add(), contact)

    def rejoin(self) -> None:
        """Who waits for a contact that is gone asks another one: it has seen nothing yet."""
        net = self.net
        for name in list(net.alive):
            core = net.cores[name]
            if not core.is_joined and core.contact is None:
                others = [each for each in net.members() if not net.is_linked(name, each)]
                if others:
                    net.ask(name, self.draw.choice(others))


def one_run(
    seed: int, steps: int = 250, *, prepare: Callable[[Net], None] | None = None, **params: Any
) -> Net:
    """A net after a random schedule, when all is quiet again."""
    draw = Random(~seed)
    given = {
        "timeout_us": draw.choice([40, 150, 600, 5_000]),
        "attempts": draw.choice([1, 2, 3]),
        "own_after_echo": draw.random() < 0.25,
        **params,
    }
    net = Net(seed, **given)
    if prepare is not None:
        prepare(net)
    net.found()
    schedule = Schedule(net)
    schedule.run(draw.randrange(steps // 2, steps))
    for _ in range(20):
        net.settle()
        schedule.rejoin()
    return net
