"""One call from a scenario to a result, or to a trace.

result = simulate(scenario)                      # counters only
manifest = simulate_to(scenario, Path("out"))    # and a trace that can be verified and replayed
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whence.core.message import NodeId
from whence.protocols import registry
from whence.sim.cores import Make
from whence.sim.engine import Engine, Progress
from whence.sim.files import checked, run_id, to_dict
from whence.sim.model import Scenario, node_names
from whence.sim.promises import loses_nothing, promises_made
from whence.trace.schema import Level, Manifest, PromisesMade, Recorder

if TYPE_CHECKING:
    from whence.trace.writer import TraceWriter

WRITER = "sim"  # the name of the simulator among a trace's writers


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a node still held back at the end, and what it waited for ("origin:number")."""

    message: str
    since_us: int
    missing: list[str]


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did, in numbers."""

    run: str
    name: str
    protocol: str
    nodes: int
    seed: int
    promises: PromisesMade
    drained: bool  # it ended because nothing was left to happen (timers apart)
    final_us: int
    steps: int  # inputs given to cores, and samples
    broadcasts: int
    skipped_broadcasts: int  # due while the sender was down
    deliveries: int
    undelivered: int  # broadcasts x nodes - deliveries; of point-to-point protocols broadcasts - deliveries
    packets: int  # packets given to links, one per receiver
    control_packets: int = 0  # of these, solicitations and replies to them
    lost_packets: int
    duplicated_packets: int
    in_flight: int  # packets that had not arrived at the end
    discards: dict[str, int]  # by reason
    expiries: dict[str, int]  # messages that came or waited too long, by reason
    waiting: dict[NodeId, list[Held]]  # nodes that hold nothing are left out


def simulate(
    scenario: Scenario,
    recorder: Recorder | None = None,
    *,
    level: Level | None = None,
    make: Make | None = None,
    check: bool = False,
    progress: Progress | None = None,
) -> RunResult:
    """Run a scenario.

    `level` replaces the scenario's own; `make(me, members)` makes other cores than the registry's
    (the bug zoo does); `check` asks every core for its invariants after every step; `progress` is
    told the simulated time now and then.
    """
    scenario = checked(scenario)
    level = scenario.record.as_level() if level is None else level
    engine = Engine(scenario, make, recorder, level=level, check=check)
    engine.run(progress)
    return _result(engine)


def simulate_to(
    scenario: Scenario,
    folder: Path,
    level: Level | None = None,
    *,
    make: Make | None = None,
    check: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Run a scenario and write its trace into `folder`."""
    _, manifest = record_to(
        scenario, folder, level, make=make, check=check, overwrite=overwrite, progress=progress
    )
    return manifest


def record_to(
    scenario: Scenario,
    folder: Path,
    level: Level | None = None,
    *,
    make: Make | None = None,
    check: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[RunResult, Manifest]:
    """As `simulate_to`, with the counters beside the manifest."""
    scenario = checked(scenario)
    level = scenario.record.as_level() if level is None else level
    with open_writer(scenario, folder, level, overwrite=overwrite) as writer:
        result = simulate(scenario, writer, level=level, make=make, check=check, progress=progress)
        manifest = writer.close(promises=result.promises)
    return result, manifest


def open_writer(scenario: Scenario, folder: Path, level: Level, *, overwrite: bool = False) -> TraceWriter:
    """A writer for the trace of a run of `scenario`; whoever ran it closes it with what it promised."""
    from whence.trace.writer import TraceWriter

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


def _result(engine: Engine) -> RunResult:
    scenario = engine.scenario
    deliveries = sum(driver.delivered for driver in engine.drivers)
    receivers = 1 if registry.lookup(scenario.protocol).point_to_point else scenario.nodes
    return RunResult(
        run=run_id(scenario),
        name=scenario.name,
        protocol=scenario.protocol,
        nodes=scenario.nodes,
        seed=scenario.seed,
        promises=promises_made(
            scenario, complete=engine.drained and loses_nothing(engine), final_us=engine.time_us
        ),
        drained=engine.drained,
        final_us=engine.time_us,
        steps=engine.steps,
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
        waiting={
            name: [
                Held(message=str(each.id), since_us=each.since_us, missing=[str(id_) for id_ in each.missing])
                for each in waiting
            ]
            for name, waiting in engine.waiting().items()
        },
    )


def _total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The counts of all nodes, by reason."""
    total: dict[str, int] = {}
    for each in counts:
        for reason, count in each.items():
            total[str(reason)] = total.get(str(reason), 0) + count
    return dict(sorted(total.items()))
