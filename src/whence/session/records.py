"""What a durable server writes down, and what it asks its host to do once that is on disk.

A record is one input of the server, complete: everything that follows from it is recomputed from it, because
cores are deterministic. So one record is one atomic step, whatever it changes (clocks, queues, agents).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from whence.core.effects import Effects
from whence.core.message import NodeId, Packet
from whence.errors import DataError

T = TypeVar("T")


class Received(NamedTuple):
    """Packet number `seq` of the link from `peer` has come."""

    now_us: int
    peer: NodeId
    seq: int
    packet: Packet


class Acknowledged(NamedTuple):
    """`peer` has packet number `seq` of the link to it on its disk."""

    peer: NodeId
    seq: int


class Arrived(NamedTuple):
    """Packets have come over the link from `peer`, the first as number `seq`, in order and without gaps."""

    now_us: int
    peer: NodeId
    seq: int
    packets: tuple[Packet, ...]


class Sent(NamedTuple):
    """The application sends `payload` to one node, or to everybody (None) where the protocol broadcasts."""

    now_us: int
    to: NodeId | None
    payload: bytes
    lifetime_us: int | None = None


class Output(NamedTuple):
    """A message that a reaction sends."""

    to: NodeId | None  # None: to everybody, where the protocol broadcasts
    payload: bytes


class Reacted(NamedTuple):
    """The agent has reacted to the first message of QueueIN, which leaves it: the new state, the outputs."""

    now_us: int
    state: bytes
    outputs: tuple[Output, ...]


class Taken(NamedTuple):
    """The application is done with the first so many `messages` that were ever delivered here."""

    messages: int


class Met(NamedTuple):
    """The peer's session: whoever comes under its name with another one has lost its store."""

    peer: NodeId
    session: int


class Linked(NamedTuple):
    """A link to `peer` came up (or went down) for the first time, or again."""

    now_us: int
    peer: NodeId
    is_up: bool


class Fired(NamedTuple):
    """A timer of the core has come due."""

    now_us: int
    key: str


Record: TypeAlias = Received | Arrived | Acknowledged | Sent | Reacted | Taken | Met | Linked | Fired

# Numbers are part of the format of a log: never reuse one.
RECORDS: dict[int, type[Record]] = {
    1: Received,
    2: Acknowledged,
    3: Sent,
    4: Reacted,
    5: Linked,
    6: Fired,
    7: Arrived,
    8: Taken,
    9: Met,
}
_NUMBERS = {kind: number for number, kind in RECORDS.items()}


class RecordCodec:
    """Records as bytes and back, for a log on disk; the packets are those of one protocol."""

    def __init__(self, packet_type: type[Packet]) -> None:
        self._packet_type = packet_type

    def encode(self, record: Record) -> bytes:
        """MessagePack: the number of the kind, then the fields."""
        return msgspec.msgpack.encode((_NUMBERS[type(record)], *record))

    def decode(self, data: bytes) -> Record:
        """The record, or a `DataError` for bytes that no codec of this protocol wrote."""
        return self._read(data, self._record)

    def encode_batch(self, records: Iterable[Record]) -> bytes:
        """Several records, which one commit puts on disk together."""
        return msgspec.msgpack.encode([(_NUMBERS[type(record)], *record) for record in records])

    def decode_batch(self, data: bytes) -> list[Record]:
        """What `encode_batch` was given."""
        return self._read(data, lambda batch: [self._record(fields) for fields in batch])

    def _record(self, data: Any) -> Record:
        number, *fields = data
        record = msgspec.convert(fields, RECORDS[number])
        if isinstance(record, Received):
            return record._replace(packet=msgspec.convert(record.packet, self._packet_type))
        if isinstance(record, Arrived):
            packets = msgspec.convert(record.packets, tuple[self._packet_type, ...])  # type: ignore[name-defined]  # mypy takes no type from an attribute
            return record._replace(packets=packets)
        return record

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


class Transmit(NamedTuple):
    """Give packet number `seq` of the link to `peer`; again and again until it is acknowledged."""

    peer: NodeId
    seq: int
    packet: Packet


class Acknowledge(NamedTuple):
    """Tell `peer` that its packet `seq` is on disk here: it may forget it."""

    peer: NodeId
    seq: int


Release: TypeAlias = Transmit | Acknowledge


class Step(NamedTuple):
    """One atomic step: write `record` (None: nothing has changed), sync, and only then carry out `releases`.

    `effects` is all that the core answered, in order: for the trace, and for timers, which the host keeps.
    """

    record: Record | None
    releases: list[Release]
    effects: Effects
