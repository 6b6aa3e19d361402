"""VCube in a group whose members crash, leave and join: our extension of paper 000 (its section 7).

Guarantee     causal order and no duplicate at every node, always. Among the nodes that are left when
              faults stop: what one delivered all deliver. A joiner begins at a cut, messages that all
              had delivered when all members knew the joiner, and from there on delivers what all deliver.
Assumptions   the names of all possible members are known; any two that live can talk, over
              links that lose nothing (they need not be FIFO). Nodes crash permanently, and come back, if
              at all, in a new life without their state. Tests may be wrong: a node that was declared
              faulty stops as soon as it learns that. It costs the suspect, never the order.
Source        section 2 for the tests, section 4.2 for trees over the fault-free nodes; the rest is
              ours. docs/vcube.md has the argument for each of the rules below.

    1. Tests. A node tests those for whom it is the first fault-free node of a cluster. A node that says
       nothing for `test_timeout_us` is declared faulty. Tests and answers carry the view; a change is
       passed on immediately. From those who are gone nothing is taken, and they are told.
    2. Trees span those who are there. They are only the fast way: what they miss is repaired.
    3. Repair. Tests and answers carry a digest; a node that has what the other lacks gives it. The graph of
       tests is connected, so what one has reaches all.
    4. Stability. A message is kept until all who are there have delivered it (the tally).
    5. Orphans. When all who are there have the same prefix of one who is gone, no node will ever have
       more of it: what depends on more can be delivered nowhere, and is discarded.
    6. Joining. A member admits the joiner once all have delivered what remains of its earlier life;
       that only puts it into the view, and from then on nothing more becomes stable. When the tally
       shows that all members know it, it gets a cut to begin with: all that a member has forgotten.
    7. Leaving. A node waits until all have delivered what it has, says that it is gone, and stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, ClassVar, cast
from zlib import crc32

from whence.core.effects import CancelTimer, CountOn, Deliver, Discard, Effects, Reason, Send, SetTimer, Stop
from whence.core.group import LIFE_BITS, NUMBER_MAX, check_payload
from whence.core.lives import BEGIN
from whence.core.message import Message, NodeId, Packet, Sizes
from whence.core.parameters import Parameters, flag, whole
from whence.core.protocol import LEAVE, State
from whence.errors import MisuseError
from whence.overlay.hypercube import View
from whence.protocols.vcube.control import Control, ControlKind, MemberPacket, is_malformed, packet_sizes
from whence.protocols.vcube.core import AGGREGATE, MTU, MTU_BYTES, SIZE_MODEL, Key, VCube
from whence.protocols.vcube.repair import RepairStore, Sample, SampleTally
from whence.protocols.vcube.roster import Roster
from whence.protocols.vcube.wire import VCubeMessage, split

TEST = "test"  # the timer of VCube's tests
EARLY_MAX = 2048  # numbers beyond a hole that a digest names; the others may be given once too often


class Phase(StrEnum):
    """How far a node's life is."""

    OUT = "out"  # asking to be let in
    ADMITTED = "admitted"  # in the view: it replies to tests, has no state yet and takes no messages
    IN = "in"
    STOPPED = "stopped"


