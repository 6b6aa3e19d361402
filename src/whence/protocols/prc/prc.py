"""PRC: preventive reliable causal broadcast over links that open and close at any time.

Guarantee     every process delivers each message at most once, after everything that happened before its
              broadcast; what a surviving process delivers, every surviving process delivers (those that
              were there when it was broadcast). A message carries one number. Memory depends on what is
              in transit and on the degree, and is empty when nothing is under way.
              Not guaranteed: uniform agreement. A process delivers its own message immediately; if it crashes
              then, no other may have it (`own_after_echo` narrows this: docs/prc.md).
Assumptions   links are reliable and FIFO while they are up, control and messages in one queue; a link that
              goes down takes with it what was in flight (all that follows the first loss), and `link_down`
              comes before a new `link_up` of the same peer; the graph of safe links stays connected.
Source        paper 003, sections 2.3 and 2.4, Algorithm 2, with the repairs below. Each flaw is a test in
              tests/paper/test_003_section_2_4.py; the numbers are those of the specification's table.

    symbol                          here
    Qo, Qi, E                       out_view, in_view, expected (link_memory.py)
    B[to]                           opening[to].delivered
    S[from] = (Bα, Bπ, receivedπ)   accepting[from] = (before, after, has_pi)
    openo(to)                       open(peer, route)
    closeo, closei                  close(peer), link_down(peer)

Who links to whom is not decided here: an overlay (overlay/spray.py) says `open`, `close`, `mediate`. A host
first brings the link up at both ends, then tells one of them to `open` it along a route of safe links. With
`links = "static"` (default) links that come up before the first message are safe from the start, as in
Algorithm 1, so that the protocol runs on any static graph; with "dynamic" a process begins with `found` or
`join`.

**The handshake** makes a link safe in both directions. A opens, C is the target, both ends of the new link
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
    that is not in the reply     <=====   RETURN

The way back needs no control of its own: for the link C -> A, π plays β, ρ plays π and Bβ plays ρ. Bβ may go
over the new link, because with π and Bβ together C has delivered all that A had delivered at ρ. What A
delivered since β is its Bα (up to ρ) and Bπ. C leaves Bβ out of its reply: A has it.

**Repairs** to the printed algorithm:
- every attempt has an epoch, and control of another attempt is ignored (2);
- ABORT on the new link leaves "closed up to epoch", so that a late α builds nothing (3). This tombstone goes
  when the link is safe or gone: if nothing follows in two time-outs, the target closes the link;
- both ends time out (4). The opener aborts and tries again with a new epoch, or closes the link; once it has
  sent Bβ it cannot take that back, so a failure from there on closes the link, which resets both ends. The
  target waits twice as long, for the opener to try again, and then closes the link;
- a link that is safe or on its way is not opened again (14); of two simultaneous opens of one pair the one of
  the smaller name goes on, and the other end becomes its target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from whence.core.effects import CancelTimer, Discard, Effects, Reason, Send, SetTimer
from whence.core.message import Message, NodeId, Packet
from whence.core.parameters import Parameters, whole
from whence.core.protocol import State
from whence.protocols.prc.link_memory import OWN_AFTER_ECHO, Key
from whence.protocols.prc.links import LINKS, RELAY, TIMEOUT_US, Overlaid
from whence.protocols.prc.wire import (
    ABORT,
    ALPHA,
    BETA,
    BUFFER,
    JOIN,
    MESSAGE,
    PI,
    RETURN,
    RHO,
    ROUTED,
    WELCOME,
    PrcPacket,
    direct,
    is_well_formed,
    next_hop,
    routed,
)

OPEN, ACCEPT = "open:", "accept:"  # timers, with the peer's name
WAIT_BETA, WAIT_RHO, WAIT_RETURN = 0, 1, 2  # what the opener waits for


@dataclass
class OpeningState:
    """Our attempt to open a link (@Sender of Algorithm 2, and receiver of the way back)."""

    epoch: int
    route: tuple[NodeId, ...]
    attempt: int = 1
    phase: int = WAIT_BETA
    delivered: list[Message] = field(default_factory=list)  # since β: Bβ up to `cut`, then Bπ of the way back
    cut: int = 0  # how many were delivered before ρ

    def save(self) -> list[Any]:
        """As plain data."""
        delivered = [list(message) for message in self.delivered]
        return [self.epoch, list(self.route), self.attempt, self.phase, delivered, self.cut]

    @classmethod
    def load(cls, saved: list[Any]) -> OpeningState:
        """From what `save` gave."""
        epoch, route, attempt, phase, delivered, cut = saved
        return cls(epoch, tuple(route), attempt, phase, [Message(*each) for each in delivered], cut)


@dataclass
class AcceptingState:
    """Another node's attempt to open a link to us (S[from], @Receiver of Algorithm 2)."""

    epoch: int
    route: tuple[NodeId, ...]
    before: list[tuple[NodeId, int]] = field(default_factory=list)  # Bα: α to π
    after: list[Message] = field(default_factory=list)  # Bπ: since π; also Bβ of the way back
    has_pi: bool = False

    def save(self) -> list[Any]:
        """As plain data."""
        after = [list(message) for message in self.after]
        return [self.epoch, list(self.route), [list(key) for key in self.before], after, self.has_pi]

    @classmethod
    def load(cls, saved: list[Any]) -> AcceptingState:
        """From what `save` gave."""
        epoch, route, before, after, has_pi = saved
        keys = [(origin, number) for origin, number in before]
        return cls(epoch, tuple(route), keys, [Message(*each) for each in after], has_pi)


