"""The wire format, without any I/O. docs/wire-format.md specifies it for another implementer.

A frame is a 4-byte big-endian length (of all that follows it), a 1-byte type and a body. Bodies are
MessagePack. A DATA body is the protocol's packet as an array, a BATCH body an array of such packets. The
number of a packet on its link is implicit (the n-th of a session), so it is encoded once for all receivers.

Whatever a peer sends, `FrameReader` returns decoded frames or a typed error, and raises no other
exception: tests/fuzz holds it to that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import cache, partial
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar, get_type_hints

import msgspec
from msgspec import Meta

from whence.core.message import REPEATED, Packet, Together
from whence.errors import FrameError, FrameTooLargeError, HandshakeError, PeerError, VersionError

MAGIC = "whence"
VERSION = 3
GREETING_MAX_BYTES = 256 * 1024  # a HELLO lists the members; no stranger may make us buffer more

HEADER = struct.Struct(">IB")  # length of what follows the length, type
_LENGTH_BYTES = 4
_SHORT_ARRAY, _ARRAY, _LONG_ARRAY = struct.Struct(">B"), struct.Struct(">BH"), struct.Struct(">BI")
_HEAD_BYTES = {0xDC: _ARRAY.size, 0xDD: _LONG_ARRAY.size}  # of an array that is not short
BATCH_BYTES = 64 * 1024  # of a BATCH frame: so long a frame every member takes, whatever its payload limit
REPEATED_MIN = 8  # items of a repeated field, from which on it is looked up
REPEATED_KEPT = 8  # values of such a field that are remembered, of so many bytes at most
REPEATED_MAX_BYTES = 16 * 1024
_ONE = b"\x91"  # an array of one
_TEXT_MAX = 1000
EARLIER_MAX = 64  # lives that a HELLO names
_TLS_OPENING = b"\x16\x03"  # no frame of ours announces that many bytes


class FrameType(IntEnum):
    """Numbers are part of the format: never reuse one."""

    HELLO = 1
    DATA = 2
    ACK = 3
    PING = 4
    BYE = 5
    ERROR = 6
    CHALLENGE = 7
    ANSWER = 8
    KNOWN = 9
    MEMBERS = 10
    ROOM = 11
    CLOCK = 12
    BATCH = 13


_HANDSHAKE = (FrameType.HELLO, FrameType.ERROR, FrameType.CHALLENGE, FrameType.ANSWER)

_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
_Text: TypeAlias = Annotated[str, Meta(max_length=_TEXT_MAX)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
KNOWN_MAX = 64  # addresses in one KNOWN frame


class Greeting(msgspec.Struct, array_like=True, frozen=True):
    """The two fields that open the HELLO of every version, so that versions can tell each other apart."""

    magic: str
    version: int


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """The first frame of each side: who speaks, what it believes, and where the link resumes."""

    magic: str
    version: int
    group: _Name
    protocol: _Name
    parameters: dict[_Name, _Text]  # every parameter of the protocol, each value as JSON text
    members: list[_Name]  # sorted
    max_payload_bytes: _Count
    node: _Name  # the speaker
    to: _Name  # whom it believes to speak to
    session: _Count  # the speaker's incarnation: random, drawn when it starts
    peer_session: _Count  # the listener's incarnation as the speaker knows it; 0 if they never met
    received: _Count  # packets received from the listener in that pair of sessions
    nonce: _Count = 0  # the dialler's, drawn for this connection; the other side's HELLO repeats it
    life: _Count = 0  # of the speaker: drawn at every start, with a store or without
    # Lives of the speaker before, as far as its store knows them, the newest last.
    earlier: Annotated[list[_Count], Meta(max_length=EARLIER_MAX)] = []
    returns: bool = False  # in a reply: the listener is another life than the speaker knew


class Challenge(msgspec.Struct, array_like=True, frozen=True):
    """The node that accepted a connection draws a number, which no one could have known before."""

    nonce: _Count


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """The dialler repeats it: it is there, and no recording."""

    nonce: _Count


class Refusal(msgspec.Struct, array_like=True, frozen=True):
    """The body of an ERROR frame: why the speaker closes the connection."""

    code: _Name
    reason: _Text
    fix: _Text


class Bye(msgspec.Struct, array_like=True, frozen=True):
    """The speaker leaves permanently; all that it sent has been acknowledged or abandoned."""


class MembersNews(msgspec.Struct, array_like=True, frozen=True):
    """The body of a MEMBERS frame: members that are out of the group, or out of the speaker's reach."""

    retired: dict[_Name, _Count]  # the newest life of each that was retired
    absent: list[_Name]  # without a connection to the speaker for a long time


