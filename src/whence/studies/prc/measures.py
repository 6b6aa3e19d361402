"""The numbers of the PRC study: of a run, along an axis of Table 1, and where two protocols cost the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple

from whence.core.message import Message
from whence.lab.run import path_of, run
from whence.protocols.prc.wire import message_packet, packet_sizes
from whence.sim.distributions import Ramp
from whence.sim.model import Overlay, Scenario, node_names
from whence.sim.outcome import Outcome
from whence.studies.prc.counting import OpeningWatch, StaticWatch, counting_cores
from whence.studies.results import Derived, Label, Results, Row
from whence.trace.measures import Value
from whence.trace.schema import Level

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_DELAYS = Ramp(points=((15 * MINUTE_US, 1_000), (40 * MINUTE_US, 2_500_000)))

HOUR, GROWTH, OPENING, FRONTIER = "hour", "growth", "opening", "frontier"
BASELINES = ("reliable", "vector", "preventive", "link_memory")  # the lines of Table 1 on static links
FLOODING = ("vector", "barrier")  # what PRC is weighed against
RATE = 10  # broadcasts per second in the paper's hour
RISE, FLAT, STOP, QUIET, END = 15, 40, 50, 52, 60  # minutes: the delay rises until it is flat; all is over
STEADY = range(5, RISE)  # joins are over, the delay is 1 ms
LATE = range(FLAT + 1, STOP)  # the delay is 2.5 s
BOUND_MS = 300  # of what the paper calls realistic


class Minute(NamedTuple):
    """A minute of the hour, per process."""

    minute: int
    delay_ms: float
    degree: float
    expected: float
    buffered: float
    control: float  # per second

    @property
    def space(self) -> float:
        """Figure 5a."""
        return self.expected + self.buffered

    @property
    def law(self) -> float:
        """Rate x delay x safe degree."""
        return RATE * self.delay_ms / 1_000 * self.degree


def minutes(counted: Mapping[str, Any]) -> list[Minute]:
    """The hour of one run."""
    found = []
    for at, process_us in enumerate(counted["process_us"]):
        middle_us = counted["start_us"][at] + MINUTE_US // 2
        found.append(
            Minute(
                at,
                HOUR_DELAYS.at(middle_us) / 1_000,
                counted["degree_us"][at] / process_us,
                counted["expected_us"][at] / process_us,
                counted["buffered_us"][at] / process_us,
                counted["control"][at] / (process_us / SECOND_US),
            )
        )
    return found


def derive(row: Row) -> dict[str, float | None]:
    """The measures of one run."""
    if not row.counted:
        return {}
    parts: Mapping[str, Callable[[Row], dict[str, float | None]]] = {
        HOUR: _hour,
        GROWTH: _static,
        OPENING: _opening,
        FRONTIER: _rate if row.labels["protocol"] == "prc" else _static,
    }
    return parts[str(row.labels["part"])](row)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _hour(row: Row) -> dict[str, float | None]:
    counted = row.counted
    every = minutes(counted)
    steady, late = [every[at] for at in STEADY], [every[at] for at in LATE]
    off = [each.expected / each.law - 1 for each in every[3:STOP]]
    at_bound = [each.space / each.delay_ms * BOUND_MS for each in every if 250 <= each.delay_ms <= 352]
    return {
        "degree": _mean([each.degree for each in steady]),
        "degree_late": _mean([each.degree for each in late]),
        "law_off_percent": 100 * max(off, key=abs),
        "early_per_link": max(each.space / each.degree for each in every[2:RISE]),
        "space_early": _mean([each.space for each in steady]),
        "space_bound": _mean(at_bound),
        "space_late": _mean([each.space for each in late]),
        "expected_late": _mean([each.expected for each in late]),
        "buffers_per_view": _mean([each.buffered / each.degree for each in late]),
        "space_end": max(each.space for each in every[QUIET:]),
        "left": counted["left"],
        "control_early": _mean([each.control for each in steady]),
        "control_late": _mean([each.control for each in late]),
        "control_end": max(each.control for each in every[QUIET:]),
        "control_slope": slope([(each.minute, each.control) for each in every[RISE : FLAT + 1]]),
        "hops_per_link": sum(counted["control"]) / counted["opened"],
        "undelivered": int(row.labels["nodes"]) * counted["broadcasts"] - counted["deliveries"],
    }


def _static(row: Row) -> dict[str, float | None]:
    counted = row.counted
    process_s = int(row.labels["nodes"]) * counted["window_us"] / SECOND_US
    return {
        "numbers_per_message": counted["numbers"] / counted["copies"],
        "bytes_per_message": counted["control_bytes"] / counted["copies"],
        "work_per_delivery": counted["work"] / counted["deliveries"],
        "space": counted["sampled_entries"] / counted["samples"],
        "bytes_per_s": counted["control_bytes"] / process_s,
        "entries_left": counted["entries_left"],
        "hops_per_link": counted.get("opened_packets"),
        "bytes_per_link": counted.get("opened_bytes"),
    }


def _opening(row: Row) -> dict[str, float | None]:
    counted = row.counted
    return {
        "hops_per_link": sum(counted["control"]) / counted["opened"],
        "bytes_per_link": counted["other_bytes"] / counted["opened"],
        "bytes_per_message": counted["message_copies_bytes"] / counted["message_copies"],
        "entries_left": counted["entries_left"],
    }


def _rate(row: Row) -> dict[str, float | None]:
    """PRC at a rate: the windows after what is in transit has settled; each is as long as the warm-up."""
    counted = row.counted
    kept = slice(-6, None)  # the last half minute
    process_us = sum(counted["process_us"][kept])
    process_s = process_us / SECOND_US
    return {
        "space": (sum(counted["expected_us"][kept]) + sum(counted["buffered_us"][kept])) / process_us,
        "degree": sum(counted["degree_us"][kept]) / process_us,
        "message_bytes_per_s": sum(counted["receipts"][kept]) * counted["message_bytes"] / process_s,
        "links_per_s": sum(counted["control"][kept]) / 8 / process_s,
    }


# Growth


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least squares: how much y grows with x."""
    if len(points) < 2:
        raise ValueError("a slope needs two points")
    x_mean, y_mean = _mean([x for x, _ in points]), _mean([y for _, y in points])
    below = sum((x - x_mean) ** 2 for x, _ in points)
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / below


