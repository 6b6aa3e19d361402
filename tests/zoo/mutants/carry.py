"""Deliberately broken variants of store, carry and forward, over the right order but where they say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from whence.core.effects import Discard, Effects, Expire, Reason
from whence.core.message import NodeId
from whence.core.protocol import State
from whence.protocols.barrier.carry import Cache, ContactSide, ContactSides
from whence.protocols.barrier.oppnet import DATA, OppnetPacket
from whence.protocols.barrier.order import Arrivals
from whence.protocols.barrier.wire import BarrierPacket, Key
from zoo.mutants.barrier import NoDuplicateGuard, Unchecked, UncheckedOppnet, variant


class EvictsPending(UncheckedOppnet):
    """F10: the cache drops what waits."""

    class order_type(Unchecked):
        pins = False

        def evicted(self, key: Key) -> None:
            self.pending.pop(key, None)

    def _has_no_room(self, packet: BarrierPacket, now_us: int) -> bool:
        return False


class CacheAloneKnowsCopies(UncheckedOppnet):
    """F2: what was evicted and comes again is delivered again."""

    order_type = NoDuplicateGuard


class NobodyKnowsCopies(UncheckedOppnet):
    """Neither the order nor the cache knows a copy."""

    order_type = NoDuplicateGuard

    def _take(self, peer: NodeId, packet: BarrierPacket, now_us: int, effects: Effects) -> None:
        if not self.order.is_pending((packet.origin, packet.number)):
            self.cache.messages.pop((packet.origin, packet.number), None)
        super()._take(peer, packet, now_us, effects)


class NeverEvicts(UncheckedOppnet):
    """The cache grows beyond its capacity."""

    def _acquire(self, packet: BarrierPacket, giver: NodeId | None, now_us: int, effects: Effects) -> None:
        capacity, self.cache.capacity = self.cache.capacity, 0
        super()._acquire(packet, giver, now_us, effects)
        self.cache.capacity = capacity


class PurgesTooEarly(UncheckedOppnet):
    """Messages leave the cache before their deadline."""

    class cache_type(Cache):
        def purge(self, now_us: int) -> None:
            super().purge(now_us + 4_990)


class GivesTheDead(UncheckedOppnet):
    """Nothing is purged, and what is dead is given away."""

    class cache_type(Cache):
        def purge(self, now_us: int) -> None:
            pass

        def alive(self, key: Key, now_us: int) -> BarrierPacket | None:
            return self.messages.get(key)


class CarriesOnlyItsOwn(UncheckedOppnet):
    """What came from others is not passed on."""

    def _acquire(self, packet: BarrierPacket, giver: NodeId | None, now_us: int, effects: Effects) -> None:
        if giver is None:
            super()._acquire(packet, giver, now_us, effects)


class NewsWaitForTheNextContact(UncheckedOppnet):
    """What is new during a contact is not offered in it."""

    class contacts_type(ContactSides):
        def offer(self, key: Key, giver: NodeId | None, now_us: int) -> tuple[NodeId, ...]:
            return ()


class RestartForgetsWhatWasGiven(UncheckedOppnet):
    """After a restart everything is given again in the same contact."""

    class contacts_type(ContactSides):
        def restore(self, saved: list[list[Any]], cache: Cache) -> None:
            super().restore([[*contact[:-1], []] for contact in saved], cache)


class RestartForgetsTheCache(UncheckedOppnet):
    """After a restart nothing is carried."""

    def restore(self, state: State) -> None:
        super().restore({**state, "cache": []})


class TakesNoNoticeOfTheEnd(UncheckedOppnet):
    """A contact's end is overlooked."""

    class contacts_type(ContactSides):
        def end(self, peer: NodeId) -> None:
            pass


class SlotsTooShort(UncheckedOppnet):
    """The first message goes at once, and the others after it as if it had not."""

    class contacts_type(ContactSides):
        def due_messages(self, cache: Cache, now_us: int) -> Iterator[tuple[NodeId, BarrierPacket]]:
            yield from super().due_messages(cache, now_us)
            for contact in self.of.values():
                self._hasten(contact, now_us)

        def _hasten(self, contact: ContactSide, now_us: int) -> None:
            if contact.queue:
                contact.slot_us = min(contact.slot_us, now_us + max(self.gap_us // 2, 0))


class SaysNothingOfTheLate(UncheckedOppnet):
    """What first comes after its deadline is no outcome."""

    def _end(self, peer: NodeId, packet: BarrierPacket, refused: Reason, now_us: int) -> Discard | Expire:
        return Discard(self.message_of(OppnetPacket(DATA, (), (packet,))), peer, refused)


class CacheAloneKnowsTheLate(UncheckedOppnet):
    """A late copy of what came in time is an outcome, too: the cache has purged it."""

    class seen_type(Arrivals):
        def end(self, packet: BarrierPacket, peer: NodeId, refused: Reason, now_us: int) -> Discard | Expire:
            self.deadlines_us.clear()
            return super().end(packet, peer, refused, now_us)


class RestartForgetsWhatCame(UncheckedOppnet):
    """After a restart a late copy is taken for a first arrival."""

    def restore(self, state: State) -> None:
        super().restore({**state, "seen": []})


CARRY = [
    variant(EvictsPending, "idle"),
    variant(CacheAloneKnowsCopies, "duplicate"),
    variant(NobodyKnowsCopies, "duplicate"),
    variant(NeverEvicts, "over"),
    variant(PurgesTooEarly, "missing"),
    variant(GivesTheDead, "dead"),
    variant(CarriesOnlyItsOwn, "missing"),
    variant(NewsWaitForTheNextContact, "missing"),
    variant(RestartForgetsWhatWasGiven, "again"),
    variant(RestartForgetsTheCache, "missing"),
    variant(TakesNoNoticeOfTheEnd, "unlinked"),
    variant(SlotsTooShort, "rate"),
    variant(SaysNothingOfTheLate, "unsaid"),
    variant(CacheAloneKnowsTheLate, "ended twice"),
    variant(RestartForgetsWhatCame, "ended twice"),
]
