"""What a message between real servers takes, in growing systems, with and without domains (paper 004).

    python bench/bench_domains.py [--quick]
    python bench/bench_domains.py --sizes 10,50,100,150 --domains flat,bus,daisy,tree --stamps updates
    python bench/bench_domains.py --sizes 10,400,1600,4900 --domains bus --way   # those on the way only
    python bench/bench_domains.py --sizes 10,50,100,150 --way --durable          # with a store

The live half of `whence study domains` without Spark and without a page: the same processes, rounds, medians
and ratios (whence.studies.domains.live). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from whence.studies.base import Cell
from whence.studies.domains import live as domains_live
from whence.studies.domains.fit import growth, kinds, slope
from whence.studies.domains.live import LiveBatch, LivePlan, LiveSystem
from whence.studies.domains.page import PARTS, live_tables
from whence.studies.results import Results


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few small systems")
    parser.add_argument("--sizes", default="10,20,40,60,100,150")
    parser.add_argument("--domains", default="flat,bus")
    parser.add_argument("--stamps", default="full")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pings", type=int, default=40)
    parser.add_argument("--way", action="store_true", help="only the servers that a message passes run")
    parser.add_argument("--durable", action="store_true", help="servers with a store")
    return parser.parse_args()


def _plan(asked: argparse.Namespace) -> LivePlan:
    sizes = (4, 9, 16) if asked.quick else tuple(int(size) for size in asked.sizes.split(","))
    systems = tuple(
        LiveSystem(nodes, organisation, asked.stamps, not asked.way, asked.durable)
        for nodes in sizes
        for organisation in asked.domains.split(",")
    )
    rounds = 2 if asked.quick else asked.rounds
    return LivePlan((LiveBatch(systems, rounds=rounds, pings=asked.pings, broadcasts=0 if asked.way else 1),))


def _text(cell: Cell) -> str:
    return f"{cell:,.2f}" if isinstance(cell, float) else "" if cell is None else str(cell)


def main() -> None:
    """Measure, then print tables and one line of JSON."""
    plan = _plan(_asked())
    began = time.monotonic()
    results = Results(tuple(domains_live.measure(plan, folder=Path.cwd())))
    for table in live_tables(results):
        print(f"\n{table.title}")
        rows = [table.columns, *([_text(cell) for cell in row] for row in table.rows)]
        widths = [max(len(row[at]) for row in rows) for at in range(len(table.columns))]
        for row in rows:
            print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    document = [
        {
            **kind._asdict(),
            "processor_ratios": {nodes: round(value, 3) for nodes, value in processor.items()},
            "wall_ratios": {
                nodes: round(value, 3) for nodes, value in growth(results, kind, "wall_us").items()
            },
            "processor_slope": slope(processor),
        }
        for kind in kinds(results, *PARTS)
        for processor in [growth(results, kind, "cpu_us")]
    ]
    print(json.dumps({"bench": "domains", "seconds": round(time.monotonic() - began, 1), "curves": document}))


if __name__ == "__main__":
    main()
