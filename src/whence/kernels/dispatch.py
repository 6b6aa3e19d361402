"""Which way a simulation runs: in a kernel, or through the protocol's core. Both give the same result.

    result, path = simulate(scenario)        # a RunResult, and which path ran and why
    path.kernel, path.reason                 # False, "links are FIFO"

A kernel is taken only for what its equivalence tests cover; everything else goes through the core, and
so does everything where numba is not installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from whence.errors import MisuseError
from whence.protocols import registry
from whence.sim import run as core
from whence.sim.engine import Engine
from whence.sim.files import checked, run_id
from whence.sim.model import Scenario
from whence.sim.run import RunResult
from whence.sim.series import RunSeries
from whence.trace.schema import Level, PromisesMade, Recorder

if TYPE_CHECKING:
    from whence.kernels.vcube.kernel import Outcome


class Path(NamedTuple):
    """Which way a run went, and why."""

    kernel: bool
    reason: str

    def __str__(self) -> str:
        return f"{'kernel' if self.kernel else 'core'}: {self.reason}"


def choose(scenario: Scenario) -> Path:
    """The path that `simulate` takes."""
    if scenario.protocol == "oppnet":
        # Its outcome has no packets, sizes or explanations, of which a result of `simulate` speaks.
        return Path(
            False, "oppnet's kernel gives its own outcome: whence.kernels.oppnet.kernel.from_scenario"
        )
    if scenario.protocol in ("tdca", "odca"):
        return Path(
            False, "the kernel of deadlines gives its own outcome: whence.kernels.deadline.kernel.run"
        )
    if scenario.protocol != "vcube":
        return Path(False, f"there is no kernel for protocol {scenario.protocol!r}")
    if find_spec("numba") is None:
        return Path(False, "numba is not installed (pip install 'whence[lab]')")
    from whence.kernels.vcube import kernel as vcube

    reason = vcube.refusal(scenario)
    return Path(True, "inside the kernel's tested envelope") if reason is None else Path(False, reason)


def simulate(
    scenario: Scenario, recorder: Recorder | None = None, *, level: Level | None = None
) -> tuple[RunResult, Path]:
    """Run a scenario as `whence.sim.run.simulate` does, in a kernel where there is one for it.

    A kernel keeps the events in memory until the run is over, some 80 bytes each.
    """
    scenario = checked(scenario)
    path = choose(scenario)
    if not path.kernel:
        return core.simulate(scenario, recorder, level=level), path
    from whence.kernels.vcube import kernel as vcube

    level = scenario.record.as_level() if level is None else level
    kept = Level.MEASURES if recorder is None else max(level, Level.DELIVERIES)
    outcome = vcube.run(scenario, level=kept)
    if not outcome.drained:  # then a result says what waits for what, which only cores can
        path = Path(False, "the run is cut off before everything has arrived")
        return core.simulate(scenario, recorder, level=level), path
    if recorder is not None:
        vcube.record(outcome, recorder, level)
    return _result(scenario, outcome), path


def _result(scenario: Scenario, outcome: Outcome) -> RunResult:
    """What `whence.sim.run` says of a run in which nothing can be lost, and which has drained."""
    promised = registry.lookup(scenario.protocol).promises
    return RunResult(
        run=run_id(scenario),
        name=scenario.name,
        protocol=scenario.protocol,
        nodes=scenario.nodes,
        seed=scenario.seed,
        promises=PromisesMade(
            causal=promised.causal,
            fifo=promised.fifo,
            no_duplicates=promised.no_duplicates,
            complete=promised.complete,
        ),
        drained=True,
        final_us=outcome.measures.final_us,
        steps=outcome.steps,
        broadcasts=outcome.broadcasts,
        skipped_broadcasts=0,
        deliveries=outcome.deliveries,
        undelivered=outcome.broadcasts * scenario.nodes - outcome.deliveries,
        packets=outcome.measures.packets,
        lost_packets=0,
        duplicated_packets=0,
        in_flight=0,
        discards={},
        expiries={},
        waiting={},
    )


def run_series(scenario: Scenario) -> tuple[RunSeries, Path]:
    """Run a scenario over an overlay for its series: compiled where that is tested, else with the cores."""
    scenario = checked(scenario)
    if scenario.record.window_us is None:
        raise MisuseError(f"scenario {scenario.name!r}", "it asks for no series", "Set record.window_us")
    if find_spec("numba") is None:
        reason: str | None = "numba is not installed (pip install 'whence[lab]')"
    else:
        from whence.kernels.prc import kernel as prc

        reason = prc.refusal(scenario)
    if reason is None:
        return prc.run(scenario), Path(True, "inside the kernel's tested envelope")
    engine = Engine(scenario)
    engine.run()
    series = engine.series()
    assert series is not None
    return series, Path(False, reason)
