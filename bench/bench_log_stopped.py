"""What a peer that stands still costs the others of a group that remembers: time from broadcast to delivery.

    python bench/bench_log_stopped.py [--rounds N] [--messages N]

Four forked processes on loopback, default settings. One broadcasts at a steady pace, two measure how long
each message was on its way (the monotonic clock is the machine's), the fourth reads, or is stopped (SIGSTOP)
before the first message and goes on behind the last: then it must get them all. Rounds alternate; figures are
medians over rounds, the ratio is the median of the paired ratios. The time that `broadcast` itself takes is
shown too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import time
from multiprocessing.synchronize import Barrier

import whence
from forked import Answer, run_group, together

PAUSE_S = 0.004
SETTLE_S = 0.3


async def member(name: str, peers: dict[str, str], messages: int, stops: bool, barrier: Barrier) -> Answer:
    async with whence.join("bench", node=name, peers=peers) as group:
        await group.wait_connected(60)
        await together(barrier)
        if name == "n3":
            await group.broadcast(b"%d" % os.getpid())
        pid = int((await group.receive()).payload)
        if name == "n0":
            return await speak(group, pid, messages, stops, barrier)
        waits_us = []
        for _ in range(messages):
            message = await group.receive()
            waits_us.append((time.monotonic_ns() - int(message.payload)) / 1000)
        await together(barrier)
    return {} if name == "n3" else {"latency_us": statistics.median(waits_us), "p99_us": p99(waits_us)}


async def speak(group: whence.Group, pid: int, messages: int, stops: bool, barrier: Barrier) -> Answer:
    await asyncio.sleep(SETTLE_S)  # until the others, too, have what it said
    if stops:
        os.kill(pid, signal.SIGSTOP)
    took_us = []
    try:
        for _ in range(messages):
            began_ns = time.monotonic_ns()
            await group.broadcast(b"%064d" % began_ns)
            took_us.append((time.monotonic_ns() - began_ns) / 1000)
            await asyncio.sleep(PAUSE_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    for _ in range(messages):
        await group.receive()
    await together(barrier)
    return {"broadcast_us": statistics.median(took_us)}


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[-1]


def run_round(messages: int, *, stops: bool) -> Answer:
    found = run_group(4, member, messages, stops)
    return {
        key: statistics.mean(each[key] for each in found if key in each)
        for key in ("latency_us", "p99_us", "broadcast_us")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--messages", type=int, default=1000)
    options = parser.parse_args()
    pairs = [
        (run_round(options.messages, stops=False), run_round(options.messages, stops=True))
        for _ in range(options.rounds)
    ]
    line: dict[str, float] = {}
    print(f"{'':16}{'all run':>12}{'one stopped':>12}{'ratio':>8}")
    for key in ("latency_us", "p99_us", "broadcast_us"):
        all_run, stopped = (statistics.median(pair[at][key] for pair in pairs) for at in (0, 1))
        ratio = statistics.median(two[key] / one[key] for one, two in pairs)
        line |= {f"all_run_{key}": all_run, f"stopped_{key}": stopped, f"ratio_{key}": ratio}
        print(f"{key:16}{all_run:>12.1f}{stopped:>12.1f}{ratio:>8.3f}")
    print(json.dumps({"bench": "log_stopped", **{key: round(value, 3) for key, value in line.items()}}))


if __name__ == "__main__":
    main()
