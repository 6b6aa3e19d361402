"""Point-to-point traces: the verifier against a brute-force oracle, on random traces with planted faults."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest

from property.test_verify_oracle import assert_agrees, name
from support.traces import Oracle, Run, To, parse, random_unicast_run, record, verify
from whence.trace.schema import Kind, PromisesMade
from whence.verify import analysis
from whence.verify import kernels as kernel
from whence.verify.report import Finding
from whence.verify.run import verify_table

TRACES = 1_000


class UnicastOracle(Oracle):
    """A message with a destination ends there alone: elsewhere it is malformed and counts for nothing."""

    def __init__(self, run: Run, members: list[str], to: To) -> None:
        begun = {
            (origin, number): (node, seq)
            for node, rows in run.items()
            for seq, (kind, origin, number) in reversed(list(enumerate(rows)))
            if kind is Kind.BROADCAST and origin == node
        }
        self.to = {which: there for which, there in to.items() if which in begun}
        wrong, cleaned = [], {}
        for node, rows in run.items():
            cleaned[node] = list(rows)
            for seq, (kind, *which) in enumerate(rows):
                if kind in (Kind.DELIVER, Kind.EXPIRE) and self.to.get(tuple(which), node) != node:
                    wrong.append((node, tuple(which), seq))
                    cleaned[node][seq] = (Kind.SEND, None, 0)
        super().__init__(cleaned, members)
        there = set(self.members)
        strange = [(begun[m][0], m, begun[m][1]) for m, name in self.to.items() if name not in there]
        self.malformed += wrong + strange
        self.missing = [(node, m) for node, m in self.missing if self.to.get(m, node) == node]


def assert_chain(finding: Finding, run: Run, to: To, oracle: UnicastOracle) -> None:
    """Every step is a row of the run, each leads to the next, and no chain has fewer messages."""
    chain = finding.chain
    for step in chain:
        kind, *which = run[step.node][step.seq]
        assert name(tuple(which)) == step.message
        assert step.event == (
            "deliver" if kind is Kind.DELIVER else "send" if tuple(which) in to else "broadcast"
        )
    for before, after in pairwise(chain):
        if before.node == after.node:
            assert before.seq < after.seq
        else:
            assert after.event == "deliver" != before.event
            assert before.message == after.message
    assert chain[0].message == finding.message
    assert chain[-1].message == finding.other
    ids = {name(which): which for which in oracle.begins}
    hops = sum(step.event != "deliver" for step in chain) - 1
    assert hops == oracle.distance(ids[finding.message], ids[finding.other])


def test_the_verifier_agrees_with_brute_force_on_random_unicast_traces() -> None:
    compare(TRACES, 20_261_116)


@pytest.mark.slow
def test_the_verifier_agrees_with_brute_force_on_3000_random_unicast_traces() -> None:
    compare(3_000, 20_261_116)


@pytest.mark.slow
def test_the_verifier_agrees_with_brute_force_on_10000_more() -> None:
    compare(10_000, 20_261_118)


def compare(count: int, seed: int) -> None:
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for _ in range(count):
        run, members, to = random_unicast_run(rng)
        report, oracle = verify(run, members, to=to), UnicastOracle(run, members, to)
        assert_agrees(report, oracle)
        for finding in report.findings:
            if finding.kind in ("causal", "fifo"):
                assert_chain(finding, run, to, oracle)
        seen.update({finding.kind for finding in report.findings})
        seen["ok"] += report.ok
        for kind, words in (("misplaced", "not sent to"), ("stranger", "not there")):
            seen[kind] += any(words in finding.detail for finding in report.findings)
        seen["indirect"] += any(len(finding.chain) > 3 for finding in report.findings)
    for kind in ("causal", "fifo", "duplicate", "created", "missing", "malformed", "ok", "misplaced",
                 "stranger", "indirect"):  # fmt: skip
        assert seen[kind] >= count // 60, (kind, seen)


def test_compiled_kernels_column_blocks_and_cuts_give_the_same_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("numba")
    rng = random.Random(7)
    runs = [random_unicast_run(rng) for _ in range(150)]
    plain = [verify(run, members, to=to) for run, members, to in runs]
    monkeypatch.setattr(analysis, "PAST_BYTES", 1)
    monkeypatch.setattr(analysis, "choose_kernels", lambda events: kernel.compiled())
    for (run, members, to), expected in zip(runs, plain, strict=True):
        table = record(run, to=to).table("r", segment_events=rng.randint(1, 4))
        order = list(range(table.num_rows))
        rng.shuffle(order)
        shuffled = table.take(pa.array(order, pa.int64()))
        assert verify_table(shuffled, PromisesMade(complete=True), members, None, run="r") == expected


def test_a_triangle_of_sends_is_a_violation_with_its_chain() -> None:
    """a -> c is slow; a -> b, b -> c overtakes it: the smallest case of the paper's figure 4."""
    run = parse(a="b:a1 b:a2", b="d:a2 b:b1", c="d:b1 d:a1")
    report = verify(run, to={("a", 1): "c", ("a", 2): "b", ("b", 1): "c"})
    (finding,) = report.findings
    assert (finding.kind, finding.node, finding.message, finding.other) == ("causal", "c", "a:1", "b:1")
    assert [str(step) for step in finding.chain] == [
        "a sends a:1 (seq 0)",
        "a sends a:2 (seq 1)",
        "b delivers a:2 (seq 0)",
        "b sends b:1 (seq 1)",
    ]
    # Had c not been the destination of the first one, nothing would be wrong.
    run = parse(a="b:a1 b:a2", b="d:a2 b:b1", c="d:b1", d="d:a1")
    assert verify(run, to={("a", 1): "d", ("a", 2): "b", ("b", 1): "c"}).ok
