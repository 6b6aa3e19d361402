"""Two checkouts side by side: the CPU of one live and some simulated loads, rounds alternating.

    python bench/two_trees.py OLD NEW [--rounds N] [--only live|sim|woven|...]

OLD and NEW are folders of checkouts, which may be of releases whose modules lie elsewhere: only
`bench/bench_live.py` and `bench/bench_sim.py` of each are used, each with its own `src`. CPU can only be made
worse by the machine, so the best round counts; the median of the paired ratios is printed beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

LIVE = """
import sys; sys.path.insert(0, "bench")
from bench_live import Row, run_round
print(run_round("vector", Row({load!r}, {nodes}, False, {messages})).cpu_us_per_delivery)
"""
SIM = """
import sys, time; sys.path[:0] = ["bench", "tests"]
import bench_sim as b
from whence.trace.schema import Level
try:
    from support.hashing import HashingRecorder
    from whence.lab.run import run
    simulate = lambda made, rows, **how: run(made, recorder=rows, kernel="never", **how)
except ImportError:  # a release before lab
    from whence.sim.hashing import HashingRecorder
    from whence.sim.run import simulate
made = b.scenario({protocol!r}, 1_000_000)
rows = HashingRecorder() if {recorded} else None
began = time.process_time()
result = simulate(made, rows, level=Level.ALL)
print((time.process_time() - began) / result.steps * 1e6)
"""
LOADS = {
    "live vector, stream, 8 nodes": LIVE.format(load="stream", nodes=8, messages=8_000),
    "live vector, woven, 8 nodes": LIVE.format(load="woven", nodes=8, messages=4_000),
    "sim fifo": SIM.format(protocol="fifo", recorded=False),
    "sim vector": SIM.format(protocol="vector", recorded=False),
    "sim vector, hashed": SIM.format(protocol="vector", recorded=True),
}


def measured(tree: Path, code: str) -> float:
    """The microseconds of CPU per delivery or step."""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"{tree}: {ended.stderr}")
    return float(ended.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="the loads with this in their names")
    options = parser.parse_args()
    trees = [options.old.resolve(), options.new.resolve()]
    table = {}
    print(f"{'load':32}{'old us':>9}{'new us':>9}{'best':>8}{'median':>8}")
    for name, code in ((name, code) for name, code in LOADS.items() if options.only in name):
        pairs = [tuple(measured(tree, code) for tree in trees) for _ in range(options.rounds)]
        old, new = (min(values) for values in zip(*pairs, strict=True))
        median = statistics.median(after / before for before, after in pairs)
        table[name] = {"old_us": old, "new_us": new, "best": new / old, "median": median}
        print(f"{name:32}{old:9.2f}{new:9.2f}{new / old:8.3f}{median:8.3f}", flush=True)
    print(json.dumps({"bench": "two_trees", "rounds": options.rounds, "loads": table}))


if __name__ == "__main__":
    main()
