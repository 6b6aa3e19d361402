"""One run: the only place that chooses between a kernel and the cores, and that writes a run to a folder.

    outcome = run(scenario)                      # counters only
    outcome = run(scenario, Path("out"))         # and a trace that can be verified and replayed
    outcome.path, outcome.why                    # "core", "there is no kernel for protocol 'vector'"

Both paths give the same rows and the same numbers, bit for bit; a kernel leaves out what it does not count.
`kernel` says how the choice is made: "auto" takes a kernel where it saves time, "always" wherever one can run
the scenario (for many runs: what is compiled for one serves all), "never" takes the cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from whence.errors import MisuseError
from whence.kernels.contract import NOTHING, TESTED, Keep, Kernel, KernelRefusalError, load, missing
from whence.lab.observer import Fanout, Observer, sent_hooks
from whence.lab.tasks import estimate_seconds
from whence.protocols import registry
from whence.sim.cores import Make
from whence.sim.engine import Engine, Progress
from whence.sim.files import checked, run_id, to_dict
from whence.sim.model import Scenario, node_names
from whence.sim.outcome import WRITER, Held, Outcome
from whence.sim.promises import loses_nothing, promises_made
from whence.trace.measures import Measured, Value, write_measures
from whence.trace.schema import Level, Recorder
from whence.trace.writer import TraceWriter

WORTHWHILE_SECONDS = 2.0  # of the cores: for less a kernel is not even loaded

KERNEL_RUN_SECONDS = 0.02  # to set it up, and to write a trace folder
KERNEL_SPEEDUP = 16.0  # at least

Choice: TypeAlias = Literal["auto", "never", "always"]
Measure: TypeAlias = Callable[[Outcome], Mapping[str, Value]]


def run(
    scenario: Scenario,
    folder: Path | None = None,
    *,
    recorder: Recorder | None = None,
    level: Level | None = None,
    observers: Sequence[Observer] = (),
    keep: Keep = NOTHING,
    measure: Measure | None = None,
    kernel: Choice = "auto",
    make: Make | None = None,
    check: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Run a scenario.

    `folder` takes the trace and, if the run counted something, `measures.json`; `recorder` takes the rows
    instead. `level` replaces the scenario's own. `keep` names what of a kernel's arrays `measure` needs in
    `outcome.detail`; what `measure` returns is added to the outcome's measures.

    For the cores only: `observers` watch them; `make(me, members)` makes other cores than the protocol's own;
    `check` asks every core for its invariants after every step; `progress` hears the simulated time now and
    then.
    """
    if folder is not None and recorder is not None:
        raise MisuseError("run", "it is given a folder and a recorder", "Give one of them")
    scenario = checked(scenario)
    level = scenario.record.as_level() if level is None else level
    asked = (
        (observers, "an observer watches them"),
        (make, "others are given"),
        (check, "they are checked"),
    )
    reason = next((f"the cores are asked for: {text}" for wanted, text in asked if wanted), None)
    chosen, why = _choose(scenario, level, keep, kernel, reason)

    def go(rows: Recorder | None) -> Outcome:
        nonlocal why
        if chosen is not None:
            try:
                return chosen.run(scenario, rows, level, keep)
            except KernelRefusalError as error:
                why = error.reason
        return _through_cores(scenario, rows, level, why, observers, make, check, progress)

    if folder is None:
        outcome = go(recorder)
        return _measured(outcome, measure)
    with open_writer(scenario, folder, level, overwrite=overwrite) as writer:
        outcome = _measured(go(writer), measure)
        # Before the manifest: a reader of a whole trace finds its measures too.
        if outcome.measures:
            save_measures(folder, scenario, outcome.measures, _counted_by(outcome, measure))
        manifest = writer.close(promises=outcome.promises)
    return msgspec.structs.replace(outcome, manifest=manifest)


# The choice


def path_of(scenario: Scenario, level: Level | None = None, kernel: Choice = "auto") -> tuple[str, str]:
    """Return the path that `run` takes, "core" or "kernel", and why."""
    level = scenario.record.as_level() if level is None else level
    chosen, why = _choose(scenario, level, NOTHING, kernel, None)
    return "core" if chosen is None else "kernel", why


def expected_seconds(scenario: Scenario, kernel: Choice = "auto") -> float:
    """Return roughly how long `run` takes, on the path that it takes."""
    seconds = estimate_seconds(scenario)
    if path_of(scenario, None, kernel)[0] == "core":
        return seconds
    return KERNEL_RUN_SECONDS + seconds / KERNEL_SPEEDUP


