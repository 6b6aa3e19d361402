"""Paper 003: PRC-broadcast. Figures 5a and 5b, Table 1 measured, and the frontier to vector and barrier.

Four parts. `hour`: the paper's experiment, in the kernel. `growth`: the protocols of Table 1 on static links,
counted, along the number of processes, the degree and the messages in transit. `opening`: PRC and preventive
broadcast with their cores while links open and close, recorded and judged by the verifier. `frontier`: what
PRC, vector clocks and causal barriers cost as broadcasts become more frequent. docs/studies-prc.md says how
the paper is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from whence.errors import missing_extra
from whence.studies.base import Figure, Point, Study, Table
from whence.studies.claims import Claim
from whence.studies.prc import measures, page
from whence.studies.prc.claims import CLAIMS
from whence.studies.prc.runs import (
    BASELINES,
    FLOODING,
    FRONTIER,
    FRONTIER_DELAY_MS,
    GROWTH,
    HOUR,
    OPENING,
    RECEIPTS_MAX,
    SCALES,
    Base,
    Scale,
    hour,
    labels,
    opening,
    rate_run,
    static,
)
from whence.studies.results import Derived, Results, Row

if TYPE_CHECKING:
    from whence.lab.attempts import Runner


class PrcStudy(Study):
    """PRC-broadcast beside vector clocks and causal barriers."""

    name: ClassVar[str] = "prc"
    title: ClassVar[str] = "PRC-broadcast: causal order with a memory of what is in transit only"
    paper: ClassVar[str] = "paper 003, PRC-broadcast, section 3 (Figures 5a and 5b) and Table 1"
    summary: ClassVar[str] = (
        "An overlay changes all the time, and every message carries one number. What a process remembers is "
        "what it still expects over its links: it grows with delay, rate and degree, and ends at nothing. "
        "This page repeats the paper's hour, measures its Table 1 instead of quoting it, and shows where "
        "vector clocks or causal barriers cost less."
    )
    scales: ClassVar[Mapping[str, str]] = {name: scale.text for name, scale in SCALES.items()}
    claims: ClassVar[tuple[Claim, ...]] = CLAIMS

    def grid(self, scale: str) -> list[Point]:
        wanted = SCALES[scale]
        return [*_hours(wanted), *_growth(wanted), *_openings(wanted), *_frontier(wanted)]

    def preparation(self) -> Callable[[], None]:
        try:
            from whence.kernels.prc.kernel import warm_up
        except ImportError as error:
            raise missing_extra("study 'prc'", "numba", "lab") from error
        return warm_up

    def runner(self, task: str = "run") -> Runner:
        return measures.TASKS[task]

    def derive(self, row: Row) -> Mapping[str, float | None]:
        return measures.derive(row)

    def tables(self, results: Results) -> list[Table]:
        return page.tables(results)

    def figures(self, results: Results) -> list[Figure]:
        return page.figures(results)

    def derived(self, results: Results) -> Iterable[Derived]:
        return measures.derived(results)

    def headline(self, results: Results) -> Table:
        return page.hours(results)

    def findings(self, results: Results) -> list[str]:
        return page.findings(results)


def _hours(wanted: Scale) -> list[Point]:
    return [
        Point(labels(HOUR, "prc", Base(nodes, 0, 0, 10), seed), hour(nodes, seed))
        for nodes, seeds in wanted.hours.items()
        for seed in range(1, seeds + 1)
    ]


def _growth(wanted: Scale) -> list[Point]:
    """Lines along three axes through one base point, which they share."""
    base = wanted.base
    places = [base._replace(nodes=nodes) for nodes in wanted.nodes]
    places += [base._replace(degree=degree) for degree in wanted.degrees]
    places += [base._replace(delay_ms=delay_ms) for delay_ms in wanted.delays_ms]
    return [
        Point(
            labels(GROWTH, protocol, place, 1),
            static(protocol, *place, 1, "deliveries" if place == base else "measures"),
        )
        for place in dict.fromkeys(places)
        for protocol in BASELINES
    ]


def _openings(wanted: Scale) -> list[Point]:
    found = []
    for nodes in wanted.openers:
        for protocol in ("prc", "preventive"):
            for rate in (10, 40) if nodes == wanted.openers[-1] else (10,):
                is_small = nodes == wanted.openers[0]
                run = opening(protocol, nodes, rate, 1, "all" if is_small else "deliveries")
                found.append(
                    Point(labels(OPENING, protocol, Base(nodes, 0, FRONTIER_DELAY_MS, rate), 1), run)
                )
    return found


def _frontier(wanted: Scale) -> list[Point]:
    found = []
    for nodes in wanted.prc_nodes:
        for rate in wanted.rates:
            if rate * 40 * nodes * 15 <= RECEIPTS_MAX:
                place = Base(nodes, 0, FRONTIER_DELAY_MS, rate)
                found.append(Point(labels(FRONTIER, "prc", place, 1), rate_run(nodes, rate, 1)))
    for nodes, degree in wanted.flood_nodes.items():
        for rate in wanted.flood_rates:
            for protocol in FLOODING:
                place = Base(nodes, degree, FRONTIER_DELAY_MS, rate)
                found.append(
                    Point(labels(FRONTIER, protocol, place, 1), static(protocol, *place, 1, "measures"))
                )
    return found
