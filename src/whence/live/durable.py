"""Membership with a store: what a node has accepted survives `kill -9`, and its links go on where they were.

Guarantee     an input (a packet, a message of the application, a timer, a reaction) is on the disk before
              anything that follows from it leaves the node: frames, acknowledgements, what `send` returns.
              After a crash the log gives the same node again: no message is lost or repeated on any link.
Assumptions   a disk that keeps what was synced; every member of the group is durable (their HELLOs say so),
              and comes back under its name with its store.
Source        paper 004, sections 3 and 5; DESIGN section 2, rule 6; docs/durability.md.

Leaving suspends: the peers keep what is for this node until it comes back.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from whence.core.group import base_of_life, check_payload
from whence.core.lives import BEGIN, CUT_OFF, SHAPE
from whence.core.message import Message, MessageId, NodeId
from whence.errors import AgentError, FrameError, GroupClosedError, MisuseError, StoreError, TraceError
from whence.live.node import Node, draw_session
from whence.live.settings import NodeSettings
from whence.live.stats import StoreStats
from whence.live.store import CommitLog, Outcomes, Saying, Store
from whence.overlay.shape import Shape, cannot_follow, shape_of
from whence.protocols import registry
from whence.protocols.domains.domains import Domains
from whence.session.durable import Agent, DurableServer
from whence.session.handshake import OwnLives
from whence.session.links import FORGOTTEN, Link
from whence.session.records import (
    Arrived,
    Buried,
    Commanded,
    Done,
    Fired,
    Met,
    Output,
    Reacted,
    Record,
    RecordCodec,
    Restarted,
    Retired,
    Said,
    Submitted,
)
from whence.session.wire import EARLIER_MAX, Known, Packets, Unopened
from whence.trace.writer import TraceWriter

RETRY_US = 500_000  # what expired while the store could not be written expires again after this
SNAPSHOT_BYTES = 8 << 20  # the log is replaced by a snapshot when it has grown by this much
REACTIONS = 256  # at most that many share a commit
AGAIN_S, AGAIN_MAX_S = 0.1, 10.0  # before a message at which the agent failed is tried again
DEAD_MAX = 10_000  # dead letters: with so many the agent itself is broken, and says so


def shape_given(settings: NodeSettings) -> Shape | None:
    """The shape of a system that may change; None for any other group."""
    domains = settings.params.get("domains")
    return shape_of(domains) if isinstance(domains, Mapping) else None


def opened(store: Store, settings: NodeSettings) -> tuple[NodeSettings, int, OwnLives]:
    """What a node goes on with: its settings, the session that the store was begun with, and its lives.

    This opening is a new life. A store of another node is refused. The core of a system that may change
    begins with the shape that the store was begun with: the log has the changes.
    """
    mine: dict[str, Any] = {
        "group": settings.group,
        "node": settings.node,
        "protocol": settings.protocol,
        "parameters": settings.parameters(),
    }
    shape = shape_given(settings)
    if shape is None:
        mine["members"] = sorted(settings.addresses)
    found = {key: msgspec.json.decode(value) for key, value in store.meta().items()}
    if not found:
        found = {**mine, "session": draw_session()}
        if shape is not None:
            found["shape"] = shape.plain()
        store.describe({key: msgspec.json.encode(value) for key, value in found.items()})
    for key, value in mine.items():
        if found.get(key) != value:
            raise StoreError(
                f"store {store.path}",
                f"it belongs to {key} {found.get(key)!r}, and this node has {value!r}",
                "Give the store of this very node, or start a new one in another file",
            )
    if shape is not None:
        settings = _with_first_shape(store, settings, shape, found)
    lives = OwnLives(draw_session(), list(found.get("lives", []))[-EARLIER_MAX:])
    write_lives(store, lives)
    return settings, int(found["session"]), lives


def _with_first_shape(
    store: Store, settings: NodeSettings, shape: Shape, found: Mapping[str, Any]
) -> NodeSettings:
    """The settings with which the log can be replayed: the first shape, links to all that ever had one."""
    first = shape_of(found["shape"])
    peers = {*found.get("peers", ()), *first.neighbours(settings.node), *shape.neighbours(settings.node)}
    store.describe({"peers": msgspec.json.encode(sorted(peers))})
    return replace(settings, params={**settings.params, "domains": first.plain()}, linked=frozenset(peers))


def write_lives(store: Store, lives: OwnLives) -> None:
    """Keep the lives: the next opening names them, so that peers know it for the same store."""
    store.describe({"lives": msgspec.json.encode([*lives.earlier, lives.now])})


class DurableMembership:
    """A member that comes back: inputs are records, which happen when they are on the disk."""

    def __init__(self, node: Node, store: Store, shape: Shape | None = None) -> None:
        self._shape = shape  # what a system that may change looks like now
        assert isinstance(node.host, DurableServer)
        self.node = node
        self.host: DurableServer = node.host
        self.store = store
        codec = RecordCodec(node.packet_type)
        self.log = CommitLog(store, codec, self.host, self._apply, self._committed, self._refused, node.fail)
        self.serving = False
        self._finished: set[MessageId] = set()  # in hand, done with, and not on the disk yet
        self.is_point_to_point = registry.lookup(node.settings.protocol).point_to_point
        self._links = node.links
        self._peering = node.peering
        self._is_entered = False

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Every configured member, sorted."""
        core = self.host.core
        if isinstance(core, Domains) and core.is_shaped:
            return core.shape.servers
        return self.node.identity.members

    # Recovery

    def trace_parts(self) -> int | None:
        """How many parts of the node's trace its last snapshot counts on; None for a node that is new."""
        snapshot, batches = self.store.recover()
        if snapshot is None:
            return 0 if batches else None
        parts = msgspec.msgpack.decode(snapshot)["trace_parts"]
        if parts is None:
            raise TraceError(
                f"trace of node {self.node.settings.node!r}",
                "the node has a past that was not traced",
                "Start it without a trace, or with a new store",
            )
        return int(parts)

    async def prepare(self) -> None:
        """Replay the log; links that it does not know come up now, on the disk as well."""
        snapshot, batches = await asyncio.to_thread(self.store.recover)
        state = None if snapshot is None else msgspec.msgpack.decode(snapshot)
        decode = self.log.codec.decode_batch
        records = (record for batch in batches for record in decode(batch))
        for _ in self.host.recover_in_steps(state, records):
            await asyncio.sleep(0)  # others on this loop go on meanwhile
        self._is_entered = True  # before that, a last snapshot would keep half of it
        self._peering.admission.retired.update(self.host.retired)
        if self._shape is not None:
            await self._follow_changes(self._shape)
        begins: list[Record] = []
        if self._peering.admission.returns:
            base = max(base_of_life(self.host.now_us()), self.host.core.last + 1)
            begins = [Commanded(self.host.now_us(), BEGIN, (str(base),))]
        await self.log.submit_all([*self.host.links_up(), *begins, *self._strangers()])

    def _strangers(self) -> list[Record]:
        """Who can only come back as another life: what is sent from now on is for that one."""
        found: list[Record] = []
        for peer, link in self._links.items():
            if self.host.sessions.get(peer) == FORGOTTEN and link.alive and not link.is_cut_off:
                link.is_cut_off = True
                found.append(Commanded(self.host.now_us(), CUT_OFF, (peer,)))
        return found

    async def _follow_changes(self, shape: Shape) -> None:
        """Take the shape that the system has now, before anybody is met; forget who is no neighbour."""
        core = self.host.core
        assert isinstance(core, Domains)
        problem = cannot_follow(core.shape, shape, core.me)
        if problem is not None:
            raise StoreError(
                f"store {self.store.path}", problem, "Give the store and the folder of this very system"
            )
        if core.shape.number < shape.number:
            await self.log.submit(Commanded(self.host.now_us(), SHAPE, (shape.text(),)))
        for peer in set(self.node.links) - core.linked:
            del self.node.links[peer]

    def learn(self, shape: Shape) -> asyncio.Future[MessageId | None]:
        """The system has changed, and this server's own domains have not."""
        core = self.host.core
        assert isinstance(core, Domains)
        if cannot_follow(core.shape, shape, core.me) or shape.of(core.me) != core.shape.of(core.me):
            raise MisuseError(
                f"server {core.me!r}", "its own domains change, or it knows a later change", "Start it again"
            )
        return self.log.submit(Commanded(self.host.now_us(), SHAPE, (shape.text(),)))

    async def enter(self) -> list[Coroutine[Any, Any, None]]:
        """The log is replayed: its timers run again."""
        self.host.set_timers()
        return []

    # Inputs

    def _apply(self, record: Record, data_bytes: int) -> Outcomes | None:
        """Carry out what is on the disk; returns the ids of what was submitted, None if the node failed."""
        if self.node.failed:
            return None
        if isinstance(record, Said):
            return self.host.say(record)
        try:
            id_ = self.host.apply(record, data_bytes)
        except FrameError as error:
            assert isinstance(record, Arrived)
            self._cannot_read(self._links[record.peer], error)
            return []
        if isinstance(record, Done):
            self._finished.difference_update(record.ids)
        return [] if id_ is None else [id_]

    def broadcast(self, payload: bytes) -> tuple[Saying, int]:
        """Broadcast, with what other tasks say until the next commit, and which of all that it is."""
        if type(payload) is not bytes:
            check_payload(payload)
        self.node.flow.room -= 1
        return self.log.say(payload)

    async def submit(
        self, payload: bytes, lifetime_us: int | None, to: NodeId | None, key: bytes | None = None
    ) -> MessageId:
        """Broadcast, or send `to` one node: returns when the message is on the disk.

        One that is tried again with the same `key` is not sent again.
        """
        check_payload(payload)
        self.node.flow.room -= 1
        id_ = await self.log.submit(Submitted(self.host.now_us(), to, payload, lifetime_us, key))
        assert id_ is not None
        return id_

    def _cannot_read(self, link: Link, error: FrameError) -> None:
        """The peer broke the format: what it says comes again over its next connection."""
        if link.channel is not None:
            self._peering.fault(link.channel, link.peer, link, error, established=True)

    def receive(self, link: Link, packets: Packets, data_bytes: int) -> None:
        """DATA frames have arrived: they happen when they are on the disk."""
        if self.node.failed or link.channel is None:
            return
        if self.log.broken is not None:
            self._peering.drop(link, "the store cannot be written")
            return
        assert isinstance(packets, Unopened)
        core = self.host.core
        try:
            if isinstance(core, Domains) and not core.understands(packets.open()):
                why = "it names servers that this one does not know: `whence mom apply` here"
                self._peering.drop(link, why)
                return
        except FrameError as error:
            self._cannot_read(link, error)
            return
        self.log.arrived(self.host.arrival(link, packets), data_bytes)

    def timer(self, key: str) -> None:
        """A timer of the core has expired: it happens when that is on the disk."""
        if key in self.host.due:
            self.log.append(Fired(self.host.now_us(), key))

    def check_reader(self) -> None:
        """Refuse a task that reads beside an agent."""
        if self.serving:
            raise MisuseError("reading the group", "an agent serves it", "Read in the agent, or do not serve")

    def finished(self, id_: MessageId) -> None:
        """The application is done with a message."""
        self._check_in_hand(id_)
        self._finished.add(id_)
        self.log.done(id_)

    def put_back(self, id_: MessageId) -> None:
        """A message that a reader was given waits again, before all others."""
        self._check_in_hand(id_)
        self.host.take_back(id_)

    def finished_if_in_hand(self, id_: MessageId) -> None:
        """A loop asks for its next message: it is done with this one, unless it said so or put it back."""
        if self._is_in_hand(id_):
            self.finished(id_)

    def _is_in_hand(self, id_: MessageId) -> bool:
        return self.host.has_handed_out(id_) and id_ not in self._finished

    def _check_in_hand(self, id_: MessageId) -> None:
        self.check_reader()
        if not self._is_in_hand(id_):
            raise MisuseError(
                f"message {id_}", "no reader has it", "Name a message that was received and is not done"
            )

    def _refused(self, error: StoreError) -> None:
        """What waited for the disk has not happened: peers send it again, timers come again."""
        self.node.journal.note("store", None, str(error), logging.ERROR)
        for link in self._links.values():
            if link.channel is not None:
                self._peering.drop(link, "the store cannot be written")
        self.host.set_timers(self.host.now_us() + RETRY_US)

    def _committed(self) -> bytes | None:
        """A snapshot, if it is time for one: everything that is on the disk has happened."""
        self.node.wake()
        if self.node.failed or self.store.log_bytes < SNAPSHOT_BYTES:
            return None
        return self._state()

    def _state(self) -> bytes:
        parts, recorder = None, self.host.recorder
        if isinstance(recorder, TraceWriter):
            recorder.flush()
            parts = recorder.parts
        return msgspec.msgpack.encode({**self.host.save(), "trace_parts": parts})

    def store_stats(self) -> StoreStats:
        """What the store has done since the node started."""
        store, log = self.store, self.log
        return StoreStats(
            records=log.records,
            commits=store.commits,
            snapshots=store.snapshots,
            log_bytes=store.log_bytes,
            reactions=self.host.reactions,
            in_hand=self.host.in_hand,
            error=None if log.broken is None else str(log.broken),
        )

    # Links

    def link_up(self, link: Link) -> None:
        """A link is up from the start."""

    def link_gone(self, link: Link) -> None:
        """No link ever is: the peer comes back with its store."""

    def link_met(self, link: Link) -> None:
        """Keep the peer's session: a process under its name with another one has lost its store."""
        if (
            self.host.sessions.get(link.peer) != link.peer_session
            or self.host.peer_lives.get(link.peer) != link.peer_life
        ):
            self.log.append(Met(link.peer, link.peer_session, link.peer_life))

    def link_restarted(self, link: Link, welcomes: bool) -> None:
        """The numbering of a link begins anew, when that is on the disk; until then nothing leaves."""
        session = self.node.identity.session_to(link)
        record = Restarted(self.host.now_us(), link.peer, session, link.followed, welcomes)
        self.log.append(record)

    def command(self, verb: str, *names: NodeId) -> None:
        """Tell the core what is known of links and lives."""
        self.log.append(Commanded(self.host.now_us(), verb, names))

    def begin_life(self, base: int) -> None:
        """As every opening did: others have more than this one had reached."""
        self.command(BEGIN, str(base))

    def retired(self, name: NodeId, life: int) -> None:
        """Keep it."""
        self.log.append(Retired(self.host.now_us(), name, life))

    def come_back(self, why: str) -> None:
        """No durable protocol takes anybody out of the group by itself."""

    def slept(self, seconds: float) -> None:
        """Links last, and what was said meanwhile is said again."""

    def new_life(self) -> None:
        """Keep it: the next opening must name it."""
        self.log.later(partial(write_lives, self.store, self.node.identity.lives))

    def introduced(self, link: Link, known: Known) -> None:
        """No one is introduced: the members are listed."""

    def missing(self) -> list[Link]:
        """The peers that are not connected."""
        return [link for link in self._links.values() if link.channel is None]

    def is_too_slow(self, link: Link) -> bool:
        """No peer is: what is for it waits on the disk anyway, and its queue only makes senders wait."""
        return False

    # Suspending

    async def part(self, deadline_s: float) -> None:
        """Let the peers that are connected take what is for them; no one receives a good-bye."""
        totals = [(link, link.out.total) for link in self._links.values() if link.channel is not None]
        await self.node.until(
            lambda: all(link.out.acknowledged >= total or link.channel is None for link, total in totals),
            deadline_s,
        )

    async def close(self) -> None:
        """Write what waits and a last snapshot; close the store."""
        await self.log.close(self._state if self._is_entered and not self.node.failed else None)


