"""The measures of the deadline study: how a run is simulated and counted, and what follows from the counts.

A run is the kernel's where it can be, else the cores'. Both count what the study's tables need, and count the
same (tests/equivalence/test_deadline_study.py). The counts go into `measures.json` beside the trace; a run of
which no trace is asked for keeps none but its broadcasts. Spark's workers import this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whence.core.effects import Effects, Reason
from whence.core.message import NodeId
from whence.core.protocol import Protocol
from whence.protocols import registry
from whence.protocols.deadline.published import Figure8
from whence.protocols.deadline.tdca import Tdca
from whence.sim.files import checked, run_id
from whence.sim.model import Scenario, node_names
from whence.sim.promises import promises_made
from whence.sim.run import RunResult, open_writer, simulate
from whence.studies.deadline import bounds
from whence.studies.deadline.bounds import Sent
from whence.studies.estimate import Estimate, estimate
from whence.studies.results import Derived, Label, Results
from whence.trace.measures import Measured, Value, write_measures
from whence.trace.schema import Kind, Level, Manifest, Recorder

# The ends of a run are not like the rest: at first nothing is before a message, and the loss of one of the
# last is not noticed for want of a later one. Only messages in between are counted (but for the optimum).
BEGIN_US, END_US = 200_000, 300_000


def counted_span_us(scenario: Scenario, whole: bool) -> tuple[int, int]:
    """Messages count that are broadcast from the first of these times on, and before the second."""
    return 0 if whole else BEGIN_US, scenario.stop.duration_us - (0 if whole else END_US)


def has_bounds(scenario: Scenario) -> bool:
    """Whether a run shows what no protocol could exceed: its origins send each message once, and nobody
    anything else."""
    params = scenario.params
    is_safe = params.get("mode", "safe") == "safe"
    return scenario.protocol == Tdca.name and is_safe and params.get("copies", 1) == 1


def simulate_to(scenario: Scenario, folder: Path, level: Level | None = None) -> Manifest:
    """Run a scenario of the study and write its trace and its counts."""
    return _simulated(scenario, folder, level, find_optimum=False)


def optimum(scenario: Scenario, folder: Path, level: Level | None = None) -> Manifest:
    """The same, of the whole run, with what its receivers could have delivered at most."""
    return _simulated(scenario, folder, level, find_optimum=True)


def _simulated(scenario: Scenario, folder: Path, level: Level | None, *, find_optimum: bool) -> Manifest:
    scenario = checked(scenario)
    level = scenario.record.as_level() if level is None else level
    with open_writer(scenario, folder, level) as writer:
        counts = _run(scenario, writer, level, find_optimum)
        write_measures(
            folder,
            Measured(run=run_id(scenario), protocol=scenario.protocol, counted_by=__name__, measures=counts),
        )
        return writer.close(promises=promises_made(scenario, complete=False))


def _run(scenario: Scenario, writer: Recorder, level: Level, find_optimum: bool) -> dict[str, Value]:
    if find_spec("numba") is not None:
        from whence.studies.deadline import compiled as deadline_compiled

        if deadline_compiled.refusal(scenario) is None:
            return deadline_compiled.run(scenario, writer, level, find_optimum)
    return run_cores(scenario, writer, level, find_optimum)


class Tally:
    """A recorder that counts, and passes on what the trace is to keep."""

    def __init__(self, scenario: Scenario, writer: Recorder, level: Level, whole: bool) -> None:
        self.index = {name: at for at, name in enumerate(node_names(scenario.nodes))}
        self.sent: list[Sent] = []
        self._begin_us, self._end_us = counted_span_us(scenario, whole)
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


def run_cores(
    scenario: Scenario, writer: Recorder, level: Level, find_optimum: bool = False
) -> dict[str, Value]:
    """Run a scenario through the cores, and count."""
    cores: list[Protocol] = []
    pasts: dict[tuple[NodeId, int], tuple[int, ...]] = {}
    names = node_names(scenario.nodes)

    def make(me: NodeId, members: object) -> Protocol:
        if find_optimum:
            logged = _Logged(me, names, **scenario.params)
            logged.pasts = pasts
            return logged
        core = registry.make(scenario.protocol, me, names, scenario.params)
        cores.append(core)
        return core

    tally = Tally(scenario, writer, level, find_optimum)
    result = simulate(scenario, tally, level=Level.DELIVERIES, make=make)
    if pasts:
        tally.sent = [each._replace(after=pasts[names[each.origin], each.number]) for each in tally.sent]
    return _counts(scenario, result, tally, cores, find_optimum)


def _counts(
    scenario: Scenario, result: RunResult, tally: Tally, cores: list[Protocol], find_optimum: bool
) -> dict[str, Value]:
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
        if find_optimum:
            counts["optimum"] = bounds.optimum(sent, arrived, scenario.nodes)
    return counts


# What follows from the counts


def derive(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers of one run."""
    pairs, delivered, every = counted["pairs"], counted["delivered"], counted["all_pairs"]
    found: dict[str, float | None] = {
        "ratio": delivered / pairs,
        "packets_per_pair": counted["packets"] / every,
        "control_per_pair": counted["control_packets"] / every,
        "latency_ms": counted["latency_us"] / delivered / 1000 if delivered else None,
        "overtaken_percent": 100 * counted["overtaken"] / every,
        "late_deliveries": counted["late"],
    }
    if "direct" in counted:
        found["direct_ratio"] = counted["direct"] / pairs
        found["relay_ratio"] = counted["relay"] / counted["relay_pairs"]
    if "optimum" in counted:
        found["optimum_ratio"] = counted["optimum"] / pairs
    if "replies" in counted:
        found["solicitations"] = counted["solicitations"]
        found["replies"] = counted["replies"]
    return found


