"""The records of a durable server's log.

A record is one input of the server, complete: everything that follows from it is recomputed from it, because
cores are deterministic. So one record is one atomic step, whatever it changes (clocks, queues, agents).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from whence.core.message import MessageId, NodeId, Packet
from whence.errors import DataError
from whence.session.wire import Unopened, unopened

T = TypeVar("T")


class Arrived(NamedTuple):
    """Packets have arrived over the link from `peer`: the first is number `seq`, and none is missing."""

    now_us: int
    peer: NodeId
    seq: int
    packets: Sequence[Packet] | Unopened


class Submitted(NamedTuple):
    """The application sends `payload` to one node, or to every node (None) where the protocol broadcasts."""

    now_us: int
    to: NodeId | None
    payload: bytes
    lifetime_us: int | None = None
    key: bytes | None = None  # the same key is the same message


class Said(NamedTuple):
    """The application broadcasts these payloads, one after the other."""

    now_us: int
    payloads: list[bytes]


class Output(NamedTuple):
    """A message that a reaction sends."""

    to: NodeId | None  # None: to every node, where the protocol broadcasts
    payload: bytes


class Reacted(NamedTuple):
    """An agent has reacted to the first message of QueueIN, which leaves it: the new state, the outputs."""

    now_us: int
    state: bytes
    outputs: tuple[Output, ...]
    agent: str = ""  # which one, where there are many


class Buried(NamedTuple):
    """The agent has failed at the first message of QueueIN for good: it leaves it for the dead letters."""

    now_us: int
    attempts: int
    reason: str


class Revived(NamedTuple):
    """An operator lets the agent try a dead letter again: it is the last message of QueueIN now."""

    now_us: int
    id: MessageId


class Dropped(NamedTuple):
    """An operator has done with a dead letter."""

    now_us: int
    id: MessageId


class Taken(NamedTuple):
    """Of earlier releases: the application is done with the first `messages` that were delivered here."""

    messages: int


class Done(NamedTuple):
    """The application is done with these messages."""

    ids: tuple[MessageId, ...]


class Passed(NamedTuple):
    """The application is done with that many messages, the oldest of those that it was not done with."""

    messages: int


class Met(NamedTuple):
    """The peer's session: a node that comes under its name with another one has lost its store."""

    peer: NodeId
    session: int
    life: int = 0


class Commanded(NamedTuple):
    """The core is told of links and lives (core/lives.py)."""

    now_us: int
    verb: str
    names: tuple[str, ...]


class Restarted(NamedTuple):
    """The numbering of a link begins anew with what followed the first `acknowledged` frames."""

    now_us: int
    peer: NodeId
    session: int  # ours towards the peer
    acknowledged: int
    welcomes: bool


class Retired(NamedTuple):
    """A life of a member is out of the group."""

    now_us: int
    peer: NodeId
    life: int


class Linked(NamedTuple):
    """A link to `peer` came up (or went down) for the first time, or again."""

    now_us: int
    peer: NodeId
    is_up: bool


class Fired(NamedTuple):
    """A timer of the core has expired."""

    now_us: int
    key: str


Record: TypeAlias = (
    Arrived
    | Submitted
    | Said
    | Reacted
    | Taken
    | Met
    | Linked
    | Fired
    | Done
    | Passed
    | Commanded
    | Restarted
    | Retired
    | Buried
    | Revived
    | Dropped
)

# Numbers are part of the format of a log: never reuse one. 1 and 2 were of a model that wrote no store.
RECORDS: dict[int, type[Record]] = {
    3: Submitted,
    4: Reacted,
    5: Linked,
    6: Fired,
    7: Arrived,
    8: Taken,
    9: Met,
    10: Done,
    11: Commanded,
    12: Restarted,
    13: Retired,
    14: Said,
    15: Passed,
    16: Arrived,  # as they came, not opened
    20: Buried,
    21: Revived,
    22: Dropped,
}
_UNOPENED = 16
_NUMBERS = {kind: number for number, kind in RECORDS.items() if number != _UNOPENED}


def _fields(record: Record) -> tuple[Any, ...]:
    """The number of its kind and its fields."""
    if isinstance(record, Arrived) and isinstance(record.packets, Unopened):
        return _UNOPENED, *record[:-1], record.packets.bodies
    return (_NUMBERS[type(record)], *record)


class RecordCodec:
    """Records as bytes and back, for a log on disk; the packets are those of one protocol."""

    def __init__(self, packet_type: type[Packet]) -> None:
        self._packet_type = packet_type

    def encode(self, record: Record) -> bytes:
        """MessagePack: the number of the kind, then the fields."""
        return msgspec.msgpack.encode(_fields(record))

    def decode(self, data: bytes) -> Record:
        """Return the record, or raise `DataError` for bytes that no codec of this protocol wrote."""
        return self._read(data, self._record)

    def encode_batch(self, records: Iterable[Record]) -> bytes:
        """Several records, which one commit puts on disk together."""
        return msgspec.msgpack.encode(list(map(_fields, records)))

    def decode_batch(self, data: bytes) -> list[Record]:
        """Return what `encode_batch` was given."""
        return self._read(data, lambda batch: [self._record(fields) for fields in batch])

    def _record(self, data: Any) -> Record:
        number, *fields = data
        if RECORDS[number] is not Arrived:
            return msgspec.convert(fields, RECORDS[number])
        if number == _UNOPENED:
            now_us, peer, seq, bodies = msgspec.convert(fields, tuple[int, NodeId, int, list[bytes]])
            return Arrived(now_us, peer, seq, unopened(self._packet_type, bodies))
        return Arrived(*msgspec.convert(fields, tuple[int, NodeId, int, tuple[self._packet_type, ...]]))  # type: ignore[name-defined]  # mypy takes no type from an attribute

    def _read(self, data: bytes, meaning: Callable[[Any], T]) -> T:
        try:
            return meaning(msgspec.msgpack.decode(data))
        except (
            msgspec.DecodeError,
            msgspec.ValidationError,
            KeyError,
            ValueError,
            TypeError,
            IndexError,
        ) as error:
            raise DataError(
                "a record of a durable log", f"it cannot be read ({error})", "Restore the log from a copy"
            ) from error
