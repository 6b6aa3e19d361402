"""What is to be measured on real servers, and what came out: plain data between `domains_live` and its
nursery."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from whence.core.message import NodeId
from whence.overlay.domain_graph import domain_graph, organised
from whence.sim.model import node_names


@lru_cache(maxsize=128)
def _way(nodes: int, organisation: str) -> tuple[NodeId, ...]:
    """Between two servers that are no routers and as far apart as two of these can be: in a tree, whoever
    is farthest from anybody is one end of a longest path."""
    names = node_names(nodes)
    graph = domain_graph(organised(organisation, names))
    routers = set(graph.routers)
    plain = [name for name in names if name not in routers]
    one = max(plain, key=lambda name: len(graph.path(names[0], name)))
    other = max(plain, key=lambda name: (len(graph.path(one, name)), name))
    return (one, *(hop for _, hop in graph.path(one, other)))


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
    def way(self) -> tuple[NodeId, ...]:
        """The servers that a message between the two ends passes, both ends included."""
        return _way(self.nodes, self.organisation)

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
