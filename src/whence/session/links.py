"""One link, without any I/O: what is unacknowledged, what was received, who the peer is.

This is the reliable FIFO link over TCP; `datagrams.py` has the other one. A link outlives its TCP
connections. Both ends count the packets of the session; after a reconnection each says in its HELLO
how many it has, the other drops those and writes the rest again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from itertools import chain
from typing import Protocol

from whence.core.message import NodeId
from whence.errors import FrameError, HandshakeError, PeerError
from whence.session.addresses import Address
from whence.session.wire import ack_frame, packets_frame

# An acknowledgement travels with data, or alone once this much has arrived, or when its delay is over.
ACK_PACKETS = 128
ACK_BYTES = 64 * 1024
FORGOTTEN = 1  # the session of no process: a link that knew its peer, and does not any more


class LinkOut:
    """Encoded packets for one peer that it has not acknowledged, oldest first.

    `pending` is what the present connection has not been given; a host that queues a packet appends to
    it directly, because a call per receiver would cost more than the appending. Packets are written
    and acknowledged in batches, so the bookkeeping costs per batch, not per packet.
    """

    __slots__ = (
        "_first", "_marks", "_measured", "_pending_bytes", "_written", "_written_bytes",
        "acknowledged", "pending", "sent", "taken",
    )  # fmt: skip

    def __init__(self) -> None:
        self.pending: list[bytes] = []
        self.taken = 0  # packets of the session before pending[0]
        self.sent = 0  # packets of the session that any connection was given: after a cut more than `taken`
        self.acknowledged = 0
        self._written: deque[tuple[list[bytes], int]] = deque()  # batches with their bytes
        self._written_bytes = 0
        self._first = 0  # packets of the session before _written[0]
        self._measured = 0  # packets of `pending` that `_pending_bytes` counts
        self._pending_bytes = 0
        self._marks: deque[int] = deque()  # which of the unacknowledged packets are no messages

    @property
    def total(self) -> int:
        """Frames queued since the session began."""
        return self.taken + len(self.pending)

    @property
    def unacknowledged(self) -> int:
        """Frames that the peer has not acknowledged."""
        return self.taken + len(self.pending) - self.acknowledged

    @property
    def messages(self) -> int:
        """Messages that the peer has not acknowledged: what a user is told of, and what takes room."""
        return self.taken + len(self.pending) - self.acknowledged - len(self._marks)

    def messages_before(self, total: int) -> int:
        """Those among the first `total` packets of the session."""
        return total - self.acknowledged - sum(mark <= total for mark in self._marks)

    def append_mark(self, packet: bytes) -> None:
        """Queue a packet that is no message."""
        self.pending.append(packet)
        self._marks.append(self.total)

    def unacknowledged_bytes(self) -> int:
        """Their bytes; a batch counts until all of it is acknowledged."""
        if self._measured < len(self.pending):
            self._pending_bytes += sum(map(len, self.pending[self._measured :]))
            self._measured = len(self.pending)
        return self._written_bytes + self._pending_bytes

    def take(self, max_packets: int) -> bytes:
        """The next pending packets, in one frame."""
        pending = self.pending
        if len(pending) <= max_packets:
            batch, self.pending = pending, []
        else:
            batch, self.pending = pending[:max_packets], pending[max_packets:]
        packets = b"".join(batch)
        self._pending_bytes = self._measured = 0
        self._written.append((batch, len(packets)))
        self._written_bytes += len(packets)
        self.taken += len(batch)
        self.sent = max(self.sent, self.taken)
        return packets_frame(packets, len(batch))

    def acknowledge(self, received: int) -> None:
        """The peer has received the session's first `received` packets.

        Of those, some may have travelled on an earlier connection while its HELLO for this one did not count
        them (they were on the way to its disk). They are pending, and it counts on them: they travel again.
        """
        if not self.acknowledged <= received <= self.sent:
            raise FrameError(
                "ACK frame",
                f"it acknowledges {received} packets, where {self.acknowledged} to {self.sent} are possible",
                "Check that the peer runs this release",
            )
        self.acknowledged = received = min(received, self.taken)
        written = self._written
        while written and self._first + len(written[0][0]) <= received:
            batch, batch_bytes = written.popleft()
            self._first += len(batch)
            self._written_bytes -= batch_bytes
        self._drop_marks()

    def resume(self, received: int) -> None:
        """A new connection: the peer has `received` packets, all others are pending again."""
        if not self.acknowledged <= received <= self.sent:
            raise HandshakeError(
                "HELLO frame",
                f"the peer says that it received {received} packets of this session, "
                f"where {self.acknowledged} to {self.sent} are possible",
                "Restart the group: one of the two has lost its state",
            )
        written = list(chain.from_iterable(batch for batch, _ in self._written))
        self._forget_written(received, (written + self.pending)[received - self._first :])

    def can_resume(self, received: int) -> bool:
        """Whether a peer that has `received` packets can go on where this queue is."""
        return self.acknowledged <= received <= self.sent

    def restart(self, acknowledged: int) -> list[bytes]:
        """A new numbering begins; returns what followed the first `acknowledged` packets of the old one."""
        packets = self.unacknowledged_packets()[max(acknowledged - self.acknowledged, 0) :]
        self._forget_written(0, [])
        self.sent = 0
        return packets

    def unacknowledged_packets(self) -> list[bytes]:
        """What a durable node keeps of the queue."""
        written = list(chain.from_iterable(batch for batch, _ in self._written))
        return written[self.acknowledged - self._first :] + self.pending

    def restore(self, acknowledged: int, packets: list[bytes]) -> None:
        """Become the queue that was kept: `packets` follow the first `acknowledged` of the session."""
        self._forget_written(acknowledged, packets)

    def mark(self, at: Iterable[int]) -> None:
        """Of the unacknowledged packets these, counted from 0, are no messages."""
        self._marks = deque(self.acknowledged + 1 + each for each in at)

    def clear(self) -> int:
        """The peer is gone: forget everything; returns how many messages it will never get."""
        lost = self.messages
        self._forget_written(self.total, [])
        return lost

    def drop_pending(self) -> int:
        """Forget what no connection has been given: it has no number yet. Returns how many messages."""
        before = self.messages
        self.pending = []
        self._pending_bytes = self._measured = 0
        self._drop_marks()
        return before - self.messages

    def drain(self) -> list[bytes]:
        """All that is pending, for a link that keeps nothing."""
        packets = self.pending
        self.clear()
        return packets

    def drop_oldest(self, count: int) -> None:
        """Forget the oldest pending packets of such a link."""
        self._forget_written(self.taken + count, self.pending[count:])

    def _forget_written(self, count: int, pending: list[bytes]) -> None:
        self.pending = pending
        self.taken = self.acknowledged = self._first = count
        self.sent = max(self.sent, count)
        self._written.clear()
        self._written_bytes = self._pending_bytes = self._measured = 0
        self._drop_marks()

    def _drop_marks(self) -> None:
        """Forget the marks that are acknowledged, or no longer queued."""
        marks = self._marks
        while marks and marks[0] <= self.acknowledged:
            marks.popleft()
        while marks and marks[-1] > self.total:
            marks.pop()


class LinkIn:
    """What has arrived from one peer, and how much of that the peer has been told."""

    __slots__ = ("received", "told", "untold_bytes")

    def __init__(self) -> None:
        self.received = 0  # packets of the session
        self.told = 0  # how many of them we have acknowledged
        self.untold_bytes = 0

    def take(self, packets: int, data_bytes: int) -> None:
        """So many more packets have arrived and been accepted."""
        self.received += packets
        self.untold_bytes += data_bytes

    def ack_is_due(self) -> bool:
        """An acknowledgement should leave even if nothing travels with it."""
        return self.received - self.told >= ACK_PACKETS or self.untold_bytes >= ACK_BYTES

    def ack(self) -> bytes:
        """The frame that acknowledges all that was received."""
        self.told = self.received
        self.untold_bytes = 0
        return ack_frame(self.received)


class LinkState(Enum):
    """Whether the peer still belongs to the group, as far as this node knows."""

    ALIVE = "alive"  # connected or not: it may come (back)
    LEFT = "left"  # it said good-bye
    GIVEN_UP = "given up"  # too slow, out of reach for too long, or it has lost its state
    OUT = "out of the group"  # so says the protocol; if it lives, it learns of it over this link
    RETIRED = "retired"  # a member said so, for all


class Channel(Protocol):
    """What a link needs of a connection."""

    @property
    def writable(self) -> bool:
        """More can be written now."""

    def write(self, data: bytes) -> None:
        """Hand over bytes; may clear `writable`."""

    def close(self, last_words: bytes = b"") -> None:
        """Write `last_words`, then close."""

    def abort(self) -> None:
        """Close immediately."""


class Link:
    """Everything this node knows about one peer."""

    def __init__(self, peer: NodeId, address: Address, dials: bool, renews: bool = False) -> None:
        self.peer = peer
        self.renews = renews  # the peer may come back as a new process, without its state
        self.address = address
        self.dials = dials  # this node makes the connection; otherwise it waits for the peer's
        self.out = LinkOut()
        self.promised = 0  # messages for it on their way to the disk: they will be in the queue
        self.incoming = LinkIn()
        self.arrived = (
            0  # number of the newest DATA frame on the present connection: it may not be `received`
        )
        self.state = LinkState.ALIVE
        self.alive = True  # the peer may still be a member: its queue counts
        self.session = 0  # our session towards this peer, where it is not the node's own
        self.peer_session = 0  # 0: never met
        self.peer_life = 0  # the process, or the opening of its store, that we met last
        self.restarting = 0  # new numberings that begin, and the disk does not know yet: nothing leaves
        self.knows_other = False  # the peer knows an earlier life of this node
        self.is_cut_off = False  # the core was told that there is no connection
        self.channel: Channel | None = None
        self.connections = 0
        self.heard_s = 0.0  # loop time of the last bytes from the peer
        self.wrote_s = 0.0
        self.lost_s = 0.0  # loop time since when there is no connection
        self.last_error: PeerError | OSError | None = None
        self.faults = 0  # in a row, without a DATA frame accepted in between
        self.refuse_until_s = 0.0
        self._fault_at = -1

    def end(self, state: LinkState) -> None:
        """The peer is not a member any more."""
        self.state = state
        self.alive = False

    def count_on(self, counts: bool) -> int:
        """The protocol goes on with the peer or without it; returns how many packets are void for that."""
        if self.state not in (LinkState.ALIVE, LinkState.OUT):
            return 0
        self.state, self.alive = LinkState.ALIVE if counts else LinkState.OUT, counts
        return 0 if counts else self.out.drop_pending()

    def renew(self) -> None:
        """The peer has come back as a new process: nothing that was said before counts."""
        self.out, self.incoming = LinkOut(), LinkIn()
        self.state, self.alive = LinkState.ALIVE, True
        self.peer_session = self.faults = 0
        self.refuse_until_s, self._fault_at = 0.0, -1

    @property
    def received(self) -> int:
        """What our HELLO says that we have of the peer's packets."""
        return 0 if self.restarting else self.incoming.received

    @property
    def followed(self) -> int:
        """How many packets the peer has of the numbering before the newest: none of one not begun."""
        return self.out.acknowledged if self.restarting <= 1 else 0

    def begin(self) -> None:
        """A HELLO leaves: what comes on its connection follows what is received by now."""
        self.arrived = self.received

    def attach(self, channel: Channel, session: int, received: int) -> None:
        """A connection has passed its handshake: resume on it, or begin anew."""
        if not self.restarting:
            self.out.resume(received)
            self.incoming.told = self.incoming.received  # our HELLO says so
            self.incoming.untold_bytes = 0
        self.peer_session = session
        self.channel = channel
        self.connections += 1

    def restart(self, acknowledged: int) -> list[bytes]:
        """Begin a new numbering with a peer that may be another life; returns what it was to be sent."""
        packets = self.out.restart(acknowledged)
        self.incoming = LinkIn()
        self.state, self.alive = LinkState.ALIVE, True
        self.restarting, self.faults = max(self.restarting - 1, 0), 0  # in a recovery none is on its way
        self.refuse_until_s, self._fault_at = 0.0, -1
        return packets

    def forget_peer(self) -> None:
        """The next node of the peer's name is another life."""
        self.peer_session = FORGOTTEN

    def flush(self, max_packets: int, *, may_ack: bool, ack_now: bool) -> int:
        """Write what is pending, and an acknowledgement if one is due; returns the bytes written.

        One write carries both. `may_ack` is False while the application has too much to read.
        """
        channel, out, incoming = self.channel, self.out, self.incoming
        if channel is None or not channel.writable or self.restarting:
            return 0
        ack = b""
        if (
            may_ack
            and incoming.received > incoming.told
            and (ack_now or out.pending or incoming.ack_is_due())
        ):
            ack = incoming.ack()
        written = 0
        while out.pending and channel.writable:
            data = out.take(max_packets)
            if ack:
                data, ack = ack + data, b""
            channel.write(data)
            written += len(data)
        if ack:
            channel.write(ack)
            written += len(ack)
        return written

    def fault(self, now_s: float, first_s: float, max_s: float) -> None:
        """The peer broke the format: refuse it for a while, longer each time it gets no further.

        A frame damaged on its way is sent again and accepted immediately; a peer that always sends the
        same nonsense would otherwise reconnect forever at full speed.
        """
        received = self.incoming.received
        self.faults = self.faults + 1 if received == self._fault_at else 0
        self._fault_at = received
        if self.faults:
            self.refuse_until_s = now_s + min(max_s, first_s * 2.0 ** min(self.faults, 30))
