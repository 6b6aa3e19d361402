"""Links of datagrams: nothing is acknowledged or repeated, and there is no handshake to wait for.

A datagram is a header (who speaks, in which session, configured how) and whole frames of `wire.py`. It is
judged alone: what does not fit is counted, reported once and dropped. Whether a peer is there is learned by
the way: HELLO asks for an answer, any datagram with our session in it is one. docs/wire-format.md has the
format and the rules.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from whence.core.message import NodeId
from whence.errors import FrameError, HandshakeError, VersionError
from whence.session.addresses import Address
from whence.session.handshake import Identity
from whence.session.links import Link

if TYPE_CHECKING:
    from whence.session.limits import Limits

MAGIC = b"WD"
VERSION = 1
MAX_BYTES = 65_507  # what UDP over IPv4 can carry
_CONTROL_BYTES = 256  # of a packet beside its payload, and
_CONTROL_PER_MEMBER_BYTES = (
    32  # for each member: two entries of a clock and their indices, with room to spare
)

_HEADER = struct.Struct(">2sBH8sQQ")
HEADER_BYTES = _HEADER.size


class Header(NamedTuple):
    """What opens every datagram."""

    sender: int  # index of the speaker among the sorted members
    digest: bytes  # of the configuration: group, protocol, parameters, members, max_payload_bytes
    session: int  # the speaker's incarnation
    peer_session: int  # the listener's, as the speaker knows it; 0 if they never met

    def pack(self) -> bytes:
        """The header's bytes."""
        return _HEADER.pack(MAGIC, VERSION, *self)


def unpack_header(data: bytes) -> Header:
    """The header of a datagram, or the reason why it is none of ours."""
    if len(data) < HEADER_BYTES:
        raise FrameError("datagram", f"its {len(data)} bytes are less than a header", "Send Whence datagrams")
    magic, version, *fields = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FrameError("datagram", "it is not one of Whence", "Check the addresses of the peers")
    if version != VERSION:
        raise VersionError(
            "datagram",
            f"the peer speaks version {version}, this node version {VERSION}",
            "Run the same release of Whence at every member",
        )
    header = Header(*fields)
    if not 0 < header.session < 2**63 or header.peer_session >= 2**63:
        raise FrameError("datagram", "its sessions are out of range", "Check the peer's release")
    return header


def digest_of(identity: Identity) -> bytes:
    """8 bytes that differ when two members are configured differently."""
    about = [
        identity.group,
        identity.protocol,
        dict(sorted(identity.parameters.items())),
        list(identity.members),
        identity.max_payload_bytes,
    ]
    return hashlib.sha256(msgspec.msgpack.encode(about)).digest()[:8]


def payload_room_bytes(members: int) -> int:
    """The longest payload that certainly fits into one datagram, whatever its packet says beside it."""
    return MAX_BYTES - HEADER_BYTES - _CONTROL_BYTES - _CONTROL_PER_MEMBER_BYTES * members


class DatagramLink(Link):
    """A link that exists from the start, and keeps nothing: what has left is gone.

    `channel` says, as on other links, that the peer was heard lately and has heard us. Packets leave
    whether or not it is there.
    """

    def __init__(self, peer: NodeId, address: Address, limits: Limits, dropped: Counter[str]) -> None:
        super().__init__(peer, address, dials=True)
        self.send: Callable[[bytes], int] | None = None  # set when the socket is there
        self.writable: Callable[[], bool] = bool
        self._limits = limits
        self._dropped = dropped

    def flush(self, max_frames: int, *, may_ack: bool, ack_now: bool) -> int:
        """Send what is pending in as few datagrams as hold it; answers the bytes sent."""
        incoming, out = self.incoming, self.out
        incoming.told = incoming.received  # nobody waits for an acknowledgement
        if not out.pending:
            return 0
        if self.send is None or not self.alive:
            out.clear()
            return 0
        if not self.writable():
            self._drop_oldest()
            return 0
        frames = out.drain()
        fitting = [frame for frame in frames if len(frame) <= MAX_BYTES - HEADER_BYTES]
        if len(fitting) < len(frames):
            self._dropped["too large for a datagram"] += len(frames) - len(fitting)
        return sum(map(self.send, batches(fitting, self._limits.datagram_bytes - HEADER_BYTES)))

    def _drop_oldest(self) -> None:
        """The socket takes nothing: keep the newest, as much as `broadcast` waits for."""
        pending, limits = self.out.pending, self._limits
        lost, rest_bytes = max(0, len(pending) - limits.queue_messages), self.out.unacknowledged_bytes()
        rest_bytes -= sum(map(len, pending[:lost]))
        while rest_bytes > limits.queue_bytes:
            rest_bytes -= len(pending[lost])
            lost += 1
        if lost:
            self._dropped["send queue full"] += lost
            self.out.drop_oldest(lost)


def batches(frames: list[bytes], room_bytes: int) -> list[bytes]:
    """Frames joined to bodies of datagrams, in order; one that is too long for company travels alone.

    Two copies of one frame never share a datagram: they were made so that one may be lost.
    """
    bodies: list[bytes] = []
    batch: list[bytes] = []
    size_bytes = 0
    for frame in frames:
        if batch and (size_bytes + len(frame) > room_bytes or frame in batch):
            bodies.append(b"".join(batch))
            batch, size_bytes = [], 0
        batch.append(frame)
        size_bytes += len(frame)
    if batch:
        bodies.append(b"".join(batch))
    return bodies


def refuse_stranger(source: str) -> HandshakeError:
    """The error for a datagram from an address that no member has."""
    return HandshakeError(
        f"datagram from {source}", "no member has this address", "Check the addresses of the peers"
    )
