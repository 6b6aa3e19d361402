"""The measures of the study of domains: of every stamp, and of every clock's work, through the cores.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from whence.core.message import NodeId, Packet
from whence.core.protocol import Protocol
from whence.lab.observer import Observer
from whence.lab.run import run
from whence.mom.records import Acknowledged, Received
from whence.overlay.domain_graph import Groups
from whence.overlay.planner import ALPHA, Traffic, evaluate
from whence.protocols.domains.domains import DomainPacket, Domains
from whence.sim.model import Scenario, node_names
from whence.sim.outcome import Outcome
from whence.trace.measures import Value
from whence.trace.schema import Kind, Level

_encode = msgspec.msgpack.Encoder().encode


def run_point(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """Run a scenario of the study and write its trace and all its measures."""
    watch = Watch(scenario)
    return run(scenario, folder, level=level, observers=[watch], measure=watch.costs)


TASKS = {"run": run_point}


class Watch(Observer):
    """Counts every packet's stamp and every clock's work."""

    level = Level.DELIVERIES

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._between: Counter[tuple[NodeId, NodeId]] = Counter()
        self._groups: Groups = ()
        self._stamp_entries = self._control_bytes = self._log_bytes = 0

    def event(
        self,
        node: str,
        time_us: int,
        kind: Kind,
        origin: str | None = None,
        number: int = 0,
        peer: str | None = None,
        total_bytes: int = 0,
        control_bytes: int = 0,
        detail: str | None = None,
    ) -> None:
        """Count one delivery."""
        if kind == Kind.DELIVER and origin is not None:
            self._between[origin, node] += 1

    def sent(self, core: Protocol, to: tuple[NodeId, ...], packet: Packet, time_us: int) -> None:
        """Count one hop."""
        domains, hop = cast(Domains, core), cast(DomainPacket, packet)
        self._stamp_entries += domains.consumers[hop.domain].clock.stamp_entries(hop.stamp)
        self._control_bytes += core.sizes(packet).control_bytes
        self._log_bytes += len(_encode(Received(time_us, core.me, hop.sent, packet)))
        self._log_bytes += len(_encode(Acknowledged(to[0], hop.sent)))

    def finished(self, cores: Sequence[Protocol], time_us: int) -> Mapping[str, Value]:
        """Return what the packets and the clocks cost."""
        domains = [cast(Domains, core) for core in cores]
        self._groups = domains[0].graph.groups
        clocks = [consumer.clock for core in domains for consumer in core.consumers.values()]
        return {
            "messages": sum(self._between.values()),
            "stamp_entries": self._stamp_entries,
            "control_bytes": self._control_bytes,
            "log_bytes": self._log_bytes,
            "clock_work": sum(clock.work for clock in clocks),
            "image_bytes": sum(clock.changes * clock.image_bytes for clock in clocks),
        }

    def costs(self, outcome: Outcome) -> dict[str, Value]:
        """Return the costs by the planner's account."""
        packets = outcome.packets or 0
        counted: dict[str, Value] = {
            "packets": packets,
            "measured_cost": ALPHA * packets + self._stamp_entries,
        }
        if not self._scenario.params.get("unsafe_cycles"):  # a cycle has no tree to compute with
            names = node_names(self._scenario.nodes)
            cost = evaluate(Traffic(self._between, names), self._groups)
            counted["predicted_cost"] = round(cost.per_message * sum(self._between.values()))
        return counted
