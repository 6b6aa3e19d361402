"""Goldens of the wire: every packet of the scripted talks of live protocols, and all other frames."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from golden.talks import TALKS, Run
from whence.core.message import Packet
from whence.errors import FrameError, FrameTooLargeError, HandshakeError, PeerError, VersionError
from whence.protocols.log import wire as log
from whence.protocols.registry import lookup, names
from whence.session.addresses import Address
from whence.session.datagrams import Header, batches, digest_of
from whence.session.handshake import (
    GoneError,
    Identity,
    RefusedForNowError,
    RestartedError,
    error_code,
)
from whence.session.links import Link
from whence.session.overlay_wire import (
    ClaimLink,
    Give,
    More,
    OpeningLinks,
    Ready,
    ReleaseLink,
    Word,
    overlay_packet,
)
from whence.session.wire import (
    BYE_FRAME,
    HEADER,
    PING_FRAME,
    Ack,
    Answer,
    Bye,
    Challenge,
    ClockNews,
    Hello,
    Known,
    MembersNews,
    Refusal,
    RoomNews,
    ack_frame,
    answer_frame,
    challenge_frame,
    clock_frame,
    data_frame,
    error_frame,
    hello_frame,
    known_frame,
    members_frame,
    packets_frame,
    room_frame,
)

LIVE = [name for name, talk in TALKS.items() if lookup(talk.protocol).live]
MEMBERS = ("alice", "bob", "carol")
SESSION, PEER_SESSION, NONCE = 0x0123456789ABCDEF, 0x0FEDCBA987654321, 0x1122334455667788
TOGETHER = (2, 15, 16, 40)  # packets in one frame: the head of the array changes its length
NUMBERS = (0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**63 - 1)

WORDS: list[Word] = [
    Ready("127.0.0.1:7001"),
    Give(0, [("bob", "127.0.0.1:7002"), ("carol", "[::1]:7003")]),
    Give(1, []),
    Give(2, [("ö" * 40, "example.org:65535")]),
    Give(3, [("bob", "127.0.0.1:7002")]),
    OpeningLinks([]),
    OpeningLinks(["bob", "carol"]),
    ClaimLink(),
    ReleaseLink(),
    More([]),
    More(["alice", "bob"]),
]
REFUSALS: tuple[type[PeerError], ...] = (
    RestartedError,
    GoneError,
    RefusedForNowError,
    HandshakeError,
    VersionError,
    FrameTooLargeError,
    FrameError,
)
ERRORS = [kind("what", f"the reason of {kind.__name__}", "the fix") for kind in REFUSALS]


def packets(name: str) -> list[Packet]:
    """What is sent in a talk, in order."""
    return Run(TALKS[name]).run().sent


def log_packets() -> list[log.LogPacket]:
    """One packet of each kind under protocol `log`: a talk alone does not come to all of them."""
    items = ((0, 1, 0, (), b"hello", log.APP), (1, 300, 2**40, (0, 1, 0), b"", log.GONE))
    return [
        log.LogPacket(log.HELLO, ((0, "alice/0123456789abcdef"),), (log.VERSION, log.TIMED, 1, 2**63)),
        log.LogPacket(log.TREE, (), (1, 0, 255), (), bytes(range(32))),
        log.LogPacket(log.HAVE, (), (log.WHOLE, 0, 1, 1, 65_536)),
        log.LogPacket(log.DATA, ((1, "ö/fedcba9876543210"),), (), items),
        log.LogPacket(log.GOT, (), (256,)),
        log.LogPacket(log.WANT, (), (0, 2, 1, 301)),
        log.LogPacket(log.PRUNE, (), (0, 1)),
        log.LogPacket(log.MAIN),
        log.LogPacket(log.FLOOR, (), (log.ASK,)),
        log.LogPacket(log.NEAR, (), (0, 1, 1, 0)),
        log.LogPacket(log.BYE),
    ]


def identity(protocol: str, *, listed: bool = True) -> Identity:
    """A member with the protocol's default parameters."""
    parameters = {key: json.dumps(value) for key, value in lookup(protocol).parameters.items()}
    return Identity("room", protocol, parameters, MEMBERS, 1 << 20, "alice", SESSION, listed)


