"""A live group that remembers against `vector`: CPU per delivery, durable against volatile.

    python bench/bench_log_live.py [--quick] [--rounds N] [--only vector|relay|store] [--profile [woven]]

A group of forked processes on loopback, 64-byte payloads, default settings; every process broadcasts as fast
as it is let (`stream`), or one message for every round of deliveries (`woven`), and reads all that it is
delivered. Rounds alternate (one kind of group, the other, ...), so that a change in the machine's load meets
both; the figure is the median of the paired ratios. CPU is the processes' own, user and system, from the time
when all are connected until everything is delivered and acknowledged. A round in which a delivery is missing
fails.

`--profile` prints where one member of a log group spends its time.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import whence
from bench_live import Row, stream, woven
from forked import PAYLOAD, Answer, measured, run_group

TASKS = 64  # that broadcast side by side, where each waits for the disk


@dataclass(frozen=True)
class Kind:
    """A way to run the group."""

    name: str
    options: dict[str, Any]
    durable: bool = False


VECTOR = Kind("vector", {"protocol": "vector", "relay": False})
RELAYED = Kind("vector relay", {"protocol": "vector", "relay": True})
LOG = Kind("log", {})
STORED_VECTOR = Kind("vector store", {"protocol": "vector", "relay": False}, durable=True)
STORED = Kind("log store", {}, durable=True)


async def crowd(group: whence.Group, row: Row) -> int:
    """As `stream`, with many tasks: each of them waits for the disk."""

    async def produce(count: int) -> None:
        for _ in range(count):
            await group.broadcast(PAYLOAD)

    producers = [asyncio.create_task(produce(row.messages // TASKS)) for _ in range(TASKS)]
    delivered, expected = 0, row.nodes * (row.messages // TASKS) * TASKS
    async for _ in group:
        delivered += 1
        if delivered == expected:
            break
    await asyncio.gather(*producers)
    return delivered


async def member(
    name: str, peers: dict[str, str], kind: Kind, row: Row, folder: str, profiled: bool, barrier: Barrier
) -> Answer:
    load = crowd if kind.durable else stream if row.load == "stream" else woven
    store = {"store": Path(folder) / f"{name}.db"} if kind.durable else {}
    async with whence.join("bench", node=name, peers=peers, **kind.options, **store) as group:
        profile = cProfile.Profile(time.process_time) if profiled and name == "n0" else None

        async def work() -> int:
            if profile is None:
                return await load(group, row)
            profile.enable()
            try:
                return await load(group, row)
            finally:
                profile.disable()

        answer = await measured(group, barrier, work, acknowledged=True)
        answer["bytes_sent"] = group.stats().bytes_sent
        answer["packets"] = group.stats().packets_received
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)
    return answer


def run_round(kind: Kind, row: Row, *, profiled: bool = False) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        results = run_group(row.nodes, member, kind, row, folder, profiled)
    deliveries = sum(result["delivered"] for result in results)
    each = (row.messages // TASKS) * TASKS if kind.durable else row.messages
    if deliveries != row.nodes * row.nodes * each:
        raise SystemExit(f"{kind.name} {row}: {deliveries} deliveries, so the round does not count")
    wall_s = max(result["ended_s"] for result in results) - min(result["began_s"] for result in results)
    return {
        "cpu_us": sum(result["cpu_s"] for result in results) / deliveries * 1e6,
        "per_s": deliveries / wall_s,
        "bytes": sum(result["bytes_sent"] for result in results) / deliveries,
    }


def compare(base: Kind, other: Kind, row: Row, rounds: int) -> dict[str, object]:
    pairs = [(run_round(base, row), run_round(other, row)) for _ in range(rounds)]
    line: dict[str, object] = {**asdict(row), "rounds": rounds, "base": base.name, "other": other.name}
    for at, kind in enumerate(("base", "other")):
        for what in ("cpu_us", "per_s", "bytes"):
            line[f"{kind}_{what}"] = round(statistics.median(pair[at][what] for pair in pairs), 2)
    line["cpu_ratio"] = round(statistics.median(two["cpu_us"] / one["cpu_us"] for one, two in pairs), 3)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer messages and rounds")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--only", choices=("vector", "relay", "store"))
    parser.add_argument("--profile", nargs="?", const="stream", choices=("stream", "woven"))
    options = parser.parse_args()
    nodes, messages, rounds = (8, 3_000, 3) if options.quick else (8, 12_000, 7)
    rounds = options.rounds or rounds
    if options.profile:
        run_round(LOG, Row(options.profile, nodes, False, messages // 2), profiled=True)
        return
    table = []
    heads = ("base us", "other us", "ratio", "base/s", "other/s", "base B", "other B")
    print(f"{'load':8}{'base':>14}{'other':>14}" + "".join(f"{head:>11}" for head in heads))
    for part, base, other, load, count in (
        ("vector", VECTOR, LOG, "stream", messages),
        ("vector", VECTOR, LOG, "woven", messages // 2),
        ("relay", RELAYED, LOG, "stream", messages // 8),
        ("store", LOG, STORED, "stream", messages // 4),
        ("store", STORED_VECTOR, STORED, "stream", messages // 4),
    ):
        if options.only not in (None, part):
            continue
        line = compare(base, other, Row(load, nodes, False, count), rounds)
        table.append(line)
        keys = (
            "base_cpu_us",
            "other_cpu_us",
            "cpu_ratio",
            "base_per_s",
            "other_per_s",
            "base_bytes",
            "other_bytes",
        )
        values = "".join(f"{line[key]:>11,}" for key in keys)
        print(f"{load:8}{base.name:>14}{other.name:>14}{values}", flush=True)
    print(json.dumps({"bench": "log_live", "cpu_ratio": table[0]["cpu_ratio"], "rows": table}))


if __name__ == "__main__":
    main()
