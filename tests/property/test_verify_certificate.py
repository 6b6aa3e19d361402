"""The certificate of cleanness: never for a run with a finding, and for clean runs of broadcasts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from support import traces
from support.traces import Rows, causal_run, damage
from whence.trace.memory import MemoryTrace
from whence.trace.reader import Event
from whence.trace.schema import Kind, PromisesMade
from whence.verify import certificate
from whence.verify import run as run_module
from whence.verify.analysis import analyse
from whence.verify.certificate import Certifier, Proof
from whence.verify.kernels import Kernels, compiled, plain
from whence.verify.load import Loader
from whence.verify.report import Counts
from whence.verify.run import verify_events, verify_trace


def events_of(rows: Rows) -> list[Event]:
    return [
        Event("r", node, seq, seq, kind, origin, number, None, 0, 0, None)
        for node, of_node in rows.items()
        for seq, (kind, origin, number) in enumerate(of_node)
    ]


def table_of(events: Iterable[Event], segment_events: int = 4096) -> pa.Table:
    memory = MemoryTrace()
    memory.extend(events)
    return memory.table("r", segment_events)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a few messages have blocks, too, some of which pass as a whole and some do not."""
    monkeypatch.setattr(certificate, "BLOCK", 2)


def certified(kernels: Kernels, table: pa.Table, members: Iterable[str]) -> Proof | None:
    certifier = Certifier(kernels, members, 1 << 40)
    return certifier.finish() if all(map(certifier.add, table.to_batches(max_chunksize=7))) else None


def found_in(table: pa.Table, members: Iterable[str]) -> Counts:
    loader = Loader(members)
    for batch in table.to_batches():
        loader.add(batch)
    return analyse(loader.finish(), 0).counts


DAMAGES = 4  # of each clean run


def check(kernels: Kernels, count: int, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for _ in range(count):
        clean = causal_run(rng)
        members = list(clean)
        sent = sum(kind is Kind.BROADCAST for of_node in clean.values() for kind, _, _ in of_node)
        proof = certified(kernels, table_of(events_of(clean), rng.randint(1, 6)), members)
        assert (proof and proof.broadcasts) == (sent or None)
        run, others = traces.random_run(rng)
        tables = [(traces.record(run).table("r", segment_events=rng.randint(1, 6)), others)]
        for _ in range(DAMAGES if sent else 0):
            changed = events_of(damage(clean, rng))
            tables.append((table_of(changed, rng.choice([1, 2, 4, 4096])), members))
        for table, nodes in tables:
            counts = found_in(table, nodes)
            proved = certified(kernels, table, nodes) is not None
            assert not proved or counts == Counts()
            seen["clean" if counts == Counts() else "with findings"] += 1
            seen["certified"] += proved
    return seen


@pytest.mark.parametrize("block", [1, 3, 32])
def test_no_certificate_where_there_is_a_finding(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "BLOCK", block)
    seen = check(plain(), 40, block)
    assert seen["with findings"] > 100
    assert seen["clean"] > 5


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2, 12))
def test_no_certificate_where_there_is_a_finding_in_100000_traces(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate, "BLOCK", 1 + seed % 4)
    kernels = compiled()
    assert kernels is not None
    seen = check(kernels, 2_800, seed)
    print(f"seed {seed}: {dict(seen)}")  # with -s
    assert seen["with findings"] > 10_000


def test_compiled_and_plain_agree() -> None:
    kernels = compiled()
    if kernels is None:
        pytest.skip("numba is not installed")
    assert check(kernels, 40, 77) == check(plain(), 40, 77)


def test_a_circle_of_messages_that_wait_for_each_other_is_not_certified() -> None:
    rows: Rows = {
        "a": [(Kind.DELIVER, "b", 1), (Kind.BROADCAST, "a", 1), (Kind.DELIVER, "a", 1)],
        "b": [(Kind.DELIVER, "a", 1), (Kind.BROADCAST, "b", 1), (Kind.DELIVER, "b", 1)],
    }
    assert certified(plain(), table_of(events_of(rows)), rows) is None


@pytest.mark.parametrize("proving", [True, False])
def test_the_report_is_the_same_with_and_without(proving: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    if compiled() is None:
        pytest.skip("numba is not installed")
    proved: list[Proof | None] = []

    class Noted(Certifier):
        def finish(self) -> Proof | None:
            proved.append(super().finish() if proving else None)
            return proved[-1]

    monkeypatch.setattr(run_module, "Certifier", Noted)
    for _ in range(20):
        clean = causal_run(rng)
        report = verify_events(events_of(clean), PromisesMade(complete=True), clean)
        sent = sum(kind is Kind.BROADCAST for of_node in clean.values() for kind, _, _ in of_node)
        assert (report.ok, report.broadcasts, report.deliveries) == (True, sent, sent * len(clean))
        assert report.nodes == len(clean)
    assert any(proved) is proving


def test_counts_beyond_16_bits_take_wider_lanes() -> None:
    kernels = compiled()
    if kernels is None:
        pytest.skip("numba is not installed")
    sent = 40_000
    rows: Rows = {
        "a": [
            each for n in range(1, sent + 1) for each in ((Kind.BROADCAST, "a", n), (Kind.DELIVER, "a", n))
        ],
        "b": [(Kind.DELIVER, "a", n) for n in range(1, sent + 1)],
    }
    events = events_of(rows)
    assert certified(kernels, table_of(events), rows) == Proof(2, 3 * sent, sent, 2 * sent)
    one, other = events[-2:]  # two deliveries of b
    events[-2:] = [one._replace(number=other.number), other._replace(number=one.number)]
    assert certified(kernels, table_of(events), rows) is None


def test_no_certificate_without_the_memory_for_it() -> None:
    rng = random.Random(3)
    clean = causal_run(rng)
    certifier = Certifier(plain(), clean, 8)
    assert not all(map(certifier.add, table_of(events_of(clean)).to_batches()))


def test_rows_out_of_order_or_of_two_runs_are_left_to_the_others() -> None:
    rows: Rows = {"a": [(Kind.BROADCAST, "a", 1), (Kind.DELIVER, "a", 1), (Kind.BROADCAST, "a", 2),
                        (Kind.DELIVER, "a", 2)]}  # fmt: skip
    table = table_of(events_of(rows), 2)
    assert certified(plain(), table, rows) == Proof(1, 4, 2, 2)
    assert certified(plain(), table.take([1, 0]), rows) is None
    other = table.set_column(0, "run", pa.array(["r", "s"]))
    assert certified(plain(), other, rows) is None


def test_a_trace_without_peers_is_read_without_that_column(tmp_path: Path) -> None:
    from whence.lab.run import run
    from whence.sim.files import from_dict
    from whence.trace.reader import open_trace

    load = {"kind": "poisson", "interval_us": 10_000}
    scenario = {"nodes": 3, "protocol": "vector", "workloads": [load], "stop": {"duration_us": 50_000}}
    for level, peers in (("deliveries", False), ("all", True)):
        outcome = run(from_dict(scenario | {"record": {"level": level}}), tmp_path / level)
        (batch,) = open_trace(tmp_path / level).stored(outcome.run, timed=False)
        assert ("peer" in batch.schema.names) is peers
        (report,) = verify_trace(tmp_path / level)
        assert report.ok
        assert report.deliveries == outcome.deliveries