def hellos() -> list[Hello]:
    """First meetings of every protocol, a meeting again, and one of a group without a list of members."""
    strange = Link("bob", Address("127.0.0.1", 7002), dials=True)
    known = Link("bob", Address("127.0.0.1", 7002), dials=True)
    known.peer_session = PEER_SESSION
    known.incoming.received = 300
    first = [identity(protocol).hello(strange) for protocol in names() if lookup(protocol).live]
    again = replace(identity("vector").hello(known), nonce=NONCE)
    return [*first, again, identity("prc", listed=False).hello(strange)]


def greetings() -> dict[str, tuple[bytes, Any]]:
    """Frames of the handshake, and what they say."""
    found: dict[str, tuple[bytes, Any]] = {}
    for at, hello in enumerate(hellos()):
        found[f"HELLO {at} {hello.protocol}"] = hello_frame(hello), hello
    for number in NUMBERS:
        found[f"CHALLENGE {number}"] = challenge_frame(number), Challenge(number)
        found[f"ANSWER {number}"] = answer_frame(number), Answer(number)
    for error in ERRORS:
        code = error_code(error)
        found[f"ERROR {code}"] = error_frame(code, error), Refusal(code, error.reason, error.fix)
    return found


def controls() -> dict[str, tuple[bytes, Any]]:
    """Frames between packets, and what they say."""
    found: dict[str, tuple[bytes, Any]] = {"PING": (PING_FRAME, None), "BYE": (BYE_FRAME, Bye())}
    for number in NUMBERS:
        found[f"ACK {number}"] = ack_frame(number), Ack(number)
        clock = ClockNews(number, NUMBERS[-1] - number, 1)
        found[f"CLOCK {number}"] = clock_frame(clock), clock
    for members in (MembersNews({}, []), MembersNews({"bob": SESSION, "ö" * 40: 1}, ["carol"])):
        found[f"MEMBERS {len(members.retired)}"] = members_frame(members), members
    for room in (RoomNews([], []), RoomNews(["bob"], ["carol", "ö" * 40])):
        found[f"ROOM {len(room.full)}"] = room_frame(room), room
    for known in (Known("127.0.0.1:7001"), Known("", [("bob", "[::1]:7002"), ("ö" * 40, "example.org:1")])):
        found[f"KNOWN {len(known.others)}"] = known_frame(known), known
    return found


def batches_of_packets() -> list[bytes]:
    """Packets of a talk that leave together, in one frame."""
    encoded = [data_frame(packet)[HEADER.size :] for packet in packets("vector")]
    return [packets_frame(b"".join(encoded[:count]), count) for count in TOGETHER]


def header() -> Header:
    """What opens the datagrams of a member."""
    return Header(1, digest_of(identity("tdca")), SESSION, PEER_SESSION)


def datagrams() -> list[bytes]:
    """What a member sends over datagrams in a talk."""
    frames = [data_frame(packet) for packet in packets("odca-exact")[:30]]
    return [header().pack() + body for body in batches(frames, 400)]


def _frames() -> dict[str, Any]:
    return {
        "packets": {name: [data_frame(packet).hex() for packet in packets(name)] for name in LIVE},
        "log packets": [data_frame(packet).hex() for packet in log_packets()],
        "greetings": {name: frame.hex() for name, (frame, _) in greetings().items()},
        "controls": {name: frame.hex() for name, (frame, _) in controls().items()},
        "words": [data_frame(overlay_packet("alice", word)).hex() for word in WORDS],
        "batches": [frame.hex() for frame in batches_of_packets()],
        "datagrams": [datagram.hex() for datagram in datagrams()],
    }


GOLDENS = {"frames": _frames}
