"""One answer by every path: plain, compiled, blocks of columns, bounded memory; on random damaged traces."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support import traces
from support.version_1 import rewrite_in_version_1
from whence.errors import PlatformError
from whence.trace.reader import open_trace
from whence.trace.schema import Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter
from whence.verify import analysis, segments
from whence.verify import bounded as bounded_module
from whence.verify import kernels as kernel
from whence.verify.analysis import WHOLE, Block, analyse
from whence.verify.bounded import Bounded, MemoryBudget
from whence.verify.load import Loader
from whence.verify.report import WITNESS_MAX, RunReport
from whence.verify.run import merge_blocks, report_on, verify_table, verify_trace
from whence.verify.segments import TableGroups

Judged = tuple[int, Path, RunReport]

# Every path of the verifier on one table of rows: the reports must be equal.


def tiny_budget(rng: random.Random) -> MemoryBudget:
    """Room for next to nothing: one or a few events, rows and columns at a time."""
    return MemoryBudget(
        memory_bytes=1 << 30,
        past_bytes=rng.choice([40, 60, 200, 1 << 20]),
        cached_events=rng.choice([1, 3, 10, 1000]),
        window_events=rng.randint(1, 4),
        parts=rng.randint(1, 3),
    )


def bounded(
    table: pa.Table, promises: PromisesMade, members: Iterable[str], budget: MemoryBudget,
    witness_max: int | None = None, block: Block = WHOLE, group_rows: int = 3,
) -> RunReport:  # fmt: skip
    judge = Bounded(
        TableGroups(table, group_rows), members, timed=promises.timely, witness_max=witness_max,
        budget=budget, clock_slack_us=promises.clock_slack_us, block=block,
    )  # fmt: skip
    return report_on(judge.analyse(), "r", "", promises, witness_max)


def in_blocks(
    table: pa.Table, promises: PromisesMade, members: Iterable[str], blocks: int,
    witness_max: int | None = None, budget: MemoryBudget | None = None,
) -> RunReport:  # fmt: skip
    reports = []
    for index in range(blocks):
        block = Block(index, blocks)
        if budget is not None:
            reports.append(bounded(table, promises, members, budget, witness_max, block))
            continue
        loader = Loader(members, timed=promises.timely)
        for batch in table.to_batches():
            loader.add(batch)
        analysis = analyse(loader.finish(), witness_max, promises.clock_slack_us, block)
        reports.append(report_on(analysis, "r", "", promises, witness_max))
    return merge_blocks(reports, witness_max)


def shuffled_table(table: pa.Table, rng: random.Random) -> pa.Table:
    """The rows in another order."""
    order = list(range(table.num_rows))
    rng.shuffle(order)
    return table.take(pa.array(order, pa.int64()))


# The tests


ALWAYS = 50  # of each kind
SLOW = 500  # of each kind, with each of eleven seeds: 11,000 traces, those that are always checked among them


def check(count: int, seed: int) -> None:
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for table, promises, members in traces.random_tables(rng, count):
        for witness_max in (None, rng.choice([0, 1, 2])):
            expected = verify_table(table, promises, members, witness_max, run="r")
            rows = table if rng.random() < 0.5 else shuffled_table(table, rng)
            assert bounded(rows, promises, members, tiny_budget(rng), witness_max) == expected
            budget = rng.choice([None, tiny_budget(rng)])
            assert in_blocks(rows, promises, members, rng.randint(2, 4), witness_max, budget) == expected
            seen.update(each.kind for each in expected.findings)
    assert set(seen) == {"causal", "fifo", "duplicate", "late", "created", "missing", "malformed"}


@pytest.fixture
def plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounded path runs the loops as they stand, also after another test has compiled them."""
    monkeypatch.setattr(bounded_module, "choose_kernels", lambda events: kernel.plain())


