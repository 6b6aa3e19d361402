"""How the deadline study simulates a run: in the kernel where it can, else through the cores.

Both count what the study's tables need, and count the same (tests/equivalence/test_deadline_study.py). The
counts go into `measures.json` beside the trace; a run of which nobody asks for a trace keeps none but its
broadcasts. Spark's workers import this module.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from whence.core.effects import Effects, Reason
from whence.core.message import NodeId
from whence.core.protocol import Protocol
from whence.protocols import registry
from whence.protocols.deadline.published import Figure8
from whence.protocols.deadline.tdca import Tdca
from whence.sim.files import checked, run_id
from whence.sim.model import Scenario, node_names
from whence.sim.run import RunResult, open_writer, promises_made, simulate
from whence.studies.deadline import bounds
from whence.studies.deadline.bounds import Sent
from whence.trace.measures import Measured, Value, write_measures
from whence.trace.schema import Kind, Level, Manifest, Recorder

OPTIMUM = "deadline-optimum"  # the name of the scenarios of which the optimum is computed

# The ends of a run are not like the rest: at first nothing is before a message, and the loss of one of the
# last is not noticed for want of a later one. Only messages in between are counted (but for the optimum).
BEGIN_US, END_US = 200_000, 300_000


def counted_span_us(scenario: Scenario) -> tuple[int, int]:
    """Messages count that are broadcast from the first of these times on, and before the second."""
    whole = scenario.name == OPTIMUM
    return 0 if whole else BEGIN_US, scenario.stop.duration_us - (0 if whole else END_US)


def has_bounds(scenario: Scenario) -> bool:
    """Whether a run shows what no protocol could exceed: its origins send each message once, and nobody
    anything else."""
    params = scenario.params
    is_safe = params.get("mode", "safe") == "safe"
    return scenario.protocol == Tdca.name and is_safe and params.get("copies", 1) == 1


def simulate_to(scenario: Scenario, folder: Path, level: Level | None = None) -> Manifest:
    """Run a scenario of the study and write its trace and its counts."""
    scenario = checked(scenario)
    level = scenario.record.as_level() if level is None else level
    with open_writer(scenario, folder, level) as writer:
        counts = _run(scenario, writer, level)
        write_measures(
            folder,
            Measured(run=run_id(scenario), protocol=scenario.protocol, counted_by=__name__, measures=counts),
        )
        return writer.close(promises=promises_made(scenario, complete=False))


def _run(scenario: Scenario, writer: Recorder, level: Level) -> dict[str, Value]:
    if find_spec("numba") is not None:
        from whence.studies.deadline import compiled as deadline_compiled

        if deadline_compiled.refusal(scenario) is None:
            return deadline_compiled.run(scenario, writer, level)
    return run_cores(scenario, writer, level)


class Tally:
    """A recorder that counts, and passes on what the trace is to keep."""

    def __init__(self, scenario: Scenario, writer: Recorder, level: Level) -> None:
        self.index = {name: at for at, name in enumerate(node_names(scenario.nodes))}
        self.sent: list[Sent] = []
        self._begin_us, self._end_us = counted_span_us(scenario)
        self.delivered = self.late = self.latency_us = 0
        self._places: dict[tuple[NodeId | None, int], int] = {}
        self._writer = writer
        self._deliveries = level >= Level.DELIVERIES

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
        """Count one event."""
        if kind == Kind.BROADCAST and detail is not None:
            self._places[origin, number] = len(self.sent)
            self.sent.append(Sent(time_us, self.index[node], number, time_us + int(detail)))
        elif kind == Kind.DELIVER and node != origin:
            message = self.sent[self._places[origin, number]]
            self.late += time_us > message.deadline_us
            if self.counts(message):
                self.delivered += 1
                self.latency_us += time_us - message.time_us
        if self._deliveries or kind == Kind.BROADCAST:
            self._writer.event(
                node, time_us, kind, origin, number, peer, total_bytes, control_bytes, detail
            )  # fmt: skip

    def counts(self, message: Sent) -> bool:
        """Whether a message is far enough from the ends of the run."""
        return self._begin_us <= message.time_us < self._end_us


class _Logged(Tdca):
    """TDCA that remembers what each of its messages follows."""

    pasts: dict[tuple[NodeId, int], tuple[int, ...]]

    def broadcast_within(self, payload: bytes, lifetime_us: int, now_us: int) -> Effects:
        effects = super().broadcast_within(payload, lifetime_us, now_us)
        past = list(self.accepted)
        past[self.my_index] -= 1
        self.pasts[self.me, self.last] = tuple(past)
        return effects


def run_cores(scenario: Scenario, writer: Recorder, level: Level) -> dict[str, Value]:
    """Run a scenario through the cores, and count."""
    cores: list[Protocol] = []
    pasts: dict[tuple[NodeId, int], tuple[int, ...]] = {}
    names = node_names(scenario.nodes)

    def make(me: NodeId, members: object) -> Protocol:
        if scenario.name == OPTIMUM:
            logged = _Logged(me, names, **scenario.params)
            logged.pasts = pasts
            return logged
        core = registry.make(scenario.protocol, me, names, scenario.params)
        cores.append(core)
        return core

    tally = Tally(scenario, writer, level)
    result = simulate(scenario, tally, level=Level.DELIVERIES, make=make)
    if pasts:
        tally.sent = [each._replace(after=pasts[names[each.origin], each.number]) for each in tally.sent]
    return _counts(scenario, result, tally, cores)


def _counts(scenario: Scenario, result: RunResult, tally: Tally, cores: list[Protocol]) -> dict[str, Value]:
    others = scenario.nodes - 1
    within = [at for at, message in enumerate(tally.sent) if tally.counts(message)]
    counts: dict[str, Value] = {
        "messages": result.broadcasts,
        "all_pairs": result.broadcasts * others,
        "pairs": len(within) * others,  # of messages that count, as is everything up to the latency
        "delivered": tally.delivered,
        "latency_us": tally.latency_us,
        "late": tally.late,
        "packets": result.packets,
        "control_packets": result.control_packets,
        "lost": result.lost_packets,
        "duplicates": result.discards.get(Reason.DUPLICATE, 0),
        "expired": result.expiries.get(Reason.EXPIRED, 0),
        "overtaken": result.expiries.get(Reason.OVERTAKEN, 0),
    }
    published = [core for core in cores if isinstance(core, Figure8)]
    if published:
        counts["solicitations"] = sum(core.solicitations for core in published)
        counts["replies"] = sum(core.replies for core in published)
    elif has_bounds(scenario):
        every = bounds.arrivals(scenario, tally.sent)  # draws go by the number of a packet on its link
        sent, arrived = [tally.sent[at] for at in within], [every[at] for at in within]
        counts["direct"] = bounds.direct(sent, arrived)
        counts["relay_pairs"], counts["relay"] = bounds.relay(scenario, sent, arrived)
        if scenario.name == OPTIMUM:
            counts["optimum"] = bounds.optimum(sent, arrived, scenario.nodes)
    return counts