class ClockNews(msgspec.Struct, array_like=True, frozen=True):
    """The body of a CLOCK frame: times in microseconds by the clocks of the two."""

    sent_us: _Count  # by the speaker's clock: now
    echo_us: _Count  # by the listener's: when its last CLOCK frame was sent; 0: none has come
    received_us: _Count  # by the speaker's: when that one came


class RoomNews(msgspec.Struct, array_like=True, frozen=True):
    """The body of a ROOM frame: destinations at or beyond the speaker that take no message now."""

    full: list[_Name]  # too much waits for them
    gone: list[_Name]  # they were retired, or have left


class Ack(msgspec.Struct, array_like=True, frozen=True):
    """The speaker has received this many packets in the session."""

    received: _Count


class Known(msgspec.Struct, array_like=True, frozen=True):
    """Where the speaker can be dialled ("" if nowhere), and where those that it is linked to can be."""

    listens: _Text
    others: Annotated[list[tuple[_Name, _Text]], Meta(max_length=KNOWN_MAX)] = []


Greetings: TypeAlias = Hello | Challenge | Answer | Refusal
Control: TypeAlias = Ack | Bye | Refusal | Hello | Known | MembersNews | RoomNews | ClockNews

_encode = msgspec.msgpack.Encoder().encode
encode_packet: Callable[[Packet], bytes] = _encode  # as it waits in the queue of a link: a DATA frame's body
_greeting = msgspec.msgpack.Decoder(Greeting)
_hello = msgspec.msgpack.Decoder(Hello)
_refusal = msgspec.msgpack.Decoder(Refusal)
_members_news = msgspec.msgpack.Decoder(MembersNews)
_clock_news = msgspec.msgpack.Decoder(ClockNews)
_room_news = msgspec.msgpack.Decoder(RoomNews)
_number = msgspec.msgpack.Decoder(_Count)
_known = msgspec.msgpack.Decoder(Known)

T = TypeVar("T")

PING_FRAME = HEADER.pack(1, FrameType.PING)
BYE_FRAME = HEADER.pack(1, FrameType.BYE)


def _frame(kind: FrameType, body: bytes) -> bytes:
    return HEADER.pack(len(body) + 1, kind) + body


def data_frame(packet: Packet) -> bytes:
    """The frame that carries a protocol's packet alone."""
    return packets_frame(_encode(packet))


def packets_frame(packets: bytes, count: int = 1) -> bytes:
    """The frame that carries so many encoded packets: DATA one, BATCH more, which are decoded in one call."""
    if count == 1:
        return HEADER.pack(len(packets) + 1, FrameType.DATA) + packets
    head = _array_head(count)
    return HEADER.pack(len(head) + len(packets) + 1, FrameType.BATCH) + head + packets


def _array_head(count: int) -> bytes:
    """What stands before the items of an array in MessagePack."""
    if count < 16:
        return _SHORT_ARRAY.pack(0x90 + count)
    return _ARRAY.pack(0xDC, count) if count < 1 << 16 else _LONG_ARRAY.pack(0xDD, count)


def ack_frame(received: int) -> bytes:
    """The frame that acknowledges the first `received` packets."""
    return _frame(FrameType.ACK, _encode(received))


def challenge_frame(nonce: int) -> bytes:
    """The frame that asks the dialler for a sign of life."""
    return _frame(FrameType.CHALLENGE, _encode(nonce))


def answer_frame(nonce: int) -> bytes:
    """The dialler's answer to it."""
    return _frame(FrameType.ANSWER, _encode(nonce))


def members_frame(news: MembersNews) -> bytes:
    """The frame that tells of members that are out of the group, or of reach."""
    return _frame(FrameType.MEMBERS, _encode(news))


def clock_frame(news: ClockNews) -> bytes:
    """The frame that tells what time it is here."""
    return _frame(FrameType.CLOCK, _encode(news))


def room_frame(news: RoomNews) -> bytes:
    """The frame that tells of destinations that take no message now."""
    return _frame(FrameType.ROOM, _encode(news))


