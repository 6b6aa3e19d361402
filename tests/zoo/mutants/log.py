"""Broken variants of protocol `log`: each lacks one thing, and storms or one small case must show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from whence.core.effects import Effects, Missed, Reason
from whence.core.lives import life_of
from whence.protocols.log.book import Book
from whence.protocols.log.chain import LINK_BYTES
from whence.protocols.log.core import Log
from whence.protocols.log.plain import PlainOrder
from whence.protocols.log.stability import Stability
from whence.protocols.log.wire import Item


class SilentJump(Log):
    """R7: passes over messages without a word."""

    def _finish(self, effects: Effects, now_us: int, *, may_wait: bool = False) -> Effects:
        spoken = [each for each in effects if not isinstance(each, Missed)]
        return super()._finish(spoken, now_us, may_wait=may_wait)


class SameLife(Log):
    """R1: a node that lost its disk continues its first life."""

    def _open(self, book: Book, life: str) -> None:
        super()._open(book, life_of(self.me, 0) if book.next == 1 and not book.lives() else life)


class Forgetful(Log):
    """R2: a new life names nothing of what earlier ones delivered."""

    def _remember(self) -> None:
        self.people.note(self._names, [], quiet=True)


class NeverBehind(Log):
    """R10: what is refused or held is not asked for."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        self.repair.mark = lambda stream, target, now_us: None  # type: ignore[method-assign]


class NeverPulls(Log):
    """R13: what a lost feed did not bring is not pulled."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        self.repair._pull = lambda *_: 0  # type: ignore[method-assign]


class PartialFloors(Log):
    """R8: jumps to the parts of a floor that it hears of."""

    def _hear_floor(self, session: Any, numbers: tuple[int, ...], now_us: int, effects: Effects) -> bool:
        heard = super()._hear_floor(session, numbers, now_us, effects)
        if numbers[0] == 0:
            cut = dict(self.exchange.mine(session, numbers[1:]) or ())
            self._jump(dict(list(cut.items())[:1]), "truncated", now_us, effects)
        return heard


class _Careless(PlainOrder):
    def missing_of(self, entry: Item) -> tuple[int, int] | None:
        stream, number, *_ = entry
        return (stream, number - 1) if number > self.ledger.newest[stream] + 1 else None

    def place(self, theirs: dict[int, int], stream: int, number: int, after: tuple[int, ...]) -> Any:
        return tuple(theirs[part] if at % 2 == 0 else part for at, part in enumerate(after)), None


class NoBarrier(Log):
    """Delivers in the order of each stream, whatever the barrier says."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        if self.timed is None:
            self.plain = self.order = _Careless(own, self.ledger)


class _Brief(PlainOrder):
    def make(self, payload: bytes, lifetime_us: int | None, mark: int, now_us: int) -> Item:
        entry = super().make(payload, lifetime_us, mark, now_us)
        return (*entry[:3], entry[3][:2], *entry[4:])  # type: ignore[return-value]


class ShortBarrier(Log):
    """Names one predecessor of several."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        if self.timed is None:
            self.plain = self.order = _Brief(own, self.ledger)


class TakesTwice(Log):
    """Takes a message for new although it has it."""

    def _refusal(self, entry: Item, now_us: int) -> Reason | None:
        reason = super()._refusal(entry, now_us)
        return None if reason is Reason.DUPLICATE and entry[1] == self._newest[entry[0]] else reason


class _Stubborn(PlainOrder):
    def jump(self, cut: dict[int, int], now_us: int) -> Iterator[Item]:
        return iter(())


class HoldsOn(Log):
    """R8: after a jump what is held still waits for what will not come."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        if self.timed is None:
            self.plain = self.order = _Stubborn(own, self.ledger)


