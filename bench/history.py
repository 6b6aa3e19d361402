"""Runs benches and keeps the figures that they print: a line of `bench/history.jsonl` for each run of one.

    python bench/history.py                            # all of them, one after the other
    python bench/history.py audit --rows 1000000       # one, with its own arguments
    python bench/history.py --show audit               # what the history has of one
    python bench/history.py --page                     # the history as the site shows it

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


def figures_of(found: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The single figures of each object that a bench printed, and its path: `rows.1`."""
    inner = found.items() if isinstance(found, dict) else ((at, each) for at, each in enumerate(found, 1))
    deeper = []
    single = []
    for key, value in inner:
        if isinstance(value, dict | list):
            deeper.append((f"{name}.{key}".lstrip("."), value))
        else:
            shown = f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else value
            single.append(f"{key} {shown}")
    if single:
        yield name, ", ".join(single)
    for path, value in deeper:
        yield from figures_of(value, path)


def page_of(history: str) -> str:
    """The history in Markdown, the newest run first."""
    runs = [json.loads(line) for line in history.splitlines()]
    lines = []
    for run in sorted(runs, key=lambda run: str(run["at"]), reverse=True):
        command = " ".join(["python bench/history.py", run["bench"], *run["arguments"]])
        where = f"commit `{run['commit']}`, Python {run['python']}, {run['cores']} cores ({run['machine']})"
        lines += [
            f"## {run['bench']}, {run['at'][:10]}", "",
            f"`{command}`: {where}, load before it {run['load_before']}, {run['wall_s']} s.", "",
            "| of | figures |", "|---|---|",
            *(f"| {name} | {value} |" for name, value in figures_of(run["figures"])), "",
        ]  # fmt: skip
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Show, measure one, or measure all."""
    known = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    if words[:1] == ["--show"]:
        for line in HISTORY.read_text().splitlines() if HISTORY.exists() else ():
            if not words[1:] or json.loads(line)["bench"] in words[1:]:
                print(line)
        return 0
    if words == ["--page"]:
        print(page_of(HISTORY.read_text()))
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
