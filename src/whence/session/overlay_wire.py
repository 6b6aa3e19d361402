"""What processes without a list of members tell each other about links: names with addresses.

These words travel in the same queue as the protocol's packets, as packets of kind `OVERLAY` whose payload is
one of the structures below: what is said about a link must not overtake what was sent over it.

    Ready       first on every link, from both ends: this end is up; where the speaker listens
    Give        arcs for the receiver's view: of a shuffle, its answer, or to a joiner; the giver mediates
                (of a giver that leaves: whom to name in its stead when it has left)
    Opening     the answer to the oldest unanswered Give: for which of its arcs the receiver opens a link
    Claim       the speaker needs this link (again)
    Release     the speaker does not need it: whoever does not need it either closes it
    More        the speaker has too few links; it knows these processes already
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from whence.core.message import NodeId
from whence.errors import FrameError, ParameterError
from whence.protocols.prc.wire import PrcPacket
from whence.session.addresses import Address, parse_address

OVERLAY = 16  # beyond the kinds of prc_wire.py, with room between
ARCS_MAX = 256  # of one Give; a view has some ln(N) + c
BEGINS, ANSWERS, INTRODUCES, LEAVES = range(4)  # why arcs are given

# No NUL: the core writes two names with one between them.
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00]+$")]
Where: TypeAlias = Annotated[str, Meta(min_length=3, max_length=300)]
Arc: TypeAlias = tuple[Name, Where]


class Ready(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """See the module."""

    listens: Where


class Give(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """See the module."""

    why: Annotated[int, Meta(ge=BEGINS, le=LEAVES)]
    arcs: Annotated[list[Arc], Meta(max_length=ARCS_MAX)]


class Opening(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """See the module."""

    names: Annotated[list[Name], Meta(max_length=ARCS_MAX)]


class Claim(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """See the module."""


class Release(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """See the module."""


class More(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """See the module."""

    known: Annotated[list[Name], Meta(max_length=ARCS_MAX)]


Word: TypeAlias = Ready | Give | Opening | Claim | Release | More

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Word] = msgspec.msgpack.Decoder(Word)


def overlay_packet(speaker: NodeId, word: Word) -> PrcPacket:
    """The packet that carries `word`."""
    return PrcPacket(OVERLAY, speaker, 1, _encode(word), (), ())


def word_of(packet: PrcPacket, peer: NodeId) -> Word:
    """What `peer` says; raises if no correct process says so."""
    if packet.origin != peer or packet.number != 1 or packet.route or packet.messages:
        raise _nonsense("it has fields that it must not have")
    try:
        return _decoder.decode(packet.payload)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise _nonsense(f"it does not decode: {error}") from None


def address_of(text: str) -> Address:
    """Where somebody listens, as a peer wrote it."""
    try:
        return parse_address(text, "address")
    except ParameterError as error:
        raise _nonsense(error.reason) from None


def _nonsense(reason: str) -> FrameError:
    return FrameError("overlay packet", reason, "Check that the peer runs this release")
