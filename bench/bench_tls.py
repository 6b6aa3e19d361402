"""Live nodes under TLS 1.3 against the same in plain text: CPU per delivery.

    python bench/bench_tls.py [--quick] [--rounds N]

A group of forked processes on loopback, protocol `vector` without relaying. Rounds alternate (plain, tls,
plain, tls ...), so that a change in the machine's load meets both; the figure is the median of the paired
ratios. CPU is the processes' own, user and system, from the moment when everybody is connected, handshakes
over, until everything is delivered and acknowledged. A round in which a delivery is missing fails.

Loads: `stream`, everybody broadcasts 64 bytes as fast as the back-pressure lets it, so that one write and
one TLS record carry many frames: as the live node works; `woven`, one message for each that was delivered
from everybody; `4 KiB`, as `stream` with longer messages; and `ping`, two nodes that answer each other, one
message per write: what TLS costs where nothing can be joined.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from dataclasses import asdict
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

import whence
from bench_live import Figures, Row, run_round, stream, woven
from forked import Answer, measured
from whence.live.authority import make_group

KEYS = Path(tempfile.gettempdir()) / f"whence-bench-tls-{os.getpid()}"  # the forked members know it, too


async def ping(group: whence.Group, row: Row) -> int:
    """Answer each message of the other with one of ours; the smaller name begins."""
    delivered, sent, expected = 0, 0, row.nodes * row.messages
    if group.node == min(group.members):
        sent = 1
        await group.broadcast(bytes(64))
    async for message in group:
        delivered += 1
        if message.origin != group.node and sent < row.messages:
            sent += 1
            await group.broadcast(bytes(64))
        if delivered == expected:
            break
    return delivered


LOADS = {"stream": stream, "woven": woven, "ping": ping, "4 KiB": partial(stream, payload=bytes(4096))}


async def member(name: str, peers: dict[str, str], how: str, row: Row, barrier: Barrier) -> Answer:
    keys = KEYS if how == "tls" else None
    async with whence.join(
        "bench", node=name, peers=peers, relay=False, keys=keys, protocol="vector"
    ) as group:
        answer = await measured(group, barrier, lambda: LOADS[row.load](group, row), acknowledged=True)
        assert answer["delivered"] == group.stats().deliveries == row.nodes * row.messages
    return answer


def measure(row: Row, rounds: int) -> dict[str, object]:
    pairs: list[tuple[Figures, Figures]] = []
    for _ in range(rounds):
        pairs.append((run_round("plain", row, member), run_round("tls", row, member)))
    ratios = [tls.cpu_us_per_delivery / plain.cpu_us_per_delivery for plain, tls in pairs]
    return {
        **asdict(row),
        "rounds": rounds,
        "plain_cpu_us": round(statistics.median(plain.cpu_us_per_delivery for plain, _ in pairs), 2),
        "tls_cpu_us": round(statistics.median(tls.cpu_us_per_delivery for _, tls in pairs), 2),
        "cpu_ratio": round(statistics.median(ratios), 3),
        "ratios": [round(min(ratios), 2), round(max(ratios), 2)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="small groups and few rounds")
    parser.add_argument("--rounds", type=int, default=None)
    options = parser.parse_args()
    if options.quick:
        rows = [Row("stream", 4, False, 3_000), Row("ping", 2, False, 1_000)]
        rounds = options.rounds or 3
    else:
        rows = [
            Row("stream", 8, False, 8_000),
            Row("woven", 8, False, 4_000),
            Row("4 KiB", 4, False, 4_000),
            Row("ping", 2, False, 4_000),
        ]
        rounds = options.rounds or 5
    make_group(KEYS, "bench", [f"n{index}" for index in range(max(row.nodes for row in rows))])
    try:
        report(rows, rounds)
    finally:
        shutil.rmtree(KEYS)


def report(rows: list[Row], rounds: int) -> None:
    heads = ("plain us", "tls us", "ratio")
    print(f"{'load':8}{'nodes':>6}" + "".join(f"{head:>11}" for head in heads) + f"{'from, to':>14}")
    table = []
    for row in rows:
        line = measure(row, rounds)
        table.append(line)
        values = "".join(f"{line[key]:>11,}" for key in ("plain_cpu_us", "tls_cpu_us", "cpu_ratio"))
        print(f"{row.load:8}{row.nodes:>6}{values}{line['ratios']!s:>14}", flush=True)
    print(json.dumps({"bench": "tls", "cpu_ratio": table[0]["cpu_ratio"], "rows": table}))


if __name__ == "__main__":
    main()
