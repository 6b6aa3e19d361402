"""Whence beside the systems that its users would take instead: the same group, the same load, one machine.

    make peers                                  # fetch the others into .peers, once
    python bench/bench_peers.py [--quick] [--nodes 8] [--size 64] [--only NAME ...] [--minutes 5]
    python bench/bench_peers.py --table         # what the history says, as Markdown

Groups of 3, 8 and 32 processes on loopback, payloads of 64 bytes and 1 KiB. Every node sends, and is given
all messages, its own among them: one delivery each. Rounds are interleaved (every system once, then every
system again), and each round is a group of its own with a broker of its own. Three loads:

* `stream`: as fast as the system's own back-pressure lets them. Deliveries per second of the whole group, and
  CPU, user and system, of all processes and of the broker per delivery, until all is delivered (and, with
  Whence and JetStream, acknowledged);
* `share`: a fifth of the rate that the same system made in the rounds of `stream` so far;
* `even`: the same for all, 10,000 deliveries per second in the whole group.

The last two give the time from just before the call that sends a message to its delivery: p50 and p99 of all
deliveries. What is due within a millisecond or so is sent together.

Each round is a line in the history (`--history`), which a later call goes on with: it first makes the rounds
that are fewest. `--fresh` begins again. A system that is not here is left out and named; a round in which a
delivery is missing fails, and is made again by the next call. Members in Java take the load once before it
counts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked import Answer, run_group
from peers import brokerless, brokers, jvm
from peers.loads import Load, Place

sys.path.append(str(brokers.ROOT / "site"))

NODES, SIZES, LOADS = (3, 8, 32), (64, 1024), ("stream", "share", "even")
SHARE, EVEN_PER_S, PACED_S = 0.2, 10_000, 2.0
Record = dict[str, Any]


@contextmanager
def no_server(folder: Path) -> Iterator[Place]:
    yield Place(folder)


@dataclass(frozen=True)
class System:
    """One system under the load."""

    name: str
    member: Callable[..., Any]
    deliveries: int  # of a round of `stream`, about as many as it makes in a second or some
    server: Callable[[Path], AbstractContextManager[Place]] = no_server
    module: str | None = None  # the library that it needs
    program: str | None = None  # the broker
    jars: tuple[str, ...] = ()

    def lacks(self) -> str | None:
        """Return what is not here."""
        if self.module and importlib.util.find_spec(self.module) is None:
            return f"the library {self.module}"
        if self.program and brokers.program(self.program) is None:
            return f"the program {self.program}"
        if self.jars and not jvm.has(*self.jars):
            return f"javac or the jars {', '.join(self.jars)}"
        return None


VECTOR = {"protocol": "vector", "relay": False}
NATS = {"server": brokers.nats_server, "module": "nats", "program": "nats-server"}
REDIS = {"server": brokers.redis_server, "module": "redis", "program": "redis-server"}
SYSTEMS = (
    System("asyncio mesh", brokerless.mesh, 1_500_000),
    System("ZeroMQ", brokerless.zeromq, 1_000_000, module="zmq"),
    System("Whence vector", brokerless.whence_member(False, **VECTOR), 600_000),
    System("Whence log (default)", brokerless.whence_member(False), 300_000),
    System("Zenoh", brokerless.zenoh, 600_000, module="zenoh"),
    System("Redis Streams", brokers.redis_streams, 300_000, **REDIS),
    System("Redis pub/sub", brokers.redis_pubsub, 150_000, **REDIS),
    System("NATS", brokers.nats_core, 300_000, **NATS),
    System("Whence vector, durable", brokerless.whence_member(True, **VECTOR), 150_000),
    System("Whence log, durable", brokerless.whence_member(True), 100_000),
    System("JetStream", brokers.jetstream, 80_000, **NATS),
    System("JGroups", jvm.jgroups, 150_000, jars=("jgroups",)),
    System("Joram", jvm.joram, 12_000, server=jvm.joram_server, jars=("joram-mom-core", "a3-rt")),
)


def run_round(system: System, load: Load) -> Record:
    """One group under one load."""
    Path("out").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="out") as name, system.server(Path(name).resolve()) as place:
        if system.jars:
            warm = max(system.deliveries // load.nodes**2 // 2, 1)
            answers: list[Answer] = system.member(load, warm, place)
        else:
            answers = run_group(load.nodes, system.member, load, place)
        delays_ns = array("q")
        for file in place.folder.glob("*.delays"):
            delays_ns.frombytes(file.read_bytes())
    deliveries = load.nodes * load.deliveries
    if sum(answer["delivered"] for answer in answers) != deliveries:
        raise SystemExit(f"{system.name} {load}: deliveries are missing, so the round does not count")
    wall_s = max(answer["ended_s"] for answer in answers) - min(answer["began_s"] for answer in answers)
    cpu_s = sum(answer["cpu_s"] for answer in answers) + max(answer["server_cpu_s"] for answer in answers)
    found: Record = {"cpu_us": cpu_s / deliveries * 1e6, "per_s": deliveries / wall_s}
    if load.rate is not None:
        ordered = sorted(delays_ns)
        found |= {"rate": load.rate, "p50_us": ordered[len(ordered) // 2] / 1e3}
        found |= {"p99_us": ordered[len(ordered) * 99 // 100] / 1e3}
    return found


def load_for(system: System, kind: str, nodes: int, size: int, history: list[Record], quick: bool) -> Load:
    """What each node sends."""
    if kind == "stream":
        return Load(nodes, size, max(system.deliveries // (5 if quick else 1) // nodes**2, 8))
    per_s = EVEN_PER_S
    if kind == "share":
        per_s = SHARE * statistics.median(
            record["per_s"] for record in of(history, system.name, "stream", nodes, size)
        )
    rate = per_s / nodes**2
    return Load(nodes, size, max(int(rate * PACED_S / (4 if quick else 1)), 8), rate)


def of(history: list[Record], system: str, load: str, nodes: int, size: int) -> list[Record]:
    """The rounds of one cell."""
    wanted = {"system": system, "load": load, "nodes": nodes, "size": size}
    return [record for record in history if record.items() >= wanted.items()]


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def measure(options: argparse.Namespace, history: list[Record]) -> None:
    """Make rounds until every cell has enough, or the time is up."""
    until_s = time.monotonic() + options.minutes * 60
    systems = []
    for system in SYSTEMS:
        lacks = system.lacks()
        if options.only and system.name not in options.only:
            continue
        if lacks is None:
            systems.append(system)
        else:
            print(f"{system.name}: left out, {lacks} is not here (make peers)")
    cells = [
        (number, size, nodes, load, system)
        for number in range(options.rounds)
        for size in options.size
        for nodes in options.nodes
        for load in options.loads
        for system in systems
    ]
    here, today = commit(), time.strftime("%Y-%m-%d")
    for number, size, nodes, kind, system in cells:
        if len(of(history, system.name, kind, nodes, size)) > number:
            continue
        if time.monotonic() > until_s:
            print("the time is up: call again to go on")
            return
        if kind == "share" and not of(history, system.name, "stream", nodes, size):
            continue  # its rounds of `stream` failed
        load = load_for(system, kind, nodes, size, history, options.quick)
        record: Record = {"system": system.name, "load": kind, "nodes": nodes, "size": size}
        try:
            record |= {"date": today, "commit": here, **run_round(system, load)}
        except SystemExit as failed:
            print(failed)
            continue
        history.append(record)
        with options.history.open("a") as file:
            file.write(json.dumps(record) + "\n")
        times = f" p50 {record['p50_us']:.0f} p99 {record['p99_us']:.0f} us" if "p50_us" in record else ""
        print(
            f"{number + 1} {kind:7}{nodes:>3} {size:>5} B  {system.name:24}"
            f"{record['cpu_us']:>9.2f} us{record['per_s']:>12,.0f}/s{times}",
            flush=True,
        )


def show_table(history: list[Record]) -> None:
    """Print the history as Markdown, one table for each group and payload."""
    places = sorted({(record["nodes"], record["size"]) for record in history})
    for nodes, size in places:
        print(f"\n**{nodes} nodes, {size} bytes**\n")
        print(
            "| system | CPU µs per delivery (from, to) | deliveries/s | p50 / p99 µs at a fifth (of a node) "
            "| p50 / p99 µs at 10,000/s | rounds |\n|---|---|---|---|---|---|"
        )
        lines = []
        for system in SYSTEMS:
            stream = of(history, system.name, "stream", nodes, size)
            if not stream:
                continue
            cpu = sorted(record["cpu_us"] for record in stream)
            share, even = (_delays(of(history, system.name, kind, nodes, size)) for kind in ("share", "even"))
            rates = [record["rate"] for record in of(history, system.name, "share", nodes, size)]
            rate = f" ({statistics.median(rates):,.0f}/s)" if rates else ""
            per_s = statistics.median(record["per_s"] for record in stream)
            figure = f"{statistics.median(cpu):.2f} ({cpu[0]:.2f}, {cpu[-1]:.2f})"
            lines.append(
                (
                    statistics.median(cpu),
                    f"| {system.name} | {figure} | {per_s:,.0f} | {share}{rate} | {even} | {len(stream)} |",
                )
            )
        for _, line in sorted(lines):
            print(line)


def _delays(records: list[Record]) -> str:
    if not records:
        return ""
    p50, p99 = (statistics.median(record[key] for record in records) for key in ("p50_us", "p99_us"))
    return f"{p50:,.0f} / {p99:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="one group of 3, 64 bytes, short rounds")
    parser.add_argument("--nodes", type=int, nargs="+", default=None)
    parser.add_argument("--size", type=int, nargs="+", default=None)
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=LOADS)
    parser.add_argument("--only", nargs="+", choices=[system.name for system in SYSTEMS])
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--minutes", type=float, default=5.0, help="begin no round after that")
    parser.add_argument("--history", type=Path, default=Path("out/peers.jsonl"))
    parser.add_argument("--fresh", action="store_true", help="begin a new history")
    parser.add_argument("--table", action="store_true", help="measure nothing, print the history's table")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.nodes = options.nodes or ((3,) if options.quick else NODES)
    options.size = options.size or ((64,) if options.quick else SIZES)
    if options.quick:
        options.history = options.history.with_suffix(".quick.jsonl")
    options.history.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh or options.quick:
        options.history.unlink(missing_ok=True)
    history = [json.loads(line) for line in options.history.open()] if options.history.exists() else []
    if not options.table:
        measure(options, history)
    show_table(history)
    found = {
        f"{record['system']} {record['nodes']} {record['size']}": round(record["cpu_us"], 2)
        for record in history
        if record["load"] == "stream"
    }
    print(json.dumps({"bench": "peers", "cpu_us": found}))


if __name__ == "__main__":
    main()
