"""Links of datagrams, without I/O: nothing is acknowledged or repeated, and no handshake is waited for.

A datagram is a header (who speaks, in which session, configured how) and whole frames of `wire.py`. It is
judged alone: one that does not fit is counted, reported once and dropped. Whether a peer is there is learned
by the way: HELLO asks for a reply, any datagram with our session in it is one. docs/wire-format.md has the
format and the rules.
"""

from __future__ import annotations

import hashlib
import logging
import struct
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from whence.core.message import NodeId, Packet
from whence.errors import FrameError, HandshakeError, PeerError, VersionError
from whence.session.addresses import Address
from whence.session.handshake import Identity, RefusedForNowError, check_session, error_code
from whence.session.journal import Journal
from whence.session.limits import Limits
from whence.session.links import Link, LinkState
from whence.session.peering import Peering
from whence.session.wire import (
    BYE_FRAME,
    EARLIER_MAX,
    PING_FRAME,
    Bye,
    ClockNews,
    Control,
    FrameReader,
    Hello,
    Refusal,
    error_frame,
    hello_frame,
    packets_frame,
)

MAGIC = b"WD"
VERSION = 1
MAX_BYTES = 65_507  # what UDP over IPv4 can carry
_CONTROL_BYTES = 256  # of a packet beside its payload, and
_CONTROL_PER_MEMBER_BYTES = (
    32  # for each member: two entries of a clock and their indices, with room to spare
)

REFUSE_EVERY_S = 0.1  # one refusal for a whole burst

_HEADER = struct.Struct(">2sBH8sQQ")
HEADER_BYTES = _HEADER.size


class Header(NamedTuple):
    """The opening of every datagram."""

    sender: int  # index of the speaker among the sorted members
    digest: bytes  # of the configuration: group, protocol, parameters, members, max_payload_bytes
    session: int  # the speaker's incarnation
    peer_session: int  # the listener's, as the speaker knows it; 0 if they never met

    def pack(self) -> bytes:
        """The header's bytes."""
        return _HEADER.pack(MAGIC, VERSION, *self)


def unpack_header(data: bytes) -> Header:
    """The header of a datagram, or the reason why it is not one of ours."""
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


def header_of(identity: Identity) -> Header:
    """The header of this node's datagrams to a peer that it has not met."""
    index = identity.members.index(identity.node)
    return Header(index, digest_of(identity), identity.session, peer_session=0)


class Outlet(Protocol):
    """The socket, as the links see it."""

    dropped: Counter[str]

    @property
    def writable(self) -> bool:
        """The socket takes datagrams."""

    def put(self, datagram: bytes, peer: NodeId) -> None:
        """Hand over a datagram for `peer`."""


class Port:
    """The way to one peer: what a link takes for its connection."""

    def __init__(self, link: Link, header: Header, outlet: Outlet) -> None:
        self._link = link
        self._header = header
        self._outlet = outlet
        self._refuse_at_s = 0.0

    @property
    def writable(self) -> bool:
        """The socket takes datagrams."""
        return self._outlet.writable

    def write(self, data: bytes) -> None:
        """Send whole frames as one datagram."""
        self.send(data)

    def send(self, body: bytes, peer_session: int | None = None) -> int:
        """As `write`; returns the bytes sent. `peer_session`: whom it is for, if not the one we know."""
        session = self._link.peer_session if peer_session is None else peer_session
        datagram = self._header._replace(peer_session=session).pack() + body
        self._outlet.put(datagram, self._link.peer)
        return len(datagram)

    def refuse(self, error: PeerError, header: Header, now_s: float) -> None:
        """Tell the peer why its datagrams are dropped; once for a burst."""
        if now_s >= self._refuse_at_s:
            self._refuse_at_s = now_s + REFUSE_EVERY_S
            self.send(error_frame(error_code(error), error), header.session)

    def close(self, last_words: bytes = b"") -> None:
        """Nothing to close but the conversation."""
        if last_words:
            self.write(last_words)

    def abort(self) -> None:
        """There is no connection to abort: the port is there as long as the socket."""


