"""Everything that a node is told, checked by joining.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whence.core.message import NodeId
from whence.live.addresses import Address
from whence.live.datagrams import payload_room_bytes
from whence.live.limits import Limits
from whence.live.linkfaults import LinkFaults
from whence.live.tls import Keys


@dataclass(frozen=True)
class Settings:
    """Everything that a node is told, checked."""

    group: str
    node: NodeId
    addresses: Mapping[NodeId, Address]  # all members
    listen: Address
    protocol: str
    params: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    transport: str = "tcp"
    faults: LinkFaults | None = None  # on purpose, of datagrams only
    store: Path | None = None  # of a durable node
    keys: Keys | None = None  # None: plain text
    plaintext: bool = False  # it was asked for, wherever the others are

    @property
    def max_payload_bytes(self) -> int:
        """The group's limit: a message must fit into one datagram, where there are datagrams."""
        room_bytes = payload_room_bytes(len(self.addresses))
        limit_bytes = self.limits.max_payload_bytes
        return min(limit_bytes, room_bytes) if self.transport == "udp" else limit_bytes
