"""A peer made by hand: speaks the wire format over a plain socket, as well or as badly as it is told."""

from __future__ import annotations

import asyncio
import ssl

import msgspec

import whence
from whence.core.message import Packet
from whence.session.wire import (
    Answer,
    Challenge,
    Control,
    FrameReader,
    Hello,
    Refusal,
    answer_frame,
    hello_frame,
)


class RawPeer:
    """A node "by hand" that dials the node of `group`."""

    def __init__(self, name: str, peers: dict[str, str], group: whence.Group, session: int) -> None:
        node = group._node
        self.address = peers[node.settings.node]
        self.hello = msgspec.structs.replace(
            node.identity.hello(node.links[name]), node=name, to=node.settings.node, session=session,
            peer_session=0, received=0,
        )  # fmt: skip
        self.packet_type = node.packet_type
        self.packets: list[Packet] = []
        self.control: list[Control] = []
        self.writer: asyncio.StreamWriter | None = None
        self.context: ssl.SSLContext | None = None  # None: plain text
        self.said = b""  # all that was written on the last connection

    async def _open(self) -> Hello | Refusal:
        host, _, port = self.address.rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(
            host, int(port), ssl=self.context, server_hostname=None if self.context is None else ""
        )
        self.said = hello_frame(self.hello)
        self.writer.write(self.said)
        self.frames = FrameReader(self.packet_type, 1 << 24)
        answer = None
        async with asyncio.timeout(10):
            while answer is None:
                data = await self.reader.read(65536)
                assert data, "closed before it was greeted"
                answer = self.frames.greeting(data)
                if isinstance(answer, Challenge):
                    self.said += answer_frame(answer.nonce)
                    self.writer.write(answer_frame(answer.nonce))
                    answer = self.frames.greeting(b"")
        assert not isinstance(answer, Challenge | Answer)
        self._take(b"")
        return answer

    async def connect(self) -> Hello:
        """Connect and shake hands; answers the other side's HELLO."""
        answer = await self._open()
        assert isinstance(answer, Hello), answer
        self.hello = msgspec.structs.replace(self.hello, peer_session=answer.session)
        return answer

    async def refused(self) -> Refusal:
        """Connect and be refused."""
        answer = await self._open()
        assert isinstance(answer, Refusal), answer
        await self.close()
        return answer

    async def send(self, data: bytes) -> None:
        assert self.writer is not None
        self.said += data
        self.writer.write(data)
        await self.writer.drain()

    def _take(self, data: bytes) -> None:
        self.packets += self.frames.feed(data)
        assert self.frames.error is None
        self.control += self.frames.control
        self.frames.control = []

    async def read(self, packets: int) -> list[Packet]:
        """Wait for some more packets; answers all so far."""
        async with asyncio.timeout(10):
            while len(self.packets) < packets:
                data = await self.reader.read(65536)
                assert data, "closed"
                self._take(data)
        return self.packets

    async def closed(self, timeout_s: float = 10.0) -> bool:
        """Read until the other side closes."""
        try:
            async with asyncio.timeout(timeout_s):
                while data := await self.reader.read(65536):
                    self._take(data)
        except ConnectionError:
            pass  # a reset closes too
        await self.close()
        return True

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.transport.abort()
            await asyncio.sleep(0)
