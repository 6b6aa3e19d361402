"""The sixteen lines of the specification's table, as broken cores or broken hosts. Each must be caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from support.prc_worlds import Overlay
from whence.core.effects import Discard, Effects, Reason, Send
from whence.core.message import Message
from whence.protocols.prc.link_memory import Key
from whence.protocols.prc.prc import ACCEPT, OPEN, AcceptingState, OpeningState, Prc
from whence.protocols.prc.wire import JOIN, WELCOME, PrcPacket, direct


class Unchecked(Prc):
    """Mutants break invariants on purpose: the verdict must come from what they deliver."""

    def check(self) -> None:
        pass


class NoGuard(Unchecked):
    """1: whatever arrives from a link that is gone is taken."""

    def _is_safe(self, peer: str) -> bool:
        return True

    def _got_copy(self, key: Key, peer: str, effects: Effects) -> None:
        if key in self.expected:
            super()._got_copy(key, peer, effects)


class NoEpochs(Unchecked):
    """2: control of any attempt counts for the current one."""

    def _is_current(self, mine: OpeningState | AcceptingState, epoch: int) -> bool:
        return True

    def _is_stale_alpha(self, opener: str, epoch: int) -> bool:
        return opener in self.in_view or opener in self.out_view


class NoTombstone(Unchecked):
    """3: an aborted attempt leaves no trace, and the target waits for ever."""

    def _bury(self, opener: str, epoch: int, now_us: int) -> Effects:
        return []

    def timer(self, key: str, now_us: int) -> Effects:
        return [] if key.startswith(ACCEPT) else super().timer(key, now_us)


class NoTimeOut(Unchecked):
    """4: a control message that is lost is waited for for ever."""

    def timer(self, key: str, now_us: int) -> Effects:
        return [] if key.startswith((OPEN, ACCEPT)) else super().timer(key, now_us)


class ControlSurvives(Unchecked):
    """5: with a host that drops messages of a closed link but not its control, which is taken."""

    def _is_safe_for_control(self, peer: str) -> bool:
        return True


class ControlOnNewLink(Unchecked):
    """6: α, β, π, ρ go over the link that is being opened."""

    def _start(self, peer: str, route: tuple[str, ...], attempt: int, now_us: int) -> Effects:
        return [self._straight(each) for each in super()._start(peer, route, attempt, now_us)]

    def _on_alpha(self, peer: str, packet: PrcPacket, now_us: int) -> Effects:
        return [self._straight(each) for each in super()._on_alpha(peer, packet, now_us)]

    def _on_beta(self, peer: str, packet: PrcPacket, now_us: int) -> Effects:
        return [self._straight(each) for each in super()._on_beta(peer, packet, now_us)]

    def _on_pi(self, peer: str, packet: PrcPacket, now_us: int) -> Effects:
        return [self._straight(each) for each in super()._on_pi(peer, packet, now_us)]

    def _straight(self, effect: Any) -> Any:
        if isinstance(effect, Send) and effect.packet.route:
            route = effect.packet.route
            return Send((route[-1] if route[0] == self.me else route[0],), effect.packet)
        return effect

    def _route(self, peer: str, packet: PrcPacket, now_us: int) -> Effects:
        arrived = {1: self._on_alpha, 2: self._on_beta, 3: self._on_pi, 4: self._on_rho}
        return arrived[packet.kind](peer, packet, now_us)


class NoEcho(Unchecked):
    """8: a message is not sent back to where it came from."""

    def _forward_to(self, came_from: str | None) -> tuple[str, ...]:
        return tuple(peer for peer in self.out_view if peer != came_from)


class BufferAsSet(Unchecked):
    """9: Bβ loses its order."""

    def _ordered(self, delivered: list[Message]) -> tuple[tuple[str, int, bytes], ...]:
        return tuple(sorted(super()._ordered(delivered), reverse=True))


class BufferFromAlpha(Unchecked):
    """10: Bβ begins when α is sent."""

    def _is_buffering(self, opening: OpeningState) -> bool:
        return True


class FilterWithoutBalpha(Unchecked):
    """11: only Bπ is subtracted."""

    def _to_ignore(self, before: list[Key], after: list[Key]) -> set[Key]:
        return set(after)


class FilterWithoutBpi(Unchecked):
    """11: only Bα is subtracted."""

    def _to_ignore(self, before: list[Key], after: list[Key]) -> set[Key]:
        return set(before)


class ExpectTooMuch(Unchecked):
    """12: (Bα ∪ Bπ) \\ Bβ is expected."""

    def _to_expect(self, before: list[Key], after: list[Key], sent: set[Key]) -> list[Key]:
        return [key for key in [*before, *after] if key not in sent]


class ExpectNothing(Unchecked):
    """12: nothing is expected from a new link."""

    def _to_expect(self, before: list[Key], after: list[Key], sent: set[Key]) -> list[Key]:
        return []


class MemoryAfterClose(Unchecked):
    """13: E[from] outlives its link."""

    def _expect_nothing(self, peer: str, effects: Effects) -> None:
        pass


class OpensAgain(Unchecked):
    """14: a safe link is opened once more, as lines 15-19 are printed: out of the views until it is safe."""

    def _is_under_way(self, peer: str) -> bool:
        return False

    def _start(self, peer: str, route: tuple[str, ...], attempt: int, now_us: int) -> Effects:
        self.out_view = tuple(other for other in self.out_view if other != peer)
        return super()._start(peer, route, attempt, now_us)

    def _is_stale_alpha(self, opener: str, epoch: int) -> bool:
        self.in_view.discard(opener)
        return False


class TwoContacts(Unchecked):
    """15: the joiner's out-link leads to its contact, its in-link comes from another process."""

    def join(self, contact: str, now_us: int) -> Effects:
        effects = super().join(contact, now_us)
        others = sorted(self.links - {contact})
        return effects + [Send((other,), direct(JOIN, self.me, 2)) for other in others]

    def _on_join(self, peer: str, packet: PrcPacket, now_us: int) -> Effects:
        if self._is_under_way(peer) or peer in self.in_view:
            return [Discard(None, peer, Reason.STALE)]
        if packet.number == 1:
            self.in_view.add(peer)
        else:
            self._use_out(peer)
        return [Send((peer,), direct(WELCOME, peer, packet.number))]

    def _on_welcome(self, peer: str, packet: PrcPacket, now_us: int) -> Effects:
        self.is_joined = True
        if packet.number == 1:
            self._use_out(peer)
        else:
            self.in_view.add(peer)
        return []


