"""Mutated handshakes: whatever is said, no node closes, no link of a third party is touched, no name leaks.

A stranger knows all that a member says in the clear, changes some of it, and answers challenges as it likes.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest

import whence
from session.pairs import End, Wire, World, listed
from support.keyring import client_context, keys_for
from support.living import free_ports, in_a_loop, live_group, quick_limits, take
from whence.errors import PeerError
from whence.protocols.baselines.fifo import FifoPacket
from whence.session.handshake import Certified
from whence.session.wire import (
    EARLIER_MAX,
    HEADER,
    Challenge,
    FrameReader,
    Hello,
    Refusal,
    answer_frame,
    challenge_frame,
    hello_frame,
)

MEMBERS = ("anna", "bert", "carl")
SECRET = (b"anna", b"bert", b"carl", b"parlour")  # no stranger is told any of these


def mutated(draw: random.Random, hello: Hello, sessions: list[int]) -> bytes:
    """A HELLO with some of its fields changed, or bytes that were one."""
    number = draw.choice([0, 1, 2, *sessions, draw.getrandbits(62), 2**63 - 1])
    changes: dict[str, Any] = {
        "group": draw.choice(["parlour", "kitchen", "p"]),
        "protocol": draw.choice(["fifo", "vector"]),
        "parameters": draw.choice([hello.parameters, {}, {"relay": "true"}]),
        "members": draw.choice([hello.members, [], ["anna"], ["x"] * 9]),
        "max_payload_bytes": draw.choice([hello.max_payload_bytes, 0, number]),
        "node": draw.choice([*MEMBERS, "x"]),
        "to": draw.choice([*MEMBERS, "x"]),
        "session": number,
        "peer_session": draw.choice([0, number, *sessions]),
        "received": draw.choice([0, 1, 5, number]),
        "nonce": number,
        "life": draw.choice([0, number, *sessions]),
        "earlier": draw.choice([[], sessions, [number] * EARLIER_MAX]),
        "returns": draw.random() < 0.5,
    }
    chosen = draw.sample(sorted(changes), draw.choice([0, 1, 1, 2, 3, 8]))
    frame = hello_frame(msgspec.structs.replace(hello, **{name: changes[name] for name in chosen}))
    if draw.random() < 0.1:
        at = draw.randrange(len(frame))
        frame = frame[:at] + bytes([draw.randrange(256)]) + frame[at + 1 :]
    return frame[: draw.randrange(len(frame))] if draw.random() < 0.05 else frame


class Victims:
    """Three members in memory, all connected: carl is who is spoken to."""

    def __init__(self) -> None:
        self.world = World()
        options: dict[str, Any] = {"members": MEMBERS, "group": "parlour"}
        self.anna, self.bert, self.carl = (
            listed(self.world, name, session=1000 + at, **options) for at, name in enumerate(MEMBERS)
        )
        for end in (self.anna, self.bert):
            self.world.connect(end, self.carl)
        self.world.carry()
        self.hello = self.anna.identity.hello(self.anna.links["carl"])
        self.sessions = [1000, 1001, 1002, 1100, 1101, 1102]
        self.said = 0

    def attack(self, draw: random.Random, *, secured: bool) -> None:
        """One connection; `secured`: TLS has proved who calls, a member or one of another group."""
        theirs = Wire(self.carl, None, draw.getrandbits(62))
        theirs.session.begin("127.0.0.1")
        peer = None
        if secured:
            group = draw.choice(["parlour", "parlour", "parlour", "kitchen"])
            peer = Certified(group, draw.choice(["anna", "bert", "x"]), 1e12)
        theirs.session.opened(peer)
        pieces = [mutated(draw, self.hello, self.sessions)]
        try:
            theirs.take(pieces[0])
            reader = FrameReader(FifoPacket, 1000)
            greeting = reader.greeting(theirs.sent) if theirs.sent else None
            if isinstance(greeting, Challenge) and draw.random() < 0.8:
                theirs.take(answer_frame(greeting.nonce))
            elif draw.random() < 0.3:
                theirs.take(draw.choice([challenge_frame(5), answer_frame(7), HEADER.pack(1, 9)]))
        except PeerError:
            raise AssertionError("a fault of a stranger is nobody's exception") from None
        is_in = theirs.session.link is not None
        is_stranger = peer is None or peer.group != "parlour"
        if is_in and peer is not None:
            assert theirs.session.link.peer == peer.node, "nobody speaks in another's name"  # type: ignore[union-attr]
        if not is_in and is_stranger:
            assert not any(name in theirs.sent for name in SECRET), theirs.sent
        if not is_in:
            theirs.lose(PeerError("connection", "it was cut", "Wait"))
        self.check(draw, stands_in=theirs if is_in else None)

    def check(self, draw: random.Random, stands_in: Wire | None) -> None:
        carl, bert = self.carl, self.carl.links["bert"]
        assert not any(event.startswith(("failed", "gone", "retired")) for event in carl.events), carl.events
        if stands_in is not None:
            # In plain text a stranger can speak as the member that it names, and as no other.
            name = stands_in.session.link.peer  # type: ignore[union-attr]
            stands_in.lose(PeerError("connection", "it was cut", "Wait"))
            end = {"anna": self.anna, "bert": self.bert}[name]
            other = {"anna": self.bert, "bert": self.anna}[name]
            assert carl.links[other.identity.node].channel is not None
            self.again(end)
        assert bert.channel is not None or carl.links["anna"].channel is not None
        if draw.random() < 0.01:
            self.speak()

    def again(self, end: End) -> None:
        """The member whose connection was taken dials again, as it does."""
        for pair in [each for each in self.world.pairs if each[0].end is end]:
            self.world.cut(pair)
        for _ in range(3):
            self.world.connect(end, self.carl)
            self.world.carry()
            if end.links["carl"].channel is not None:
                return
            self.world.now_s += 10.0
        raise AssertionError(carl_errors(self.carl))

    def speak(self) -> None:
        self.said += 1
        for end in (self.anna, self.bert):
            before = len(self.carl.got)
            end.say(b"%d" % self.said)
            self.world.carry()
            assert len(self.carl.got) >= before
        self.carl.events.clear()
        self.carl.host.inbox.clear()


def carl_errors(end: End) -> list[str]:
    return [str(event.error) for event in end.journal.events if event.error is not None][-5:]


def fuzz(count: int, seed: str, *, secured: bool) -> None:
    draw, victims = random.Random(seed), Victims()
    for number in range(count):
        if number % 5000 == 4999:
            victims = Victims()
        victims.attack(draw, secured=secured)


@pytest.mark.parametrize("secured", [False, True])
def test_mutated_handshakes_end_nothing_and_tell_nothing(secured: bool) -> None:
    fuzz(1_500, "fast", secured=secured)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("secured", [False, True])
def test_a_million_mutated_handshakes(secured: bool, part: int) -> None:
    fuzz(100_000, f"slow {part}", secured=secured)


async def over_sockets(group: whence.Group, count: int, seed: str, context: ssl.SSLContext | None) -> None:
    """The same on real connections; `context` is that of a stranger with a certificate of its own making."""
    node = group._node
    host, port = node.settings.listen
    hello = msgspec.structs.replace(
        node.identity.hello(node.links["anna"]), node="anna", to=node.settings.node, peer_session=0
    )
    draw = random.Random(seed)

    async def one() -> None:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=None if context is None else ""
        )
        said = b""
        try:
            writer.write(mutated(draw, hello, [node.identity.session, node.identity.lives.now]))
            async with asyncio.timeout(1.0):
                said = await reader.read(65536)
                frames = FrameReader(node.packet_type, 1 << 20)
                greeting = frames.greeting(said)
                if isinstance(greeting, Challenge):
                    writer.write(answer_frame(greeting.nonce))
                    said = await reader.read(65536)
                    greeting = frames.greeting(said)
                if isinstance(greeting, Refusal):
                    assert not any(name in said for name in SECRET), said
        except (TimeoutError, ConnectionError, PeerError, ssl.SSLError):
            pass
        finally:
            writer.transport.abort()

    for _ in range(0, count, 10):
        await asyncio.gather(*[one() for _ in range(10)], return_exceptions=True)


async def _sockets(count: int, seed: str, keys: Path | None) -> None:
    peers = {name: f"127.0.0.1:{port}" for name, port in zip(MEMBERS, free_ports(3), strict=True)}
    options: dict[str, Any] = {"limits": quick_limits(handshake_timeout_s=1.0), "protocol": "vector"}
    if keys is not None:
        options["keys"] = keys
    async with live_group("bert", "carl", peers=peers, connected=False, **options) as [bert, carl]:
        context = None if keys is None else client_context(keys, "anna")
        await over_sockets(carl, count, seed, context)
        async with asyncio.timeout(30):
            while bert.stats().links["carl"].state != "connected":  # noqa: ASYNC110 - a test looks from outside
                await asyncio.sleep(0.05)
            await bert.broadcast(b"still here")
            while b"still here" not in [message.payload for message in await take(carl, 1)]:
                pass
        assert not carl._node.failed
        for group in (bert, carl):
            group._node.limits = quick_limits(leave_timeout_s=0.1)


@pytest.mark.parametrize("secured", [False, True])
@in_a_loop
async def test_mutated_handshakes_over_sockets(secured: bool, tmp_path: Path) -> None:
    await _sockets(100, "fast", keys_for(tmp_path, *MEMBERS) if secured else None)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("secured", [False, True])
@in_a_loop
async def test_thousands_of_mutated_handshakes_over_sockets(secured: bool, tmp_path: Path) -> None:
    await _sockets(4_000, "slow", keys_for(tmp_path, *MEMBERS) if secured else None)
