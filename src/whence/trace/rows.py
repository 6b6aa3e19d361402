"""From inputs and effects to rows of the trace: the one place that makes them, for every host.

For each input a host writes first the input's own row, then one row per effect, in order
(docs/trace-format.md). A broadcast's row is written when the core has numbered the message, and so
after the call; all others need nothing that the call changes. A link that the core closes itself
(effect `CloseLink`) is a step of its own: its LINK_DOWN row comes after all rows of the step that
closed it. A core that a replay tells of it ignores that.

`any`, `deliveries` and `all` say which rows are wanted: ask before you call, because the innermost loops of
the hosts must not pay for rows that no one wants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from whence.core.effects import (
    CloseLink,
    Deliver,
    Discard,
    Effects,
    Expire,
    Internal,
    Missed,
    Send,
    Stable,
)
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import Protocol as Core
from whence.trace.schema import Kind, Level, Recorder, command_text

# Members of an enumeration are looked up through a descriptor: too slow for the innermost loop.
_SEND, _RECEIVE, _DELIVER, _DISCARD = Kind.SEND, Kind.RECEIVE, Kind.DELIVER, Kind.DISCARD
LATE = "late"  # of a delivery that is concurrent with what is stable


class About(NamedTuple):
    """What the trace says about a packet: the message that it carries and what it costs."""

    origin: NodeId | None
    number: int
    total_bytes: int
    control_bytes: int
    detail: str | None  # the ids of further messages in the packet, or what it asks for


def held(core: Core) -> int:
    """Return how many messages wait at a core: the gauge `held`."""
    return len(core.explain()) if core.waiting is None else core.waiting


class Rows:
    """The rows of one node in one life. `any` (level `measures`) has broadcasts, crashes and samples."""

    __slots__ = ("_core", "_event", "_me", "all", "any", "deliveries")

    def __init__(self, core: Core, recorder: Recorder | None, level: Level = Level.ALL) -> None:
        self._core = core
        self._me = core.me
        self.any = recorder is not None
        self.deliveries = self.any and level >= Level.DELIVERIES
        self.all = self.any and level >= Level.ALL
        self._event: Callable[..., None] = _no_event if recorder is None else recorder.event

    def about(self, packet: Packet) -> About:
        """Return what the trace says about a packet that this core sends or receives."""
        core = self._core
        origin, number = core.message_of(packet) or (None, 0)
        return About(origin, number, *core.sizes(packet), core.detail_of(packet))

    # Inputs. Level `measures` and above

    def broadcast(self, to: NodeId | None, payload_bytes: int, time_us: int) -> None:
        """The core has numbered a message, to all nodes or `to` one."""
        core = self._core
        lifetime = None if core.last_lifetime_us is None else str(core.last_lifetime_us)
        self._event(
            self._me, time_us, Kind.BROADCAST, core.origin, core.last, to, payload_bytes, 0, lifetime
        )  # fmt: skip

    def crashed(self, time_us: int) -> None:
        """The node is down from now on."""
        self._event(self._me, time_us, Kind.CRASH)

    def restarted(self, time_us: int, opening: str | None = None) -> None:
        """The node is back, or begins a later life: `opening` says which, where a host has drawn it."""
        self._event(self._me, time_us, Kind.RESTART, None, 0, None, 0, 0, opening)

    def sample(self, time_us: int) -> None:
        """Write the gauges of the core: the entries in memory and the messages that wait."""
        core = self._core
        self.gauge("entries", core.entries(), time_us)
        self.gauge("held", held(core), time_us)

    def gauge(self, name: str, value: int, time_us: int) -> None:
        """Write one gauge; a name that is not in `sample` is the host's own and not replayed."""
        self._event(self._me, time_us, Kind.SAMPLE, None, value, None, 0, 0, name)

    # Inputs. Level `all`

    def received(self, peer: NodeId, what: About, time_us: int) -> None:
        """A packet has arrived over the link from `peer`."""
        origin, number, total_bytes, control_bytes, detail = what
        self._event(
            self._me, time_us, _RECEIVE, origin, number, peer, total_bytes, control_bytes, detail
        )  # fmt: skip

    def link(self, kind: Kind, peer: NodeId, time_us: int) -> None:
        """LINK_UP or LINK_DOWN."""
        self._event(self._me, time_us, kind, None, 0, peer)

    def timer(self, key: str, time_us: int) -> None:
        """A timer of the core has expired."""
        self._event(self._me, time_us, Kind.TIMER, None, 0, None, 0, 0, key)

    def command(self, verb: str, names: tuple[NodeId, ...], time_us: int) -> None:
        """The overlay has decided something."""
        self._event(self._me, time_us, Kind.COMMAND, None, 0, None, 0, 0, command_text(verb, names))

    # Effects

    def sent(self, to: tuple[NodeId, ...], what: About, time_us: int) -> None:
        """One row for each receiver (level `all`)."""
        event, me = self._event, self._me
        origin, number, total_bytes, control_bytes, detail = what
        for peer in to:
            event(me, time_us, _SEND, origin, number, peer, total_bytes, control_bytes, detail)

    def delivered(self, message: Message, time_us: int, late: bool = False) -> None:
        """The application has a message (level `deliveries`)."""
        origin, number, payload = message
        detail = LATE if late else None
        self._event(self._me, time_us, _DELIVER, origin, number, None, len(payload), 0, detail)

    def missed(self, effect: Missed, time_us: int) -> None:
        """Messages that the application will not be given (level `deliveries`)."""
        origin, first, last, reason, _ = effect
        self._event(self._me, time_us, Kind.MISSED, origin, last, None, 0, 0, f"{first} {reason}")

    def internal(self, effect: Internal, time_us: int) -> None:
        """A message of the protocol's own (level `deliveries`)."""
        message = effect.message
        if effect.speaks:
            self._event(
                self._me, time_us, Kind.SPEAK, message.origin, message.number, None, len(message.payload)
            )
        self.delivered(message, time_us)

    def stable(self, effect: Stable, time_us: int) -> None:
        """What has become stable, one row for each stream (level `deliveries`)."""
        for origin, number in effect.cut:
            self._event(self._me, time_us, Kind.STABLE, origin, number)

    def remembered(self, effect: Missed | Internal | Stable, time_us: int) -> None:
        """What only protocols that remember say (level `deliveries`)."""
        if isinstance(effect, Missed):
            self.missed(effect, time_us)
        elif isinstance(effect, Internal):
            self.internal(effect, time_us)
        else:
            self.stable(effect, time_us)

    def expired(self, effect: Expire, time_us: int) -> None:
        """A message ends undelivered (level `deliveries`)."""
        origin, number = effect.id
        self._event(self._me, time_us, Kind.EXPIRE, origin, number, None, 0, 0, str(effect.reason))

    def discarded(self, effect: Discard, time_us: int) -> None:
        """A packet ends here (level `all`)."""
        origin, number = effect.id or (None, 0)
        self._event(
            self._me, time_us, _DISCARD, origin, number, effect.peer, 0, 0, str(effect.reason)
        )  # fmt: skip

    def closed(self, effects: Effects, time_us: int) -> None:
        """The links that a step has closed, when all its other rows are written (level `all`)."""
        for effect in effects:
            if isinstance(effect, CloseLink):
                self.link(Kind.LINK_DOWN, effect.peer, time_us)

    def effects(self, effects: Effects, time_us: int) -> None:
        """All rows of a step's effects, for a host that writes them before it carries them out."""
        for effect in effects:
            if isinstance(effect, Deliver):
                if self.deliveries:
                    self.delivered(effect.message, time_us, effect.late)
            elif isinstance(effect, Send):
                if self.all:
                    self.sent(effect.to, self.about(effect.packet), time_us)
            elif isinstance(effect, Expire):
                if self.deliveries:
                    self.expired(effect, time_us)
            elif isinstance(effect, Discard):
                if self.all:
                    self.discarded(effect, time_us)
            elif self.deliveries and isinstance(effect, Missed | Internal | Stable):
                self.remembered(effect, time_us)
        if self.all:
            self.closed(effects, time_us)


def _no_event(*_values: object) -> None:
    """Stands where nothing is recorded; never called, because `any` is asked first."""
