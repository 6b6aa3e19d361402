"""Random traces, and one digest of the verifier's reports on them: what a golden of reports holds.

Recorded by the code before the certificate of cleanness (commit 33959c1), from its checkout OLD:

    PYTHONPATH=OLD/src:tests python -m golden.of_reports
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from golden.files import keep
from support import traces
from whence.trace.schema import PromisesMade
from whence.verify.report import RunReport
from whence.verify.run import verify_table

SEEDS = range(20)
COUNT = 100  # of each of five kinds, for each seed: 10,000 traces in all


class Drawn(NamedTuple):
    """A trace to judge."""

    table: Any
    promises: PromisesMade
    members: list[str]
    witness_max: int | None


def drawn(seed: int, count: int = COUNT) -> Iterator[Drawn]:
    """Runs with faults, with one destination, clean ones, and clean ones with one or two changes."""
    rng = random.Random(seed)
    for table, promises, members in traces.random_tables(rng, count):
        yield Drawn(table, promises, members, rng.choice([None, 0, 1, 2]))
    for _ in range(count):
        run: traces.Rows = traces.causal_run(rng)
        for _ in range(3):
            table = traces.record(dict(run)).table("r", segment_events=rng.randint(1, 6))
            yield Drawn(table, PromisesMade(complete=True), list(run), rng.choice([None, 0, 1, 2]))
            run = traces.damage(run, rng) if any(run.values()) else run


def digest(judge: Callable[[Drawn], RunReport], seed: int, count: int = COUNT) -> str:
    """The hash of all reports as JSON."""
    found = hashlib.sha256()
    for each in drawn(seed, count):
        found.update(msgspec.json.encode(judge(each)) + b"\n")
    return found.hexdigest()


def front_door(each: Drawn) -> RunReport:
    """The report as `verify_table` gives it."""
    return verify_table(each.table, each.promises, each.members, each.witness_max, run="r")


if __name__ == "__main__":
    print(keep("reports", {str(seed): digest(front_door, seed) for seed in SEEDS}))
