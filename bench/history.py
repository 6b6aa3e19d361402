"""Runs benches and keeps the figures that they print: a line of `bench/history.jsonl` for each run of one.

    python bench/history.py                            # all of them, one after the other
    python bench/history.py audit --rows 1000000       # one, with its own arguments
    python bench/history.py --show audit               # what the history has of one

A figure is a JSON object that a bench prints. The load of the machine before the run is kept beside it, so
that nobody compares what was measured beside other work with what was not.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
HISTORY = HERE / "history.jsonl"


def figures_in(printed: str) -> Iterator[dict[str, Any]]:
    """The JSON objects among what was printed, each from the beginning of a line."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(printed):
        try:
            found, end = decoder.raw_decode(printed, at) if printed[at] == "{" else (None, at)
        except ValueError:
            found, end = None, at
        if isinstance(found, dict):
            yield found
        at = printed.find("\n", end) + 1 or len(printed)


def measure(bench: str, arguments: list[str], history: Path = HISTORY) -> int:
    """Run a bench, print what it prints, and add its figures to the history; its exit code."""
    command = [sys.executable, HERE / f"bench_{bench}.py", *arguments]
    load, began = os.getloadavg()[0], time.monotonic()
    at = datetime.now(UTC).isoformat(timespec="seconds")
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    if running.returncode == 0:
        record = {
            "bench": bench, "arguments": arguments, "at": at, "commit": commit(),
            "load_before": round(load, 2), "wall_s": round(time.monotonic() - began, 1),
            "cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version(),
            "figures": list(figures_in("".join(lines))),
        }  # fmt: skip
        with history.open("a") as file:
            file.write(json.dumps(record) + "\n")
    return running.returncode


def commit() -> str:
    """The commit that is measured; with `+` if files differ from it."""
    said = subprocess.run(
        ["git", "-C", HERE, "describe", "--always", "--dirty=+", "--exclude=*"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return said.stdout.strip() or "unknown"


def main(words: list[str]) -> int:
    """Show, measure one, or measure all."""
    known = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    if words[:1] == ["--show"]:
        for line in HISTORY.read_text().splitlines() if HISTORY.exists() else ():
            if not words[1:] or json.loads(line)["bench"] in words[1:]:
                print(line)
        return 0
    if words and words[0] not in known:
        print(f"error: there is no bench {words[0]!r}\nfix: choose from: {', '.join(known)}", file=sys.stderr)
        return 2
    for bench in words[:1] or known:
        print(f"== {bench}", flush=True)
        if code := measure(bench, words[1:]):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
