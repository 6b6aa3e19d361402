"""Peers that say anything to a live node that remembers: nothing dies, nothing grows, the others go on."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import whence
from live.test_log_live import node
from support.living import eventually, free_ports, in_a_loop, take
from whence.protocols.log.wire import DATA, FLOOR, GOT, HAVE, HELLO, WANT, LogPacket
from whence.session.acquaintances import KNOWN_MAX
from whence.session.wire import (
    VERSION,
    Answer,
    Challenge,
    FrameReader,
    Hello,
    Known,
    Refusal,
    answer_frame,
    data_frame,
    hello_frame,
    known_frame,
)

STREAMS_MAX, HELD_MAX = 300, 50
LIFE = "00000000000000aa"


class Mallory:
    """A peer by hand."""

    def __init__(self, group: whence.Group, port: int, name: str = "mallory") -> None:
        identity = group._node.identity
        self.name = name
        self.port = port
        self.hello = Hello(
            magic="whence", version=VERSION, group="room", protocol="log",
            parameters=dict(identity.parameters), members=[],
            max_payload_bytes=identity.max_payload_bytes, node=name, to=name, session=7,
            peer_session=0, received=0, life=9,
        )  # fmt: skip

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(hello_frame(self.hello))
        frames = FrameReader(LogPacket, 1 << 24)
        answer: Any = None
        async with asyncio.timeout(10):
            while not isinstance(answer, Hello | Refusal):
                answer = frames.greeting(await self.reader.read(65536))
                if isinstance(answer, Challenge):
                    self.writer.write(answer_frame(answer.nonce))
                    answer = frames.greeting(b"")
        assert isinstance(answer, Hello), answer
        assert not isinstance(answer, Challenge | Answer)

    def say(self, *packets: LogPacket) -> None:
        self.writer.write(b"".join(map(data_frame, packets)))

    def greet(self) -> None:
        self.say(LogPacket(HELLO, ((0, f"{self.name}/{LIFE}"),), (1, 0, 0, 0)))
        self.say(LogPacket(HAVE, (), (1,)))

    async def flush(self) -> None:
        with contextlib.suppress(OSError):
            await asyncio.wait_for(self.writer.drain(), 10)


def small(core: Any) -> bool:
    """Whether a core keeps no more than its limits allow."""
    return len(core.ledger.names) <= STREAMS_MAX and core.waiting <= HELD_MAX and core.entries() < 20_000


def packets(draw: random.Random) -> LogPacket:
    """Anything that decodes."""

    def number() -> int:
        return draw.choice([0, 1, 2, 3, 70, 2**31, 2**62, 2**63 - 1, draw.randrange(100)])

    names = tuple(
        (
            draw.randrange(5),
            draw.choice(["x", "", "a/b", f"n{draw.randrange(2000)}/{draw.getrandbits(64):016x}"]),
        )
        for _ in range(draw.choice([0, 0, 1, 3]))
    )
    items = tuple(
        (
            draw.randrange(5),
            number(),
            draw.choice([0, 0, number()]),
            tuple(draw.choice([draw.randrange(5), number()]) for _ in range(draw.choice([0, 2, 3, 4]))),
            draw.randbytes(draw.choice([0, 10])),
            draw.choice([0, 0, 1, 2, 9]),
        )
        for _ in range(draw.choice([0, 1, 4]))
    )
    numbers = tuple(number() for _ in range(draw.choice([0, 1, 2, 5])))
    return LogPacket(
        draw.choice([*range(11), 99]), names, numbers, items, draw.randbytes(draw.choice([0, 16]))
    )


@in_a_loop
async def test_whatever_a_peer_says_the_others_go_on_and_nothing_grows() -> None:
    ports = free_ports(2)
    options = {"streams_max": STREAMS_MAX, "held_max": HELD_MAX}
    async with node("a", ports[0], **options) as a, node("b", ports[1], ports[0], **options) as b:
        await b.wait_connected(20)
        draw = random.Random(5)
        for at in range(30):
            peer = Mallory(a, ports[0], f"mallory{at % 3}")
            await peer.connect()
            if at % 2:
                peer.greet()
            for _ in range(60):
                peer.say(packets(draw))
            await peer.flush()
            peer.writer.close()
            assert small(a._host.core)
        await a.broadcast(b"still here", copies=1)
        await b.broadcast(b"and here", copies=1)
        for group in (a, b):
            found = [message.payload for message in await take(group, 2)]
            assert b"still here" in found or b"and here" in found
            assert group._flow.closed is None
            group._host.core.check()
        assert sum(a.stats().discards.values()) > 100


@in_a_loop
async def test_floods_meet_the_limits() -> None:
    ports = free_ports(2)
    options = {"streams_max": STREAMS_MAX, "held_max": HELD_MAX}
    async with node("a", ports[0], **options) as a, node("b", ports[1], ports[0], **options) as b:
        await b.wait_connected(20)
        core: Any = a._host.core
        peer = Mallory(a, ports[0])
        await peer.connect()
        peer.greet()
        for at in range(2000):  # streams without end
            peer.say(LogPacket(HAVE, ((at + 1, f"n{at}/{at:016x}"),), (0, at + 1, 5)))
        await eventually(lambda: len(core.ledger.names) == STREAMS_MAX)
        await eventually(lambda: "mallory" not in a.stats().links)  # it was of no use any more
        await peer.connect()
        peer.greet()
        for at in range(2, 500):  # messages whose past never comes
            peer.say(LogPacket(DATA, (), (), ((0, at, 0, (), b"x", 0),)))
        for _ in range(500):  # requests for everything, again and again, and credits that were never used
            peer.say(LogPacket(WANT, (), (0, 1)), LogPacket(GOT, (), (2**40,)), LogPacket(FLOOR, (), (3,)))
        for at in range(100):  # addresses without end
            others = [(f"liar{at}-{each}", "127.0.0.1:1") for each in range(64)]
            peer.writer.write(known_frame(Known("127.0.0.1:2", others)))
        await peer.flush()
        await eventually(lambda: sum(a.stats().discards.values()) > 400)
        await asyncio.sleep(0.5)
        assert small(core)
        assert len(a._node.membership.acquaintances) <= KNOWN_MAX  # type: ignore[attr-defined]
        silent = [await asyncio.open_connection("127.0.0.1", ports[0]) for _ in range(300)]
        assert len(a._node.peering.strangers) <= 256
        await a.broadcast(b"on", copies=1)
        assert (await take(b, 1))[0].payload == b"on"
        for _, writer in silent:
            writer.close()
        peer.writer.close()
        core.check()


@in_a_loop
async def test_a_peer_that_never_reads_costs_a_window_and_no_more() -> None:
    ports = free_ports(2)
    async with node("a", ports[0]) as a, node("b", ports[1], ports[0]) as b:
        await b.wait_connected(20)
        peer = Mallory(a, ports[0])
        await peer.connect()
        peer.greet()
        await peer.flush()
        await eventually(lambda: "mallory" in a.stats().links)
        for _ in range(200):  # 200 MB, of which it takes nothing
            await a.broadcast(bytes(1_000_000))
            await a.receive()
            await b.receive()
        link = a.stats().links.get("mallory")
        assert link is None or link.unacknowledged_bytes <= 80 << 20
        assert any(event.kind == "closed" and event.peer == "mallory" for event in a.events())
        peer.writer.close()


@in_a_loop
async def test_what_a_name_may_ask_in_a_span_of_time_is_bounded() -> None:
    ports = free_ports(2)
    limits = {"streams_per_minute": 20, "lives_per_hour": 5, "wants_per_minute": 30}
    async with node("a", ports[0], **limits) as a, node("b", ports[1], ports[0], **limits) as b:
        await b.wait_connected(20)
        core: Any = a._host.core
        for number in range(50):
            await a.broadcast(b"%d" % number)

        async def gone(name: str) -> None:
            await eventually(lambda: name not in a.stats().links)

        for at in range(12):  # many lives of one name
            peer = Mallory(a, ports[0], "phoenix")
            await peer.connect()
            peer.say(LogPacket(HELLO, ((0, f"phoenix/{at:016x}"),), (1, 0, 0, 0)))
            await peer.flush()
            peer.writer.close()
            await gone("phoenix")
        assert len(core.people.streams["phoenix"]) == 5
        for at in range(6):  # many streams, in one session after the other
            peer = Mallory(a, ports[0], "gossip")
            await peer.connect()
            peer.greet()
            names = tuple((index, f"n{at}-{index}/{index:016x}") for index in range(1, 40))
            peer.say(LogPacket(HAVE, names, (0,)))
            await peer.flush()
            await gone("gossip")
        assert len(core.ledger.names) <= 2 + 5 + 20
        peer = Mallory(a, ports[0], "greedy")
        await peer.connect()
        peer.greet()
        peer.say(LogPacket(HAVE, ((1, core.origin),), (0,)))
        for _ in range(300):  # all of it, again and again
            peer.say(LogPacket(WANT, (), (1, 1)), LogPacket(GOT, (), (50,)))
        await peer.flush()
        await eventually(lambda: core.exchange.wants.used.get("greedy", (0, 0))[1] == 30)
        await a.broadcast(b"on", copies=1)
        assert (await take(b, 51))[-1].payload == b"on"
        peer.writer.close()
        core.check()
