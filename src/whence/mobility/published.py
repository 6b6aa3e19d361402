"""Tables I and IV of paper 001, beside which the statistics of generated plans are set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from whence.overlay.contact_statistics import PlanSpread, PlanStatistics
from whence.overlay.contacts import ContactPlan

TOLERANCE = 0.10  # what a generated scenario is held to, but for the excepted figures


class PublishedFigure(NamedTuple):
    """One number of a table."""

    name: str
    published: float
    of: Callable[[PlanStatistics], float]
    excepted: str = ""  # why it is not held to the tolerance, if so


class ComparedPlan(NamedTuple):
    """A published number and the mean of ours."""

    name: str
    published: float
    ours: float
    least: float  # over the seeds
    greatest: float
    difference: float  # relative to the published one
    ok: bool
    excepted: str


def _spread(name: str, part: str) -> Callable[[PlanStatistics], float]:
    def of(statistics: PlanStatistics) -> float:
        found: PlanSpread | None = getattr(statistics, name)
        return 0.0 if found is None else float(getattr(found, part))

    return of


def _table(
    nodes: int, together: int, stay: Sequence[float], contacts: int, contact: Sequence[float], excepted: str
) -> tuple[PublishedFigure, ...]:
    parts = (("min", "least"), ("max", "greatest"), ("mean", "mean"), ("sd", "deviation"))
    return (
        PublishedFigure("nodes", nodes, lambda each: each.nodes),
        PublishedFigure("nodes at the same time, max", together, lambda each: each.present_max),
        *(
            PublishedFigure(f"stay of a node, {word}, s", value, _spread("stay_s", part))
            for (word, part), value in zip(parts, stay, strict=True)
        ),
        PublishedFigure("contacts", contacts, lambda each: each.contacts),
        *(
            PublishedFigure(
                f"contact, {word}, s", value, _spread("contact_s", part), excepted if word == "max" else ""
            )
            for (word, part), value in zip(parts, contact, strict=True)
        ),
    )


BUSES = _table(
    60,
    56,
    (1_560, 50_880, 39_480, 12_360),
    8_892,
    (1, 249, 84, 65),
    "two buses at the hub may follow each other",
)  # Table I
WALKERS = _table(
    2_092, 57, (7.8, 1_936, 325, 249), 14_807, (0.6, 492, 45, 39), "one of 15,000: it depends on the seed"
)  # Table IV
SCENARIOS = {"buses": BUSES, "walkers": WALKERS}


def generate(scenario: str, seed: int) -> ContactPlan:
    """The plan of a scenario of the paper."""
    if scenario == "buses":
        from whence.mobility.buses import bus_plan

        return bus_plan(seed)
    from whence.mobility.walkers import walker_plan

    return walker_plan(seed)


def compare(scenario: str, found: Sequence[PlanStatistics]) -> list[ComparedPlan]:
    """The statistics of several plans (one per seed) beside the published ones."""
    rows = []
    for figure in SCENARIOS[scenario]:
        values = [figure.of(each) for each in found]
        ours = sum(values) / len(values)
        difference = ours / figure.published - 1
        ok = abs(difference) <= TOLERANCE
        rows.append(
            ComparedPlan(
                figure.name, figure.published, ours, min(values), max(values), difference, ok, figure.excepted
            )
        )
    return rows
