"""What travels under protocol `log`: one kind of packet, its size, and what no correct node sends.

Streams are small numbers on the wire: the index of a stream at the sender, which is one and the same in all
its sessions, so that a batch is encoded once for all peers. A packet that uses an index for the first time
in a session names it (`names`). An item of DATA is a plain tuple, as it stands in the sender's log:

    (stream, number, until, after, payload, mark)

`until` is 0 for a message that is good forever, else its deadline; `after` has flat pairs (stream, number),
or triples (stream, number, until) in a group with lifetimes; `mark` is APP or CONTROL. An item with mark
GONE is no message: numbers `number` to `until` of the stream have expired.

    kind     numbers                                            names, items, blob
    HELLO    version, flags, streams, root of D                 names: the own stream
    TREE     level, prefixes of the nodes                       blob: the hashes of their children
    HAVE     WHOLE or PART or LEAVES (count, prefixes), then pairs (stream, D)
    DATA     -                                                  items
    GOT      how many items more were taken
    WANT     pairs (stream, first)
    PRUNE    streams that come from elsewhere
    MAIN     -
    FLOOR    ASK, or WHOLE, or PART; then pairs (stream, F)
    NEAR     pairs (stream, 1 or 0)
    BYE      -
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from whence.core.message import Sizes
from whence.core.sizes import (
    FRAME_BYTES,
    array_header_bytes,
    binary_header_bytes,
    text_bytes,
    uint_array_bytes,
    uint_bytes,
)

VERSION = 1
BARRIER_MAX = 4_096  # entries of a barrier
HELLO, TREE, HAVE, DATA, GOT, WANT, PRUNE, MAIN, FLOOR, NEAR, BYE = range(11)
WORDS = ("hello", "tree", "have", "data", "got", "want", "prune", "main", "floor", "near", "bye")
PART, WHOLE, LEAVES, ASK = range(4)  # what a HAVE or a FLOOR says
APP, CONTROL, GONE = range(3)  # marks of items
TIMED, MEMBER = 1, 2  # flags of HELLO

# (stream, number, until, after, payload, mark)
Item: TypeAlias = tuple[int, int, int, tuple[int, ...], bytes, int]
Name: TypeAlias = tuple[int, str]  # (index, stream): what an index means, in this session


class LogPacket(NamedTuple):
    """What one end of a session says to the other."""

    kind: int
    names: tuple[Name, ...] = ()
    numbers: tuple[int, ...] = ()
    items: tuple[Item, ...] = ()
    blob: bytes = b""


def packet_sizes(packet: LogPacket) -> Sizes:
    """The real frame of a packet."""
    kind, names, numbers, items, blob = packet
    size = FRAME_BYTES + array_header_bytes(5) + uint_bytes(kind)
    size += array_header_bytes(len(names)) + array_header_bytes(len(numbers)) + array_header_bytes(len(items))
    size += binary_header_bytes(len(blob)) + len(blob) + sum(map(uint_bytes, numbers))
    for index, text in names:
        size += array_header_bytes(2) + uint_bytes(index) + text_bytes(text)
    payloads = 0
    for item in items:
        size += item_bytes(item)
        payloads += len(item[4])
    return Sizes(size, size - payloads)


def item_bytes(item: Item) -> int:
    """A message as a part of a frame."""
    stream, number, until, after, payload, mark = item
    size = array_header_bytes(6) + uint_bytes(stream) + uint_bytes(number) + uint_bytes(until)
    size += uint_array_bytes(after)
    return size + binary_header_bytes(len(payload)) + len(payload) + uint_bytes(mark)


def told(packet: LogPacket) -> str:
    """One word for a trace about a packet: its kind, how many items, and a digest of all but the payloads.

    A link that is cut takes packets with it: with the digest a replay finds the one that arrived.
    """
    kind, names, numbers, items, blob = packet
    word = WORDS[kind] if 0 <= kind < len(WORDS) else "?"
    shape = (names, numbers, [(*item[:4], len(item[4]), item[5]) for item in items], blob)
    digest = blake2b(repr(shape).encode(errors="replace"), digest_size=6).hexdigest()
    return f"{word}:{len(items)}:{digest}"
