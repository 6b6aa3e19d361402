"""TDCA and ODCA: how many packets a second the cores take, beside vector clocks on the same network.

The network is the fitted reading of paper 002 (5 % loss per hop, a message per member every 100 ms); `vector`
without relay runs on it without loss, because it would wait for ever. Rates are steps of the simulator
(packets received, timers, broadcasts) per second of CPU time, network and engine included. Beside them the
same run in the kernel, its tables included and its compilation not.
"""

from __future__ import annotations

import argparse
import json
import time

import msgspec

from whence.kernels.deadline import kernel
from whence.lab.run import run
from whence.sim.distributions import Normal
from whence.sim.model import Link, Poisson, Scenario
from whence.sim.outcome import Outcome
from whence.studies.deadline.grid import DELAY_US, INTERVAL_US, NETWORKS, scenario

NODES, QUICK_NODES = (16, 49, 100), (16, 36)
STEPS, QUICK_STEPS = 120_000, 25_000  # of each run, about
VARIANTS = ("TDCA", "ODCA", "default")


def point(variant: str, nodes: int, steps: int) -> Scenario:
    """A run of about so many steps."""
    duration_us = steps * INTERVAL_US // (nodes * nodes)
    if variant != "vector":
        return scenario("fitted", nodes, variant, 1, duration_us)
    made = scenario("fitted", nodes, "TDCA", 1, duration_us)
    return msgspec.structs.replace(
        made,
        protocol="vector",
        params={"relay": False},
        link=Link(delay=Normal(mean_us=DELAY_US, deviation_us=NETWORKS["face"].spread_ms * 1_000)),
        control=None,
        workloads=[Poisson(interval_us=INTERVAL_US, payload_bytes=1_000, payload_max_bytes=100_000)],
    )


def measure(variant: str, nodes: int, steps: int) -> dict[str, float]:
    """Steps and CPU seconds of one run, and what it delivered."""
    made = point(variant, nodes, steps)
    began = time.process_time()
    result = run(made, kernel="never")
    seconds = time.process_time() - began
    pairs = result.broadcasts * (nodes - 1)
    return {
        "steps": result.steps,
        "seconds": seconds,
        "kernel_seconds": 0.0 if variant == "vector" else by_kernel(made, result),
        "rate": result.steps / seconds,
        "us_per_pair": 1e6 * seconds / pairs,
        "packets_per_pair": result.packets / pairs,
        "delivered": (result.deliveries - result.broadcasts) / pairs,
    }


def by_kernel(made: Scenario, expected: Outcome) -> float:
    """CPU seconds of the same run in the kernel; it must be the same run."""
    began = time.process_time()
    outcome = kernel.run(made)
    seconds = time.process_time() - began
    found = (outcome.packets, outcome.lost_packets, outcome.discards, outcome.expiries)
    if found != (expected.packets, expected.lost_packets, expected.discards, expected.expiries):
        raise SystemExit(f"the kernel is not equal to the cores: {found}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller groups, shorter runs")
    quick = parser.parse_args().quick
    ratios: dict[str, float] = {}
    gains: dict[str, float] = {}
    kernel.warm_up()
    print(f"{'nodes':>5} {'variant':<9} {'steps':>8} {'CPU s':>6} {'steps/s':>9} {'us/pair':>8} "
          f"{'packets/pair':>12} {'delivered':>9} {'kernel CPU s':>12}")  # fmt: skip
    for nodes in QUICK_NODES if quick else NODES:
        found = {}
        for variant in ("vector", *VARIANTS):
            one = found[variant] = measure(variant, nodes, QUICK_STEPS if quick else STEPS)
            print(
                f"{nodes:>5} {variant:<9} {one['steps']:>8.0f} {one['seconds']:>6.2f} {one['rate']:>9.0f} "
                f"{one['us_per_pair']:>8.1f} {one['packets_per_pair']:>12.2f} {one['delivered']:>9.3f} "
                f"{one['kernel_seconds']:>12.3f}",
                flush=True,
            )
        for variant in VARIANTS:
            one = found[variant]
            ratios[f"{variant}/vector@{nodes}"] = round(one["rate"] / found["vector"]["rate"], 3)
            gains[f"{variant}@{nodes}"] = round(one["seconds"] / one["kernel_seconds"], 1)
    print(json.dumps({"bench": "deadline", "rate_ratios": ratios, "kernel_gains": gains}))


if __name__ == "__main__":
    main()
