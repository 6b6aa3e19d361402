"""Lives: what one opening of a node broadcasts is a stream of its own; numbers never continue over an open.

A restored file cannot be told from a clean restart by looking at it, so the only safe rule is that every open
begins a new life: 64 random bits, drawn by the host and given to the core. The stream of a life is the text
`name/life`, with the life as 16 hexadecimal digits; it is the `origin` of the life's messages wherever
messages are named: in cores, on the wire, in traces. An application sees its parts.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from whence.core.message import NodeId
from whence.core.rng import mix64, purpose
from whence.errors import ParameterError

# What a host tells the core of a listed member, as commands (so that the trace has them, and a replay does
# the same):
#
#     begin BASE          this node begins a later life: its numbers go on after BASE, so that none is used
#                         twice, whatever the life before it has broadcast and its store has lost
#     welcome PEER COUNT  PEER is another life than the one that was known: tell it where this node is. COUNT
#                         packets for it are queued, and will be given to it after that
#     cut-off PEER        this node has no connection to PEER
#     back PEER           it has one again
#     shape TEXT          the system of servers has changed (overlay/shape.py)
BEGIN, WELCOME, CUT_OFF, BACK, SHAPE = "begin", "welcome", "cut-off", "back", "shape"

# Why messages are missed.
BEFORE, OVER = "before joining", "of a life that is over"

Life: TypeAlias = str  # 16 hexadecimal digits
Stream: TypeAlias = str  # "name/life"

NAME_MAX = 255  # characters of a node's name, as in live groups
_LIFE = re.compile(r"[0-9a-f]{16}")
_STREAM = re.compile(r"[^/]{1,255}/[0-9a-f]{16}", re.DOTALL)


class Joined(NamedTuple):
    """A name is heard of for the first time, or again after it left."""

    name: NodeId


class Left(NamedTuple):
    """A node has said that it goes."""

    name: NodeId


class Suspected(NamedTuple):
    """There is no link to a node, and there was no news of it for some time."""

    name: NodeId


class RolledBack(NamedTuple):
    """A peer has more of an earlier life of this node than its store: the store is an old copy."""

    life: Life
    had: int  # messages of that life in the store
    seen: int  # at the peer


class OtherLife(NamedTuple):
    """There is a life of this node's name that its store does not know: a clone, or a lost disk."""

    life: Life


class Retired(NamedTuple):
    """A life no longer counts for what is stable; if it is this node's own, it still speaks."""

    name: NodeId
    life: Life


class Forked(NamedTuple):
    """Two processes have gone on with one life: some of its numbers name two messages each."""

    name: NodeId
    life: Life
    number: int  # where it showed


class Rejoined(NamedTuple):
    """This node was out of its group, and goes on as another life: what it missed is not known.

    What it is given after this belongs to the new life; its broadcasts wait until it is in again.
    """

    why: str


News: TypeAlias = Joined | Left | Suspected | RolledBack | OtherLife | Retired | Forked | Rejoined


_WORDS: dict[type[News], str] = {
    Joined: "{name} is a member",
    Left: "{name} has left",
    Suspected: "no link to {name}, and no news of it for some time",
    RolledBack: "a peer has {seen} messages of life {life} and this store {had}: it is an old copy",
    OtherLife: "life {life} of this name is not in this store: a clone, or a lost disk",
    Retired: "{name} was retired: life {life} no longer counts for what is stable",
    Forked: "two processes went on with life {life} of {name}: ids from {number} on name two messages",
    Rejoined: "out of the group and in again, as another life ({why}): what was missed is not known",
}


def in_words(news: News) -> str:
    """Return what the journal says of a piece of news."""
    return _WORDS[type(news)].format(**news._asdict())


def stream_of(name: NodeId, life: Life) -> Stream:
    """Return the stream of a life."""
    return f"{name}/{life}"


def split_stream(stream: Stream) -> tuple[NodeId, Life]:
    """Return name and life of a stream; the life is empty where the text is no stream."""
    name, slash, life = stream.rpartition("/")
    return (name, life) if slash else (stream, "")


def is_stream(text: str) -> bool:
    """Return whether a peer's text can be a stream."""
    return _STREAM.fullmatch(text) is not None


def life_of(name: NodeId, opening: int) -> Life:
    """Return the life of a simulated node's n-th opening: a simulation draws nothing, and repeats itself."""
    return f"{mix64(purpose(name) ^ mix64(opening)):016x}"


def check_name(name: NodeId) -> None:
    """Refuse a name that cannot be part of a stream."""
    if not 0 < len(name) <= NAME_MAX or "/" in name:
        raise ParameterError(
            f"node {name!r}",
            'a name in a group that remembers has 1 to 255 characters and no "/"',
            "Choose another name",
        )


def check_life(life: object) -> None:
    """Refuse what is no life."""
    if not isinstance(life, str) or _LIFE.fullmatch(life) is None:
        raise ParameterError("life", f"{life!r} is not 16 hexadecimal digits", "Draw 64 random bits")
