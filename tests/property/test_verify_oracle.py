"""The verifier against a brute-force oracle, on random traces with planted faults."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest

from support.traces import Id, Oracle, Run, random_run, random_timing, record, verify
from whence.trace.schema import Kind, PromisesMade
from whence.verify import analysis
from whence.verify import kernels as kernel
from whence.verify.report import Finding, RunReport
from whence.verify.run import verify_table

TRACES = 1_500
Judged = tuple[list[tuple[pa.Table, list[str]]], list[list[RunReport]]]


def name(which: Id) -> str:
    # An event without an origin is shown with the name "?".
    return f"{'?' if which[0] is None else which[0]}:{which[1]}"


def assert_agrees(report: RunReport, oracle: Oracle) -> None:
    found: dict[str, list[tuple[object, ...]]] = {}
    for finding in report.findings:
        extra: tuple[object, ...] = (finding.other,) if finding.kind in ("causal", "fifo") else ()
        if finding.kind == "late":
            extra = (finding.broadcast_us, finding.delivered_us)
        found.setdefault(finding.kind, []).append((finding.node, finding.message, finding.seq, *extra))
    expected = {
        "causal": [(node, name(m), seq, name(other)) for node, m, seq, other in oracle.causal],
        "fifo": [(node, name(m), seq, name(other)) for node, m, seq, other in oracle.fifo],
        "duplicate": [(node, name(m), seq) for node, m, seq in oracle.duplicate],
        "late": [(node, name(m), seq, sent, got) for node, m, seq, sent, got in oracle.late],
        "created": [(node, name(m), seq) for node, m, seq in oracle.created],
        "missing": [(node, name(m), None) for node, m in oracle.missing],
        "malformed": [(node, name(m), seq) for node, m, seq in oracle.malformed],
    }
    for kind, wanted in expected.items():
        assert Counter(found.get(kind, [])) == Counter(wanted), kind
        assert getattr(report.counts, kind) == len(wanted), kind
    assert report.missing_by_node == dict(Counter(node for node, _ in oracle.missing))
    assert report.ok == (not any(expected.values()))


def assert_chain(finding: Finding, run: Run, oracle: Oracle) -> None:
    """Every step is a row of the run, each leads to the next, and no chain has fewer messages."""
    verbs = {"broadcast": Kind.BROADCAST, "deliver": Kind.DELIVER}
    chain = finding.chain
    for step in chain:
        kind, origin, number = run[step.node][step.seq]
        assert (kind, f"{origin}:{number}") == (verbs[step.event], step.message)
    for before, after in pairwise(chain):
        if before.node == after.node:
            assert before.seq < after.seq
        else:
            assert (before.event, after.event) == ("broadcast", "deliver")
            assert before.message == after.message
    assert (chain[0].event, chain[0].message) == ("broadcast", finding.message)
    assert (chain[-1].event, chain[-1].message) == ("broadcast", finding.other)
    ids = {name(which): which for which in oracle.begins}
    hops = sum(step.event == "broadcast" for step in chain) - 1
    assert hops == oracle.distance(ids[finding.message], ids[finding.other])
    rows = run[finding.node]
    assert finding.other_seq < finding.seq
    for seq, message in ((finding.other_seq, finding.other), (finding.seq, finding.message)):
        assert rows[seq][0] is Kind.DELIVER
        assert name(rows[seq][1:]) == message


def test_the_verifier_agrees_with_brute_force_on_random_traces() -> None:
    compare(TRACES, 20_240_611)


@pytest.mark.slow
def test_the_verifier_agrees_with_brute_force_on_5000_random_traces() -> None:
    compare(5_000, 20_240_611)


@pytest.mark.slow
def test_the_verifier_agrees_with_brute_force_on_10000_more() -> None:
    compare(10_000, 20_261_117)


def compare(count: int, seed: int) -> None:
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for _ in range(count):
        run, members = random_run(rng)
        # Of some runs the promises do not speak of time: then no time matters.
        timing, slack_us = random_timing(run, rng), rng.choice([0, 0, 1, 30])
        timely = rng.random() < 0.7
        promises = PromisesMade(complete=True, timely=timely, clock_slack_us=slack_us)
        report = verify(run, members, promises=promises, timing=timing)
        oracle = Oracle(run, members, timing if timely else None, slack_us)
        assert_agrees(report, oracle)
        for finding in report.findings:
            if finding.kind in ("causal", "fifo"):
                assert_chain(finding, run, oracle)
            elif finding.kind == "late":
                assert [(step.event, step.message) for step in finding.chain] == [
                    ("broadcast", finding.message), ("deliver", finding.message),
                ]  # fmt: skip
                assert (finding.chain[1].node, finding.chain[1].seq) == (finding.node, finding.seq)
        seen.update({finding.kind for finding in report.findings})
        seen["ok"] += report.ok
        seen["untimely"] += any("depends on this very delivery" in f.detail for f in report.findings)
        seen["contradicts"] += any("had ended here before" in f.detail for f in report.findings)
        seen["indirect"] += any(len(f.chain) > 3 for f in report.findings)
    # The generator really makes what it should.
    for kind in (
        "causal",
        "fifo",
        "duplicate",
        "late",
        "created",
        "missing",
        "malformed",
        "contradicts",
        "ok",
        "untimely",
        "indirect",
    ):
        assert seen[kind] >= count // 50, (kind, seen)


TIMELY = PromisesMade(complete=True, timely=True)
WITNESSES = (None, 1)


@pytest.fixture(scope="module")
def plainly() -> Judged:
    """Runs, and what the plain kernels say of them, with all witnesses and with one of each kind."""
    rng = random.Random(7)
    runs = []
    for _ in range(200):
        run, members = random_run(rng)
        runs.append((record(run, random_timing(run, rng)).table("r"), members))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(analysis, "PAST_BYTES", 1 << 30)
        patched.setattr(analysis, "choose_kernels", lambda events: kernel.plain())
        return runs, [verdicts(runs, witness_max) for witness_max in WITNESSES]


def verdicts(runs: list[tuple[pa.Table, list[str]]], witness_max: int | None) -> list[RunReport]:
    return [verify_table(table, TIMELY, members, witness_max, run="r") for table, members in runs]


@pytest.mark.parametrize("past_bytes", [1, 64, 1 << 30])
def test_compiled_kernels_and_column_blocks_give_the_same_report(
    monkeypatch: pytest.MonkeyPatch, plainly: Judged, past_bytes: int
) -> None:
    pytest.importorskip("numba")
    runs, expected = plainly
    monkeypatch.setattr(analysis, "PAST_BYTES", past_bytes)
    monkeypatch.setattr(analysis, "choose_kernels", lambda events: kernel.compiled())
    assert [verdicts(runs, witness_max) for witness_max in WITNESSES] == expected


def test_order_and_cut_of_the_rows_do_not_matter() -> None:
    rng = random.Random(11)
    for _ in range(300):
        run, members = random_run(rng)
        timing, timely = random_timing(run, rng), PromisesMade(complete=True, timely=True)
        whole = verify(run, members, timing=timing, promises=timely)
        table = record(run, timing).table("r", segment_events=rng.randint(1, 4))
        order = list(range(table.num_rows))
        rng.shuffle(order)
        shuffled = table.take(pa.array(order, pa.int64()))
        if table.num_rows > 1:  # and as several batches
            shuffled = pa.concat_tables([shuffled.slice(0, 1), shuffled.slice(1)])
        assert verify_table(shuffled, timely, members, None, run="r") == whole


def test_a_limit_on_witnesses_cuts_the_findings_and_not_the_counts() -> None:
    rng = random.Random(13)
    for _ in range(300):
        run, members = random_run(rng)
        whole, limited = verify(run, members), verify(run, members, witness_max=2)
        assert limited.counts == whole.counts
        by_kind: dict[str, list[Finding]] = {}
        for finding in whole.findings:
            by_kind.setdefault(finding.kind, []).append(finding)
        assert limited.findings == [each for found in by_kind.values() for each in found[:2]]
