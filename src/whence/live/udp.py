"""The datagram transport on a real socket: who is heard, what is refused, how good-bye is said.

What a datagram looks like and what fits into one is in `datagrams.py`. The host, the flow control, the
journal and the life of the links are those of TCP.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any, cast

from whence.core.message import NodeId, Packet
from whence.errors import HandshakeError, PeerError, PlatformError
from whence.live.linkfaults import FaultyRoute
from whence.live.tcp import cannot_listen
from whence.session.addresses import Address
from whence.session.datagrams import (
    HEADER_BYTES,
    DatagramLink,
    Header,
    digest_of,
    refuse_stranger,
    unpack_header,
)
from whence.session.handshake import check_session, error_code
from whence.session.links import LinkState
from whence.session.wire import (
    BYE_FRAME,
    PING_FRAME,
    Bye,
    FrameReader,
    Hello,
    Refusal,
    error_frame,
    hello_frame,
)

if TYPE_CHECKING:
    from whence.live.node import Node

RECEIVE_BUFFER_BYTES = 4 << 20  # the kernel grants what it allows: it holds what comes while we are busy
REFUSE_EVERY_S = 0.1  # one refusal for a whole burst
GOODBYES, GOODBYE_EVERY_S = 10, 0.05


class UdpTransport:
    """One socket for all peers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.dropped: Counter[str] = Counter()
        self._endpoint: Endpoint | None = None

    def make_link(self, peer: NodeId, address: Address) -> DatagramLink:
        """The link to one peer; it is there from the start."""
        return DatagramLink(peer, address, self._node.limits, self.dropped)

    async def listen(self) -> None:
        """Bind the address and look the peers' up; nobody is answered yet."""
        loop, listen = asyncio.get_running_loop(), self._node.settings.listen
        sock = None
        try:
            family, _, _, _, local = (await loop.getaddrinfo(*listen, type=socket.SOCK_DGRAM))[0]
            sock = socket.socket(family, socket.SOCK_DGRAM)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            sock.bind(local)
        except OSError as error:
            if sock is not None:
                sock.close()
            raise cannot_listen(listen, error) from error
        try:
            endpoint = Endpoint(self._node, self, await self._look_up(family))
            await loop.create_datagram_endpoint(lambda: endpoint, sock=sock)
        except BaseException:
            sock.close()
            raise
        self._endpoint = endpoint

    async def _look_up(self, family: int) -> dict[NodeId, tuple[Any, ...]]:
        """Where each peer is, as the socket writes it."""
        loop = asyncio.get_running_loop()
        found: dict[NodeId, tuple[Any, ...]] = {}
        for peer, link in self._node.links.items():
            try:
                known = await loop.getaddrinfo(*link.address, family=family, type=socket.SOCK_DGRAM)
            except OSError as error:
                raise PlatformError(
                    f"address {link.address} of {peer!r}",
                    f"it cannot be looked up ({error.strerror or error})",
                    "Write a numeric address of the same family as this node's own",
                ) from error
            found[peer] = known[0][4]
        return found

    async def start(self) -> list[Coroutine[Any, Any, None]]:
        """Begin to answer; answers the work that goes on until the node leaves."""
        assert self._endpoint is not None
        self._endpoint.open()
        return [self._endpoint.keep_calling()]

    def goodbye_times(self, deadline_s: float) -> Iterator[float]:
        """Say good-bye again and again, for any of them may be lost."""
        loop = asyncio.get_running_loop()
        for _ in range(GOODBYES):
            yield min(deadline_s, loop.time() + GOODBYE_EVERY_S)

    def close(self) -> None:
        """Hear nobody any more."""
        if self._endpoint is not None:
            self._endpoint.close()