@pytest.mark.usefixtures("plain_loops")
def test_blocks_and_bounded_memory_give_the_same_report() -> None:
    check(ALWAYS, 5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("plain_loops")
@pytest.mark.parametrize("seed", range(5, 16))
def test_blocks_and_bounded_memory_give_the_same_report_on_10000_traces(seed: int) -> None:
    check(SLOW, seed)


def test_the_compiled_loops_of_the_bounded_path_give_the_same_report(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    rng = random.Random(8)
    monkeypatch.setattr(analysis, "choose_kernels", lambda events: kernel.plain())
    monkeypatch.setattr(bounded_module, "choose_kernels", lambda events: kernel.compiled())
    assert kernel.compiled() is not None
    for table, promises, members in traces.random_tables(rng, 100):
        expected = verify_table(table, promises, members, None, run="r")
        assert bounded(table, promises, members, tiny_budget(rng)) == expected


def test_rows_are_used_again_and_too_few_of_them_cost_passes_not_answers() -> None:
    """A long run of which little is in flight needs few rows."""
    run = traces.parse(
        a=" ".join(f"b:a{n} d:a{n} d:b{n}" for n in range(1, 101)),
        b=" ".join(f"d:a{n} b:b{n} d:b{n}" for n in range(1, 101)),
    )
    table, promises = traces.record(run).table("r", segment_events=10), PromisesMade(complete=True)
    budget = bounded_module.MemoryBudget(1 << 20, 8 * 2 * 2, 10, window_events=4)
    judge = bounded_module.Bounded(
        TableGroups(table, 2), ["a", "b"], timed=False, witness_max=None, budget=budget
    )
    found = judge.analyse()
    assert found.counts == verify_table(table, promises, ["a", "b"], None, run="r").counts
    assert judge.rows_held <= 16  # of 200 messages


def test_too_little_memory_names_the_setting() -> None:
    run = traces.parse(
        a=" ".join(f"b:a{n}" for n in range(1, 101)), b=" ".join(f"d:a{n}" for n in range(1, 101))
    )
    table = traces.record(run).table("r", segment_events=100)
    for budget in (
        bounded_module.MemoryBudget(1000, 100, 10),
        bounded_module.MemoryBudget(1 << 20, 20, 1000, window_events=100),
    ):
        with pytest.raises(PlatformError, match="--memory"):
            bounded(table, PromisesMade(complete=True), ["a", "b"], budget)


LONG_NAMES = [f"{'a node with a long name ' * 40}{at}" for at in range(3_000)]  # 3 MB in one row group


@pytest.fixture(scope="module", params=[1, 2])
def long_names(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A version of the format, in it a trace of more names than a dictionary of Parquet holds, its report."""
    folder = tmp_path_factory.mktemp("long-names")
    with TraceWriter(
        folder, run="r", writer="w", protocol="p", parameters={}, promises=PromisesMade(), seed=None,
        nodes=LONG_NAMES, level=Level.DELIVERIES,
    ) as writer:  # fmt: skip
        first = LONG_NAMES[0]
        for name in LONG_NAMES:
            writer.event(name, 0, Kind.BROADCAST, name, 1)
            for receiver in (name, first) if name != first else (name,):
                writer.event(receiver, 1, Kind.DELIVER, name, 1)
    (report,) = verify_trace(folder)
    assert report.ok
    if request.param == 1:
        rewrite_in_version_1(folder)
    return request.param, folder, report


@pytest.mark.parametrize("refused", [False, True])
def test_names_as_dictionaries(monkeypatch: pytest.MonkeyPatch, long_names: Judged, refused: bool) -> None:
    """Names are read as they are stored; or as text."""
    version, folder, expected = long_names
    plain = pq.ParquetFile

    class Refusing(plain):
        """Arrow does not read every column so."""

        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self.refuses = "read_dictionary" in more

        def read_row_group(self, *given: Any, **more: Any) -> Any:
            if self.refuses:
                raise pa.ArrowNotImplementedError("Nested data conversions not implemented")
            return super().read_row_group(*given, **more)

    if refused:
        monkeypatch.setattr(pq, "ParquetFile", Refusing)
    groups = segments.TraceGroups(open_trace(folder), "r", timed=False)
    kind = groups.load(0).schema.field("names" if version == 1 else "origin").type
    assert pa.types.is_dictionary(kind.value_type if version == 1 else kind) is not refused
    found = bounded_module.Bounded(
        groups,
        LONG_NAMES,
        timed=False,
        witness_max=WITNESS_MAX,
        budget=bounded_module.MemoryBudget.of(1 << 30),
    ).analyse()
    assert report_on(found, "r", "p", PromisesMade(), WITNESS_MAX) == expected
