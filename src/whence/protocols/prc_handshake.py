"""The handshake that gives a new link its memory (paper 003, sections 2.3 and 2.4, Algorithm 2), repaired.

One handshake makes the link safe in both directions. A opens, C is the target, both ends of the new link
are up; α, β, π, ρ travel hop by hop over safe links, behind everything that was sent there before them.

    A                                     C
    α  ------------------------------->   Bα begins (what C delivers)
    Bβ begins (what A delivers)  <-----   β
    π  ------------------------------->   Bα ends, Bπ begins
    Bβ ends; send it on the new link,
    then use the link            <-----   ρ
    Bβ ===============================>   deliver Bβ \\ Bα \\ Bπ, expect Bπ \\ Bβ from A;
                                          send back Bπ \\ Bβ, then use the link
    deliver what A has not, expect
    what it delivered since ρ and
    that is not in the answer     <====   RETURN

The way back needs no control of its own: for the link C -> A, π plays β, ρ plays π and Bβ plays ρ. Bβ may go
over the new link, because with π and Bβ together C has delivered all that A had delivered at ρ. What A
delivered since β is its Bα (up to ρ) and Bπ. C leaves Bβ out of its answer: A has it.

Repairs to the printed algorithm, with the line of the specification's table that each is for:
- every attempt has an epoch, and control of another attempt is ignored (2);
- ABORT on the new link leaves "closed up to epoch", so that a late α builds nothing (3). This tombstone goes
  when the link is safe or gone: if nothing follows in two time-outs, the target closes the link;
- both ends time out (4). The opener aborts and tries again with a new epoch, or closes the link; once it
  has sent Bβ it cannot take that back, so a failure from there on closes the link, which resets both ends.
  The target waits twice as long, for the opener to try again, and then closes the link;
- a link that is safe or on its way is not opened again (14); of two simultaneous opens of one pair the one
  of the smaller name goes on, and the other end becomes its target.
"""

from __future__ import annotations

from collections.abc import Iterable

from whence.core.effects import CancelTimer, Discard, Effects, Reason, Send, SetTimer
from whence.core.message import Message, NodeId
from whence.errors import ParameterError
from whence.protocols.link_memory import Key
from whence.protocols.overlaid import Overlaid
from whence.protocols.prc_state import WAIT_BETA, WAIT_RETURN, WAIT_RHO, Accepting, Opening
from whence.protocols.prc_wire import (
    ABORT,
    ALPHA,
    BETA,
    BUFFER,
    PI,
    RETURN,
    RHO,
    PrcPacket,
    direct,
    routed,
)

OPEN, ACCEPT = "open:", "accept:"  # timers, with the peer's name


