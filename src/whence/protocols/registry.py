"""Every protocol by name: how to make it, where it belongs, what it promises."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whence.core.message import NodeId, Packet
from whence.core.protocol import Protocol
from whence.errors import ParameterError, UnknownProtocolError
from whence.protocols.fifo import Fifo
from whence.protocols.link_memory import LinkMemory
from whence.protocols.prc import Prc
from whence.protocols.preventive import Preventive
from whence.protocols.reliable import Reliable
from whence.protocols.vcube import VCube
from whence.protocols.vector import Vector


@dataclass(frozen=True)
class Promises:
    """What a correct run of the protocol shows; written into every trace's manifest."""

    causal: bool
    fifo: bool
    no_duplicates: bool
    complete: bool  # every surviving node delivers everything, if links are reliable and faults heal


@dataclass(frozen=True)
class ProtocolInfo:
    """One registered protocol."""

    name: str
    make: Callable[..., Protocol]
    packet_type: type[Packet]
    promises: Promises
    environment: str  # the world it is made for, in a few words
    summary: str
    any_topology: bool = True  # False: it needs the links of a full mesh or of a hypercube
    fifo_links: bool = False  # True: it needs links that keep the order and bring everything just once
    live: bool = True  # False: whence.join refuses it (see `environment`)

    @property
    def parameters(self) -> dict[str, Any]:
        """The keyword parameters of `make` with their defaults."""
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.make).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }


_REGISTRY: dict[str, ProtocolInfo] = {}


def register(info: ProtocolInfo) -> None:
    """Add a protocol, or replace the one of the same name."""
    _REGISTRY[info.name] = info


def names() -> list[str]:
    """All registered names, sorted."""
    return sorted(_REGISTRY)


def lookup(name: str) -> ProtocolInfo:
    """The protocol of that name."""
    info = _REGISTRY.get(name)
    if info is None:
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UnknownProtocolError(
            f"protocol {name!r}", "there is none of that name", f"{hint}Choose from: {', '.join(names())}"
        )
    return info


def require_live(name: str) -> None:
    """Refuse a protocol that cannot run between live nodes."""
    info = lookup(name)
    if not info.live:
        lively = ", ".join(each for each in names() if _REGISTRY[each].live)
        raise ParameterError(
            f"protocol {name!r}",
            f"it does not run between live nodes yet ({info.environment})",
            f"Choose from: {lively}",
        )


def make(
    name: str, me: NodeId, members: Iterable[NodeId], params: Mapping[str, Any] | None = None
) -> Protocol:
    """A fresh core of protocol `name` for node `me`."""
    info = lookup(name)
    given = dict(params or {})
    known = info.parameters
    for key in given:
        if key not in known:
            raise ParameterError(
                f"parameter {key!r} of protocol {name!r}",
                "there is none of that name",
                f"Choose from: {', '.join(sorted(known)) or 'none'}",
            )
    return info.make(me, members, **given)


register(
    ProtocolInfo(
        name="fifo",
        make=Fifo,
        packet_type=Fifo.packet_type,
        promises=Promises(causal=False, fifo=True, no_duplicates=True, complete=True),
        environment="any connected group; baseline without causal order",
        summary="reliable FIFO flooding",
    )
)
register(
    ProtocolInfo(
        name="vector",
        make=Vector,
        packet_type=Vector.packet_type,
        promises=Promises(causal=True, fifo=True, no_duplicates=True, complete=True),
        environment="a known group of moderate size; baseline",
        summary="vector-clock causal broadcast with delta compression",
    )
)
register(
    ProtocolInfo(
        name="vcube",
        make=VCube,
        packet_type=VCube.packet_type,
        promises=Promises(causal=True, fifo=True, no_duplicates=True, complete=True),
        environment="a known group where any two nodes can talk; hundreds of broadcasting nodes",
        summary="causal broadcast over one hypercube tree per source, related messages in one packet",
        any_topology=False,
    )
)
register(
    ProtocolInfo(
        name="reliable",
        make=Reliable,
        packet_type=Reliable.packet_type,
        promises=Promises(causal=False, fifo=False, no_duplicates=True, complete=True),
        environment="any connected group; baseline without any order",
        summary="reliable flooding with a memory of every origin",
    )
)
register(
    ProtocolInfo(
        name="preventive",
        make=Preventive,
        packet_type=Preventive.packet_type,
        promises=Promises(causal=True, fifo=True, no_duplicates=True, complete=True),
        environment="links that change, with a memory of every origin; baseline, simulation only",
        summary="causal broadcast that uses a new link only when it is safe",
        fifo_links=True,
        live=False,
    )
)
register(
    ProtocolInfo(
        name="link_memory",
        make=LinkMemory,
        packet_type=LinkMemory.packet_type,
        promises=Promises(causal=True, fifo=True, no_duplicates=True, complete=True),
        environment="static FIFO links; simulation only",
        summary="causal broadcast that forgets a message with its last copy (paper 003, Algorithm 1)",
        fifo_links=True,
        live=False,
    )
)
register(
    ProtocolInfo(
        name="prc",
        make=Prc,
        packet_type=Prc.packet_type,
        promises=Promises(causal=True, fifo=True, no_duplicates=True, complete=True),
        environment="large groups without a list of members, whose links change; simulation only",
        summary="link memory over links that open and close while messages flow (paper 003, Algorithm 2)",
        fifo_links=True,
        live=False,
    )
)
