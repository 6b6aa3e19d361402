"""Run a bench and keep what it printed as data: one JSON object per run in bench/history.jsonl.

    python tools/bench_history.py bench/bench_log.py --only costs
    python tools/bench_history.py --show bench_log        # its newest runs, oldest first

A ratio means something beside the other numbers of its own run; across runs, look at ratios only.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
HISTORY = ROOT / "bench" / "history.jsonl"
SHOWN = 5


def record(command: list[str]) -> int:
    """Run the bench, pass its output on, and append it with where and when it was."""
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    print(done.stdout, end="")
    if done.returncode:
        return done.returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    row = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "command": command,
        "wall_s": round(time.monotonic() - began_s, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "printed": done.stdout.splitlines(),
    }
    with HISTORY.open("a") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return 0


def show(name: str) -> None:
    """The newest runs of a bench."""
    found = [json.loads(line) for line in HISTORY.read_text().splitlines()] if HISTORY.exists() else []
    for row in [row for row in found if name in row["command"][0]][-SHOWN:]:
        print(f"== {row['date']} {row['commit']} load {row['load']}: {' '.join(row['command'])}")
        print("\n".join(row["printed"]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--show"] and len(sys.argv) == 3:
        show(sys.argv[2])
    elif len(sys.argv) > 1:
        sys.exit(record(sys.argv[1:]))
    else:
        sys.exit(__doc__)
