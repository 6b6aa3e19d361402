"""The state of a member of a changing VCube. `vcube_members.py` has the rules and the argument."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, cast

from whence.core.effects import CancelTimer, CountOn, Discard, Effects, Reason, Send, Stop
from whence.core.message import NodeId, Packet, Sizes
from whence.core.protocol import State
from whence.errors import ParameterError
from whence.overlay.hypercube import View
from whence.protocols.flooding import NUMBER_MAX
from whence.protocols.vcube import VCube
from whence.protocols.vcube_control import Control, Kind, MemberPacket, packet_sizes
from whence.protocols.vcube_repair import Sample, Store, Tally
from whence.protocols.vcube_roster import Roster
from whence.protocols.vcube_state import MTU_BYTES, Key
from whence.protocols.vcube_wire import VCubeMessage, split

TEST = "test"  # the timer of VCube's tests
TEST_INTERVAL_US = 500_000
TEST_TIMEOUT_US = 5_000_000
START_TIMEOUT_US = 60_000_000
EARLY_MAX = 2048  # numbers beyond a hole that a digest names; the others may be given once too often


class Phase(StrEnum):
    """How far a node's life is."""

    OUT = "out"  # asking to be let in
    ADMITTED = "admitted"  # in the view: it answers tests, has no state yet and takes no messages
    IN = "in"
    STOPPED = "stopped"


