"""The settings of a node, checked by join.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whence.core.message import NodeId
from whence.errors import ParameterError
from whence.live.linkfaults import LinkFaults
from whence.live.tls import Keys
from whence.protocols import registry
from whence.session.addresses import Address, parse_address
from whence.session.datagrams import payload_room_bytes
from whence.session.handshake import canonical_parameters
from whence.session.limits import Limits


@dataclass(frozen=True)
class NodeSettings:
    """All that a member of a listed group is given, checked."""

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

    @property
    def max_frame_bytes(self) -> int:
        """The longest frame that a correct peer can send."""
        matrix = registry.lookup(self.protocol).point_to_point
        return self.limits.max_frame_bytes(len(self.addresses), matrix=matrix)

    def parameters(self) -> dict[str, str]:
        """The protocol's parameters on which all members must agree, each value as JSON text."""
        info = registry.lookup(self.protocol)
        parameters = canonical_parameters(info.shared({**info.parameters, **self.params}))
        if self.store is not None:
            parameters["store"] = "true"  # durable members only: the others could not come back
        return parameters


SHUFFLE_S = 60.0  # as the paper has it
_SHUFFLE_MAX_S = 10**9
_BUFFER_SLACK_BYTES = 64 * 1024


@dataclass(frozen=True)
class OpenSettings(NodeSettings):
    """As `NodeSettings` without a list: `addresses` has the node alone, where others find it."""

    contact: Address | None = None  # None: it is the first
    shuffle_s: float = SHUFFLE_S
    view_min: int = 4  # with fewer links a node asks for more

    @property
    def max_frame_bytes(self) -> int:
        """A handshake's buffer holds what was delivered meanwhile; a longer one closes its link instead."""
        return self.limits.max_payload_bytes + self.limits.queue_bytes + _BUFFER_SLACK_BYTES


def open_settings(
    group: str,
    node: NodeId,
    contact: str | None,
    listen: str | None,
    protocol: str,
    params: Mapping[str, Any],
    limits: Limits,
    shuffle_s: float | None,
) -> OpenSettings:
    """The settings, or the error that names what is wrong."""
    if "\0" in node:
        raise ParameterError(f"node {node!r}", "a name holds no NUL", "Choose another name")
    if listen is None:
        raise ParameterError("listen", "the others must know where to find this process", "Give host:port")
    period_s: object = SHUFFLE_S if shuffle_s is None else shuffle_s
    if (
        isinstance(period_s, bool)
        or not isinstance(period_s, int | float)
        or not 0 < period_s <= _SHUFFLE_MAX_S
    ):
        raise ParameterError("shuffle_s", f"{period_s!r} is not a positive number of seconds", "Use 60")
    limits.check()
    params = registry.lookup(protocol).live_parameters(params)
    if params["links"] != "dynamic":
        raise ParameterError("links", "live links come and go", "Leave it out")
    registry.make(protocol, node, [node], params)  # refuse an unknown parameter here and now
    address = parse_address(listen, "listen")
    return OpenSettings(
        group=group,
        node=node,
        addresses={node: address},
        listen=address,
        protocol=protocol,
        params=params,
        limits=limits,
        contact=None if contact is None else parse_address(contact, "contact"),
        shuffle_s=float(period_s),
    )
