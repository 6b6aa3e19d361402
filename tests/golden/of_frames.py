"""Goldens of the wire: every packet of the scripted talks of live protocols, and all other frames."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from golden.talks import TALKS, Run
from whence.core.message import Packet
from whence.errors import FrameError, FrameTooLargeError, HandshakeError, PeerError, VersionError
from whence.protocols.registry import lookup, names
from whence.session.addresses import Address
from whence.session.datagrams import Header, batches, digest_of
from whence.session.handshake import (
    GoneError,
    Identity,
    OpenIdentity,
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
    PING_FRAME,
    Ack,
    Answer,
    Bye,
    Challenge,
    Hello,
    Refusal,
    ack_frame,
    answer_frame,
    challenge_frame,
    data_frame,
    error_frame,
    hello_frame,
)

LIVE = [name for name, talk in TALKS.items() if lookup(talk.protocol).live]
MEMBERS = ("alice", "bob", "carol")
SESSION, PEER_SESSION, NONCE = 0x0123456789ABCDEF, 0x0FEDCBA987654321, 0x1122334455667788
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


def identity(protocol: str, kind: type[Identity] = Identity) -> Identity:
    """A member with the protocol's default parameters."""
    parameters = {key: json.dumps(value) for key, value in lookup(protocol).parameters.items()}
    return kind("room", protocol, parameters, MEMBERS, 1 << 20, "alice", SESSION)


def hellos() -> list[Hello]:
    """First meetings of every protocol, a meeting again, and one of a group without a list of members."""
    strange = Link("bob", Address("127.0.0.1", 7002), dials=True)
    known = Link("bob", Address("127.0.0.1", 7002), dials=True)
    known.peer_session = PEER_SESSION
    known.incoming.received = 300
    first = [identity(protocol).hello(strange) for protocol in names() if lookup(protocol).live]
    again = replace(identity("vector").hello(known), nonce=NONCE)
    return [*first, again, identity("prc", OpenIdentity).hello(strange)]


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
    return found


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
        "greetings": {name: frame.hex() for name, (frame, _) in greetings().items()},
        "controls": {name: frame.hex() for name, (frame, _) in controls().items()},
        "words": [data_frame(overlay_packet("alice", word)).hex() for word in WORDS],
        "datagrams": [datagram.hex() for datagram in datagrams()],
    }


GOLDENS = {"frames": _frames}