def power(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """y = factor x^exponent, by least squares of the logarithms: (factor, exponent)."""
    logs = [(log(x), log(y)) for x, y in points]
    exponent = slope(logs)
    factor = exp(_mean([y for _, y in logs]) - exponent * _mean([x for x, _ in logs]))
    return factor, exponent


AXES = {"nodes": "processes", "degree": "in-links", "delay_ms": "messages in transit"}


def along(results: Results, measure: str, protocol: str, axis: str) -> list[tuple[float, float]]:
    """A measure of Table 1 along one axis, the other labels as at the point where the axes cross."""
    base = crossing(results)
    found = []
    for row in results.select(part=GROWTH, protocol=protocol):
        others = {name: row.labels[name] for name in AXES if name != axis}
        if all(at == base[name] for name, at in others.items()):
            x = float(row.labels[axis])
            if axis == "delay_ms":
                x *= float(row.labels["rate"]) / 1_000  # messages in transit on a link
            found.append((x, row.measure(measure)))
    return sorted(found)


def crossing(results: Results) -> dict[str, Any]:
    """The labels of the point through which all axes go: the only one that recorded its deliveries."""
    for row in results.select(part=GROWTH):
        if row.judged:
            return dict(row.labels)
    raise ValueError("no run of Table 1 was judged")


def derived(results: Results) -> Iterator[Derived]:
    """How control traffic falls within an hour, and the exponents of Table 1."""
    for row in results.select(part=HOUR):
        early, late = row.measures.get("control_early"), row.measures.get("control_late")
        if early and late is not None:
            yield Derived({**row.labels, "part": "fall"}, {"control_ratio": late / early})
    for protocol in dict.fromkeys(row.labels["protocol"] for row in results.select(part=GROWTH)):
        for measure in ("numbers_per_message", "work_per_delivery", "space"):
            for axis in AXES:
                points = along(results, measure, str(protocol), axis)
                labels: dict[str, Label] = {"part": "exponents", "protocol": protocol, "axis": axis}
                exponent = power(points)[1] if len(points) > 1 else None
                yield Derived(labels, {measure: exponent}, len(points))


# The frontier


def link_bytes(results: Results, rate: float) -> float:
    """Bytes that opening a link costs at a rate: a straight line through what the cores measured."""
    rows = results.select(part=OPENING, protocol="prc")
    largest = max(int(row.labels["nodes"]) for row in rows)
    points = [
        (float(row.labels["rate"]), row.measure("bytes_per_link"))
        for row in rows
        if row.labels["nodes"] == largest
    ]
    grows = slope(points)
    return points[0][1] + grows * (rate - points[0][0])


def cost(results: Results, measure: str, protocol: str, nodes: int) -> list[tuple[float, float]]:
    """(rate, cost of a process) of a protocol in a group: `space` in entries or `bytes_per_s`."""
    found = []
    for row in results.select(part=FRONTIER, protocol=protocol, nodes=nodes):
        rate = float(row.labels["rate"])
        if protocol == "prc" and measure == "bytes_per_s":
            opening = row.measure("links_per_s") * link_bytes(results, rate)
            found.append((rate, row.measure("message_bytes_per_s") + opening))
        else:
            found.append((rate, row.measure(measure)))
    return sorted(found)


def sizes(results: Results, protocol: str) -> list[int]:
    """The groups of the frontier in which a protocol was measured."""
    return sorted({int(row.labels["nodes"]) for row in results.select(part=FRONTIER, protocol=protocol)})


def other_space(results: Results, protocol: str, nodes: int) -> float:
    """Entries of vector or barrier in a group: measured, or beyond that on the straight line of what was.

    A line, for both hold a fixed number for each process, and a barrier what is in transit besides.
    """
    known = {
        size: _mean([y for _, y in cost(results, "space", protocol, size)])
        for size in sizes(results, protocol)
    }
    if nodes in known:
        return known[nodes]
    points = [(float(size), space) for size, space in known.items()]
    grows = slope(points)
    return _mean([space for _, space in points]) + grows * (nodes - _mean([size for size, _ in points]))


def even_rate(results: Results, protocol: str, nodes: int) -> float:
    """Broadcasts per second of the group at which PRC holds as much as `protocol` does."""
    factor, exponent = power(cost(results, "space", "prc", nodes))
    return float((other_space(results, protocol, nodes) / factor) ** (1 / exponent))


def even_rate_bytes(results: Results, protocol: str, nodes: int) -> float | None:
    """Broadcasts per second above which PRC sends less than `protocol`; None: it never does.

    PRC's bytes are a fixed part, for links that are opened while nothing is sent, and one for each
    broadcast. The other's are taken from its lowest rate: a barrier names more the more is in transit.
    """
    other_rate, other = cost(results, "bytes_per_s", protocol, nodes)[0]
    row = results.select(part=FRONTIER, protocol="prc", nodes=nodes)[0]
    links = row.measure("links_per_s")
    fixed = links * link_bytes(results, 0)
    more = links * (link_bytes(results, 1) - link_bytes(results, 0))
    each = row.measure("message_bytes_per_s") / float(row.labels["rate"]) + more
    gain = other / other_rate - each
    return fixed / gain if gain > 0 else None


# How a point of the grid is run. Spark's workers import this module.
#
# A run over an overlay is the kernel's if it has no trace, else the cores'; all others are on static links,
# run with cores that count (`counting.py`).


def run_point(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """Run a point of the study; write its trace and what was counted."""
    if not isinstance(scenario.topology, Overlay):
        watch, make = StaticWatch(scenario), counting_cores(scenario)
        return run(scenario, folder, level=level, observers=[watch], make=make, measure=watch.totals)
    if path_of(scenario, level, "always")[0] == "kernel":
        return run(scenario, folder, level=level, kernel="always", measure=overlay_counts)
    return run(scenario, folder, level=level, observers=[OpeningWatch()], measure=overlay_counts)


def overlay_counts(outcome: Outcome) -> dict[str, Value]:
    """Return what a late message of the last node costs: names and numbers are as long as they get."""
    nodes = outcome.scenario.nodes
    message = Message(node_names(nodes)[-1], 1 + outcome.broadcasts // nodes, b"")
    return {"message_bytes": packet_sizes(message_packet(message)).control_bytes}
