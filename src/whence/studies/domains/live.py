"""Figures 8, 9, 11 and 12 of paper 004 on real servers: what is measured at which scale, and how.

Every server is a process with its own sockets, forked by a parent that is small and warm (`live_server`). Two
servers that are no routers send each other one message at a time; then one sends to all, and all reply
(section 6.1). Systems of all sizes stand side by side and are measured in turns, so that whatever else the
machine does hits all of them alike.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from statistics import median

import msgspec

from whence.core.message import NodeId
from whence.errors import PlatformError
from whence.overlay.domain_graph import domain_graph, organised
from whence.sim.model import node_names
from whence.studies.results import Label, Row

END_WITHIN_S = 10.0


@lru_cache(maxsize=128)
def _way(nodes: int, organisation: str) -> tuple[NodeId, ...]:
    """Return the servers between two that are no routers and as far apart as two of these can be.

    In a tree, the node that is farthest from any one node is an end of a longest path.
    """
    names = node_names(nodes)
    graph = domain_graph(organised(organisation, names))
    routers = set(graph.routers)
    plain = [name for name in names if name not in routers]
    one = max(plain, key=lambda name: len(graph.path(names[0], name)))
    other = max(plain, key=lambda name: (len(graph.path(one, name)), name))
    return (one, *(hop for _, hop in graph.path(one, other)))


class LiveSystem(msgspec.Struct, frozen=True):
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


class LiveBatch(msgspec.Struct, frozen=True):
    """Systems that stand side by side while all of them are measured, round after round."""

    systems: tuple[LiveSystem, ...]
    rounds: int
    pings: int  # messages there and back, one after the other, in a round
    broadcasts: int = 0  # to all servers and back, in a round


class LivePlan(msgspec.Struct, frozen=True):
    """Batches, one after the other. `folder` is for what durable servers keep."""

    batches: tuple[LiveBatch, ...]
    folder: str = ""

    @property
    def steps(self) -> int:
        """Systems to start and measurements to make: what progress counts."""
        return sum(len(batch.systems) * (1 + batch.rounds) for batch in self.batches)


class LiveSample(msgspec.Struct, frozen=True):
    """One system in one round under one workload."""

    system: LiveSystem
    round: int
    workload: str  # "local", "ping-pong" or "broadcast"
    messages: int  # that went there and back
    wall_ns: tuple[int, ...]  # of each message; of each broadcast to all
    cpu_ns: int  # of all processes that a message passes, over all messages


class Progress(msgspec.Struct, frozen=True):
    """A line from the parent of the servers: a step is done, a sample is taken, or it cannot go on."""

    step: int = 0
    sample: LiveSample | None = None
    error: str = ""


def _systems(
    sizes: Sequence[int], kinds: Sequence[tuple[str, str]], *, all_there: bool = True, durable: bool = False
) -> tuple[LiveSystem, ...]:
    return tuple(
        LiveSystem(nodes, organisation, stamps, all_there, durable)
        for nodes in sizes
        for organisation, stamps in kinds
    )


BOTH = (("flat", "full"), ("bus", "full"))
OTHERS = (("daisy", "full"), ("tree", "full"))
UPDATES = (("flat", "updates"), ("bus", "updates"))
PAPER_SIZES = (10, 20, 30, 40, 50, 75, 100, 150)

# With the servers between the ends alone there is no need to stop where 150 processes do.
WAY_FLAT, WAY_BUS = (10, 50, 100, 150, 200, 300, 400), (10, 100, 400, 900, 1600, 2500, 4900)
DURABLE_SIZES = (10, 50, 100, 150)

PLANS = {
    "demo": LivePlan(
        (
            LiveBatch(_systems((10, 25, 50, 100), BOTH), rounds=7, pings=30, broadcasts=1),
            LiveBatch(
                _systems((10, 50, 100, 200), BOTH[:1], all_there=False)
                + _systems((10, 400, 1600, 3600), BOTH[1:], all_there=False),
                rounds=7,
                pings=20,
            ),
        )
    ),
    "paper": LivePlan(
        (
            LiveBatch(_systems(PAPER_SIZES, BOTH), rounds=9, pings=100, broadcasts=1),
            LiveBatch(_systems(PAPER_SIZES, OTHERS), rounds=5, pings=100, broadcasts=1),
            LiveBatch(_systems(PAPER_SIZES, UPDATES), rounds=5, pings=100, broadcasts=1),
            LiveBatch(
                _systems(WAY_FLAT, BOTH[:1], all_there=False) + _systems(WAY_BUS, BOTH[1:], all_there=False),
                rounds=5,
                pings=40,
            ),
            LiveBatch(_systems(DURABLE_SIZES, BOTH, all_there=False, durable=True), rounds=5, pings=20),
        )
    ),
    "tiny": LivePlan((LiveBatch(_systems((4, 9), BOTH), rounds=2, pings=10, broadcasts=1),)),
}


def measure(
    plan: LivePlan, update: Callable[[int], None] = lambda done: None, folder: Path | None = None
) -> list[Row]:
    """Carry out a plan in separate processes; `update` hears how many steps are done.

    Durable servers keep their stores in `folder` meanwhile (a file system in memory would not wait for them).
    """
    samples: list[LiveSample] = []
    with (
        tempfile.TemporaryDirectory(prefix="whence-domains-", dir=folder) as stores,
        parent_process() as process,
    ):
        assert process.stdin is not None  # both were asked for
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(msgspec.structs.replace(plan, folder=stores)) + b"\n")
        process.stdin.flush()
        decode = msgspec.json.Decoder(Progress).decode
        for line in process.stdout:
            told = decode(line)
            if told.error:
                raise PlatformError("live servers", told.error, "Repeat when the machine has room")
            if told.sample is not None:
                samples.append(told.sample)
            update(told.step)
        if process.wait() != 0:
            raise PlatformError("live servers", f"their parent ended with {process.returncode}", "Repeat")
    return [row_of(sample) for sample in samples]


@contextmanager
def parent_process() -> Iterator[subprocess.Popen[bytes]]:
    """The parent of all servers; it is gone afterwards, and they with it, whatever happens here."""
    process = subprocess.Popen(
        [sys.executable, "-m", "whence.studies.domains.live_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # an interrupt from the terminal is ours: we tell it to stop
    )
    try:
        yield process
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def row_of(sample: LiveSample) -> Row:
    """A sample as a run of the study; the repetition is the round."""
    system = sample.system
    labels: dict[str, Label] = {
        "part": "live-durable" if system.durable else "live" if system.all_there else "live-way",
        "workload": sample.workload,
        "organisation": system.organisation,
        "stamps": system.stamps,
        "nodes": system.nodes,
        "seed": sample.round,
    }
    per_time = sample.messages / len(sample.wall_ns)
    measures = {
        "wall_us": median(sample.wall_ns) / per_time / 1000,
        "round_us": median(sample.wall_ns) / 1000,
        "cpu_us": sample.cpu_ns / sample.messages / 1000,
        "live_hops": float(len(system.way) - 1) if sample.workload == "ping-pong" else None,
    }
    run = "-".join(str(label) for label in labels.values())
    parameters = {
        **msgspec.to_builtins(system),
        "messages": sample.messages,
        "processes": len(system.running),
    }
    return Row(run, labels, parameters, measures, {})
