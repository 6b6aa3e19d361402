"""Deliberately broken variants of the baselines. The verifier must catch every one.

Each mutant changes one thing that somebody has really got wrong (in shipped code, in a paper's
pseudo-code, or in an obvious optimisation), and says which findings must give it away.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.core.clocks import Delta
from whence.core.effects import Deliver, Effects, Reason, Send
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import State
from whence.protocols.baselines.fifo import Fifo
from whence.protocols.baselines.flooding import Flooding
from whence.protocols.baselines.vector import Vector, VectorPacket


class SlowPathVector(Vector):
    """The vector core without its short cut: mutants change rules, not optimisations."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        return Flooding.receive(self, peer, packet, now_us)


class NoDelay(SlowPathVector):
    """Early messages are not delayed: the clock is sent but never tested."""

    def _obstacle(self, packet: VectorPacket) -> tuple[int, int] | None:
        return None


class ClockNotMerged(SlowPathVector):
    """A delivery does not enter the clock that is sent: only the own entry grows."""

    def _deliver(self, packet: VectorPacket, effects: Effects) -> None:
        super()._deliver(packet, effects)
        self.clock.changed.clear()


class ClockMergedOnlyFromNeighbours(SlowPathVector):
    """The buffer is filtered by destination: what no neighbour broadcast is not passed on as a past."""

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        near = {self.index[name] for name in self.neighbours}
        for member in list(self.clock.changed):
            if member not in near:
                del self.clock.changed[member]
        return super().broadcast(payload, now_us)


class OneShortOnOthers(SlowPathVector):
    """Off by one: a predecessor of another origin counts as delivered one message too early."""

    def _obstacle(self, packet: VectorPacket) -> tuple[int, int] | None:
        counts = self.clock.counts
        if counts[packet.origin] < packet.number - 1:
            return packet.origin, packet.number - 1
        pairs = zip(packet.after[::2], packet.after[1::2], strict=True)
        return next(((k, n) for k, n in pairs if counts[k] < n - 1), None)


class OneShortOnOwn(SlowPathVector):
    """Off by one: a message may overtake the previous one of its own origin."""

    def _obstacle(self, packet: VectorPacket) -> tuple[int, int] | None:
        counts = self.clock.counts
        if counts[packet.origin] < packet.number - 2:
            return packet.origin, packet.number - 1
        pairs = zip(packet.after[::2], packet.after[1::2], strict=True)
        return next(((k, n) for k, n in pairs if counts[k] < n), None)


class TwoIdHistory(SlowPathVector):
    """The two newest ids instead of the whole past since the last broadcast."""

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        changed = self.clock.changed
        for member in list(changed)[:-2]:
            del changed[member]
        return super().broadcast(payload, now_us)

    def _deliver(self, packet: VectorPacket, effects: Effects) -> None:
        self.clock.changed.pop(packet.origin, None)  # so that the newest comes last
        super()._deliver(packet, effects)


class FirstObstacleOnly(SlowPathVector):
    """What waited for a message is released with it, whatever else it still waits for."""

    def _release(self, origin: int, number: int, effects: Effects) -> None:
        for key in self.waiters.pop((origin, number), []):
            packet = self.held.pop(key)[0]
            self.clock.advance(*key)
            effects.append(Deliver(Message(self.members[key[0]], key[1], packet.payload)))
            self._release(*key, effects)


class DeltaAfterIncrement(SlowPathVector):
    """The clock is stamped after the own entry was incremented: a message waits for itself."""

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        self.clock.changed[self.my_index] = self.last + 1
        return super().broadcast(payload, now_us)


class FullBufferForgets(SlowPathVector):
    """A buffer of three that drops the oldest held message in silence."""

    forgotten: frozenset[tuple[int, int]] = frozenset()

    def _refuse(self, packet: Packet) -> Reason | None:
        if (packet[0], packet[1]) in self.forgotten:  # or it would be flooded again for ever
            return Reason.DUPLICATE
        return super()._refuse(packet)

    def _accept(self, packet: Packet, now_us: int, effects: Effects) -> None:
        super()._accept(packet, now_us, effects)
        if len(self.held) > 3:
            victim = next(iter(self.held))
            del self.held[victim]
            self.forgotten |= {victim}
            for obstacle in list(self.waiters):
                self.waiters[obstacle] = [key for key in self.waiters[obstacle] if key != victim]


class RestartForgetsDelta(SlowPathVector):
    """A restart restores the counters but not which of them changed since the last broadcast."""

    def restore(self, state: State) -> None:
        super().restore({**state, "changed": []})


