"""One TCP connection: bytes in, bytes out. Decisions are the node's, state is the link's."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, cast

from whence.errors import FrameError, HandshakeError, PeerError
from whence.live.links import Link
from whence.live.wire import Ack, Bye, FrameReader, Refusal, hello_frame

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
        if self._dialled is not None:
            self.reply(self._dialled)

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
            greeting = self._reader.greeting(data)
            if greeting is None:
                return
            if isinstance(greeting, Refusal):
                self._node.peering.refused_by_peer(self._dialled, self.source, greeting)
                self.close()
                return
            link = self._node.peering.greeted(self, self._dialled, greeting)
        except PeerError as error:
            self._fail(error)
            return
        if link is None:  # the node has said what there was to say, and closed the connection
            return
        self._end_handshake()
        self._link = link
        self.source = link.peer
        self._node.wake()  # what the peer has not received is pending again
        self.data_received(b"")  # frames may have come in the same segment as the HELLO

    def reply(self, link: Link) -> None:
        """Say HELLO: first where we have dialled, in answer to an accepted one otherwise."""
        link.begin()
        self.write(hello_frame(self._node.identity.hello(link)))

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
