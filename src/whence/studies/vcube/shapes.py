"""What claims of paper 000 say of several group sizes together: ranges, growth, the least and the most.

A shape that this scale has no runs for is left out. Shapes are of means over the seeds, without intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log2

from whence.studies.results import Derived, Label, Results
from whence.studies.vcube.runs import DEPENDENCY_EDGES, ENOUGH_MESSAGES, MAIN, Runs

SMALL_MAX = 512  # nodes: up to here aggregation is said to cost nothing
ROOT_FROM = 128  # nodes: from here on the root of a single tree is a bottleneck
SIZES_MIN = 3  # of a line
AGGREGATION, PLAIN, SINGLE = "aggregation", "plain", "single tree"
SEVERAL_PERCENT = (3, 19)  # section 5.1: between these, over all sizes from 16 on


def shapes(runs: Runs, profile: str) -> Iterator[Derived]:
    """Every shape of one reading, each under a label of its own."""
    made = {
        "range": {"several_range_off": _range_off(runs, profile)},
        "dependencies": {"dependencies_apart": _dependencies_apart(runs, profile)},
        "growth": {"log_fit_better": _logarithmic(runs, profile)},
        "delivery": {"delivery_apart": _largest_change(runs, profile, "delivery_ut")},
        "pairs": {
            "pair_delivery_apart": _pairs(runs, profile, "delivery", absolute=True),
            "pair_reception_most": _pairs(runs, profile, "reception", absolute=False),
        },
        "single": {
            "aggregated_fewer_least": _least_fewer(runs, profile, "aggregated_messages"),
            "delayed_fewer_least": _least_fewer(runs, profile, "delayed_messages"),
            "root_step_least": _root(runs, profile),
        },
        "starts": {"start_rise": _start_rise(runs, profile)},
    }
    for shape, measures in made.items():
        there = {name: value for name, value in measures.items() if value is not None}
        if there:
            yield Derived({"shape": shape, "profile": profile}, there, _repetitions(runs, profile))


def _repetitions(runs: Runs, profile: str) -> int:
    """The number of runs behind the means: the least of all sizes."""
    return min(
        (len(runs.rows(profile, nodes, AGGREGATION)) for nodes in runs.sizes(profile, AGGREGATION)), default=0
    )


def _mean(runs: Runs, measure: str, profile: str, nodes: int, mode: str) -> float | None:
    found = runs.mean(measure, profile, nodes, mode)
    return None if found is None else found.mean


def _range_off(runs: Runs, profile: str) -> float | None:
    """How far the smallest and the largest share of packets with several messages are from 3 and 19 %."""
    shares = [
        share
        for nodes in runs.sizes(profile, AGGREGATION)
        if nodes >= 16 and (share := _mean(runs, "aggregated_percent", profile, nodes, AGGREGATION))
    ]
    if not {16, 1024} <= set(runs.sizes(profile, AGGREGATION)):
        return None
    low, high = SEVERAL_PERCENT
    return max(abs(min(shares) - low), abs(max(shares) - high))


def _dependencies_apart(runs: Runs, profile: str) -> float | None:
    """The largest difference of a bar of Figure 6 with aggregation and without, in points."""
    lows = (0, *(edge + 1 for edge in DEPENDENCY_EDGES[:-1]))
    if 256 not in runs.sizes(profile, AGGREGATION, PLAIN):
        return None
    apart = []
    for low in lows:
        kept, plain = (
            _mean(runs, f"dependencies_from_{low}", profile, 256, mode) for mode in (AGGREGATION, PLAIN)
        )
        if kept is not None and plain is not None:
            apart.append(abs(kept - plain))
    return max(apart, default=None)


def _logarithmic(runs: Runs, profile: str) -> float | None:
    """R² of reception latency over log2 N less that over N, up to 512 nodes, with aggregation."""
    points = [
        (nodes, value)
        for nodes in runs.sizes(profile, AGGREGATION)
        if nodes <= SMALL_MAX and (value := _mean(runs, "reception_ut", profile, nodes, AGGREGATION))
    ]
    if len(points) < SIZES_MIN:
        return None
    y = [value for _, value in points]
    return _share([log2(nodes) for nodes, _ in points], y) - _share([float(nodes) for nodes, _ in points], y)


def _share(x: Sequence[float], y: Sequence[float]) -> float:
    """R² of the straight line through the points."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    both = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return both * both / sum((a - mean_x) ** 2 for a in x) / sum((b - mean_y) ** 2 for b in y)


def _largest_change(runs: Runs, profile: str, measure: str) -> float | None:
    """By how many percent aggregation changes it at most, either way, up to 512 nodes."""
    changes = [
        abs(found.mean)
        for nodes in runs.sizes(profile, AGGREGATION, PLAIN)
        if nodes <= SMALL_MAX and (found := runs.change(measure, profile, nodes, PLAIN, AGGREGATION))
    ]
    return max(changes, default=None)


def _pairs(runs: Runs, profile: str, what: str, *, absolute: bool) -> float | None:
    """Of messages in packets of two against the same alone: the largest change, in %, 16 to 512 nodes."""
    changes = [
        abs(found.mean) if absolute else found.mean
        for nodes in runs.paired_sizes(profile)
        if 16 <= nodes <= SMALL_MAX
        and (found := runs.within(profile, nodes, AGGREGATION, f"pair_plain_{what}_ut", f"pair_{what}_ut"))
    ]
    return max(changes, default=None)


def _least_fewer(runs: Runs, profile: str, measure: str) -> float | None:
    """By how many percent a single tree has fewer, the least of the sizes with enough of them."""
    fewer = [
        -found.mean
        for nodes in runs.sizes(profile, AGGREGATION, SINGLE)
        if sum(runs.column(measure, profile, nodes, AGGREGATION, more=True)) >= ENOUGH_MESSAGES
        and (found := runs.change(measure, profile, nodes, AGGREGATION, SINGLE, more=True))
    ]
    return min(fewer, default=None)


def _root(runs: Runs, profile: str) -> float | None:
    """Reception over a single tree as a multiple of that over many: the smallest step from 128 nodes on."""
    ratios = []
    for nodes in runs.sizes(profile, PLAIN, SINGLE):
        one, many = (_mean(runs, "reception_ut", profile, nodes, mode) for mode in (SINGLE, PLAIN))
        if nodes >= ROOT_FROM and one and many:
            ratios.append(one / many)
    return (
        min((after - before for before, after in pairwise([1.0, *ratios])), default=None) if ratios else None
    )


def _start_rise(runs: Runs, profile: str) -> float | None:
    """How much later, in u.t., receptions of the last tenth of the window are than those of the first:
    over a single tree, less the same over many."""
    nodes = 1024
    if nodes not in runs.sizes(profile, PLAIN, SINGLE):
        return None
    rises = []
    for mode in (SINGLE, PLAIN):
        first, last = (_mean(runs, f"reception_start_{part}_ut", profile, nodes, mode) for part in (0, 9))
        if first is None or last is None:
            return None
        rises.append(last - first)
    return rises[0] - rises[1]


def setup(results: Results) -> Iterator[Derived]:
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
