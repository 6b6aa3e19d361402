"""A world of barrier cores that judges them: what the verifier cannot see of lifetimes, waiting and contacts.

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

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from support.barrier_net import Net
from whence.core.effects import Deliver, Effects, Expire, Send
from whence.core.message import MessageId, NodeId
from whence.core.protocol import Protocol
from whence.protocols.barrier.oppnet import Oppnet

LAST_LIFETIME_US = 5_000  # of the messages with which a world ends
Ids = set[MessageId]


class Judge(Net):
    """See the module."""

    def __init__(
        self,
        make: Callable[..., Protocol],
        protocol: str,
        offsets_us: dict[NodeId, int],
        links: list[tuple[str, str]] | None = None,
        **params: Any,
    ) -> None:
        self.make = make
        self.found: Counter[str] = Counter()
        self.before: dict[MessageId, Ids] = {}  # everything that happened before a message
        self.open: dict[NodeId, Ids] = {me: set() for me in offsets_us}  # accepted, and has not ended
        self.given: dict[tuple[int, NodeId, NodeId], dict[MessageId, int]] = {}
        super().__init__(protocol, offsets_us, links, **params)

    def fresh(self, me: NodeId) -> Protocol:
        return self.make(me, self.names, **self.params)

    def restart(self, node: NodeId) -> None:
        state = self.cores[node].save()
        self.cores[node] = self.fresh(node)
        self.cores[node].restore(state)

    def broadcast(self, node: NodeId, lifetime_us: int | None = None) -> MessageId:
        past: Ids = set(self.delivered[node])
        for id_ in self.delivered[node]:
            past |= self.before.get(id_, set())
        self.before[MessageId(node, self.cores[node].last + 1)] = past
        return super().broadcast(node, lifetime_us)

    def arrive(self, at: int, *, keep: bool = False) -> None:
        sender, to, packet, life = self.flying[at]
        refused = len(self.discards)
        super().arrive(at, keep=keep)
        id_ = self.cores[to].message_of(packet)
        if id_ is None or id_.origin == to or self.linked.get(frozenset((sender, to))) != life:
            return
        if all(discard.id != id_ for discard in self.discards[refused:]) and not self.has_ended(to, id_):
            self.open[to].add(id_)

    def has_ended(self, node: NodeId, id_: MessageId) -> bool:
        return id_ in self.delivered[node] or (node, id_) in self.expired

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
                self.found["ended twice"] += (node, effect.message.id) in self.expired
            allowed.append(effect)
        super().carry_out(node, allowed)
        self.open[node] -= {id_ for id_ in self.open[node] if self.has_ended(node, id_)}
        core = self.cores[node]
        if isinstance(core, Oppnet) and 0 < core.cache.capacity < len(core.cache):
            held = [MessageId(*key) in self.open[node] for key in core.cache.messages]
            self.found["over"] += not all(held)

    def _watched(self, node: NodeId, send: Send) -> Send:
        linked = tuple(to for to in send.to if frozenset((node, to)) in self.linked)
        self.found["unlinked"] += len(send.to) - len(linked)
        id_ = self.cores[node].message_of(send.packet)
        if id_ is not None and self.protocol == "oppnet":
            now_us = self.clock(node)
            self.found["dead"] += self.deadlines.get(id_, now_us) < now_us
            for to in linked:
                given = self.given.setdefault((self.linked[frozenset((node, to))], node, to), {})
                self.found["again"] += id_ in given
                self.found["rate"] += max(given.values(), default=-1_000) + self.params["gap_us"] > now_us
                given[id_] = now_us
        return Send(linked, send.packet)

    def pass_time(self, until_us: int) -> None:
        super().pass_time(until_us)
        for node in self.names:
            now_us = self.clock(node)
            gone = set(self.delivered[node])
            for id_ in self.open[node]:
                dead = self.deadlines.get(id_, now_us) < now_us
                obstacles = self.before[id_] - gone
                if dead or all(self.deadlines.get(each, now_us) < now_us for each in obstacles):
                    self.found["idle"] += 1

    def end_in_a_line(self) -> None:
        """Everybody stands in a line and says something, and there is time enough to hand on everything."""
        for one, other in [sorted(pair) for pair in self.linked]:
            self.cut(one, other)
        self.flying.clear()
        for one, other in zip(self.names, self.names[1:], strict=False):
            self.link(one, other)
        self._settle(20)
        for node in self.names:
            self.broadcast(node, LAST_LIFETIME_US)
        self._settle(1_000)
        alive = [
            id_ for id_ in self.before if self.deadlines.get(id_, self.now_us + 200) >= self.now_us + 200
        ]
        for node in self.names:
            self.found["missing"] += len(set(alive) - set(self.delivered[node]))

    def _settle(self, for_us: int) -> None:
        for _ in range(for_us // 2):
            while self.flying:
                self.arrive(0)
            self.pass_time(self.now_us + 2)

    def verdict(self) -> Counter[str]:
        """All findings."""
        counts = asdict(self.report().counts)
        for kind in ("causal", "fifo", "duplicate", "created"):
            self.found[kind] += counts[kind]
        self.found["late"] += self.late
        self.found["unsaid"] += len(self.unsaid)
        return +self.found
