"""What protocol `log` costs in the core, beside `vector` with and without relaying: time, bytes, copies.

Cores on links of 1 ms that keep the order, timers included; every node speaks, drawn at random, a broadcast
every 200 us, 64 bytes. CPU is that of cores and of this loop, for each delivery at another node; the
least of three rounds is shown. Copies are messages received for each
delivery at another node, from the first message on: what routes itself has to learn that first. `--quick`: a
tenth of the messages.

    growth       8, 64 and 256 origins that all speak, full mesh; each has spoken once before
    summaries    bytes that two nodes exchange until both know what the other has, each way
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from whence.core.effects import CancelTimer, Deliver, Effects, Send, SetTimer
from whence.core.lives import life_of, stream_of
from whence.core.protocol import Protocol
from whence.core.rng import stream
from whence.overlay import graphs
from whence.protocols import registry
from whence.protocols.log.book import MemoryBook
from whence.protocols.log.core import Log
from whence.protocols.log.wire import DATA

PAYLOAD = bytes(64)
DELAY_US, EVERY_US = 1_000, 200
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "log": ("log", {}),
    "vector, relayed": ("vector", {}),
    "vector, not relayed": ("vector", {"relay": False}),
}


class World:
    """Cores, links and timers of one run."""

    def __init__(
        self, protocol: str, params: dict[str, Any], graph: list[list[int]], *, weighs: bool
    ) -> None:
        self.names = [f"n{at:03d}" for at in range(len(graph))]
        self.cores = {name: registry.make(protocol, name, self.names, params) for name in self.names}
        self.agenda: list[tuple[int, int, Callable[..., Effects], tuple[Any, ...], str]] = []
        self.timers: dict[tuple[str, str], int] = {}
        self.now_us = self.serial = self.bytes = self.copies = self.deliveries = 0
        self.weighs = weighs
        self.is_log = protocol == "log"
        for at, neighbours in enumerate(graph):
            for other in neighbours:
                self.call(self.names[at], self.cores[self.names[at]].link_up, self.names[other])

    def put(self, time_us: int, act: Callable[..., Effects], args: tuple[Any, ...], name: str) -> None:
        self.serial += 1
        heappush(self.agenda, (time_us, self.serial, act, args, name))

    def call(self, name: str, act: Callable[..., Effects], *args: Any) -> None:
        """Give a core an input and carry out its effects."""
        effects = act(*args, self.now_us)
        core = self.cores[name]
        for effect in effects:
            if isinstance(effect, Send):
                if self.weighs:
                    self.bytes += core.sizes(effect.packet).total_bytes * len(effect.to)
                for peer in effect.to:
                    self.put(self.now_us + DELAY_US, self.cores[peer].receive, (name, effect.packet), peer)
            elif isinstance(effect, Deliver):
                self.deliveries += 1
            elif isinstance(effect, SetTimer):
                self.timers[name, effect.key] = effect.at_us
                self.put(effect.at_us, core.timer, (effect.key,), name)
            elif isinstance(effect, CancelTimer):
                self.timers.pop((name, effect.key), None)

    def run(self, until_us: int) -> None:
        while self.agenda and self.agenda[0][0] <= until_us:
            self.now_us, _, act, args, name = heappop(self.agenda)
            if len(args) == 1:
                if self.timers.get((name, args[0])) != self.now_us:
                    continue
                del self.timers[name, args[0]]
            else:
                packet = args[1]
                self.copies += len(packet.items) if self.is_log and packet.kind == DATA else not self.is_log
            self.call(name, act, *args)
        self.now_us = max(self.now_us, until_us)


def measure(
    system: str,
    graph: list[list[int]],
    broadcasts: int,
    seed: int,
    *,
    weighs: bool = True,
    warm: bool = False,
) -> dict[str, float]:
    """One run: what a delivery at another node costs; times count only where nothing is weighed."""
    world = World(*SYSTEMS[system], graph, weighs=weighs)
    world.run(5_000_000)
    if warm:
        for name in world.names:
            world.call(name, world.cores[name].broadcast, PAYLOAD)
        world.run(world.now_us + 5_000_000)
    world.bytes = world.copies = world.deliveries = 0
    draw = random.Random(seed)
    gc.collect()
    gc.disable()
    start_s = time.process_time()
    for _ in range(broadcasts):
        world.run(world.now_us + EVERY_US)
        name = draw.choice(world.names)
        world.call(name, world.cores[name].broadcast, PAYLOAD)
    world.run(world.now_us + 5_000_000)
    cpu_s = time.process_time() - start_s
    gc.enable()
    nodes = len(world.names)
    assert world.deliveries == broadcasts * nodes, f"{system}: {world.deliveries} of {broadcasts * nodes}"
    others = broadcasts * (nodes - 1)
    return {
        "us": round(cpu_s / others * 1e6, 2),
        "bytes": round(world.bytes / others, 1),
        "copies": round(world.copies / others, 3),
    }


def best(
    system: str, graph: list[list[int]], broadcasts: int, rounds: int, *, warm: bool = False
) -> dict[str, float]:
    """The least time of several runs, and bytes and copies of one more."""
    weighed = measure(system, graph, broadcasts, 1, warm=warm)
    times = [measure(system, graph, broadcasts, 1, weighs=False, warm=warm)["us"] for _ in range(rounds)]
    return {**weighed, "us": min(times)}


def costs(quick: bool) -> dict[str, Any]:
    """The first table."""
    shapes = {
        "mesh 8": (graphs.full(8), 4_000),
        "mesh 50": (graphs.full(50), 1_000),
        "ring 8": (graphs.ring(8), 4_000),
        "degree 4 of 50": (graphs.random_regular(50, 4, stream(1, 1)), 4_000),
    }
    found: dict[str, Any] = {}
    for shape, (graph, broadcasts) in shapes.items():
        for system in SYSTEMS:
            if system.endswith("not relayed") and not shape.startswith("mesh"):
                continue
            count = broadcasts // 10 if quick else broadcasts
            found[f"{shape}, {system}"] = best(system, graph, count, 1 if quick else 3)
    return found


def growth(quick: bool) -> dict[str, Any]:
    """Origins that all speak, on a full mesh."""
    found: dict[str, Any] = {}
    for nodes, broadcasts in ((8, 4_000), (64, 1_000), (256, 250)):
        for system in ("log", "vector, not relayed"):
            count = broadcasts // 10 if quick else broadcasts
            rounds = 1 if quick else 2
            found[f"{nodes} origins, {system}"] = best(system, graphs.full(nodes), count, rounds, warm=True)
    return found


def summary_bytes(streams: int, differ: int) -> dict[str, int]:
    """Two nodes with that many streams, of which `differ` have one message more at the second."""
    made: list[Log] = []
    for name, more in (("a", 0), ("b", differ)):
        book = MemoryBook()
        for at in range(streams):
            index = book.add_stream(stream_of(f"node{at}", life_of(f"node{at}", 0)))
            for number in range(1, 2 + (at < more)):
                book.append((index, number, 0, (), b"", 0))
        made.append(Log(name, [], book=book))
    sent = {"a": 0, "b": 0}
    queue: list[tuple[Protocol, Protocol, Any]] = []

    def out(core: Log, other: Log, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send) and effect.packet[0] != DATA:
                sent[core.me] += core.sizes(effect.packet).total_bytes
                queue.append((core, other, effect.packet))

    for one, other in (made, made[::-1]):
        out(one, other, one.link_up(other.me, 0))
    rounds = 0
    while queue:
        rounds += 1
        core, other, packet = queue.pop(0)
        out(other, core, other.receive(core.me, packet, 0))  # type: ignore[arg-type]
    return {"a to b": sent["a"], "b to a": sent["b"], "packets": rounds}


def summaries(quick: bool) -> dict[str, Any]:
    """The last table."""
    found: dict[str, Any] = {}
    for streams in (10, 1_000) if quick else (10, 1_000, 100_000):
        for differ in (0, 10, 1_000):
            if differ <= streams:
                found[f"{streams} streams, {differ} differ"] = summary_bytes(streams, differ)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("costs", "growth", "summaries"))
    given = parser.parse_args()
    parts = {"costs": costs, "growth": growth, "summaries": summaries}
    for name, part in parts.items():
        if given.only in (None, name):
            print(json.dumps({name: part(given.quick)}, indent=1))


if __name__ == "__main__":
    main()
