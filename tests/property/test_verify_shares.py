"""One run by many tasks: its certificate by shares of the nodes, and blocks of it that was placed once."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from property.test_verify_certificate import certified, events_of, found_in, table_of
from support.traces import causal_run, damage
from whence.trace.reader import open_trace
from whence.trace.schema import Level, PromisesMade
from whence.trace.writer import TraceWriter
from whence.verify import certificate
from whence.verify.analysis import Block
from whence.verify.certificate import Proof
from whence.verify.kernels import plain
from whence.verify.report import Counts, RunReport
from whence.verify.run import merge_blocks, report_on
from whence.verify.shares import Cut, agreed, count_share, follow_share, judge_block, place_run


def written(folder: Path, events: list, members: list[str], rng: random.Random) -> None:
    """The events of some nodes as a trace of a few row groups."""
    about = {"run": "r", "writer": "w", "protocol": "p", "parameters": {}, "promises": PromisesMade()}
    with TraceWriter(folder, **about, seed=None, nodes=members, level=Level.DELIVERIES) as out:
        for event in sorted(events, key=lambda each: (each.seq // 3, each.node, each.seq)):
            out.event(event.node, event.time_us, event.kind, event.origin, event.number)
            if rng.random() < 0.1:
                out.flush()


@pytest.fixture(autouse=True, params=[1, 32])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small blocks hardly a share needs vectors; with large ones nearly all do."""
    monkeypatch.setattr(certificate, "BLOCK", request.param)


def by_shares(folder: Path, shares: int, scratch: Path) -> Proof | None:
    trace = open_trace(folder, dense=False)
    cut = Cut.of(trace.nodes("r"), shares)
    counts = [count_share(plain(), trace, "r", cut, at, scratch, 1 << 40) for at in range(shares)]
    proof = agreed(counts, trace.event_count)
    if proof is None:
        return None
    whole = [count for count in counts if count is not None]
    return proof if all(follow_share(plain(), whole, at, scratch) for at in range(shares)) else None


def placed_once(folder: Path, promises: PromisesMade, witness_max: int | None, blocks: int) -> RunReport:
    """The report on the run `r` of a trace from blocks, in the folder `placed` beside it."""
    trace, placed = open_trace(folder, dense=False), folder.with_name("placed")
    shutil.rmtree(placed, ignore_errors=True)
    assert place_run(trace, "r", promises, placed, 1 << 40) == "placed"
    reports = []
    for at in range(blocks):
        found = judge_block(placed, witness_max, promises.clock_slack_us, Block(at, blocks))
        reports.append(report_on(found, "r", "", promises, witness_max))
    return merge_blocks(reports, witness_max)


def compare(tmp_path: Path, count: int, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for at in range(count):
        rows = causal_run(rng)
        if rng.random() < 0.6 and any(rows.values()):
            rows = damage(rows, rng)
        members, events = list(rows), events_of(rows)
        if not events:
            continue
        folder, scratch = tmp_path / str(at), tmp_path / f"{at}s"
        written(folder, events, members, rng)
        scratch.mkdir()
        found = by_shares(folder, rng.randint(1, len(members)), scratch)
        table = table_of(events)
        assert found == certified(plain(), table, members)
        clean = found_in(table, members) == Counts()
        assert found is None or clean
        seen["certified" if found else "clean" if clean else "with findings"] += 1
    return seen


def test_shares_prove_what_one_walk_proves(tmp_path: Path) -> None:
    seen = compare(tmp_path, 60, 1)
    assert seen["certified"] > 10
    assert seen["with findings"] > 10


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_shares_prove_what_one_walk_proves_in_3000_traces(tmp_path: Path) -> None:
    assert compare(tmp_path, 3_000, 2)["with findings"] > 500


def test_what_cannot_be_placed_once_is_said(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = causal_run(rng)
    written(tmp_path / "run", events_of(rows), list(rows), rng)
    trace = open_trace(tmp_path / "run", dense=False)
    assert place_run(trace, "r", PromisesMade(), tmp_path / "small", 1) == "in parts"
    assert place_run(trace, "r", PromisesMade(), tmp_path / "twice", 1 << 40) == "placed"
    assert place_run(trace, "r", PromisesMade(), tmp_path / "twice", 1 << 40) == "placed"  # its worker died
