"""What is to be measured on real servers, and what came out: plain data between `domains_live` and its
nursery."""

from __future__ import annotations

import msgspec

from whence.core.message import NodeId
from whence.overlay.domain_graph import DomainGraph, domain_graph, organised
from whence.sim.model import node_names


class System(msgspec.Struct, frozen=True):
    """A system of servers."""

    nodes: int
    organisation: str
    stamps: str
    all_there: bool = True  # otherwise only the servers between the two ends run; the others are names
    durable: bool = False

    @property
    def names(self) -> list[NodeId]:
        """All servers."""
        return node_names(self.nodes)

    @property
    def graph(self) -> DomainGraph:
        """Its domains."""
        return domain_graph(organised(self.organisation, self.names))

    @property
    def ends(self) -> tuple[NodeId, NodeId]:
        """The first and the last server that are no routers."""
        routers = set(self.graph.routers)
        plain = [name for name in self.names if name not in routers]
        return plain[0], plain[-1]

    @property
    def way(self) -> list[NodeId]:
        """The servers that a message between the ends passes, both ends included."""
        one, other = self.ends
        return [one, *(hop for _, hop in self.graph.path(one, other))]

    @property
    def running(self) -> list[NodeId]:
        """The servers that are processes."""
        return self.names if self.all_there else sorted(self.way)


class Batch(msgspec.Struct, frozen=True):
    """Systems that stand side by side while all of them are measured, round after round."""

    systems: tuple[System, ...]
    rounds: int
    pings: int  # messages there and back, one after the other, in a round
    broadcasts: int = 0  # to all servers and back, in a round


class Plan(msgspec.Struct, frozen=True):
    """Batches, one after the other. `folder` is for what durable servers keep."""

    batches: tuple[Batch, ...]
    folder: str = ""

    @property
    def steps(self) -> int:
        """Systems to start and measurements to make: what progress counts."""
        return sum(len(batch.systems) * (1 + batch.rounds) for batch in self.batches)


class Sample(msgspec.Struct, frozen=True):
    """One system in one round under one workload."""

    system: System
    round: int
    workload: str  # "local", "ping-pong" or "broadcast"
    messages: int  # that went there and back
    wall_ns: tuple[int, ...]  # of each message; of each broadcast to all
    cpu_ns: int  # of all processes that a message passes, over all messages


class Told(msgspec.Struct, frozen=True):
    """A line from the nursery: a step is done, a sample is taken, or it cannot go on."""

    step: int = 0
    sample: Sample | None = None
    error: str = ""
