"""PRC: the kernel beside the pure core, with and without shuffles, at 100, 1,000 and 10,000 processes.

Each point is a process of its own, so that its peak of memory is its own; rates are receipts per second of
CPU time. Compiling is not counted. After a minute of joins there are ten broadcasts a second for a simulated
minute (six seconds for the core), with a delay of 100 ms; "dynamic" shuffles every 20 s. --quick leaves the
10,000 out; --hour runs the paper's whole hour instead, in the kernel.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

from whence.sim.experiment import MINUTE_US, SECOND_US, Experiment, Point, Series, paper

NODES = [100, 1_000, 10_000]
CORE_NODES = [100]


def experiment(nodes: int, broadcasts: int, shuffles: bool) -> Experiment:
    start_us = MINUTE_US + SECOND_US
    return Experiment(
        nodes=nodes,
        duration_us=start_us + broadcasts * SECOND_US // 10 + 10 * SECOND_US,
        joins_us=MINUTE_US,
        latency=[Point(0, 1_000), Point(MINUTE_US, 1_000), Point(MINUTE_US + 1, 100_000)],
        shuffle_every_us=20 * SECOND_US,
        shuffle_stop_us=2 * MINUTE_US if shuffles else 0,
        broadcast_start_us=start_us,
        broadcast_stop_us=start_us + broadcasts * SECOND_US // 10,
        broadcast_every_us=SECOND_US // 10,
    )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one_point(path: str, kind: str, nodes: int, broadcasts: int) -> dict[str, float]:
    """Run one point in this process; what interpreter and numba take is reported apart."""
    if path == "kernel":
        from whence.kernels.prc import run

        run(experiment(2, 1, True))  # compile, or load what is compiled
    else:
        from whence.sim.dynamic import run
    before_mb = peak_mb()
    described = paper(nodes) if kind == "hour" else experiment(nodes, broadcasts, kind == "dynamic")
    start_s = time.process_time()
    series: Series = run(described)
    cpu_s = time.process_time() - start_s
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
    points += [("core", kind, nodes, 60) for nodes in CORE_NODES for kind in ("static", "dynamic")]
    if options.hour:
        points = [("kernel", "hour", nodes, 0) for nodes in sizes]
    heads = f"{'path':8}{'links':9}{'nodes':>7}{'degree':>8}{'receipts':>12}{'CPU s':>9}"
    print(heads + f"{'per CPU s':>13}{'MB':>8}")

    found = {}
    for path, kind, nodes, broadcasts in points:
        point = found[path, kind, nodes] = measured(path, kind, nodes, broadcasts)
        print(
            f"{path:8}{kind:9}{nodes:7}{point['degree']:8.2f}{point['receipts']:12.3g}{point['cpu_s']:9.2f}"
            f"{point['per_s']:13,.0f}{point['peak_mb']:8.0f}"
        )
    ratios = {
        f"kernel_to_core_{kind}_{nodes}": round(
            found["kernel", kind, nodes]["per_s"] / found["core", kind, nodes]["per_s"]
        )
        for path, kind, nodes in found
        if path == "core"
    }
    rates = {f"{path}_{kind}_{nodes}": round(point["per_s"]) for (path, kind, nodes), point in found.items()}
    print(json.dumps({"bench": "prc", "ratios": ratios, "receipts_per_cpu_s": rates}))


if __name__ == "__main__":
    main()
