"""VCube for changing groups with one rule left out, or done too early. The storms must notice each."""

from __future__ import annotations

from collections.abc import Sequence

from whence.core.effects import Effects
from whence.core.group import NUMBER_MAX
from whence.core.message import NodeId, Packet
from whence.protocols.vcube.control import Control, ControlKind, MemberPacket
from whence.protocols.vcube.members import Phase, VCubeMembers
from whence.protocols.vcube.repair import Sample
from whence.protocols.vcube.wire import VCubeMessage


class NoRepair(VCubeMembers):
    """What the trees miss stays missing."""

    def _serve(self, sender: int, control: Control, effects: Effects) -> None:
        if not control.received:
            super()._serve(sender, control, effects)


class ForgetsWhatItDelivered(VCubeMembers):
    """Stability too early: a message is kept only until it is delivered here."""

    def _conclude(self, whole: Sample, effects: Effects) -> None:
        super()._conclude(whole, effects)
        self.store.prune(self.clock.counts)


class FalseSuspectContinues(VCubeMembers):
    """A node that is told that it was declared faulty does not believe it."""

    def _expelled(self, effects: Effects) -> None:
        pass

    def _learn(self, stamps: Sequence[int], effects: Effects) -> bool:
        mine = min(stamps[self.my_index], 2 * self.life)
        return super()._learn((*stamps[: self.my_index], mine, *stamps[self.my_index + 1 :]), effects)


class SuspectIsNotTold(VCubeMembers):
    """Nobody talks to those who were declared faulty."""

    def _tell(self, member: int, kind: ControlKind, effects: Effects) -> None:
        if kind is not ControlKind.NEWS or self.roster.is_present(member):
            super()._tell(member, kind, effects)


class NumbersFromOne(VCubeMembers):
    """A joiner numbers its messages from 1 again."""

    def _begin(self, control: Control, effects: Effects) -> None:
        super()._begin(control, effects)
        self.last = self.clock.counts[self.my_index] = self.received[self.my_index] = 0


class BeginsWithWhatItsContactDelivered(VCubeMembers):
    """The cut is what one member has delivered: then the joiner cannot pass on what it counts as its own."""

    def _serve(self, sender: int, control: Control, effects: Effects) -> None:
        whole = self.tally.whole
        if whole:
            self.tally.whole = (*whole[: -len(self.members)], *self.clock.counts)
        super()._serve(sender, control, effects)
        self.tally.whole = whole


class NeverGivesUp(VCubeMembers):
    """Orphans are waited for, for ever."""

    def _cap(self, member: int, cap: int, effects: Effects) -> None:
        pass


class GivesUpAtOnce(VCubeMembers):
    """What has not arrived when its origin is gone is taken for lost, without asking the others."""

    def _learn(self, stamps: Sequence[int], effects: Effects) -> bool:
        is_known = super()._learn(stamps, effects)
        if is_known and self.phase is Phase.IN:
            for member in self.roster.gone:
                self._cap(member, self.received[member], effects)
        return is_known


class OrphansOnlyOfOneOrigin(VCubeMembers):
    """What depends on another member's lost message is not taken for an orphan."""

    def _is_orphan(self, message: VCubeMessage) -> bool:
        return message.number > self.caps.get(message.origin, NUMBER_MAX)


class AdmitsAtOnce(VCubeMembers):
    """A joiner is let in before its earlier life is settled."""

    def _hear_knock(self, sender: int, life: int, effects: Effects) -> None:
        if self.phase is Phase.IN and 2 * life > self.roster.stamps[sender]:
            self._learn(self.roster.with_life(sender, life), effects)
        if not self.is_stopped:
            super()._hear_knock(sender, life, effects)


class DoesNotWaitForAll(VCubeMembers):
    """The tally is concluded without those who have not sent their samples yet."""

    def _add_up(self, effects: Effects) -> None:
        for kid in self.roster.kids:
            self.tally.ups.setdefault(kid, self._sample())
        super()._add_up(effects)


class TakesFromGhosts(VCubeMembers):
    """Messages are taken even from those who were declared faulty."""

    def _hear_ghost(
        self, sender: int, messages: tuple[VCubeMessage, ...], control: Control | None, effects: Effects
    ) -> None:
        super()._hear_ghost(sender, (), control, effects)
        for message in messages:
            if self.phase is Phase.IN and self._refuse(message) is None:
                self._take(message, 0, effects)


class LivesLookAlike(VCubeMembers):
    """A packet does not say in which life it was sent."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> list:
        life, messages, control = packet
        if control is None or control.kind != ControlKind.JOIN:
            life = max(life, self.roster.life(self.index[peer]))
        return super().receive(peer, MemberPacket(life, messages, control), now_us)


class PartsMerge(VCubeMembers):
    """Parts of a group that was split, and have gone on, become one again."""

    def _hear(self, sender: int, life: int, control: Control, now_us: int, effects: Effects) -> None:
        if self.phase is not Phase.OUT:
            control = control._replace(sealed=self.roster.sealed)
        super()._hear(sender, life, control, now_us, effects)


class LeavesAtOnce(VCubeMembers):
    """A leaver does not wait until the others have what it has."""

    def _leave(self, effects: Effects) -> None:
        if self.phase is Phase.IN:
            self._say_goodbye(effects)
        else:
            super()._leave(effects)


MUTANTS = [
    NoRepair, ForgetsWhatItDelivered, FalseSuspectContinues, SuspectIsNotTold, NumbersFromOne,
    BeginsWithWhatItsContactDelivered, NeverGivesUp, GivesUpAtOnce, OrphansOnlyOfOneOrigin, AdmitsAtOnce,
    DoesNotWaitForAll, TakesFromGhosts, LivesLookAlike, PartsMerge, LeavesAtOnce,
]  # fmt: skip
