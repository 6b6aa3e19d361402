"""Live PRC: processes join, leave and are killed while links open and close under traffic."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from math import log
from pathlib import Path
from typing import Any

import pytest

from live.prc_member import Churn
from whence.verify.analysis import disagreements
from whence.verify.run import verify_trace

SWARM = Path(__file__).parents[2] / "examples" / "swarm.py"
SECONDS = float(os.environ.get("WHENCE_SWARM_SECONDS", "600"))


def check(trace: Path, survivors: list[str], found: dict[str, dict[str, Any]]) -> None:
    assert not any(each["error"] or each["peer_errors"] or each["held"] for each in found.values()), found
    assert sum(each["closed"] for each in found.values()) > 0, found
    [report] = verify_trace(trace)
    assert report.ok, report
    assert (report.counts.duplicate, report.counts.causal, report.counts.fifo) == (0, 0, 0)
    assert report.deliveries > report.broadcasts > 0
    assert disagreements(trace, survivors) == []


def degree(found: dict[str, dict[str, Any]]) -> float:
    """Safe links of a process, on average: what each message costs it in copies."""
    return sum(len(each["safe"]) for each in found.values()) / len(found)


async def eight(trace: Path) -> tuple[list[str], dict[str, dict[str, Any]]]:
    async with Churn(seed=6, trace=str(trace)) as churn:
        await churn.join()
        await churn.join(3)
        [victim] = await churn.join(is_victim=True)
        await churn.join(3)
        await churn.until(lambda found: all(len(each["delivered"]) == 8 for each in found.values()))
        await churn.kill(victim)
        await churn.leave("p000")  # the first process is like any other
        _, latest = await churn.join(2)
        await churn.leave("p003")
        there = set(churn.there)
        await churn.until(
            lambda found: all(
                there <= set(each["delivered"]) and each["delivered"][latest][1] > 20
                for each in found.values()
            )
        )
        await churn.quiet()
        found = await churn.still(60.0)
        await churn.end()
        return list(churn.there), found


@pytest.mark.timeout(120)
def test_processes_come_and_go_and_those_who_stay_agree(tmp_path: Path) -> None:
    survivors, found = asyncio.run(eight(tmp_path))
    check(tmp_path, survivors, found)


@pytest.mark.timeout(180)
def test_the_swarm_demonstration_verifies() -> None:
    demo = subprocess.run([sys.executable, str(SWARM), "--demo"], capture_output=True, text=True, check=False)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    lines = "".join(line for line in demo.stdout.splitlines(True) if not line.startswith("  "))  # progress
    assert re.fullmatch(
        r"6 processes are in\n"
        r"[1-9]\d* more came, [1-9]\d* left, \d+ were killed\n"
        r"no control information is left: yes\n"
        r"[1-9]\d* messages, [1-9]\d* deliveries\n"
        r"0 twice, 0 out of causal order\n"
        r"the 6 that stayed agree: yes\n"
        r"verdict: every promise was kept\n",
        lines,
    ), demo.stdout


async def fifty(trace: Path) -> tuple[list[str], dict[str, dict[str, Any]]]:
    options: dict[str, Any] = {"pause_s": 5.0, "shuffle_s": 20.0, "timeout_us": 10_000_000}
    async with Churn(seed=7, trace=str(trace), patience_s=60.0, **options) as churn:
        await churn.join()
        for _ in range(7):
            await churn.join(6)
            await churn.join(is_victim=True)
        before = await churn.reports()
        await churn.storm(SECONDS, every_s=2.0, at_once=4)
        there = set(churn.there)
        await churn.until(lambda found: all(there <= set(each["delivered"]) for each in found.values()), 120)
        await churn.quiet()
        found = await churn.still(150.0)  # attempts and relays may last nine time-outs
        await churn.end()
        print(f"{SECONDS} s: {churn.joined} joined, {churn.left} left, {churn.killed} were killed")
        for when, reports in (("before", before), ("after", found)):
            arcs = sum(each["arcs"] for each in reports.values()) / len(reports)
            print(f"{when}: {arcs:.2f} arcs of a process, safe degree {degree(reports):.2f}")
        print("opened", sum(each["opened"] for each in found.values()))
        return list(churn.there), found


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 900)
def test_fifty_processes_churn_for_ten_minutes(tmp_path: Path) -> None:
    """WHENCE_SWARM_SECONDS says how long instead."""
    survivors, found = asyncio.run(fifty(tmp_path))
    assert len(survivors) == 50
    # Near 2 ln 50 at first. Joins and departures balance, but by chance: nothing draws it back.
    assert degree(found) < 3 * 2 * log(50)
    check(tmp_path, survivors, found)