class Prc(Overlaid):
    """Link memory whose links open and close; rules of an opener, of a target and of those between them."""

    name: ClassVar[str] = "prc"
    parameters: ClassVar[Parameters] = Parameters(LINKS, TIMEOUT_US, whole("attempts", 3, 1), OWN_AFTER_ECHO)

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        super().__init__(me, members, **given)
        self.attempts: int = self.options["attempts"]
        self.epoch = 0  # of our newest attempt
        self.opening: dict[NodeId, OpeningState] = {}  # by target
        self.accepting: dict[NodeId, AcceptingState] = {}  # by opener
        self.closed: dict[NodeId, int] = {}  # tombstones: by opener, the newest epoch that is over

    # What the overlay and the host say

    def open(self, peer: NodeId, route: tuple[NodeId, ...], now_us: int) -> Effects:
        """Make the link to `peer` safe; `route` leads there over safe links: (me, mediator, ..., peer)."""
        self._require_route(peer, route)
        self.closing.discard(peer)
        if self._is_under_way(peer):
            return []
        if route[1] not in self.out_view:
            effects: Effects = []
            self._close(peer, effects)
            return effects
        return self._start(peer, route, 1, now_us)

    # rule 003 flaw 14: a link that is safe or being opened is not opened again
    def _is_under_way(self, peer: NodeId) -> bool:
        """A view is a multiset: a link that is safe or being opened is not opened again."""
        return peer in self.out_view or peer in self.opening or peer in self.accepting

    def is_using(self, peer: NodeId) -> bool:
        """Whether a handshake needs the link to `peer`, as its route or because it is being opened."""
        if peer in self.opening or peer in self.accepting:
            return True
        if any(peer in neighbours for neighbours in self.relays.values()):
            return True
        if any(each.route[1] == peer and each.phase != WAIT_RETURN for each in self.opening.values()):
            return True
        return any(each.route[-2] == peer and not each.has_pi for each in self.accepting.values())

    # Packets

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        packet = cast(PrcPacket, packet)
        kind = packet.kind
        if kind == MESSAGE and not packet.route and not packet.messages:
            return self._receive_message(peer, Message(packet.origin, packet.number, packet.payload), now_us)
        if peer not in self.links:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        if not is_well_formed(packet) or kind == MESSAGE:
            return [Discard(None, peer, Reason.MALFORMED)]
        if kind in ROUTED:
            effects = self._route(peer, packet, now_us)
        else:
            effects = self._direct(kind)(peer, packet, now_us)
        self._close_unused(effects)
        return effects

    def _direct(self, kind: int) -> Callable[[NodeId, PrcPacket, int], Effects]:
        return {
            BUFFER: self._on_buffer,
            RETURN: self._on_return,
            ABORT: self._on_abort,
            JOIN: self._on_join,
            WELCOME: self._on_welcome,
        }[kind]

    # rule 003 flaw 6: control goes hop by hop over safe links
    # rule 003 flaw 7: behind the messages that went before it
    def _route(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        """α, β, π, ρ go hop by hop over safe links, behind the messages that went before them."""
        if not self._is_safe_for_control(peer):
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        hop = next_hop(packet, self.me, peer)
        if hop is None:
            return [Discard(None, peer, Reason.MALFORMED)]
        if hop == self.me:
            arrived = {ALPHA: self._on_alpha, BETA: self._on_beta, PI: self._on_pi, RHO: self._on_rho}
            return arrived[packet.kind](peer, packet, now_us)
        if hop not in self.out_view:
            return [Discard(None, peer, Reason.NO_ROUTE)]
        effects: Effects = [Send((hop,), packet)]
        opener, target = packet.route[0], packet.route[-1]
        if packet.kind == RHO:
            self._end_relay(opener, target, effects)
        else:
            effects += self._relay(opener, target, (peer, hop), now_us)
        return effects

    def _is_safe_for_control(self, peer: NodeId) -> bool:
        return self._is_safe(peer)

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

    # rule 003 flaw 10: Bβ begins when β is in
    def _is_buffering(self, opening: OpeningState) -> bool:
        return opening.phase != WAIT_BETA  # Bβ begins when β is in, not when α goes out (10)

    # rule 003 flaw 2: control of another attempt is ignored
    def _is_current(self, mine: OpeningState | AcceptingState, epoch: int) -> bool:
        return mine.epoch == epoch

    # The opener (@Sender: lines 15-17, 20-22, 26-29)

    # rule 003 flaw 16: a link is used after a handshake
    # rule 003 α: the opener begins
    def _start(self, peer: NodeId, route: tuple[NodeId, ...], attempt: int, now_us: int) -> Effects:
        self.epoch += 1
        self.opening[peer] = OpeningState(self.epoch, route, attempt)
        return [
            Send((route[1],), routed(ALPHA, self.me, self.epoch, route)),
            SetTimer(OPEN + peer, now_us + self.timeout_us),
        ]

    # rule 003 π: the opener replies, Bβ begins
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

    # rule 003 Bβ: sent in the step that begins to use the link
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

    # rule 003 flaw 9: Bβ is in order of delivery
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

    # rule 003 β: the target replies, Bα begins
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
        self.accepting[opener] = AcceptingState(epoch, packet.route)
        effects.append(Send((back,), routed(BETA, opener, epoch, packet.route)))
        effects.append(SetTimer(ACCEPT + opener, now_us + 2 * self.timeout_us))
        return effects

    def _is_stale_alpha(self, opener: NodeId, epoch: int) -> bool:
        if opener in self.in_view or opener in self.out_view or epoch <= self.closed.get(opener, 0):
            return True
        current = self.accepting.get(opener)
        return current is not None and epoch <= current.epoch

    # rule 003 ρ: the target replies, Bπ begins
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
                self._release(key, effects)  # an own message that waits: another node has it
        sent = {(origin, number) for origin, number, _ in packet.messages}
        for key in self._to_expect(before, after, sent):
            self.expected.setdefault(key, set()).add(peer)
        self.in_view.add(peer)
        self._unbury(peer, effects)

    # rule 003 flaw 11: both Bα and Bπ are delivered already
    def _to_ignore(self, before: list[Key], after: list[Key]) -> set[Key]:
        """Bβ ∩ (Bα ∪ Bπ): delivered already (Theorem 2)."""
        return {*before, *after}

    # rule 003 flaw 12: exactly Bπ without Bβ is expected
    def _to_expect(self, before: list[Key], after: list[Key], sent: set[Key]) -> list[Key]:
        """Bπ \\ Bβ: delivered here, and on its way from there (Theorem 2)."""
        return [key for key in after if key not in sent]

    # Failures

    def _on_abort(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        if packet.origin != peer or peer in self.in_view:
            return [Discard(None, peer, Reason.STALE)]
        return self._bury(peer, packet.number, now_us)

    # rule 003 flaw 3: a late α of an aborted attempt builds nothing
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

    # rule 003 flaw 4: the opener times out and tries again
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

    # rule 003 flaw 4: the target times out and closes
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

    # Time

    def timer(self, key: str, now_us: int) -> Effects:
        effects: Effects = []
        if key.startswith(OPEN):
            effects = self._opening_timed_out(key[len(OPEN) :], now_us)
        elif key.startswith(ACCEPT):
            effects = self._accepting_timed_out(key[len(ACCEPT) :])
        elif key.startswith(RELAY):
            self._relay_timed_out(key)
        self._close_unused(effects)
        return effects

    # The contract

    def check(self) -> None:
        super().check()
        self._require(not self.accepting.keys() & self.opening.keys(), "one handshake for each pair")
        self._require(not self.accepting.keys() & self.in_view, "a safe link is not being accepted")
        self._require(self.accepting.keys() | self.opening.keys() <= self.links, "handshakes are for links")
        for peer, opening in self.opening.items():
            is_used = opening.phase == WAIT_RETURN
            self._require((peer in self.out_view) == is_used, f"{peer} is used once Bβ is sent")
            self._require(peer not in self.in_view, f"nothing is expected from {peer} before its answer")

    def save(self) -> State:
        return super().save() | {
            "epoch": self.epoch,
            "opening": {peer: each.save() for peer, each in self.opening.items()},
            "accepting": {peer: each.save() for peer, each in self.accepting.items()},
            "closed": dict(self.closed),
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self.epoch = state["epoch"]
        self.opening = {peer: OpeningState.load(each) for peer, each in state["opening"].items()}
        self.accepting = {peer: AcceptingState.load(each) for peer, each in state["accepting"].items()}
        self.closed = dict(state["closed"])

    def buffered(self) -> int:
        """Entries in buffers: each delivered message once for each link that is being opened."""
        opening = sum(len(each.delivered) for each in self.opening.values())
        return opening + sum(len(each.before) + len(each.after) for each in self.accepting.values())

    def entries(self) -> int:
        handshakes = len(self.opening) + len(self.accepting) + len(self.closed) + len(self.relays)
        return super().entries() + self.buffered() + handshakes
