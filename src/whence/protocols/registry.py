"""Every protocol by name: how to make it, where it belongs, what it promises."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from whence import plugins
from whence.core.message import NodeId, Packet
from whence.core.parameters import Parameter, Parameters, choice, flag
from whence.core.protocol import Protocol
from whence.errors import ParameterError, UnknownProtocolError
from whence.protocols.barrier.broadcast import Barrier
from whence.protocols.barrier.oppnet import Oppnet
from whence.protocols.baselines.fifo import Fifo
from whence.protocols.baselines.flooding import NEED
from whence.protocols.baselines.reliable import Reliable
from whence.protocols.baselines.vector import Vector
from whence.protocols.deadline.odca import Odca
from whence.protocols.deadline.published import PublishedOdca, PublishedTdca
from whence.protocols.deadline.tdca import Tdca
from whence.protocols.domains.domains import Domains
from whence.protocols.domains.matrix import Matrix
from whence.protocols.log.core import Log
from whence.protocols.prc.link_memory import LinkMemory
from whence.protocols.prc.prc import Prc
from whence.protocols.prc.preventive import Preventive
from whence.protocols.vcube.core import VCube
from whence.protocols.vcube.members import VCubeMembers


@dataclass(frozen=True)
class Promises:
    """What a correct run of the protocol shows; written into every trace's manifest."""

    causal: bool
    fifo: bool
    no_duplicates: bool
    complete: bool  # every surviving node delivers everything, if links are reliable and faults heal
    timely: bool = False  # nothing is delivered after its lifetime, as far as the nodes' clocks agree


