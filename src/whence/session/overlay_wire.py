"""The words of nodes without a list of members about their links: names with addresses.

These words travel in the same queue as the protocol's packets, as packets of kind `OVERLAY` whose payload is
one of the structures below: what is said about a link must not overtake what was sent over it.

    Ready       first on every link, from both ends: this end is up; where the speaker listens
    Give        arcs for the receiver's view: of a shuffle, its answer, or to a joiner; the giver mediates
                (of a giver that leaves: whom to name in its stead when it has left)
    OpeningLinks  the reply to the oldest unanswered Give: the arcs for which the receiver opens a link
    ClaimLink   the speaker needs this link (again)
    ReleaseLink the speaker does not need it: an end that does not need it either closes it
    More        the speaker has too few links; it knows these processes already
    Oldest      the oldest process of the speaker's part of the group, and what it counts (parts.py)
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from whence.core.message import NodeId
from whence.errors import FrameError, ParameterError
from whence.protocols.prc.wire import PrcPacket
from whence.session.addresses import Address, parse_address

OVERLAY = 16  # beyond the kinds of protocols/prc/wire.py, with room between
ARCS_MAX = 256  # of one Give; a view has some ln(N) + c
BEGINS, ANSWERS, INTRODUCES, LEAVES = range(4)  # why arcs are given

# No NUL: the core writes two names with one between them.
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00]+$")]
Where: TypeAlias = Annotated[str, Meta(min_length=3, max_length=300)]
Arc: TypeAlias = tuple[Name, Where]


class Ready(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """This end of the link is up; where the speaker listens."""

    listens: Where


class Give(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Arcs for the receiver's view."""

    why: Annotated[int, Meta(ge=BEGINS, le=LEAVES)]
    arcs: Annotated[list[Arc], Meta(max_length=ARCS_MAX)]


class OpeningLinks(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """The reply to the oldest unanswered Give: the arcs for which the receiver opens a link."""

    names: Annotated[list[Name], Meta(max_length=ARCS_MAX)]


class ClaimLink(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """The speaker needs this link, again."""


class ReleaseLink(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """The speaker does not need this link."""


class More(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """The speaker has too few links; it knows these nodes already."""

    known: Annotated[list[Name], Meta(max_length=ARCS_MAX)]


class Oldest(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """The oldest process of the speaker's part of the group, and what it counts."""

    born_us: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    name: Name
    count: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    age_ms: Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]  # of the count
    is_settled: bool  # the speaker has known it for some time


Word: TypeAlias = Ready | Give | OpeningLinks | ClaimLink | ReleaseLink | More | Oldest

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Word] = msgspec.msgpack.Decoder(Word)


def overlay_packet(speaker: NodeId, word: Word) -> PrcPacket:
    """The packet that carries `word`."""
    return PrcPacket(OVERLAY, speaker, 1, _encode(word), (), ())


def word_of(packet: PrcPacket, peer: NodeId) -> Word:
    """What `peer` says; raises if no correct node says so."""
    if packet.origin != peer or packet.number != 1 or packet.route or packet.messages:
        raise _nonsense("it has fields that it must not have")
    try:
        return _decoder.decode(packet.payload)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise _nonsense(f"it does not decode: {error}") from None


def address_of(text: str) -> Address:
    """Where a node listens, as a peer wrote it."""
    try:
        return parse_address(text, "address")
    except ParameterError as error:
        raise _nonsense(error.reason) from None


def _nonsense(reason: str) -> FrameError:
    return FrameError("overlay packet", reason, "Check that the peer runs this release")
