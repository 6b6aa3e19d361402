"""What one node does with one input, worked out once: cores are deterministic, so a step is a table entry.

A node's local state is what its core saves, its timers and whether it is up. Local states and packets are
known by a 64-bit digest of their canonical form (dictionaries sorted), the same in every process, so that
a global state is a small tuple of numbers, and most steps of an exploration are look-ups. With 10^6
local states the chance that two share a digest is below 10^-7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import msgspec

from whence.core.effects import (
    CancelTimer,
    CloseLink,
    Deliver,
    Effects,
    Expire,
    Missed,
    Send,
    SetTimer,
    Stable,
    Stop,
    Tell,
)
from whence.core.lives import Forked, life_of, split_stream
from whence.core.message import Message, MessageId, NodeId, Packet
from whence.core.protocol import LEAVE
from whence.core.protocol import Protocol as Core
from whence.errors import InvariantError, MisuseError
from whence.explore.world import World
from whence.protocols.registry import lookup
from whence.protocols.registry import make as make_core

# Gives a fresh core, from its name and the members'; with `joins=True` or `life=...` if its kind has these.
Make: TypeAlias = Callable[..., Core]
Input: TypeAlias = tuple[Any, ...]  # (verb, its arguments ..., now_us)

UP, DOWN, STOPPED = 0, 1, 2
_REFUSABLE = ("say", "command", "up")  # what a host may ask for and a core refuse (`allows`)
NUMBER_BITS = 32  # of a number in a stream; above it the life
_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder().decode


def _saved(core: Core) -> bytes:
    """What a core saves, in its canonical form."""
    try:
        return _encode(core.save())
    except TypeError as error:
        raise MisuseError(f"save() of protocol {core.name!r}", str(error), "Save plain data only") from error


class SameDigest(Exception):
    """Two contents have one digest: to be tried again with another `salt`."""


class Local(NamedTuple):
    """The local state of a node."""

    saved: bytes
    timers: tuple[tuple[str, int], ...]  # (key, when), sorted
    status: int


class Remarks(NamedTuple):
    """What a core says of its streams, where every life of a node is one."""

    ids: tuple[tuple[int, int], ...]  # (message that is delivered, its life and number as one number)
    late: int  # of these: those that are flagged as late, a mask
    missed: tuple[tuple[int, int, int], ...]  # (node, first, last): what will not be delivered
    stable: tuple[tuple[int, int], ...]  # (node, last): what is called stable


class Step(NamedTuple):
    """What an input does."""

    after: int  # the local state
    sends: tuple[tuple[int, int], ...]  # (to whom, packet)
    ends: tuple[tuple[int, bool], ...]  # (message, True: delivered, False: expired), in order
    closes: tuple[int, ...]  # links
    problem: str | None  # what the core did that no core may do
    remarks: Remarks | None = None


class Machine:
    """The local steps of a world's nodes. `make` gives fresh cores; the registry's by default."""

    def __init__(self, world: World, make: Make | None = None, salt: int = 0) -> None:
        self.world = world
        self.salt = salt.to_bytes(8, "big")
        self.names = world.names
        self.index = {name: at for at, name in enumerate(self.names)}
        self.locals: dict[int, Local] = {}
        self.packets: dict[int, Packet] = {}
        self.payloads = tuple(f"message {at}".encode() for at in range(len(world.say)))
        self.steps: dict[tuple[int, Input], Step] = {}  # a local state is of one node
        self._message = {payload: at for at, payload in enumerate(self.payloads)}
        self._make = make or self._registered
        self._keys: dict[bytes, int] = {}
        self._allowed: dict[tuple[int, Input], bool] = {}
        self._ready: dict[int, bool] = {}
        # Overlays begin alone: such a core is not told who else there is.
        self.is_overlay = world.params.get("links") == "dynamic"
        self._late = {self.index[name] for name in world.late}
        self.lives = lookup(world.protocol).lives
        first = self._make(self.names[0], self._members(0))
        self.renews = "joins" in first.parameters.defaults
        self.sessions = first.sessions  # its links are connections: they end with its process
        restarts = sum(each.restart is not None for each in world.change)
        lives = 1 + world.budget.crashes + world.budget.amnesias + restarts
        self._life = {life_of(name, at): at for name in self.names for at in range(lives)}

    def _registered(self, me: NodeId, members: Sequence[NodeId], **more: Any) -> Core:
        return make_core(self.world.protocol, me, members, {**self.world.params, **more})

    def _members(self, node: int) -> tuple[NodeId, ...]:
        return (self.names[node],) if self.is_overlay else self.names

    def core(self, node: int, life: int = 0) -> Core:
        """A fresh core of a node. `life`: the how-manieth time it comes back without its state."""
        more: dict[str, Any] = {}
        if self.renews and (life or node in self._late):
            more["joins"] = True  # as one that was not there from the start
        if life and self.lives:
            more["life"] = life_of(self.names[node], life)
        return self._make(self.names[node], self._members(node), **more)

    def restored(self, node: int, local: int) -> Core:
        """The core of a node in a local state."""
        core = self.core(node)
        core.restore(_decode(self.locals[local].saved))
        return core

    def fresh(self, node: int) -> int:
        """The local state of a node that has seen nothing."""
        return self._known(node, Local(_saved(self.core(node)), (), UP))

    def allows(self, node: int, local: int, what: Input) -> bool:
        """Whether the host may do that now: a core that has not joined, say, refuses to broadcast."""
        known = self._allowed.get((local, what))
        if known is None:
            known = self.locals[local].status == UP
            if known and what[0] == "say":
                known = self.is_ready(node, local)
            if known:
                try:
                    self.step(node, local, what)
                except MisuseError:
                    known = False
            self._allowed[local, what] = known
        return known

    def status(self, local: int) -> int:
        """Whether the node is up, down, or out of the group."""
        return self.locals[local].status

    def is_ready(self, node: int, local: int) -> bool:
        """Whether the node may broadcast: where a group admits its members, whether it is one."""
        if local not in self._ready:
            self._ready[local] = self.restored(node, local).ready
        return self._ready[local]

    def due(self, local: int, now_us: int) -> tuple[str, ...]:
        """The timers that may fire now."""
        return tuple(key for key, at_us in self.locals[local].timers if at_us <= now_us)

    def next_timer_us(self, local: int, now_us: int) -> int | None:
        """When the next timer that is not due yet expires."""
        state = self.locals[local]
        later = [at_us for _, at_us in state.timers if at_us > now_us] if state.status == UP else []
        return min(later, default=None)

    def step(self, node: int, local: int, what: Input) -> Step:
        """What `what` does to a node in a local state."""
        key = (local, what)
        found = self.steps.get(key)
        if found is None:
            found = self.steps[key] = self._take(node, local, what)
        return found

    def _take(self, node: int, local: int, what: Input) -> Step:
        state = self.locals[local]
        verb = what[0]
        if verb == "crash":
            return Step(self._known(node, state._replace(status=DOWN)), (), (), (), None)
        if verb == "restart" and not self.sessions:
            return Step(self._known(node, state._replace(status=UP)), (), (), (), None)
        if verb == "stop":
            return Step(self._known(node, state._replace(status=STOPPED)), (), (), (), None)
        try:
            return self._asked(node, state, what)
        except InvariantError as error:
            return Step(local, (), (), (), f"invariant broken: {error}")
        except SameDigest:
            raise
        except Exception as error:  # whatever a stranger's core raises was looked for
            if isinstance(error, MisuseError) and verb in _REFUSABLE:
                raise
            return Step(local, (), (), (), f"raised: {type(error).__name__}: {error}")

    def _asked(self, node: int, state: Local, what: Input) -> Step:
        """What a core makes of an input."""
        verb = what[0]
        core = self.core(node, what[1] if verb == "forget" else 0)
        begins = verb in ("forget", "restart")
        if verb == "restart":
            core.reopen(_decode(state.saved), what[1])
        elif verb != "forget":
            core.restore(_decode(state.saved))
        timers = {} if begins else dict(state.timers)
        effects = self._give(core, what, timers)
        if not begins:  # a core is checked after its inputs, and a fresh one has had none
            core.check()
        return self._outcome(node, core, effects, timers)

    def _give(self, core: Core, what: Input, timers: dict[str, int]) -> Effects:  # noqa: PLR0911 - a table
        verb, now_us = what[0], what[-1]
        if verb == "receive":
            return core.receive(self.names[what[1]], self.packets[what[2]], now_us)
        if verb == "say":
            return self._say(core, what[1], now_us)
        if verb == "up":
            return core.link_up(self.names[what[1]], now_us)
        if verb == "down":
            return core.link_down(self.names[what[1]], now_us)
        if verb == "timer":
            del timers[what[1]]
            return core.timer(what[1], now_us)
        if verb == "leave":
            return core.timer(LEAVE, now_us)
        if verb == "command":
            return core.command(what[1], what[2], now_us)
        return []  # forget, restart

    def _say(self, core: Core, at: int, now_us: int) -> Effects:
        line, payload = self.world.say[at], self.payloads[at]
        if line.to is not None:
            return core.send(line.to, payload, now_us)
        if line.lifetime_us is not None:
            return core.broadcast_within(payload, line.lifetime_us, now_us)
        return core.broadcast(payload, now_us)

    def _outcome(self, node: int, core: Core, effects: Effects, timers: dict[str, int]) -> Step:
        sends: list[tuple[int, int]] = []
        ends: list[tuple[int, bool]] = []
        closes: list[int] = []
        status, problem = UP, None
        for effect in effects:
            if isinstance(effect, Send):
                packet = self._packet(effect.packet)
                sends += [(self.index[to], packet) for to in effect.to if to in self.index]
            elif isinstance(effect, Deliver):
                at = self._which(effect.message)
                if at is None:
                    problem = f"created: {self.names[node]} delivers {effect.message} that no node said"
                else:
                    ends.append((at, True))
            elif isinstance(effect, Expire):
                ends += [(at, False) for at in [self.numbered(effect.id)] if at is not None]
            elif isinstance(effect, SetTimer):
                timers[effect.key] = effect.at_us
            elif isinstance(effect, CancelTimer):
                timers.pop(effect.key, None)
            elif isinstance(effect, CloseLink):
                closes.append(self.index[effect.peer])
            elif isinstance(effect, Stop):
                status = STOPPED
            elif isinstance(effect, Tell) and isinstance(effect.news, Forked):
                problem = f"forked: {self.names[node]} says that a life of {effect.news.name} was forked"
        after = Local(_saved(core), tuple(sorted(timers.items())), status)
        if problem is None and len(core.explain()) != core.waiting:
            problem = "explain: it does not name what waits"
        remarks = self._remarks(effects) if self.lives else None
        return Step(self._known(node, after), tuple(sends), tuple(ends), tuple(closes), problem, remarks)

    def _remarks(self, effects: Effects) -> Remarks | None:
        ids: list[tuple[int, int]] = []
        late = 0
        missed: list[tuple[int, int, int]] = []
        stable: list[tuple[int, int]] = []
        for effect in effects:
            if isinstance(effect, Deliver):
                at = self._which(effect.message)
                if at is not None:
                    ids.append((at, self._life_and_number(*effect.message.id)))
                    late |= effect.late << at
            elif isinstance(effect, Missed):
                first, last = (self._life_and_number(effect.stream, at) for at in (effect.first, effect.last))
                missed.append((self.index[effect.origin], first, last))
            elif isinstance(effect, Stable):
                stable += [
                    (self.index[split_stream(stream)[0]], self._life_and_number(stream, last))
                    for stream, last in effect.cut
                ]
        return Remarks(tuple(ids), late, tuple(missed), tuple(stable)) if ids or missed or stable else None

    def _life_and_number(self, stream: NodeId, number: int) -> int:
        return self._life[split_stream(stream)[1]] << NUMBER_BITS | number

    def _which(self, message: Message) -> int | None:
        """The line that a message is, if its origin said it."""
        at = self._message.get(message.payload)
        return at if at is not None and self.world.say[at].node == split_stream(message.origin)[0] else None

    def numbered(self, id_: MessageId) -> int | None:
        """The line that an id without payload names: the origin's `number`-th."""
        lines = [at for at, line in enumerate(self.world.say) if line.node == id_.origin]
        return lines[id_.number - 1] if 0 < id_.number <= len(lines) else None

    def _known(self, node: int, local: Local) -> int:
        key = self._digest(_encode((node, *local)))
        if self.locals.setdefault(key, local) != local:
            raise SameDigest
        return key

    def _packet(self, packet: Packet) -> int:
        key = self._digest(_encode(packet))
        if self.packets.setdefault(key, packet) != packet:
            raise SameDigest
        return key

    def _digest(self, content: bytes) -> int:
        known = self._keys.get(content)
        if known is None:
            known = int.from_bytes(
                blake2b(content, digest_size=8, key=self.salt).digest(), "big", signed=True
            )
            self._keys[content] = known
        return known
