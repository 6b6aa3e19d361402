"""Reliable links over TCP, plain or under TLS: listens, dials, carries bytes between sockets and sessions."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeAlias, cast

from whence.core.message import NodeId
from whence.errors import CertificateError, FrameError, PeerError, PlatformError
from whence.live.tls import Keys, certified, handshake_problem
from whence.session.addresses import Address
from whence.session.handshake import Certified
from whence.session.journal import Journal
from whence.session.limits import Limits
from whence.session.links import Channel, Link
from whence.session.peering import Peering
from whence.session.session import Session
from whence.session.wire import Packets

WRITE_BUFFER_BYTES = 256 * 1024  # above this the transport asks us to keep the frames in the link's queue
_LOOK_AGAIN_S = 3600.0  # the wall clock may be set; a timer does not see it

OpenSession: TypeAlias = Callable[[Channel, Link | None], Session]
Receive: TypeAlias = Callable[[Link, Packets, int], None]


class Connection(asyncio.Protocol):
    """One connection, dialled for `link` or accepted: bytes in, bytes out. Its session decides.

    With `keys` it is TLS: the certificate says who is there, and HELLO must say the same. Both ends open a
    plain connection first and turn it into TLS themselves. A server of asyncio's own would shut a bad
    certificate out without a word to us, and a refusal must be counted, logged and bounded like any other.
    """

    def __init__(
        self,
        open_session: OpenSession,
        receive: Receive,
        wake: Callable[[], None],
        limits: Limits,
        link: Link | None,
        keys: Keys | None,
    ) -> None:
        self._session = open_session(self, link)
        self._receive = receive
        self._wake = wake
        self._limits = limits
        self._is_dialled = link is not None
        self._keys = keys
        # What came with the last step of the TLS handshake, until it is over.
        self._early = None if keys is None else bytearray()
        self._securing: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
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
        if self._keys is None:
            session.opened()
        else:
            self._securing = self._loop.create_task(self._secure(self._keys))

    def data_received(self, data: bytes) -> None:
        session = self._session
        if self._early is not None:
            if session.deadline_s is not None:  # bounded: `_secure` goes on in the next turn of the loop
                self._early += data
            return
        packets = session.feed(data)
        if packets:
            link = session.link
            assert link is not None
            self._receive(link, packets, len(data))
        reader = session.reader
        if reader.control or reader.error is not None:
            session.obey()

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError) and self._session.link is not None:
            # Not what the peer wrote, or not now: TLS numbers and seals every record.
            reason = f"a TLS record was damaged, forged or replayed on its way ({exc.reason})"
            self._session.fail(FrameError("connection", reason, "Look at what lies between the two nodes"))
        self.writable = False
        for timer in (self._deadline, self._abort_timer, self._expiry):
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

    # TLS

    async def _secure(self, keys: Keys) -> None:
        assert self._transport is not None
        session, server_side = self._session, not self._is_dialled
        timeout_s = self._limits.handshake_timeout_s
        problem: BaseException | None = None
        secured: asyncio.Transport | None = None
        try:
            secured = await self._loop.start_tls(
                self._transport,
                self,
                keys.context(server_side=server_side),
                server_side=server_side,
                ssl_handshake_timeout=timeout_s,
                ssl_shutdown_timeout=timeout_s,
            )
        except OSError as error:  # an SSLError is one
            problem = error
        if session.deadline_s is None:  # it was refused meanwhile, or we are leaving
            if secured is not None:
                secured.abort()
            return
        if secured is None or secured.get_extra_info("ssl_object") is None:
            session.fail(handshake_problem(problem))
            self.connection_lost(None)  # asyncio does not say so of a connection that was never made
            return
        self._transport = secured
        secured.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        try:
            peer = certified(secured.get_extra_info("peercert"))
        except PeerError as error:
            session.fail(error)
            return
        session.opened(peer)
        if session.peer is None:  # it was refused
            return
        self._await_expiry(peer)
        early, self._early = bytes(self._early or b""), None
        self.data_received(early)

    def _await_expiry(self, peer: Certified) -> None:
        """A connection does not outlive the certificate that let it in."""
        left_s = peer.until_s - time.time()
        if left_s > 0:
            self._expiry = self._loop.call_later(min(left_s + 0.1, _LOOK_AGAIN_S), self._await_expiry, peer)
            return
        self._session.fail(
            CertificateError("certificate", "its certificate has expired", "Make new ones with `whence keys`")
        )

    # From the link and the session

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport, which sends as many as it can immediately."""
        assert self._transport is not None
        self._transport.write(data)

    def close(self, last_words: bytes = b"") -> None:
        """Close in order; what the transport holds is still sent, if the peer takes it soon."""
        transport = self._transport
        if self._early is not None and (transport is None or transport.get_extra_info("ssl_object") is None):
            self.abort()  # before TLS is there nothing can be said
            return
        self.writable = False
        self._session.ended()
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
        if self._keys is None:
            return PeerError(
                "connection",
                "it closed the connection before it said HELLO",
                "See its log; if it has keys, this node needs keys too",
            )
        if self._session.peer is None:
            return handshake_problem(None)
        # In TLS 1.3 a client learns only after its handshake that the server will not have it.
        return PeerError(
            "connection",
            "it closed the connection without a word after the TLS handshake; "
            "perhaps it does not accept this node's certificate",
            "Give both keys of one authority that have not expired, and see the other's log",
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
