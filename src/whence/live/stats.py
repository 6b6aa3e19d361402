"""Counters of one node, as `Group.stats` returns them."""

from __future__ import annotations

import msgspec

from whence.live.node import Node
from whence.session.clocks import ClockWatch
from whence.session.links import Link


class LinkStats(msgspec.Struct, frozen=True, kw_only=True):
    """One peer."""

    state: str  # "connected", "disconnected", "left" or "given up"
    connections: int
    unacknowledged_messages: int
    unacknowledged_bytes: int
    packets_sent: int
    packets_received: int
    last_error: str | None
    # How far its clock is ahead, and how wrong that may be: where deadlines rest on clocks, once it is known.
    clock_offset_us: int | None = None
    clock_error_us: int | None = None


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """The store of a durable node, since the node started."""

    records: int  # inputs that were written
    commits: int  # synced writes: records share them
    snapshots: int
    log_bytes: int  # since the last snapshot: what a recovery would read
    reactions: int  # of the agent, in all lives
    in_hand: int  # messages that the agent or reader was given, and is not done with: the disk has them
    error: str | None  # why the last write failed, while that is so


class LogStats(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a node in a group that remembers."""

    life: str
    first: int  # LSN of the oldest entry that is kept
    next: int  # LSN of the next entry
    cursor: int  # the first LSN that readers are not done with
    size_bytes: int
    streams: int  # one for each life of each node
    missed: int  # messages that were passed over, each told as an outcome
    outbox: int  # messages that wait until a member has admitted this node
    commits: int  # synced writes of its store
    error: str | None  # why the last write failed, while that is so


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one node since it joined."""

    broadcasts: int
    deliveries: int
    packets_sent: int  # each receiver counts, resent ones do not
    packets_received: int
    bytes_sent: int  # as written, with acknowledgements and resent frames
    bytes_received: int
    discards: dict[str, int]  # by reason
    expiries: dict[str, int]  # messages that came or waited too long, by reason
    reconnects: int
    peer_errors: dict[str, int]  # by type of error
    unread_messages: int  # delivered, but not taken by the application
    unread_bytes: int
    held_messages: int  # received, but waiting for what precedes them
    control_entries: int  # of control information in memory, for messages and for links being opened
    dropped: dict[str, int]  # packets or datagrams that this node dropped, by cause; none on tcp
    lost_frames: int  # queued for peers that left or were given up
    missed_messages: int  # that this node will not be given: `Group.events()` says which
    rejoins: int  # how often this node was out of the group and came back as another life
    splits: int  # how often it met a process of another part of its group, which had been split
    links: dict[str, LinkStats]
    store: StoreStats | None = None  # of a durable node
    log: LogStats | None = None  # of a node in a group that remembers


def gather(node: Node) -> Stats:
    """What `node` has counted so far."""
    host = node.host
    links = {peer: _of_link(link, node.clocks) for peer, link in node.links.items()}
    return Stats(
        broadcasts=host.broadcasts,
        deliveries=host.deliveries,
        packets_sent=sum(link.packets_sent for link in links.values()),
        packets_received=sum(link.packets_received for link in links.values()),
        bytes_sent=node.bytes_sent,
        bytes_received=node.peering.bytes_received,
        discards={reason.value: count for reason, count in host.discards.items()},
        expiries={reason.value: count for reason, count in host.expiries.items()},
        reconnects=sum(max(0, link.connections - 1) for link in links.values()),
        peer_errors=dict(node.journal.peer_errors),
        unread_messages=len(host.inbox),
        unread_bytes=host.unread_bytes,
        held_messages=host.held,
        control_entries=host.core.entries(),
        dropped=dict(node.transport.dropped),
        lost_frames=node.peering.lost_frames,
        missed_messages=host.missed,
        rejoins=node.rejoins,
        splits=node.splits,
        links=links,
    )


def _of_link(link: Link, clocks: ClockWatch | None) -> LinkStats:
    offset = None if clocks is None else clocks.offset(link.peer)
    connected = "connected" if link.channel is not None else "disconnected"
    return LinkStats(
        state=connected if link.alive else link.state.value,
        connections=link.connections,
        unacknowledged_messages=link.out.messages,
        unacknowledged_bytes=link.out.unacknowledged_bytes(),
        packets_sent=link.out.total,
        packets_received=link.incoming.received,
        last_error=str(link.last_error) if link.last_error else None,
        clock_offset_us=None if offset is None else offset.offset_us,
        clock_error_us=None if offset is None else offset.error_us,
    )
