"""Questions to the runs of the VCube study, by profile, group size and mode; fast for thousands of runs."""

from __future__ import annotations

from whence.studies.results import Estimate, Results, Row, estimate, percent_change

MAIN, MORE = "main", "figure 11"  # the paper's runs; those that only Figure 11 counts besides
LARGE, SEVERAL = "large", "several messages"  # beyond the paper
DEPENDENCY_EDGES = (0, *range(4, 80, 5))  # Figure 6: 0; 1 to 4; 5 to 9; ...
# With fewer aggregated or delayed messages in all runs together, Figure 11's percentages are mostly chance: a
# run of 16 nodes has about 15, so that 30 runs are too few and 300 enough.
ENOUGH_MESSAGES = 1_000
MAIN_PROFILES = ("R0", "R1")  # these are shown everywhere, the further readings in one table
COPIES_MIN = 30  # messages in packets of two, in all runs of a point


class Runs:
    """The runs by coordinates. `more` takes in those that Figure 11 has besides."""

    def __init__(self, results: Results) -> None:
        self.profiles = [str(profile) for profile in results.values("profile")]
        self.main = [name for name in self.profiles if name in MAIN_PROFILES]
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

    def part_sizes(self, profile: str, part: str, mode: str) -> list[int]:
        """The group sizes of another part, in one mode."""
        return [nodes for nodes in self.all_sizes if (profile, nodes, mode, part) in self._rows]

    def of_part(self, measure: str, profile: str, nodes: int, mode: str, part: str) -> dict[int, float]:
        """One measure of the runs of another part, by seed; absent values are left out."""
        found = self._rows.get((profile, nodes, mode, part), {})
        values = ((seed, row.measures.get(measure)) for seed, row in found.items())
        return {seed: value for seed, value in values if value is not None}

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
