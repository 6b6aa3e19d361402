"""Tables beyond paper 000: larger groups, several messages a node, crashes."""

from __future__ import annotations

from whence.studies.base import Cell, Table
from whence.studies.results import Estimate, Label, estimate, percent_change
from whence.studies.vcube import words
from whence.studies.vcube.claims import AGGREGATION, CRASHES, PLAIN
from whence.studies.vcube.crashes import CASES
from whence.studies.vcube.runs import LARGE, MAIN, SEVERAL, Runs

PROFILE = "R0"
MEASURES = ("reduction_percent", "aggregated_percent", "dependencies_max", "largest_max")
COLUMNS = (
    *("packets saved, %", "with several messages, %", "most dependencies", "largest packet, messages"),
    *("delivery sooner with aggregation, %", "buffered at most"),
)


def tables(runs: Runs) -> list[Table]:
    """As many as were run."""
    return [_large(runs), _several(runs), _crashes(runs)]


def _mean(runs: Runs, measure: str, nodes: int, mode: str, part: str) -> Estimate | None:
    found = runs.of_part(measure, PROFILE, nodes, mode, part)
    return estimate(list(found.values())) if found else None


def _cells(runs: Runs, nodes: int, part: str) -> tuple[Cell, ...]:
    early, late = (runs.of_part("delivery_ut", PROFILE, nodes, mode, part) for mode in (AGGREGATION, PLAIN))
    seeds = [seed for seed in early if seed in late]
    change = percent_change([late[seed] for seed in seeds], [early[seed] for seed in seeds])
    sooner = None if change is None else Estimate(-change.mean, change.half, change.count)
    means = (_mean(runs, measure, nodes, AGGREGATION, part) for measure in MEASURES)
    return (*means, sooner, _mean(runs, "buffered_max", nodes, AGGREGATION, part))


def _large(runs: Runs) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for part in (MAIN, LARGE):
        for nodes in runs.part_sizes(PROFILE, part, AGGREGATION):
            if part == LARGE or nodes >= 512:
                count = len(runs.of_part("packets", PROFILE, nodes, AGGREGATION, part))
                rows.append((nodes, count, *_cells(runs, nodes, part)))
    title = "Groups beyond the paper's, under R0"
    shown = rows if runs.part_sizes(PROFILE, LARGE, AGGREGATION) else []
    return Table("large", title, ("nodes", "runs", *COLUMNS), tuple(shown), words.LARGE_NOTE)


def _several(runs: Runs) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for nodes in runs.part_sizes(PROFILE, SEVERAL, AGGREGATION):
        for part, name in ((MAIN, "one"), (SEVERAL, "four")):
            rows.append((nodes, name, *_cells(runs, nodes, part)))
    title = "Several messages a node, under R0"
    return Table("several", title, ("nodes", "messages a node", *COLUMNS), tuple(rows), words.SEVERAL_NOTE)


def _crashes(runs: Runs) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for nodes in runs.part_sizes(PROFILE, CRASHES, "no crash"):
        for case in CASES:
            measures = (
                *(
                    "first_knows_ut",
                    "all_know_ut",
                    "latency_before_ut",
                    "latency_during_ut",
                    "latency_after_ut",
                ),
                *("data_packets_per_broadcast", "tests_per_node_and_second", "survivors_missed"),
            )
            rows.append((nodes, case, *(_mean(runs, measure, nodes, case, CRASHES) for measure in measures)))
    columns: tuple[Label, ...] = (
        *("nodes", "case", "first knows after, u.t.", "all know after, u.t."),
        *("latency before, u.t.", "until all know", "after", "packets a broadcast", "tests", "missed"),
    )
    title = "Crashes: detection, latency, packets"
    return Table("crashes", title, tuple(map(str, columns)), tuple(rows), words.CRASHES_NOTE)
