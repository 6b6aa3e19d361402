"""The joiner's side of joining a VCube (rule 6 of `vcube_members.py`): knock, be admitted, begin at a cut."""

from __future__ import annotations

from whence.core.effects import Effects
from whence.protocols.vcube_control import Control, Kind
from whence.protocols.vcube_member_state import MemberState, Phase


class Joiner(MemberState):
    """OUT: it asks one peer after the other. ADMITTED: it is in the view and waits. IN: it has begun."""

    def _knock(self, now_us: int, effects: Effects) -> None:
        """Ask the next peer to let us in."""
        self.life = self.life or max(now_us // 1000, 1)
        peers = sorted(self.neighbours)
        if peers:
            contact = self.index[peers[self.knocks % len(peers)]]
            self.knocks += 1
            self._send_control(contact, Control(Kind.JOIN, (), (), (), (), (), (), ()), effects)

    def _hear_outside(self, control: Control, now_us: int, effects: Effects) -> None:
        """What concerns one that is not in: it is let in, or its life is already over."""
        stamp = control.stamps[self.my_index]
        if self.life and stamp > 2 * self.life:
            self.life = max((stamp >> 1) + 1, now_us // 1000)
        elif control.kind == Kind.ADMIT and stamp == 2 * self.life:
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

    def _begin(self, control: Control, effects: Effects) -> None:
        """Start at the cut. No message of this life needs to name it: everybody has delivered it."""
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
