"""Counters of one node, as `Group.stats` returns them."""

from __future__ import annotations

import msgspec


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
