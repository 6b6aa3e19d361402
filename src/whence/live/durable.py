"""A durable node: what it has accepted survives `kill -9`, and its links go on where they were.

Guarantee     an input (a packet, a message of the application, a timer, a reaction) is on the disk before
              anything that follows from it leaves the node: frames, acknowledgements, what `send` answers.
              After a crash the log gives the same node again: no message is lost or repeated on any link.
Assumptions   a disk that keeps what was synced; every member of the group is durable (their HELLOs say so),
              and comes back under its name with its store.
Source        paper 004, sections 3 and 5; DESIGN section 2, rule 6; docs/durability.md.

Leaving suspends: the peers keep what is for this node until it comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec

from whence.core.message import MessageId, NodeId, Packet
from whence.errors import GroupClosedError, MisuseError, PeerError, StoreError, TraceError
from whence.live.connection import Connection
from whence.live.durable_host import DurableHost
from whence.live.host import Host
from whence.live.node import Node
from whence.live.peering import Peering
from whence.live.settings import Settings
from whence.live.stats import StoreStats
from whence.live.store import CommitLog, Store
from whence.session.handshake import GoneError, error_code
from whence.session.links import Channel, Link
from whence.session.records import Arrived, Linked, Met, Record, RecordCodec, Sent
from whence.session.wire import Hello, error_frame
from whence.trace.schema import Recorder
from whence.trace.writer import TraceWriter

SNAPSHOT_BYTES = 8 << 20  # the log is replaced by a snapshot when it has grown by this much


class DurablePeering(Peering):
    """Nobody is ever given up: a peer that is away comes back with its store."""

    on_met: Callable[[Link, int], None]

    def _attach(self, connection: Connection, link: Link, hello: Hello, *, reply: bool) -> None:
        super()._attach(connection, link, hello, reply=reply)
        self.on_met(link, hello.session)

    def give_up(self, link: Link, error: PeerError) -> None:
        """Refuse a peer that has lost its state, or is too slow; what is for it stays."""
        self._journal.fault("refused", link.peer, error)
        link.last_error = error
        if link.channel is not None:
            gone = GoneError(error.what, error.reason, error.fix)
            link.channel.close(error_frame(error_code(gone), gone))
        self._lose_connection(link)

    def peer_leaves(self, link: Link, connection: Channel) -> None:
        """A durable peer never says good-bye for good."""
        connection.close()
        self._lose_connection(link)


class DurableNode(Node):
    """See the module."""

    host_type: ClassVar[type[Host]] = DurableHost
    peering_type: ClassVar[type[Peering]] = DurablePeering

    host: DurableHost
    peering: DurablePeering

    def __init__(self, settings: Settings) -> None:
        assert settings.store is not None
        self.store = Store(settings.store)
        try:
            super().__init__(settings)
            codec = RecordCodec(self.packet_type)
            self.log = CommitLog(self.store, codec, self._apply, self._committed, self._refused, self.fail)
        except BaseException:
            self.store.close()
            raise
        self.host.log = self.log
        self.peering.on_met = self._met
        self._recorder: TraceWriter | None = None
        self._started = False
        self.serving = False

    def _session(self, members: tuple[NodeId, ...], parameters: Mapping[str, str]) -> int:
        """The session that the store was begun with; a store of somebody else is refused."""
        settings = self.settings
        mine = {
            "group": settings.group,
            "node": settings.node,
            "protocol": settings.protocol,
            "parameters": dict(parameters),
            "members": list(members),
        }
        found = {key: msgspec.json.decode(value) for key, value in self.store.meta().items()}
        if not found:
            session = super()._session(members, parameters)
            meta = {**mine, "session": session}
            self.store.describe({key: msgspec.json.encode(value) for key, value in meta.items()})
            return session
        for key, value in mine.items():
            if found.get(key) != value:
                raise StoreError(
                    f"store {self.store.path}",
                    f"it belongs to {key} {found.get(key)!r}, and this node has {value!r}",
                    "Give the store of this very node, or start a new one in another file",
                )
        return int(found["session"])

    # Recovery

    async def start(self, recorder: Recorder | None = None) -> None:
        """Become what the store says, then take part."""
        self._recorder = recorder if isinstance(recorder, TraceWriter) else None
        self._started = True
        await super().start(recorder)
        self.host.set_timers()

    def trace_parts(self) -> int | None:
        """How many parts of the node's trace its last snapshot counts on; None for a node that is new."""
        snapshot, batches = self.store.recover()
        if snapshot is None:
            return 0 if batches else None
        parts = msgspec.msgpack.decode(snapshot)["trace_parts"]
        if parts is None:
            raise TraceError(
                f"trace of node {self.settings.node!r}",
                "the node has a past that was not traced",
                "Start it without a trace, or with a new store",
            )
        return int(parts)

    async def _bring_up(self) -> None:
        """Replay the log; links that it does not know come up now, on the disk as well."""
        host = self.host
        snapshot, batches = self.store.recover()
        host.replaying = True
        try:
            if snapshot is not None:
                host.restore(msgspec.msgpack.decode(snapshot))
            for batch in batches:
                for record in self.log.codec.decode_batch(batch):
                    self._replay(record)
        finally:
            host.replaying = False
        self.log.resume(host.done)
        for link in self._link_list:
            link.out.take(1 << 60)  # all of it may have been sent: the peer's HELLO says what it has
            link.peer_session = host.sessions.get(link.peer, 0)
        new = [link.peer for link in self._link_list if link.peer not in host.linked]
        await asyncio.gather(*[self.log.submit(Linked(host.now_us(), peer, True)) for peer in new])

    def _replay(self, record: Record) -> None:
        try:
            self.host.apply(record)
        except MisuseError:
            return  # so it did the first time: the caller was told

    # Inputs

    def _apply(self, record: Record, data_bytes: int) -> MessageId | None:
        if self.failed:
            return None
        id_ = self.host.apply(record, data_bytes)
        if not self._flush_scheduled:
            self.wake()
        return id_

    async def submit(self, payload: bytes, lifetime_us: int | None, to: NodeId | None) -> MessageId:
        """Broadcast, or send `to` one node: answers when the message is on the disk."""
        self.flow.room -= 1
        id_ = await self.log.submit(Sent(self.host.now_us(), to, payload, lifetime_us))
        if id_ is None:
            raise GroupClosedError(
                f"group {self.settings.group!r}",
                "the node failed while the message was written",
                "Start it again: the message leaves then",
            )
        return id_

    def receive(self, link: Link, packets: list[Packet], data_bytes: int) -> None:
        """DATA frames have arrived: they happen when they are on the disk."""
        if self.failed or link.channel is None:
            return
        if self.log.broken is not None:
            self.peering.drop(link, "the store cannot be written")
            return
        first = link.arrived + 1
        link.arrived += len(packets)
        self.log.append(Arrived(self.host.now_us(), link.peer, first, tuple(packets)), data_bytes)

    def _met(self, link: Link, session: int) -> None:
        if self.host.sessions.get(link.peer) != session:
            self.log.append(Met(link.peer, session))

    def _refused(self, error: StoreError) -> None:
        """What waited for the disk has not happened: peers send it again, timers come again."""
        self.journal.note("store", None, str(error), logging.ERROR)
        for link in self._link_list:
            if link.channel is not None:
                self.peering.drop(link, "the store cannot be written")
        self.host.set_timers(error)

    def _committed(self) -> bytes | None:
        """A snapshot, if it is time for one: everything that is on the disk has happened."""
        if self.failed or self.store.log_bytes < SNAPSHOT_BYTES:
            return None
        return self._state()

    def _state(self) -> bytes:
        parts = None
        if self._recorder is not None:
            self._recorder.flush()
            parts = self._recorder.parts
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
            in_hand=len(self.host.hand),
            error=None if log.broken is None else str(log.broken),
        )

    def finished(self) -> None:
        """The application is done with what it was given."""
        if self.serving:
            raise MisuseError("reading the group", "an agent serves it", "Read in the agent, or do not serve")
        if self.host.hand:
            self.log.took(self.host.done + len(self.host.hand))

    # Bounds

    def _give_up_slow_peers(self) -> None:
        """What is for a peer waits on the disk anyway: its queue only makes senders wait."""

    # Suspending

    async def _part(self) -> None:
        """Let those who are connected take what is for them; nobody is told good-bye."""
        deadline_s = self._loop.time() + self.limits.leave_timeout_s
        totals = [(link, link.out.total) for link in self._link_list if link.channel is not None]
        await self._until(
            lambda: all(link.out.acknowledged >= total or link.channel is None for link, total in totals),
            deadline_s,
        )

    async def _shut(self) -> None:
        await super()._shut()
        await self.log.close(self._state if self._started and not self.failed else None)
        self.host.close()  # what was written last may have set a timer
