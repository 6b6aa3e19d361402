"""How the study of domains simulates a run: in the engine, with every packet's stamp and every clock's work
counted.

    messages          point-to-point messages that were delivered
    packets           hops
    stamp_entries     entries of a matrix in all stamps; the paper's account spends 4 bytes on each
    control_bytes     all that is not payload on the wire, frames included (our MessagePack, not the paper's
    account)
    clock_work        entries looked at or written by stamping, testing and merging
    image_bytes       the paper's persistence: after each change of a clock its whole image, 4 bytes an entry
    log_bytes         ours: the input that was logged, as MessagePack (whence.mom.records)
    predicted_cost    hops x (alpha + size^2) of these messages by the planner's formula
    measured_cost     alpha x packets + stamp entries: the same where stamps are whole matrices

Spark's workers import this module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec

from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import Protocol
from whence.mom.records import Acknowledged, Received
from whence.overlay.planner import ALPHA, Traffic, evaluate
from whence.protocols import registry
from whence.protocols.domains.domains import DomainPacket, Domains
from whence.sim.engine import Engine
from whence.sim.files import checked, run_id
from whence.sim.model import Scenario
from whence.sim.promises import loses_nothing, promises_made
from whence.sim.run import open_writer
from whence.trace.measures import Measured, Value, write_measures
from whence.trace.rows import About
from whence.trace.schema import Level, Manifest, Recorder

_encode = msgspec.msgpack.Encoder().encode


class CountingEngine(Engine):
    """The engine, looking at what passes through it."""

    def __init__(self, scenario: Scenario, recorder: Recorder, level: Level) -> None:
        def make(me: NodeId, members: Sequence[NodeId]) -> Protocol:
            return registry.make(scenario.protocol, me, members, scenario.params)

        super().__init__(scenario, make, recorder, level=level)
        self.between: Counter[tuple[NodeId, NodeId]] = Counter()
        self.stamp_entries = self.control_bytes = self.log_bytes = 0

    def send(
        self, node: int, to: tuple[NodeId, ...], packet: Packet, time_us: int, about: About | None
    ) -> None:
        core = cast(Domains, self.drivers[node].core)
        hop = cast(DomainPacket, packet)
        self.stamp_entries += core.consumers[hop.domain].clock.stamp_entries(hop.stamp)
        self.control_bytes += core.sizes(packet).control_bytes
        self.log_bytes += len(_encode(Received(time_us, core.me, hop.sent, packet)))
        self.log_bytes += len(_encode(Acknowledged(to[0], hop.sent)))
        super().send(node, to, packet, time_us, about)

    def delivered(self, node: int, message: Message, time_us: int) -> None:
        self.between[message.origin, self.names[node]] += 1
        super().delivered(node, message, time_us)


def simulate_to(scenario: Scenario, folder: Path, level: Level | None = None) -> Manifest:
    """Run a scenario of the study and write its trace and all its measures."""
    scenario = checked(scenario)
    level = scenario.record.as_level() if level is None else level
    with open_writer(scenario, folder, level) as writer:
        engine = CountingEngine(scenario, writer, level)
        engine.run()
        write_measures(
            folder,
            Measured(
                run=run_id(scenario),
                protocol=scenario.protocol,
                counted_by=__name__,
                measures=measures(engine),
            ),
        )
        promises = promises_made(scenario, complete=engine.drained and loses_nothing(engine))
        if scenario.params.get("unsafe_cycles"):  # theorem 1: nobody can promise order on a cycle
            promises = msgspec.structs.replace(promises, causal=False)
        return writer.close(promises=promises)


def measures(engine: CountingEngine) -> dict[str, Value]:
    """What the run counted."""
    cores = [cast(Domains, driver.core) for driver in engine.drivers]
    clocks = [consumer.clock for core in cores for consumer in core.consumers.values()]
    counted: dict[str, Value] = {
        "messages": sum(engine.between.values()),
        "packets": engine.packets,
        "stamp_entries": engine.stamp_entries,
        "control_bytes": engine.control_bytes,
        "log_bytes": engine.log_bytes,
        "clock_work": sum(clock.work for clock in clocks),
        "image_bytes": sum(clock.changes * clock.image_bytes for clock in clocks),
        "measured_cost": ALPHA * engine.packets + engine.stamp_entries,
    }
    if not engine.scenario.params.get("unsafe_cycles"):  # a cycle has no tree to compute with
        cost = evaluate(Traffic(engine.between, engine.names), cores[0].graph.groups)
        counted["predicted_cost"] = round(cost.per_message * sum(engine.between.values()))
    return counted