class Port:
    """The way to one peer: what a link takes for its connection."""

    def __init__(self, endpoint: Endpoint, link: DatagramLink, place: tuple[Any, ...]) -> None:
        self._endpoint = endpoint
        self._link = link
        self._place = place
        node = endpoint.node
        members = node.identity.members
        self.index = members.index(link.peer)
        faults = node.settings.faults
        self._route: FaultyRoute | None = None
        if faults is not None:
            self._route = FaultyRoute(faults, members.index(node.identity.node), self.index)
        self._refuse_at_s = 0.0

    @property
    def writable(self) -> bool:
        """The socket takes datagrams."""
        return self._endpoint.writable

    def write(self, data: bytes) -> None:
        """Send whole frames as one datagram."""
        self.send(data)

    def send(self, body: bytes, peer_session: int | None = None) -> int:
        """As `write`; answers the bytes sent. `peer_session`: whom it is for, if not the one we know."""
        endpoint, session = self._endpoint, self._link.peer_session if peer_session is None else peer_session
        datagram = endpoint.header._replace(peer_session=session).pack() + body
        if self._route is None:
            endpoint.put(datagram, self._place)
            return len(datagram)
        delays_s = self._route.copies()
        if not delays_s:
            endpoint.dropped["injected loss"] += 1
        for delay_s in delays_s:
            if delay_s:
                asyncio.get_running_loop().call_later(delay_s, endpoint.put, datagram, self._place)
            else:
                endpoint.put(datagram, self._place)
        return len(datagram)

    def refuse(self, error: PeerError, header: Header) -> None:
        """Tell the peer why its datagrams are dropped; once for a burst."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._refuse_at_s:
            self._refuse_at_s = now_s + REFUSE_EVERY_S
            self.send(error_frame(error_code(error), error), header.session)

    def close(self, last_words: bytes = b"") -> None:
        """Nothing to close but the conversation."""
        if last_words:
            self.write(last_words)

    def abort(self) -> None:
        """There is no connection to abort: the port is there as long as the socket."""


class Endpoint(asyncio.DatagramProtocol):
    """Sends and judges datagrams."""

    def __init__(self, node: Node, transport: UdpTransport, places: dict[NodeId, tuple[Any, ...]]) -> None:
        self.node = node
        self.dropped = transport.dropped
        self.writable = False
        identity = node.identity
        self.header = Header(
            identity.members.index(identity.node), digest_of(identity), identity.session, peer_session=0
        )
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(node.packet_type, node.max_frame_bytes, datagrams=True)
        self._transport: asyncio.DatagramTransport | None = None
        self._ports: dict[tuple[Any, ...], tuple[DatagramLink, Port]] = {}
        self._open = False
        for peer, place in places.items():
            link = cast(DatagramLink, node.links[peer])
            port = Port(self, link, place)
            self._ports[place[:2]] = link, port
            link.send, link.writable = port.send, lambda: self.writable

    # From asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        self.writable = True

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.node.wake()

    def error_received(self, exc: Exception) -> None:
        """The kernel could not send a datagram, or says that one did not arrive."""
        self.dropped["refused by the network"] += 1

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        if not self._open:
            return
        known = self._ports.get(addr[:2])
        source = known[0].peer if known else f"stranger at {addr[0]}"
        try:
            header = unpack_header(data)
            if known is None:
                raise refuse_stranger(source)
        except PeerError as error:
            self.node.journal.fault("fault", source, error)
            return
        link, port = known
        try:
            self._judge(link, port, header, data)
        except PeerError as error:
            link.last_error = error
            self.node.journal.fault("fault", source, error)
            port.refuse(error, header)

    # Sending

    def open(self) -> None:
        """From now on datagrams are judged."""
        self._open = True

    def put(self, datagram: bytes, place: tuple[Any, ...]) -> None:
        """Hand a datagram to the kernel."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(datagram, place)

    async def keep_calling(self) -> None:
        """Greet the peers that have not been heard, less and less often, but for ever."""
        limits = self.node.limits
        growing_s, max_s = limits.backoff_first_s, min(limits.backoff_max_s, limits.heartbeat_s)
        while True:
            silent = [(link, port) for link, port in self._ports.values() if link.alive and not link.channel]
            for link, port in silent:
                port.write(hello_frame(self.node.identity.hello(link)))
            await asyncio.sleep(growing_s if silent else limits.heartbeat_s)
            growing_s = min(2 * growing_s, max_s) if silent else limits.backoff_first_s

    def close(self) -> None:
        """Close the socket."""
        self._open = False
        if self._transport is not None:
            self._transport.close()

    # Judging

    def _judge(self, link: DatagramLink, port: Port, header: Header, data: bytes) -> None:
        body = data[HEADER_BYTES:]
        if header.digest != self.header.digest:
            self._differs(link, header, body)
            return
        if header.sender != port.index:
            raise HandshakeError(
                f"datagram from {link.peer!r}", "it names another sender", "Check the addresses of the peers"
            )
        packets = self._reader.whole(body)
        control = self._reader.control
        if self._obeys_refusal(link, header, control):
            return
        if link.state is LinkState.LEFT and header.session == link.peer_session:
            if not self.node.peering.parting and any(isinstance(each, Bye) for each in control):
                port.write(BYE_FRAME)  # our answer to its good-bye was lost
            return
        # No peer is given up for this: an old datagram may come at any time, and no queue waits for anybody.
        check_session(link, header.session)
        if header.peer_session not in (0, self.header.session):
            # It speaks to a process that had our name: let it hear of us, and decide.
            self._greet(link, port)
            raise HandshakeError(
                f"datagram from {link.peer!r}", "it is for an earlier process of this name", "Wait"
            )
        self._accept(link, port, header, packets, len(data))
        self._obey(link, port, control)

    def _differs(self, link: DatagramLink, header: Header, body: bytes) -> None:
        """The peer is configured otherwise; if it says how, say where the difference is."""
        self._reader.whole(body)
        control = self._reader.control
        if self._obeys_refusal(link, header, control):
            return
        for each in control:
            if isinstance(each, Hello):
                self.node.identity.check(each)
        raise HandshakeError(
            f"datagram from {link.peer!r}",
            "it is configured otherwise than this node",
            "Give every member the same configuration",
        )

    def _obeys_refusal(self, link: DatagramLink, header: Header, control: list[Any]) -> bool:
        """A refusal counts if it is for this very process: nobody can guess its session."""
        refusals = [each for each in control if isinstance(each, Refusal)]
        for refusal in refusals:
            if header.peer_session == self.header.session:
                self.node.peering.refused_by_peer(link, link.peer, refusal)
        return bool(refusals)

    def _accept(
        self, link: DatagramLink, port: Port, header: Header, packets: list[Packet], data_bytes: int
    ) -> None:
        node = self.node
        link.peer_session = header.session
        link.heard_s = self._loop.time()
        node.bytes_received += data_bytes
        if header.peer_session and link.channel is None:  # each has heard the other
            link.channel = port
            link.connections += 1
            link.wrote_s = link.heard_s
            link.last_error = None
            node.journal.recovered(link.peer)
            node.journal.note("connected", link.peer, f"heard {link.peer}, and was heard", logging.DEBUG)
            node.peering.changed.set()
        if packets and node.flow.full:
            self.dropped["unread"] += len(packets)  # nobody would repeat them, whatever we said
        elif packets:
            node.receive(link, packets, data_bytes)

    def _obey(self, link: DatagramLink, port: Port, control: list[Any]) -> None:
        for each in control:
            if isinstance(each, Bye):
                self.node.peering.peer_leaves(link, port)
                return
            if isinstance(each, Hello):
                self._greet(link, port)

    def _greet(self, link: DatagramLink, port: Port) -> None:
        """Answer a HELLO: with ours while we do not know whether we are heard."""
        if link.channel is None:
            port.write(hello_frame(self.node.identity.hello(link)))
        else:
            port.write(PING_FRAME)
