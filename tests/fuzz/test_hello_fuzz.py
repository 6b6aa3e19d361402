"""Mutated handshakes: whatever is said, no node closes, no link of a third party is touched, no name leaks.

A stranger knows all that a member says in the clear, changes some of it, and answers challenges as it likes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import whence
from session.pairs import End, Wire, World, listed
from support.keyring import client_context, issue, keys_for
from support.living import eventually, free_ports, in_a_loop, live_group, quick_limits, take
from whence.errors import PeerError
from whence.protocols.baselines.fifo import FifoPacket
from whence.session import peering, session
from whence.session.admission import Listed, Verdict
from whence.session.handshake import Certified
from whence.session.links import Link, LinkState
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
SEED = os.environ.get("WHENCE_HELLO_SEED", "slow")  # of the slow runs
WORLD = 500  # attacks on one group, before the next one
SECRET = (b"anna", b"bert", b"carl", b"parlour")  # no stranger is told any of these


def mutated(draw: random.Random, hello: Hello, sessions: list[int], names: tuple[str, ...]) -> bytes:
    """A HELLO with some of its fields changed, said by one of `names`, or bytes that were one."""
    number = draw.choice([0, 1, 2, *sessions, draw.getrandbits(62), 2**63 - 1])
    changes: dict[str, Any] = {
        "group": draw.choice(["parlour", "kitchen", "p"]),
        "protocol": draw.choice(["fifo", "vector"]),
        "parameters": draw.choice([hello.parameters, {}, {"relay": "true"}]),
        "members": draw.choice([hello.members, [], ["anna"], ["x"] * 9]),
        "max_payload_bytes": draw.choice([hello.max_payload_bytes, 0, number]),
        "node": draw.choice(names),
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
    """Three members in memory, all connected: carl is who is spoken to, by somebody who is one of `names`."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.world = World()
        options: dict[str, Any] = {"members": MEMBERS, "group": "parlour"}
        self.anna, self.bert, self.carl = (
            listed(self.world, name, session=1000 + at, **options) for at, name in enumerate(MEMBERS)
        )
        self.others = {"anna": self.anna, "bert": self.bert}
        for end in self.others.values():
            self.world.connect(end, self.carl)
        self.world.carry()
        self.hello = self.anna.identity.hello(self.anna.links["carl"])
        self.sessions = [1000, 1001, 1002, 1100, 1101, 1102]
        self.names = names
        self.said = self.let_in = 0

    def attack(self, draw: random.Random, *, secured: bool) -> None:
        """One connection; `secured`: TLS has proved who calls, a member or one of another group."""
        before = {name: self.seen(name) for name in self.others}
        theirs = Wire(self.carl, None, draw.getrandbits(62))
        theirs.session.begin("127.0.0.1")
        peer = None
        if secured:
            group = draw.choice(["parlour", "parlour", "parlour", "kitchen"])
            peer = Certified(group, draw.choice([name for name in self.names if name != "carl"]), 1e12)
        theirs.session.opened(peer)
        # Who has a certificate says any name: the certificate must count.
        theirs.take(mutated(draw, self.hello, self.sessions, (*MEMBERS, "x") if secured else self.names))
        greeting = FrameReader(FifoPacket, 1000).greeting(theirs.sent) if theirs.sent else None
        if isinstance(greeting, Challenge) and draw.random() < 0.8:
            theirs.take(answer_frame(greeting.nonce))
        elif draw.random() < 0.3:
            theirs.take(draw.choice([challenge_frame(5), answer_frame(7), HEADER.pack(1, 9)]))
        link = theirs.session.link
        is_stranger = peer is None or peer.group != "parlour"
        if link is not None and peer is not None:
            assert link.peer == peer.node, "nobody speaks in another's name"
        if link is None and is_stranger:
            assert not any(name in theirs.sent for name in SECRET), theirs.sent
        theirs.lose(PeerError("connection", "it was cut", "Wait"))
        self.check(before, None if link is None else link.peer)
        if draw.random() < 0.01:
            self.speak()

    def seen(self, name: str) -> tuple[object, ...]:
        """What carl has and knows of a link; a channel is what a stranger would have to take."""
        link = self.carl.links[name]
        return (link.channel, link.state, link.peer_session, link.peer_life, link.received, link.out.sent)

    def check(self, before: dict[str, tuple[object, ...]], taken: str | None) -> None:
        """In plain text a stranger can speak as the member that it names, and as no other."""
        ended = ("failed", "gone", "retired", "stopped")
        assert not any(event.startswith(ended) for event in self.carl.events), self.carl.events
        for name, seen in before.items():
            if name != taken:
                assert self.seen(name) == seen, name
                assert seen[0] is not None, name
        if taken is not None:
            self.let_in += 1
            self.again(self.others[taken])

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
        """Who was never spoken for has lost nothing, in either direction; all others have a link again."""
        self.said += 1
        for name, end in self.others.items():
            word = b"%s %d" % (name.encode(), self.said)
            end.say(word)
            self.carl.say(b"to " + word)
            self.world.carry()
            if name not in self.names:
                assert self.carl.got.count(word) == 1, (word, self.carl.got)
                assert end.got.count(b"to " + word) == 1, (word, end.got)
            elif self.carl.links[name].channel is None:  # the two have found out that somebody came between
                self.again(end)
        self.carl.events.clear()
        for end in (self.anna, self.bert, self.carl):
            end.host.inbox.clear()


