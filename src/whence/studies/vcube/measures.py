"""From what the kernel counted in one run to the numbers that the paper's tables and figures show.

Times are in the paper's unit: one u.t. is 1,000 microseconds. A measure that needs a copy or a packet of
which the run has none is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from whence.errors import MisuseError
from whence.kernels.vcube.kernel import Trail
from whence.lab.run import run
from whence.sim.model import Scenario
from whence.sim.outcome import Outcome
from whence.studies.results import Derived, Estimate, Label, Results, Row, estimate, step
from whence.studies.vcube import crashes
from whence.studies.vcube.claims import AGGREGATION, CRASHES, PLAIN, SINGLE
from whence.studies.vcube.runs import DEPENDENCY_EDGES, ENOUGH_MESSAGES, MAIN, Runs
from whence.trace.measures import Value
from whence.trace.schema import Level

UNIT_US = 1_000  # of one u.t.
WINDOW_PARTS = 10  # Figure 1: the window in which nodes broadcast, cut into equal parts
MESSAGES_SHOWN = 5  # Table 2 tells packets of 1 to 5 messages apart
BYTES_EDGES = (100, 200, 300, 400)  # Table 3
BUFFER_EDGES = tuple(range(25, 301, 25))  # Figure 9
LARGEST_MAX = 22  # Figure 10
SMALL_MAX = 512  # nodes: up to here aggregation is said to cost nothing
ROOT_FROM = 128  # nodes: from here on the root of a single tree is a bottleneck
SIZES_MIN = 3  # of a line
SEVERAL_PERCENT = (3, 19)  # section 5.1: between these, over all sizes from 16 on


def derive_row(row: Row) -> dict[str, float | None]:
    """Every number of one run, and in how many of them a full trace that Spark measured differs."""
    if not row.counted:
        return {}
    if row.labels["part"] == CRASHES:
        return crashes.derive(row.counted)
    found = derive(row.counted, int(row.labels["nodes"]))
    if row.measures.get("packets") is not None:
        found["spark_differs"] = differences(row.counted, row.measures)
    return found


def derive(counted: Mapping[str, Any], nodes: int) -> dict[str, float | None]:
    """Every number of one run; `counted` is its measures.json."""
    packets, copies = counted["packets"], counted["deliveries"]
    return {
        "packets": packets,
        "reduction_percent": 100 * (1 - packets / (counted["messages"] * (nodes - 1))),
        "aggregated_percent": _percent(counted["aggregated_packets"], packets),
        "aggregated_messages": counted["aggregated_messages"],
        "delayed_messages": counted["delayed"],
        "undelivered": counted["messages"] * (nodes - 1) - copies,
        "splits": counted["splits"],
        "bytes_total": counted["packet_bytes"],
        "reception_max_ut": counted["reception_max_us"] / UNIT_US,
        "reception_ut": _mean_ut(counted["reception_us"], counted["receptions"]),
        "delivery_ut": _mean_ut(counted["delivery_us"], copies),
        "held_ut": _mean_ut(counted["held_us"], copies),
        "queued_ut": _mean_ut(counted["queued_us"], packets),
        **_packets(counted),
        **_messages(counted),
        **_nodes(counted),
        **_pairs(counted),
        **_starts(counted),
    }


def _packets(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Tables 2 and 3."""
    packets, by_messages = counted["packets"], counted["packets_by_messages"]
    shares: dict[str, float | None] = {
        f"packets_of_{messages}": _percent(_at(by_messages, messages), packets)
        for messages in range(1, MESSAGES_SHOWN + 1)
    }
    shares["packets_of_more"] = _percent(sum(by_messages[MESSAGES_SHOWN + 1 :]), packets)
    aggregated = sum(by_messages[2:])
    for messages in range(2, MESSAGES_SHOWN + 1):
        shares[f"aggregated_of_{messages}"] = _percent(_at(by_messages, messages), aggregated)
    shares["aggregated_of_more"] = _percent(sum(by_messages[MESSAGES_SHOWN + 1 :]), aggregated)
    shares["largest_packet"] = len(by_messages) - 1
    sizes = {int(size): count for size, count in counted["packets_by_bytes"].items()}
    for low, high in zip((0, *BYTES_EDGES), (*BYTES_EDGES, None), strict=True):
        inside = sum(n for size, n in sizes.items() if size > low and (high is None or size <= high))
        shares[f"bytes_above_{low}"] = _percent(inside, packets)
    shares["bytes_over_1400"] = _percent(sum(n for size, n in sizes.items() if size > 1400), packets)
    return shares


