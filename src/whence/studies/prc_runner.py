"""How the PRC study runs a point of its grid. Spark's workers import this module.

An experiment without a trace runs in the kernel, one with a trace in the cores; everything else is a scenario
on static links, run with cores that count (`prc_counting.py`).
"""

from __future__ import annotations

from pathlib import Path

from whence.core.message import Message
from whence.kernels import prc
from whence.protocols.prc_wire import message_packet, packet_sizes
from whence.sim.experiment import Experiment, Point, Series
from whence.sim.model import Scenario, node_names
from whence.sim.run import loses_nothing, open_writer, promises_made
from whence.sim.scenario import checked, run_id
from whence.studies.prc_counting import OpeningEngine, Samples, StaticEngine
from whence.studies.prc_runs import carried
from whence.trace.measures import Measured, Value, write_measures
from whence.trace.schema import Level, Manifest
from whence.trace.writer import TraceWriter


def simulate_to(scenario: Scenario, folder: Path, level: Level | None = None) -> Manifest:
    """Run a point of the study; write its trace, if it has one, and what was counted."""
    scenario = checked(scenario)
    level = scenario.record.as_level() if level is None else level
    experiment = carried(scenario)
    with open_writer(scenario, folder, level) as writer:
        if experiment is None:
            counts, complete = _static(scenario, writer, level)
        elif level >= Level.DELIVERIES:
            counts, complete = _opening(experiment, writer, level)
        else:
            counts, complete = _series(experiment, prc.run(experiment)), False
        write_measures(
            folder,
            Measured(run=run_id(scenario), protocol=scenario.protocol, counted_by=__name__, measures=counts),
        )
        return writer.close(promises=promises_made(scenario, complete=complete))


def compile_kernel() -> None:
    """Compile the kernel, or load what is compiled."""
    prc.run(
        Experiment(
            nodes=2,
            duration_us=1_000,
            joins_us=100,
            latency=[Point(0, 10)],
            shuffle_every_us=200,
            shuffle_stop_us=800,
            broadcast_start_us=300,
            broadcast_stop_us=500,
            broadcast_every_us=100,
        )
    )


def _series(experiment: Experiment, series: Series) -> dict[str, Value]:
    """The windows of a run as columns, and its totals."""
    columns = (
        "start_us", "process_us", "expected_us", "buffered_us", "degree_us", "control", "receipts",
    )  # fmt: skip
    counts: dict[str, Value] = {
        name: [getattr(window, name) for window in series.windows] for name in columns
    }
    # The packet of a late message of the last process: names and numbers are as long as they get.
    name, number = node_names(experiment.nodes)[-1], 1 + series.broadcasts // experiment.nodes
    return counts | {
        "broadcasts": series.broadcasts,
        "deliveries": series.deliveries,
        "opened": series.opened,
        "degree_max": series.degree_max,
        "left": series.expected_left + series.buffered_left,
        "message_bytes": packet_sizes(message_packet(Message(name, number, b""))).control_bytes,
    }


def _opening(experiment: Experiment, writer: TraceWriter, level: Level) -> tuple[dict[str, Value], bool]:
    engine = OpeningEngine(experiment, writer, level)
    engine.run()
    series = engine.series()
    counts = _series(experiment, series) | {
        "message_copies": engine.message_copies,
        "message_copies_bytes": engine.message_bytes,
        "other_packets": engine.other_packets,
        "other_bytes": engine.other_bytes,
        "entries_left": sum(driver.core.entries() for driver in engine.drivers),
    }
    # All have joined before the first broadcast, nobody departs, and the run outlasts its last copy.
    return counts, True


def _static(scenario: Scenario, writer: TraceWriter, level: Level) -> tuple[dict[str, Value], bool]:
    stop_us = scenario.stop.duration_us
    samples = Samples(writer, level, stop_us)
    engine = StaticEngine(scenario, samples, level)
    engine.run()
    deliveries = sum(driver.delivered for driver in engine.drivers)
    counts: dict[str, Value] = {
        "window_us": stop_us,
        "broadcasts": engine.broadcasts,
        "deliveries": deliveries,
        "copies": engine.copies,
        "numbers": engine.numbers,
        "control_bytes": engine.control_bytes,
        "work": deliveries + sum(getattr(driver.core, "work", 0) for driver in engine.drivers),
        "samples": samples.count,
        "sampled_entries": samples.entries,
        "entries_left": sum(driver.core.entries() for driver in engine.drivers),
    }
    opened = engine.opened()
    if opened is not None:
        counts["opened_packets"], counts["opened_bytes"] = opened
    return counts, engine.drained and loses_nothing(engine)
