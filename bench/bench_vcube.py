"""VCube: the kernel beside the core, and how both grow (paper 000's model, all nodes broadcast, aggregation).

Each point is a process of its own, so that its peak of memory is its own; rates are packets per second of
CPU time. Compiling is not counted (the first run on a machine takes some 15 s for it). The core would
take some twenty minutes for 4,096 nodes: it stops at 1,024, with --quick at 128.

Then the whole study, as its user runs it: `whence study vcube --scale paper` (with --quick: demo), from the
start of Spark to the report, in seconds of wall-clock time.

Then what it costs to detect crashes (`detect = true`, every parameter at its default): the tests of a group
in which nothing happens, and the CPU time of a delivery beside that of the plain core under the same load.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from whence.lab.run import run
from whence.sim.distributions import Normal, Uniform
from whence.sim.model import Full, Hypercube, Link, Poisson, Scenario, Stop, Window
from whence.trace.schema import Kind

KERNEL_NODES = [64, 128, 256, 512, 1024, 2048, 4096]
CORE_NODES = [64, 128, 256, 512, 1024]
QUICK_KERNEL_NODES = [64, 128, 256, 512, 1024]
QUICK_CORE_NODES = [64, 128]
IDLE_NODES = [8, 64, 256]
IDLE_S = 10
LOADED_NODES = 16
SHORT_S = 0.3  # a run that is shorter is repeated with other seeds


def scenario(nodes: int, seed: int) -> Scenario:
    return Scenario(
        nodes=nodes,
        protocol="vcube",
        seed=seed,
        params={"size_model": "paper"},
        topology=Hypercube(),
        link=Link(delay=Normal(mean_us=100_000, deviation_us=25_000), service_us=1_000, process_us=1_000),
        workloads=[Window(count=1, stop_us=500_000, payload_bytes=50)],
        stop=Stop(duration_us=500_000),
    )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one_point(path: str, nodes: int) -> dict[str, float]:
    """Run one point in this process; the memory before it (interpreter, numba) is reported apart."""
    choice = "always" if path == "kernel" else "never"
    run(scenario(2, 1), kernel=choice)  # compile, or load what is compiled

    def packets_of(seed: int) -> int:
        return run(scenario(nodes, seed), kernel=choice).packets

    before_mb = peak_mb()
    packets = seed = 0
    begin_s = time.process_time()
    while (taken_s := time.process_time() - begin_s) < SHORT_S:
        seed += 1
        packets += packets_of(seed)
    return {
        "packets": packets / seed,
        "seconds": taken_s / seed,
        "rate": packets / taken_s,
        "before_mb": before_mb,
        "peak_mb": peak_mb(),
    }


def measure(path: str, nodes: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--point", path, str(nodes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    point: dict[str, float] = json.loads(done.stdout)
    return point


def study(scale: str) -> dict[str, float]:
    """Run the whole study; the number of its runs and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "study"
        command = [sys.executable, "-m", "whence", "study", "vcube", "--scale", scale, "--out", str(out)]
        begin_s = time.monotonic()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)  # its progress goes to stderr
        wall_s = time.monotonic() - begin_s
        runs = len((out / "runs.csv").read_text().splitlines()) - 1
    return {"runs": runs, "wall_s": round(wall_s, 1)}


class Meter:
    """A recorder that only counts what is sent."""

    def __init__(self) -> None:
        self.packets = self.total_bytes = 0

    def event(self, node: str, time_us: int, kind: Kind, *values: object) -> None:
        if kind is Kind.SEND:
            self.packets += 1
            self.total_bytes += int(values[3])  # origin, number, peer, total_bytes, ...


def group(nodes: int, seed: int, seconds: int, load: Poisson, detect: bool) -> Scenario:
    """A full mesh."""
    return Scenario(
        nodes=nodes,
        protocol="vcube",
        seed=seed,
        params={"detect": detect},
        topology=Full(),
        link=Link(delay=Uniform(low_us=300, high_us=3_000)),
        workloads=[load],
        stop=Stop(duration_us=seconds * 1_000_000, drain=False),
    )


def tests_when_idle(nodes: int) -> dict[str, float]:
    """Packets and bytes that each node sends per second when (but for one message) nothing happens."""
    meter = Meter()
    one_message = Poisson(interval_us=1_000, senders=["n0".ljust(1 + len(str(nodes - 1)), "0")], count=1)
    run(group(nodes, 1, IDLE_S, one_message, detect=True), recorder=meter)
    each = nodes * IDLE_S
    return {"packets": meter.packets / each, "bytes": meter.total_bytes / each}


