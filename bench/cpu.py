"""CPU time and memory of a process and everything below it, for the benches. Read from /proc: Linux only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def tree() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat after the name, for this process and everything below it."""
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended

    def is_below(process: int) -> bool:
        while process not in (0, os.getpid()):
            process = int(found[process][1]) if process in found else 0
        return process != 0

    return {process: fields for process, fields in found.items() if is_below(process)}


def tree_cpu_seconds() -> float:
    """User and system time, with that of children that have ended."""
    return sum(sum(map(int, fields[11:15])) for fields in tree().values()) / os.sysconf("SC_CLK_TCK")


def tree_peak_mb() -> int:
    """The peaks of all processes that still run, added up: with Spark this counts the JVM and its workers."""
    total = 0
    for process in tree():
        status = Path(f"/proc/{process}/status").read_text()
        total += next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
    return total >> 10


def measured(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What `work` returns, its CPU-seconds and its seconds."""
    cpu, wall = tree_cpu_seconds(), time.perf_counter()
    result = work()
    return result, tree_cpu_seconds() - cpu, time.perf_counter() - wall


def show(headings: list[str], rows: list[list[Any]]) -> None:
    """Print a table: a name, a count and figures in each row."""
    print(f"{headings[0]:<30}" + "".join(f"{heading:>16}" for heading in headings[1:]))
    for name, count, *figures in rows:
        print(f"{name:<30}{count:>16,}" + "".join(f"{figure:>16.2f}" for figure in figures))
    print()