class DatagramLink(Link):
    """A link that exists from the start, and keeps nothing: what has left is gone.

    `channel` says, as on other links, that the peer was heard lately and has heard us. Packets leave
    whether or not it is there.
    """

    def __init__(
        self, peer: NodeId, address: Address, limits: Limits, outlet: Outlet, header: Header
    ) -> None:
        super().__init__(peer, address, dials=True)
        self.port = Port(self, header, outlet)
        self.over: tuple[
            int, ...
        ] = ()  # sessions of earlier processes of the peer: their datagrams come too late
        self._limits = limits
        self._outlet = outlet

    def flush(self, max_packets: int, *, may_ack: bool, ack_now: bool) -> int:
        """Send what is pending in as few datagrams as hold it; returns the bytes sent."""
        incoming, out = self.incoming, self.out
        incoming.told = incoming.received  # no one waits for an acknowledgement
        if not out.pending:
            return 0
        if not self.alive:
            out.clear()
            return 0
        if not self._outlet.writable:
            self._drop_oldest()
            return 0
        frames = [packets_frame(packet) for packet in out.drain()]
        fitting = [frame for frame in frames if len(frame) <= MAX_BYTES - HEADER_BYTES]
        if len(fitting) < len(frames):
            self._outlet.dropped["too large for a datagram"] += len(frames) - len(fitting)
        return sum(map(self.port.send, batches(fitting, self._limits.datagram_bytes - HEADER_BYTES)))

    def _drop_oldest(self) -> None:
        """The socket takes nothing: keep the newest, as much as `broadcast` waits for."""
        pending, limits = self.out.pending, self._limits
        lost, rest_bytes = max(0, len(pending) - limits.queue_messages), self.out.unacknowledged_bytes()
        rest_bytes -= sum(map(len, pending[:lost]))
        while rest_bytes > limits.queue_bytes:
            rest_bytes -= len(pending[lost])
            lost += 1
        if lost:
            self._outlet.dropped["send queue full"] += lost
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