def hello_frame(hello: Hello) -> bytes:
    """The frame that opens a connection."""
    return _frame(FrameType.HELLO, _encode(hello))


def known_frame(known: Known) -> bytes:
    """The frame that introduces nodes to each other, in a group without a list of members."""
    return _frame(FrameType.KNOWN, _encode(known))


def error_frame(code: str, error: PeerError) -> bytes:
    """The last frame to a peer that is refused."""
    return _frame(FrameType.ERROR, _encode(Refusal(code, error.reason[:_TEXT_MAX], error.fix[:_TEXT_MAX])))


def _decoded(decoder: msgspec.msgpack.Decoder[T], body: bytes, kind: str) -> T:
    try:
        return decoder.decode(body)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise _undecodable(kind, error) from None


def _undecodable(kind: str, error: Exception) -> FrameError:
    return FrameError(
        f"{kind} frame", f"its body does not decode: {error}", "Check that the peer runs Whence"
    )


def packets_body(count: int, encoded: list[bytes]) -> bytes:
    """Packets whose bytes are known, as one array."""
    return _array_head(count) + b"".join(encoded)


def _decode_again(
    decode_many: Callable[[bytes], list[Packet]], count: int, encoded: list[bytes]
) -> list[Packet]:
    return decode_many(packets_body(count, encoded))


@cache
def packet_decoders(
    packet_type: type[Packet],
) -> tuple[Callable[[bytes], Packet], Callable[[bytes], list[Packet]]]:
    """What decodes one packet, and what decodes an array of them. All connections share it."""
    hints = get_type_hints(packet_type, include_extras=True)
    for at, hint in enumerate(hints.values()):
        if REPEATED in getattr(hint, "__metadata__", ()):
            decoder = _RepeatedDecoder(packet_type, hints, at)
            return decoder.decode, decoder.decode_many
    decode_many = msgspec.msgpack.Decoder(list[packet_type]).decode  # type: ignore[valid-type]
    return msgspec.msgpack.Decoder(packet_type).decode, decode_many


class _RepeatedDecoder:
    """Decodes packets of which many have the same in one field: once for all that have the same bytes there.

    Only where it is long, or finding out would cost more than decoding does.
    """

    def __init__(self, packet_type: type[Packet], hints: dict[str, Any], at: int) -> None:
        self._type = packet_type
        self._at = at  # the place of the field
        fields = list(hints.items())
        self._decode_field = msgspec.msgpack.Decoder(fields[at][1]).decode
        fields[at] = (fields[at][0], msgspec.Raw)
        rough: Any = NamedTuple(packet_type.__name__, fields)  # type: ignore[misc]  # not in the source
        self._decode_rough = msgspec.msgpack.Decoder(list[rough]).decode
        self._decode_all = msgspec.msgpack.Decoder(list[packet_type]).decode  # type: ignore[valid-type]
        self._is_long = False  # in the newest packet
        self._known: dict[bytes, Any] = {}

    def decode(self, body: bytes) -> Packet:
        """One packet."""
        return self.decode_many(_ONE + body)[0]

    def decode_many(self, body: bytes) -> list[Packet]:
        """An array of packets."""
        at, make = self._at, tuple.__new__
        if self._is_long:
            packets = []
            for packet in self._decode_rough(body):
                fields: list[Any] = list(packet)
                fields[at] = self._field(bytes(fields[at]))
                packets.append(make(self._type, fields))
        else:
            packets = self._decode_all(body)
        if packets:
            self._is_long = len(packets[-1][at]) >= REPEATED_MIN
        return packets

    def _field(self, encoded: bytes) -> Any:
        known = self._known
        if encoded not in known:
            decoded = self._decode_field(encoded)
            if len(encoded) > REPEATED_MAX_BYTES:
                return decoded
            if len(known) >= REPEATED_KEPT:
                known.clear()
            known[encoded] = decoded
        return known[encoded]


