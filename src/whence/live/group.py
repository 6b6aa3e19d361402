"""The application's view: `join` a group, `broadcast` to it, iterate over what it delivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from whence.core.message import Expired, Message, MessageId, Waiting
from whence.errors import (
    GroupClosedError,
    MisuseError,
    ParameterError,
    PayloadTooLargeError,
    PeerError,
    WhenceError,
    missing_extra,
)
from whence.live.addresses import parse_address
from whence.live.arguments import check_name, choose_keys, choose_transport, lifetime_of, lifetime_us
from whence.live.dynamic import DynamicNode
from whence.live.journal import GroupEvent
from whence.live.limits import Limits
from whence.live.linkfaults import LinkFaults
from whence.live.links import Link
from whence.live.node import Node, Settings
from whence.live.stats import Stats, gather
from whence.live.swarm_settings import SwarmSettings, swarm_settings
from whence.protocols import registry

if TYPE_CHECKING:
    from whence.trace.writer import TraceWriter


def join(
    name: str,
    *,
    node: str,
    peers: Mapping[str, str] | None = None,
    contact: str | None = None,
    listen: str | None = None,
    protocol: str = "vector",
    trace: str | Path | None = None,
    limits: Limits | None = None,
    transport: str | None = None,
    faults: LinkFaults | None = None,
    lifetime: float | None = None,
    shuffle_s: float | None = None,
    keys: str | Path | None = None,
    plaintext: bool = False,
    **params: Any,
) -> Joining:
    """Join the group `name` as `node`: `async with join(...) as group`.

    `peers` names every member, this one included, with the address ("host:port") at which it
    listens; all members must be given the same names, protocol and parameters. `listen` binds
    another address than the one that the peers use. `trace` is a folder for the node's trace.
    `transport` is "tcp" or "udp"; by default that for which the protocol is made. `faults` makes a
    node lose, double and reorder the datagrams that it sends: a testing aid. `lifetime` is in seconds, for
    protocols with lifetimes: of messages that are broadcast without a `deadline`. Further keywords are
    the protocol's parameters.

    Under a protocol without a list of members (`prc`) there are no `peers`: the node listens at `listen`, and
    is taken in by the process at `contact`, or is the first if that is None. Entering waits until it is
    in. `shuffle_s` is how often links are exchanged (60 s).

    `keys` is a folder made by `whence keys`: every connection is then TLS, and every member must have keys
    of the group's authority. Without keys, addresses beyond this machine are refused, unless `plaintext`
    asks for them.
    """
    check_name("group", name)
    if registry.lookup(protocol).swarm:
        check_name("node", node)
        transport = choose_transport(transport, protocol, faults, 1)
        lifetime_of(protocol, lifetime, params)
        if peers is not None:
            raise ParameterError(
                "peers",
                f"protocol {protocol!r} has no list of members",
                "Give `listen`, and `contact` unless this is the first process",
            )
        swarm = swarm_settings(name, node, contact, listen, protocol, params, limits or Limits(), shuffle_s)
        others = {"listen": swarm.listen} | ({} if swarm.contact is None else {"contact": swarm.contact})
        found = choose_keys(keys, plaintext, transport, name, node, others)
        swarm = replace(swarm, keys=found, plaintext=plaintext)
        return Joining(swarm, None if trace is None else Path(trace))
    if contact is not None or shuffle_s is not None:
        raise ParameterError(
            "contact" if contact is not None else "shuffle_s",
            f"protocol {protocol!r} has a list of members",
            "Name them in `peers`, or use protocol 'prc'",
        )
    if not isinstance(peers, Mapping) or node not in peers:
        raise ParameterError(f"node {node!r}", "it is not among the peers", "List every member in `peers`")
    addresses = {}
    for member, text in peers.items():
        check_name("node", member)
        addresses[member] = parse_address(text, f"address of {member!r}")
    shared = [member for member in addresses if list(addresses.values()).count(addresses[member]) > 1]
    if shared:
        raise ParameterError(
            f"peers {', '.join(sorted(shared))}", "they share one address", "Give each its own port"
        )
    limits = limits or Limits()
    limits.check()
    registry.require_live(protocol)
    params = {**registry.lookup(protocol).live_defaults, **params, **lifetime_of(protocol, lifetime, params)}
    registry.make(protocol, node, addresses, params)  # refuse an unknown protocol or parameter here and now
    transport = choose_transport(transport, protocol, faults, len(addresses))
    listens = addresses[node] if listen is None else parse_address(listen, "listen")
    others = {f"address of {member!r}:": address for member, address in addresses.items()}
    settings = Settings(
        group=name,
        node=node,
        addresses=addresses,
        listen=listens,
        protocol=protocol,
        params=params,
        limits=limits,
        transport=transport,
        faults=faults,
        keys=choose_keys(keys, plaintext, transport, name, node, {"listen": listens} | others),
        plaintext=plaintext,
    )
    return Joining(settings, None if trace is None else Path(trace))


class Joining:
    """What `join` answers: enter it to take part, leave it to say good-bye."""

    def __init__(self, settings: Settings, trace: Path | None) -> None:
        self._settings = settings
        self._trace = trace
        self._group: Group | None = None

    async def __aenter__(self) -> Group:
        if self._group is not None:
            raise MisuseError("join", "it was entered before", "Call whence.join again for each use")
        settings = self._settings
        node = DynamicNode(settings) if isinstance(settings, SwarmSettings) else Node(settings)
        await node.listen()
        # After the address is ours: a failed start must not leave a trace that blocks the next.
        try:
            trace = None if self._trace is None else _open_trace(self._settings, self._trace)
            await node.start(trace)
        except BaseException:
            await node.leave()
            raise
        self._group = Group(node, trace)
        return self._group

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._group is not None:
            await self._group.leave()


def _open_trace(settings: Settings, folder: Path) -> TraceWriter:
    from whence.trace.schema import Level, PromisesMade
    from whence.trace.writer import TraceWriter

    info = registry.lookup(settings.protocol)
    promises = PromisesMade(
        causal=info.promises.causal,
        fifo=info.promises.fifo,
        no_duplicates=info.promises.no_duplicates,
        # A live node may leave or be stopped at any time, and then it misses what follows.
        complete=False,
        timely=info.promises.timely,
        clock_slack_us=round(settings.limits.clock_slack_s * 1e6) if info.promises.timely else 0,
    )
    try:
        return TraceWriter(
            folder,
            run=settings.group,
            writer=settings.node,
            protocol=settings.protocol,
            parameters={
                "protocol": settings.protocol,
                "params": dict(settings.params),
                "host": "live",
                "transport": settings.transport,
            },
            promises=promises,
            seed=None,
            nodes=settings.addresses,
            level=Level.ALL,
        )
    except ModuleNotFoundError as error:
        raise missing_extra("trace", error.name or "pyarrow", "trace") from error


class Group:
    """A node's membership in a group. Made by `join`; safe to use from any task of its event loop."""

    def __init__(self, node: Node, trace: TraceWriter | None) -> None:
        self._node = node
        self._flow = node.flow
        self._host = node.host
        self._inbox = node.host.inbox
        self._trace = trace
        self._leaving: asyncio.Task[None] | None = None
        self._max_payload_bytes = node.identity.max_payload_bytes

    @property
    def name(self) -> str:
        """The group's name."""
        return self._node.settings.group

    @property
    def node(self) -> str:
        """This node's name."""
        return self._node.settings.node

    @property
    def members(self) -> tuple[str, ...]:
        """Every configured member, sorted, this node included; without a list, it and its neighbours."""
        return self._node.members

    async def broadcast(self, payload: bytes, *, deadline: float | None = None) -> MessageId:
        """Send `payload` to every member, this node included; answers the message's id.

        `deadline` is in seconds from now, for protocols with lifetimes: who cannot deliver the message
        in causal order by then does not deliver it at all.

        Returns as soon as the message is on its way, and waits only for back-pressure: while a member
        has too much unacknowledged, or too much is unread here.
        """
        if isinstance(payload, bytes) and len(payload) > self._max_payload_bytes:
            raise self._too_large(len(payload))
        if self._flow.room <= 0:
            await self._flow.wait()
        return self._node.broadcast(payload, None if deadline is None else lifetime_us("deadline", deadline))

    def _too_large(self, size_bytes: int) -> PayloadTooLargeError:
        limit_bytes = self._max_payload_bytes
        if limit_bytes < self._node.limits.max_payload_bytes:
            whose, fix = f"the {limit_bytes} that fit into one datagram", "Split it, or use transport='tcp'"
        else:
            whose = f"the group's limit of {limit_bytes}"
            fix = "Split it, or raise max_payload_bytes at every member"
        return PayloadTooLargeError("payload", f"it has {size_bytes} bytes, more than {whose}", fix)

    def __aiter__(self) -> Self:
        self._flow.reads()
        return self

    async def __anext__(self) -> Message:
        while True:
            outcome = await self._next()
            if isinstance(outcome, Message):
                return outcome

    async def outcomes(self) -> AsyncIterator[Message | Expired]:
        """Every message, and from now on also an `Expired` for each that came or waited too long here."""
        self._flow.reads()
        self._host.tells_outcomes = True
        while True:
            try:
                yield await self._next()
            except StopAsyncIteration:
                return

    async def _next(self) -> Message | Expired:
        inbox = self._inbox
        while not inbox:
            if self._flow.closed is not None:
                if self._node.failed:
                    raise _again(self._flow.closed)
                raise StopAsyncIteration
            self._flow.reads()
            await self._node.arrival()
        message = inbox.popleft()
        self._host.unread_bytes -= len(message[2])
        if self._flow.full and self._flow.relieved():
            self._node.wake()
        return message

    async def receive(self) -> Message:
        """The next message; own messages are delivered too. `GroupClosedError` when there are no more."""
        self._flow.reads()
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise _again(self._flow.closed) from None

    @property
    def unread(self) -> int:
        """Messages that are delivered here and wait to be read."""
        return len(self._inbox)

    def explain(self) -> list[Waiting]:
        """Every message that waits here: since when, and for which messages."""
        return self._host.core.explain()

    def stats(self) -> Stats:
        """Counters since the node joined, and the state of every link."""
        return gather(self._node)

    @property
    def events(self) -> list[GroupEvent]:
        """The newest events of the links (at most 1000), oldest first."""
        return list(self._node.journal.events)

    async def wait_connected(self, timeout_s: float | None = None) -> None:
        """Until every member is connected (those that left or were given up do not count).

        There is no need to: what is broadcast earlier waits in the queues. When the time
        is over, the error names the missing members and the last problem with each.
        """
        missing = await self._node.wait_connected(timeout_s)
        if self._flow.closed is not None:
            raise _again(self._flow.closed)
        if missing:
            raise _not_connected(self.name, missing, timeout_s)

    def flush_trace(self) -> None:
        """Put what was recorded on disk: called right after `broadcast`, before the message leaves."""
        if self._trace is not None:
            self._trace.flush()

    async def leave(self) -> None:
        """Wait (a bounded time) until what was broadcast is acknowledged, say good-bye, and close."""
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())
        # Whoever else calls this waits for the same leaving, and may be cancelled without disturbing it.
        await asyncio.shield(self._leaving)

    async def _leave(self) -> None:
        try:
            await self._node.leave()
        finally:
            if self._trace is not None:
                self._trace.close()


def _again(closed: WhenceError | None) -> GroupClosedError:
    """A fresh exception for each caller, because raising one object twice mixes up its traceback."""
    if closed is None:
        return GroupClosedError("group", "it was left", "Join again to take part")
    return GroupClosedError(closed.what, closed.reason, closed.fix)


def _not_connected(group: str, missing: list[Link], timeout_s: float | None) -> PeerError:
    """Typed as the most telling problem: a refusal says more than a connection that nobody took."""
    refusals = [link.last_error for link in missing if isinstance(link.last_error, PeerError)]
    kind = type(refusals[0]) if refusals else PeerError
    problems = "; ".join(
        f"{link.peer} at {link.address} ({link.last_error or 'it has not connected'})" for link in missing
    )
    return kind(
        f"group {group!r}",
        f"not connected after {timeout_s:g} s: {problems}",
        "Start the missing nodes, and check their addresses and configuration",
    )
