"""Live causal against live FIFO on the same transport, and UDP against TCP: CPU per delivery.

    python bench/bench_live.py [--quick] [--rounds N] [--only-order | --only-need]

A group of forked processes on loopback, 64-byte payloads, every process reads all that it is delivered.
Rounds alternate (fifo, vector, fifo, vector ...), so that a change in the machine's load meets both;
the figure is the median of the paired ratios. CPU is the processes' own, user and system, from the moment
when everybody is connected until everything is delivered and acknowledged; deliveries per second count
until the last delivery. A round in which a delivery is missing fails.

Two loads: `stream`, everybody broadcasts as fast as the back-pressure lets it; `woven`, a node broadcasts
one message for every message that it delivers from each member, so that nearly every message depends on a
new message of every other node: the worst case for a delta clock.

The second table has vector with `relay="need"`, its live default, against `relay=False`. The third has `odca`
(one copy of each message) over TCP and over UDP, alternating in the same way.
Everybody broadcasts 16 messages every 20 ms (`paced`), so that no socket overflows; messages live for 5 s.
What is lost for good does not fail a round here, it is in the last line: the cost is per delivery made.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from dataclasses import asdict, dataclass, replace
from multiprocessing.synchronize import Barrier

import whence
from forked import PAYLOAD, Answer, TakePart, measured, run_group

LIFETIME_S, BURST, PACE_S, QUIET_S = 5.0, 16, 0.02, 6.0  # of the paced load
WINDOW = 32  # messages of each node that are on their way in the woven load


@dataclass(frozen=True)
class Row:
    """One configuration, measured for both protocols."""

    load: str
    nodes: int
    relay: bool | str
    messages: int  # per node


@dataclass(frozen=True)
class Figures:
    """One round of one protocol."""

    cpu_us_per_delivery: float
    deliveries_per_s: float
    delivered_share: float = 1.0


async def stream(group: whence.Group, row: Row, payload: bytes = PAYLOAD) -> int:
    async def produce() -> None:
        for _ in range(row.messages):
            await group.broadcast(payload)

    producer = asyncio.create_task(produce())
    delivered, expected = 0, row.nodes * row.messages
    async for _ in group:
        delivered += 1
        if delivered == expected:
            break
    await producer
    return delivered


async def woven(group: whence.Group, row: Row) -> int:
    sent = min(WINDOW, row.messages)
    for _ in range(sent):
        await group.broadcast(PAYLOAD)
    delivered, expected = 0, row.nodes * row.messages
    async for _ in group:
        delivered += 1
        if delivered % row.nodes == 0 and sent < row.messages:
            sent += 1
            await group.broadcast(PAYLOAD)
        if delivered == expected:
            break
    return delivered


async def paced(group: whence.Group, row: Row) -> int:
    async def produce() -> None:
        for number in range(row.messages):
            await group.broadcast(PAYLOAD, deadline=LIFETIME_S)
            if number % BURST == 0:
                await asyncio.sleep(PACE_S)

    producer = asyncio.create_task(produce())
    delivered, expected = 0, row.nodes * row.messages
    while delivered < expected:
        try:
            await asyncio.wait_for(group.receive(), QUIET_S)
        except TimeoutError:
            break
        delivered += 1
        while group.unread:  # a time limit for each would cost more than the delivery
            await group.receive()
            delivered += 1
    await producer
    return delivered


async def datagram_member(
    name: str, peers: dict[str, str], transport: str, row: Row, barrier: Barrier
) -> Answer:
    async with whence.join(
        "bench", node=name, peers=peers, protocol="odca", transport=transport, copies=1
    ) as group:
        answer = await measured(group, barrier, lambda: paced(group, row), acknowledged=False)
        assert answer["delivered"] == group.stats().deliveries
    return answer


async def member(name: str, peers: dict[str, str], protocol: str, row: Row, barrier: Barrier) -> Answer:
    load = stream if row.load == "stream" else woven
    async with whence.join("bench", node=name, peers=peers, protocol=protocol, relay=row.relay) as group:
        answer = await measured(group, barrier, lambda: load(group, row), acknowledged=True)
        stats = group.stats()
        assert answer["delivered"] == stats.deliveries == row.nodes * row.messages, (answer, stats)
        assert stats.broadcasts == row.messages
    return answer


def run_round(protocol: str, row: Row, take_part: TakePart = member) -> Figures:
    results = run_group(row.nodes, take_part, protocol, row)
    deliveries = sum(result["delivered"] for result in results)
    expected = row.nodes * row.nodes * row.messages
    if deliveries != expected and take_part is member:
        raise SystemExit(f"{protocol} {row}: {deliveries} deliveries, so the round does not count")
    wall_s = max(result["ended_s"] for result in results) - min(result["began_s"] for result in results)
    cpu_s = sum(result["cpu_s"] for result in results)
    return Figures(cpu_s / deliveries * 1e6, deliveries / wall_s, deliveries / expected)


def measure(row: Row, rounds: int) -> dict[str, object]:
    pairs: list[tuple[Figures, Figures]] = []
    for _ in range(rounds):
        pairs.append((run_round("fifo", row), run_round("vector", row)))
    return {
        **asdict(row),
        "rounds": rounds,
        "fifo_cpu_us": round(statistics.median(fifo.cpu_us_per_delivery for fifo, _ in pairs), 2),
        "vector_cpu_us": round(statistics.median(vector.cpu_us_per_delivery for _, vector in pairs), 2),
        "fifo_per_s": round(statistics.median(fifo.deliveries_per_s for fifo, _ in pairs)),
        "vector_per_s": round(statistics.median(vector.deliveries_per_s for _, vector in pairs)),
        "cpu_ratio": round(
            statistics.median(
                vector.cpu_us_per_delivery / fifo.cpu_us_per_delivery for fifo, vector in pairs
            ),
            3,
        ),
    }


def measure_need(row: Row, rounds: int) -> dict[str, object]:
    """Relaying by need, the live default of vector, against none: what agreement of survivors costs."""
    need = replace(row, relay="need")
    pairs = [(run_round("vector", row), run_round("vector", need)) for _ in range(rounds)]
    ratios = [kept.cpu_us_per_delivery / plain.cpu_us_per_delivery for plain, kept in pairs]
    return {
        "load": row.load,
        "nodes": row.nodes,
        "messages": row.messages,
        "rounds": rounds,
        "false_cpu_us": round(statistics.median(plain.cpu_us_per_delivery for plain, _ in pairs), 2),
        "need_cpu_us": round(statistics.median(kept.cpu_us_per_delivery for _, kept in pairs), 2),
        "cpu_ratio": round(statistics.median(ratios), 3),
    }


def measure_transports(row: Row, rounds: int) -> dict[str, object]:
    pairs = [
        (run_round("tcp", row, datagram_member), run_round("udp", row, datagram_member))
        for _ in range(rounds)
    ]
    return {
        "load": row.load,
        "nodes": row.nodes,
        "messages": row.messages,
        "rounds": rounds,
        "tcp_cpu_us": round(statistics.median(tcp.cpu_us_per_delivery for tcp, _ in pairs), 2),
        "udp_cpu_us": round(statistics.median(udp.cpu_us_per_delivery for _, udp in pairs), 2),
        "udp_delivered": round(statistics.median(udp.delivered_share for _, udp in pairs), 4),
        "cpu_ratio": round(
            statistics.median(udp.cpu_us_per_delivery / tcp.cpu_us_per_delivery for tcp, udp in pairs), 3
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="small groups and few rounds")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--only-order", action="store_true", help="vector against fifo without relaying only")
    parser.add_argument("--only-need", action="store_true", help="relaying by need against none only")
    options = parser.parse_args()
    if options.quick:
        rows = [Row("stream", 4, False, 3_000), Row("woven", 4, False, 2_000)]
        rounds = options.rounds or 3
        datagram_row = Row("paced", 4, False, 1_000)
    else:
        rows = [
            Row("stream", 8, False, 12_000),
            Row("woven", 8, False, 6_000),
            *([] if options.only_order else [Row("stream", 8, True, 1_500)]),
        ]
        rounds = options.rounds or 7
        datagram_row = Row("paced", 8, False, 2_000)
    if options.only_need:
        print(json.dumps({"bench": "live", "need_against_false": measure_need(rows[0], rounds)}))
        return
    heads = ("fifo us", "vector us", "ratio", "fifo/s", "vector/s")
    print(f"{'load':8}{'nodes':>6}{'relay':>7}" + "".join(f"{head:>11}" for head in heads))
    table = []
    for row in rows:
        line = measure(row, rounds)
        table.append(line)
        values = [
            line[key] for key in ("fifo_cpu_us", "vector_cpu_us", "cpu_ratio", "fifo_per_s", "vector_per_s")
        ]
        print(
            f"{row.load:8}{row.nodes:>6}{row.relay!s:>7}" + "".join(f"{value:>11,}" for value in values),
            flush=True,
        )
    if options.only_order:
        print(json.dumps({"bench": "live", "cpu_ratio": table[0]["cpu_ratio"], "rows": table}))
        return
    line = kept = measure_need(rows[0], rounds)
    print(f"\n{'vector':8}{'nodes':>6}" + "".join(f"{head:>14}" for head in ("false us", "need us", "ratio")))
    values = [line[key] for key in ("false_cpu_us", "need_cpu_us", "cpu_ratio")]
    print(f"{rows[0].load:8}{rows[0].nodes:>6}" + "".join(f"{value:>14,}" for value in values), flush=True)
    line = measure_transports(datagram_row, rounds)
    print(f"\n{'odca':8}{'nodes':>6}" + "".join(f"{head:>14}" for head in ("tcp us", "udp us", "ratio")))
    values = [line[key] for key in ("tcp_cpu_us", "udp_cpu_us", "cpu_ratio")]
    print(f"{'paced':8}{datagram_row.nodes:>6}" + "".join(f"{value:>14,}" for value in values))
    print(
        json.dumps(
            {
                "bench": "live",
                "cpu_ratio": table[0]["cpu_ratio"],
                "rows": table,
                "need_against_false": kept,
                "udp_against_tcp": line,
            }
        )
    )


if __name__ == "__main__":
    main()
