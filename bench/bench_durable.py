"""What durability costs: durable nodes against a bare SQLite loop, FIFO, TLS, and nodes without a store.

    python bench/bench_durable.py [--quick] [--rounds N] [--nodes N] [--only-ratio] [--folder DIR]

A group of forked processes on loopback, 64-byte payloads; in each, 256 tasks broadcast one message after the
other, and one task reads. The stores are in a temporary folder of `--folder` (by default the current one: a
`tmpfs` would make every sync free). Rounds alternate (fifo, vector, vector over TLS, vector without a store,
bare loop), so that a change in the machine's load meets all; figures are medians, ratios medians of paired
ratios.

The bare loop is what no durable node on SQLite can beat: one process that inserts the same payloads into a
table of the same settings, as many per commit as the durable nodes put into one. `one by one` is the same
with a commit for each. Messages per second are those of one node: a durable message is counted when its
`broadcast` has answered and all members have delivered it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

import whence
from forked import PAYLOAD, Answer, run_group, together
from whence.live.authority import make_group

TASKS = 256


@dataclass(frozen=True)
class Figures:
    """One round of one kind of group."""

    messages_per_s: float  # of one node
    cpu_us_per_delivery: float
    records_per_commit: float


async def member(
    name: str,
    peers: dict[str, str],
    protocol: str,
    stores: Path | None,
    keys: Path | None,
    messages: int,
    barrier: Barrier,
) -> Answer:
    async def produce(group: whence.Group, count: int) -> None:
        for _ in range(count):
            await group.broadcast(PAYLOAD)

    store = stores and stores / f"{name}.db"
    async with whence.join(
        "bench", node=name, peers=peers, protocol=protocol, relay=False, store=store, keys=keys
    ) as group:
        await group.wait_connected(60)
        await together(barrier)
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        producers = [asyncio.create_task(produce(group, messages // TASKS)) for _ in range(TASKS)]
        expected = len(peers) * (messages // TASKS) * TASKS
        delivered = 0
        async for _ in group:
            delivered += 1
            if delivered == expected:
                break
        await asyncio.gather(*producers)
        ended_s, ended_cpu_s = time.monotonic(), time.process_time()
        await together(barrier)
        figures = group.stats().store
    return {
        "seconds": ended_s - began_s,
        "cpu_s": ended_cpu_s - began_cpu_s,
        "deliveries": delivered,
        "records_per_commit": figures.records / figures.commits if figures else 0.0,
    }


def round_of(
    protocol: str, nodes: int, messages: int, folder: Path, *, durable: bool = True, tls: bool = False
) -> Figures:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        keys = Path(place) / "keys" if tls else None
        if keys is not None:
            make_group(keys, "bench", [f"n{index}" for index in range(nodes)])
        results = run_group(nodes, member, protocol, Path(place) if durable else None, keys, messages)
    slowest_s = max(result["seconds"] for result in results)
    return Figures(
        (messages // TASKS) * TASKS / slowest_s,
        sum(result["cpu_s"] for result in results) / sum(result["deliveries"] for result in results) * 1e6,
        statistics.mean(result["records_per_commit"] for result in results),
    )


def bare_loop(messages: int, per_commit: int, folder: Path) -> float:
    """Messages per second of a plain loop over SQLite with the store's settings."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        db = sqlite3.connect(Path(place) / "bare.db", isolation_level=None)
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, record BLOB NOT NULL)")
        began_s = time.monotonic()
        for first in range(0, messages, per_commit):
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                "INSERT INTO log (record) VALUES (?)", [(PAYLOAD,)] * min(per_commit, messages - first)
            )
            db.execute("COMMIT")
        seconds = time.monotonic() - began_s
        db.close()
    return messages / seconds


def measure(nodes: int, messages: int, rounds: int, folder: Path) -> dict[str, float]:
    seen: list[dict[str, float]] = []
    for _ in range(rounds):
        fifo = round_of("fifo", nodes, messages, folder)
        vector = round_of("vector", nodes, messages, folder)
        secret = round_of("vector", nodes, messages, folder, tls=True)
        plain = round_of("vector", nodes, messages, folder, durable=False)
        per_commit = max(1, round(vector.records_per_commit))
        bare = bare_loop(messages, per_commit, folder)
        seen.append(
            {
                "one by one/s": bare_loop(500, 1, folder),
                "bare loop/s": bare,
                "fifo/s": fifo.messages_per_s,
                "vector/s": vector.messages_per_s,
                "without store/s": plain.messages_per_s,
                "records per commit": vector.records_per_commit,
                "fifo us": fifo.cpu_us_per_delivery,
                "vector us": vector.cpu_us_per_delivery,
                "vector over TLS us": secret.cpu_us_per_delivery,
                "without store us": plain.cpu_us_per_delivery,
                "durable : bare loop": vector.messages_per_s / bare,
                "durable : without store": vector.messages_per_s / plain.messages_per_s,
                "causal : fifo, CPU": vector.cpu_us_per_delivery / fifo.cpu_us_per_delivery,
                "TLS : plain, CPU": secret.cpu_us_per_delivery / vector.cpu_us_per_delivery,
                "store : none, CPU": vector.cpu_us_per_delivery / plain.cpu_us_per_delivery,
            }
        )
    return {key: round(statistics.median(each[key] for each in seen), 3) for key in seen[0]}


def ratio(nodes: int, messages: int, rounds: int, folder: Path) -> dict[str, float]:
    """With a store and without, in turns; medians, and how far the rounds lie apart."""
    pairs = []
    for _ in range(rounds):
        durable = round_of("vector", nodes, messages, folder)
        pairs.append((durable, round_of("vector", nodes, messages, folder, durable=False)))
    ratios = sorted(with_.cpu_us_per_delivery / without.cpu_us_per_delivery for with_, without in pairs)
    return {
        "vector us": statistics.median(with_.cpu_us_per_delivery for with_, _ in pairs),
        "without store us": statistics.median(without.cpu_us_per_delivery for _, without in pairs),
        "vector/s": statistics.median(with_.messages_per_s for with_, _ in pairs),
        "without store/s": statistics.median(without.messages_per_s for _, without in pairs),
        "store : none, CPU": statistics.median(ratios),
        "from": ratios[0],
        "to": ratios[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="few messages and rounds")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--only-ratio", action="store_true", help="`vector` with and without a store only")
    parser.add_argument("--folder", type=Path, default=Path())
    options = parser.parse_args()
    messages, rounds = (2_560, 1) if options.quick else (25_600, 5)
    nodes, judge = options.nodes, ratio if options.only_ratio else measure
    line = judge(nodes, messages, options.rounds or rounds, options.folder)
    print(f"{nodes} nodes, {messages:,} messages of {len(PAYLOAD)} bytes each")
    for key, value in line.items():
        print(f"{key:26}{value:>14,.2f}")
    print(json.dumps({"bench": "durable", "nodes": nodes, "messages": messages, **line}))


if __name__ == "__main__":
    main()
