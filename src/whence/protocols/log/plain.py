"""The order of a log without lifetimes: a message follows the one before it of its stream, and its barrier.

`past` is what the next own message follows: the newest message of each stream that no other delivered one
follows. It becomes the message's barrier, as flat pairs (stream, number); the own stream needs no entry,
because its numbers have no holes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import ClassVar, cast

from whence.core.effects import Reason
from whence.core.group import NUMBER_MAX, WINDOW_MAX
from whence.core.holdback import HoldBack
from whence.core.message import MessageId, Waiting
from whence.core.protocol import State
from whence.protocols.log.book import Entry, plain, unplain
from whence.protocols.log.ledger import Ledger
from whence.protocols.log.wire import BARRIER_MAX, Item

NOTHING = 1 << 62  # above every number


class PlainOrder:
    """What is held back and what the next message follows. A core may alias `past`, `held` and `waiters`."""

    stride: ClassVar[int] = 2  # numbers of one entry of a barrier

    def __init__(self, own: int, ledger: Ledger) -> None:
        self.own = own
        self.ledger = ledger
        self.last = 0
        self.past: dict[int, int] = {}
        self.holdback: HoldBack[Item] = HoldBack()
        self.held, self.waiters = self.holdback.held, self.holdback.waiters

    def make(self, payload: bytes, lifetime_us: int | None, mark: int, now_us: int) -> Item:
        """The next message of this life."""
        after: tuple[int, ...] = ()
        if self.past:
            after = tuple(chain.from_iterable(sorted(self.past.items())))
            self.past.clear()
        self.last += 1
        return (self.own, self.last, 0, after, payload, mark)

    def refuse(self, entry: Item, now_us: int) -> Reason | None:
        """Why a message that came from a peer must not be accepted; its number is above D."""
        if (entry[0], entry[1]) in self.held:
            return Reason.DUPLICATE
        return Reason.TOO_FAR_AHEAD if entry[1] > self.ledger.newest[entry[0]] + WINDOW_MAX else None

    def is_early(self, entry: Item, now_us: int) -> bool:
        """Whether a message could not be delivered now."""
        return self.missing_of(entry) is not None

    def missing_of(self, entry: Item) -> tuple[int, int] | None:
        """The first predecessor of a message that is not accounted for."""
        stream, number, _, after, _, _ = entry
        newest = self.ledger.newest
        if number > newest[stream] + 1:
            return stream, number - 1
        for at in range(0, len(after), 2):
            if after[at + 1] > newest[after[at]]:
                return after[at], after[at + 1]
        return None

    def place(
        self, theirs: dict[int, int], stream: int, number: int, after: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, int] | None] | None:
        """The barrier of a message in our indices, and its first entry that is not delivered here.

        None if no correct node can have made it.
        """
        newest = self.ledger.newest
        if len(after) % 2 or len(after) > 2 * BARRIER_MAX:
            return None
        mine: list[int] = []
        missing = None
        pairs = iter(after)
        for index, count in zip(pairs, pairs, strict=True):
            source = theirs.get(index, -1)
            if source < 0 or not 0 < count < NUMBER_MAX:
                return None
            if count > newest[source]:
                if source == self.own or (source == stream and count >= number):
                    return None
                if missing is None:
                    missing = (source, count)
            mine += (source, count)
        return tuple(mine), missing

    def hold(self, entry: Item, missing: tuple[int, int] | None, now_us: int, limit: int) -> bool:
        """Hold a message that is not the next, or misses another; not if it needs a closer look."""
        stream, number = key = entry[:2]
        last, held, waiters = self.ledger.newest[stream], self.held, self.waiters
        if not last < number <= last + WINDOW_MAX or key in held or len(held) >= limit:
            return False
        if missing is None or number > last + 1:
            missing = (stream, number - 1)
        held[key] = (entry, now_us)
        if missing in waiters:
            waiters[missing].append(key)
        else:
            waiters[missing] = [key]
        return True

    def receive(self, entry: Item, now_us: int) -> Iterator[Item]:
        """A message that was not refused: what is delivered now. The caller logs each before the next."""
        missing = self.missing_of(entry)
        if missing is not None:
            self.holdback.hold((entry[0], entry[1]), entry, now_us, missing)
            return
        self.follow(entry)
        yield entry
        yield from self.release(entry[0], entry[1])

    def release(self, stream: int, number: int) -> Iterator[Item]:
        """What waited for a message that is logged, and for that; the caller logs each."""
        if (stream, number) in self.waiters:
            for entry in self.holdback.release((stream, number), self.missing_of):
                self.follow(entry)
                yield entry

    def release_all(self, stream: int, number: int) -> list[Item]:
        """As `release`, at once: D tells of all that is returned, and the caller logs it in this order."""
        held, waiters, newest = self.held, self.waiters, self.ledger.newest
        found: list[Item] = []
        stack: list[tuple[int, int]] = []
        freed = waiters.pop((stream, number), None)
        while freed or stack:
            if freed:
                stack += freed[::-1] if len(freed) > 1 else freed
            key = stack.pop()
            entry = held[key][0]
            stream, number = key
            missing = None
            if entry[3] or number > newest[stream] + 1:  # else it waited only for the one before it
                missing = self.missing_of(entry)
            if missing is not None:
                waiters.setdefault(missing, []).append(key)
                freed = None
                continue
            del held[key]
            newest[stream] = number
            if entry[3]:
                self.follow_all(entry[3])
            self.past[stream] = number
            found.append(entry)
            freed = waiters.pop(key, None)
        return found

    def follow(self, entry: Item) -> None:
        """The next message follows this one, and through it all that it follows."""
        stream, number, _, after, _, _ = entry
        self.follow_all(after)
        if stream != self.own:
            self.past[stream] = number

    def follow_all(self, after: tuple[int, ...]) -> None:
        """The next message follows these only through another one."""
        past = self.past
        pairs = iter(after)
        for source, count in zip(pairs, pairs, strict=True):
            if past.get(source, NOTHING) <= count:
                del past[source]

    def forget(self, stream: int, number: int) -> None:
        """A copy of a held message is delivered: a liar gave one of them another barrier."""
        del self.held[stream, number]
        for keys in self.waiters.values():
            if (stream, number) in keys:
                keys.remove((stream, number))
        for missing in [missing for missing, keys in self.waiters.items() if not keys]:
            del self.waiters[missing]

    def advance(self, now_us: int) -> Iterable[Item]:
        """Time alone changes nothing."""
        return ()

    def next_us(self) -> int | None:
        """Time alone changes nothing."""
        return None

    def jump(self, cut: dict[int, int], now_us: int) -> Iterator[Item]:
        """D has jumped: look again at what is held. What lies at or below D is a gap of the log."""
        held = sorted((since_us, key, entry) for key, (entry, since_us) in self.held.items())
        self.held.clear()
        self.waiters.clear()
        for since_us, key, entry in held:
            if key[1] > self.ledger.newest[key[0]]:
                yield from self.receive(entry, since_us)

    @property
    def waiting(self) -> int:
        """How many messages are held."""
        return len(self.held)

    def explain(self) -> list[Waiting]:
        """As in `Protocol`."""
        names, newest = self.ledger.names, self.ledger.newest
        waiting = []
        for stream, number in sorted(self.held, key=lambda key: (names[key[0]], key[1])):
            entry, since_us = self.held[stream, number]
            after = entry[3]
            wanted = [(stream, each) for each in range(newest[stream] + 1, number)]
            wanted += [
                (after[at], after[at + 1])
                for at in range(0, len(after), 2)
                if after[at + 1] > newest[after[at]]
            ]
            absent = [key for key in wanted if key not in self.held]
            if not absent:
                missing = self.missing_of(entry)
                absent = [missing] if missing is not None else []
            ids = tuple(MessageId(names[at], count) for at, count in absent)
            waiting.append(Waiting(MessageId(names[stream], number), since_us, ids))
        return waiting

    def broken_rule(self) -> str | None:
        """The invariant that does not hold; None if all do."""
        newest = self.ledger.newest
        for key, (entry, _) in self.held.items():
            if self.missing_of(entry) is None:
                return f"{key} is held without an obstacle"
        for stream, number in self.past.items():
            if not 0 < number <= newest[stream] or stream == self.own:
                return "the next barrier names what was delivered of other streams"
        return self.holdback.broken_rule(lambda key: key[1] <= newest[key[0]])

    def entries(self) -> int:
        """Entries in memory."""
        return len(self.past) + sum(1 + len(entry[3]) // 2 for entry, _ in self.held.values())

    # What an opening needs

    def memory(self) -> State:
        """What the next life's first message follows: this life's last one too."""
        past = dict(self.past)
        if self.last:
            past[self.own] = self.last
        return {"past": [list(pair) for pair in sorted(past.items())]}

    def remember(self, state: State) -> None:
        """What an earlier life knew."""
        self.past.update(state["past"])

    def replay(self, entry: Entry) -> None:
        """An entry that was logged after the checkpoint."""
        if len(entry) == 6:
            self.follow(entry)

    def save(self) -> State:
        """Plain data."""
        return {
            "last": self.last,
            "past": [list(pair) for pair in self.past.items()],
            "held": [[plain(entry), since_us] for entry, since_us in self.held.values()],
            "waiters": self.holdback.save_waiters(),
        }

    def restore(self, state: State) -> None:
        """Become what `save` described."""
        self.last = state["last"]
        self.past.update(state["past"])
        for saved, since_us in state["held"]:
            entry = cast(Item, unplain(saved))
            self.held[entry[0], entry[1]] = (entry, since_us)
        self.holdback.restore_waiters(state["waiters"])
