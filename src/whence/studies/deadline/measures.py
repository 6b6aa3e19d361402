"""The measures of the deadline study: how a run is made and counted, and what follows from the counts.

A run is the kernel's where it can be, else the cores'. Both count what the study's tables need, and count the
same (tests/equivalence/test_deadline_study.py). Spark's workers import this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, cast

from whence.core.effects import Reason
from whence.core.message import NodeId, Packet
from whence.core.protocol import Protocol
from whence.lab.observer import Observer
from whence.lab.run import path_of, run
from whence.protocols.deadline.published import Figure8
from whence.protocols.deadline.tdca import Tdca
from whence.protocols.deadline.wire import MESSAGE, DeadlinePacket
from whence.sim.model import Scenario, node_names
from whence.sim.outcome import Outcome
from whence.studies.deadline import bounds
from whence.studies.deadline.bounds import Sent, counted_span_us, has_bounds
from whence.studies.results import Derived, Estimate, Label, Results, Row, estimate
from whence.trace.measures import Value
from whence.trace.schema import Kind, Level

KINK_NODES = 36  # section 5: above, the gap becomes larger


def run_point(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """Run a scenario of the study and write its trace and its counts."""
    return counted(scenario, folder, level)


def run_optimum(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """As `run_point`, with all messages counted and the best that causal order allows."""
    return counted(scenario, folder, level, optimum=True)


def run_cores(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """As `run_point` with the cores, which also say how full their buffers were."""
    tally, buffers = DeadlineTally(scenario), BufferWatch()
    return run(scenario, folder, level=level, observers=[tally, buffers], measure=tally.counts)


class BufferWatch(Observer):
    """Notes how full the fullest buffer was when its member sent something."""

    def __init__(self) -> None:
        self._peak_bytes = 0

    def sent(self, core: Protocol, to: tuple[NodeId, ...], packet: Packet, time_us: int) -> None:
        """Look at the sender's buffer."""
        if isinstance(core, Tdca):
            self._peak_bytes = max(self._peak_bytes, core.used_bytes)

    def finished(self, cores: Sequence[Protocol], time_us: int) -> Mapping[str, Value]:
        """Return the peak."""
        return {"peak_bytes": self._peak_bytes}


def counted(
    scenario: Scenario,
    folder: Path | None,
    level: Level | None,
    *,
    optimum: bool = False,
    cores: bool = False,
) -> Outcome:
    """Run and count: in the kernel, unless it refuses or the cores are asked for."""
    path, _ = path_of(scenario, level, "never" if cores else "always")
    if path == "kernel":
        measure = kernel_optimum if optimum else kernel_counts
        return run(scenario, folder, level=level, kernel="always", measure=measure)
    tally = DeadlineTally(scenario, optimum)
    return run(scenario, folder, level=level, observers=[tally], measure=tally.counts)


def kernel_counts(outcome: Outcome) -> dict[str, Value]:
    """Return the counts of a run that the kernel made."""
    from whence.studies.deadline.compiled import counts_of

    return totals(outcome) | counts_of(outcome, optimum=False)


def kernel_optimum(outcome: Outcome) -> dict[str, Value]:
    """Return the counts of all messages, and the best that causal order allows."""
    from whence.studies.deadline.compiled import counts_of

    return totals(outcome) | counts_of(outcome, optimum=True)


