"""A member made by hand that speaks datagrams from its own address, as well or as badly as it is told."""

from __future__ import annotations

import asyncio
from typing import Any

import whence
from whence.session.datagrams import HEADER_BYTES, Header, digest_of, unpack_header
from whence.session.wire import Control, FrameReader


class RawMember(asyncio.DatagramProtocol):
    """The member `name` of `group`'s group, bound to its address; `group` is the node to talk to."""

    def __init__(self, name: str, peers: dict[str, str], group: whence.Group, session: int = 77) -> None:
        self.node = group._node
        self.name = name
        self.place = _place(peers[group.node])
        self.address = _place(peers[name])
        members = self.node.identity.members
        self.header = Header(members.index(name), digest_of(self.node.identity), session, 0)
        self.heard: list[tuple[Header, list[Control]]] = []
        self.transport: Any = None

    async def __aenter__(self) -> RawMember:
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=self.address)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.transport.close()
        await asyncio.sleep(0)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        reader = FrameReader(self.node.packet_type, 1 << 20, datagrams=True)
        reader.whole(data[HEADER_BYTES:])
        self.heard.append((unpack_header(data), list(reader.control)))

    def send(self, body: bytes, **changes: Any) -> None:
        """A datagram with these frames; `changes` are fields of its header."""
        self.send_raw(self.header._replace(**changes).pack() + body)

    def send_raw(self, data: bytes) -> None:
        """Any bytes."""
        self.transport.sendto(data, self.place)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
