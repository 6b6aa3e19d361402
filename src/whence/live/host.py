"""The live host of one core: gives it inputs, carries out its effects in order, writes the trace.

Everything here runs on the event loop's thread, and no effect calls back into the application, so
the core is never entered twice. Sockets are not known here: frames go to the links' queues, messages
to the inbox, and `wake` tells the node that there is something to write.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

from whence.core.effects import (
    CancelTimer,
    CountOn,
    Deliver,
    Discard,
    Effect,
    Effects,
    Expire,
    Reason,
    Send,
    SetTimer,
    Stop,
)
from whence.core.message import Expired, Message, MessageId, NodeId, Packet
from whence.core.protocol import LEAVE, Protocol
from whence.session.links import Link
from whence.session.wire import data_frame
from whence.trace.schema import Kind, Recorder

_READINGS = 10


def _reading(_: int) -> tuple[int, int]:
    """How long it took to read both clocks, and by how much they differ, in nanoseconds."""
    before_ns = time.monotonic_ns()
    wall_ns = time.time_ns()
    took_ns = time.monotonic_ns() - before_ns
    return took_ns, wall_ns - before_ns - took_ns // 2


class Clock:
    """Microseconds of wall-clock time, anchored once, so that they never go back."""

    def __init__(self) -> None:
        # Between two readings we may lose the processor, so the closest pair of several counts: the
        # processes of one machine must agree to a few microseconds, or deadlines would mean nothing.
        self._offset_ns = min(map(_reading, range(_READINGS)))[1]

    def now_us(self) -> int:
        """The time now."""
        return (time.monotonic_ns() + self._offset_ns) // 1000

    def loop_s(self, at_us: int, loop: asyncio.AbstractEventLoop) -> float:
        """The event loop's time at `at_us`."""
        return loop.time() + (at_us - self.now_us()) / 1e6


