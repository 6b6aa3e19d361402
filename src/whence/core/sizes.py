"""How many bytes the wire format spends, so that a core can state its cost without encoding.

The numbers are those of MessagePack inside a Whence frame (docs/wire-format.md); a test holds every
core's `sizes` against the bytes that the live node really writes.
"""

from __future__ import annotations

from collections.abc import Sequence

FRAME_BYTES = 5  # length (4) and frame type (1)


def uint_bytes(value: int) -> int:
    """Bytes of a non-negative integer."""
    if value < 0x80:
        return 1
    if value < 0x100:
        return 2
    if value < 0x10000:
        return 3
    return 5 if value < 0x100000000 else 9


def array_header_bytes(length: int) -> int:
    """Bytes before the elements of an array."""
    if length < 16:
        return 1
    return 3 if length < 0x10000 else 5


def uint_array_bytes(values: Sequence[int]) -> int:
    """Bytes of an array of non-negative integers, its header included."""
    if max(values, default=0) < 0x80:  # most are: one look instead of one each
        return array_header_bytes(len(values)) + len(values)
    return array_header_bytes(len(values)) + sum(map(uint_bytes, values))


def binary_header_bytes(length: int) -> int:
    """Bytes before the contents of a byte string."""
    if length < 0x100:
        return 2
    return 3 if length < 0x10000 else 5


def text_bytes(text: str) -> int:
    """Bytes of a string, its header included."""
    length = len(text.encode(errors="replace"))
    if length < 32:
        return 1 + length
    if length < 0x100:
        return 2 + length
    return (3 if length < 0x10000 else 5) + length
