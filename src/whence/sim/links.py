"""The contract between the engine and the links of a run: who owns what, and what is on the agenda.

There is one engine (agenda, nodes, workloads, faults) and there are two kinds of links: those over a graph
that is known before the run begins (`links_static.py`; with a contact plan they come and go), and those that
an overlay opens and closes while messages flow (`links_overlay.py`).

An entry of the agenda is (time_us, rank, three numbers, data). No two entries share the first five, so
the order of a run depends on identifiers alone, never on the order of insertion. What happens first of
several things at one time is a property of the links: they give an entry its rank and its numbers (`put`),
and they take it when its time has come (`happen`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from whence.core.message import NodeId
from whence.sim.driver import Driver
from whence.sim.faults import FaultPlan
from whence.sim.model import Scenario
from whence.sim.series import Tally
from whence.sim.workload import Reply, Source

Entry: TypeAlias = tuple[int, int, int, int, int, Any]
Parcel: TypeAlias = tuple[Any, ...]  # what travels, (packet, about): links do not look inside
Outlet: TypeAlias = Callable[
    [tuple[NodeId, ...], Parcel, int, int], None
]  # (to, parcel, now_us, total_bytes)

# What the engine puts on the agenda, and what links do. The numbers are the order of static links.
LINK_DOWN, RESTART, CRASH, LINK_UP, RECEIVE, TIMER, BROADCAST, REPLY = range(-1, 7)
SAMPLE = 99  # the last of its time with all links, and no step of the system


class Traffic:
    """What the links did with the packets that they were given."""

    __slots__ = ("duplicated", "lost")

    def __init__(self) -> None:
        self.lost = 0  # copies that will never arrive
        self.duplicated = 0  # extra copies made


class Run(Protocol):
    """What links know of the engine that they are part of."""

    scenario: Scenario
    names: list[NodeId]
    index: dict[NodeId, int]
    plan: FaultPlan
    agenda: list[Entry]
    drivers: list[Driver]
    down: dict[int, int]  # the nodes that are down -> when they restart
    stopped: set[int]  # of these, those that stopped themselves
    tally: Tally | None  # with `record.window_us`
    broadcasts: int

    def broadcast(self, source: Source, number: int, time_us: int) -> int | None:
        """A workload's broadcast is due; returns the node that made it, None if it is skipped."""

    def reply(self, node: int, reply: Reply, time_us: int) -> bool:
        """A reply is due; returns whether the node made it."""

    def fire(self, node: int, number: int, key: str, time_us: int) -> bool:
        """A timer is due; returns whether the core was called."""

    def crash(self, node: int, restart_us: int, time_us: int) -> None:
        """A node is down from now on."""

    def restart(self, node: int, time_us: int) -> None:
        """A node is back."""

    def sample(self, time_us: int) -> None:
        """The gauges are due."""


class Links(Protocol):
    """The links of a run."""

    traffic: Traffic
    outlets: list[Outlet]  # of each node, for its packets
    control_outlets: list[Outlet]  # for those that the protocol calls control
    ongoing: ClassVar[frozenset[int]]  # ranks that may be left on the agenda of a run that has drained
    opened: int  # handshakes of an overlay that were begun
    is_whole: bool  # all nodes were in the group before the first broadcast, and no core has closed a link

    @property
    def members(self) -> Sequence[int]:
        """The nodes among which a sender is drawn."""

    def begin(self) -> None:
        """Link up, or plan contacts, joins and shuffles."""

    def put(self, kind: int, time_us: int, node: int, source: int, counter: int, data: Any) -> None:
        """Put something of the engine on the agenda."""

    def happen(self, entry: Entry) -> None:
        """Carry out an entry: any but RECEIVE, which the engine's loop does inline."""

    def may_send(self, node: int) -> bool:
        """Whether a node that is up is in the group, and may broadcast."""

    def close(self, node: int, peer: NodeId, time_us: int) -> None:
        """A core has closed its link to `peer`."""

    def in_flight(self) -> int:
        """Return how many packets with messages are on their way to nodes that may deliver them."""
