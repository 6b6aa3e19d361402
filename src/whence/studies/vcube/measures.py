"""From what the kernel counted in one run to the numbers that the paper's tables and figures show.

Times are in the paper's unit: one u.t. is 1,000 microseconds. A measure that needs a copy or a packet of
which the run has none is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from whence.errors import MisuseError
from whence.kernels.vcube.kernel import Trail
from whence.lab.run import run
from whence.sim.model import Scenario
from whence.sim.outcome import Outcome
from whence.studies.estimate import Estimate, estimate, percent_change
from whence.studies.results import Derived, Results, Row
from whence.trace.measures import Value
from whence.trace.schema import Level

UNIT_US = 1_000  # of one u.t.
WINDOW_PARTS = 10  # Figure 1: the window in which nodes broadcast, cut into equal parts
MESSAGES_SHOWN = 5  # Table 2 tells packets of 1 to 5 messages apart
BYTES_EDGES = (100, 200, 300, 400)  # Table 3
DEPENDENCY_EDGES = (0, *range(4, 80, 5))  # Figure 6: 0; 1 to 4; 5 to 9; ...
BUFFER_EDGES = tuple(range(25, 301, 25))  # Figure 9
LARGEST_MAX = 22  # Figure 10


def derive(counted: Mapping[str, Any], nodes: int) -> dict[str, float | None]:
    """Every number of one run; `counted` is its measures.json."""
    packets, copies = counted["packets"], counted["deliveries"]
    return {
        "packets": packets,
        "reduction_percent": 100 * (1 - packets / (nodes * (nodes - 1))),
        "aggregated_percent": _percent(counted["aggregated_packets"], packets),
        "aggregated_messages": counted["aggregated_messages"],
        "delayed_messages": counted["delayed"],
        "undelivered": counted["messages"] * (nodes - 1) - copies,
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
    return found


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
    return found


def _starts(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Figure 1."""
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


def derived(results: Results) -> Iterator[Derived]:
    """Figure 9's tail: the nodes of a run that ever buffer more than 250 messages."""
    for row in results.select(part=MAIN):
        kept = row.measures.get("nodes_buffering_at_most_250")
        if kept is not None:
            over = int(row.labels["nodes"]) - kept
            yield Derived({**row.labels, "part": "buffers"}, {"nodes_buffering_over_250": over})


# Questions to the runs of the VCube study, by profile, group size and mode; fast for thousands of runs.


MAIN, MORE = "main", "figure 11"  # the paper's runs; those that only Figure 11 counts besides
COPIES_MIN = 30  # messages in packets of two, in all runs of a point


class Runs:
    """The runs by coordinates. `more` takes in those that Figure 11 has besides."""

    def __init__(self, results: Results) -> None:
        self.profiles = [str(profile) for profile in results.values("profile")]
        self.all_sizes = sorted(int(nodes) for nodes in results.values("nodes"))
        self._rows: dict[tuple[str, int, str, str], dict[int, Row]] = {}
        for row in results.rows:
            labels = row.labels
            place = (str(labels["profile"]), int(labels["nodes"]), str(labels["mode"]), str(labels["part"]))
            self._rows.setdefault(place, {})[int(labels["seed"])] = row

    def sizes(self, profile: str, *modes: str) -> list[int]:
        """The group sizes that were run in all these modes."""
        return [
            nodes
            for nodes in self.all_sizes
            if all((profile, nodes, mode, MAIN) in self._rows for mode in modes)
        ]

    def at_size(self, profile: str, wanted: int, *modes: str) -> int | None:
        """The size that the paper shows, or the largest that was run: a small scale has a figure too."""
        sizes = self.sizes(profile, *modes)
        return wanted if wanted in sizes else max(sizes, default=None)

    def paired_sizes(self, profile: str) -> list[int]:
        """The group sizes with enough messages in packets of two for a mean (Figure 8)."""
        return [
            nodes
            for nodes in self.sizes(profile, "aggregation")
            if sum(self.column("pair_copies", profile, nodes, "aggregation")) >= COPIES_MIN
        ]

    def rows(self, profile: str, nodes: int, mode: str, *, more: bool = False) -> dict[int, Row]:
        """The runs of one point by seed."""
        main = self._rows.get((profile, nodes, mode, MAIN), {})
        return main | self._rows.get((profile, nodes, mode, MORE), {}) if more else main

    def column(self, measure: str, profile: str, nodes: int, mode: str, *, more: bool = False) -> list[float]:
        """One measure of the runs of one point; absent values are left out."""
        found = (row.measures.get(measure) for row in self.rows(profile, nodes, mode, more=more).values())
        return [value for value in found if value is not None]

    def mean(
        self, measure: str, profile: str, nodes: int, mode: str, *, more: bool = False
    ) -> Estimate | None:
        """Mean and interval over the runs of one point."""
        values = self.column(measure, profile, nodes, mode, more=more)
        return estimate(values) if values else None

    def change(
        self, measure: str, profile: str, nodes: int, before: str, after: str, *, more: bool = False
    ) -> Estimate | None:
        """By how many percent the mean is larger in mode `after` than in `before`, seed by seed."""
        first, second = self._paired(measure, profile, nodes, before, after, more)
        return percent_change(first, second)

    def within(self, profile: str, nodes: int, mode: str, before: str, after: str) -> Estimate | None:
        """By how many percent the mean of one measure of the runs is larger than that of another."""
        pairs = [
            (first, second)
            for row in self.rows(profile, nodes, mode).values()
            if (first := row.measures.get(before)) is not None
            and (second := row.measures.get(after)) is not None
        ]
        return percent_change([first for first, _ in pairs], [second for _, second in pairs])

    def differences(self, measure: str, profile: str, nodes: int, before: str, after: str) -> list[float]:
        """after - before, seed by seed."""
        first, second = self._paired(measure, profile, nodes, before, after, more=False)
        return [late - early for early, late in zip(first, second, strict=True)]

    def _paired(
        self, measure: str, profile: str, nodes: int, before: str, after: str, more: bool
    ) -> tuple[list[float], list[float]]:
        late_rows = self.rows(profile, nodes, after, more=more)
        first, second = [], []
        for seed, row in self.rows(profile, nodes, before, more=more).items():
            early = row.measures.get(measure)
            late = late_rows[seed].measures.get(measure) if seed in late_rows else None
            if early is not None and late is not None:
                first.append(early)
                second.append(late)
        return first, second


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


def measure(outcome: Outcome) -> dict[str, Value]:
    """Return what is counted besides the kernel's own measures."""
    scenario = outcome.scenario
    further = by_start(outcome)
    is_paired = any(load.payload_bytes == PAIRED_BYTES for load in scenario.workloads)
    if is_paired and scenario.params["aggregate"] and scenario.params["tree"] == "source":
        plain = msgspec.structs.replace(scenario, params={**scenario.params, "aggregate": False})
        other = run(plain, level=Level.MEASURES, kernel="always", keep=TRAIL)
        further |= pairs(_trail(outcome), _trail(other))
    return further


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
