"""Reliable links over TCP: listens, dials, and carries bytes between sockets and sessions."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeAlias, cast

from whence.core.message import NodeId, Packet
from whence.errors import PeerError, PlatformError
from whence.session.addresses import Address
from whence.session.journal import Journal
from whence.session.limits import Limits
from whence.session.links import Channel, Link
from whence.session.peering import Peering
from whence.session.session import Session

WRITE_BUFFER_BYTES = 256 * 1024  # above this the transport asks us to keep the frames in the link's queue

OpenSession: TypeAlias = Callable[[Channel, Link | None], Session]
Receive: TypeAlias = Callable[[Link, list[Packet], int], None]


class Connection(asyncio.Protocol):
    """One connection, dialled for `link` or accepted: bytes in, bytes out. Its session decides."""

    def __init__(
        self,
        open_session: OpenSession,
        receive: Receive,
        wake: Callable[[], None],
        limits: Limits,
        link: Link | None,
    ) -> None:
        self._session = open_session(self, link)
        self._receive = receive
        self._wake = wake
        self._limits = limits
        self._is_dialled = link is not None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.writable = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # From asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.writable = True
        peername = transport.get_extra_info("peername")
        session = self._session
        session.begin(peername[0] if peername else None)
        assert session.deadline_s is not None
        self._deadline = self._loop.call_at(session.deadline_s, session.timer)
        self._begin()

    def _begin(self) -> None:
        """The connection is there, and nothing has been said."""
        self._session.opened()

    def data_received(self, data: bytes) -> None:
        session = self._session
        packets = session.feed(data)
        if packets:
            link = session.link
            assert link is not None
            self._receive(link, packets, len(data))
        reader = session.reader
        if reader.control or reader.error is not None:
            session.obey()

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable = False
        for timer in (self._deadline, self._abort_timer):
            if timer is not None:
                timer.cancel()
        self._session.closed(self._cut_short())
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._wake()

    # From the link and the session

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport, which sends as many as it can immediately."""
        assert self._transport is not None
        self._transport.write(data)

    def close(self, last_words: bytes = b"") -> None:
        """Close in order; what the transport holds is still sent, if the peer takes it soon."""
        self.writable = False
        self._session.ended()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if last_words:
            transport.write(last_words)
        transport.close()
        # A peer that does not read would keep the closed connection forever.
        self._abort_timer = self._loop.call_later(self._limits.handshake_timeout_s, transport.abort)

    def abort(self) -> None:
        """Close immediately."""
        self.writable = False
        self._session.ended()
        if self._transport is not None:
            self._transport.abort()

    def local_host(self) -> str | None:
        """The address of this machine at which the peer sees us."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(name[0]) if name else None

    def _cut_short(self) -> PeerError:
        """Why a connection that we dialled has ended before the other side said HELLO, as far as we know."""
        return PeerError(
            "connection",
            "it closed the connection before it said HELLO",
            "See its log; if it has keys, this node needs keys too",
        )


Connect: TypeAlias = Callable[[Link | None], Connection]


class TcpTransport:
    """One listening socket, one connection per pair of members."""

    def __init__(
        self,
        listen: Address | None,
        links: Mapping[NodeId, Link],
        connect: Connect,
        peering: Peering,
        journal: Journal,
    ) -> None:
        self.dropped: Counter[str] = Counter()  # stays empty: a reliable link drops nothing
        self._listen = listen
        self._links = links
        self._connect = connect
        self._peering = peering
        self._journal = journal
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Bind the address; no one is answered yet."""
        if self._listen is None:
            return
        host, port = self._listen
        backlog = max(128, 2 * len(self._links))
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: self._connect(None), host, port, backlog=backlog, start_serving=False
            )
        except OSError as error:
            raise cannot_listen(self._listen, error) from error

    async def start(self) -> list[Coroutine[Any, Any, None]]:
        """Begin to answer; returns the work that goes on until the node leaves."""
        if self._server is not None:
            await self._server.start_serving()
        return [self._keep_dialling(link) for link in self._links.values() if link.dials]

    async def dial(self, link: Link) -> Connection:
        """A new connection to the address of `link`; raises `OSError` if there is none."""
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: self._connect(link), *link.address
        )
        return connection

    async def _keep_dialling(self, link: Link) -> None:
        """Connect to the peer of `link` again and again, until it is gone permanently.

        A peer that may come back never is; and one that was wrongly declared faulty must learn of it.
        """
        loop = asyncio.get_running_loop()
        limits = self._peering.limits
        attempts = 0
        while link.alive or link.renews or self._peering.admission.returns:
            began_s, before = loop.time(), _progress(link)
            try:
                async with asyncio.timeout(limits.connect_timeout_s):
                    connection = await self.dial(link)
            except OSError as error:  # TimeoutError is one
                link.last_error = error
                if attempts == 0:  # the first of a row, or a peer that is down would fill the log
                    detail = f"cannot reach {link.peer} at {link.address} ({error}); trying again"
                    self._journal.note("unreachable", link.peer, detail)
            else:
                await connection.closed
            # A connection that achieved nothing is as bad as none: a peer that refuses us, or always
            # sends the same nonsense, is asked less and less often.
            useful = _progress(link) != before or loop.time() - began_s > limits.backoff_max_s
            attempts = 0 if useful else attempts + 1
            delay_s = min(limits.backoff_max_s, limits.backoff_first_s * 2.0 ** min(attempts, 30))
            delay_s *= random.uniform(0.5, 1.0)  # so that a group does not come back in step
            await asyncio.sleep(max(delay_s, link.refuse_until_s - loop.time()))

    def goodbye_times(self, deadline_s: float) -> Iterator[float]:
        """Say good-bye once, and wait until the deadline: the link repeats what is lost."""
        yield deadline_s

    def close(self) -> None:
        """Accept no connection any more."""
        if self._server is not None:
            self._server.close()
        self._peering.abort_strangers()


def _progress(link: Link) -> tuple[int, int]:
    return link.incoming.received, link.out.acknowledged


def cannot_listen(address: Address, error: OSError) -> PlatformError:
    """Why an address cannot be bound."""
    what = f"port {address.port} on {address.host}"
    if error.errno == errno.EADDRINUSE:
        return PlatformError(
            what, "it is in use", "Stop the program that uses it, or let this node listen at another port"
        )
    reason = error.strerror or str(error)
    return PlatformError(what, f"it cannot be listened on ({reason})", "Check the address of this node")
