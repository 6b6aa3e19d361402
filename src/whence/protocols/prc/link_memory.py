"""Link memory: causal broadcast over static links, which forgets a message when its last copy is in.

Guarantee     every node delivers each message once, after everything that happened before its
              broadcast. Memory is held for a message only between its first and its last receipt.
Assumptions   reliable FIFO links that are there before the first message; a connected graph of links.
              A link may be removed at any time (if the graph stays connected), none may be added: that
              takes the handshake of prc.py. Not live: a live link comes up when it likes.
Source        Nédelec, Molli, Mostéfaoui, "PRC-broadcast" (paper 003), section 2.2, Algorithm 1.

    symbol                          here
    Qo, out-view                    out_view (sorted)
    Qi, in-view                     in_view
    E[q], expected from link q      {m : q in expected[m]}: by message, so that the test of line 12,
                                    "is m in any E[q]", costs one look-up
    C-broadcast, C-deliver          broadcast, Deliver

Every process forwards a message once to all of its links, the one it came from included (the echo), so
every link carries every message once in each direction and the receiver knows what is still to come.

`own_after_echo`: one's own message is given to one's own application only when its first echo is in.
Uniform agreement fails without it when the origin crashes (section "guarantees" of docs/prc.md). It
costs a round trip for one's own messages, and an entry for each that waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

from whence.core.effects import Deliver, Discard, Effects, Reason, Send
from whence.core.group import NUMBER_MAX, check_member, check_payload, check_peer
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.parameters import Parameters, flag
from whence.core.protocol import Protocol, State
from whence.core.sizes import FRAME_BYTES, array_header_bytes, binary_header_bytes, text_bytes, uint_bytes
from whence.errors import MisuseError

Key: TypeAlias = tuple[NodeId, int]  # (origin, number)

OWN_AFTER_ECHO = flag("own_after_echo", default=False)


class LinkPacket(NamedTuple):
    """Message `number` of `origin`."""

    origin: NodeId
    number: int
    payload: bytes


class LinkMemory(Protocol):
    """Causal broadcast that forgets a message with its last copy."""

    name: ClassVar[str] = "link_memory"
    packet_type: ClassVar[type[Packet]] = LinkPacket

    parameters: ClassVar[Parameters] = Parameters(OWN_AFTER_ECHO)

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        check_member(me, set(members))
        self.options = self.parameters.read(self.name, given)
        self.me = me
        self.last = 0
        self.own_after_echo: bool = self.options.get("own_after_echo", False)
        self.out_view: tuple[NodeId, ...] = ()
        self.in_view: set[NodeId] = set()
        self.expected: dict[Key, set[NodeId]] = {}
        self.unechoed: dict[Key, tuple[Message, int]] = {}  # own messages that wait -> since when
        self.is_fresh = True  # nothing has been broadcast or delivered here

    # Links

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        check_peer(self.me, peer)
        if not self.is_fresh and peer not in self.in_view:
            raise MisuseError(
                f"link {peer!r}",
                "messages have passed already, and Algorithm 1 is for static links",
                "Use protocol 'prc', which opens links at any time",
            )
        self._use_out(peer)
        self.in_view.add(peer)
        return []

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        effects: Effects = []
        self._forget(peer, effects)
        return effects

    def _use_out(self, peer: NodeId) -> None:
        self.out_view = tuple(sorted({*self.out_view, peer}))

    def _forget(self, peer: NodeId, effects: Effects) -> None:
        """Lines 43-45 of Algorithm 2, close: nothing is sent to or expected from the peer any more."""
        if peer in self.out_view:
            self.out_view = tuple(other for other in self.out_view if other != peer)
        if peer in self.in_view:
            self.in_view.discard(peer)
            self._expect_nothing(peer, effects)

    # rule 003 flaw 13: E is forgotten with the link
    def _expect_nothing(self, peer: NodeId, effects: Effects) -> None:
        """E ← E \\ peer (line 45)."""
        for key in [key for key, links in self.expected.items() if peer in links]:
            self._untag(key, peer)
            if key not in self.expected:  # no node is left that could echo it
                self._release(key, effects)

    # Dissemination (lines 4-17)

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        check_payload(payload)
        self.last += 1
        effects: Effects = []
        self._take(Message(self.me, self.last, payload), None, now_us, effects)
        return effects

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        origin, number, payload = cast(LinkPacket, packet)
        return self._receive_message(peer, Message(origin, number, payload), now_us)

    # rule 003 Algorithm 1: a copy that is expected is a duplicate, any other a first receipt
    def _receive_message(self, peer: NodeId, message: Message, now_us: int) -> Effects:
        origin, number, _ = message
        if not self._is_safe(peer):
            return [Discard(self._named(origin, number), peer, Reason.NOT_A_NEIGHBOUR)]
        refused = self._refuse(origin, number)
        if refused is not None:
            return [Discard(self._named(origin, number), peer, refused)]
        effects: Effects = []
        key = (origin, number)
        if key in self.expected:  # line 12
            effects.append(Discard(MessageId(origin, number), peer, Reason.DUPLICATE))
            self._got_copy(key, peer, effects)  # line 16
        elif origin == self.me:
            reason = Reason.DUPLICATE if number <= self.last else Reason.FORGED
            effects.append(Discard(MessageId(origin, number), peer, reason))
        else:
            self._take(message, peer, now_us, effects)
        return effects

    # rule 003 flaw 1: nothing is taken from a link outside the in-view
    def _is_safe(self, peer: NodeId) -> bool:
        """The guard: what comes over a link that is not in the in-view is dropped, all of it."""
        return peer in self.in_view

    def _refuse(self, origin: NodeId, number: int) -> Reason | None:
        return None if origin and 0 < number < NUMBER_MAX else Reason.MALFORMED

    # rule 003 atomic: tag, forward, buffer and deliver are one step
    def _take(self, message: Message, came_from: NodeId | None, now_us: int, effects: Effects) -> None:
        """A first receipt: tag, forward, buffer, deliver, as one step (lines 9, 10, 14-16)."""
        self.is_fresh = False
        origin, number, _ = message
        tagged = self.in_view - {came_from} if came_from is not None else set(self.in_view)
        if tagged:
            self.expected[origin, number] = tagged
        targets = self._forward_to(came_from)
        if targets:
            effects.append(Send(targets, self._packet(message)))
        self._buffer(message)
        if self.own_after_echo and origin == self.me and tagged:
            self.unechoed[origin, number] = (message, now_us)
        else:
            effects.append(Deliver(message))

    # rule 003 flaw 8: the sender gets its echo
    def _forward_to(self, came_from: NodeId | None) -> tuple[NodeId, ...]:
        """All of Qo, and so the sender too: it expects our copy."""
        return self.out_view

    def _buffer(self, message: Message) -> None:
        """Where Algorithm 2 keeps what it delivers while a link is being opened."""

    def _got_copy(self, key: Key, peer: NodeId, effects: Effects) -> None:
        """A further copy of what was delivered; of an own message it is the echo."""
        self._untag(key, peer)
        if self.unechoed:
            self._release(key, effects)

    def _untag(self, key: Key, peer: NodeId) -> None:
        """E[peer] ← E[peer] \\ m; a message that is expected from no link is forgotten."""
        links = self.expected[key]
        links.discard(peer)
        if not links:
            del self.expected[key]

    # rule 003 uniform: own messages after the first echo (`own_after_echo`)
    def _release(self, key: Key, effects: Effects) -> None:
        """Another node has our message, and so all of ours before it: give them to the application."""
        if key in self.unechoed:
            for earlier in sorted(each for each in self.unechoed if each <= key):
                effects.append(Deliver(self.unechoed.pop(earlier)[0]))

    def _packet(self, message: Message) -> Packet:
        return LinkPacket(*message)

    # The contract

    @property
    def waiting(self) -> int:
        return len(self.unechoed)

    def explain(self) -> list[Waiting]:
        return [Waiting(message.id, since, (message.id,)) for message, since in self.unechoed.values()]

    def check(self) -> None:
        for key, links in self.expected.items():
            self._require(bool(links), f"a message that no node will send again is forgotten ({key})")
            self._require(links <= self.in_view, f"copies are expected only from the in-view ({key})")
        for key in self.unechoed:
            self._require(key in self.expected, f"an own message waits only for an expected echo ({key})")
        self._require(list(self.out_view) == sorted(set(self.out_view)), "the out-view is sorted")

    def save(self) -> State:
        return {
            "last": self.last,
            "is_fresh": self.is_fresh,
            "out_view": list(self.out_view),
            "in_view": sorted(self.in_view),
            "expected": [[*key, sorted(links)] for key, links in self.expected.items()],
            "unechoed": [[*message, since_us] for message, since_us in self.unechoed.values()],
        }

    def restore(self, state: State) -> None:
        self.last = state["last"]
        self.is_fresh = state["is_fresh"]
        self.out_view = tuple(state["out_view"])
        self.in_view = set(state["in_view"])
        self.expected = {(origin, number): set(links) for origin, number, links in state["expected"]}
        self.unechoed = {
            (origin, number): (Message(origin, number, payload), since_us)
            for origin, number, payload, since_us in state["unechoed"]
        }

    def _named(self, origin: NodeId, number: int) -> MessageId | None:
        return MessageId(origin, number) if self._refuse(origin, number) is None else None

    def message_of(self, packet: Packet) -> MessageId | None:
        return self._named(packet[0], packet[1])

    def sizes(self, packet: Packet) -> Sizes:
        origin, number, payload = cast(LinkPacket, packet)
        control = FRAME_BYTES + array_header_bytes(3) + text_bytes(origin) + uint_bytes(number)
        control += binary_header_bytes(len(payload))
        return Sizes(control + len(payload), control)

    def expecting(self) -> int:
        """Entries in E: copies that are still to come."""
        return sum(map(len, self.expected.values()))

    def entries(self) -> int:
        return self.expecting() + len(self.unechoed)