def sizes(results: Results, reading: Label) -> list[int]:
    """The group sizes of Figure 9 that were run."""
    rows = results.select(part="main", reading=reading, variant="ODCA")
    return sorted({int(row.labels["nodes"]) for row in rows})


def rises(results: Results, reading: Label, nodes: Label, better: str = "ODCA") -> dict[Label, float]:
    """By how many percent one variant delivers more than TDCA, by seed."""
    before = {
        row.labels["seed"]: row.measure("ratio")
        for row in results.select(part="main", reading=reading, nodes=nodes, variant="TDCA")
    }
    return {
        seed: 100 * (row.measure("ratio") / before[seed] - 1)
        for row in results.select(part="main", reading=reading, nodes=nodes, variant=better)
        if (seed := row.labels["seed"]) in before
    }


def rise(results: Results, reading: Label, nodes: Label, better: str = "ODCA") -> Estimate:
    """The mean of the rises over the seeds."""
    return estimate(list(rises(results, reading, nodes, better).values()))


def derived(results: Results) -> Iterator[Derived]:
    """Rises over TDCA, the lead of our default over ODCA, and how far runs are from their bounds."""
    for reading in results.values("reading"):
        for nodes in sizes(results, reading):
            place: dict[str, Label] = {"reading": reading, "nodes": nodes}
            for seed, percent in rises(results, reading, nodes).items():
                labels = {"part": "rise", **place, "variant": "ODCA", "seed": seed}
                yield Derived(labels, {"rise_percent": percent})
            ours, theirs = (
                results.estimate("ratio", part="main", **place, variant=variant)
                for variant in ("default", "ODCA")
            )
            if ours and theirs:
                yield Derived({"part": "lead", **place}, {"lead_points": 100 * (ours.mean - theirs.mean)})
    for row in results.rows:
        ratio = row.measures.get("ratio")
        best, direct = row.measures.get("optimum_ratio"), row.measures.get("direct_ratio")
        if ratio is not None and direct is not None:
            yield Derived({**row.labels, "part": "bounds"}, {"beyond_direct": ratio - direct})
        if ratio is not None and best is not None and row.labels["part"] == "optimum":
            yield Derived({**row.labels, "part": "bounds"}, {"below_optimum": best - ratio})
