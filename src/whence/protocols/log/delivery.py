"""What becomes of a message at a node: it is logged, given to the application and offered to the peers; or
its number is logged as a gap, and the application is told (R7).
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import cast

from whence.core.effects import Deliver, Effects, Internal, Logged, Missed, Tell
from whence.core.group import NUMBER_MAX
from whence.core.lives import Forked, split_stream
from whence.core.message import Message
from whence.protocols.log.book import Entry
from whence.protocols.log.chain import LINK_BYTES, Chain
from whence.protocols.log.exchange import EXPIRED, Exchange
from whence.protocols.log.ledger import Ledger
from whence.protocols.log.stability import Stability
from whence.protocols.log.timed import TimedOrder
from whence.protocols.log.wire import APP, Item

_new = tuple.__new__
_payload_of = itemgetter(4)


class Delivery:
    """The end of every message and every gap, in the general case."""

    def __init__(
        self,
        own: int,
        ledger: Ledger,
        exchange: Exchange,
        timed: TimedOrder | None,
        stability: Stability | None,
        chain: Chain | None,
    ) -> None:
        self.own = own
        self.ledger = ledger
        self.exchange = exchange
        self.timed = timed
        self.stability = stability
        self.chain = chain
        self._skip = 0 if chain is None else LINK_BYTES  # of what messages carry before their payloads
        self._newest, self._names = ledger.newest, ledger.names

    def log(self, entry: Item, now_us: int, effects: Effects) -> None:
        """A message is delivered."""
        stream, number, _, _, payload, mark = entry
        lsn = self.ledger.append(entry)
        late = False
        if self.stability is not None:
            late = self.stability.logged(entry, effects)
            self.stability.noted(entry, now_us)
        if self.chain is not None and self.chain.logged(entry):
            effects.append(Tell(Forked(*split_stream(self._names[stream]), number)))
        message = Message(self._names[stream], number, payload[self._skip :])
        if mark == APP:
            effects.append(Deliver(message, lsn, late))
        else:
            effects.append(Internal(message, stream == self.own))
            self.ledger.book.done(lsn)
        self._offer(lsn, entry)

    def log_run(self, run: list[Item], effects: Effects, *, as_runs: bool) -> None:
        """Messages of one stream are delivered, one after the other, and D tells of them already.

        Only where there are neither lifetimes nor members nor hashes.
        """
        stream = run[0][0]
        exchange, name, book = self.exchange, self._names[stream], self.ledger.book
        if len(run) == 1:
            payload_bytes = len(run[0][4])
            lsn = book.append(run[0])
        else:
            payload_bytes = sum(map(len, map(_payload_of, run)))
            lsn = book.append_run(run, payload_bytes)
        exchange.changed.add(stream)
        if as_runs:
            effects.append(_new(Logged, (name, lsn, run, payload_bytes)))
        else:
            for at, entry in enumerate(run, lsn):
                # As Deliver(Message(...), at) does, in half the time.
                message = _new(Message, (name, entry[1], entry[4]))
                effects.append(_new(Deliver, (message, at, False)))
        targets = exchange.forward[stream]
        if targets or targets is None:
            exchange.offer(lsn, run, payload_bytes)

    def log_released(self, entries: list[Item], effects: Effects, *, as_runs: bool) -> None:
        """The same of messages of several streams."""
        run: list[Item] = []
        for entry in entries:
            if run and run[0][0] != entry[0]:
                self.log_run(run, effects, as_runs=as_runs)
                run = []
            run.append(entry)
        if run:
            self.log_run(run, effects, as_runs=as_runs)

    def _offer(self, lsn: int, entry: Entry) -> None:
        self.exchange.changed.add(entry[0])
        self.exchange.offer_new(lsn, entry)

    def miss(self, stream: int, last: int, reason: str, effects: Effects) -> None:
        """Numbers up to `last` will not be delivered here."""
        first = self._newest[stream] + 1
        entry = (stream, first, last, reason)
        lsn = self.ledger.append(entry)
        if self.chain is not None:
            self.chain.logged(entry)
        effects.append(Missed(self._names[stream], first, last, reason, lsn))
        if reason == EXPIRED:
            self._offer(lsn, entry)
        else:
            self.exchange.changed.add(stream)

    def log_all(self, outcomes: Iterable[Item | tuple[int, int]], now_us: int, effects: Effects) -> None:
        """What the order delivers, and what has died."""
        timed = self.timed
        for outcome in outcomes:
            stream, number = outcome[0], outcome[1]
            if timed is None:
                self.log(cast(Item, outcome), now_us, effects)
                continue
            if len(outcome) == 2:
                timed.died(stream, number)
            else:
                if number > self._newest[stream] + 1:  # what lies between is dead, or no peer would skip it
                    self.miss(stream, number - 1, EXPIRED, effects)
                self.log(outcome, now_us, effects)
            self.account_dead(stream, now_us, effects)

    def account_dead(self, stream: int, now_us: int, effects: Effects) -> None:
        """The numbers behind the newest of a stream that have died, if any."""
        timed = cast(TimedOrder, self.timed)
        last = timed.dead_after(stream)
        if last > self._newest[stream]:
            self._pass_over(timed, stream, last, now_us, effects)

    def gone(self, stream: int, first: int, last: int, now_us: int, effects: Effects) -> bool:
        """A peer says that numbers have expired: they count as settled if nothing before them is missing.

        Returns whether something is.
        """
        newest = self._newest[stream]
        if self.timed is None or stream == self.own or not first <= last < NUMBER_MAX or last <= newest:
            return False
        if first > newest + 1:
            return True
        if self.timed.is_dead(stream, first, last, now_us):
            self._pass_over(self.timed, stream, last, now_us, effects)
        return False

    def pass_over_due(self, timed: TimedOrder, now_us: int, effects: Effects) -> None:
        """What peers have said is dead, once it is so by this node's clock, too."""
        for stream, first, last in timed.due(now_us):
            if first <= self._newest[stream] + 1 <= last:
                self._pass_over(timed, stream, last, now_us, effects)

    def _pass_over(self, timed: TimedOrder, stream: int, last: int, now_us: int, effects: Effects) -> None:
        self.miss(stream, last, EXPIRED, effects)
        self.log_all(timed.jump({stream: last}, now_us), now_us, effects)