class Unopened:
    """Packets that arrived together, as the bytes of arrays of them: written before they are decoded.

    A node with a store handles packets when they are on the disk, hundreds of others later: what was decoded
    when it came has left the processor's cache by then.
    """

    __slots__ = ("_count", "_decode_many", "_make", "bodies")

    def __init__(
        self,
        decode_many: Callable[[bytes], list[Packet]],
        bodies: Iterable[bytes] = (),
        make: Callable[[], list[Packet]] = list,
    ) -> None:
        self._decode_many = decode_many
        self._make = make
        self.bodies: list[bytes] = []
        self._count = 0
        for body in bodies:
            self.add(body)

    def add(self, body: bytes) -> None:
        """One more array; `ValueError` if it cannot be one."""
        count = _array_count(body)
        if not 0 <= count < len(body):  # each item has a byte
            raise ValueError("it is not an array of packets")
        self._count += count
        self.bodies.append(body)

    def __len__(self) -> int:
        return self._count

    def open(self) -> list[Packet]:
        """The packets; `FrameError` if they cannot be decoded."""
        packets = self._make()
        encoded = packets.encoded if isinstance(packets, Together) else None
        try:
            for body in self.bodies:
                packets += self._decode_many(body)
                if encoded is not None:
                    encoded.append(body[_head_bytes(body) :])
        except (ValueError, RecursionError) as error:
            raise _undecodable("DATA or BATCH", error) from None
        return packets


Packets: TypeAlias = list[Packet] | Unopened  # that arrived together


def unopened(packet_type: type[Packet], bodies: Iterable[bytes]) -> Unopened:
    """Packets as they were written."""
    return Unopened(packet_decoders(packet_type)[1], bodies)


def _head_bytes(array: bytes) -> int:
    return _HEAD_BYTES.get(array[0], 1)


def _array_count(array: bytes) -> int:
    """How many items it announces; -1 if it is not an array."""
    first = array[0] if array else 0
    if first & 0xF0 == 0x90:
        return first & 0x0F
    head_bytes = _HEAD_BYTES.get(first, 0)
    return int.from_bytes(array[1:head_bytes]) if 0 < head_bytes <= len(array) else -1


