"""The application's view: `join` a group, `broadcast` to it, iterate over what it delivers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from whence.core.message import Message, MessageId, Waiting
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
from whence.live.journal import GroupEvent
from whence.live.limits import Limits
from whence.live.links import Link
from whence.live.node import Node, Settings
from whence.live.stats import Stats, gather
from whence.protocols import registry

if TYPE_CHECKING:
    from whence.trace.writer import TraceWriter

_NAME_MAX = 255


def join(
    name: str,
    *,
    node: str,
    peers: Mapping[str, str],
    listen: str | None = None,
    protocol: str = "vector",
    trace: str | Path | None = None,
    limits: Limits | None = None,
    **params: Any,
) -> Joining:
    """Join the group `name` as `node`: `async with join(...) as group`.

    `peers` names every member, this one included, with the address ("host:port") at which it
    listens; all members must be given the same names, protocol and parameters. `listen` binds
    another address than the one that the peers use. `trace` is a folder for the node's trace.
    Further keywords are the protocol's parameters.
    """
    _check_name("group", name)
    if not isinstance(peers, Mapping) or node not in peers:
        raise ParameterError(f"node {node!r}", "it is not among the peers", "List every member in `peers`")
    addresses = {}
    for member, text in peers.items():
        _check_name("node", member)
        addresses[member] = parse_address(text, f"address of {member!r}")
    shared = [member for member in addresses if list(addresses.values()).count(addresses[member]) > 1]
    if shared:
        raise ParameterError(
            f"peers {', '.join(sorted(shared))}", "they share one address", "Give each its own port"
        )
    limits = limits or Limits()
    limits.check()
    registry.require_live(protocol)
    registry.make(protocol, node, addresses, params)  # refuse an unknown protocol or parameter here and now
    settings = Settings(
        group=name,
        node=node,
        addresses=addresses,
        listen=addresses[node] if listen is None else parse_address(listen, "listen"),
        protocol=protocol,
        params=params,
        limits=limits,
    )
    return Joining(settings, None if trace is None else Path(trace))


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX:
        raise ParameterError(
            f"{what} name", f"{name!r} is not a string of 1 to {_NAME_MAX} characters", "Choose a short name"
        )


class Joining:
    """What `join` answers: enter it to take part, leave it to say good-bye."""

    def __init__(self, settings: Settings, trace: Path | None) -> None:
        self._settings = settings
        self._trace = trace
        self._group: Group | None = None

    async def __aenter__(self) -> Group:
        if self._group is not None:
            raise MisuseError("join", "it was entered before", "Call whence.join again for each use")
        node = Node(self._settings)
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
    )
    try:
        return TraceWriter(
            folder,
            run=settings.group,
            writer=settings.node,
            protocol=settings.protocol,
            parameters={"protocol": settings.protocol, "params": dict(settings.params), "host": "live"},
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
        self._max_payload_bytes = node.limits.max_payload_bytes

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
        """Every configured member, sorted, this node included."""
        return self._node.identity.members

    async def broadcast(self, payload: bytes) -> MessageId:
        """Send `payload` to every member, this node included; answers the message's id.

        Returns as soon as the message is on its way, and waits only for back-pressure: while a
        member has too much unacknowledged, or too much is unread here.
        """
        if isinstance(payload, bytes) and len(payload) > self._max_payload_bytes:
            raise PayloadTooLargeError(
                "payload",
                f"it has {len(payload)} bytes, more than the group's limit of {self._max_payload_bytes}",
                "Split it, or raise max_payload_bytes at every member",
            )
        if self._flow.room <= 0:
            await self._flow.wait()
        return self._node.broadcast(payload)

    def __aiter__(self) -> Self:
        self._flow.reads()
        return self

    async def __anext__(self) -> Message:
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
