"""Discovery on a local network: a node says by multicast where it listens, and hears where others do.

A beacon yields an address to dial and nothing else; who is there is found out in the handshake, and with keys
only members of the group's authority pass it. A beacon names the group by a hash, so that it tells no one the
name of a group, and the node by its name. It needs no package: multicast is UDP.

    [magic, version, hash of the group (16 bytes), name, port]      MessagePack, to 239.255.87.72:7487
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
from collections.abc import Callable
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from whence.core.message import NodeId
from whence.errors import PlatformError
from whence.session.addresses import Address

MULTICAST = Address("239.255.87.72", 7487)  # 239.255/16: for a site's own use (RFC 2365)
EVERY_S = 2.0  # drawn from half of it to one and a half
_MAGIC = "whence-beacon"
_VERSION = 1
_BEACON_MAX_BYTES = 512
_ANY = ("0.0.0.0", "::", "")

_Beacon: TypeAlias = tuple[
    str,
    int,
    bytes,
    Annotated[str, Meta(min_length=1, max_length=255)],
    Annotated[int, Meta(gt=0, lt=65536)],
]
_decoder: msgspec.msgpack.Decoder[_Beacon] = msgspec.msgpack.Decoder(_Beacon)


def mark_of(group: str) -> bytes:
    """What a beacon calls a group."""
    return hashlib.sha256(f"whence group {group}".encode()).digest()[:16]


class Beacons(asyncio.DatagramProtocol):
    """Sends this node's beacon, and calls `heard` with the name and address of every other of its group."""

    def __init__(
        self, group: str, node: NodeId, listens: Address | None, heard: Callable[[NodeId, Address], None]
    ) -> None:
        self._mark = mark_of(group)
        self._node = node
        self._heard = heard
        self._interface = "0.0.0.0" if listens is None or listens.host in _ANY else listens.host
        self._beacon = None
        if listens is not None:
            fields = (_MAGIC, _VERSION, self._mark, node, listens.port)
            self._beacon = msgspec.msgpack.encode(fields)
        self._transport: asyncio.DatagramTransport | None = None

    async def open(self) -> None:
        """Join the multicast group; `PlatformError` where that is not possible."""
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            interface = socket.inet_aton(_number_of(self._interface))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "SO_REUSEPORT"):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(("", MULTICAST.port))
            membership = socket.inet_aton(MULTICAST.host) + interface
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)  # this network and no other
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)  # other processes of this machine
            sock.setblocking(False)
            self._transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=sock)
        except OSError as error:
            sock.close()
            raise PlatformError(
                f"discovery on {self._interface}",
                f"multicast does not work there ({error.strerror or error})",
                "Leave `discover` out and name a `contact`, or listen on an IPv4 address of a network",
            ) from error

    async def keep_calling(self) -> None:
        """Send the beacon again and again, out of step with the others."""
        while self._beacon is not None:
            if self._transport is not None and not self._transport.is_closing():
                self._transport.sendto(self._beacon, MULTICAST)
            await asyncio.sleep(EVERY_S * random.uniform(0.5, 1.5))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """A beacon, or anything else that someone sent here."""
        if len(data) > _BEACON_MAX_BYTES:
            return
        try:
            magic, version, mark, node, port = _decoder.decode(data)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            return
        if (magic, version, mark) == (_MAGIC, _VERSION, self._mark) and node != self._node:
            self._heard(node, Address(addr[0], port))

    def error_received(self, exc: Exception) -> None:
        """A network that is down for a while is no reason to stop: the next beacon may leave."""

    def close(self) -> None:
        """Send and hear no more."""
        if self._transport is not None:
            self._transport.close()


def _number_of(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host