def _choose(
    scenario: Scenario, level: Level, keep: Keep, kernel: Choice, reason: str | None
) -> tuple[Kernel | None, str]:
    """Return the kernel that is to run a scenario, if there is one; `reason`: why it must be the cores."""
    if kernel == "never":
        return None, "the cores are asked for"
    reason = reason or missing(scenario)
    if reason is None and find_spec("numba") is None:
        reason = "numba is not installed (pip install 'whence[lab]')"
    seconds = 0.0 if kernel == "always" else estimate_seconds(scenario)
    if reason is None and kernel == "auto" and seconds < WORTHWHILE_SECONDS:
        reason = f"the cores need less than {WORTHWHILE_SECONDS:g} s, about as long as a kernel takes to load"
    if reason is not None:
        return None, reason
    found = load(scenario)
    reason = found.refusal(scenario, level, keep)
    if reason is not None:
        return None, reason
    if kernel == "auto" and seconds < found.COMPILE_SECONDS and not found.is_compiled():
        return None, f"the kernel is not compiled, which takes {found.COMPILE_SECONDS:g} s"
    return found, TESTED


# The cores


def _through_cores(
    scenario: Scenario,
    recorder: Recorder | None,
    level: Level,
    why: str,
    observers: Sequence[Observer],
    make: Make | None,
    check: bool,
    progress: Progress | None,
) -> Outcome:
    if observers:
        fanout = Fanout(recorder, level, observers)
        recorder, level = fanout if fanout.listeners else None, fanout.level
    engine = Engine(
        scenario,
        make,
        recorder,
        level=level,
        check=check,
        sent=sent_hooks(observers),
    )
    engine.run(progress)
    outcome = _outcome(engine, why)
    measures: dict[str, Value] = {}
    for observer in observers:
        measures |= observer.finished([driver.core for driver in engine.drivers], engine.time_us)
    return msgspec.structs.replace(outcome, measures=measures)


def _loses_nothing(engine: Engine) -> bool:
    renews, is_whole = engine.drivers[0].core.renews, engine.links.is_whole
    return loses_nothing(engine.scenario, engine.plan, engine.graph, renews=renews, is_whole=is_whole)


def _outcome(engine: Engine, why: str) -> Outcome:
    scenario = engine.scenario
    deliveries = sum(driver.delivered for driver in engine.drivers)
    receivers = 1 if registry.lookup(scenario.protocol).point_to_point else scenario.nodes
    return Outcome(
        run=run_id(scenario),
        scenario=scenario,
        promises=promises_made(
            scenario, complete=engine.drained and _loses_nothing(engine), final_us=engine.time_us
        ),
        path="core",
        why=why,
        broadcasts=engine.broadcasts,
        skipped_broadcasts=engine.skipped_broadcasts,
        deliveries=deliveries,
        undelivered=engine.broadcasts * receivers - deliveries,
        packets=engine.packets,
        control_packets=engine.control_packets,
        lost_packets=engine.links.traffic.lost,
        duplicated_packets=engine.links.traffic.duplicated,
        in_flight=engine.in_flight,
        discards=_total(driver.discarded for driver in engine.drivers),
        expiries=_total(driver.expired for driver in engine.drivers),
        steps=engine.steps,
        final_us=engine.time_us,
        drained=engine.drained,
        waiting={
            name: [
                Held(message=str(each.id), since_us=each.since_us, missing=[str(id_) for id_ in each.missing])
                for each in waiting
            ]
            for name, waiting in engine.waiting().items()
        },
        series=engine.series(),
    )


def _total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the counts of all nodes, by reason."""
    total: dict[str, int] = {}
    for each in counts:
        for reason, count in each.items():
            total[str(reason)] = total.get(str(reason), 0) + count
    return dict(sorted(total.items()))


# What is written


def open_writer(
    scenario: Scenario, folder: Path | None, level: Level, *, overwrite: bool = False
) -> TraceWriter:
    """Return a writer for the trace of a run of `scenario`, to be closed with what the run promised."""
    return TraceWriter(
        folder,
        run=run_id(scenario),
        writer=WRITER,
        protocol=scenario.protocol,
        parameters=to_dict(scenario),
        # Whether the run drains is known at its end; a run that is killed has promised nothing.
        promises=promises_made(scenario, complete=False),
        seed=scenario.seed,
        nodes=node_names(scenario.nodes),
        level=level,
        overwrite=overwrite,
    )


def save_measures(folder: Path, scenario: Scenario, measures: dict[str, Value], counted_by: str) -> None:
    """Write `measures.json`."""
    write_measures(
        folder,
        Measured(run=run_id(scenario), protocol=scenario.protocol, counted_by=counted_by, measures=measures),
    )


def _measured(outcome: Outcome, measure: Measure | None) -> Outcome:
    """Add the measures of the series, and those of `measure`."""
    series = {} if outcome.series is None else outcome.series.measures()
    outcome = msgspec.structs.replace(outcome, measures=series | outcome.measures)
    further = {} if measure is None else measure(outcome)
    return msgspec.structs.replace(outcome, measures={**outcome.measures, **further})


def _counted_by(outcome: Outcome, measure: Measure | None) -> str:
    """Return the path, and the function that counted what the path itself does not."""
    return outcome.path if measure is None else f"{outcome.path}, {measure.__module__}.{measure.__qualname__}"
