"""VCube in a group whose members crash, leave and join: our extension of paper 000 (its section 7).

Guarantee     causal order and no duplicate at every node, always. Among the nodes that are left when
              faults stop: what one delivered all deliver. A joiner begins at a cut, messages that all
              had delivered when everybody knew the joiner, and from there on delivers what all deliver.
Assumptions   the names of all who may ever take part are known; any two that live can talk, over
              links that lose nothing (they need not be FIFO). Nodes crash for good, and come back, if
              at all, in a new life without their state. Tests may be wrong: a node that was declared
              faulty stops as soon as it learns that. It costs the suspect, never the order.
Source        section 2 for the tests, section 4.2 for trees over the fault-free nodes; the rest is
              ours. docs/vcube.md has the argument for each of the rules below.

    1. Tests. A node tests those for whom it is the first fault-free node of a cluster. Whoever says
       nothing for `test_timeout_us` is declared faulty. Tests and answers carry the view; a change is
       passed on at once. From those who are gone nothing is taken, and they are told.
    2. Trees span those who are there. They are only the fast way: what they miss is repaired.
    3. Repair. Tests and answers carry a digest; whoever has what the other lacks gives it. The graph of
       tests is connected, so what one has reaches all.
    4. Stability. A message is kept until all who are there have delivered it (the tally).
    5. Orphans. When all who are there have the same prefix of one who is gone, nobody will ever have
       more of it: what depends on more can be delivered by nobody, and is discarded.
    6. Joining. A member admits the joiner once all have delivered what remains of its earlier life;
       that only puts it into the view, and from then on nothing more becomes stable. When the tally
       shows that everybody knows it, it is given a cut to begin with: all that anybody has forgotten.
    7. Leaving. A node waits until all have delivered what it has, says that it is gone, and stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from whence.core.effects import Deliver, Discard, Effects, Reason, SetTimer
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import LEAVE
from whence.errors import MisuseError
from whence.protocols.flooding import check_payload
from whence.protocols.vcube_control import Control, Kind, MemberPacket, is_malformed
from whence.protocols.vcube_joining import Joiner
from whence.protocols.vcube_member_state import TEST, Phase
from whence.protocols.vcube_repair import Sample
from whence.protocols.vcube_wire import VCubeMessage


class VCubeMembers(Joiner):
    """See the module."""

    renews: ClassVar[bool] = True

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
        if len(self.members) > 1:  # otherwise no test would ever find out that nobody lacks it
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
        elif control is not None and control.kind == Kind.JOIN:
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
        is_starting = member not in self.met and self.roster.life(member) == 0
        return max(self.start_timeout_us, self.test_timeout_us) if is_starting else self.test_timeout_us

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
        if not self._learn(control.stamps, effects):
            return
        if 2 * life != self.roster.stamps[sender]:
            return  # its own news told us that it is gone: it leaves
        self._heard(sender)
        if self.phase is Phase.ADMITTED and control.kind == Kind.WELCOME:
            self._begin(control, effects)
        self._learn_caps(control, effects)
        if control.stamps == self.roster.stamps and not self.is_stopped:
            self._hear_samples(sender, control, effects)
        if self.is_stopped:
            return
        if control.kind == Kind.ASK:
            self._tell(sender, Kind.ANSWER, effects)
        if self.phase is Phase.IN and control.kind in (Kind.ASK, Kind.ANSWER):
            self._serve(sender, control, effects)

    def _learn(self, stamps: Sequence[int], effects: Effects) -> bool:
        """Merge a view into ours; False if this node is not in it."""
        if stamps[self.my_index] > 2 * self.life:
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
        elif control.kind == Kind.ASK:
            self._tell(sender, Kind.NEWS, effects)

    def _meet_other_part(self, sender: int, control: Control, effects: Effects) -> None:
        """The group was split, and the parts are no longer one: all of one of them must stop."""
        if self.roster.yields_to(control.stamps, control.sealed):
            self._expelled(effects)
        else:
            self._tell(sender, Kind.NEWS, effects)

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
            welcome = Control(Kind.WELCOME, stamps, sealed, self._flat_caps(), cut, (), (), ())
            self._send_control(sender, welcome, effects)

    def _hear_samples(self, sender: int, control: Control, effects: Effects) -> None:
        length = len(self._sample())
        if len(control.up) == length and sender in self.roster.kids:
            self.tally.ups[sender] = control.up
            self._add_up(effects)
        if len(control.down) == length and sender == self.roster.parent:
            self._conclude(control.down, effects)

    def _add_up(self, effects: Effects) -> None:
        """At the root: the tally of everybody, as soon as all children have sent theirs."""
        if self.roster.parent is None:
            whole = self.tally.sum(self._sample(), self.roster.kids, self._least())
            if whole:
                self._conclude(whole, effects)

    def _conclude(self, whole: Sample, effects: Effects) -> None:
        """What follows from the tally of everybody in this view."""
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

    # Joining (rule 6)

    def _hear_knock(self, sender: int, life: int, effects: Effects) -> None:
        """Admit the joiner if nothing of its earlier life can come any more; else it will ask again."""
        roster, whole = self.roster, self.tally.whole
        if self.phase is not Phase.IN:
            return
        if 2 * life < roster.stamps[sender]:
            self._tell(sender, Kind.NEWS, effects)
            return
        if 2 * life > roster.stamps[sender]:
            if roster.is_present(sender):  # a name has one process: the earlier life is over
                self._learn(roster.without([sender]), effects)
                return
            if not whole or whole[sender] != self.caps.get(sender):
                return
            if not self._learn(roster.with_life(sender, life), effects):
                return
        self._tell(sender, Kind.ADMIT, effects)

    # Leaving (rule 7)

    def _leave(self, effects: Effects) -> None:
        if self.phase is Phase.OUT:
            self._stop(Reason.LEFT, effects)
        elif self.phase is Phase.ADMITTED or self._is_alone or self.stable == self.clock.counts:
            self._say_goodbye(effects)  # nobody waits for anything that it has
        else:
            self.leaving = tuple(self.clock.counts)

    def _say_goodbye(self, effects: Effects) -> None:
        partners = self.roster.partners
        self.roster.merge(self.roster.without([self.my_index]))
        for member in partners:
            if self.members[member] in self.neighbours:
                self._tell(member, Kind.NEWS, effects)
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
        return effects

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        """Any two members can talk, so whoever cannot be reached for good is gone.

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