class DeadlineTally(Observer):
    """Counts what the cores do."""

    level = Level.DELIVERIES

    def __init__(self, scenario: Scenario, optimum: bool = False) -> None:
        self._scenario, self._optimum = scenario, optimum
        self._index = {name: at for at, name in enumerate(node_names(scenario.nodes))}
        self._begin_us, self._end_us = counted_span_us(scenario, optimum)
        self._messages: list[Sent] = []
        self._places: dict[tuple[NodeId | None, int], int] = {}
        self._pasts: dict[tuple[int, int], tuple[int, ...]] = {}
        self._delivered = self._late = self._latency_us = 0

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
            self._places[origin, number] = len(self._messages)
            self._messages.append(Sent(time_us, self._index[node], number, time_us + int(detail)))
        elif kind == Kind.DELIVER and node != origin:
            message = self._messages[self._places[origin, number]]
            self._late += time_us > message.deadline_us
            if self._counts(message):
                self._delivered += 1
                self._latency_us += time_us - message.time_us

    def sent(self, core: Protocol, to: tuple[NodeId, ...], packet: Packet, time_us: int) -> None:
        """Remember what a message follows."""
        if self._optimum and packet[0] == MESSAGE:
            (message,) = cast(DeadlinePacket, packet).messages
            self._pasts[message.origin, message.number] = message.after

    def finished(self, cores: Sequence[Protocol], time_us: int) -> Mapping[str, Value]:
        """Return what Figure 8 as printed does besides."""
        published = [core for core in cores if isinstance(core, Figure8)]
        if not published:
            return {}
        return {
            "solicitations": sum(core.solicitations for core in published),
            "replies": sum(core.replies for core in published),
        }

    def counts(self, outcome: Outcome) -> dict[str, Value]:
        """Return the counts of the run."""
        others = self._scenario.nodes - 1
        within = [at for at, message in enumerate(self._messages) if self._counts(message)]
        counts = totals(outcome) | {
            "pairs": len(within) * others,  # of messages that count, as is everything up to the latency
            "delivered": self._delivered,
            "latency_us": self._latency_us,
            "late": self._late,
        }
        if has_bounds(self._scenario):
            counts |= self._bounds(within)
        return counts

    def _bounds(self, within: Sequence[int]) -> dict[str, Value]:
        scenario, messages = self._scenario, self._messages
        if self._optimum:
            messages = [each._replace(after=self._pasts[each.origin, each.number]) for each in messages]
        every = bounds.arrivals(scenario, messages)  # draws go by the number of a packet on its link
        sent, arrived = [messages[at] for at in within], [every[at] for at in within]
        pairs, reached = bounds.relay(scenario, sent, arrived)
        counts: dict[str, Value] = {
            "direct": bounds.direct(sent, arrived),
            "relay_pairs": pairs,
            "relay": reached,
        }
        if self._optimum:
            counts["optimum"] = bounds.optimum(sent, arrived, scenario.nodes)
        return counts

    def _counts(self, message: Sent) -> bool:
        """Return whether a message is far enough from the ends of the run."""
        return self._begin_us <= message.time_us < self._end_us


def totals(outcome: Outcome) -> dict[str, Value]:
    """Return the counts that every path has."""
    discards, expiries = outcome.discards or {}, outcome.expiries
    return {
        "messages": outcome.broadcasts,
        "all_pairs": outcome.broadcasts * (outcome.scenario.nodes - 1),
        "packets": outcome.packets or 0,
        "control_packets": outcome.control_packets or 0,
        "lost": outcome.lost_packets or 0,
        "duplicates": discards.get(Reason.DUPLICATE, 0),
        "expired": expiries.get(Reason.EXPIRED, 0),
        "overtaken": expiries.get(Reason.OVERTAKEN, 0),
    }


# What follows from the counts


def derive(row: Row) -> dict[str, float | None]:
    """The numbers of one run."""
    counted = row.counted
    if not counted:
        return {}
    pairs, delivered, every = counted["pairs"], counted["delivered"], counted["all_pairs"]
    found: dict[str, float | None] = {
        "ratio": delivered / pairs,
        "packets_per_pair": counted["packets"] / every,
        "control_per_pair": counted["control_packets"] / every,
        "latency_ms": counted["latency_us"] / delivered / 1000 if delivered else None,
        "overtaken_percent": 100 * counted["overtaken"] / every,
        "late_deliveries": counted["late"],
    }
    if "peak_bytes" in counted:
        found["peak_megabytes"] = counted["peak_bytes"] / 1e6
    if "direct" in counted:
        found["direct_ratio"] = counted["direct"] / pairs
        found["relay_ratio"] = counted["relay"] / counted["relay_pairs"]
        # Where the misses of a protocol that does not repair come from.
        lost_percent = 100 * counted["lost"] / every
        found["lost_percent"] = lost_percent
        found["too_late_percent"] = 100 * (1 - counted["direct"] / pairs) - lost_percent
        found["in_order_percent"] = 100 * (counted["direct"] - delivered) / pairs
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


def rise(results: Results, reading: Label, nodes: Label, better: str = "ODCA") -> Estimate | None:
    """The mean of the rises over the seeds."""
    values = list(rises(results, reading, nodes, better).values())
    return estimate(values) if values else None


class MapCell(NamedTuple):
    """A network of the map, but for the spread of its delays."""

    loss: str
    control: str
    base_ms: int


def cells(results: Results) -> list[MapCell]:
    """The networks of the map, in the order of the grid."""
    rows = results.select(part="map")
    found = (
        MapCell(str(row.labels["loss"]), str(row.labels["control"]), int(row.labels["base_ms"]))
        for row in rows
    )
    return list(dict.fromkeys(found))


def map_rises(results: Results, cell: MapCell, spread_ms: Label, nodes: Label) -> list[tuple[Label, float]]:
    """By how many percent ODCA delivers more than TDCA in a network of the map, by seed."""
    place: dict[str, Label] = {"part": "map", **cell._asdict(), "spread_ms": spread_ms, "nodes": nodes}
    before = {row.labels["seed"]: row.measure("ratio") for row in results.select(**place, variant="TDCA")}
    return [
        (row.labels["seed"], 100 * (row.measure("ratio") / before[row.labels["seed"]] - 1))
        for row in results.select(**place, variant="ODCA")
        if row.labels["seed"] in before
    ]


