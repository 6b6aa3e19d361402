"""One call from a scenario to a result, or to a trace.

result = simulate(scenario)                      # counters only
manifest = simulate_to(scenario, Path("out"))    # and a trace that can be verified and replayed
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whence.core.message import NodeId
from whence.core.protocol import Protocol as Core
from whence.protocols import registry
from whence.sim.engine import Engine, Make, Progress
from whence.sim.faults import NEVER_US, plan_faults
from whence.sim.files import checked, run_id, to_dict
from whence.sim.model import Contacts, Full, Scenario, node_names
from whence.sim.network import link_specs
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
    engine = Engine(scenario, make or _registered(scenario), recorder, level=level, check=check)
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


def _registered(scenario: Scenario) -> Make:
    def make(me: NodeId, members: Sequence[NodeId]) -> Core:
        return registry.make(scenario.protocol, me, members, scenario.params)

    return make


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
        lost_packets=engine.traffic.lost,
        duplicated_packets=engine.traffic.duplicated,
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


# Promises


def promises_made(scenario: Scenario, *, complete: bool, final_us: int | None = None) -> PromisesMade:
    """What the protocol promises, as far as this run's circumstances allow it; `final_us`: when it ended."""
    promised = registry.lookup(scenario.protocol).promises
    end_us = scenario.stop.duration_us + scenario.stop.drain_max_us if final_us is None else final_us
    return PromisesMade(
        causal=promised.causal,
        fifo=promised.fifo,
        no_duplicates=promised.no_duplicates,
        complete=promised.complete and complete,
        timely=promised.timely,
        clock_slack_us=clock_slack_us(scenario, end_us) if promised.timely else 0,
    )


def clock_slack_us(scenario: Scenario, end_us: int) -> int:
    """How far apart any two clocks of the run can be, at any two times until it ends."""
    clocks = plan_faults(scenario).clocks
    if not clocks:
        return 0
    off_us = [
        clock.offset_us + at_us * clock.drift_ppm // 1_000_000
        for clock in clocks.values()
        for at_us in (0, end_us)
    ]
    if len(clocks) < scenario.nodes or min(off_us) < 0:
        off_us.append(0)  # a clock without skew, or one that stands at 0 until it is right
    return max(off_us) - min(off_us) + 1  # clocks show whole microseconds


def loses_nothing(engine: Engine) -> bool:
    """Whether the run's world is one in which everybody must get everything, once it has drained.

    That is so if every node that crashes comes back, every partition heals, and every packet that a
    core sends arrives at last: each link either retransmits, or neither loses by chance nor stands
    in the way of a partition or a crash; and if messages have no lifetimes. Flooding may survive more
    than that, but it is not promised. A protocol that does not relay reaches only the neighbours of
    the origin.
    """
    scenario, plan = engine.scenario, engine.plan
    if engine.drivers[0].core.renews:
        return False  # it repairs in time, and nobody knows whether the run was long enough for that
    if scenario.params.get("lifetime_us") or any(each.lifetime is not None for each in scenario.workloads):
        return False  # what has died on its way is nowhere
    for_ever = [outage.restart_us for outage in plan.outages] + [split.stop_us for split in plan.splits]
    if isinstance(scenario.topology, Contacts) or NEVER_US in for_ever:
        return False
    if scenario.params.get("relay") is False and not isinstance(scenario.topology, Full):
        return False
    troubled = bool(plan.outages or plan.splits)
    links = [scenario.link, *link_specs(scenario, engine.graph).values()]
    return all(
        link.retransmit_us is not None or not (link.loss or link.hop_loss or troubled) for link in links
    )