# Agents (paper 004, section 3): a reaction, what it sends and the agent's new state are one atomic step.
#
# Reactions are computed one after the other, each on the state that the one before left, and written
# together: one sync for many. Until they are on the disk nothing of them has happened; if they cannot be
# written, they are computed again later, so an agent must have no effects but its state and its outputs.


async def serve(
    member: DurableMembership,
    agent: Agent,
    attempts: Callable[[str], int | None],
    who: Callable[[Message], str] = lambda _: "",
) -> None:
    """Let the agents react until the group is closed.

    `who` names the one that a message is for: each has a state of its own. `attempts` says how often it may
    fail at one message; None: the first failure ends all.
    """
    if member.serving or member.host.in_hand:
        raise MisuseError("serve", "something else reads this group", "Let one agent, or one task, read it")
    member.serving = True
    member.host.sort_inbox()
    failures = 0  # in a row, at one message
    try:
        while await _wait(member):
            failure = await _react_to_some(member, agent, who)
            if failure is None:
                failures = 0
                continue
            failures = failures + 1 if failure.is_first else 1
            allowed = attempts(failure.name)
            if allowed is None or len(member.host.dead) >= DEAD_MAX:
                raise failure.error
            if failures < allowed:
                await asyncio.sleep(min(AGAIN_S * 2 ** (failures - 1), AGAIN_MAX_S))
            elif await _bury(member, failures, failure.error):
                failures = 0
    finally:
        member.serving = False


