"""The host of one core: gives it inputs, carries out its effects in order, has the trace written.

No effect calls back into the application, so the core is never entered twice. There is no I/O: frames go to
the links' queues, messages to the inbox, timers to the `Timers`; the node looks after the rest.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Protocol

import msgspec

from whence.core.effects import (
    CancelTimer,
    CloseLink,
    CountOn,
    Deliver,
    Deliveries,
    Discard,
    Effect,
    Effects,
    Expire,
    Missed,
    Reason,
    Send,
    SetTimer,
    Stop,
    Tell,
)
from whence.core.lives import BEGIN, WELCOME, News
from whence.core.message import Expired, Message, MessageId, NodeId, Packet
from whence.core.protocol import LEAVE
from whence.core.protocol import Protocol as Core
from whence.errors import MisuseError
from whence.session.links import Link
from whence.session.wire import HEADER, encode_packet
from whence.trace.rows import Rows
from whence.trace.schema import Kind, Recorder

NO_LIMIT = 1 << 62
_payload = itemgetter(2)  # of a message
_make = tuple.__new__  # of a named tuple: half the cost of its own constructor


class Timers(Protocol):
    """Where the timers of a core are set. When one expires, `Host.timer` follows."""

    def __contains__(self, key: str) -> bool:
        """Whether it is set."""

    def set(self, key: str, at_us: int) -> None:
        """Expire at `at_us`, not earlier, and not at the time of an earlier setting."""

    def cancel(self, key: str) -> None:
        """Do not expire."""


class HostOwner(Protocol):
    """The node, as its host sees it: what a core asks for that is not the host's to do."""

    def count_on(self, peer: NodeId, counts: bool) -> None:
        """The protocol goes on with `peer`, or without it."""

    def stopped(self, reason: Reason) -> None:
        """The core is out of the group."""

    def told(self, news: Missed | News) -> None:
        """What the application should know of what it misses, and of lives."""

    def close_link(self, peer: NodeId, why: str) -> None:
        """The core has forgotten its link to `peer`, or must: in the middle of a step."""


