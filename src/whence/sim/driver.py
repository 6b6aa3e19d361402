"""The driver: gives inputs to one core, has the trace rows written, hands the effects to a host.

The simulator's engine and the replay of a recorded trace use the same driver, so that what is
recorded and what is compared is made by the same lines (trace/rows.py makes the rows).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from whence.core.effects import (
    CancelTimer,
    CloseLink,
    Deliver,
    Discard,
    Effects,
    Expire,
    Internal,
    Missed,
    Send,
    SetTimer,
    Stable,
    Stop,
)
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import Protocol as Core
from whence.sim.faults import FaultyClock
from whence.trace.rows import About, Rows
from whence.trace.schema import Kind, Level, Recorder

# Is told what a core sends: (sender, to, packet, time_us).
Sent: TypeAlias = Callable[[Core, tuple[NodeId, ...], Packet, int], None]


class DriverHost(Protocol):
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
        "_all", "_any", "_clock", "_deliveries", "_host", "_level", "_recorder", "_rows", "_saved", "_sized",
        "check", "core", "delivered", "discarded", "expired", "index", "name", "openings",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        core: Core,
        host: DriverHost,
        *,
        recorder: Recorder | None = None,
        level: Level = Level.ALL,
        clock: FaultyClock | None = None,
        check: bool = False,
        sized: bool = False,
    ) -> None:
        self.index = index
        self.core = core
        self.name = core.me
        self.check = check  # the core's invariants, after every step
        self.openings = 0  # restarts
        self.delivered = 0
        self.discarded: dict[str, int] = {}
        self.expired: dict[str, int] = {}
        self._host = host
        self._clock = clock
        self._sized = sized  # the host needs to know packets' sizes even where no row does
        self._saved: bytes | None = None
        self._recorder, self._level = recorder, level
        self._rows = rows = Rows(core, recorder, level)
        self._any, self._deliveries, self._all = rows.any, rows.deliveries, rows.all

    # Inputs

    def broadcast(self, payload: bytes, time_us: int, lifetime_us: int | None = None) -> None:
        """The application broadcasts `payload`, which may have a lifetime."""
        core, now_us = self.core, self._now(time_us)
        if lifetime_us is None:
            effects = core.broadcast(payload, now_us)
        else:
            effects = core.broadcast_within(payload, lifetime_us, now_us)
        if self._any:
            self._rows.broadcast(None, len(payload), time_us)
        self._carry_out(effects, time_us)

    def send(self, to: NodeId, payload: bytes, time_us: int) -> None:
        """The application sends `payload` to one node."""
        core = self.core
        effects = core.send(to, payload, self._now(time_us))
        if self._any:
            self._rows.broadcast(to, len(payload), time_us)
        self._carry_out(effects, time_us)

    def receive(self, peer: NodeId, packet: Packet, time_us: int, about: About | None = None) -> None:
        """A packet arrives over the link from `peer`; `about` is what its sender's driver said of it."""
        core = self.core
        if self._all:
            # A flooded packet arrives many times, and its sizes are the costliest part of a recorded step.
            self._rows.received(peer, about or self._rows.about(packet), time_us)
        clock = self._clock
        self._carry_out(
            core.receive(peer, packet, time_us if clock is None else clock.local(time_us)), time_us
        )

    def link_up(self, peer: NodeId, time_us: int) -> None:
        """A link to `peer` exists from now on."""
        if self._all:
            self._rows.link(Kind.LINK_UP, peer, time_us)
        self._carry_out(self.core.link_up(peer, self._now(time_us)), time_us)

    def link_down(self, peer: NodeId, time_us: int) -> None:
        """The link to `peer` is gone."""
        if self._all:
            self._rows.link(Kind.LINK_DOWN, peer, time_us)
        self._carry_out(self.core.link_down(peer, self._now(time_us)), time_us)

    def timer(self, key: str, time_us: int) -> None:
        """A timer has come due."""
        if self._all:
            self._rows.timer(key, time_us)
        self._carry_out(self.core.timer(key, self._now(time_us)), time_us)

    def command(self, verb: str, names: tuple[NodeId, ...], time_us: int) -> None:
        """The overlay has decided something."""
        if self._all:
            self._rows.command(verb, names, time_us)
        self._carry_out(self.core.command(verb, names, self._now(time_us)), time_us)

    def crash(self, time_us: int) -> None:
        """The node stops; what its core had is on its disk, as any codec can carry it."""
        self._saved = msgspec.msgpack.encode(self.core.save())
        if self._any:
            self._rows.crashed(time_us)

    def restart(self, fresh: Core, time_us: int, opening: str | None = None) -> None:
        """The node comes back as `fresh`, restored from its disk; `opening` is the life of a live node."""
        if self._saved is None:  # a recorded restart without a crash: nothing was lost in between
            self._saved = msgspec.msgpack.encode(self.core.save())
        self.openings += 1
        fresh.reopen(msgspec.msgpack.decode(self._saved), self.openings, opening)
        self._saved = None
        self.core = fresh
        self._rows = Rows(fresh, self._recorder, self._level)
        if self._any:
            self._rows.restarted(time_us, opening)
        if self.check:
            fresh.check()

    def sample(self, time_us: int) -> None:
        """Write down the gauges."""
        if self._any:
            self._rows.sample(time_us)

    def _now(self, time_us: int) -> int:
        """What the node's clock shows."""
        return time_us if self._clock is None else self._clock.local(time_us)

    # Effects

    def _carry_out(self, effects: Effects, time_us: int) -> None:  # noqa: PLR0912 - one branch per effect
        closes = False
        for effect in effects:
            if isinstance(effect, Discard):
                reason: str = effect.reason
                self.discarded[reason] = self.discarded.get(reason, 0) + 1
                if self._all:
                    self._rows.discarded(effect, time_us)
            elif isinstance(effect, Deliver):
                message = effect.message
                self.delivered += 1
                if self._deliveries:
                    self._rows.delivered(message, time_us, effect.late)
                self._host.delivered(self.index, message, time_us)
            elif isinstance(effect, Send):
                self._send(effect, time_us)
            elif isinstance(effect, SetTimer):
                clock = self._clock
                due_us = effect.at_us if clock is None else clock.true(effect.at_us)
                self._host.set_timer(self.index, effect.key, max(due_us, time_us))
            elif isinstance(effect, CloseLink):
                closes = True
                self._host.close_link(self.index, effect.peer, time_us)
            elif isinstance(effect, CancelTimer):
                self._host.cancel_timer(self.index, effect.key)
            elif isinstance(effect, Stop):
                self._host.stop(self.index, time_us)
            elif isinstance(effect, Expire):
                self._expire(effect, time_us)
            elif self._deliveries and isinstance(effect, Missed | Internal | Stable):
                self._rows.remembered(effect, time_us)
            # CountOn: nothing waits for a simulated link. Tell: there is no application that asks.
        if closes and self._all:
            self._rows.closed(effects, time_us)
        if self.check:
            self.core.check()

    def _expire(self, effect: Expire, time_us: int) -> None:
        reason: str = effect.reason
        self.expired[reason] = self.expired.get(reason, 0) + 1
        if self._deliveries:
            self._rows.expired(effect, time_us)

    def _send(self, effect: Send, time_us: int) -> None:
        to, packet = effect
        about = None
        if self._all or self._sized:
            about = self._rows.about(packet)
            if self._all:
                self._rows.sent(to, about, time_us)
        self._host.send(self.index, to, packet, time_us, about)