class RestartForgetsHeld(SlowPathVector):
    """A restart restores the clock but not the messages that were waiting."""

    def restore(self, state: State) -> None:
        super().restore({**state, "held": [], "waiters": []})


class WrongOriginOnDelivery(SlowPathVector):
    """The delivery names the neighbour that forwarded the message, not its origin."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        effects = super().receive(peer, packet, now_us)
        return [
            Deliver(effect.message._replace(origin=peer)) if isinstance(effect, Deliver) else effect
            for effect in effects
        ]


class NoDuplicateGuard(Fifo):
    """A second copy of a delivered message is delivered again."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        origin, number, payload = packet
        if number <= self.delivered[origin] and origin != self.my_index:
            return [Deliver(Message(self.members[origin], number, payload))]
        return super().receive(peer, packet, now_us)


class NoDuplicateGuardWhileHeld(SlowPathVector):
    """The guard looks at what was delivered, not at what is held: a held message is queued twice."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        if (packet[0], packet[1]) not in self.held:
            return super().receive(peer, packet, now_us)
        effects: Effects = []
        self._accept(packet, now_us, effects)
        return effects

    def _release(self, origin: int, number: int, effects: Effects) -> None:
        for key in self.waiters.pop((origin, number), []):
            packet = self.held[key][0]
            obstacle = self._obstacle(packet)
            if obstacle is not None:
                self.waiters.setdefault(obstacle, []).append(key)
                continue
            self.clock.advance(*key)
            effects.append(Deliver(Message(self.members[key[0]], key[1], packet.payload)))
            self._release(*key, effects)


class NoFifo(Fifo):
    """Flooding that delivers on receipt: not even one sender's order is kept."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        return Flooding.receive(self, peer, packet, now_us)

    def _refuse(self, packet: Packet) -> Reason | None:
        origin, number, _ = packet
        if origin == self.my_index or number in self.held.get(origin, ()):
            return Reason.DUPLICATE
        return None

    def _accept(self, packet: Packet, now_us: int, effects: Effects) -> None:
        origin, number, payload = packet
        self.held.setdefault(origin, {})[number] = (packet, now_us)  # here: the ids that were seen
        effects.append(Deliver(Message(self.members[origin], number, payload)))


class RelaysOnlyUpwards(SlowPathVector):
    """A copy is passed on only to neighbours with a greater name: some are never reached."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        effects = super().receive(peer, packet, now_us)
        return [
            Send(tuple(to for to in effect.to if to > self.me), effect.packet)
            if isinstance(effect, Send)
            else effect
            for effect in effects
        ]


class DeltaPerDelivery(SlowPathVector):
    """The delta is cut at every receipt instead of at every own broadcast: only the newest batch is kept."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        kept: Delta = self.clock.take_delta()
        effects = super().receive(peer, packet, now_us)
        if not self.clock.changed:
            self.clock.changed.update(zip(kept[::2], kept[1::2], strict=True))
        return effects


@dataclass(frozen=True)
class Mutant:
    """A broken core, the findings of which at least one must show, and where it lives."""

    make: type[Flooding]
    gives_away: frozenset[str]
    scenario: str = "replies"

    @property
    def name(self) -> str:
        return self.make.__name__


def _mutant(make: type[Flooding], *kinds: str, scenario: str = "replies") -> Mutant:
    return Mutant(make, frozenset(kinds), scenario)


ZOO = [
    _mutant(NoDelay, "causal"),
    _mutant(ClockNotMerged, "causal"),
    _mutant(ClockMergedOnlyFromNeighbours, "causal"),
    _mutant(OneShortOnOthers, "causal"),
    _mutant(OneShortOnOwn, "causal", "fifo", "missing"),
    _mutant(TwoIdHistory, "causal"),
    _mutant(FirstObstacleOnly, "causal"),
    _mutant(DeltaAfterIncrement, "missing"),
    _mutant(FullBufferForgets, "missing"),
    _mutant(RestartForgetsDelta, "causal", scenario="restarts"),
    _mutant(RestartForgetsHeld, "missing", scenario="restarts"),
    _mutant(WrongOriginOnDelivery, "created", "duplicate", "causal"),
    _mutant(NoDuplicateGuard, "duplicate", scenario="duplicates"),
    _mutant(NoDuplicateGuardWhileHeld, "duplicate", scenario="duplicates"),
    _mutant(NoFifo, "fifo"),
    _mutant(RelaysOnlyUpwards, "missing"),
    _mutant(DeltaPerDelivery, "causal"),
]
