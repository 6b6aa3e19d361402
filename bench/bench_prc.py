"""PRC: the kernel beside the pure core, with and without shuffles, at 100, 1,000 and 10,000 processes.

Each point is a process of its own, so that its peak of memory is its own; rates are receipts per second of
CPU time. Compiling is not counted, nor is the minute in which the processes join: after it there are ten
broadcasts a second, 600 in the kernel and fewer in the core, with a delay of 100 ms; "dynamic" shuffles every
20 s. The kernel's runs are repeated until they take a second. --quick leaves the 10,000 out; --hour runs the
paper's whole hour instead, joins and all, in the kernel.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import msgspec

from whence.sim.engine import Engine
from whence.sim.model import Scenario, Stop
from whence.sim.series import RunSeries
from whence.sim.workload import Source
from whence.studies.prc.grid import changing, hour
from whence.studies.prc.measures import MINUTE_US, SECOND_US

NODES = [100, 1_000, 10_000]
CORE_BROADCASTS = {100: 600, 1_000: 60, 10_000: 5}  # the joins of 10,000 take minutes
LASTS_S = 1.0


def experiment(nodes: int, broadcasts: int, shuffles: bool) -> Scenario:
    start_us = MINUTE_US + SECOND_US
    return changing(
        nodes=nodes,
        duration_us=start_us + broadcasts * SECOND_US // 10 + 10 * SECOND_US,
        joins_us=MINUTE_US,
        delays=[(0, 1_000), (MINUTE_US, 1_000), (MINUTE_US + 1, 100_000)],
        shuffle_every_us=20 * SECOND_US,
        shuffle_stop_us=2 * MINUTE_US if shuffles else 0,
        broadcast_start_us=start_us,
        broadcast_stop_us=start_us + broadcasts * SECOND_US // 10,
        broadcast_every_us=SECOND_US // 10,
    )


class Timed(Engine):
    """The cores, with a look at the clock when the first broadcast begins."""

    begun_s = 0.0

    def broadcast(self, source: Source, number: int, time_us: int) -> int | None:
        """As the engine's."""
        if number == 0:
            self.begun_s = time.process_time()
        return super().broadcast(source, number, time_us)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_the_core(described: Scenario) -> tuple[RunSeries, float]:
    """The run, and its CPU seconds from the first broadcast on."""
    engine = Timed(described)
    engine.run()
    cpu_s = time.process_time() - engine.begun_s
    series = engine.series()
    assert series is not None
    return series, cpu_s


def in_the_kernel(described: Scenario, *, joins: bool) -> tuple[RunSeries, float]:
    """The run, and its CPU seconds, with or without those of the joins: the mean of a second's worth."""
    from whence.kernels.prc.kernel import run

    def cpu_s(each: Scenario) -> float:
        runs, start_s = 0, time.process_time()
        while runs == 0 or time.process_time() - start_s < LASTS_S:
            run(each)
            runs += 1
        return (time.process_time() - start_s) / runs

    series = run(described).series
    assert series is not None
    if joins:
        return series, cpu_s(described)
    load = described.workloads[0]
    before = msgspec.structs.replace(
        described,
        workloads=[msgspec.structs.replace(load, stop_us=load.start_us + 1)],
        stop=Stop(duration_us=load.start_us + 1, drain=False),
    )
    return series, cpu_s(described) - cpu_s(before)


def one_point(path: str, kind: str, nodes: int, broadcasts: int) -> dict[str, float]:
    """Run one point in this process; what interpreter and numba take is reported apart."""
    if path == "kernel":
        in_the_kernel(experiment(2, 1, True), joins=True)  # compile, or load what is compiled
    before_mb = peak_mb()
    described = hour(nodes) if kind == "hour" else experiment(nodes, broadcasts, kind == "dynamic")
    if path == "core":
        series, cpu_s = in_the_core(described)
    else:
        series, cpu_s = in_the_kernel(described, joins=kind == "hour")
    windows = series.windows
    degree = sum(each.degree_us for each in windows) / sum(each.process_us for each in windows)
    return {
        "receipts": series.receipts,
        "cpu_s": cpu_s,
        "per_s": series.receipts / cpu_s,
        "degree": degree,
        "before_mb": before_mb,
        "peak_mb": peak_mb(),
        "left": series.expected_left + series.buffered_left,
    }


def measured(path: str, kind: str, nodes: int, broadcasts: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--point", path, kind, str(nodes), str(broadcasts)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(answer.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 and 1,000 processes only")
    parser.add_argument("--hour", action="store_true", help="the paper's hour, in the kernel")
    parser.add_argument("--point", nargs=4, metavar=("PATH", "KIND", "NODES", "BROADCASTS"))
    options = parser.parse_args()
    if options.point:
        path, kind, nodes, broadcasts = options.point
        print(json.dumps(one_point(path, kind, int(nodes), int(broadcasts))))
        return
    sizes = NODES[:2] if options.quick else NODES
    points = [("kernel", kind, nodes, 600) for nodes in sizes for kind in ("static", "dynamic")]
    points += [
        ("core", kind, nodes, CORE_BROADCASTS[nodes]) for nodes in sizes for kind in ("static", "dynamic")
    ]
    if options.hour:
        points = [("kernel", "hour", nodes, 0) for nodes in sizes]
    heads = f"{'path':8}{'links':9}{'nodes':>7}{'degree':>8}{'receipts':>12}{'CPU s':>9}"
    print(heads + f"{'per CPU s':>13}{'MB':>8}")

    found = {}
    for path, kind, nodes, broadcasts in points:
        point = found[path, kind, nodes] = measured(path, kind, nodes, broadcasts)
        print(
            f"{path:8}{kind:9}{nodes:7}{point['degree']:8.2f}{point['receipts']:12.3g}{point['cpu_s']:9.2f}"
            f"{point['per_s']:13,.0f}{point['peak_mb']:8.0f}",
            flush=True,
        )
    ratios = {
        f"kernel_to_core_{kind}_{nodes}": round(
            found["kernel", kind, nodes]["per_s"] / found["core", kind, nodes]["per_s"]
        )
        for path, kind, nodes in found
        if path == "core"
    }
    rates = {f"{path}_{kind}_{nodes}": round(point["per_s"]) for (path, kind, nodes), point in found.items()}
    peaks = {f"{path}_{kind}_{nodes}": round(each["peak_mb"]) for (path, kind, nodes), each in found.items()}
    print(json.dumps({"bench": "prc", "ratios": ratios, "receipts_per_cpu_s": rates, "peak_mb": peaks}))


if __name__ == "__main__":
    main()
