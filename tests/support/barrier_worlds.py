"""Random worlds of barrier cores, judged: what the verifier cannot see of lifetimes, waiting and contacts.

Nothing here asks a core for its opinion, save for what it carries (`over`). Findings, by name:

    causal, fifo, duplicate, created    the verifier's
    late           delivered after its deadline on the node's own clock
    ended twice    an outcome for what was delivered or had ended
    unsaid         came first when it was late, and was no outcome (as far as that is promised)
    idle           accepted, and waits though all that happened before it is delivered or dead, or it is dead
    missing        over contacts without limits: not delivered though it was carried to everybody in time
    again          given twice in one contact
    dead           given away after its deadline
    rate           two messages in one direction of a contact, less than a gap apart
    unlinked       sent where there is no contact
    over           more carried than the capacity, though not all of it waits
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from typing import Any

from msgspec.structs import asdict

from support.net import Make, Net
from whence.core.effects import Deliver, Effects, Expire, Send
from whence.core.message import MessageId, NodeId
from whence.protocols.barrier.oppnet import Oppnet
from whence.protocols.barrier.wire import BarrierPacket

LAST_LIFETIME_US = 5_000  # of the messages with which a world ends
JOINERS_MAX = 4


class Judge(Net):
    """The one net, with findings."""

    def __init__(self, make: str | Make, *args: Any, has_contacts: bool = False, **params: Any) -> None:
        self.has_contacts = has_contacts
        self.found: Counter[str] = Counter()
        self.history: dict[MessageId, set[MessageId]] = {}  # everything that happened before a message
        self.open: dict[NodeId, set[MessageId]] = {}  # accepted, and has not ended
        self.given: dict[tuple[int, NodeId, NodeId], dict[MessageId, int]] = {}
        self.came: set[tuple[NodeId, MessageId]] = set()
        self.pasts: dict[NodeId, dict[NodeId, int]] = {}  # what each node was told of its neighbours' pasts
        super().__init__(make, *args, **params)

    def broadcast(self, node: NodeId, lifetime_us: int | None = None, payload: bytes = b"xxx") -> MessageId:
        history = set(self.delivered[node])
        for id_ in self.delivered[node]:
            history |= self.history.get(id_, set())
        self.history[MessageId(node, self.cores[node].last + 1)] = history
        return super().broadcast(node, lifetime_us, payload)

    def arrive(self, at: int, *, keep: bool = False) -> None:
        sender, to, packet, life = self.flying[at]
        refused = len(self.discarded[to])
        super().arrive(at, keep=keep)
        id_ = self.cores[to].message_of(packet)
        if self.up.get((to, sender)) != life:
            return
        if isinstance(packet, BarrierPacket) and not packet.number:
            past = self.pasts.setdefault(to, {})
            past |= {each.origin: max(each.number, past.get(each.origin, 0)) for each in packet.barrier}
            dropped = {each.id for each in self.discarded[to][refused:]}  # they turned out to be past
            self.open[to] = {id_ for id_ in self.open.get(to, set()) if id_ not in dropped}
        if id_ is None or id_.origin == to:
            return
        if all(each.id != id_ for each in self.discarded[to][refused:]) and not self.has_ended(to, id_):
            self.open.setdefault(to, set()).add(id_)
        if (to, id_) not in self.came:
            self.came.add((to, id_))
            late_us = self.clock(to) - self.deadlines.get(id_, self.clock(to))
            promised_us = self.params.get("late_us", 0)
            is_past = id_.number <= self.pasts.get(to, {}).get(id_.origin, 0)  # a joiner is not told of it
            self.found["unsaid"] += 0 < late_us <= promised_us and (to, id_) not in self.why and not is_past

    def has_ended(self, node: NodeId, id_: MessageId) -> bool:
        return id_ in self.delivered[node] or (node, id_) in self.why

    def carry_out(self, node: NodeId, effects: Effects) -> None:
        allowed: Effects = []
        for effect in effects:
            if isinstance(effect, Send):
                allowed.append(self._watched(node, effect))
                continue
            if isinstance(effect, Expire) and self.has_ended(node, effect.id):
                self.found["ended twice"] += 1
                continue
            if isinstance(effect, Deliver):
                self.found["ended twice"] += (node, effect.message.id) in self.why
            allowed.append(effect)
        super().carry_out(node, allowed)
        core, open_ = self.cores[node], self.open.setdefault(node, set())
        core.check()
        open_ -= {id_ for id_ in open_ if self.has_ended(node, id_)}
        if isinstance(core, Oppnet) and 0 < core.cache.capacity < len(core.cache):
            held = [MessageId(*key) in open_ for key in core.cache.messages]
            self.found["over"] += not all(held)

    def _watched(self, node: NodeId, send: Send) -> Send:
        linked = tuple(to for to in send.to if self.is_linked(node, to))
        self.found["unlinked"] += len(send.to) - len(linked)
        id_ = self.cores[node].message_of(send.packet)
        if id_ is not None and self.has_contacts:
            now_us = self.clock(node)
            self.found["dead"] += self.deadlines.get(id_, now_us) < now_us
            for to in linked:
                given = self.given.setdefault((self.up[node, to], node, to), {})
                self.found["again"] += id_ in given
                self.found["rate"] += max(given.values(), default=-1_000) + self.params["gap_us"] > now_us
                given[id_] = now_us
        return Send(linked, send.packet)

    def pass_time(self, until_us: int) -> None:
        super().pass_time(until_us)
        for node in self.names:
            now_us = self.clock(node)
            gone = set(self.delivered[node])
            for id_ in self.open.get(node, ()):
                dead = self.deadlines.get(id_, now_us) < now_us
                obstacles = self.history[id_] - gone
                if dead or all(self.deadlines.get(each, now_us) < now_us for each in obstacles):
                    self.found["idle"] += 1

    def end_in_a_line(self) -> None:
        """Everybody stands in a line and says something, and there is time enough to hand on everything."""
        for one, other in combinations(self.names, 2):
            if self.is_linked(one, other):
                self.cut(one, other)
        self.flying.clear()
        for one, other in zip(self.names, self.names[1:], strict=False):
            self.link(one, other)
        self._settle_for(20)
        for node in self.names:
            self.broadcast(node, LAST_LIFETIME_US)
        self._settle_for(1_000)
        last_us = self.now_us + 200
        alive = {id_ for id_ in self.history if self.deadlines.get(id_, last_us) >= last_us}
        for node in self.names:
            self.found["missing"] += len(alive - set(self.delivered[node]))

    def _settle_for(self, for_us: int) -> None:
        for _ in range(for_us // 2):
            self.settle()
            self.pass_time(self.now_us + 2)

    def verdict(self) -> Counter[str]:
        """All findings."""
        counts = asdict(self.report().counts)
        found = self.found + Counter(
            {kind: counts[kind] for kind in ("causal", "fifo", "duplicate", "created")}
        )
        return found + Counter(late=self.late)


def random_run(
    seed: int,
    protocol: str = "barrier",
    *,
    make: Make | None = None,
    check: bool = False,
    skew_us: int | None = None,
    assumed_us: int | None = None,
    joiners: bool = False,
    **params: Any,
) -> Judge:
    """3 to 6 nodes whose clocks differ by `skew_us` at most, and a world that does what it likes.

    The cores are told so, or something else (`assumed_us`). With `joiners` more nodes come later, and say
    nothing before they have heard something; at the end all that is in flight arrives, slowly.
    """
    draw = random.Random(f"{protocol}/joiners/{seed}" if joiners else f"{protocol}/{seed}")
    has_contacts = protocol == "oppnet"
    skew_us = draw.choice([0, 0, 3, 20, 100]) if skew_us is None else skew_us
    names = [f"n{at}" for at in range(draw.randrange(3, 7))]
    coming = [f"j{at}" for at in range(JOINERS_MAX if joiners else 0)]
    offsets_us = {name: draw.randint(0, skew_us) for name in names + coming}
    assumed_us = skew_us if assumed_us is None else assumed_us
    given = {"skew_us": assumed_us, **params} if assumed_us else dict(params)
    if has_contacts:
        given |= {"seed": seed, "setup_max_us": 4, "gap_us": draw.choice([1, 3])}
        given.setdefault("capacity", draw.choice([0, 3, 6]))
    if given.get("mode", "safe") == "safe":
        given.setdefault("late_us", (0, 20, 10_000)[seed % 3])
    pairs = list(combinations(names, 2))
    links = [pair for pair in pairs if draw.random() < 0.7] if has_contacts or joiners else None
    net = Judge(
        make or protocol,
        names,
        links,
        offsets_us=offsets_us,
        start_us=1_000,
        check=check,
        ties_by_name=True,
        has_contacts=has_contacts,
        **given,
    )
    mixes = ["all", "some"] if joiners else ["all", "some", "none"]
    timed = draw.choice(mixes) if "lifetime_us" not in params else "group"
    for _ in range(draw.choice([60, 120])):
        _step(net, draw, timed, pairs, coming)
    while joiners and net.flying:
        net.arrive(draw.randrange(len(net.flying)))
        net.pass_time(net.now_us + draw.choice([0, 0, 0, 0, 1, 5]))
    net.pass_time(net.now_us + 300)
    return net


def _step(
    net: Judge, draw: random.Random, timed: str, pairs: list[tuple[str, str]], coming: list[str]
) -> None:
    happening = draw.random()
    if happening < 0.25:
        mortal = timed == "all" or (timed == "some" and draw.random() < 0.7)
        # Now and then a lifetime of a few microseconds between long ones: F4, F5.
        lifetime_us = draw.choice([2, 15, 60, draw.randint(1, 200)]) if mortal else None
        heard = [name for name in net.names if name[0] == "n" or net.delivered[name]]  # no silent joiner
        net.broadcast(draw.choice(heard), lifetime_us)
    elif happening < 0.75 and net.flying:
        for _ in range(draw.randrange(1, 4)):
            if net.flying:
                net.arrive(draw.randrange(len(net.flying)), keep=draw.random() < 0.15)
    elif happening < 0.80 and net.flying:
        net.lose(draw.randrange(len(net.flying)))
    elif happening < 0.83:
        net.restart(draw.choice(net.names))
    elif happening < 0.88 and net.has_contacts:
        one, other = draw.choice(pairs)
        (net.cut if net.is_linked(one, other) else net.link)(one, other)
    elif happening < 0.88 and coming:
        neighbours = draw.sample(net.names, draw.randrange(1, 4))
        joiner = coming.pop(0)
        net.add(joiner)
        for neighbour in neighbours:
            net.link(neighbour, joiner)
    else:
        net.pass_time(net.now_us + draw.choice([0, 1, 1, 2, 5, 30]))