class NeverLate(Log):
    """R18: flags nothing."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        if self.stability is not None:
            logged = self.stability.logged
            self.stability.logged = lambda entry, effects=None: bool(logged(entry, effects)) and False  # type: ignore[method-assign]


class NoCheckpoint(Log):
    """R2 and R21: cuts off what an opening would have to look at."""

    def _checkpoint(self) -> None:
        self.memory.at = self.book.next


class DeliversTheDead(Log):
    """Delivers what came after its deadline."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        if self.timed is not None:
            refuse = self.timed.refuse
            self.timed.refuse = (  # type: ignore[method-assign]
                lambda entry, now_us: refuse((*entry[:2], 0, *entry[3:]), now_us)  # type: ignore[arg-type]
            )


class NamesNothingAdopted(Log):
    """R9: after a jump the next messages do not name what was passed over."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        if self.timed is not None:
            self.timed.order._name_adopted = lambda barrier, deadline_us: None  # type: ignore[method-assign]


class CutsSilently(Log):
    """R21: cuts the log over a session's cursor without telling it."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        self.exchange.before_cut = lambda lsn, effects: None  # type: ignore[method-assign]


class IgnoresSilent(Log):
    """R18: a member that has said nothing does not count."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        stability = self.stability
        if stability is not None:
            counted = stability.counted

            def without_silent() -> list[list[int]] | None:
                admitted = stability.admitted
                stability.admitted = {each for each in admitted if each in stability.knows}
                found = counted()
                stability.admitted = admitted
                return found

            stability.counted = without_silent  # type: ignore[method-assign]


class RetiresAtOnce(Log):
    """R18: a retirement counts before every member knows of it."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        if self.stability is not None:
            counted = self.stability.counted
            stability: Stability = self.stability

            def at_once() -> list[list[int]] | None:
                retirements, stability.retirements = stability.retirements, {}
                found = counted()
                stability.retirements = retirements
                return found

            stability.counted = at_once  # type: ignore[method-assign]


class BlindToForks(Log):
    """R5: computes the chain, and compares nothing."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        if self.chain is not None:
            self.chain.tell = lambda stream: False  # type: ignore[method-assign]


class BrokenChain(Log):
    """R5: links a message to the one before the last."""

    def _set_up(self, book: Book, life: str, own: int) -> None:
        super()._set_up(book, life, own)
        if self.chain is not None:
            link = self.chain.link

            def stale(stream: int) -> bytes:
                lsn = book.find(stream, self.last)
                entries = [] if lsn is None else book.read(lsn, 1)
                # What the newest message begins with is the link that it was given.
                return entries[0][4][:LINK_BYTES] if entries else link(stream)

            self.chain.link = stale  # type: ignore[method-assign]


@dataclass(frozen=True)
class LogVariant:
    """A mutant, what gives it away, and the worlds in which it is looked for."""

    make: Callable[..., Log]
    gives_away: frozenset[str]
    world: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its class."""
        return getattr(self.make, "__name__", "")


def _variant(make: Callable[..., Log], gives_away: str, **world: Any) -> LogVariant:
    return LogVariant(make, frozenset(gives_away.split()), world)


STORMED = [
    _variant(SilentJump, "silent", keep="count", keep_count=2),
    _variant(SameLife, "identity"),
    _variant(Forgetful, "causal"),
    _variant(NeverBehind, "apart stuck"),
    _variant(NeverPulls, "apart stuck"),
    _variant(PartialFloors, "causal accounting", keep="count", keep_count=2),
    _variant(NoBarrier, "causal"),
    _variant(ShortBarrier, "causal"),
    _variant(TakesTwice, "duplicate"),
    _variant(HoldsOn, "stuck apart raises", keep="count", keep_count=1),
    _variant(NeverLate, "unflagged", stability=True),
    _variant(NoCheckpoint, "causal unflagged", keep="count", keep_count=1),
    _variant(DeliversTheDead, "dead causal", lifetimes=True),
    _variant(NamesNothingAdopted, "causal", lifetimes=True, history="new"),
    _variant(BrokenChain, "forked", chain=True),
]