def map_rise(results: Results, cell: MapCell, spread_ms: Label, nodes: Label) -> Estimate | None:
    """The same, over the seeds."""
    values = [value for _, value in map_rises(results, cell, spread_ms, nodes)]
    return estimate(values) if values else None


def map_axis(results: Results, name: str) -> list[int]:
    """The spreads, or the sizes, of the map."""
    return sorted({int(row.labels[name]) for row in results.select(part="map")})


def contour(results: Results, cell: MapCell, nodes: int, percent: float) -> float | None:
    """The spread of delays, in ms, at which the rise is `percent`, between those that were run; else None."""
    known = [
        (spread_ms, found.mean)
        for spread_ms in map_axis(results, "spread_ms")
        if (found := map_rise(results, cell, spread_ms, nodes)) is not None
    ]
    for (low_ms, low), (high_ms, high) in pairwise(known):
        if min(low, high) <= percent <= max(low, high) and low != high:
            return low_ms + (high_ms - low_ms) * (percent - low) / (high - low)
    return None


def derived(results: Results) -> Iterator[Derived]:
    """Rises over TDCA and what they show, and distances from the bounds."""
    for reading in results.values("reading"):
        yield from _rise_lines(results, reading)
        yield from _shape(results, reading)
    yield from _map_lines(results)
    for row in results.rows:
        ratio = row.measures.get("ratio")
        best, direct = row.measures.get("optimum_ratio"), row.measures.get("direct_ratio")
        if ratio is not None and direct:
            yield Derived({**row.labels, "part": "bounds"}, {"of_direct": ratio / direct})
        if ratio is not None and best and row.labels["part"] == "optimum":
            yield Derived({**row.labels, "part": "bounds"}, {"of_optimum": ratio / best})


def _rise_lines(results: Results, reading: Label) -> Iterator[Derived]:
    for nodes in sizes(results, reading):
        place: dict[str, Label] = {"reading": reading, "nodes": nodes}
        for seed, percent in rises(results, reading, nodes).items():
            labels = {"part": "rise", **place, "variant": "ODCA", "seed": seed}
            yield Derived(labels, {"rise_percent": percent})


def _shape(results: Results, reading: Label) -> Iterator[Derived]:
    """The shape of Figure 9, seed by seed: its ends, its kink, how both algorithms fall."""
    places = sizes(results, reading)
    by_size = {nodes: rises(results, reading, nodes) for nodes in places}
    for seed in by_size[places[0]] if len(places) > 1 else ():
        found = [(nodes, by_size[nodes][seed]) for nodes in places if seed in by_size[nodes]]
        ratios = {
            variant: [
                value
                for nodes in places
                for value in results.column(
                    "ratio", part="main", reading=reading, nodes=nodes, variant=variant, seed=seed
                )
            ]
            for variant in ("TDCA", "ODCA")
        }
        if len(found) < 2 or any(len(values) < 2 for values in ratios.values()):
            continue
        falls = {variant: values[0] - values[-1] for variant, values in ratios.items()}
        measures: dict[str, float | None] = {
            "rise_ratio": found[-1][1] / found[0][1] if found[0][1] else None,
            "tdca_fall": falls["TDCA"],
            "odca_fall": falls["ODCA"],
            "fall_share": falls["ODCA"] / falls["TDCA"] if falls["TDCA"] else None,
            "least_step": min(after[1] - before[1] for before, after in pairwise(found)),
            "kink": _kink(found),
        }
        yield Derived({"part": "shape", "reading": reading, "nodes": places[-1], "seed": seed}, measures)


def _kink(found: Sequence[tuple[int, float]]) -> float | None:
    """By how much the rise grows faster above 36 members than below, in points per member."""
    below = [each for each in found if each[0] <= KINK_NODES]
    above = [each for each in found if each[0] >= KINK_NODES]
    if len(below) < 2 or len(above) < 2:
        return None
    slopes = [(part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0]) for part in (below, above)]
    return slopes[1] - slopes[0]


def _map_lines(results: Results) -> Iterator[Derived]:
    spreads, places = map_axis(results, "spread_ms"), map_axis(results, "nodes")
    for cell in cells(results):
        for spread_ms in spreads:
            labels: dict[str, Label] = {**cell._asdict(), "spread_ms": spread_ms}
            for nodes in places:
                for seed, percent in map_rises(results, cell, spread_ms, nodes):
                    at = {"part": "map rise", **labels, "nodes": nodes, "seed": seed}
                    yield Derived(at, {"rise_percent": percent})
            ends = [map_rise(results, cell, spread_ms, nodes) for nodes in (places[0], places[-1])]
            if ends[0] and ends[1] and ends[0].mean:
                yield Derived({"part": "map ends", **labels}, {"rise_ratio": ends[1].mean / ends[0].mean})