class Datagrams:
    """Judges the datagrams of all peers: `feed`, take the packets, then `obey`."""

    def __init__(
        self, links: Mapping[NodeId, DatagramLink], peering: Peering, journal: Journal, reader: FrameReader
    ) -> None:
        self._links = links
        self._peering = peering
        self._journal = journal
        self._reader = reader
        self._header = header_of(peering.identity)
        self._control: list[Control] = []

    def feed(self, data: bytes, peer: NodeId | None, host: str) -> list[Packet]:
        """The packets of a datagram from the address of `peer`, or from `host`, where no member is (None)."""
        self._control = []
        try:
            header = unpack_header(data)
            if peer is None:
                raise HandshakeError(
                    f"datagram from stranger at {host}",
                    "no member has this address",
                    "Check the addresses of the peers",
                )
        except PeerError as error:
            self._journal.fault("fault", peer or f"stranger at {host}", error)
            return []
        link = self._links[peer]
        try:
            return self._judge(link, header, data)
        except PeerError as error:
            link.last_error = error
            self._journal.fault("fault", peer, error)
            link.port.refuse(error, header, self._peering.now_s())
            return []

    def obey(self, peer: NodeId) -> None:
        """Do what the frames beside DATA of the last datagram say."""
        control, self._control = self._control, []
        link = self._links[peer]
        for each in control:
            if isinstance(each, Bye):
                self._peering.peer_leaves(link, link.port)
                return
            if isinstance(each, Hello):
                self._greet(link)
            elif isinstance(each, ClockNews):
                self._peering.owner.clock_told(link, each)

    def call(self) -> bool:
        """Greet the peers that have not been heard; returns whether there are any."""
        silent = [link for link in self._links.values() if link.alive and not link.channel]
        for link in silent:
            link.port.write(hello_frame(self._peering.identity.hello(link)))
        return bool(silent)

    def _judge(self, link: DatagramLink, header: Header, data: bytes) -> list[Packet]:
        body = data[HEADER_BYTES:]
        if header.digest != self._header.digest:
            self._differs(link, header, body)
            return []
        if header.sender != self._peering.identity.members.index(link.peer):
            raise HandshakeError(
                f"datagram from {link.peer!r}", "it names another sender", "Check the addresses of the peers"
            )
        packets = self._reader.whole(body)
        control = self._reader.control
        if self._obeys_refusal(link, header, control):
            return []
        if link.state is LinkState.LEFT and header.session == link.peer_session:
            if not self._peering.parting and any(isinstance(each, Bye) for each in control):
                link.port.write(BYE_FRAME)  # our reply to its good-bye was lost
            return []
        if header.session in link.over:
            raise HandshakeError(f"datagram from {link.peer!r}", "it is of a process that is over", "Wait")
        if link.peer_session not in (0, header.session) and not self._is_back(link, header):
            return []
        if header.peer_session not in (0, self._header.session):
            # It speaks to a process that had our name: let it hear of us, and decide.
            self._greet(link)
            raise HandshakeError(
                f"datagram from {link.peer!r}", "it is for an earlier process of this name", "Wait"
            )
        self._accept(link, header, len(data))
        self._control = control
        return packets

    def _is_back(self, link: DatagramLink, header: Header) -> bool:
        """Another process speaks under the peer's name: whether it takes the place of the earlier one.

        It does once that one is silent, and it has heard this node: so it is there now, and no recording.
        """
        if not self._peering.admission.returns:
            check_session(link, header.session)
        if link.channel is not None:
            raise RefusedForNowError(
                f"datagram from {link.peer!r}",
                "another process takes part under this name",
                "Stop one of the two",
            )
        if header.peer_session != self._header.session:
            link.port.send(hello_frame(self._peering.identity.hello(link)), header.session)
            return False
        link.over = (*link.over, link.peer_session)[-EARLIER_MAX:]
        link.peer_session = header.session
        was_alive = link.alive
        link.state, link.alive = LinkState.ALIVE, True
        self._journal.note("returned", link.peer, f"{link.peer} is back as another life, and begins anew")
        if not was_alive:
            self._peering.owner.link_up(link)
        return True

    def _differs(self, link: DatagramLink, header: Header, body: bytes) -> None:
        """The peer is configured otherwise; if it says how, say where the difference is."""
        self._reader.whole(body)
        control = self._reader.control
        if self._obeys_refusal(link, header, control):
            return
        for each in control:
            if isinstance(each, Hello):
                self._peering.identity.check(each)
        raise HandshakeError(
            f"datagram from {link.peer!r}",
            "it is configured otherwise than this node",
            "Give every member the same configuration",
        )

    def _obeys_refusal(self, link: DatagramLink, header: Header, control: list[Control]) -> bool:
        """A refusal counts if it is for this very process: no one can guess its session."""
        refusals = [each for each in control if isinstance(each, Refusal)]
        for refusal in refusals:
            if header.peer_session == self._header.session:
                self._peering.refused_by_peer(link, link.peer, refusal)
        return bool(refusals)

    def _accept(self, link: DatagramLink, header: Header, data_bytes: int) -> None:
        peering = self._peering
        link.peer_session = header.session
        link.heard_s = peering.now_s()
        peering.bytes_received += data_bytes
        if header.peer_session and link.channel is None:  # each has heard the other
            link.channel = link.port
            link.connections += 1
            link.wrote_s = link.heard_s
            link.last_error = None
            self._journal.recovered(link.peer)
            self._journal.note("connected", link.peer, f"heard {link.peer}, and was heard", logging.DEBUG)
            peering.owner.changed()

    def _greet(self, link: DatagramLink) -> None:
        """Reply to a HELLO: with ours while we do not know whether we are heard."""
        if link.channel is None:
            link.port.write(hello_frame(self._peering.identity.hello(link)))
        else:
            link.port.write(PING_FRAME)
