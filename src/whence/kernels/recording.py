"""A scenario to a trace folder, in a kernel where there is one for it: how a sweep runs its runs.

    manifest = simulate_to(scenario, folder)      # as whence.sim.run.simulate_to

What a kernel counts is left beside the trace (`whence.trace.measures`). At `Level.MEASURES` it keeps no
event but the broadcasts, which the scenario alone decides: a run of a million packets takes as long as it
takes to simulate.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whence.errors import InvariantError
from whence.kernels import dispatch
from whence.sim import run as core
from whence.sim.files import checked, run_id
from whence.sim.model import Scenario, node_names
from whence.sim.promises import promises_made
from whence.sim.workload import sources
from whence.trace.measures import Measured, Value, write_measures
from whence.trace.schema import Kind, Level, Manifest, Recorder

if TYPE_CHECKING:
    from whence.kernels.vcube.kernel import Outcome


def simulate_to(scenario: Scenario, folder: Path, level: Level | None = None) -> Manifest:
    """Run a scenario and write its trace, and its measures if a kernel ran it, into `folder`."""
    scenario = checked(scenario)
    level = scenario.record.as_level() if level is None else level
    if dispatch.choose(scenario).kernel:
        from whence.kernels.vcube import kernel as vcube

        outcome = vcube.run(scenario, level=level)
        if outcome.drained:  # what a run that was cut off still waits for, only cores can say
            return keep(outcome, folder, level)
    return core.simulate_to(scenario, folder, level)


def keep(
    outcome: Outcome, folder: Path, level: Level, further: Mapping[str, Value] | None = None
) -> Manifest:
    """Write what a kernel's run left, with `further` measures beside the kernel's own."""
    from whence.kernels.vcube import kernel as vcube

    scenario = outcome.scenario
    if not outcome.drained:
        raise InvariantError(f"run {run_id(scenario)}", "a kernel's run that has not drained cannot be kept")
    measures: dict[str, Value] = msgspec.to_builtins(outcome.measures, str_keys=True)
    with core.open_writer(scenario, folder, level) as writer:
        if level > Level.MEASURES:
            vcube.record(outcome, writer, level)
        else:
            record_broadcasts(scenario, writer)
        # Before the manifest: whoever finds a whole trace finds its measures too.
        write_measures(
            folder,
            Measured(
                run=run_id(scenario),
                protocol=scenario.protocol,
                counted_by=vcube.__name__,
                measures=measures | dict(further or {}),
            ),
        )
        return writer.close(promises=promises_made(scenario, complete=True))


def record_broadcasts(scenario: Scenario, recorder: Recorder) -> None:
    """The broadcasts of a scenario without faults and replies, in the order in which the engine has them."""
    names = node_names(scenario.nodes)
    planned = sorted(
        (time_us, source.node, source.workload, index, len(source.payloads.of(index)))
        for source in sources(scenario)
        for index, time_us in enumerate(source.times_us)
    )
    numbers = [0] * scenario.nodes
    for time_us, node, _, _, payload_bytes in planned:
        numbers[node] += 1
        recorder.event(names[node], time_us, Kind.BROADCAST, names[node], numbers[node], None, payload_bytes)