class Handshakes(Overlaid):
    """The rules of an opener and of a target. `prc.py` brings the packets here."""

    def __init__(
        self,
        me: NodeId,
        members: Iterable[NodeId],
        *,
        links: str = "static",
        timeout_us: int = 60_000_000,
        attempts: int = 3,
        own_after_echo: bool = False,
    ) -> None:
        super().__init__(me, members, links=links, timeout_us=timeout_us, own_after_echo=own_after_echo)
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise ParameterError("attempts", f"{attempts!r} is not a positive integer", "Use 1 or more")
        self.attempts = attempts
        self.epoch = 0  # of our newest attempt
        self.opening: dict[NodeId, Opening] = {}  # by target
        self.accepting: dict[NodeId, Accepting] = {}  # by opener
        self.closed: dict[NodeId, int] = {}  # tombstones: by opener, the newest epoch that is over

    def _buffer(self, message: Message) -> None:
        """Lines 9-13: what is delivered while links are being opened."""
        for opening in self.opening.values():
            if self._is_buffering(opening):
                opening.delivered.append(message)
        for accepting in self.accepting.values():
            if accepting.has_pi:
                accepting.after.append(message)
            else:
                accepting.before.append((message.origin, message.number))

    def _is_buffering(self, opening: Opening) -> bool:
        return opening.phase != WAIT_BETA  # Bβ begins when β is in, not when α goes out (10)

    def _is_current(self, mine: Opening | Accepting, epoch: int) -> bool:
        return mine.epoch == epoch

    # The opener (@Sender: lines 15-17, 20-22, 26-29)

    def _start(self, peer: NodeId, route: tuple[NodeId, ...], attempt: int, now_us: int) -> Effects:
        self.epoch += 1
        self.opening[peer] = Opening(self.epoch, route, attempt)
        return [
            Send((route[1],), routed(ALPHA, self.me, self.epoch, route)),
            SetTimer(OPEN + peer, now_us + self.timeout_us),
        ]

    def _on_beta(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        target = packet.route[-1]
        opening = self.opening.get(target)
        if opening is None or opening.phase != WAIT_BETA or not self._is_current(opening, packet.number):
            return [Discard(None, peer, Reason.STALE)]
        if opening.route[1] not in self.out_view:
            return [Discard(None, peer, Reason.NO_ROUTE)]  # the time-out looks after it
        opening.phase = WAIT_RHO
        return [
            Send((opening.route[1],), routed(PI, self.me, opening.epoch, opening.route)),
            SetTimer(OPEN + target, now_us + self.timeout_us),
        ]

    def _on_rho(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        target = packet.route[-1]
        opening = self.opening.get(target)
        if opening is None or opening.phase != WAIT_RHO or not self._is_current(opening, packet.number):
            return [Discard(None, peer, Reason.STALE)]
        opening.phase = WAIT_RETURN
        opening.cut = len(opening.delivered)
        self._use_out(target)  # in the same step as sending Bβ: nothing may come before it
        return [
            Send((target,), direct(BUFFER, self.me, opening.epoch, self._ordered(opening.delivered))),
            SetTimer(OPEN + target, now_us + self.timeout_us),
        ]

    def _ordered(self, delivered: list[Message]) -> tuple[tuple[NodeId, int, bytes], ...]:
        return tuple((origin, number, payload) for origin, number, payload in delivered)

    def _on_return(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        opening = self.opening.get(peer)
        if (
            opening is None
            or packet.origin != self.me
            or opening.phase != WAIT_RETURN
            or not self._is_current(opening, packet.number)
        ):
            return [Discard(None, peer, Reason.STALE)]
        del self.opening[peer]
        effects: Effects = [CancelTimer(OPEN + peer)]
        keys = [(message.origin, message.number) for message in opening.delivered]
        for key in keys[: opening.cut]:
            self._release(key, effects)  # the target has all of Bβ
        self._initialise(peer, packet, keys[: opening.cut], keys[opening.cut :], now_us, effects)
        return effects

    # The target (@Receiver: lines 23-25, 30-40)

    def _on_alpha(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        opener, epoch, back = packet.origin, packet.number, packet.route[-2]
        if opener not in self.links:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]  # its link is not up here: it will try again
        if self._is_stale_alpha(opener, epoch):
            return [Discard(None, peer, Reason.STALE)]
        if back not in self.out_view:
            return [Discard(None, peer, Reason.NO_ROUTE)]
        effects: Effects = []
        mine = self.opening.get(opener)
        if mine is not None:  # two simultaneous opens of one pair are merged
            if self.me < opener:
                return [Discard(None, peer, Reason.STALE)]  # ours goes on there
            del self.opening[opener]
            effects.append(CancelTimer(OPEN + opener))
        self.accepting[opener] = Accepting(epoch, packet.route)
        effects.append(Send((back,), routed(BETA, opener, epoch, packet.route)))
        effects.append(SetTimer(ACCEPT + opener, now_us + 2 * self.timeout_us))
        return effects

    def _is_stale_alpha(self, opener: NodeId, epoch: int) -> bool:
        if opener in self.in_view or opener in self.out_view or epoch <= self.closed.get(opener, 0):
            return True
        current = self.accepting.get(opener)
        return current is not None and epoch <= current.epoch

    def _on_pi(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        opener, back = packet.origin, packet.route[-2]
        accepting = self.accepting.get(opener)
        if accepting is None or accepting.has_pi or not self._is_current(accepting, packet.number):
            return [Discard(None, peer, Reason.STALE)]
        if back not in self.out_view:
            return [Discard(None, peer, Reason.NO_ROUTE)]
        accepting.has_pi = True
        return [
            Send((back,), routed(RHO, opener, packet.number, packet.route)),
            SetTimer(ACCEPT + opener, now_us + 2 * self.timeout_us),
        ]

    def _on_buffer(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        accepting = self.accepting.get(peer)
        if (
            accepting is None
            or packet.origin != peer
            or not accepting.has_pi
            or not self._is_current(accepting, packet.number)
        ):
            if peer in self.in_view:
                return [Discard(None, peer, Reason.STALE)]
            # The opener uses a link that we gave up: only closing it resets both ends.
            effects: Effects = [Discard(None, peer, Reason.STALE)]
            self._close(peer, effects)
            return effects
        del self.accepting[peer]
        effects = [CancelTimer(ACCEPT + peer)]
        keys = [(message.origin, message.number) for message in accepting.after]
        self._initialise(peer, packet, accepting.before, keys, now_us, effects)
        sent = {(origin, number) for origin, number, _ in packet.messages}
        answer = [each for each in accepting.after if (each.origin, each.number) not in sent]
        effects.append(Send((peer,), direct(RETURN, peer, packet.number, self._ordered(answer))))
        self._use_out(peer)  # in the same step as the answer
        return effects

    # Both: lines 34-40

    def _initialise(
        self,
        peer: NodeId,
        packet: PrcPacket,
        before: list[Key],
        after: list[Key],
        now_us: int,
        effects: Effects,
    ) -> None:
        """The memory of the link from `peer`: `before` is Bα, `after` is Bπ, the packet carries Bβ."""
        known = self._to_ignore(before, after)
        for origin, number, payload in packet.messages:
            key = (origin, number)
            if key not in known and origin != self.me:
                self._take(Message(origin, number, payload), None, now_us, effects)
            else:
                self._release(key, effects)  # an own message that waits: somebody has it
        sent = {(origin, number) for origin, number, _ in packet.messages}
        for key in self._to_expect(before, after, sent):
            self.expected.setdefault(key, set()).add(peer)
        self.in_view.add(peer)
        self._unbury(peer, effects)

    def _to_ignore(self, before: list[Key], after: list[Key]) -> set[Key]:
        """Bβ ∩ (Bα ∪ Bπ): delivered already (Theorem 2)."""
        return {*before, *after}

    def _to_expect(self, before: list[Key], after: list[Key], sent: set[Key]) -> list[Key]:
        """Bπ \\ Bβ: delivered here, and on its way from there (Theorem 2)."""
        return [key for key in after if key not in sent]

    # Failures

    def _on_abort(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        if packet.origin != peer or peer in self.in_view:
            return [Discard(None, peer, Reason.STALE)]
        return self._bury(peer, packet.number, now_us)

    def _bury(self, opener: NodeId, epoch: int, now_us: int) -> Effects:
        """No attempt of `opener` up to `epoch` will be answered any more."""
        self.closed[opener] = max(epoch, self.closed.get(opener, 0))
        accepting = self.accepting.get(opener)
        if accepting is not None and accepting.epoch > epoch:
            return []  # its own time-out is set
        self.accepting.pop(opener, None)
        # A late α may come as long as the link is there, so only the link can take the tombstone with it.
        return [SetTimer(ACCEPT + opener, now_us + 2 * self.timeout_us)]

    def _unbury(self, opener: NodeId, effects: Effects) -> None:
        """The link is safe or gone: no α of before can do harm."""
        if self.closed.pop(opener, None) is not None:
            effects.append(CancelTimer(ACCEPT + opener))

    def _opening_timed_out(self, peer: NodeId, now_us: int) -> Effects:
        opening = self.opening.get(peer)
        if opening is None:
            return []
        effects: Effects = []
        if opening.phase == WAIT_RETURN or opening.attempt >= self.attempts:
            self._close(peer, effects)
            return effects
        del self.opening[peer]
        effects.append(Send((peer,), direct(ABORT, self.me, opening.epoch)))
        if opening.route[1] in self.out_view:
            effects += self._start(peer, opening.route, opening.attempt + 1, now_us)
        else:
            self._close(peer, effects)
        return effects

    def _accepting_timed_out(self, opener: NodeId) -> Effects:
        effects: Effects = []
        # It is gone, or took back what we wait for: only a reset helps both. An attempt of our own to it has
        # its own time-out, and takes the tombstone along, however it ends.
        if opener in self.accepting or (opener in self.closed and opener not in self.opening):
            self._close(opener, effects)
        return effects

    def _forget(self, peer: NodeId, effects: Effects) -> None:
        super()._forget(peer, effects)
        self._unbury(peer, effects)
        if self.opening.pop(peer, None) is not None:
            effects.append(CancelTimer(OPEN + peer))
        if self.accepting.pop(peer, None) is not None:
            effects.append(CancelTimer(ACCEPT + peer))
