"""A group that remembers against a broker: CPU per delivery, 8 processes that all speak and read, 64 bytes.

    python bench/bench_log_nats.py [--rounds N] [--messages N] [--server nats-server]

Needs `nats-py` and the program `nats-server` (neither is a dependency of Whence; NATS core has no log, no
order across publishers and no retention). CPU of the broker's group is that of all clients and the server.
Rounds alternate; the ratio is the median of the paired ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from bench_live import Row
from bench_log_live import LOG, run_round
from forked import PAYLOAD, Answer, free_ports, run_group, together

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


async def member(
    name: str, peers: dict[str, str], messages: int, port: int, server: int, barrier: Barrier
) -> Answer:
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{port}", pending_size=64 << 20)
    delivered, expected, done = 0, messages * len(peers), asyncio.Event()

    async def take(_message: object) -> None:
        nonlocal delivered
        delivered += 1
        if delivered == expected:
            done.set()

    await client.subscribe("bench", cb=take, pending_msgs_limit=1 << 30, pending_bytes_limit=1 << 40)
    await client.flush()
    await together(barrier)
    began_cpu_s, server_cpu_s = time.process_time(), cpu_of(server)
    for number in range(messages):
        await client.publish("bench", PAYLOAD)
        if number % 64 == 0:
            await asyncio.sleep(0)  # as an application that also reads
    await done.wait()
    await together(barrier)
    ended_cpu_s, server_cpu_s = time.process_time(), cpu_of(server) - server_cpu_s
    await client.close()
    return {"delivered": delivered, "cpu_s": ended_cpu_s - began_cpu_s, "server_cpu_s": server_cpu_s}


def cpu_of(pid: int) -> float:
    """Seconds of user and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def run_broker(program: str, nodes: int, messages: int) -> float:
    [port] = free_ports(1)
    server = subprocess.Popen([program, "-p", str(port), "-a", "127.0.0.1"], stderr=subprocess.DEVNULL)
    try:
        time.sleep(1.0)
        found = run_group(nodes, member, messages, port, server.pid)
    finally:
        server.terminate()
        server.wait()
    deliveries = sum(each["delivered"] for each in found)
    cpu_s = sum(each["cpu_s"] for each in found) + max(each["server_cpu_s"] for each in found)
    return cpu_s / deliveries * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=3_000)
    parser.add_argument("--server", default="nats-server")
    options = parser.parse_args()
    pairs = [
        (
            run_broker(options.server, 8, options.messages),
            run_round(LOG, Row("stream", 8, False, options.messages))["cpu_us"],
        )
        for _ in range(options.rounds)
    ]
    broker_us, log_us = (statistics.median(pair[at] for pair in pairs) for at in (0, 1))
    ratio = statistics.median(log / broker for broker, log in pairs)
    print(f"NATS {broker_us:.2f} us per delivery, log {log_us:.2f} us, ratio {ratio:.3f}")
    print(json.dumps({"bench": "log_nats", "nats_us": broker_us, "log_us": log_us, "ratio": ratio}))


if __name__ == "__main__":
    main()
