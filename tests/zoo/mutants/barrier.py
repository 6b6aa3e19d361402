"""Deliberately broken variants of the barrier order; those of the layer below are in `carry.py`.

First the repairs of the flaws F2 to F10, each taken out of mode `safe` again, then what somebody might get
wrong beside them. `published` has most of the flaws at once; here they are one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from whence.core.effects import Effects, Reason
from whence.core.message import NodeId, Packet
from whence.core.protocol import State
from whence.protocols.barrier.broadcast import Barrier
from whence.protocols.barrier.carry import Cache, ContactSides
from whence.protocols.barrier.oppnet import Oppnet
from whence.protocols.barrier.order import Arrivals
from whence.protocols.barrier.safe import PendingMessage, SafeOrder
from whence.protocols.barrier.wire import BarrierPacket, Key, as_number


class Unchecked(SafeOrder):
    """Mutants break invariants on purpose: the verdict must come from what they do."""

    def check(self) -> None:
        pass

    def evicted(self, key: Key) -> None:
        pass


# The repairs, taken out


class NoDuplicateGuard(Unchecked):
    """F2: a copy of what was delivered is taken, and the registry goes backwards."""

    def refuse(self, packet: BarrierPacket, now_us: int) -> Reason | None:
        refused = super().refuse(packet, now_us)
        key = (packet.origin, packet.number)
        return None if refused is Reason.DUPLICATE and not self._is_known(key) else refused

    def _is_known(self, key: Key) -> bool:
        return key in self.pending or key[0] == self.me


class DeadlinesAsTags(Unchecked):
    """F3, F4: an entry is settled if something with as late a deadline was delivered of its source."""

    def _find_obstacle(self, held: PendingMessage, now_us: int) -> bool:
        barrier = held.packet.barrier
        while held.at < len(barrier):
            source, _, deadline_us = barrier[held.at]
            if as_number(deadline_us) >= now_us and self.delivered.get(source, (0, -1))[1] < as_number(
                deadline_us
            ):
                return True
            held.at += 1
        return False


class CoversWhatLivesLonger(Unchecked):
    """F5, F7: an entry is dropped as covered by a message that dies before it."""

    def _cover(self, source: NodeId, number: int, deadline_us: int) -> None:
        super()._cover(source, number, 1 << 62)


class BarrierStartsAnew(Unchecked):
    """F5, as Code 9 has it: after a broadcast the barrier names that message alone."""

    def broadcast(
        self, payload: bytes, lifetime_us: int | None, now_us: int, effects: Effects
    ) -> BarrierPacket:
        packet = super().broadcast(payload, lifetime_us, now_us, effects)
        self.past = {self.me: {packet.number: as_number(packet.deadline_us)}}
        return packet


class IgnoresSkew(Unchecked):
    """F6: what is expired here is left out of barriers at once."""

    def __init__(self, me: NodeId, lifetime_us: int | None, skew_us: int) -> None:
        super().__init__(me, lifetime_us, 0)


class DeadGoLast(Unchecked):
    """F8: what is dead itself is released with the rest."""

    def advance(self, now_us: int, effects: Effects) -> None:
        dying, self._dying = self._dying, []
        super().advance(now_us, effects)
        self._dying = dying
        super().advance(now_us, effects)


class NothingWakes(Unchecked):
    """F9: no timer."""

    def next_us(self) -> int | None:
        return None


class WakesOnlyTheDead(Unchecked):
    """F9, half: the timer is set to a pending message's own deadline, not to its obstacle's."""

    def next_us(self) -> int | None:
        deadlines_us = [held.deadline_us for held in self.pending.values()]
        first_us = min(deadlines_us, default=1 << 62)
        return None if first_us == 1 << 62 else first_us + 1


# Beside them


class TakesTheLate(Unchecked):
    """A message is accepted after its deadline."""

    def refuse(self, packet: BarrierPacket, now_us: int) -> Reason | None:
        refused = super().refuse(packet, now_us)
        if refused is Reason.EXPIRED:
            return super().refuse(packet._replace(deadline_us=None), now_us)
        return refused


class ForgetsTooEarly(Unchecked):
    """Registries forget what is still alive for a moment."""

    def _forget(self, now_us: int) -> None:
        super()._forget(now_us + 30)


class ForgetsAtFirstDeadline(Unchecked):
    """A source is forgotten when its newest message is dead, though an older one lives on."""

    def _settle(self, packet: BarrierPacket, effects: Effects) -> None:
        super()._settle(packet, effects)
        deadline_us = as_number(packet.deadline_us)
        self.delivered[packet.origin] = (packet.number, deadline_us)
        if packet.deadline_us is not None:
            self._forgettable.append((deadline_us, packet.origin))
            self._forgettable.sort()


class OneObstacleIsEnough(Unchecked):
    """What waited is released with the first of its obstacles."""

    def _find_obstacle(self, held: PendingMessage, now_us: int) -> bool:
        if held.at or held.packet in [each.packet for each in self.pending.values()]:
            held.at = len(held.packet.barrier)
        return super()._find_obstacle(held, now_us)


class OneShort(Unchecked):
    """Off by one: a predecessor counts as delivered one message too early."""

    def _find_obstacle(self, held: PendingMessage, now_us: int) -> bool:
        while super()._find_obstacle(held, now_us):
            source, number, _ = held.packet.barrier[held.at]
            if self.delivered.get(source, (0, 0))[0] < number - 1:
                return True
            held.at += 1
        return False


class OwnPastOnly(Unchecked):
    """Deliveries of others do not enter the barrier."""

    def _settle(self, packet: BarrierPacket, effects: Effects) -> None:
        super()._settle(packet, effects)
        if packet.origin != self.me:
            self.past.pop(packet.origin, None)


class NewestSourcesOnly(Unchecked):
    """A barrier of two entries at the most."""

    def broadcast(
        self, payload: bytes, lifetime_us: int | None, now_us: int, effects: Effects
    ) -> BarrierPacket:
        self.past = dict(list(self.past.items())[-2:])
        return super().broadcast(payload, lifetime_us, now_us, effects)


class RestartForgetsPending(Unchecked):
    """What waited is gone after a restart."""

    def restore(self, state: State) -> None:
        super().restore({**state, "pending": []})


class RestartForgetsPast(Unchecked):
    """The barrier is empty after a restart."""

    def restore(self, state: State) -> None:
        super().restore({**state, "past": []})


class UncheckedBarrier(Barrier):
    """See `Unchecked`."""

    def check(self) -> None:
        pass


class UncheckedOppnet(Oppnet):
    """See `Unchecked`."""

    order_type: type[SafeOrder] = Unchecked
    cache_type: type[Cache] = Cache
    contacts_type: type[ContactSides] = ContactSides
    seen_type: type[Arrivals] = Arrivals

    def __init__(self, me: NodeId, members: Iterable[NodeId], **params: Any) -> None:
        super().__init__(me, members, **params)
        self.order = self.order_type(me, params.get("lifetime_us"), params.get("skew_us", 0))
        self.cache = self.cache_type(self.cache.capacity)
        was = self.contacts
        self.contacts = self.contacts_type(me, was.seed, was.gap_us, was.setup_max_us)
        self.seen = self.seen_type(self.seen.late_us)

    def check(self) -> None:
        pass


class ForwardsWhatIsLeft(UncheckedBarrier):
    """F1: a message is passed on without the entries that are settled here."""

    def _pass_on(self, peer: NodeId, packet: Packet, effects: Effects) -> None:
        assert isinstance(packet, BarrierPacket)
        assert isinstance(self.order, SafeOrder)
        newest = self.order.delivered
        left = tuple(each for each in packet.barrier if newest.get(each.origin, (0, 0))[0] < each.number)
        super()._pass_on(peer, packet._replace(barrier=left), effects)


class SaysLateAgain(UncheckedBarrier):
    """Every late copy is an outcome."""

    def __init__(self, me: NodeId, members: Iterable[NodeId], **params: Any) -> None:
        super().__init__(me, members, **params)
        self.seen = _Forgetful(self.seen.late_us)


class _Forgetful(Arrivals):
    def is_first(self, key: Key, deadline_us: int, now_us: int) -> bool:
        return True


class SkippedCountsAsDelivered(UncheckedBarrier):
    """What comes late below the newest delivered number is taken for a copy."""

    def _end(self, peer: NodeId, packet: BarrierPacket, refused: Reason, now_us: int) -> Any:
        assert isinstance(self.order, SafeOrder)
        self.adopted = {source: number for source, (number, _) in self.order.delivered.items()}
        return super()._end(peer, packet, refused, now_us)


@dataclass(frozen=True)
class Variant:
    """A broken order or a broken layer, and the findings of which one must show."""

    kind: type[SafeOrder] | type[Barrier] | type[Oppnet]
    gives_away: frozenset[str]
    world: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.kind.__name__

    @property
    def is_order(self) -> bool:
        return issubclass(self.kind, SafeOrder)

    def over_links(self, me: NodeId, members: Iterable[NodeId], **params: Any) -> Barrier:
        """A core of `barrier` with this variant in it."""
        if not issubclass(self.kind, SafeOrder):
            made = self.kind(me, members, **params)
            assert isinstance(made, Barrier)
            return made
        core = UncheckedBarrier(me, members, **params)
        core.order = self.kind(me, params.get("lifetime_us"), params.get("skew_us", 0))
        return core

    def over_contacts(self, me: NodeId, members: Iterable[NodeId], **params: Any) -> Oppnet:
        """A core of `oppnet` with this variant in it."""
        if not issubclass(self.kind, SafeOrder):
            made = self.kind(me, members, **params)
            assert isinstance(made, Oppnet)
            return made
        core = UncheckedOppnet(me, members, **params)
        core.order = self.kind(me, params.get("lifetime_us"), params.get("skew_us", 0))
        return core


def variant(kind: Callable[..., Any], *gives_away: str, **world: int) -> Variant:
    assert isinstance(kind, type)
    return Variant(kind, frozenset(gives_away), world)


ORDER = [
    variant(NoDuplicateGuard, "duplicate"),
    variant(DeadlinesAsTags, "causal"),
    variant(CoversWhatLivesLonger, "causal"),
    variant(BarrierStartsAnew, "causal"),
    variant(IgnoresSkew, "causal", skew_us=100),
    variant(DeadGoLast, "late"),
    variant(NothingWakes, "idle"),
    variant(WakesOnlyTheDead, "idle"),
    variant(TakesTheLate, "late"),
    variant(ForgetsTooEarly, "causal", "duplicate"),
    variant(ForgetsAtFirstDeadline, "duplicate"),
    variant(OneObstacleIsEnough, "causal"),
    variant(OneShort, "causal"),
    variant(OwnPastOnly, "causal"),
    variant(NewestSourcesOnly, "causal"),
    variant(RestartForgetsPending, "idle", "duplicate"),
    variant(RestartForgetsPast, "causal"),
    variant(ForwardsWhatIsLeft, "causal"),
    variant(SaysLateAgain, "ended twice"),
    variant(SkippedCountsAsDelivered, "unsaid"),
]