class Host:
    """One core with its queues."""

    def __init__(
        self,
        core: Protocol,
        links: Mapping[NodeId, Link],
        wake: Callable[[], None],
        fail: Callable[[Exception], None],
        count_on: Callable[[NodeId, bool], None] = lambda peer, counts: None,
        on_stop: Callable[[Reason], None] = lambda reason: None,
    ) -> None:
        self.core = core
        self.recorder: Recorder | None = None
        # What the application has not yet taken: delivered, and expired if it asks for outcomes.
        self.inbox: deque[Message | Expired] = deque()
        self.tells_outcomes = False
        self.unread_bytes = 0
        self.broadcasts = self.deliveries = 0
        self.held = 0  # messages accepted and neither delivered nor discarded
        self.discards: Counter[Reason] = Counter()
        self.expiries: Counter[Reason] = Counter()
        self.largest_frame_bytes = 1
        self._links = links
        self._wake = wake
        self._fail = fail
        self._count_on = count_on
        self._on_stop = on_stop
        self.stopped = False  # the core is out of the group, and is given nothing more
        self._clock = Clock()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._told = 0  # expiries that were put into the inbox: they are not deliveries
        self._sends_control = False  # this protocol has packets that carry no message
        # Asked once, because a call per packet would cost as much as half a delivery.
        self._packs = type(core).further_messages_of is not Protocol.further_messages_of
        self._core_counts = core.waiting is not None

    def start(self, recorder: Recorder | None) -> None:
        """Before the first input. Who is not in the group yet begins a later life of its node."""
        self.recorder = recorder
        if recorder is not None and not self.core.ready:
            recorder.event(self.core.me, self._clock.now_us(), Kind.RESTART)

    # Inputs

    def broadcast(
        self, payload: bytes, lifetime_us: int | None = None, now_us: int | None = None
    ) -> tuple[MessageId, int]:
        """Broadcast; answers the message's id and the bytes queued for each peer."""
        core = self.core
        if now_us is None:
            now_us = self._clock.now_us()
        if lifetime_us is None:
            effects = core.broadcast(payload, now_us)
        else:
            effects = core.broadcast_within(payload, lifetime_us, now_us)
        recorder = self.recorder
        if recorder is not None:
            lifetime = None if core.last_lifetime_us is None else str(core.last_lifetime_us)
            recorder.event(
                core.me, now_us, Kind.BROADCAST, core.me, core.last, None, len(payload), detail=lifetime
            )
            self._record(effects, now_us)
        self.broadcasts += 1
        self.held += 1
        return MessageId(core.me, core.last), self._carry_out(effects)

    def send(self, to: NodeId, payload: bytes, now_us: int | None = None) -> tuple[MessageId, int]:
        """Send to one node; answers the message's id and the bytes queued."""
        core = self.core
        if now_us is None:
            now_us = self._clock.now_us()
        effects = core.send(to, payload, now_us)
        recorder = self.recorder
        if recorder is not None:
            recorder.event(core.me, now_us, Kind.BROADCAST, core.me, core.last, to, len(payload))
            self._record(effects, now_us)
        self.broadcasts += 1
        frame_bytes = self._carry_out(effects)
        self._count_held()
        return MessageId(core.me, core.last), frame_bytes

    def receive(self, peer: NodeId, packets: list[Packet], now_us: int | None = None) -> None:
        """Packets have arrived over the link from `peer`, in this order."""
        if self.stopped:
            return
        if now_us is None:
            now_us = self._clock.now_us()
        self.held += len(packets)
        if self._packs:
            self.held += sum(len(self.core.further_messages_of(packet)) for packet in packets)
        if self.recorder is None:
            self._receive_fast(peer, packets, now_us)
        else:
            self._receive_recorded(peer, packets, now_us)
        self._count_held()

    def _count_held(self) -> None:
        """Where messages are forwarded, an arrival may end elsewhere: ask the core what is left here."""
        if self._core_counts:
            self.held = self.core.waiting or 0

    def _receive_fast(self, peer: NodeId, packets: list[Packet], now_us: int) -> None:
        receive, inbox = self.core.receive, self.inbox
        before, unread_bytes = len(inbox) - self._told, self.unread_bytes
        add, sends_control = inbox.append, self._sends_control
        discarded: list[Reason] = []
        for packet in packets:
            unsure = True
            for effect in receive(peer, packet, now_us):
                # Inline, because this line runs once per delivery of the whole group.
                if type(effect) is Deliver:
                    message = effect[0]
                    add(message)
                    unread_bytes += len(message[2])
                    unsure = sends_control
                elif type(effect) is Discard:  # where messages are relayed, most packets are copies
                    discarded.append(effect[2])
                    unsure = sends_control and effect[0] is not None
                elif type(effect) is Send:
                    self._send(effect)
                else:
                    self._carry_out_rare(effect)
            if unsure:
                self._discount(packet)
        delivered = len(inbox) - self._told - before
        self.unread_bytes = unread_bytes
        self.deliveries += delivered
        self.held -= delivered + len(discarded)
        self.discards.update(discarded)

    def _receive_recorded(self, peer: NodeId, packets: list[Packet], now_us: int) -> None:
        core, recorder = self.core, self.recorder
        assert recorder is not None
        for packet in packets:
            effects = core.receive(peer, packet, now_us)
            origin, number = core.message_of(packet) or (None, 0)
            total_bytes, control_bytes = core.sizes(packet)
            recorder.event(
                core.me, now_us, Kind.RECEIVE, origin, number, peer,
                total_bytes, control_bytes, core.detail_of(packet),
            )  # fmt: skip
            self._record(effects, now_us)
            self._carry_out(effects)
            # A packet without a message may be the end of others; its own end is a Discard without an id.
            refused = any(type(effect) is Discard and effect.id is None for effect in effects)
            if origin is None and not refused:
                self.held -= 1

    def link_up(self, peer: NodeId, now_us: int | None = None) -> None:
        """A reliable link to `peer` exists from now on."""
        if not self.stopped:
            now_us = self._clock.now_us() if now_us is None else now_us
            self._input(self.core.link_up(peer, now_us), now_us, Kind.LINK_UP, peer=peer)

    def link_down(self, peer: NodeId, now_us: int | None = None) -> None:
        """The link to `peer` is gone for good."""
        if not self.stopped:
            now_us = self._clock.now_us() if now_us is None else now_us
            self._input(self.core.link_down(peer, now_us), now_us, Kind.LINK_DOWN, peer=peer)

    def leave(self) -> None:
        """Ask the core to leave; it stops when it is done."""
        now_us = self._clock.now_us()
        self._input(self.core.timer(LEAVE, now_us), now_us, Kind.TIMER, detail=LEAVE)

    def _timer(self, key: str, at_us: int) -> None:
        now_us = self._clock.now_us()
        if now_us < at_us:  # the loop's clock is coarser than ours, and a core must not be called early
            self._set_timer(key, at_us)
            return
        self._timers.pop(key, None)
        try:
            self._input(self.core.timer(key, now_us), now_us, Kind.TIMER, detail=key)
        except Exception as error:  # noqa: BLE001 - nobody above us but the event loop, which would go on
            self._fail(error)
        self._wake()

    def _input(
        self, effects: Effects, now_us: int, kind: Kind, peer: NodeId | None = None, detail: str | None = None
    ) -> None:
        if self.recorder is not None:
            self.recorder.event(self.core.me, now_us, kind, peer=peer, detail=detail)
            self._record(effects, now_us)
        self._carry_out(effects)

    def sample(self) -> None:
        """Record how much the core holds, if there is a trace."""
        recorder, core = self.recorder, self.core
        if recorder is not None:
            now_us = self._clock.now_us()
            recorder.event(core.me, now_us, Kind.SAMPLE, None, core.entries(), detail="entries")
            recorder.event(core.me, now_us, Kind.SAMPLE, None, self.held, detail="held")

    def close(self) -> None:
        """No timer of the core comes due any more."""
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()

    # Effects

    def _carry_out(self, effects: Effects) -> int:
        """Carry out effects in order; answers the bytes queued for each receiver."""
        frame_bytes = 0
        for effect in effects:
            if type(effect) is Deliver:
                self.inbox.append(effect.message)
                self.unread_bytes += len(effect.message.payload)
                self.deliveries += 1
                self.held -= 1
            elif type(effect) is Send:
                frame_bytes += self._send(effect)
            elif type(effect) is Discard:
                self.discards[effect.reason] += 1
                self.held -= 1
            else:
                self._carry_out_rare(effect)
        return frame_bytes

    def _send(self, effect: Send) -> int:
        frame = data_frame(effect.packet)
        links = self._links
        for peer in effect.to:
            links[peer].out.pending.append(frame)
        frame_bytes = len(frame)
        if frame_bytes > self.largest_frame_bytes:  # noqa: PLR1730 - max() would double the cost of this line
            self.largest_frame_bytes = frame_bytes
        return frame_bytes

    def _carry_out_rare(self, effect: Effect) -> None:
        """The effects that are rare enough for a call."""
        if isinstance(effect, SetTimer):
            self._cancel(effect.key)
            self._set_timer(effect.key, effect.at_us)
        elif isinstance(effect, CancelTimer):
            self._cancel(effect.key)
        elif isinstance(effect, Expire):
            self.held -= 1
            self.expiries[effect.reason] += 1
            if self.tells_outcomes:
                self.inbox.append(Expired(*effect.id, b"", effect.reason.value))
                self._told += 1
        elif isinstance(effect, CountOn):
            self._count_on(effect.peer, effect.counts)
        elif isinstance(effect, Stop):
            self.stopped = True
            self._on_stop(effect.reason)

    def _set_timer(self, key: str, at_us: int) -> None:
        loop = asyncio.get_running_loop()
        self._timers[key] = loop.call_at(self._clock.loop_s(at_us, loop), self._timer, key, at_us)

    def _cancel(self, key: str) -> None:
        handle = self._timers.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _discount(self, packet: Packet) -> None:
        """A packet that carries no message was counted as held.

        `explain` would be exact, but costs as much as the core holds; to ask what every packet carries
        would cost a tenth of a delivery. So ask about those that delivered nothing, and about all once
        the protocol has shown that it sends such packets.
        """
        if self.core.message_of(packet) is None:
            self._sends_control = True
            self.held -= 1

    def _record(self, effects: Effects, now_us: int) -> None:
        """The rows of an input's effects, in order (the input's own row is written already)."""
        core, recorder = self.core, self.recorder
        assert recorder is not None
        event, me = recorder.event, core.me
        for effect in effects:
            if isinstance(effect, Deliver):
                origin, number, payload = effect.message
                event(me, now_us, Kind.DELIVER, origin, number, None, len(payload))
            elif isinstance(effect, Send):
                id_ = core.message_of(effect.packet)
                total_bytes, control_bytes = core.sizes(effect.packet)
                detail = core.detail_of(effect.packet)
                for peer in effect.to:
                    event(
                        me, now_us, Kind.SEND, id_ and id_.origin, id_.number if id_ else 0, peer,
                        total_bytes, control_bytes, detail,
                    )  # fmt: skip
            elif isinstance(effect, Expire):
                event(me, now_us, Kind.EXPIRE, *effect.id, detail=effect.reason.value)
            elif isinstance(effect, Discard):
                id_ = effect.id
                event(
                    me, now_us, Kind.DISCARD, id_ and id_.origin, id_.number if id_ else 0, effect.peer,
                    detail=effect.reason.value,
                )  # fmt: skip