def carl_errors(end: End) -> list[str]:
    return [str(event.error) for event in end.journal.events if event.error is not None][-5:]


def fuzz(count: int, seed: str, *, secured: bool) -> None:
    """Worlds in turn: in every other one nobody speaks as bert, whose link must know nothing of it all."""
    draw = random.Random(seed)
    let_in = 0
    for number in range(0, count, WORLD):
        spares = number // WORLD % 2 == 0
        victims = Victims(("anna", "carl", "x") if spares else (*MEMBERS, "x"))
        for _ in range(min(WORLD, count - number)):
            victims.attack(draw, secured=secured)
        victims.speak()
        let_in += victims.let_in
    assert 0 < let_in < count, "mutants that are all refused, or all let in, try nothing"


@pytest.fixture(autouse=True)
def _says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Every refusal is a warning: a million of them would be kept for the report."""
    caplog.set_level(logging.CRITICAL, "whence.live")


@pytest.mark.parametrize("secured", [False, True])
def test_mutated_handshakes_end_nothing_and_tell_nothing(secured: bool) -> None:
    fuzz(1_500, "fast", secured=secured)


def _tells(patch: pytest.MonkeyPatch) -> None:
    """W2 as it was: whoever is refused is told the reason, with the names in it."""
    patch.setattr(peering, "for_stranger", lambda error: error)


def _believes(patch: pytest.MonkeyPatch) -> None:
    """A certificate proves that its owner is a member, and not which one."""
    patch.setattr(session, "check_claim", lambda peer, hello: None)


def _closes(patch: pytest.MonkeyPatch) -> None:
    """W2 as it was: who speaks to another life than ours proves that ours is over."""
    judge = Listed.judge

    def believes(self: Listed, hello: Hello, dialled: Link | None, now_s: float, *, parting: bool) -> Verdict:
        for link in self._links.values() if hello.peer_session not in (0, 1002) else ():
            link.end(LinkState.GIVEN_UP)
        return judge(self, hello, dialled, now_s, parting=parting)

    patch.setattr(Listed, "judge", believes)


@pytest.mark.parametrize(
    ("spoil", "secured"), [(_tells, False), (_tells, True), (_believes, True), (_closes, False)]
)
def test_the_fuzzer_finds_what_it_looks_for(
    spoil: Callable[[pytest.MonkeyPatch], None], secured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch)
    with pytest.raises(AssertionError):
        fuzz(1_500, "fast", secured=secured)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("secured", [False, True])
def test_a_million_mutated_handshakes(secured: bool, part: int) -> None:
    fuzz(100_000, f"{SEED} {part}", secured=secured)


class Caller:
    """Who dials a live node, again and again: in plain text, or with the keys of `context`."""

    def __init__(
        self, group: whence.Group, seed: str, context: ssl.SSLContext | None, *, is_member: bool
    ) -> None:
        node = self.node = group._node
        self.address = node.settings.listen
        self.hello = msgspec.structs.replace(
            node.identity.hello(node.links["anna"]), node="anna", to=node.settings.node, peer_session=0
        )
        self.draw = random.Random(seed)
        self.context = context
        self.is_member = is_member
        self.refused = self.let_in = self.unheard = 0

    async def call(self, count: int) -> None:
        for _ in range(0, count, 10):
            await asyncio.gather(*[self._one() for _ in range(10)])

    async def _one(self) -> None:
        said = b""
        try:
            reader, writer = await asyncio.open_connection(
                *self.address, ssl=self.context, server_hostname=None if self.context is None else ""
            )
        except (ConnectionError, ssl.SSLError):  # TLS has refused it
            self.unheard += 1
            return
        node = self.node
        sessions = [node.identity.session, node.identity.lives.now]
        names = ("anna", "carl", "x") if self.context is None else (*MEMBERS, "x")
        try:
            writer.write(mutated(self.draw, self.hello, sessions, names))
            async with asyncio.timeout(0.3):
                said = await reader.read(65536)
                greeting = FrameReader(node.packet_type, 1 << 20).greeting(said)
                if isinstance(greeting, Challenge):
                    writer.write(answer_frame(greeting.nonce))
                    said = await reader.read(65536)
                    greeting = FrameReader(node.packet_type, 1 << 20).greeting(said)
        except (TimeoutError, ConnectionError, PeerError, ssl.SSLError):
            greeting = None
        finally:
            writer.transport.abort()
        is_in = isinstance(greeting, Hello)
        self.let_in += is_in
        self.refused += isinstance(greeting, Refusal)
        self.unheard += not said
        if not self.is_member:
            assert is_in <= (self.context is None), "keys of others open nothing"
            assert is_in or not any(name in said for name in SECRET), said


async def _sockets(count: int, seed: str, keys: Path | None, others: Path) -> None:
    """Nobody speaks as bert: the link between bert and carl is that of third parties."""
    peers = {name: f"127.0.0.1:{port}" for name, port in zip(MEMBERS, free_ports(3), strict=True)}
    options: dict[str, Any] = {"limits": quick_limits(handshake_timeout_s=1.0), "group": "parlour"}
    callers: list[tuple[ssl.SSLContext | None, bool]] = [(None, False)]
    if keys is not None:
        options["keys"] = keys
        issue(keys, "cook", "kitchen", "anna")
        foreign = client_context(keys_for(others, "anna", group="parlour"), "anna", trusts=keys)
        callers = [
            (client_context(keys, "anna"), True),
            (client_context(keys, "cook"), False),
            (foreign, False),
        ]
    async with live_group("bert", "carl", peers=peers, connected=False, **options) as [bert, carl]:
        await eventually(lambda: bert.stats().links["carl"].state == "connected")
        before = carl._node.links["bert"].channel
        for number, (context, is_member) in enumerate(callers):
            caller = Caller(carl, f"{seed} {number}", context, is_member=is_member)
            await caller.call(count // len(callers))
            assert (caller.let_in > 0) == (is_member or keys is None)
            assert caller.refused + caller.unheard > 0
        assert carl._node.links["bert"].channel is before is not None
        assert not carl._node.failed
        assert not bert._node.failed
        await bert.broadcast(b"still here")
        assert b"still here" in [message.payload for message in await take(carl, 1)]
        for group in (bert, carl):
            group._node.limits = quick_limits(leave_timeout_s=0.1)


@pytest.mark.parametrize("secured", [False, True])
@in_a_loop
async def test_mutated_handshakes_over_sockets(secured: bool, tmp_path: Path) -> None:
    keys = keys_for(tmp_path / "keys", *MEMBERS, group="parlour") if secured else None
    await _sockets(90, "fast", keys, tmp_path / "others")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("secured", [False, True])
@in_a_loop
async def test_thousands_of_mutated_handshakes_over_sockets(secured: bool, tmp_path: Path) -> None:
    keys = keys_for(tmp_path / "keys", *MEMBERS, group="parlour") if secured else None
    await _sockets(15_000, SEED, keys, tmp_path / "others")