class VCubeMembers(VCube):
    """VCube's state, the view, what is kept for others, and what is known about those who are gone."""

    packet_type: ClassVar[type[Packet]] = MemberPacket
    parameters: ClassVar[Parameters] = Parameters(
        AGGREGATE,
        MTU,
        SIZE_MODEL,
        flag("joins", default=False),  # this node was not there from the beginning, or comes back
        whole("test_interval_us", 500_000, 1),
        whole("test_timeout_us", 5_000_000, 1),
        whole("start_timeout_us", 60_000_000, 1),
    )
    renews: ClassVar[bool] = True

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        super().__init__(me, members, **given)
        options = self.parameters.read(self.name, given)
        self.test_interval_us: int = options["test_interval_us"]
        self.test_timeout_us: int = options["test_timeout_us"]
        self.start_timeout_us: int = options["start_timeout_us"]
        self.phase = Phase.OUT if options["joins"] else Phase.IN
        self.life = 0
        self.roster = Roster(len(self.members), self.my_index)
        self.store = RepairStore(len(self.members))
        self.tally = SampleTally()
        self.stable = [0] * len(self.members)  # delivered by all who are there: not kept any more
        self.caps: dict[int, int] = {}  # gone -> the last of its numbers that any node can deliver
        self.awaiting: dict[int, int] = {}  # tested and not heard of -> since when
        self.met: set[int] = set()  # heard of in their present life
        self.leaving: tuple[int, ...] = ()  # what all members must have delivered before this node leaves
        self.due_us: int | None = None  # when the next tests are due
        self.knocks = 0  # a joiner's requests so far
        self.outside: dict[int, int] = {}  # who is out as well -> when it last asked us
        self.admitted_us = 0  # since when it waits to be welcomed

    @property
    def ready(self) -> bool:
        return self.phase is Phase.IN and not self.leaving

    # Messages (rule 2)

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        check_payload(payload)
        if not self.ready:
            state = "leaving" if self.leaving else self.phase.value
            raise MisuseError(
                f"broadcast at {self.me!r}", f"this node is {state}", "Broadcast between joining and leaving"
            )
        after = self.clock.take_delta()
        self.last += 1
        self.received[self.my_index] = self.clock.counts[self.my_index] = self.last
        message = VCubeMessage(self.my_index, self.last, after, payload)
        if len(self.members) > 1:  # otherwise no test would ever find out that no member lacks it
            self.store.keep(message)
        effects: Effects = []
        self._send(self._children(0, self.view.heights[self.my_index]), (message,), effects)
        effects.append(Deliver(Message(self.me, self.last, payload)))
        return effects

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        life, messages, control = cast(MemberPacket, packet)
        sender = self.index.get(peer)
        effects: Effects = []
        if (
            control is None
            and sender is not None
            and 2 * life == self.roster.stamps[sender]
            and messages
            and peer in self.neighbours
            and self.phase is Phase.IN
        ):
            self._heard(sender)
            for message in messages:
                refused = self._refuse(message)
                if refused is None:
                    self._take(message, now_us, effects)
                else:
                    effects.append(Discard(self._named(message), peer, refused))
        elif sender is None or sender == self.my_index:
            effects.append(Discard(None, peer, Reason.NOT_A_NEIGHBOUR))
        elif is_malformed(cast(MemberPacket, packet), len(self.members)):
            effects.append(Discard(None, peer, Reason.MALFORMED))
        elif self.is_stopped:
            self._refuse_all(messages, peer, Reason.GONE, effects)
        elif control is not None and control.kind == ControlKind.JOIN:
            if self.phase is Phase.OUT:
                self.outside[sender] = now_us
            self._hear_knock(sender, life, effects)
        elif 2 * life < self.roster.stamps[sender]:
            self._hear_ghost(sender, messages, control, effects)
        elif control is not None:
            self._hear(sender, life, control, now_us, effects)
        else:
            is_early = self.phase is not Phase.IN
            self._refuse_all(
                messages, peer, Reason.NOT_JOINED if is_early else Reason.NOT_A_NEIGHBOUR, effects
            )
        return effects

    def _refuse(self, message: VCubeMessage) -> Reason | None:
        refused = super()._refuse(message)
        return Reason.ORPHAN if refused is None and self.caps and self._is_orphan(message) else refused

    def _take(self, message: VCubeMessage, now_us: int, effects: Effects) -> None:
        self.store.keep(message)
        super()._take(message, now_us, effects)

    # Lives of founders

    def command(self, verb: str, names: tuple[NodeId, ...], now_us: int) -> Effects:
        """This founder met no node that could say that it was not there before: it may not number from 1."""
        if verb != BEGIN or len(names) != 1 or self.phase is not Phase.IN or self.last:
            return super().command(verb, names, now_us)
        self.life = int(names[0]) >> LIFE_BITS
        self.roster.merge(self.roster.with_life(self.my_index, self.life))
        self.last = self.roster.base(self.my_index)
        for counts in (self.received, self.clock.counts, self.stable):
            counts[self.my_index] = self.last
        return []

    # rule 000 ours 6: whoever was there before is let in, and does not begin by itself
    def _has_founded_anew(self, sender: int, life: int, control: Control) -> bool:
        """Whether a later life has begun by itself: one that was let in has a sealed view of its part."""
        is_known = self.roster.stamps[sender] > 0 or sender in self.met
        return is_known and 2 * life > self.roster.stamps[sender] and not any(control.sealed)

    # Tests (rule 1)

    def timer(self, key: str, now_us: int) -> Effects:
        effects: Effects = []
        if self.is_stopped:
            return effects
        if key == LEAVE:
            self._leave(effects)
        elif key == TEST:
            if self.phase is not Phase.OUT:
                self.store.tick()
                self._judge(now_us, effects)
                self._lose_patience(now_us)
            if self.phase is Phase.OUT:
                self._knock(now_us, effects)
            else:
                self._test(now_us, effects)
                self._add_up(effects)
            if not self.is_stopped:
                self.due_us = now_us + self.test_interval_us
                effects.append(SetTimer(TEST, self.due_us))
        return effects

    def _judge(self, now_us: int, effects: Effects) -> None:
        """Declare faulty who has been silent for too long."""
        if self.due_us is not None and now_us - self.due_us > self.test_interval_us:
            # It is we who were asleep: what the others have said meanwhile is not read yet.
            self.awaiting = dict.fromkeys(self.awaiting, now_us)
            return
        silent = [
            member for member, since in self.awaiting.items() if now_us - since >= self._limit_us(member)
        ]
        if silent:
            self._learn(self.roster.without(silent), effects)

    def _limit_us(self, member: int) -> int:
        """Founders need not all start in the same moment."""
        is_early = self.roster.life(member) == 0 or not any(self.roster.sealed)  # also heard of, not met
        is_starting = member not in self.met and is_early
        return max(self.start_timeout_us, self.test_timeout_us) if is_starting else self.test_timeout_us

    # rule 000 ours 1: tests, and what silence means
    def _test(self, now_us: int, effects: Effects) -> None:
        for member in self.roster.testees:
            if member not in self.awaiting:
                self.awaiting[member] = now_us
                self._ask(member, effects)

    def _heard(self, sender: int) -> None:
        self.awaiting.pop(sender, None)
        self.met.add(sender)

    # What a member says

    def _hear(self, sender: int, life: int, control: Control, now_us: int, effects: Effects) -> None:
        if self.phase is Phase.OUT:
            self._hear_outside(control, now_us, effects)
            return
        if self.roster.has_split(control.sealed):
            self._meet_other_part(sender, control, effects)
            return
        if self._has_founded_anew(sender, life, control):
            if self.roster.is_present(sender):
                self._learn(self.roster.without([sender]), effects)
            self._tell(sender, ControlKind.NEWS, effects)
            return
        if not self._learn(control.stamps, effects):
            return
        if 2 * life != self.roster.stamps[sender]:
            return  # its own news told us that it is gone: it leaves
        self._heard(sender)
        if self.phase is Phase.ADMITTED and control.kind == ControlKind.WELCOME:
            self._begin(control, effects)
        self._learn_caps(control, effects)
        if control.stamps == self.roster.stamps and not self.is_stopped:
            self._hear_samples(sender, control, effects)
        if self.is_stopped:
            return
        if control.kind == ControlKind.ASK:
            self._tell(sender, ControlKind.ANSWER, effects)
        if self.phase is Phase.IN and control.kind in (ControlKind.ASK, ControlKind.ANSWER):
            self._serve(sender, control, effects)

    def _learn(self, stamps: Sequence[int], effects: Effects) -> bool:
        """Merge a view into ours; False if this node is not in it."""
        mine = stamps[self.my_index]
        is_founder = not self.admitted_us  # of an earlier life of one others know, and it does not
        if mine > 2 * self.life or (is_founder and 0 < mine < 2 * self.life):
            self._expelled(effects)
            return False
        changed = self.roster.merge(stamps)
        for member, before in changed:
            self.awaiting.pop(member, None)
            if self.roster.life(member) > before >> 1:
                self.met.discard(member)
                if self.phase is Phase.IN:
                    self._begin_life(member, effects)
                    if self.is_stopped:
                        return False
                self.caps.pop(member, None)
            self._count_on(member, effects)
        if changed:
            self._new_trees()
            for member in self.roster.partners:
                self._ask(member, effects)
        return True

    def _expelled(self, effects: Effects) -> None:
        """The group has gone on without this node."""
        if self.phase is Phase.ADMITTED:
            self._forget()  # it has done nothing in this life yet: knock again
        else:
            self._stop(Reason.GONE, effects)

    def _hear_ghost(
        self, sender: int, messages: tuple[VCubeMessage, ...], control: Control | None, effects: Effects
    ) -> None:
        """A packet from a life that is over here: nothing in it counts, but its sender may not know.

        If it holds us for gone as well, the group was split; then one of the two goes on.
        """
        self._refuse_all(messages, self.members[sender], Reason.GONE, effects)
        if control is None or self.phase is Phase.OUT:
            return
        is_mutual = control.stamps[self.my_index] > 2 * self.life
        if is_mutual or self.roster.has_split(control.sealed):
            self._meet_other_part(sender, control, effects)
        elif control.kind == ControlKind.ASK:
            self._tell(sender, ControlKind.NEWS, effects)

    def _meet_other_part(self, sender: int, control: Control, effects: Effects) -> None:
        """The group was split, and the parts are no longer one: all of one of them must stop."""
        if self.roster.yields_to(control.stamps, control.sealed):
            self._expelled(effects)
        else:
            self._tell(sender, ControlKind.NEWS, effects)

    # Repair, stability, orphans (rules 3, 4, 5)

    def _serve(self, sender: int, control: Control, effects: Effects) -> None:
        """Give what the sender lacks; to one that has nothing yet, the cut to begin with (rule 6)."""
        if control.received:
            messages = self.store.lacking(sender, control.received, control.early)
            self._send([self.members[sender]], messages, effects)
            return
        self.store.expect_digest(sender)
        if control.stamps == self.roster.stamps and self.tally.whole:
            stamps, sealed, cut = (
                self.roster.stamps,
                self.roster.sealed,
                self.tally.whole[-len(self.members) :],
            )
            welcome = Control(ControlKind.WELCOME, stamps, sealed, self._flat_caps(), cut, (), (), ())
            self._send_control(sender, welcome, effects)

    def _hear_samples(self, sender: int, control: Control, effects: Effects) -> None:
        length = len(self._sample())
        if len(control.up) == length and sender in self.roster.kids:
            self.tally.ups[sender] = control.up
            self._add_up(effects)
        if len(control.down) == length and sender == self.roster.parent:
            self._conclude(control.down, effects)

    def _add_up(self, effects: Effects) -> None:
        """At the root: the tally of all members, as soon as all children have sent theirs."""
        if self.roster.parent is None:
            whole = self.tally.sum(self._sample(), self.roster.kids, self._least())
            if whole:
                self._conclude(whole, effects)

    # rule 000 ours 4: what the tally of all members says
    def _conclude(self, whole: Sample, effects: Effects) -> None:
        """What follows from the tally of all members in this view."""
        self.tally.whole = whole
        self.roster.sealed = self.roster.stamps
        size, gone = len(self.members), self.roster.gone
        delivered = whole[:size]
        if self.phase is Phase.IN:
            here = map(min, delivered, self.clock.counts)
            self.stable = list(map(max, self.stable, here))
            self.store.prune(self.stable)
        least, most = whole[size : size + len(gone)], whole[size + len(gone) : -size]
        for member, low, high in zip(gone, least, most, strict=True):
            if low == high:
                self._cap(member, low, effects)
                if self.is_stopped:
                    return
        if self.leaving and all(map(int.__ge__, delivered, self.leaving)):
            self._say_goodbye(effects)

    def _learn_caps(self, control: Control, effects: Effects) -> None:
        pairs = iter(control.caps)
        for member, cap in zip(pairs, pairs, strict=True):
            is_same_life = control.stamps[member] == self.roster.stamps[member]
            if is_same_life and not self.roster.is_present(member) and not self.is_stopped:
                self._cap(member, cap, effects)

    # Orphans (rule 5): what can never be delivered

    # rule 000 ours 5: what follows a lost message is an orphan
    def _cap(self, member: int, cap: int, effects: Effects) -> None:
        """No node will ever have a number of `member` beyond `cap`: what follows it is an orphan.

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
        self.held_count -= pending.held
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
        self.clock.changed.pop(member, None)  # all members have it: no message needs to say so
        self.store.drop_all(member)

    # Joining (rule 6): what members do, then the joiner. It knocks, is admitted, and begins at a cut

    # rule 000 ours 6: a member admits a joiner
    def _hear_knock(self, sender: int, life: int, effects: Effects) -> None:
        """Admit the joiner if nothing of its earlier life can come any more; else it will ask again."""
        roster, whole = self.roster, self.tally.whole
        if self.phase is not Phase.IN:
            return
        if 2 * life < roster.stamps[sender]:
            self._tell(sender, ControlKind.NEWS, effects)
            return
        if 2 * life > roster.stamps[sender]:
            if roster.is_present(sender):  # a name has one process: the earlier life is over
                self._learn(roster.without([sender]), effects)
                return
            if not whole or whole[sender] != self.caps.get(sender):
                return
            if not self._learn(roster.with_life(sender, life), effects):
                return
        self._tell(sender, ControlKind.ADMIT, effects)

    def _knock(self, now_us: int, effects: Effects) -> None:
        """Ask the next peer to let us in."""
        self.life = self.life or max(now_us // 1000, 1)
        peers = sorted(self.neighbours)
        if self._is_first_outside(now_us):
            self._found(effects)
        elif peers:
            contact = self.index[peers[self.knocks % len(peers)]]
            self.knocks += 1
            self._send_control(contact, Control(ControlKind.JOIN, (), (), (), (), (), (), ()), effects)

    def _is_first_outside(self, now_us: int) -> bool:
        """Whether all are out, and this is the first of them: a node that is in, or dead, does not knock."""
        window_us = self.test_timeout_us + 2 * len(self.members) * self.test_interval_us
        others = [member for member, at_us in self.outside.items() if now_us - at_us <= window_us]
        return self.my_index == 0 and 0 < len(others) == len(self.members) - 1

    # rule 000 ours 6: where all are out, one begins, and lets the others in
    def _found(self, effects: Effects) -> None:
        self.phase = Phase.IN
        self.outside.clear()
        self.roster.merge(
            tuple(2 * self.life if at == self.my_index else 1 for at in range(len(self.members)))
        )
        counts = [0] * len(self.members)
        self.last = counts[self.my_index] = self.roster.base(self.my_index)
        self.clock.counts = counts
        self.received, self.stable = list(counts), list(counts)
        self._new_trees()
        for member in self.roster.gone:
            self._count_on(member, effects)

    def _hear_outside(self, control: Control, now_us: int, effects: Effects) -> None:
        """What concerns one that is not in: it is let in, or its life is already over."""
        stamp = control.stamps[self.my_index]
        if self.life and stamp > 2 * self.life:
            self.life = max((stamp >> 1) + 1, now_us // 1000)
        elif control.kind == ControlKind.ADMIT and stamp == 2 * self.life:
            self.phase = Phase.ADMITTED
            self.admitted_us = now_us
            self.roster.merge(control.stamps)
            self.roster.sealed = control.sealed  # it belongs to the part that has let it in
            self._new_trees()
            for peer in sorted(self.neighbours):
                self._count_on(self.index[peer], effects)
            for member in self.roster.partners:
                self._ask(member, effects)

    def _lose_patience(self, now_us: int) -> None:
        """Those who let us in may be gone, or in a part of the group that has stopped."""
        is_late = now_us - self.admitted_us >= self.start_timeout_us
        if self.phase is Phase.ADMITTED and (self._is_alone or is_late):
            self._forget()

    # rule 000 ours 6: a joiner begins at a cut
    def _begin(self, control: Control, effects: Effects) -> None:
        """Start at the cut. No message of this life needs to name it: all members have delivered it."""
        if control.stamps[self.my_index] != 2 * self.life:
            return
        self.phase = Phase.IN
        self.roster.sealed = control.stamps
        bases = [self.roster.base(member) for member in range(len(self.members))]
        counts = [max(pair) for pair in zip(control.received, bases, strict=True)]
        self.last = counts[self.my_index] = bases[self.my_index]
        self.clock.counts = counts
        self.received, self.stable = list(counts), list(counts)
        for member in self.roster.partners:
            self._ask(member, effects)

    def _forget(self) -> None:
        """Be outside again, knowing nothing; the next life is another one."""
        self.phase = Phase.OUT
        self.life = 0
        self.outside.clear()
        self.roster = Roster(len(self.members), self.my_index)
        self.awaiting.clear()
        self.met.clear()
        self.caps.clear()
        self._new_trees()

    # Leaving (rule 7)

    # rule 000 ours 7: leave when all have delivered what this node has
    def _leave(self, effects: Effects) -> None:
        if self.phase is Phase.OUT:
            self._stop(Reason.LEFT, effects)
        elif self.phase is Phase.ADMITTED or self._is_alone or self.stable == self.clock.counts:
            self._say_goodbye(effects)  # no node waits for anything that it has
        else:
            self.leaving = tuple(self.clock.counts)

    def _say_goodbye(self, effects: Effects) -> None:
        partners = self.roster.partners
        self.roster.merge(self.roster.without([self.my_index]))
        for member in partners:
            if self.members[member] in self.neighbours:
                self._tell(member, ControlKind.NEWS, effects)
        self._stop(Reason.LEFT, effects)

    # Links

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        effects = super().link_up(peer, now_us)
        if self.is_stopped or peer not in self.index:
            return effects
        if self.due_us is None:
            self.due_us = now_us + self.test_interval_us
            effects.append(SetTimer(TEST, self.due_us))
        elif self.phase is not Phase.OUT and self.index[peer] in self.awaiting:
            self._ask(self.index[peer], effects)  # its test was due before there was a link
        elif self.phase is not Phase.OUT and not self.roster.is_present(self.index[peer]):
            # It may be in another part of the group; neither tests the other, so no other would say so.
            self._tell(self.index[peer], ControlKind.NEWS, effects)
        return effects

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        """Any two members can talk, so a member that cannot be reached any more is gone.

        A link may outlive its process: others have let the member in again, and here the link of its earlier
        life ends. A later life that was not heard over the link is left to the tests.
        """
        effects = super().link_down(peer, now_us)
        member = self.index.get(peer)
        if member is None or not self.roster.is_present(member):
            return effects
        is_its_own = member in self.met or self.roster.life(member) == 0
        if is_its_own and self.phase in (Phase.ADMITTED, Phase.IN):
            self._learn(self.roster.without([member]), effects)
        return effects

    @property
    def _is_alone(self) -> bool:
        return len(self.roster.present) == 1

    @property
    def is_stopped(self) -> bool:
        """Whether this node is out of the group permanently."""
        return self.phase is Phase.STOPPED

    def _stop(self, reason: Reason, effects: Effects) -> None:
        self.phase = Phase.STOPPED
        effects += [CancelTimer(TEST), Stop(reason)]

    # The view has changed

    # rule 000 ours 2: trees span those who are there
    def _new_trees(self) -> None:
        """Build the trees over those who are there, and forget what was held back for the old ones.

        A node that was to get it from us now shows in its next digest that it lacks it.
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
            self._tell(member, ControlKind.NEWS, effects)

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

    def _tell(self, member: int, kind: ControlKind, effects: Effects) -> None:
        """Send a control packet with the view and, but for NEWS, all that this node can say to the member."""
        roster, tally = self.roster, self.tally
        received: tuple[int, ...] = ()
        early: tuple[int, ...] = ()
        up = down = cast(Sample, ())
        if kind is not ControlKind.NEWS:
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
            self._tell(member, ControlKind.ASK, effects)

    def _send_control(self, member: int, control: Control, effects: Effects) -> None:
        effects.append(Send((self.members[member],), MemberPacket(self.life, (), control)))

    def _flat_caps(self) -> tuple[int, ...]:
        return tuple(number for pair in sorted(self.caps.items()) for number in pair)

    def _flat_early(self) -> tuple[int, ...]:
        pairs = [(origin, number) for origin in sorted(self.early) for number in sorted(self.early[origin])]
        return tuple(number for pair in pairs[:EARLY_MAX] for number in pair)

    def _sample(self) -> Sample:
        """This node's own part of the tally (repair.py)."""
        received = tuple(self.received[member] for member in self.roster.gone)
        return (*self.clock.counts, *received, *received, *self.stable)

    def _least(self) -> int:
        """How many entries of a sample are minima."""
        return len(self.members) + len(self.roster.gone)

    # The contract

    def check(self) -> None:
        if self.is_stopped:
            return  # its state does not matter any more
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
            **({"outside": [list(pair) for pair in sorted(self.outside.items())]} if self.outside else {}),
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
        self.outside = dict(state.get("outside", ()))
        store, tally = self.store, self.tally
        for place, origin, number, after, payload in state["kept"]:
            store.keep(VCubeMessage(origin, number, tuple(after), payload))
            store.kept[origin][number] = (place, store.kept[origin][number][1])
        store.places, store.young, store.ripe = state["places"], state["young"], state["ripe"]
        store.served = set(state["served"])
        store.given = {peer: {(at, number) for at, number in keys} for peer, keys in state["given"]}
        tally.ups = {kid: tuple(sample) for kid, sample in state["ups"]}
        tally.whole = tuple(state["whole"])

    def detail_of(self, packet: Packet) -> str | None:
        """Of a packet without messages: its kind and a digest, by which a replay tells it from others."""
        life, _, control = cast(MemberPacket, packet)
        if control is None:
            return None
        kind = ControlKind(control.kind)  # a plain number where the packet came over a wire
        digest = crc32(repr((life, kind, *control[1:])).encode())
        return f"{kind.name.lower()}:{digest:08x}"

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