class MemberState(VCube):
    """VCube's state, the view, what is kept for others, and what is known about those who are gone."""

    packet_type: ClassVar[type[Packet]] = MemberPacket

    def __init__(
        self,
        me: NodeId,
        members: Iterable[NodeId],
        *,
        aggregate: bool = True,
        mtu_bytes: int = MTU_BYTES,
        size_model: str = "wire",
        joins: bool = False,
        test_interval_us: int = TEST_INTERVAL_US,
        test_timeout_us: int = TEST_TIMEOUT_US,
        start_timeout_us: int = START_TIMEOUT_US,
    ) -> None:
        super().__init__(me, members, aggregate=aggregate, mtu_bytes=mtu_bytes, size_model=size_model)
        _check_parameters(joins, test_interval_us, test_timeout_us, start_timeout_us)
        self.test_interval_us = test_interval_us
        self.test_timeout_us = test_timeout_us
        self.start_timeout_us = start_timeout_us
        self.phase = Phase.OUT if joins else Phase.IN
        self.life = 0
        self.roster = Roster(len(self.members), self.my_index)
        self.store = Store(len(self.members))
        self.tally = Tally()
        self.stable = [0] * len(self.members)  # delivered by all who are there: not kept any more
        self.caps: dict[int, int] = {}  # gone -> the last of its numbers that anybody can deliver
        self.awaiting: dict[int, int] = {}  # tested and not heard of -> since when
        self.met: set[int] = set()  # heard of in their present life
        self.leaving: tuple[int, ...] = ()  # what everybody must have delivered before this node leaves
        self.due_us: int | None = None  # when the next tests are due
        self.knocks = 0  # a joiner's requests so far
        self.admitted_us = 0  # since when it waits to be welcomed

    def _forget(self) -> None:
        """Be outside again, knowing nothing; the next life is another one."""
        self.phase = Phase.OUT
        self.life = 0
        self.roster = Roster(len(self.members), self.my_index)
        self.awaiting.clear()
        self.met.clear()
        self.caps.clear()
        self._new_trees()

    # Sending

    def _send(self, to: list[NodeId], messages: tuple[VCubeMessage, ...], effects: Effects) -> None:
        """As VCube does, but nothing is parked for a link that is not there: repair is for that."""
        if not self.neighbours.issuperset(to):
            to = [peer for peer in to if peer in self.neighbours]
        if not messages or not to:
            return
        if len(messages) == 1:
            effects.append(Send(tuple(to), MemberPacket(self.life, messages, None)))
            return
        for packet in split(messages, self.size_model, self.mtu_bytes or MTU_BYTES):
            effects.append(Send(tuple(to), MemberPacket(self.life, packet.messages, None)))

    def _tell(self, member: int, kind: Kind, effects: Effects) -> None:
        """Send a control packet with the view and, but for NEWS, all that this node can say to the member."""
        roster, tally = self.roster, self.tally
        received: tuple[int, ...] = ()
        early: tuple[int, ...] = ()
        up = down = cast(Sample, ())
        if kind is not Kind.NEWS:
            if self.phase is Phase.IN:
                received, early = tuple(self.received), self._flat_early()
            if member == roster.parent:
                up = tally.sum(self._sample(), roster.kids, self._least())
            if member in roster.kids:
                down = tally.whole
        control = Control(kind, roster.stamps, roster.sealed, self._flat_caps(), received, early, up, down)
        self._send_control(member, control, effects)

    def _ask(self, member: int, effects: Effects) -> None:
        if self.members[member] in self.neighbours:
            self._tell(member, Kind.ASK, effects)

    def _send_control(self, member: int, control: Control, effects: Effects) -> None:
        effects.append(Send((self.members[member],), MemberPacket(self.life, (), control)))

    def _flat_caps(self) -> tuple[int, ...]:
        return tuple(number for pair in sorted(self.caps.items()) for number in pair)

    def _flat_early(self) -> tuple[int, ...]:
        pairs = [(origin, number) for origin in sorted(self.early) for number in sorted(self.early[origin])]
        return tuple(number for pair in pairs[:EARLY_MAX] for number in pair)

    def _sample(self) -> Sample:
        """This node's own part of the tally (vcube_repair.py)."""
        received = tuple(self.received[member] for member in self.roster.gone)
        return (*self.clock.counts, *received, *received, *self.stable)

    def _least(self) -> int:
        """How many entries of a sample are minima."""
        return len(self.members) + len(self.roster.gone)

    # The view has changed

    def _new_trees(self) -> None:
        """Build the trees over those who are there, and forget what was held back for the old ones.

        Whoever was to get it from us now shows in its next digest that it lacks it.
        """
        view = View(self.roster.cube, self.my_index)
        view.heights = view.heights.ljust(len(self.members), b"\0")  # the last ones may be gone
        self.set_view(view)
        self.blocked_by.clear()
        for key, pending in list(self.pending.items()):
            pending.level, pending.watch = 0, None
            if not pending.held:
                del self.pending[key]
        self.tally.reset()
        self.store.new_view()

    def _count_on(self, member: int, effects: Effects) -> None:
        """The member is there, or its life is over; if it is not, it must hear of it."""
        is_present = self.roster.is_present(member)
        effects.append(CountOn(self.members[member], is_present))
        if not is_present and self.members[member] in self.neighbours:
            self._tell(member, Kind.NEWS, effects)

    # What can never be delivered

    def _cap(self, member: int, cap: int, effects: Effects) -> None:
        """Nobody will ever have a number of `member` beyond `cap`: what follows it is an orphan.

        An orphan's origin delivered what is lost, so it is gone itself, and its later messages are
        orphans too. If it were not gone, it would be this node that the group has left behind.
        """
        if cap < self.clock.counts[member]:
            self._stop(Reason.GONE, effects)  # the group holds for lost what was delivered here
            return
        if cap >= self.caps.get(member, NUMBER_MAX):
            return
        self.caps[member] = cap
        while orphans := sorted(key for key, each in self.pending.items() if self._is_orphan(each.message)):
            for origin, number in orphans:
                self._drop_orphan((origin, number), effects)
                if origin != member and self.roster.is_present(origin):
                    self._stop(Reason.GONE, effects)
                    return
                self.caps[origin] = min(self.caps.get(origin, NUMBER_MAX), number - 1)
        for origin, last in self.caps.items():
            self.received[origin] = min(self.received[origin], last)

    def _is_orphan(self, message: VCubeMessage) -> bool:
        origin, number, after, _ = message
        caps = self.caps
        if number > caps.get(origin, NUMBER_MAX):
            return True
        pairs = iter(after)
        return any(count > caps.get(member, NUMBER_MAX) for member, count in zip(pairs, pairs, strict=True))

    def _drop_orphan(self, key: Key, effects: Effects) -> None:
        pending = self.pending.pop(key)
        obstacle = self._obstacle(pending.message)
        for index, at in ((self.held_by, obstacle), (self.blocked_by, pending.watch)):
            if at is not None:
                index[at].remove(pending)
                if not index[at]:
                    del index[at]
        self.store.drop(*key)
        early = self.early.get(key[0], set())
        early.discard(key[1])
        if not early:
            self.early.pop(key[0], None)
        effects.append(Discard(self._named(pending.message), self.me, Reason.ORPHAN))

    def _refuse_all(
        self, messages: tuple[VCubeMessage, ...], peer: NodeId, reason: Reason, effects: Effects
    ) -> None:
        """A whole packet ends here."""
        named = [self._named(message) for message in messages] or [None]
        effects += [Discard(id_, peer, reason) for id_ in named]

    def _begin_life(self, member: int, effects: Effects) -> None:
        """A new life was admitted: all who are there have delivered all that remained of the old one."""
        self._cap(member, self.clock.counts[member], effects)
        if self.is_stopped:
            return
        base = self.roster.base(member)
        self.received[member] = self.clock.counts[member] = self.stable[member] = base
        self.clock.changed.pop(member, None)  # everybody has it: no message needs to say so
        self.store.drop_all(member)

    @property
    def _is_alone(self) -> bool:
        return len(self.roster.present) == 1

    @property
    def is_stopped(self) -> bool:
        """Whether this node is out of the group for good."""
        return self.phase is Phase.STOPPED

    def _stop(self, reason: Reason, effects: Effects) -> None:
        self.phase = Phase.STOPPED
        effects += [CancelTimer(TEST), Stop(reason)]

    # The contract

    def check(self) -> None:
        if self.is_stopped:
            return  # nobody looks at its state any more
        super().check()
        for member, cap in self.caps.items():
            self._require(not self.roster.is_present(member), f"member {member} is there and capped")
            self._require(self.received[member] <= cap, f"member {member}: nothing beyond the cap")
        for origin, number in self.pending:
            self._require(number in self.store.kept.get(origin, {}), f"{(origin, number)} is kept")
        if self.phase is not Phase.OUT:
            self._require(self.roster.stamps[self.my_index] == 2 * self.life, "this node is in its own view")
        if self.phase is Phase.IN:
            base = self.roster.base(self.my_index)
            self._require(self.last >= base, "numbers belong to the present life")
        for member, count in enumerate(self.clock.counts):
            self._require(self.stable[member] <= count, f"member {member}: what is stable is delivered")

    def save(self) -> State:
        roster, store, tally = self.roster, self.store, self.tally
        return {
            **super().save(),
            "phase": str(self.phase),
            "life": self.life,
            "stamps": list(roster.stamps),
            "sealed": list(roster.sealed),
            "stable": list(self.stable),
            "caps": [list(pair) for pair in sorted(self.caps.items())],
            "awaiting": [list(pair) for pair in self.awaiting.items()],
            "met": sorted(self.met),
            "leaving": list(self.leaving),
            "due_us": self.due_us,
            "knocks": self.knocks,
            "admitted_us": self.admitted_us,
            "kept": [
                [place, message.origin, message.number, list(message.after), message.payload]
                for kept in store.kept.values()
                for place, message in kept.values()
            ],
            "places": store.places,
            "young": store.young,
            "ripe": store.ripe,
            "served": sorted(store.served),
            "given": [[peer, [list(key) for key in sorted(keys)]] for peer, keys in store.given.items()],
            "ups": [[kid, list(sample)] for kid, sample in tally.ups.items()],
            "whole": list(tally.whole),
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self.phase = Phase(state["phase"])
        self.life = state["life"]
        self.roster.merge(tuple(state["stamps"]))
        self.roster.sealed = tuple(state["sealed"])
        view = View(self.roster.cube, self.my_index)
        view.heights = view.heights.ljust(len(self.members), b"\0")
        self.set_view(view)
        self.stable = list(state["stable"])
        self.caps = dict(state["caps"])
        self.awaiting = dict(state["awaiting"])
        self.met = set(state["met"])
        self.leaving = tuple(state["leaving"])
        self.due_us, self.knocks = state["due_us"], state["knocks"]
        self.admitted_us = state["admitted_us"]
        store, tally = self.store, self.tally
        for place, origin, number, after, payload in state["kept"]:
            store.keep(VCubeMessage(origin, number, tuple(after), payload))
            store.kept[origin][number] = (place, store.kept[origin][number][1])
        store.places, store.young, store.ripe = state["places"], state["young"], state["ripe"]
        store.served = set(state["served"])
        store.given = {peer: {(at, number) for at, number in keys} for peer, keys in state["given"]}
        tally.ups = {kid: tuple(sample) for kid, sample in state["ups"]}
        tally.whole = tuple(state["whole"])

    def sizes(self, packet: Packet) -> Sizes:
        return packet_sizes(cast(MemberPacket, packet))

    def entries(self) -> int:
        store, tally = self.store, self.tally
        given = sum(map(len, store.given.values()))
        kept = sum(
            1 + len(message.after) // 2 for each in store.kept.values() for _, message in each.values()
        )
        samples = len(tally.whole) + sum(map(len, tally.ups.values()))
        return super().entries() + 3 * len(self.stable) + len(self.caps) + kept + given + samples


def _check_parameters(joins: object, interval_us: object, timeout_us: object, start_us: object) -> None:
    if not isinstance(joins, bool):
        raise ParameterError("joins", f"{joins!r} is not a boolean", "Use true or false")
    times = {"test_interval_us": interval_us, "test_timeout_us": timeout_us, "start_timeout_us": start_us}
    for name, value in times.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ParameterError(name, f"{value!r} is not a number of microseconds", "Use 1 or more")