class _Failure(NamedTuple):
    """The agent failed at a message; `is_first`: no other message was reacted to before it this time."""

    error: AgentError
    is_first: bool
    name: str


async def _bury(member: DurableMembership, attempts: int, error: AgentError) -> bool:
    """The first message becomes a dead letter; False if that could not be written."""
    try:
        await member.log.submit(Buried(member.host.now_us(), attempts, error.reason))
    except StoreError:
        await member.log.pause()
        return False
    member.node.journal.note("dead letter", None, f"{error.reason}; tried {attempts} times", logging.ERROR)
    return True


async def _wait(member: DurableMembership) -> bool:
    """Wait for a message and room for replies; False when the group is closed."""
    member.node.waiters.reads()
    while not member.host.inbox:
        if member.node.flow.closed is not None:
            return False
        await member.node.waiters.arrival()
    if member.node.flow.room <= 0 and not member.is_point_to_point:
        try:
            await member.node.waiters.room()
        except GroupClosedError:
            return False
    return member.node.flow.closed is None


async def _react_to_some(
    member: DurableMembership, agent: Agent, who: Callable[[Message], str]
) -> _Failure | None:
    host = member.host
    states: dict[str, bytes] = {}  # after the reactions that are not written yet
    failure = None
    records: list[Reacted] = []
    sends, sends_max = 0, max(1, member.node.limits.queue_messages // 4)  # nobody has them before the commit
    while host.inbox and len(records) < REACTIONS and sends < sends_max:
        message = host.hand_out()
        name = who(message)
        state = states.get(name, host.agent_states.get(name, b""))
        try:
            state, outputs = await _reaction(member, agent, state, message)
        except AgentError as error:
            failure = _Failure(error, not records, name)
            break
        if not _has_room(member, outputs):
            if not await _write(member, records) or not await _room(member, outputs):
                host.take_all_back()
                return None
            records = []
        records.append(Reacted(host.now_us(), state, outputs, name))
        states[name] = state
        sends += len(outputs)
    if await _write(member, records) and failure is not None:
        host.take_all_back()
        return failure
    return None


async def _write(member: DurableMembership, records: list[Reacted]) -> bool:
    """The reactions happen; False if they could not be written, and nothing of them has."""
    try:
        await member.log.submit_all(records)
    except StoreError:
        member.host.take_all_back()
        await member.log.pause()
        return False
    return True


def _has_room(member: DurableMembership, outputs: tuple[Output, ...]) -> bool:
    flow, way_to = member.node.flow, member.node.way_to
    return all(to is None or flow.may_go(way_to(to), reading=True, waited=False) for to, _ in outputs)


async def _room(member: DurableMembership, outputs: tuple[Output, ...]) -> bool:
    """Wait for room at each destination; False when the group is closed."""
    try:
        for to, _ in outputs:
            if to is not None:
                await member.node.waiters.room(member.node.way_to(to))
    except GroupClosedError:
        return False
    return True


async def _reaction(
    member: DurableMembership, agent: Agent, state: bytes, message: Message
) -> tuple[bytes, tuple[Output, ...]]:
    try:
        answer: Any = agent(state, message)
        new_state, outputs = (await answer) if inspect.isawaitable(answer) else answer
        if not isinstance(new_state, bytes):
            raise TypeError(f"its state is {type(new_state).__name__}, not bytes")
        return new_state, tuple(_checked(member, *output) for output in outputs)
    except Exception as error:
        raise AgentError(
            f"the agent of node {member.node.settings.node!r}",
            f"it failed at message {message.origin}:{message.number} ({type(error).__name__}: {error})",
            "Repair the agent and start the node again: the message waits",
        ) from error


def _checked(member: DurableMembership, to: str | None, payload: bytes) -> Output:
    """Refuse what the core would refuse: a reaction happens as a whole or not at all."""
    if not isinstance(payload, bytes) or len(payload) > member.node.identity.max_payload_bytes:
        raise ValueError(f"an output must be at most {member.node.identity.max_payload_bytes} bytes")
    if (to is None) == member.is_point_to_point or (to is not None and to not in member.members):
        raise ValueError(f"no output can go to {to!r}")
    if to is not None:
        member.node.leaves(member.node.way_to(to))
    return Output(to, payload)
