"""The order of a log with lifetimes: SafeOrder over streams, and what has died before its number was
accounted for.

`SafeOrder` says what may be delivered; the log accounts for every number. So a message that dies here, held
or on arrival, is a gap of the log as soon as all before it is accounted for, and a message that is delivered
over dead predecessors is preceded by their gap.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from whence.core.effects import Deliver, Effects, Expire, Reason
from whence.core.lives import Stream
from whence.core.message import State, Waiting
from whence.protocols.barrier.safe import SafeOrder
from whence.protocols.barrier.wire import BarrierEntry, BarrierPacket
from whence.protocols.log.book import Entry, plain, unplain
from whence.protocols.log.ledger import Ledger
from whence.protocols.log.wire import Item

# What becomes of messages, in order: an entry to log, or (stream, number) of one that died.
Outcomes: TypeAlias = list[Item | tuple[int, int]]
TRIPLE = 3


class TimedOrder:
    """SafeOrder in terms of the log's entries."""

    stride: ClassVar[int] = TRIPLE  # numbers of one entry of a barrier

    def __init__(
        self, own: int, ledger: Ledger, lifetime_us: int | None, skew_us: int, dead_max: int
    ) -> None:
        self.own = own
        self.skew_us = skew_us
        self.dead_max = dead_max
        self.order = SafeOrder(ledger.names[own], lifetime_us, skew_us)
        self.ledger = ledger
        self.arrived: dict[tuple[Stream, int], Item] = {}  # what is pending, as it is logged
        self.dead: dict[int, set[int]] = {}  # numbers that died before those before them were accounted for
        # What peers have said is dead (stream, first, last): from when on that is so by this node's clock too
        self.told: dict[tuple[int, int, int], int] = {}

    def make(self, payload: bytes, lifetime_us: int | None, mark: int, now_us: int) -> Item:
        """The next message of this life; the order has delivered it."""
        packet = self.order.broadcast(payload, lifetime_us, now_us, [])
        index = self.ledger.index
        after: list[int] = []
        for source, number, deadline_us in packet.barrier:
            after += (index[source], number, deadline_us or 0)
        return (self.own, packet.number, packet.deadline_us or 0, tuple(after), payload, mark)

    def packet_of(self, entry: Item) -> BarrierPacket:
        """An entry as SafeOrder wants it."""
        stream, number, until, after, payload, _ = entry
        names = self.ledger.names
        barrier = [
            BarrierEntry(names[after[at]], after[at + 1], after[at + 2] or None)
            for at in range(0, len(after), TRIPLE)
        ]
        barrier.sort(key=lambda each: each[:2])
        return BarrierPacket(names[stream], number, until or None, tuple(barrier), payload)

    def refuse(self, entry: Item, now_us: int) -> Reason | None:
        """Why a message that came from a peer must not be accepted; its number is above D."""
        packet = self.packet_of(entry)
        if len({(each.origin, each.number) for each in packet.barrier}) < len(packet.barrier):
            return Reason.MALFORMED
        return self.order.refuse(packet, now_us)

    def receive(self, entry: Item, now_us: int) -> Outcomes:
        """A message that was not refused: what is delivered now."""
        packet = self.packet_of(entry)
        self.arrived[packet.origin, packet.number] = entry
        effects: Effects = []
        self.order.receive(packet, now_us, effects)
        return self._outcomes(effects)

    def advance(self, now_us: int) -> Outcomes:
        """Time has passed."""
        effects: Effects = []
        self.order.advance(now_us, effects)
        return self._outcomes(effects)

    def jump(self, cut: dict[int, int], now_us: int) -> Outcomes:
        """What lies at or below the cut counts as settled."""
        effects: Effects = []
        names = self.ledger.names
        self.order.jump({names[stream]: number for stream, number in cut.items()}, "", now_us, effects)
        outcomes = self._outcomes(effects)
        for key in [key for key in self.arrived if key not in self.order.pending]:
            del self.arrived[key]
        return outcomes

    def _outcomes(self, effects: Effects) -> Outcomes:
        outcomes: Outcomes = []
        for effect in effects:
            if isinstance(effect, Deliver):
                outcomes.append(self.arrived.pop((effect.message.origin, effect.message.number)))
            elif isinstance(effect, Expire):
                self.arrived.pop((effect.id.origin, effect.id.number), None)
                outcomes.append((self.ledger.index[effect.id.origin], effect.id.number))
        return outcomes

    # rule 001 R10: what has died is accounted for as soon as all before it is
    def died(self, stream: int, number: int) -> None:
        """A number will never be delivered here; of too many that are out of turn the rest come again."""
        ahead = number - self.ledger.newest[stream]
        if ahead == 1 or (ahead > 1 and sum(map(len, self.dead.values())) < self.dead_max):
            self.dead.setdefault(stream, set()).add(number)

    def dead_after(self, stream: int) -> int:
        """The end of the run of dead numbers that begins at D + 1; D if there is none."""
        numbers = self.dead.get(stream)
        last = self.ledger.newest[stream]
        if numbers:
            while last + 1 in numbers:
                last += 1
                numbers.discard(last)
            for old in [each for each in numbers if each <= last]:
                numbers.discard(old)
            if not numbers:
                del self.dead[stream]
        return last

    # rule 001 R10: dead by a clock that is ahead is not dead here: what was covered by it may still live
    def is_dead(self, stream: int, first: int, last: int, now_us: int) -> bool:
        """A peer says that numbers have expired: whether they have by every clock; if not, `due` has them."""
        if self.skew_us and len(self.told) < self.dead_max:
            self.told.setdefault((stream, first, last), now_us + self.skew_us)
        return not self.skew_us

    def due(self, now_us: int) -> list[tuple[int, int, int]]:
        """What peers said is dead, and is so by now."""
        due = [key for key, at_us in self.told.items() if at_us <= now_us]
        for key in due:
            del self.told[key]
        return due

    def is_early(self, entry: Item, now_us: int) -> bool:
        """Whether a message could not be delivered now."""
        return not self.order.deliverable(self.packet_of(entry), now_us)

    @property
    def last(self) -> int:
        """The number of this life's newest message."""
        return self.order.last

    @property
    def waiting(self) -> int:
        """How many messages are held."""
        return len(self.order.pending)

    def broken_rule(self) -> str | None:
        """The invariant that does not hold; the order raises for its own."""
        self.order.check()
        if self.arrived.keys() != self.order.pending.keys():
            return "what is pending can be logged"
        return None

    def entries(self) -> int:
        """Entries in memory."""
        return self.order.entries() + sum(map(len, self.dead.values())) + len(self.told)

    def next_us(self) -> int | None:
        """When `advance` has something to do."""
        times = (self.order.next_us(), next(iter(self.told.values()), None))
        return min((each for each in times if each is not None), default=None)

    def explain(self) -> list[Waiting]:
        """As in `Protocol`."""
        return self.order.explain()

    # What an opening needs

    def memory(self) -> State:
        """The order without what is pending: that is not in the log."""
        state = self.order.save()
        return {**state, "pending": [], "cut": [list(pair) for pair in self.order.cut.items()]}

    def remember(self, state: State) -> None:
        """What an earlier life knew; this life has said nothing yet."""
        self.order.restore({**state, "last": 0})
        self.order.cut = dict(state["cut"])

    def replay(self, entry: Entry) -> None:
        """An entry that was logged after the checkpoint."""
        if len(entry) == 6:
            self.order.recall(self.packet_of(entry))
        else:
            self.order.jump({self.ledger.names[entry[0]]: entry[2]}, "", 0, [])

    def save(self) -> State:
        """Plain data."""
        state: State = {
            "order": self.order.save(),
            "cut": [list(pair) for pair in self.order.cut.items()],
            "arrived": [[*key, plain(entry)] for key, entry in self.arrived.items()],
            "dead": [[stream, sorted(numbers)] for stream, numbers in self.dead.items()],
        }
        if self.told:
            state["told"] = [[*key, at_us] for key, at_us in self.told.items()]
        return state

    def restore(self, state: State) -> None:
        """Become what `save` described."""
        self.order.restore(state["order"])
        self.order.cut = dict(state["cut"])
        for origin, number, saved in state["arrived"]:
            self.arrived[origin, number] = unplain(saved)  # type: ignore[assignment]
        self.dead = {stream: set(numbers) for stream, numbers in state["dead"]}
        self.told = {(stream, first, last): at_us for stream, first, last, at_us in state.get("told", ())}