def _messages(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Figure 6."""
    found, messages = counted["messages_by_dependencies"], counted["messages"]
    lows = (0, *(edge + 1 for edge in DEPENDENCY_EDGES[:-1]))
    shares = {
        f"dependencies_from_{low}": _percent(sum(found[low : high + 1]), messages)
        for low, high in zip(lows, DEPENDENCY_EDGES, strict=True)
    }
    shares["dependencies_over_12"] = _percent(sum(found[13:]), messages)
    shares["dependencies_max"] = len(found) - 1
    return shares


def _nodes(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Figures 9 and 10."""
    peaks, largest = counted["held_peaks"], counted["messages_max"]
    found: dict[str, float | None] = {
        f"nodes_buffering_at_most_{edge}": _count(peak <= edge for peak in peaks) for edge in BUFFER_EDGES
    }
    found["buffered_max"] = max(peaks)
    for messages in range(1, LARGEST_MAX + 1):
        found[f"largest_{messages}_percent"] = _percent(
            _count(one == messages for one in largest), len(largest)
        )
    found["largest_7_to_11_percent"] = _percent(_count(7 <= one <= 11 for one in largest), len(largest))
    found["largest_8_to_12_percent"] = _percent(_count(8 <= one <= 12 for one in largest), len(largest))
    found["largest_max"] = max(largest)
    found["largest_mean"] = sum(largest) / len(largest)
    found["largest_2_and_more"] = _count(one >= 2 for one in largest)
    found["largest_skewness"] = _skewness(largest)
    return found


def _skewness(values: list[int]) -> float | None:
    """The third moment over the cube of the deviation, without its sign; None if all are equal."""
    mean = sum(values) / len(values)
    second, third = (sum((one - mean) ** power for one in values) / len(values) for power in (2, 3))
    return abs(third) / second**1.5 if second else None


def _pairs(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Figure 8."""
    copies = counted.get("pair_copies")
    if copies is None:
        return {}
    found: dict[str, float | None] = {"pair_copies": copies}
    for prefix in ("pair", "pair_plain"):
        reception = _mean_ut(counted[f"{prefix}_reception_us"], copies)
        delivery = _mean_ut(counted[f"{prefix}_delivery_us"], copies)
        found[f"{prefix}_reception_ut"] = reception
        found[f"{prefix}_delivery_ut"] = delivery
        found[f"{prefix}_held_ut"] = None if reception is None or delivery is None else delivery - reception
    found["larger_than_plain_percent"] = _percent(counted["larger_than_plain"], counted["packets"])
    return found


def _starts(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Figure 1."""
    if "receptions_by_start" not in counted:
        return {}
    sums, counts = counted["reception_us_by_start"], counted["receptions_by_start"]
    return {
        f"reception_start_{part}_ut": _mean_ut(total, count)
        for part, (total, count) in enumerate(zip(sums, counts, strict=True))
    }


def differences(counted: Mapping[str, Any], measured: Mapping[str, float | None]) -> int:
    """How many numbers Spark measures otherwise from the full trace than the kernel counted."""
    copies, receptions = counted["deliveries"], counted["receptions"]
    expected: dict[str, float | None] = {
        "broadcasts": counted["messages"],
        "deliveries": copies + counted["messages"],
        "packets": counted["packets"],
        "reception_mean_us": counted["reception_us"] / receptions,
        "reception_max_us": counted["reception_max_us"],
        "delivery_mean_us": counted["delivery_us"] / copies,
        "delivery_max_us": counted["delivery_max_us"],
        "held_mean_us": counted["held_us"] / copies,
        "held_max_us": counted["held_max_us"],
        "held_share": counted["delayed"] / copies,
        "held_peak_max": max(counted["held_peaks"]),
    }
    return sum(measured.get(name) != value for name, value in expected.items())


def _at(histogram: list[int], place: int) -> int:
    return histogram[place] if place < len(histogram) else 0


def _count(truths: Iterable[bool]) -> int:
    return sum(truths)


def _percent(part: float, whole: float) -> float | None:
    return 100 * part / whole if whole else None


def _mean_ut(total_us: float, count: float) -> float | None:
    return total_us / count / UNIT_US if count else None


# What claims say of several group sizes together: ranges, growth, the least and the most. A shape that this
# scale has no runs for is left out.


def derived(results: Results) -> Iterator[Derived]:
    """What claims ask of several runs together, for each reading, and Figure 9's tail."""
    for row in results.select(part=MAIN):
        kept = row.measures.get("nodes_buffering_at_most_250")
        if kept is not None:
            over = int(row.labels["nodes"]) - kept
            yield Derived({**row.labels, "part": "buffers"}, {"nodes_buffering_over_250": over})
    runs = Runs(results)
    for profile in runs.profiles:
        yield from _shapes(runs, profile)
    yield from _setup(results)


def _shapes(runs: Runs, profile: str) -> Iterator[Derived]:
    """Every shape of one reading, each under a label of its own, with the interval of what it rests on."""
    made = {
        "range": {"several_range_off": _range_off(runs, profile)},
        "dependencies": {"dependencies_apart": _dependencies_apart(runs, profile)},
        "growth": {"log_fit_better": _logarithmic(runs, profile)},
        "delivery": {"delivery_apart": _largest_change(runs, profile, "delivery_ut")},
        "pairs": {
            "pair_delivery_apart": _largest_pair_change(runs, profile, "delivery", absolute=True),
            "pair_reception_most": _largest_pair_change(runs, profile, "reception", absolute=False),
        },
        "single": {
            "aggregated_fewer_least": _least_fewer(runs, profile, "aggregated_messages"),
            "delayed_fewer_least": _least_fewer(runs, profile, "delayed_messages"),
            "root_step_least": _root(runs, profile),
        },
        "starts": {"start_rise": _start_rise(runs, profile)},
    }
    for shape, found in made.items():
        there = {name: one for name, one in found.items() if one is not None}
        if there:
            yield Derived(
                {"shape": shape, "profile": profile},
                {name: one.mean for name, one in there.items()},
                min(one.count for one in there.values()),
                {name: one.half for name, one in there.items()},
            )


def _apart(found: Estimate, expected: float = 0.0) -> Estimate:
    """How far it is off, either way."""
    return replace(found, mean=abs(found.mean - expected))


def _most(found: Iterable[Estimate]) -> Estimate | None:
    """The one with the largest mean."""
    return max(found, key=lambda one: one.mean, default=None)


def _range_off(runs: Runs, profile: str) -> Estimate | None:
    """How far the smallest and the largest share of packets with several messages are from 3 and 19 %."""
    shares = [
        share
        for nodes in runs.sizes(profile, AGGREGATION)
        if nodes >= 16 and (share := runs.mean("aggregated_percent", profile, nodes, AGGREGATION))
    ]
    if not {16, 1024} <= set(runs.sizes(profile, AGGREGATION)):
        return None
    low, high = SEVERAL_PERCENT
    least, most = (choose(shares, key=lambda one: one.mean) for choose in (min, max))
    return _most((_apart(least, low), _apart(most, high)))


def _dependencies_apart(runs: Runs, profile: str) -> Estimate | None:
    """The largest difference of a bar of Figure 6 with aggregation and without, in points, seed by seed."""
    lows = (0, *(edge + 1 for edge in DEPENDENCY_EDGES[:-1]))
    if 256 not in runs.sizes(profile, AGGREGATION, PLAIN):
        return None
    apart = (runs.differences(f"dependencies_from_{low}", profile, 256, PLAIN, AGGREGATION) for low in lows)
    return _most(_apart(estimate(values)) for values in apart if values)


def _logarithmic(runs: Runs, profile: str) -> Estimate | None:
    """R² of reception latency over log2 N less that over N, up to 512 nodes, with aggregation: by seed."""
    by_seed: dict[int, list[tuple[int, float]]] = {}
    sizes = [nodes for nodes in runs.sizes(profile, AGGREGATION) if nodes <= SMALL_MAX]
    for nodes in sizes:
        for seed, value in runs.of_part("reception_ut", profile, nodes, AGGREGATION, MAIN).items():
            by_seed.setdefault(seed, []).append((nodes, value))
    if len(sizes) < SIZES_MIN:
        return None
    better = []
    for points in by_seed.values():
        if len(points) == len(sizes):
            y = [value for _, value in points]
            straight = _share([float(nodes) for nodes, _ in points], y)
            better.append(_share([log2(nodes) for nodes, _ in points], y) - straight)
    return estimate(better) if better else None


def _share(x: Sequence[float], y: Sequence[float]) -> float:
    """R² of the straight line through the points."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    both = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return both * both / sum((a - mean_x) ** 2 for a in x) / sum((b - mean_y) ** 2 for b in y)


def _largest_change(runs: Runs, profile: str, measure: str) -> Estimate | None:
    """By how many percent aggregation changes it at most, either way, up to 512 nodes."""
    return _most(
        _apart(found)
        for nodes in runs.sizes(profile, AGGREGATION, PLAIN)
        if nodes <= SMALL_MAX and (found := runs.change(measure, profile, nodes, PLAIN, AGGREGATION))
    )


def _largest_pair_change(runs: Runs, profile: str, what: str, *, absolute: bool) -> Estimate | None:
    """Of messages in packets of two against the same alone: the largest change, in %, 16 to 512 nodes."""
    return _most(
        _apart(found) if absolute else found
        for nodes in runs.paired_sizes(profile)
        if 16 <= nodes <= SMALL_MAX
        and (found := runs.within(profile, nodes, AGGREGATION, f"pair_plain_{what}_ut", f"pair_{what}_ut"))
    )


def _least_fewer(runs: Runs, profile: str, measure: str) -> Estimate | None:
    """By how many percent a single tree has fewer, the least of the sizes with enough of them."""
    fewer = (
        replace(found, mean=-found.mean)
        for nodes in runs.sizes(profile, AGGREGATION, SINGLE)
        if sum(runs.column(measure, profile, nodes, AGGREGATION, more=True)) >= ENOUGH_MESSAGES
        and (found := runs.change(measure, profile, nodes, AGGREGATION, SINGLE, more=True))
    )
    return min(fewer, key=lambda one: one.mean, default=None)


def _root(runs: Runs, profile: str) -> Estimate | None:
    """Reception over a single tree as a multiple of that over many: the smallest step from 128 nodes on.

    The first step is from 1, which is as fast. The smallest is the one whose interval reaches lowest.
    """
    ratios: list[Estimate] = []
    for nodes in runs.sizes(profile, PLAIN, SINGLE):
        slower = runs.change("reception_ut", profile, nodes, PLAIN, SINGLE)
        if nodes >= ROOT_FROM and slower is not None:
            half = None if slower.half is None else slower.half / 100
            ratios.append(Estimate(1 + slower.mean / 100, half, slower.count))
    as_fast = [replace(one, mean=1.0, half=0.0) for one in ratios[:1]]
    steps = (step(before, after) for before, after in pairwise(as_fast + ratios))
    return min(steps, key=lambda one: one.low, default=None)


def _start_rise(runs: Runs, profile: str) -> Estimate | None:
    """How much later, in u.t., receptions of the last tenth of the window are than those of the first:
    over a single tree, less the same over many, seed by seed."""
    nodes = 1024
    first, last = (
        runs.differences(f"reception_start_{part}_ut", profile, nodes, PLAIN, SINGLE)
        for part in (0, WINDOW_PARTS - 1)
    )
    return estimate([late - early for early, late in zip(first, last, strict=True)]) if last else None


def _setup(results: Results) -> Iterator[Derived]:
    """The parameters of section 5 that all runs of a reading share, in the paper's units."""
    for profile in results.values("profile"):
        rows = [row for row in results.select(profile=profile, part=MAIN) if row.parameters]
        if not rows:
            continue
        link = rows[0].parameters["link"]
        labels: dict[str, Label] = {"shape": "setup", "profile": profile}
        measures = {
            "largest_group": max(int(row.labels["nodes"]) for row in rows),
            "propagation_deviation_ut": link["delay"]["deviation_us"] / 1000,
            "processing_ut": link["process_us"] / 1000,
        }
        yield Derived(labels, measures, len(rows))


# How a run is made and counted: in the kernel, with two measures more than the kernel's own.
#
#     pair_*             Figure 8: the copies that came in packets of two messages, and the same copies in
#                        the same scenario without aggregation
#     *_by_start         Figure 1: reception by the time of the broadcast, the window cut into ten parts
#
# Spark's workers import this module.


PAIRED_BYTES = 50  # Figure 8 is about messages of this size only; a second simulation is not free
TRAIL = {"trail": True}


def run_point(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """Run a scenario of the study and write its trace and all its measures."""
    return run(scenario, folder, level=level, kernel="always", keep=TRAIL, measure=measure)


def run_alone(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """Run one whose trail would not fit, or of which Figures 1 and 8 say nothing: only the kernel counts."""
    return run(scenario, folder, level=level, kernel="always")


def measure(outcome: Outcome) -> dict[str, Value]:
    """Return what is counted besides the kernel's own measures."""
    scenario = outcome.scenario
    further = by_start(outcome)
    is_paired = any(load.payload_bytes == PAIRED_BYTES for load in scenario.workloads)
    if is_paired and scenario.params["aggregate"] and scenario.params["tree"] == "source":
        plain = msgspec.structs.replace(scenario, params={**scenario.params, "aggregate": False})
        other = run(plain, level=Level.MEASURES, kernel="always", keep=TRAIL)
        further |= pairs(_trail(outcome), _trail(other))
        further["larger_than_plain"] = larger(outcome.measures, other.measures)
    return further


def larger(aggregated: Mapping[str, Any], plain: Mapping[str, Any]) -> int:
    """Packets that are larger than every one without aggregation."""
    most = max(map(int, plain["packets_by_bytes"]))
    return sum(count for size, count in aggregated["packets_by_bytes"].items() if int(size) > most)


def pairs(aggregated: Trail, plain: Trail) -> dict[str, Value]:
    """Sums over the copies that came in packets of two: with aggregation, and the same ones without."""
    chosen = aggregated.together == 2
    sums = {"pair_copies": int(np.count_nonzero(chosen))}
    for prefix, trail in (("pair", aggregated), ("pair_plain", plain)):
        reception_us, delivery_us = _latencies(trail)
        sums[f"{prefix}_reception_us"] = int(reception_us[chosen].sum())
        sums[f"{prefix}_delivery_us"] = int(delivery_us[chosen].sum())
    return dict(sums)


def by_start(outcome: Outcome) -> dict[str, Value]:
    """Receptions and the sum of their latencies, by the part of the window in which the broadcast was."""
    trail = _trail(outcome)
    # A copy at its own origin has no reception, but in the single tree, which brings it back.
    remote = np.arange(trail.received_us.shape[0])[:, None] != trail.origin[None, :]
    part = np.minimum(
        trail.broadcast_us * WINDOW_PARTS // outcome.scenario.stop.duration_us, WINDOW_PARTS - 1
    )
    sums_us = np.where(remote, _latencies(trail)[0], 0).sum(axis=0)
    return {
        "receptions_by_start": np.bincount(part, remote.sum(axis=0), WINDOW_PARTS).astype(np.int64).tolist(),
        "reception_us_by_start": np.bincount(part, sums_us, WINDOW_PARTS).astype(np.int64).tolist(),
    }


def _latencies(trail: Trail) -> tuple[Any, Any]:
    return trail.received_us - trail.broadcast_us, trail.delivered_us - trail.broadcast_us


def _trail(outcome: Outcome) -> Trail:
    trail: Trail | None = getattr(outcome.detail, "trail", None)
    if trail is None:
        raise MisuseError("study vcube", f"no kernel ran it: {outcome.why}", "Run what a kernel can run")
    return trail
