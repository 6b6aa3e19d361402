"""Messages of named agents: an envelope around the payload says for whom it is, and from whom.

Between servers a message goes from server to server. An agent has a name in the whole system, and lives at
one server; what is sent to it, or by it, travels in an envelope. A message between servers has none, unless
its payload begins like one.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

_MARK = b"\x00whence\x00"


class Letter(NamedTuple):
    """A payload, the agent that it is for and the one that sent it; empty: the server itself."""

    to: str
    sender: str
    payload: bytes


def sealed(letter: Letter) -> bytes:
    """What travels."""
    if not letter.to and not letter.sender and not letter.payload.startswith(_MARK):
        return letter.payload
    return _MARK + msgspec.msgpack.encode(letter)


def opened_letter(payload: bytes) -> Letter:
    """The letter that travelled."""
    if payload.startswith(_MARK):
        try:
            return msgspec.msgpack.decode(payload[len(_MARK) :], type=Letter)
        except msgspec.DecodeError:  # none of ours sealed it
            pass
    return Letter("", "", payload)
