"""Every path of the verifier on one table of rows: the reports must be equal."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pyarrow as pa

from whence.trace.schema import PromisesMade
from whence.verify.analysis import WHOLE, Block, analyse
from whence.verify.bounded import Bounded, Budget
from whence.verify.load import Loader
from whence.verify.report import RunReport
from whence.verify.run import merge_blocks, report_on
from whence.verify.segments import TableGroups


def tiny_budget(rng: random.Random) -> Budget:
    """Room for next to nothing: one or a few events, rows and columns at a time."""
    return Budget(
        memory_bytes=1 << 30,
        past_bytes=rng.choice([40, 60, 200, 1 << 20]),
        cached_events=rng.choice([1, 3, 10, 1000]),
        window_events=rng.randint(1, 4),
        parts=rng.randint(1, 3),
    )


def bounded(
    table: pa.Table, promises: PromisesMade, members: Iterable[str], budget: Budget,
    witness_max: int | None = None, block: Block = WHOLE, group_rows: int = 3,
) -> RunReport:  # fmt: skip
    judge = Bounded(
        TableGroups(table, group_rows), members, timed=promises.timely, witness_max=witness_max,
        budget=budget, clock_slack_us=promises.clock_slack_us, block=block,
    )  # fmt: skip
    return report_on(judge.analyse(), "r", "", promises, witness_max)


def in_blocks(
    table: pa.Table, promises: PromisesMade, members: Iterable[str], blocks: int,
    witness_max: int | None = None, budget: Budget | None = None,
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