def delivery_us(detect: bool, seed: int) -> float:
    """CPU time of one delivery, the simulator's share included."""
    begin_s = time.process_time()
    load = Poisson(interval_us=20_000, payload_bytes=50)
    result = run(group(LOADED_NODES, seed, 5, load, detect), kernel="never")
    return (time.process_time() - begin_s) * 1e6 / result.deliveries


def print_detection(quick: bool) -> dict[str, object]:
    """The table of what detection costs."""
    print(f"\n{'nodes':>6} {'tests and answers per node and s':>33} {'bytes per node and s':>21}")
    idle = {nodes: tests_when_idle(nodes) for nodes in (IDLE_NODES[:2] if quick else IDLE_NODES)}
    for nodes, each in idle.items():
        print(f"{nodes:>6} {each['packets']:>33.1f} {each['bytes']:>21.0f}")
    seeds = range(1, 3 if quick else 6)  # turn by turn, so that both see the same machine
    pairs = [(delivery_us(True, seed), delivery_us(False, seed)) for seed in seeds]
    ratio = sum(with_ for with_, _ in pairs) / sum(without for _, without in pairs)
    print(f"a delivery in a busy group of {LOADED_NODES}: {ratio:.2f} times the CPU time of the plain core")
    return {
        "tests_per_node_s": {nodes: round(each["packets"], 1) for nodes, each in idle.items()},
        "test_bytes_per_node_s": {nodes: round(each["bytes"]) for nodes, each in idle.items()},
        "delivery_detect_to_plain": round(ratio, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--point", nargs=2, metavar=("PATH", "NODES"))
    options = parser.parse_args()
    if options.point:
        print(json.dumps(one_point(options.point[0], int(options.point[1]))))
        return
    core_nodes = QUICK_CORE_NODES if options.quick else CORE_NODES
    measure("kernel", 2)  # whatever must be compiled is compiled here
    print(f"{'nodes':>6} {'packets':>10} | {'kernel s':>9} {'packets/s':>10} {'peak MB':>8} | ", end="")
    print(f"{'core s':>8} {'packets/s':>10} {'peak MB':>8} | {'kernel : core':>13}")
    results = {}
    for nodes in QUICK_KERNEL_NODES if options.quick else KERNEL_NODES:
        kernel = measure("kernel", nodes)
        core = measure("core", nodes) if nodes in core_nodes else None
        results[nodes] = {"kernel": kernel} | ({"core": core} if core else {})
        print(
            f"{nodes:>6} {kernel['packets']:>10.0f} | {kernel['seconds']:>9.3f} {kernel['rate']:>10.0f}",
            end="",
        )
        print(f" {kernel['peak_mb']:>8.0f} | ", end="")
        if core:
            print(f"{core['seconds']:>8.2f} {core['rate']:>10.0f} {core['peak_mb']:>8.0f} | ", end="")
            print(f"{kernel['rate'] / core['rate']:>12.1f}x")
        else:
            print(f"{'-':>8} {'-':>10} {'-':>8} | {'-':>13}")
    scale = "demo" if options.quick else "paper"
    whole = study(scale)
    print(f"whence study vcube --scale {scale}: {whole['runs']:.0f} runs in {whole['wall_s']:.0f} s")
    ratios = {
        nodes: round(each["kernel"]["rate"] / each["core"]["rate"], 1)
        for nodes, each in results.items()
        if "core" in each
    }
    summary = {
        "bench": "vcube",
        **print_detection(options.quick),
        "kernel_to_core": ratios,
        "kernel_packets_per_s": {nodes: round(each["kernel"]["rate"]) for nodes, each in results.items()},
        "kernel_seconds": {nodes: round(each["kernel"]["seconds"], 3) for nodes, each in results.items()},
        "kernel_peak_mb": {nodes: round(each["kernel"]["peak_mb"]) for nodes, each in results.items()},
        "core_packets_per_s": {
            nodes: round(each["core"]["rate"]) for nodes, each in results.items() if "core" in each
        },
    }
    print(json.dumps(summary | {"study": {scale: whole}}))


if __name__ == "__main__":
    main()