class NoHandshake(Unchecked):
    """16: a new link is used at once, in both directions."""

    def open(self, peer: str, route: tuple[str, ...], now_us: int) -> Effects:
        if self._is_under_way(peer):
            return []
        self.in_view.add(peer)
        self._use_out(peer)
        return [Send((peer,), direct(JOIN, self.me, 1))]


def _nothing(overlay: Overlay) -> None:
    """The host is right."""


def haunted(overlay: Overlay) -> None:
    overlay.ghosts_arrive = True


def _half_dropped(overlay: Overlay) -> None:
    overlay.control_survives_close = True


def _overtaking(overlay: Overlay) -> None:
    overlay.control_overtakes = True


def _two_contacts(overlay: Overlay) -> None:
    """Joiners ask two processes; the judge needs no `before`, for only order and duplicates are demanded."""
    overlay.second_contact = True


@dataclass(frozen=True)
class Mutant:
    """One line of the table."""

    line: int
    make: type[Prc]
    gives_away: set[str]  # at least one of these must be found
    prepare: Callable[[Overlay], None] = _nothing
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.line}-{self.make.__name__}"


MUTANTS = [
    Mutant(1, NoGuard, {"duplicate"}, haunted),
    Mutant(2, NoEpochs, {"leak", "causal", "duplicate"}),
    Mutant(3, NoTombstone, {"leak"}),
    Mutant(4, NoTimeOut, {"leak"}),
    Mutant(5, ControlSurvives, {"duplicate", "causal"}, _half_dropped, {"timeout_us": 100_000}),
    Mutant(6, ControlOnNewLink, {"duplicate", "causal"}),
    Mutant(7, Prc, {"duplicate"}, _overtaking),
    Mutant(8, NoEcho, {"leak"}),
    Mutant(9, BufferAsSet, {"causal"}),
    Mutant(10, BufferFromAlpha, {"duplicate"}),
    Mutant(11, FilterWithoutBalpha, {"duplicate"}),
    Mutant(11, FilterWithoutBpi, {"duplicate"}),
    Mutant(12, ExpectTooMuch, {"leak"}),
    Mutant(12, ExpectNothing, {"duplicate"}),
    Mutant(13, MemoryAfterClose, {"leak"}),
    Mutant(14, OpensAgain, {"duplicate", "leak"}),
    Mutant(15, TwoContacts, {"duplicate", "causal"}, _two_contacts),
    Mutant(16, NoHandshake, {"duplicate"}),
]
