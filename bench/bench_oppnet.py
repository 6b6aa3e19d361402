"""Oppnet: the kernel beside the cores, and runs of the paper's walkers (Östermalm, paper 001) in the kernel.

Each point is a process of its own, so that its peak of memory is its own; rates are receives per second of
CPU time, compiling and the making of the contact plan not counted. First the 15 and 30 minutes of walkers
(--quick: 15 alone), lifetime 5', both paths on the same plan, and they must agree on receives and deliveries.
Then the whole plan with lifetimes of 20' and 5' (--quick: 5' alone): seconds, memory, and the sizes of
barriers as published and in mode `safe`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

from whence.kernels.oppnet.kernel import run_plan, since_entry
from whence.kernels.oppnet.state import OppnetSettings
from whence.lab.run import run
from whence.mobility.walkers import WalkerCity, walker_plan
from whence.sim.files import from_dict
from whence.sim.links_planned import plan_of
from whence.sim.model import Scenario
from whence.trace.schema import Level

MINUTE_US = 60_000_000
MODES = ("published", "safe")
SHORT_S = 0.5  # a run that is shorter is repeated
FIRST_US = 43_000_000  # with the paper's stay times this gives its number of broadcasts (docs/barrier.md)


def walkers(minutes: int, mode: str, nodes: int = 1) -> Scenario:
    """The first minutes of the walkers, as a scenario of the simulator."""
    return from_dict(
        {
            "nodes": nodes,
            "protocol": "oppnet",
            "params": {"lifetime_us": 5 * MINUTE_US, "mode": mode},
            "topology": {
                "kind": "contacts",
                "generator": "walkers",
                "options": {"duration_s": 60.0 * minutes},
                "seed": 1,
            },
            "link": {"delay": {"kind": "constant", "value_us": 2_000}},
            "workloads": [
                {"kind": "periodic", "interval_us": MINUTE_US, "start_us": FIRST_US, "from_entry": True}
            ],
            "stop": {"duration_us": minutes * MINUTE_US, "drain": False},
        }
    )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def short_run(path: str, mode: str, minutes: int) -> dict[str, float]:
    """A part of the walkers in the kernel or in the cores."""
    nodes = len(walker_plan(1, WalkerCity(duration_s=60.0 * minutes)).nodes)
    scenario = walkers(minutes, mode, nodes)
    plan_of(scenario)  # it is kept
    choice = "always" if path == "kernel" else "never"
    if path == "kernel":
        run(scenario, kernel=choice, level=Level.MEASURES)  # compile, or load what is compiled
    start_s, runs, cpu_s = time.process_time(), 0, 0.0
    while cpu_s < SHORT_S:
        result = run(scenario, kernel=choice, level=Level.MEASURES)
        deliveries = result.deliveries
        if path == "kernel":
            receives = result.detail.measures().receives
        else:
            ended = deliveries - result.broadcasts + sum(result.expiries.values())
            receives = ended + sum(map(len, result.waiting.values()))
        runs += 1
        cpu_s = time.process_time() - start_s
    return {
        "nodes": nodes,
        "receives": receives,
        "deliveries": deliveries,
        "per_s": runs * receives / cpu_s,
    }


def whole_run(mode: str, minutes: int) -> dict[str, float]:
    """Östermalm as a whole, in the kernel; `minutes` is the lifetime."""
    short_run("kernel", mode, 2)  # compile, or load what is compiled
    start_s = time.process_time()
    plan = walker_plan(1)
    plan_s = time.process_time() - start_s
    before_mb, start_s = peak_mb(), time.process_time()
    settings = OppnetSettings(lifetime_us=minutes * MINUTE_US, mode=mode)
    outcome = run_plan(plan, settings, since_entry(plan, FIRST_US, MINUTE_US))
    cpu_s = time.process_time() - start_s
    measures = outcome.measures()
    return {
        "plan_s": plan_s,
        "cpu_s": cpu_s,
        "receives": measures.receives,
        "per_s": measures.receives / cpu_s,
        "expiries": measures.expiries,
        "too_late": outcome.too_late,
        "barrier_mean": measures.barrier_mean,
        "barrier_max": measures.barrier_max,
        "before_mb": before_mb,
        "peak_mb": peak_mb(),
    }


def measured(*point: str | int) -> dict[str, float]:
    command = [sys.executable, __file__, "--point", *map(str, point)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(answer.stdout)
    return result


def compare_paths(lengths: list[int]) -> dict[str, float]:
    print(
        f"{'minutes':>8}{'mode':>11}{'nodes':>7}{'receives':>10}{'kernel /s':>12}{'core /s':>10}{'ratio':>8}"
    )
    ratios = {}
    for minutes in lengths:
        for mode in MODES:
            kernel, core = (measured(path, mode, minutes) for path in ("kernel", "core"))
            assert [kernel[what] for what in ("receives", "deliveries")] == [
                core[what] for what in ("receives", "deliveries")
            ]
            ratio = kernel["per_s"] / core["per_s"]
            ratios[f"kernel_to_core_{mode}_{minutes}min"] = round(ratio, 1)
            print(
                f"{minutes:8}{mode:>11}{kernel['nodes']:7}{kernel['receives']:10,}{kernel['per_s']:12,.0f}"
                f"{core['per_s']:10,.0f}{ratio:8.0f}"
            )
    return ratios


def compare_modes(lifetimes: list[int]) -> tuple[dict[str, float], dict[str, float]]:
    print(
        f"\n{'lifetime':>8}{'mode':>11}{'receives':>11}{'CPU s':>8}{'plan s':>8}{'MB':>7}"
        f"{'expired':>9}{'too late':>10}{'entries':>9}{'most':>6}"
    )
    ratios, seconds = {}, {}
    for minutes in lifetimes:
        found = {mode: measured("whole", mode, minutes) for mode in MODES}
        for mode, one in found.items():
            seconds[f"{mode}_{minutes}min"] = round(one["cpu_s"], 2)
            print(
                f"{minutes:7}'{mode:>11}{one['receives']:11,}{one['cpu_s']:8.2f}{one['plan_s']:8.2f}"
                f"{one['peak_mb']:7.0f}{one['expiries']:9}{one['too_late']:10}"
                f"{one['barrier_mean']:9.1f}{one['barrier_max']:6}"
            )
        as_published, safe = found["published"]["barrier_mean"], found["safe"]["barrier_mean"]
        ratios[f"barrier_published_to_safe_{minutes}min"] = round(as_published / safe, 1)
    return ratios, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the shorter runs only")
    parser.add_argument("--point", nargs=3, metavar=("PATH", "MODE", "MINUTES"))
    options = parser.parse_args()
    if options.point:
        path, mode, minutes = options.point
        whole = path == "whole"
        print(json.dumps(whole_run(mode, int(minutes)) if whole else short_run(path, mode, int(minutes))))
        return
    ratios = compare_paths([15] if options.quick else [15, 30])
    further, seconds = compare_modes([5] if options.quick else [20, 5])
    print(json.dumps({"bench": "oppnet", "ratios": {**ratios, **further}, "whole_run_cpu_s": seconds}))


if __name__ == "__main__":
    main()