class FrameReader:
    """Cuts one connection's bytes into frames and decodes them.

    First `greeting` until it returns a frame, then `feed`. After an error it reads nothing any more; the
    frames before the error have been handed out. One for datagrams reads any number of them with `whole`,
    and takes a HELLO among other frames.
    """

    def __init__(
        self,
        packet_type: type[Packet],
        max_frame_bytes: int,
        *,
        datagrams: bool = False,
        keeps_encoded: bool = False,
        opens: bool = True,
    ) -> None:
        self.error: PeerError | None = None
        self.control: list[Control] = []  # filled by `feed`, emptied by the session that handles them
        self._decode, self._decode_many = packet_decoders(packet_type)
        self._max_bytes = max_frame_bytes
        self._datagrams = datagrams
        decode_again = partial(_decode_again, self._decode_many)
        make: Callable[[], list[Packet]] = partial(Together, decode_again) if keeps_encoded else list
        self._packets: Callable[[], Packets] = (
            make if opens else partial(Unopened, self._decode_many, (), make)
        )
        self._tail = bytearray()  # the beginning of a frame that is not complete
        self._need = HEADER.size  # bytes that the tail must reach before it is worth looking at

    def greeting(self, data: bytes) -> Greetings | None:
        """The next frame of the handshake, once it is complete; what follows it waits for `feed`."""
        self._tail += data
        if len(self._tail) < HEADER.size:
            return None
        length, kind = HEADER.unpack_from(self._tail)
        stop = _LENGTH_BYTES + length
        if self._tail.startswith(_TLS_OPENING):
            raise HandshakeError(
                "connection",
                "it begins with TLS, and this node speaks plain text",
                "Give every member keys, or none",
            )
        if kind not in _HANDSHAKE:
            raise FrameError(
                "first frame", f"its type is {kind}, not HELLO", "Check that the peer is a Whence node"
            )
        self._check_length(length, GREETING_MAX_BYTES)
        if len(self._tail) < stop:
            return None
        body = bytes(self._tail[HEADER.size : stop])
        del self._tail[:stop]
        self._need = HEADER.size
        if kind == FrameType.ERROR:
            return _decoded(_refusal, body, "ERROR")
        if kind == FrameType.CHALLENGE:
            return Challenge(_decoded(_number, body, "CHALLENGE"))
        if kind == FrameType.ANSWER:
            return Answer(_decoded(_number, body, "ANSWER"))
        opening = _decoded(_greeting, body, "HELLO")
        if opening.magic != MAGIC:
            raise FrameError("HELLO frame", f"it opens with {opening.magic[:20]!r}", "Connect a Whence node")
        if opening.version != VERSION:
            raise VersionError(
                "wire version",
                f"the peer speaks version {opening.version}, this node version {VERSION}",
                "Run the same release of Whence at every member",
            )
        return _decoded(_hello, body, "HELLO")

    def feed(self, data: bytes) -> Packets:
        """The packets that `data` completes. Other frames go to `control`; a fault to `error`."""
        packets = self._packets()
        if self.error is not None:
            return packets
        if self._tail:
            # A long frame arrives in many pieces: collect them, and look only when it can be complete.
            self._tail += data
            if len(self._tail) < self._need:
                return packets
            data = bytes(self._tail)
            self._tail.clear()
        try:
            at = self._cut(data, packets)
        except PeerError as error:
            self.error = error
        except (ValueError, RecursionError) as error:
            self.error = _undecodable("DATA or BATCH", error)
        else:
            if at < len(data):
                self._tail += data[at:]
        return packets

    def whole(self, data: bytes) -> list[Packet]:
        """The packets of a datagram, whose frames are whole; raises, and keeps nothing of a bad one."""
        packets: list[Packet] = []
        self.control = []
        try:
            at = self._cut(data, packets)
        except (ValueError, RecursionError) as error:
            raise _undecodable("DATA or BATCH", error) from None
        if at < len(data):
            raise FrameError("datagram", "its last frame is cut off", "Check the peer's release")
        return packets

    def _cut(self, data: bytes, packets: Packets) -> int:
        """Take every complete frame of `data`; return where the first incomplete one begins."""
        at, last = 0, len(data) - HEADER.size
        encoded = packets.encoded if isinstance(packets, Together) else None
        while at <= last:
            length, kind = HEADER.unpack_from(data, at)
            stop = at + _LENGTH_BYTES + length
            if not 0 < length <= self._max_bytes:
                self._check_length(length, self._max_bytes)
            if stop > len(data):
                break
            body = data[at + HEADER.size : stop]
            if kind in {2, 13}:  # DATA, BATCH; a look-up in the enumeration costs as much as a header
                if isinstance(packets, Unopened):
                    packets.add(body if kind == 13 else _ONE + body)
                elif kind == 13:
                    packets += self._decode_many(body)
                    if encoded is not None:
                        encoded.append(body[_head_bytes(body) :])
                else:
                    packets.append(self._decode(body))
                    if encoded is not None:
                        encoded.append(body)
            else:
                self._read_control(kind, body)
            at = stop
        else:
            self._need = HEADER.size
            return at
        self._need = stop - at
        return at

    def _check_length(self, length: int, max_bytes: int) -> None:
        if length < 1:
            raise FrameError("frame", "its length is 0, so it has no type", "Check the peer's release")
        if length > max_bytes:
            raise FrameTooLargeError(
                "frame",
                f"it announces {length} bytes, more than the limit of {max_bytes}",
                "Give every member the same max_payload_bytes, or check that the peer is a Whence node",
            )

    def _read_control(self, kind: int, body: bytes) -> None:
        if kind == FrameType.ACK:
            self.control.append(Ack(_decoded(_number, body, "ACK")))
        elif kind == FrameType.ERROR:
            self.control.append(_decoded(_refusal, body, "ERROR"))
        elif kind == FrameType.MEMBERS:
            self.control.append(_decoded(_members_news, body, "MEMBERS"))
        elif kind == FrameType.CLOCK:
            self.control.append(_decoded(_clock_news, body, "CLOCK"))
        elif kind == FrameType.ROOM:
            self.control.append(_decoded(_room_news, body, "ROOM"))
        elif kind == FrameType.HELLO and self._datagrams:
            self.control.append(_decoded(_hello, body, "HELLO"))
        elif kind == FrameType.KNOWN:
            self.control.append(_decoded(_known, body, "KNOWN"))
        elif kind in (FrameType.PING, FrameType.BYE):
            if body:
                raise FrameError(f"{FrameType(kind).name} frame", "it has a body", "Check the peer's release")
            if kind == FrameType.BYE:
                self.control.append(Bye())
        else:
            raise FrameError(
                "frame", f"its type {kind} is not allowed here", "Check that the peer runs this release"
            )
