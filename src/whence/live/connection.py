"""One TCP connection: bytes in, bytes out. Decisions are the node's, state is the link's."""

from __future__ import annotations

import asyncio
import secrets
import socket
from typing import TYPE_CHECKING, cast

import msgspec

from whence.errors import FrameError, HandshakeError, PeerError, ReplayError
from whence.session.links import Link
from whence.session.wire import (
    Ack,
    Answer,
    Bye,
    Challenge,
    FrameReader,
    Greetings,
    Hello,
    Refusal,
    answer_frame,
    challenge_frame,
    hello_frame,
)

if TYPE_CHECKING:
    from whence.live.node import Node

WRITE_BUFFER_BYTES = 256 * 1024  # above this the transport asks us to keep the frames in the link's queue


class Connection(asyncio.Protocol):
    """A connection before and after its handshake. With a `link` it was dialled, otherwise accepted."""

    def __init__(self, node: Node, link: Link | None) -> None:
        self._node = node
        self._dialled = link
        self._link: Link | None = None  # set once the handshake has passed
        self._reader = FrameReader(node.packet_type, node.max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.writable = False
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.source = link.peer if link else "a stranger"
        # Drawn anew for each connection: whoever only repeats what was once said cannot answer it.
        self._nonce = secrets.randbits(62) + 1
        self._claim: Hello | None = None  # of an accepted connection, until our challenge is answered

    # From asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.writable = True
        if self._dialled is None:
            peername = transport.get_extra_info("peername")
            self.source = f"stranger at {peername[0]}" if peername else self.source
            if not self._node.peering.admit(self):
                self._transport.abort()
                return
        timeout_s = self._node.limits.handshake_timeout_s
        self._deadline = self._loop.call_later(timeout_s, self._handshake_too_slow)
        self._begin()

    def _begin(self) -> None:
        """Say HELLO, if it is ours to speak first."""
        if self._dialled is not None:
            self._say_hello(self._dialled, self._nonce)

    def data_received(self, data: bytes) -> None:
        link = self._link
        if link is None:
            self._greet(data)
            return
        reader = self._reader
        link.heard_s = self._loop.time()
        self._node.bytes_received += len(data)
        packets = reader.feed(data)
        if packets:
            self._node.receive(link, packets, len(data))
        if reader.control:
            self._obey()
        if reader.error is not None and self._link is not None:
            self._fail(reader.error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable = False
        if self._deadline is not None and self._dialled is not None:
            self._dialled.last_error = self._cut_short()
        self._end_handshake()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        link, self._link = self._link, None
        if link is not None:
            self._node.peering.disconnected(link)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._node.wake()

    # From the link

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport, which sends what it can at once."""
        assert self._transport is not None
        self._transport.write(data)

    def close(self, last_words: bytes = b"") -> None:
        """Close in order; what the transport holds is still sent, if the peer takes it soon."""
        self.writable = False
        self._link = None
        self._end_handshake()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if last_words:
            transport.write(last_words)
        transport.close()
        # A peer that does not read would keep the closed connection for ever.
        timeout_s = self._node.limits.handshake_timeout_s
        self._abort_timer = self._loop.call_later(timeout_s, transport.abort)

    def abort(self) -> None:
        """Close at once."""
        self.writable = False
        self._link = None
        self._end_handshake()
        if self._transport is not None:
            self._transport.abort()

    # Handshake

    def _greet(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        try:
            link = None
            while link is None:
                greeting = self._reader.greeting(data)
                if greeting is None:
                    return
                link, data = self._greeted(greeting), b""
                if link is None and self._transport.is_closing():  # the node has said what there was to say
                    return
        except PeerError as error:
            self._fail(error)
            return
        self._end_handshake()
        self._link = link
        self.source = link.peer
        self._node.wake()  # what the peer has not received is pending again
        self.data_received(b"")  # frames may have come in the same segment as the HELLO

    def _greeted(self, greeting: Greetings) -> Link | None:
        """One step of the handshake; answers the link once it has passed."""
        peering = self._node.peering
        if isinstance(greeting, Refusal):
            peering.refused_by_peer(self._dialled, self.source, greeting)
            self.close()
        elif isinstance(greeting, Hello):
            self._vouch(greeting)
            if self._dialled is not None:
                if greeting.nonce != self._nonce:
                    raise _replayed(greeting.node)
                return peering.greeted(self, self._dialled, greeting)
            if self._claim is not None:
                raise FrameError("HELLO frame", "it is the second one", "Check the peer's release")
            peering.claimed(self, greeting)  # who has no business here is not asked for anything
            self._claim = greeting
            self.write(challenge_frame(self._nonce))
        elif isinstance(greeting, Challenge) and self._dialled is not None:
            self.write(answer_frame(greeting.nonce))
        elif isinstance(greeting, Answer) and self._claim is not None:
            if greeting.nonce != self._nonce:
                raise _replayed(self._claim.node)
            return peering.greeted(self, None, self._claim)
        else:
            raise FrameError("first frame", "it is not HELLO", "Check that the peer is a Whence node")
        return None

    def _vouch(self, hello: Hello) -> None:
        """Refuse who is not whom it says it is. In plain text nobody can tell."""

    def _cut_short(self) -> PeerError:
        """Why a connection that we dialled has ended before the other side said HELLO, as far as we know."""
        return PeerError(
            "connection",
            "it closed the connection before it said HELLO",
            "See its log; if it has keys, this node needs keys too",
        )

    def reply(self, link: Link) -> None:
        """Answer an accepted HELLO with ours."""
        self._say_hello(link, 0 if self._claim is None else self._claim.nonce)

    def _say_hello(self, link: Link, nonce: int) -> None:
        link.begin()
        hello = self._node.identity.hello(link)
        self.write(hello_frame(msgspec.structs.replace(hello, nonce=nonce)))

    def _handshake_too_slow(self) -> None:
        self._fail(
            HandshakeError(
                "connection",
                f"no complete HELLO within {self._node.limits.handshake_timeout_s} s",
                "Check that the peer is a Whence node, and not overloaded",
            )
        )

    def _end_handshake(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._node.peering.settled(self)

    # Frames beside DATA

    def _obey(self) -> None:
        control, self._reader.control = self._reader.control, []
        for item in control:
            link = self._link
            if link is None:
                return
            if isinstance(item, Ack):
                try:
                    link.out.acknowledge(item.received)
                except FrameError as error:
                    self._fail(error)
                    return
                self._node.acknowledged()
            elif isinstance(item, Bye):
                self._node.peering.peer_leaves(link, self)
            elif isinstance(item, Refusal):
                self._node.peering.refused_by_peer(link, self.source, item)
                self.close()

    def _fail(self, error: PeerError) -> None:
        """The peer broke the rules: say so, count it, close. The link survives and resumes."""
        link = self._link
        self._node.peering.fault(self, link or self._dialled, link is not None, error)


def _replayed(node: str) -> ReplayError:
    return ReplayError(
        f"node {node!r}",
        "it does not answer what it was asked on this connection: it repeats another one",
        "Look for who records and replays the group's traffic, and use keys",
    )
