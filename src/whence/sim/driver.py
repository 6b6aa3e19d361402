"""The driver: gives inputs to one core, writes the trace rows, hands the effects to a host.

The simulator's engine and the replay of a recorded trace use the same driver, so that what is
recorded and what is compared is made by the same lines. For each input it writes first the input's
own row, then one row per effect, in order (docs/trace-format.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from whence.core.effects import (
    CancelTimer,
    CloseLink,
    Deliver,
    Discard,
    Effects,
    Expire,
    Send,
    SetTimer,
    Stop,
)
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import Protocol as Core
from whence.sim.faults import Clock
from whence.trace.schema import Kind, Level, Recorder, command_text

# Members of an enumeration are looked up through a descriptor: too slow for the innermost loop.
_BROADCAST, _SEND, _RECEIVE, _DELIVER = Kind.BROADCAST, Kind.SEND, Kind.RECEIVE, Kind.DELIVER
_DISCARD = Kind.DISCARD


class About(NamedTuple):
    """What the trace says about a packet: the message that it carries and what it costs."""

    origin: NodeId | None
    number: int
    total_bytes: int
    control_bytes: int
    detail: str | None  # the ids of further messages in the packet, or what it asks for


class Host(Protocol):
    """Who carries out what a core asks for. `node` is the driver's index."""

    def send(
        self, node: int, to: tuple[NodeId, ...], packet: Packet, time_us: int, about: About | None
    ) -> None:
        """Give the packet to the links; `about` is None where neither trace nor host needs it."""

    def delivered(self, node: int, message: Message, time_us: int) -> None:
        """The application of the node has been given a message."""

    def set_timer(self, node: int, key: str, at_us: int) -> None:
        """Fire the timer at that true time; replace the one of the same key."""

    def cancel_timer(self, node: int, key: str) -> None:
        """Forget the timer, if there is one."""

    def stop(self, node: int, time_us: int) -> None:
        """The node takes no part any more."""

    def close_link(self, node: int, peer: NodeId, time_us: int) -> None:
        """The node has closed its link to `peer`."""


