"""The datagram transport on a real socket. What is heard and refused is `session/datagrams.py`'s."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, cast

from whence.core.message import NodeId, Packet
from whence.errors import PlatformError
from whence.live.linkfaults import FaultyRoute, LinkFaults
from whence.live.tcp import Receive, cannot_listen
from whence.session.addresses import Address
from whence.session.datagrams import DatagramLink, Datagrams
from whence.session.handshake import Identity
from whence.session.limits import Limits

RECEIVE_BUFFER_BYTES = 4 << 20  # the kernel grants what it allows: it holds what comes while we are busy
GOODBYES, GOODBYE_EVERY_S = 10, 0.05


class UdpOutlet:
    """One socket for all peers, and the faults that are made on purpose."""

    def __init__(self, identity: Identity, faults: LinkFaults | None) -> None:
        self.dropped: Counter[str] = Counter()
        self.writable = False
        self._routes: dict[NodeId, FaultyRoute] = {}
        if faults is not None:
            me = identity.members.index(identity.node)
            self._routes = {
                peer: FaultyRoute(faults, me, index) for index, peer in enumerate(identity.members)
            }
        self._transport: asyncio.DatagramTransport | None = None
        self._places: Mapping[NodeId, tuple[Any, ...]] = {}

    def bind(self, transport: asyncio.DatagramTransport, places: Mapping[NodeId, tuple[Any, ...]]) -> None:
        """The socket is there; each peer is at its place."""
        self._transport, self._places = transport, places
        self.writable = True

    def put(self, datagram: bytes, peer: NodeId) -> None:
        """Hand a datagram to the kernel, as often and as late as the faults have it."""
        route = self._routes.get(peer)
        if route is None:
            self._put(datagram, peer)
            return
        delays_s = route.copies()
        if not delays_s:
            self.dropped["injected loss"] += 1
        for delay_s in delays_s:
            if delay_s:
                asyncio.get_running_loop().call_later(delay_s, self._put, datagram, peer)
            else:
                self._put(datagram, peer)

    def _put(self, datagram: bytes, peer: NodeId) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(datagram, self._places[peer])

    def close(self) -> None:
        """Close the socket."""
        if self._transport is not None:
            self._transport.close()


class Endpoint(asyncio.DatagramProtocol):
    """Carries datagrams between the socket and those that judge them."""

    def __init__(
        self,
        places: Mapping[NodeId, tuple[Any, ...]],
        outlet: UdpOutlet,
        feed: Callable[[bytes, NodeId | None, str], None],
        wake: Callable[[], None],
    ) -> None:
        self._places = places
        self._peers = {place[:2]: peer for peer, place in places.items()}
        self._outlet = outlet
        self._feed = feed
        self._wake = wake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outlet.bind(cast(asyncio.DatagramTransport, transport), self._places)

    def pause_writing(self) -> None:
        self._outlet.writable = False

    def resume_writing(self) -> None:
        self._outlet.writable = True
        self._wake()

    def error_received(self, exc: Exception) -> None:
        """The kernel could not send a datagram, or says that one did not arrive."""
        self._outlet.dropped["refused by the network"] += 1

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._feed(data, self._peers.get(addr[:2]), addr[0])


class UdpTransport:
    """One socket for all peers."""

    def __init__(
        self,
        listen: Address,
        links: Mapping[NodeId, DatagramLink],
        outlet: UdpOutlet,
        datagrams: Datagrams,
        limits: Limits,
        receive: Receive,
        wake: Callable[[], None],
        is_full: Callable[[], bool],
    ) -> None:
        self.dropped = outlet.dropped
        self._listen = listen
        self._links = links
        self._outlet = outlet
        self._datagrams = datagrams
        self._limits = limits
        self._receive = receive
        self._wake = wake
        self._is_full = is_full
        self._is_open = False

    async def listen(self) -> None:
        """Bind the address and look the peers' up; no one is answered yet."""
        loop = asyncio.get_running_loop()
        sock = None
        try:
            family, _, _, _, local = (await loop.getaddrinfo(*self._listen, type=socket.SOCK_DGRAM))[0]
            sock = socket.socket(family, socket.SOCK_DGRAM)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            sock.bind(local)
        except OSError as error:
            if sock is not None:
                sock.close()
            raise cannot_listen(self._listen, error) from error
        try:
            places = await self._look_up(family)
            endpoint = Endpoint(places, self._outlet, self._feed, self._wake)
            await loop.create_datagram_endpoint(lambda: endpoint, sock=sock)
        except BaseException:
            sock.close()
            raise

    async def _look_up(self, family: int) -> dict[NodeId, tuple[Any, ...]]:
        """Where each peer is, as the socket writes it."""
        loop = asyncio.get_running_loop()
        found: dict[NodeId, tuple[Any, ...]] = {}
        for peer, link in self._links.items():
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
        """Begin to answer; returns the work that goes on until the node leaves."""
        self._is_open = True
        return [self._keep_calling()]

    async def _keep_calling(self) -> None:
        """Greet the peers that have not been heard, less and less often, but forever."""
        limits = self._limits
        growing_s, max_s = limits.backoff_first_s, min(limits.backoff_max_s, limits.heartbeat_s)
        while True:
            silent = self._datagrams.call()
            await asyncio.sleep(growing_s if silent else limits.heartbeat_s)
            growing_s = min(2 * growing_s, max_s) if silent else limits.backoff_first_s

    def _feed(self, data: bytes, peer: NodeId | None, host: str) -> None:
        if not self._is_open:
            return
        packets: list[Packet] = self._datagrams.feed(data, peer, host)
        if peer is None:
            return
        if packets and self._is_full():
            self.dropped["unread"] += len(packets)  # no one would repeat them, whatever we said
        elif packets:
            self._receive(self._links[peer], packets, len(data))
        self._datagrams.obey(peer)

    def goodbye_times(self, deadline_s: float) -> Iterator[float]:
        """Say good-bye again and again, for any of them may be lost."""
        loop = asyncio.get_running_loop()
        for _ in range(GOODBYES):
            yield min(deadline_s, loop.time() + GOODBYE_EVERY_S)

    def close(self) -> None:
        """Hear no one any more."""
        self._is_open = False
        self._outlet.close()