@dataclass(frozen=True)
class ProtocolInfo:
    """One registered protocol."""

    name: str
    make: Callable[..., Protocol]
    packet_type: type[Packet]
    declared: Parameters
    promises: Promises
    environment: str  # the world it is made for, in a few words
    summary: str
    lifetimes: bool = False  # a message may have a lifetime (`broadcast_within`)
    datagrams: bool = False  # made for links that lose, duplicate and reorder
    any_topology: bool = True  # False: it needs the links of a full mesh or of a hypercube
    fifo_links: bool = False  # True: it needs links that keep the order and bring everything just once
    point_to_point: bool = False  # its input is `send(to, ...)`, not `broadcast`; it needs a full mesh
    live: bool = True  # False: whence.join refuses it (see `environment`)
    # What a live node sets unless told otherwise.
    live_defaults: Mapping[str, Any] = field(default_factory=dict)
    overlay: bool = False  # live nodes join it through a contact: there is no list of members
    local: frozenset[str] = frozenset()  # parameters on which the members need not agree
    later: frozenset[str] = frozenset()  # of the others, those that nodes of earlier releases do not know
    lives: bool = False  # every opening of a node is a stream of its own: an origin is "name/life"

    @classmethod
    def of(cls, core: type[Protocol], promises: Promises, modes: Modes | None = None, **more: Any) -> Self:
        """Return the entry of a core: its name and packets are those of `core`, also where it has `modes`."""
        return cls(
            name=core.name,
            make=modes or core,
            packet_type=core.packet_type,
            declared=core.parameters if modes is None else modes.declared,
            promises=promises,
            **more,
        )

    def shared(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters on which all members must agree; those of later releases only where used."""
        return {
            name: value
            for name, value in params.items()
            if name not in self.local and not (name in self.later and value == self.declared.defaults[name])
        }

    def live_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What a live node sets: `given`, and the live defaults that count in the mode that is given."""
        return {
            **{
                name: value for name, value in self.live_defaults.items() if self.declared.counts(name, given)
            },
            **given,
        }

    @property
    def parameters(self) -> dict[str, Any]:
        """The keyword parameters of `make` with their defaults."""
        return self.declared.defaults


class Modes:
    """A protocol whose parameter `switch` chooses between cores, each with parameters of its own."""

    def __init__(self, switch: Parameter, cores: Mapping[Any, type[Protocol]], place: int = 0) -> None:
        self._switch = switch
        self._cores: dict[Any, Callable[..., Protocol]] = dict(cores)
        modes = {value: core.parameters for value, core in cores.items()}
        self.declared = Parameters.by_mode(switch, modes, place)

    def __call__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> Protocol:
        """Make a core of the mode that is given."""
        mode = given.pop(self._switch.name, self._switch.default)
        return self._cores[mode](me, members, **given)


_MODE = choice("mode", "safe", ("safe", "published"))
VCUBE = Modes(flag("detect", default=False), {False: VCube, True: VCubeMembers}, place=4)
TDCA = Modes(_MODE, {"safe": Tdca, "published": PublishedTdca})
ODCA = Modes(_MODE, {"safe": Odca, "published": PublishedOdca})


CAUSAL = Promises(causal=True, fifo=True, no_duplicates=True, complete=True)
_FIFO = replace(CAUSAL, causal=False)
_UNORDERED = replace(_FIFO, fifo=False)
_BY_CHANCE = replace(CAUSAL, complete=False)
_TIMELY = replace(_BY_CHANCE, timely=True)

_PROTOCOLS = (
    ProtocolInfo.of(
        Fifo,
        _FIFO,
        environment="any connected group; baseline without causal order",
        summary="reliable FIFO flooding",
        live_defaults={"relay": NEED},
    ),
    ProtocolInfo.of(
        Vector,
        CAUSAL,
        environment="a known group of moderate size; baseline",
        summary="vector-clock causal broadcast with delta compression",
        live_defaults={"relay": NEED},
    ),
    ProtocolInfo.of(
        VCube,
        CAUSAL,
        VCUBE,
        environment="a known group where any two nodes can talk; hundreds of broadcasting nodes",
        summary="causal broadcast over one hypercube tree per source, related messages in one packet",
        any_topology=False,
        live_defaults={"detect": True},
        local=frozenset({"joins"}),
    ),
    ProtocolInfo.of(
        Barrier,
        CAUSAL,
        environment="a group that nobody needs to know, on any connected links; messages may have lifetimes",
        summary="causal and Δ-causal broadcast with causal barriers",
        lifetimes=True,
        local=frozenset({"late_us"}),
    ),
    ProtocolInfo.of(
        Oppnet,
        _BY_CHANCE,
        environment="an opportunistic network: nodes that meet now and then, and carry messages in between",
        summary="causal barriers over store-carry-forward",
        lifetimes=True,
        local=frozenset({"late_us"}),
    ),
    ProtocolInfo.of(
        Log,
        CAUSAL,
        environment="a group that nobody lists: nodes come, go, meet and lose their disks; all keep a log",
        summary="causal barriers over logs that whoever meets brings level; nothing is missed silently",
        lifetimes=True,
        fifo_links=True,
        live_defaults={"cork_us": 1, "window": 4096},
        lives=True,
        local=frozenset(Log.parameters.defaults)
        - {"lifetimes", "lifetime_us", "skew_us", "stability", "chain"},
        later=frozenset({"chain"}),
    ),
    ProtocolInfo.of(
        Tdca,
        _TIMELY,
        TDCA,
        environment="a known group over links that lose packets, for messages that are worthless when late",
        summary="causal order before each message's deadline, without repair",
        lifetimes=True,
        datagrams=True,
    ),
    ProtocolInfo.of(
        Odca,
        _TIMELY,
        ODCA,
        environment="a known group over links that lose packets, for messages that are worthless when late",
        summary="causal order before each message's deadline; members ask each other for what is missing",
        lifetimes=True,
        datagrams=True,
        # Two seconds: a node that has not met the one that asks does not answer until they have met.
        live_defaults={"pulls": 40},
    ),
    ProtocolInfo.of(
        Reliable,
        _UNORDERED,
        environment="any connected group; baseline without any order",
        summary="reliable flooding with a memory of every origin",
    ),
    ProtocolInfo.of(
        LinkMemory,
        CAUSAL,
        environment="static FIFO links; simulation only",
        summary="causal broadcast that forgets a message with its last copy (paper 003, Algorithm 1)",
        fifo_links=True,
        live=False,
    ),
    ProtocolInfo.of(
        Prc,
        CAUSAL,
        environment="large groups without a list of members, whose links change",
        summary="link memory over links that open and close while messages flow (paper 003, Algorithm 2)",
        fifo_links=True,
        live_defaults={"links": "dynamic", "timeout_us": 5_000_000},
        overlay=True,
        local=frozenset({"timeout_us", "attempts", "own_after_echo"}),
    ),
    ProtocolInfo.of(
        Preventive,
        CAUSAL,
        environment="links that change, with a memory of every origin; baseline, simulation only",
        summary="causal broadcast that uses a new link only when it is safe",
        fifo_links=True,
        live=False,
    ),
    ProtocolInfo.of(
        Matrix,
        CAUSAL,
        environment="a few servers that send each other point-to-point messages",
        summary="causal point-to-point messages by matrix clocks, sent whole or as updates",
        any_topology=False,
        point_to_point=True,
    ),
    ProtocolInfo.of(
        Domains,
        CAUSAL,
        environment="many servers in acyclic domains, linked by routers; message-oriented middleware",
        summary="causal point-to-point messages across domains, a matrix clock per domain",
        any_topology=False,
        point_to_point=True,
    ),
)
_REGISTRY = {info.name: info for info in _PROTOCOLS}


def names() -> list[str]:
    """All names, sorted, those of plug-ins included."""
    return sorted(_REGISTRY | _plugged())


def _plugged() -> dict[str, ProtocolInfo]:
    return plugins.declared("PROTOCOLS", ProtocolInfo, _REGISTRY)


def lookup(name: str) -> ProtocolInfo:
    """The protocol of that name."""
    info = _REGISTRY.get(name) or _plugged().get(name)
    if info is None:
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        reason = "; ".join(["there is none of that name", *map(str, plugins.problems())])
        raise UnknownProtocolError(
            f"protocol {name!r}", reason, f"{hint}Choose from: {', '.join(names())}; or name its --plugin"
        )
    return info


def require_live(name: str) -> None:
    """Refuse a protocol that cannot run between live nodes."""
    info = lookup(name)
    if not info.live:
        why = f"it does not run between live nodes yet ({info.environment})"
        lively = ", ".join(each for each in names() if lookup(each).live)
        raise ParameterError(f"protocol {name!r}", why, f"Choose from: {lively}")


def make(
    name: str, me: NodeId, members: Iterable[NodeId], params: Mapping[str, Any] | None = None
) -> Protocol:
    """A fresh core of protocol `name` for node `me`; `ParameterError` names a parameter that is wrong."""
    info = lookup(name)
    given = dict(params or {})
    info.declared.read(name, given)
    return info.make(me, members, **given)