class Driver:
    """One node: its core, its clock, its share of the trace."""

    __slots__ = (
        "_all", "_any", "_clock", "_deliveries", "_event", "_host", "_saved", "_sized", "check", "core",
        "delivered", "discarded", "expired", "index", "name",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        core: Core,
        host: Host,
        *,
        recorder: Recorder | None = None,
        level: Level = Level.ALL,
        clock: Clock | None = None,
        check: bool = False,
        sized: bool = False,
    ) -> None:
        self.index = index
        self.core = core
        self.name = core.me
        self.check = check  # the core's invariants, after every step
        self.delivered = 0
        self.discarded: dict[str, int] = {}
        self.expired: dict[str, int] = {}
        self._host = host
        self._clock = clock
        self._sized = sized  # the host needs to know packets' sizes even where no row does
        self._saved: bytes | None = None
        self._event: Callable[..., None] = _no_event if recorder is None else recorder.event
        self._any = recorder is not None
        self._deliveries = self._any and level >= Level.DELIVERIES
        self._all = self._any and level >= Level.ALL

    # Inputs

    def broadcast(self, payload: bytes, time_us: int, lifetime_us: int | None = None) -> None:
        """The application broadcasts `payload`, which may have a lifetime."""
        core, now_us = self.core, self._now(time_us)
        if lifetime_us is None:
            effects = core.broadcast(payload, now_us)
        else:
            effects = core.broadcast_within(payload, lifetime_us, now_us)
        if self._any:
            self._event(
                self.name, time_us, _BROADCAST, self.name, core.last, None, len(payload), 0,
                None if core.last_lifetime_us is None else str(core.last_lifetime_us),
            )  # fmt: skip
        self._carry_out(effects, time_us)

    def send(self, to: NodeId, payload: bytes, time_us: int) -> None:
        """The application sends `payload` to one node."""
        core = self.core
        effects = core.send(to, payload, self._now(time_us))
        if self._any:
            self._event(self.name, time_us, _BROADCAST, self.name, core.last, to, len(payload))
        self._carry_out(effects, time_us)

    def receive(self, peer: NodeId, packet: Packet, time_us: int, about: About | None = None) -> None:
        """A packet arrives over the link from `peer`; `about` is what its sender's driver said of it."""
        core = self.core
        if self._all:
            # A flooded packet arrives many times, and its sizes are the costliest part of a recorded step.
            origin, number, total_bytes, control_bytes, detail = about or self._about(packet)
            self._event(
                self.name, time_us, _RECEIVE, origin, number, peer, total_bytes, control_bytes, detail
            )
        clock = self._clock
        self._carry_out(
            core.receive(peer, packet, time_us if clock is None else clock.local(time_us)), time_us
        )

    def link_up(self, peer: NodeId, time_us: int) -> None:
        """A link to `peer` exists from now on."""
        if self._all:
            self._event(self.name, time_us, Kind.LINK_UP, None, 0, peer)
        self._carry_out(self.core.link_up(peer, self._now(time_us)), time_us)

    def link_down(self, peer: NodeId, time_us: int) -> None:
        """The link to `peer` is gone."""
        if self._all:
            self._event(self.name, time_us, Kind.LINK_DOWN, None, 0, peer)
        self._carry_out(self.core.link_down(peer, self._now(time_us)), time_us)

    def timer(self, key: str, time_us: int) -> None:
        """A timer has come due."""
        if self._all:
            self._event(self.name, time_us, Kind.TIMER, None, 0, None, 0, 0, key)
        self._carry_out(self.core.timer(key, self._now(time_us)), time_us)

    def command(self, verb: str, names: tuple[NodeId, ...], time_us: int) -> None:
        """The overlay has decided something."""
        if self._all:
            self._event(self.name, time_us, Kind.COMMAND, None, 0, None, 0, 0, command_text(verb, names))
        self._carry_out(self.core.command(verb, names, self._now(time_us)), time_us)

    def crash(self, time_us: int) -> None:
        """The node stops; what its core had is on its disk, as any codec can carry it."""
        self._saved = msgspec.msgpack.encode(self.core.save())
        if self._any:
            self._event(self.name, time_us, Kind.CRASH)

    def restart(self, fresh: Core, time_us: int) -> None:
        """The node comes back as `fresh`, restored from its disk."""
        if self._saved is None:  # a recorded restart without a crash: nothing was lost in between
            self._saved = msgspec.msgpack.encode(self.core.save())
        fresh.restore(msgspec.msgpack.decode(self._saved))
        self._saved = None
        self.core = fresh
        if self._any:
            self._event(self.name, time_us, Kind.RESTART)
        if self.check:
            fresh.check()

    def sample(self, time_us: int) -> None:
        """Write down the gauges."""
        if self._any:
            self._gauge(time_us, "entries", self.core.entries())
            self._gauge(time_us, "held", len(self.core.explain()))

    def _gauge(self, time_us: int, name: str, value: int) -> None:
        self._event(self.name, time_us, Kind.SAMPLE, None, value, None, 0, 0, name)

    def _now(self, time_us: int) -> int:
        """What the node's clock shows."""
        return time_us if self._clock is None else self._clock.local(time_us)

    # Effects

    def _carry_out(self, effects: Effects, time_us: int) -> None:
        for effect in effects:
            if isinstance(effect, Discard):
                reason: str = effect.reason
                self.discarded[reason] = self.discarded.get(reason, 0) + 1
                if self._all:
                    origin, number = effect.id or (None, 0)
                    self._event(self.name, time_us, _DISCARD, origin, number, effect.peer, 0, 0, str(reason))
            elif isinstance(effect, Deliver):
                message = effect.message
                self.delivered += 1
                if self._deliveries:
                    origin, number, payload = message
                    self._event(self.name, time_us, _DELIVER, origin, number, None, len(payload))
                self._host.delivered(self.index, message, time_us)
            elif isinstance(effect, Send):
                self._send(effect, time_us)
            elif isinstance(effect, SetTimer):
                clock = self._clock
                due_us = effect.at_us if clock is None else clock.true(effect.at_us)
                self._host.set_timer(self.index, effect.key, max(due_us, time_us))
            elif isinstance(effect, CloseLink):
                self._host.close_link(self.index, effect.peer, time_us)
            elif isinstance(effect, CancelTimer):
                self._host.cancel_timer(self.index, effect.key)
            elif isinstance(effect, Stop):
                self._host.stop(self.index, time_us)
            elif isinstance(effect, Expire):
                self._expire(effect, time_us)
            # CountOn: nothing waits for a simulated link.
        if self.check:
            self.core.check()

    def _expire(self, effect: Expire, time_us: int) -> None:
        reason: str = effect.reason
        self.expired[reason] = self.expired.get(reason, 0) + 1
        if self._deliveries:
            origin, number = effect.id
            self._event(self.name, time_us, Kind.EXPIRE, origin, number, None, 0, 0, str(reason))

    def _send(self, effect: Send, time_us: int) -> None:
        to, packet = effect
        about = self._about(packet) if self._all or self._sized else None
        if self._all and about is not None:
            event, name = self._event, self.name
            origin, number, total_bytes, control_bytes, detail = about
            for peer in to:
                event(name, time_us, _SEND, origin, number, peer, total_bytes, control_bytes, detail)
        self._host.send(self.index, to, packet, time_us, about)

    def _about(self, packet: Packet) -> About:
        origin, number = self.core.message_of(packet) or (None, 0)
        return About(origin, number, *self.core.sizes(packet), self.core.detail_of(packet))


def _no_event(*_values: object) -> None:
    """Stands where nothing is recorded; never called, because `_any` is asked first."""
