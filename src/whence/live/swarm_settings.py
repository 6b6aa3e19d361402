"""What a process of a group without a list of members is told, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whence.core.message import NodeId
from whence.errors import ParameterError
from whence.live.addresses import Address, parse_address
from whence.live.limits import Limits
from whence.live.settings import Settings
from whence.protocols import registry

SHUFFLE_S = 60.0  # as the paper has it
_SHUFFLE_MAX_S = 10**9


@dataclass(frozen=True)
class SwarmSettings(Settings):
    """`addresses` has the process alone: where it listens, and where others find it."""

    contact: Address | None = None  # None: it is the first
    shuffle_s: float = SHUFFLE_S
    view_min: int = 4  # with fewer links a process asks for more


def swarm_settings(
    group: str,
    node: NodeId,
    contact: str | None,
    listen: str | None,
    protocol: str,
    params: Mapping[str, Any],
    limits: Limits,
    shuffle_s: float | None,
) -> SwarmSettings:
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
    params = {**registry.lookup(protocol).live_defaults, **params}
    if params["links"] != "dynamic":
        raise ParameterError("links", "live links come and go", "Leave it out")
    registry.make(protocol, node, [node], params)  # refuse an unknown parameter here and now
    address = parse_address(listen, "listen")
    return SwarmSettings(
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