class Host:
    """One core with its queues. `now_us` is read where an input comes without its time."""

    def __init__(
        self,
        core: Core,
        links: Mapping[NodeId, Link],
        timers: Timers,
        owner: HostOwner,
        now_us: Callable[[], int],
        max_frame_bytes: int = NO_LIMIT,
    ) -> None:
        self.core = core
        # What the application has not yet taken: delivered (`Unread`, or a message that was put back), and
        # expired if it asks for outcomes.
        self.inbox: deque[Any] = deque()  # in a group that remembers gaps and news as well
        self.tells_outcomes = False
        self.unread_bytes = 0
        self.broadcasts = self.deliveries = 0
        self.discards: Counter[Reason] = Counter()
        self.expiries: Counter[Reason] = Counter()
        self.largest_frame_bytes = 1
        self.missed = 0  # messages that this node will not be given
        self.lives_begun = 0
        self.is_unsure = False  # whether this is a first life: its numbers are not known yet
        self._aside: dict[NodeId, list[Packet]] = {}  # what comes while that is so
        self._links_later: list[tuple[Kind, NodeId]] = []  # what became of links whose packets are aside
        self._timers_later: list[str] = []  # a core that may have to begin another life says nothing before
        # What nobody has heard of a node that may have had an earlier life; None where that is known.
        self.unheard: list[tuple[NodeId | None, bytes, int | None]] | None = [] if core.returns else None
        self.is_stopped = False  # the core is out of the group, and is given nothing more
        self._has_marks = core.returns
        self._links = links
        self._timers = timers
        self._owner = owner
        self._now_us = now_us
        self._max_frame_bytes = max_frame_bytes  # a longer one ends its link
        self.recorder: Recorder | None = None
        self._rows = Rows(core, None)
        self._told = 0  # expiries that were put into the inbox: they are not deliveries

    @property
    def held(self) -> int:
        """Messages accepted and neither delivered nor discarded."""
        return self.core.waiting

    @property
    def in_hand(self) -> int:
        """Messages that readers were given and are not done with; only a durable host counts them."""
        return 0

    def replace_core(self, core: Core) -> None:
        """Go on with another core: this node was out of the group, and comes back as another life."""
        self.core = core
        self.is_stopped = self.is_unsure = False
        self._aside.clear()
        self._links_later.clear()
        self._timers_later.clear()
        self.unheard = None
        self.record(self.recorder)
        if self._rows.any:
            self._rows.restarted(self._now_us())

    def tell(self, news: News) -> None:
        """Put news among the outcomes, if the application asks for them."""
        if self.tells_outcomes:
            self.inbox.append(news)
            self._told += 1

    def record(self, recorder: Recorder | None) -> None:
        """Write the trace from now on; before the first input."""
        self.recorder = recorder
        self._rows = Rows(self.core, recorder)

    def mark_later_life(self) -> None:
        """Mark in the trace that a node which is not in the group yet begins a later life."""
        if self._rows.any and not self.core.ready:
            self._rows.restarted(self._now_us())

    def mark_joined(self) -> None:
        """Mark in the trace from when on this node must deliver what is broadcast."""
        if self._rows.any:
            self._rows.gauge("joined", 1, self._now_us())

    # Inputs

    def broadcast(
        self, payload: bytes, lifetime_us: int | None = None, now_us: int | None = None
    ) -> tuple[MessageId, int]:
        """Broadcast; returns the message's id and the bytes queued for each peer."""
        core = self.core
        if now_us is None:
            now_us = self._now_us()
        if lifetime_us is None:
            effects = core.broadcast(payload, now_us)
        else:
            effects = core.broadcast_within(payload, lifetime_us, now_us)
        if self.unheard is not None:
            self.unheard.append((None, payload, lifetime_us))
        if self._rows.any:
            self._rows.broadcast(None, len(payload), now_us)
            self._rows.effects(effects, now_us)
        self.broadcasts += 1
        return _make(MessageId, (core.me, core.last)), self._carry_out(effects)

    def broadcast_many(self, payloads: list[bytes], now_us: int) -> list[MessageId | MisuseError]:
        """Broadcast one after the other; returns the id of each message, or why the core refuses it."""
        spoken = None
        if not self._rows.any and self.unheard is None and {*map(type, payloads)} == {bytes}:
            spoken = self.core.broadcast_many(payloads, now_us)
        if spoken is None:
            return [self._broadcast_or_not(payload, now_us) for payload in payloads]
        messages, to, packets = spoken
        self.inbox += messages
        self.unread_bytes += sum(map(len, payloads))
        self.deliveries += len(messages)
        self.broadcasts += len(messages)
        if to:
            self._send_many(to, packets)
        return [_make(MessageId, (origin, number)) for origin, number, _ in messages]

    def _broadcast_or_not(self, payload: bytes, now_us: int) -> MessageId | MisuseError:
        try:
            return self.broadcast(payload, None, now_us)[0]
        except MisuseError as error:
            return error

    def send(self, to: NodeId, payload: bytes, now_us: int | None = None) -> tuple[MessageId, int]:
        """Send to one node; returns the message's id and the bytes queued."""
        core = self.core
        if now_us is None:
            now_us = self._now_us()
        effects = core.send(to, payload, now_us)
        if self.unheard is not None:
            self.unheard.append((to, payload, None))
        if self._rows.any:
            self._rows.broadcast(to, len(payload), now_us)
            self._rows.effects(effects, now_us)
        self.broadcasts += 1
        return MessageId(core.me, core.last), self._carry_out(effects)

    def receive(self, peer: NodeId, packets: list[Packet], now_us: int | None = None) -> None:
        """Packets have arrived over the link from `peer`, in this order."""
        if self.is_stopped:
            return
        if self.is_unsure:
            packets = self._set_aside(peer, packets)
        if now_us is None:
            now_us = self._now_us()
        if self._rows.any:
            self._receive_recorded(peer, packets, now_us)
            return
        inbox = self.inbox
        before, unread_bytes = len(inbox) - self._told, self.unread_bytes
        discarded: list[Reason] = []
        for effect in self.core.receive_many(peer, packets, now_us):
            # Inline, because this may run once per delivery of the whole group.
            if type(effect) is Deliveries:
                inbox += effect[0]
                unread_bytes += sum(map(len, map(_payload, effect[0])))
            elif type(effect) is Deliver:
                message = effect[0]
                inbox.append(message)
                unread_bytes += len(message[2])
            elif type(effect) is Discard:  # where messages are relayed, most packets are copies
                discarded.append(effect[2])
            elif type(effect) is Send:
                self._send(effect)
            else:
                self._carry_out_rare(effect)
        self.unread_bytes = unread_bytes
        self.deliveries += len(inbox) - self._told - before
        self.discards.update(discarded)

    def _set_aside(self, peer: NodeId, packets: list[Packet]) -> list[Packet]:
        """Keep messages until this node knows which life it is: they may follow what an earlier one said.

        Returns what comes before them on the link: where its peer is.
        """
        first = 0
        if peer not in self._aside and not self.core.renews:  # such a core would answer
            marks = (at for at, packet in enumerate(packets) if not self.core.is_mark(packet))
            first = next(marks, len(packets))
        if first < len(packets):
            self._aside.setdefault(peer, []).extend(packets[first:])
        return packets[:first]

    def be_sure(self) -> None:
        """This node knows which life it is."""
        self.is_unsure = False
        aside, self._aside = self._aside, {}
        for peer, packets in aside.items():
            self.receive(peer, packets)
        later, self._links_later = self._links_later, []
        for kind, peer in later:
            (self.link_up if kind is Kind.LINK_UP else self.link_down)(peer)
        timers, self._timers_later = self._timers_later, []
        for key in timers:
            self.timer(key)

    def _is_later(self, kind: Kind, peer: NodeId) -> bool:
        """Whether a link's change must wait for its packets, which are set aside: a peer may have left."""
        if peer not in self._aside:
            return False
        self._links_later.append((kind, peer))
        return True

    def _receive_recorded(self, peer: NodeId, packets: list[Packet], now_us: int) -> None:
        core, rows = self.core, self._rows
        for packet in packets:
            effects = core.receive(peer, packet, now_us)
            rows.received(peer, rows.about(packet), now_us)
            rows.effects(effects, now_us)
            self._carry_out(effects)

    def link_up(self, peer: NodeId, now_us: int | None = None) -> None:
        """A reliable link to `peer` exists from now on."""
        if not self.is_stopped and not self._is_later(Kind.LINK_UP, peer):
            now_us = self._now_us() if now_us is None else now_us
            effects = self.core.link_up(peer, now_us)
            if self._rows.any:
                self._rows.link(Kind.LINK_UP, peer, now_us)
            self._follow(effects, now_us)

    def link_down(self, peer: NodeId, now_us: int | None = None) -> None:
        """The link to `peer` is gone permanently."""
        if not self.is_stopped and not self._is_later(Kind.LINK_DOWN, peer):
            now_us = self._now_us() if now_us is None else now_us
            effects = self.core.link_down(peer, now_us)
            if self._rows.any:
                self._rows.link(Kind.LINK_DOWN, peer, now_us)
            self._follow(effects, now_us)

    def restart_link(
        self, peer: NodeId, acknowledged: int, *, welcomes: bool, now_us: int | None = None
    ) -> None:
        """The numbering of a link begins anew: its peer, or this node, is another life than the other knew.

        What followed the first `acknowledged` packets is sent in the new numbering. With `welcomes` the peer
        is told first where this node is, and begins there.
        """
        link = self._links[peer]
        was_alive = link.alive
        packets = link.restart(acknowledged)
        if not was_alive:
            self.link_up(peer, now_us)
            packets += link.out.pending  # of a core that kept them meanwhile: they follow the cut, too
            link.out.drop_pending()
        if welcomes:
            queued = len(packets) - len(self._marks_among(packets))
            self.command(WELCOME, peer, str(queued), now_us=now_us)
        link.out.pending += packets
        self._find_marks(link)

    def _find_marks(self, link: Link) -> None:
        """Which packets of a queue that was not filled here, or anew, are no messages."""
        link.out.mark(self._marks_among(link.out.unacknowledged_packets()))

    def _marks_among(self, packets: list[bytes]) -> list[int]:
        decode = msgspec.msgpack.Decoder(self.core.packet_type).decode
        return [at for at, packet in enumerate(packets) if self.core.is_mark(decode(packet))]

    def begin_life(self, base: int, now_us: int | None = None) -> None:
        """The numbers of this node go on after `base`; what nobody has heard yet is sent under those."""
        unheard, self.unheard = self.unheard or [], None
        if unheard:  # only of a node without a store: what is in its queues is of no use under other numbers
            for link in self._links.values():
                link.out.drop_pending()
        self.command(BEGIN, str(base), now_us=now_us)
        self.lives_begun += 1
        for to, payload, lifetime_us in unheard:
            effects = (
                self.core.send(to, payload, self._time(now_us))
                if to is not None
                else self._effects_of(payload, lifetime_us, self._time(now_us))
            )
            self._follow([effect for effect in effects if type(effect) is not Deliver], self._time(now_us))
        self.be_sure()

    def _time(self, now_us: int | None) -> int:
        return self._now_us() if now_us is None else now_us

    def _effects_of(self, payload: bytes, lifetime_us: int | None, now_us: int) -> Effects:
        if lifetime_us is None:
            return self.core.broadcast(payload, now_us)
        return self.core.broadcast_within(payload, lifetime_us, now_us)

    def command(self, verb: str, *names: NodeId, now_us: int | None = None) -> None:
        """Tell the core what the overlay has decided, or what is known of lives."""
        if not self.is_stopped:
            now_us = self._time(now_us)
            effects = self.core.command(verb, names, now_us)
            if self._rows.any:
                self._rows.command(verb, names, now_us)
            self._follow(effects, now_us)

    def timer(self, key: str, now_us: int | None = None) -> None:
        """A timer of the core has expired."""
        if self.is_unsure and key != LEAVE:
            self._timers_later.append(key)
            return
        now_us = self._now_us() if now_us is None else now_us
        effects = self.core.timer(key, now_us)
        if self._rows.any:
            self._rows.timer(key, now_us)
        self._follow(effects, now_us)

    def leave(self) -> None:
        """Ask the core to leave; it stops when it is done."""
        self.timer(LEAVE)

    def sample(self) -> None:
        """Record how much the core holds, if there is a trace."""
        if self._rows.any:
            self._rows.sample(self._now_us())

    # The application

    def hand_out(self) -> Any:
        """The next of the inbox, for a reader."""
        outcome = self.inbox.popleft()
        if type(outcome) is tuple:
            outcome = Message(*outcome)
        if isinstance(outcome, Message):
            self.unread_bytes -= len(outcome[2])
        return outcome

    # Effects

    def _follow(self, effects: Effects, now_us: int) -> None:
        if self._rows.any:
            self._rows.effects(effects, now_us)
        self._carry_out(effects)

    def _carry_out(self, effects: Effects) -> int:
        """Carry out effects in order; returns the bytes queued for each receiver."""
        frame_bytes = 0
        for effect in effects:
            if type(effect) is Deliver:
                self.inbox.append(effect.message)
                self.unread_bytes += len(effect.message.payload)
                self.deliveries += 1
            elif type(effect) is Send:
                frame_bytes += self._send(effect)
            elif type(effect) is Discard:
                self.discards[effect.reason] += 1
            else:
                self._carry_out_rare(effect)
        return frame_bytes

    def _send(self, effect: Send) -> int:
        packet = encode_packet(effect.packet)
        frame_bytes = HEADER.size + len(packet)
        if frame_bytes > self.largest_frame_bytes:
            if frame_bytes > self._max_frame_bytes:
                self._close_links(effect.to, frame_bytes)
                return 0
            self.largest_frame_bytes = frame_bytes
        links = self._links
        if self._has_marks and self.core.is_mark(effect.packet):
            for peer in effect.to:
                links[peer].out.append_mark(packet)
            return 0
        for peer in effect.to:
            links[peer].out.pending.append(packet)
        return frame_bytes

    def _send_many(self, to: tuple[NodeId, ...], packets: list[Packet]) -> None:
        """As `_send` for each; all of them are messages."""
        encoded = list(map(encode_packet, packets))
        frame_bytes = HEADER.size + max(map(len, encoded))
        if frame_bytes > self._max_frame_bytes:
            for packet in packets:
                self._send(Send(to, packet))
            return
        self.largest_frame_bytes = max(self.largest_frame_bytes, frame_bytes)
        for peer in to:
            self._links[peer].out.pending += encoded

    def _close_links(self, peers: tuple[NodeId, ...], frame_bytes: int) -> None:
        """A packet that no peer would accept (too long a buffer) ends its link, which is always safe."""
        for peer in peers:
            self._owner.close_link(peer, f"a packet of {frame_bytes} bytes is too long for it")

    def _carry_out_rare(self, effect: Effect) -> None:
        """The effects that are rare enough for a call."""
        if isinstance(effect, SetTimer):
            self._set_timer(effect.key, effect.at_us)
        elif isinstance(effect, CancelTimer):
            self._cancel_timer(effect.key)
        elif isinstance(effect, Expire):
            self.expiries[effect.reason] += 1
            if self.tells_outcomes:
                self.inbox.append(Expired(*effect.id, b"", effect.reason.value))
                self._told += 1
        elif isinstance(effect, Missed):
            self.missed += effect.last - effect.first + 1
            if self.tells_outcomes:
                self.inbox.append(effect)
                self._told += 1
            self._owner.told(effect)
        elif isinstance(effect, Tell):
            self._owner.told(effect.news)
        elif isinstance(effect, CloseLink):
            self._owner.close_link(effect.peer, "the protocol gave its handshake up")
        elif isinstance(effect, CountOn):
            self._owner.count_on(effect.peer, effect.counts)
        elif isinstance(effect, Stop):
            self.is_stopped = True
            self._owner.stopped(effect.reason)

    def _set_timer(self, key: str, at_us: int) -> None:
        self._timers.set(key, at_us)

    def _cancel_timer(self, key: str) -> None:
        self._timers.cancel(key)
