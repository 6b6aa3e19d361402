"""A thousand correct runs over all options: the verifier finds nothing, and nothing is left waiting.

Safety: whatever the network and the faults do, causal order holds and every core keeps its
invariants, asked after every step. Liveness: where faults heal and every packet arrives at last,
everybody has delivered everything when the run has drained.
"""

from __future__ import annotations

import pytest

from support.running import simulate
from support.simulating import random_scenario
from whence.core.protocol import Protocol
from whence.errors import InvariantError
from whence.sim.files import run_id
from whence.sim.model import Crash, Scenario
from whence.sim.outcome import Outcome
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Level
from whence.verify.report import RunReport
from whence.verify.run import verify_table
from zoo.mutants.baselines import ZOO, Mutant

BATCHES, EACH = 10, 100


def verified(scenario: Scenario, make: type[Protocol] | None = None) -> tuple[Outcome, RunReport]:
    trace = MemoryTrace()
    result = simulate(scenario, trace, level=Level.DELIVERIES, check=True, make=make)
    run = run_id(scenario)
    nodes = [f"n{at}" for at in range(scenario.nodes)]
    report = verify_table(trace.table(run), result.promises, nodes, run=run, protocol=scenario.protocol)
    return result, report


# These two find the whole zoo (below): a hundred from the first, and from 400.
ALWAYS = (0, 4)


@pytest.mark.parametrize(
    "batch", [pytest.param(at, marks=[] if at in ALWAYS else [pytest.mark.slow]) for at in range(BATCHES)]
)
def test_correct_runs_are_not_accused(batch: int) -> None:
    """Three of four scenarios heal and are reliable; the fourth may lose packets, nodes and halves."""
    complete = 0
    for seed in range(batch * EACH, (batch + 1) * EACH):
        reliable = seed % 4 != 0
        scenario = random_scenario(seed, protocol="vector", reliable=reliable)
        result, report = verified(scenario)
        assert report.ok, (seed, report.findings)
        counts = report.counts
        assert not any((counts.causal, counts.duplicate, counts.created, counts.fifo, counts.malformed)), seed
        assert (report.broadcasts, report.deliveries) == (result.broadcasts, result.deliveries)
        dies = any(isinstance(each, Crash) and each.restart_us is None for each in scenario.faults)
        if dies or not result.drained:  # the verifier asks nothing of the dead, nor of what only they knew
            assert counts.missing <= result.undelivered
        else:
            assert counts.missing == result.undelivered, seed
        if reliable:
            assert result.drained, seed
            assert result.promises.complete, seed
            assert (result.undelivered, result.waiting, counts.missing) == (0, {}, 0), seed
            complete += 1
    assert complete == EACH * 3 // 4


def test_the_same_scenarios_do_catch_fifo() -> None:
    """The runs above are not harmless: without causal order many of them break it."""
    broken = 0
    for seed in range(60):
        result, report = verified(random_scenario(seed, protocol="fifo"))
        assert report.ok, seed  # FIFO kept what FIFO promises
        assert not result.promises.causal
        broken += report.counts.causal > 0
    assert broken >= 10


@pytest.mark.parametrize("mutant", ZOO, ids=lambda mutant: mutant.name)
def test_the_runs_that_make_test_has_find_the_zoo(mutant: Mutant) -> None:
    """Among the first fifty runs, but for one mutant, which of a thousand only 455 and 725 find."""

    def finds(seed: int) -> bool:
        reliable = seed % 4 != 0
        try:
            result, report = verified(
                random_scenario(seed, protocol="vector", reliable=reliable), mutant.make
            )
        except InvariantError:
            return True
        return not report.ok or (reliable and bool(result.undelivered or result.waiting))

    rare = {"RestartForgetsDelta": range(455, 456)}
    seeds = rare.get(mutant.name, range(50))
    assert {seed // EACH for seed in seeds} <= {*ALWAYS}
    assert any(map(finds, seeds))
