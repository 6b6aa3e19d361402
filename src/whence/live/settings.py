"""The settings of a node, checked by join.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from whence.core.message import NodeId
from whence.live.linkfaults import LinkFaults
from whence.live.tls import Keys
from whence.protocols import registry
from whence.session.addresses import Address
from whence.session.datagrams import payload_room_bytes
from whence.session.handshake import canonical_parameters
from whence.session.limits import Limits

SHUFFLE_S = 60.0  # as the paper has it
_BUFFER_SLACK_BYTES = 64 * 1024


class OverlaySettings(NamedTuple):
    """What a node of a group without a list of members is given besides."""

    contact: Address | None  # None: it is the first
    shuffle_s: float = SHUFFLE_S
    view_min: int = 4  # with fewer links a node asks for more


class Clock(Protocol):
    """The time of a node; an emulation's runs faster than ours."""

    @property
    def speed(self) -> float:
        """How many of its seconds pass in one second of the event loop."""

    def now_us(self) -> int:
        """The time now; it never goes back."""


class LogSettings(NamedTuple):
    """What a node of a group that remembers is given besides."""

    contacts: tuple[tuple[NodeId | None, Address], ...]  # whom to dial; None: whichever node listens there
    discover: bool = False  # by multicast, too
    history: str | bytes = "all"  # "all", "new", or a cut that a member made
    keep: str | int = "forever"  # "forever", "stable", "lifetime", or bytes
    stability: bool = False
    by_plan: bool = False  # someone else says who meets whom: the node finds no one by itself

    def parameters(self) -> dict[str, Any]:
        """What the core is told of it."""
        how: dict[str, Any] = {"keep": self.keep}
        if isinstance(self.keep, int):
            how = {"keep": "bytes", "keep_bytes": self.keep}
        history = "all" if isinstance(self.history, bytes) else self.history
        return {"history": history, "stability": self.stability, "reads": True, **how}


@dataclass(frozen=True)
class NodeSettings:
    """All that a node is given, checked."""

    group: str
    node: NodeId
    addresses: Mapping[NodeId, Address]  # all members; without a list this node alone, where others find it
    listen: Address | None  # None: it is not dialled, and dials others
    protocol: str
    params: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    transport: str = "tcp"
    faults: LinkFaults | None = None  # on purpose, of datagrams only
    store: Path | None = None  # of a durable node
    keys: Keys | None = None  # None: plain text
    plaintext: bool = False  # it was asked for, wherever the others are
    overlay: OverlaySettings | None = None  # of a node over links that change, without a list of members
    clock: Clock | None = None  # None: the wall clock
    linked: frozenset[NodeId] | None = None  # to whom links are made at first; None: to whom the core says
    log: LogSettings | None = None  # of a node of a group that remembers, without a list as well

    @property
    def max_payload_bytes(self) -> int:
        """The group's limit: a message must fit into one datagram, where there are datagrams."""
        room_bytes = payload_room_bytes(len(self.addresses))
        limit_bytes = self.limits.max_payload_bytes
        return min(limit_bytes, room_bytes) if self.transport == "udp" else limit_bytes

    @property
    def max_frame_bytes(self) -> int:
        """The longest frame that a correct peer can send.

        In an overlay a handshake's buffer holds what was delivered meanwhile; a longer one closes its link.
        In a group that remembers a packet may name all streams.
        """
        if self.overlay is not None or self.log is not None:
            return self.limits.max_payload_bytes + self.limits.queue_bytes + _BUFFER_SLACK_BYTES
        matrix = registry.lookup(self.protocol).point_to_point
        domains = self.params.get("domains")
        members = len(domains["seats"] if isinstance(domains, Mapping) else self.addresses)
        return self.limits.max_frame_bytes(members, matrix=matrix)

    def parameters(self) -> dict[str, str]:
        """The protocol's parameters on which all members must agree, each value as JSON text."""
        info = registry.lookup(self.protocol)
        params = dict(self.params)
        if isinstance(params.get("domains"), Mapping):  # it may change: `Domains.agreement` says the rest
            del params["domains"]
        parameters = canonical_parameters(info.shared({**info.parameters, **params}))
        if self.store is not None and self.log is None:
            parameters["store"] = "true"  # durable members only: the others could not come back
        return parameters
