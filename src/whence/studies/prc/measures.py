"""The numbers of the PRC study: of a run, along an axis of Table 1, and where two protocols cost the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp, log, log2
from pathlib import Path
from typing import Any, NamedTuple

from whence.core.message import Message
from whence.lab.run import path_of, run, save_measures
from whence.protocols.prc.wire import message_packet, packet_sizes
from whence.sim.distributions import Ramp
from whence.sim.model import Overlay, Scenario, node_names
from whence.sim.outcome import Outcome
from whence.studies.prc.counting import CASES, OpeningWatch, StaticWatch
from whence.studies.results import Derived, Label, Results, Row
from whence.trace.measures import Value
from whence.trace.schema import Level

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
TEXT, AUTHORS = PROFILES = ("text", "authors")
RISE, BEND, FLAT, STOP, QUIET, END = 15, 17, 40, 50, 52, 60  # minutes: the delay rises until it is flat
STEP_US = 100_000  # by which the delay of the authors' program rises, every minute
HOUR_DELAYS = {
    TEXT: Ramp(
        points=((RISE * MINUTE_US, 1_000), (BEND * MINUTE_US, 300_000), (FLAT * MINUTE_US, 2_500_000))
    ),
    AUTHORS: Ramp(
        points=tuple(
            point
            for step in range(FLAT - RISE)
            for point in (
                ((RISE + step + 1) * MINUTE_US - 1, 1_000 + step * STEP_US),
                ((RISE + step + 1) * MINUTE_US, 1_000 + (step + 1) * STEP_US),
            )
        )
    ),
}

HOUR, DEGREES, SMOOTH, LARGE = "hour", "degrees", "smooth", "large"
GROWTH, ROUTES, OPENING, CHURN, FRONTIER = "growth", "routes", "opening", "churn", "frontier"
BASELINES = ("reliable", "vector", "preventive", "link_memory")  # the lines of Table 1 on static links
FLOODING = ("vector", "barrier")  # what PRC is weighed against
HOPS = 8  # of control for a link through a mediator
RATE = 10  # broadcasts per second in the paper's hour
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
    overlay: float  # the same as the authors' program counts it: all that is no message

    @property
    def space(self) -> float:
        """Figure 5a."""
        return self.expected + self.buffered

    @property
    def law(self) -> float:
        """Rate x delay x safe degree."""
        return RATE * self.delay_ms / 1_000 * self.degree


def minutes(counted: Mapping[str, Any], profile: str = TEXT) -> list[Minute]:
    """The hour of one run, or as much of it as there is."""
    found = []
    for at, process_us in enumerate(counted["process_us"]):
        middle_us = counted["start_us"][at] + MINUTE_US // 2
        found.append(
            Minute(
                at,
                HOUR_DELAYS[profile].at(middle_us) / 1_000,
                counted["degree_us"][at] / process_us,
                counted["expected_us"][at] / process_us,
                counted["buffered_us"][at] / process_us,
                counted["control"][at] / (process_us / SECOND_US),
                counted["overlay"][at] / (process_us / SECOND_US),
            )
        )
    return found


def derive(row: Row) -> dict[str, float | None]:
    """The measures of one run."""
    if not row.counted:
        return {}
    parts: Mapping[str, Callable[[Row], dict[str, float | None]]] = {
        HOUR: _hour,
        DEGREES: _degrees,
        SMOOTH: _smooth,
        LARGE: _large,
        GROWTH: _static,
        ROUTES: _route,
        OPENING: _opening,
        CHURN: _churn,
        FRONTIER: _rate if row.labels["protocol"] == "prc" else _static,
    }
    return parts[str(row.labels["part"])](row)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _hour(row: Row) -> dict[str, float | None]:
    counted = row.counted
    every = minutes(counted, str(row.labels["profile"]))
    steady, late = [every[at] for at in STEADY], [every[at] for at in LATE]
    off = [each.expected / each.law - 1 for each in every[3:STOP]]
    at_bound = [each.space / each.delay_ms * BOUND_MS for each in every if 250 <= each.delay_ms <= 352]
    return {
        "degree": _mean([each.degree for each in steady]),
        "degree_late": _mean([each.degree for each in late]),
        "law_off_percent": 100 * max(off, key=abs),
        "law_ratio": 1 + max(off, key=abs),
        "early_per_link": max(each.space / each.degree for each in every[2:RISE]),
        "space_early": _mean([each.space for each in steady]),
        "space_bound": _mean(at_bound),
        "space_to_bound": max(each.space for each in every if each.delay_ms <= BOUND_MS),
        "space_late": _mean([each.space for each in late]),
        "expected_late": _mean([each.expected for each in late]),
        "buffers_per_view": _mean([each.buffered / each.degree for each in late]),
        "space_end": max(each.space for each in every[QUIET:]),
        "left": counted["left"],
        "control_start": max(each.control for each in every[:2]) / _mean([each.control for each in steady]),
        "control_level": slope([(each.minute, each.control) for each in steady]),
        "links_per_minute": 60 / HOPS * _mean([each.control for each in steady]),
        "links_per_degree": _mean([each.control / HOPS / each.degree for each in steady]),
        "overlay_early": _mean([each.overlay for each in steady]),
        "control_early": _mean([each.control for each in steady]),
        "control_late": _mean([each.control for each in late]),
        "control_end": max(each.control for each in every[QUIET:]),
        "control_slope": slope([(each.minute, each.control) for each in every[RISE : FLAT + 1]]),
        "hops_per_link": sum(counted["control"]) / counted["opened"],
        "undelivered": int(row.labels["nodes"]) * counted["broadcasts"] - counted["deliveries"],
    }


def _degrees(row: Row) -> dict[str, float | None]:
    counted = row.counted
    settled = minutes(counted)[STEADY[0] :]
    control = _mean([each.control for each in settled])
    return {
        "degree": _mean([each.degree for each in settled]),
        "degree_max": counted["degree_max"],
        "control_early": control,
        "links_per_minute": 60 / HOPS * control,
    }


def _smooth(row: Row) -> dict[str, float | None]:
    """How control traffic varies from second to second, over its mean."""
    counted = row.counted
    spreads = []
    for wanted in (STEADY, LATE):
        seconds = counted["control"][60 * wanted[0] : 60 * (wanted[-1] + 1)]
        mean = _mean(seconds)
        spreads.append(_mean([(each - mean) ** 2 for each in seconds]) / mean**2)
    return {"spread_early": spreads[0], "spread_late": spreads[1], "spread_ratio": spreads[1] / spreads[0]}


def _large(row: Row) -> dict[str, float | None]:
    counted = row.counted
    last = minutes(counted)[-2]  # with broadcasts
    return {
        "degree": last.degree,
        "degree_max": counted["degree_max"],
        "law_off_percent": 100 * (last.expected / last.law - 1),
        "law_ratio": last.expected / last.law,
        "space": last.space,
        "control_early": last.control,
        "hops_per_link": sum(counted["control"]) / counted["opened"],
        "undelivered": int(row.labels["nodes"]) * counted["broadcasts"] - counted["deliveries"],
        "left": counted["left"],
    }


def _route(row: Row) -> dict[str, float | None]:
    counted, nodes = row.counted, int(row.labels["nodes"])
    made = [counted[f"{case}_safe"] for case in ("mediated", "back_link", "routed", "flooded")]
    return {
        **counted,
        "routes_made": min(made),
        "routed_over_log": counted["routed_hops"] / log2(nodes),
        "flooded_over_square": counted["flooded_hops"] / nodes**2,
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
    hops = sum(counted["control"]) / counted["opened"]
    return {
        "hops_per_link": hops,
        "hops_per_direction": hops / 2,
        "bytes_per_link": counted["other_bytes"] / counted["opened"],
        "bytes_per_message": counted["message_copies_bytes"] / counted["message_copies"],
        "entries_left": counted["entries_left"],
    }


def _churn(row: Row) -> dict[str, float | None]:
    counted = row.counted
    return {
        "hops_per_link": sum(counted["control"]) / counted["opened"],
        "deliveries_per_broadcast": counted["deliveries"] / counted["broadcasts"],
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
        "links_per_s": sum(counted["control"][kept]) / HOPS / process_s,
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


def along(
    results: Results, measure: str, protocol: str, axis: str, seed: Label | None = None
) -> list[tuple[float, float]]:
    """A measure of Table 1 along one axis, the other labels as at the point where the axes cross.

    Of one seed, or the means of all.
    """
    base = crossing(results)
    found: dict[float, list[float]] = {}
    for row in results.select(part=GROWTH, protocol=protocol):
        others = {name: row.labels[name] for name in AXES if name != axis}
        if all(at == base[name] for name, at in others.items()) and seed in (None, row.labels["seed"]):
            x = float(row.labels[axis])
            if axis == "delay_ms":
                x *= float(row.labels["rate"]) / 1_000  # messages in transit on a link
            found.setdefault(x, []).append(row.measure(measure))
    return sorted((x, _mean(values)) for x, values in found.items())


def crossing(results: Results) -> dict[str, Any]:
    """The labels of the point through which all axes go: the only one that recorded its deliveries."""
    for row in results.select(part=GROWTH):
        if row.judged:
            return {name: at for name, at in row.labels.items() if name != "seed"}
    raise ValueError("no run of Table 1 was judged")


def derived(results: Results) -> Iterator[Derived]:
    """How control traffic falls within an hour, the exponents of Table 1, how views and space grow."""
    for row in results.select(part=HOUR):
        early, late = row.measures.get("control_early"), row.measures.get("control_late")
        if early and late is not None:
            yield Derived({**row.labels, "part": "fall"}, {"control_ratio": late / early})
    if any(row.judged for row in results.select(part=GROWTH)):
        yield from _exponents(results)
    for profile in PROFILES:
        yield from _view_growth(results, profile)
    yield from _rate_factors(results)


def _exponents(results: Results) -> Iterator[Derived]:
    rows = results.select(part=GROWTH)
    for protocol in dict.fromkeys(row.labels["protocol"] for row in rows):
        for seed in dict.fromkeys(row.labels["seed"] for row in rows):
            for measure in ("numbers_per_message", "work_per_delivery", "space"):
                for axis in AXES:
                    points = along(results, measure, str(protocol), axis, seed)
                    exponent = power(points)[1] if len(points) > 1 else None
                    at = {"part": "exponents", "protocol": protocol, "axis": axis, "seed": seed}
                    yield Derived(at, {measure: exponent})


def _view_growth(results: Results, profile: str) -> Iterator[Derived]:
    """Views against ln N: exponent, and how well a line in ln N fits. One line for each seed."""
    rows = results.select(part=DEGREES, profile=profile)
    for seed in dict.fromkeys(row.labels["seed"] for row in rows):
        found = [
            (float(row.labels["nodes"]), row.measure("degree")) for row in rows if row.labels["seed"] == seed
        ]
        if len(found) > 1:
            largest = max(nodes for nodes, _ in found)
            at: dict[str, Label] = {"part": "views", "profile": profile, "nodes": int(largest), "seed": seed}
            yield Derived(at, {"degree_exponent": power(found)[1]})
    means = [
        (log(float(nodes)), _mean(results.column("degree", part=DEGREES, profile=profile, nodes=nodes)))
        for nodes in dict.fromkeys(row.labels["nodes"] for row in rows)
    ]
    if len(means) > 2:
        grows, middle = slope(means), _mean([y for _, y in means])
        off = sum((y - middle - grows * (x - _mean([x for x, _ in means]))) ** 2 for x, y in means)
        fit = 1 - off / sum((y - middle) ** 2 for _, y in means)
        yield Derived({"part": "views", "profile": profile}, {"degree_fit": fit}, len(rows))


def _rate_factors(results: Results) -> Iterator[Derived]:
    """Space at ten times the rate over that at the paper's, seed by seed."""
    for row in results.select(part=FRONTIER, protocol="prc", rate=RATE):
        place = {**row.labels, "rate": 10 * RATE}
        space = row.measures.get("space")
        for other in results.select(**place):
            if space:
                yield Derived(
                    {**row.labels, "part": "rates"}, {"rate_factor": other.measure("space") / space}
                )


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
    """(rate, cost of a process) of a protocol in a group, over its seeds: `space` or `bytes_per_s`."""
    found: dict[float, list[float]] = {}
    for row in results.select(part=FRONTIER, protocol=protocol, nodes=nodes):
        rate = float(row.labels["rate"])
        there = found.setdefault(rate, [])
        if protocol == "prc" and measure == "bytes_per_s":
            opening = row.measure("links_per_s") * link_bytes(results, rate)
            there.append(row.measure("message_bytes_per_s") + opening)
        else:
            there.append(row.measure(measure))
    return sorted((rate, _mean(values)) for rate, values in found.items())


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
# run with cores that are watched (`counting.py`).


def run_point(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """Run a point of the study; write its trace and what was counted."""
    if not isinstance(scenario.topology, Overlay):
        watch = StaticWatch(scenario)
        return run(scenario, folder, level=level, observers=[watch], make=watch.make, measure=watch.totals)
    if path_of(scenario, level, "always")[0] == "kernel":
        return run(scenario, folder, level=level, kernel="always", measure=overlay_counts)
    return run(scenario, folder, level=level, observers=[OpeningWatch()], measure=overlay_counts)


def run_routes(scenario: Scenario, folder: Path, level: Level | None = None) -> None:
    """Count every way of control; they are no runs of the simulator, and leave no trace."""
    counts = {
        f"{case}_{name}": value
        for case, count in CASES.items()
        for name, value in count(scenario.nodes).items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_measures(folder, scenario, counts, f"{__name__}.run_routes")


def overlay_counts(outcome: Outcome) -> dict[str, Value]:
    """Return what a late message of the last node costs: names and numbers are as long as they get."""
    nodes = outcome.scenario.nodes
    message = Message(node_names(nodes)[-1], 1 + outcome.broadcasts // nodes, b"")
    return {"message_bytes": packet_sizes(message_packet(message)).control_bytes}
