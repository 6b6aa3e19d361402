"""What a simulated step costs: the engine against a bare heapq loop of the same number of events.

    python bench/bench_sim.py [--quick]

Rounds alternate between the contestants, CPU time is measured, and the best round of each counts: the
machine can only make a round slower. `ratio` is the CPU time of a step over that of the bare loop's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from pathlib import Path

from whence.lab.run import run
from whence.sim.files import Scenario, from_dict
from whence.trace.schema import Level

NODES = 16
PROTOCOLS = ("fifo", "vector")
RECORDERS = ("none", "deliveries", "all")


def scenario(protocol: str, duration_us: int) -> Scenario:
    """Flooding over a full mesh that reorders: nearly every step is an arrival."""
    return from_dict(
        {
            "name": f"bench-{protocol}",
            "protocol": protocol,
            "nodes": NODES,
            "seed": 7,
            "link": {"delay": {"kind": "uniform", "low_us": 500, "high_us": 5_000}},
            "workloads": [{"kind": "poisson", "interval_us": 20_000}],
            "stop": {"duration_us": duration_us},
        }
    )


def bare_loop(steps: int, pending: int) -> float:
    """CPU seconds of popping and pushing `steps` entries of the engine's shape."""
    heap = [(at * 37 % 5_000, 2, at % NODES, 0, at, None) for at in range(pending)]
    heap.sort()
    began = time.process_time()
    for step in range(steps):
        time_us, priority, node, source, counter, data = heappop(heap)
        heappush(heap, (time_us + 500 + step * 37 % 4_500, priority, node, source, counter, data))
    return time.process_time() - began


def simulated(wanted: Scenario, recorder: str) -> float:
    """CPU seconds of a whole run, its trace written and closed."""
    began = time.process_time()
    if recorder == "none":
        run(wanted, kernel="never")
    else:
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            run(wanted, Path(folder) / "trace", level=Level[recorder.upper()], kernel="never")
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the events, two rounds")
    quick = parser.parse_args().quick
    duration_us, rounds = (250_000, 2) if quick else (1_000_000, 5)

    result = run(scenario("fifo", duration_us), kernel="never")
    steps = result.steps
    # In the mean so many packets are under way: packets a microsecond times the mean delay.
    pending = max(round(result.packets / duration_us * 2_750), 1)
    contestants: dict[str, Callable[[], float]] = {"bare heapq": partial(bare_loop, steps, pending)}
    for protocol in PROTOCOLS:
        wanted = scenario(protocol, duration_us)
        for recorder in RECORDERS:
            contestants[f"{protocol}, {recorder}"] = partial(simulated, wanted, recorder)
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            best[name] = min(best.get(name, float("inf")), contestant())

    bare = best["bare heapq"]
    print(f"{steps:,} steps, {NODES} nodes, about {pending:,} packets under way, best of {rounds} rounds\n")
    print(f"{'protocol, recorder':<22}{'steps/s (CPU)':>15}{'us/step':>10}{'ratio':>8}")
    for name, seconds in best.items():
        print(f"{name:<22}{steps / seconds:>15,.0f}{seconds / steps * 1e6:>10.2f}{seconds / bare:>8.2f}")
    print()
    print(
        json.dumps(
            {
                "bench": "sim",
                "steps": steps,
                "steps_per_s": {name: round(steps / seconds) for name, seconds in best.items()},
                "ratio_to_bare_heapq": {name: round(seconds / bare, 2) for name, seconds in best.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
