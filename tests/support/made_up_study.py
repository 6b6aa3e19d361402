"""A study's result with invented numbers, for tests of the report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from whence.studies.base import Failure, Figure, Panel, StudyResult, Table
from whence.studies.claims import EXACT, Claim, Evidence, Relation, Tolerance
from whence.studies.cuts import lines
from whence.studies.results import Results, Row
from whence.studies.verdicts import Judged
from whence.studies.witness import Mark, Witness

KINDS = ("causal", "duplicate", "created", "fifo", "missing", "malformed")


def made_up_row(protocol: str, nodes: int, network: str, seed: int, **changes: Any) -> Row:
    """One run: a larger group and a wilder network cost more, and fifo breaks causal order there."""
    wild = {"constant": 0.0, "exponential": 1.0, "pareto": 2.0}[network]
    broken = int(wild * nodes * (3 + seed)) if protocol == "fifo" else 0
    counts = dict.fromkeys(KINDS, 0) | {"causal": broken} | changes.get("counts", {})
    return Row(
        run=f"{protocol[0]}{nodes:02d}{network[:3]}{seed}",
        labels={"protocol": protocol, "nodes": nodes, "network": network, "seed": seed},
        parameters={
            "protocol": protocol,
            "seed": seed,
            "topology": {"kind": "random-regular", "nodes": nodes, "degree": 4},
            "network": {"delay": {"kind": network, "mean_us": 50_000}},
            "params": {},
        },
        measures={
            "latency_ms": 40 + nodes + 10 * wild + (5 * wild if protocol == "vector" else 0) + seed,
            "violations": broken / 10,
            "bytes": 9 if protocol == "fifo" else 9 + nodes / 4 + seed / 10,
            "none": None,
        },
        verdict={"ok": changes.get("ok", True), "deliveries": 100 * nodes, "counts": counts, "findings": []},
    )


def made_up_results(
    sizes: Iterable[int] = (4, 8, 16, 32), networks: Iterable[str] = ("constant", "exponential", "pareto")
) -> Results:
    """Two protocols over the grid, three seeds each."""
    rows = [
        made_up_row(protocol, nodes, network, seed)
        for network in networks
        for nodes in sizes
        for protocol in ("fifo", "vector")
        for seed in (1, 2, 3)
    ]
    return Results(tuple(rows))


WITNESS = Witness(
    run="f08exp1",
    labels={"protocol": "fifo", "nodes": 8},
    node="n3",
    first="n0:2",
    second="n5:1",
    marks=(
        Mark("n0", 1_000, "n0:2", "broadcast"),
        Mark("n5", 21_500, "n0:2", "deliver"),
        Mark("n5", 22_000, "n5:1", "broadcast"),
        Mark("n3", 60_250, "n5:1", "deliver"),
        Mark("n3", 91_000, "n0:2", "deliver"),
    ),
    sentences=("n5 delivered n0:2 before it broadcast n5:1.", "n3 delivered n5:1 first."),
)


def _figure(results: Results, name: str, title: str, measure: str) -> Figure:
    sizes = lines(results, measure, "nodes", "protocol", network="exponential")
    networks = lines(results, measure, "network", "protocol", nodes=32)
    panels = (
        Panel("exponential delays", "nodes", title, sizes, x_log2=True),
        Panel("32 nodes", "network", title, networks),
    )
    return Figure(name, title, "Made up. Bars: 95 % intervals.", panels)


def _table(results: Results) -> Table:
    sizes = (4, 8, 16, 32)
    rows = tuple(
        (net, p, *(results.estimate("violations", protocol=p, network=net, nodes=n) for n in sizes))
        for net in ("constant", "exponential", "pareto")
        for p in ("fifo", "vector")
    )
    columns = ("network", "protocol", *(f"{nodes} nodes" for nodes in sizes))
    return Table("order", "Violations per 1,000 deliveries", columns, rows, "Made up.")


def judged(
    text: str,
    expected: float,
    measured: float | None,
    source: str = "a test",
    tolerance: Tolerance = EXACT,
    relation: Relation = Relation.EQUAL,
    *,
    unit: str = "",
    demanded: bool = True,
) -> Judged:
    """A claim with what was measured of it."""
    claim = Claim(text, text, expected, source, "x", unit=unit, relation=relation, tolerance=tolerance)
    return Judged(replace(claim, evidence=Evidence.INVARIANT, demanded=demanded), expected, measured)


JUDGED = (
    judged("packets per broadcast, 8 nodes", 25, 25.0, "n d - (n - 1)", unit="packets"),
    judged("fifo violations", 1, 312, "it must be caught", relation=Relation.AT_LEAST),
    judged("latency", 50, 61.25, "paper, table 3", Tolerance(relative=0.1), unit="ms"),
    judged("not known", 50, None, "paper, figure 2", demanded=False),
    Judged(Claim("r", "reduction", 7.4, "Table 1", "x", unit="%", rounding=0.05), 7.4, 7.42),
    Judged(Claim("g", "growth", 2.1, "Figure 7", "x", refuted="hops alone grow by 2.9"), 2.1, 3.2),
)


def made_up_result(**changes: Any) -> StudyResult:
    """A whole result; `changes` replace its fields."""
    results = changes.pop("results", made_up_results())
    fields: dict[str, Any] = {
        "name": "made-up",
        "title": "What causal order costs, and what it saves",
        "paper": "nobody, 2024",
        "summary": "FIFO against vector clocks, in invented numbers.",
        "scale": "demo",
        "scale_text": "4 sizes, 3 networks, 3 seeds",
        "results": results,
        "failures": (Failure("bad", {"protocol": "fifo", "nodes": 4}, "Traceback: <boom> & more"),),
        "headline": Table("glance", "At a glance", ("protocol", "best"), (("fifo", 1), ("vector", 2))),
        "tables": (_table(results),),
        "figures": (
            _figure(results, "order", "violations per 1,000 deliveries", "violations"),
            _figure(results, "latency", "delivery latency, ms", "latency_ms"),
        ),
        "judged": JUDGED,
        "findings": ("FIFO broke causality 1,234 times.", "Vector never did."),
        "witness": WITNESS,
        "command": "whence study vcube --scale demo",
        "environment": {"whence": "0.1.0", "python": "3.11", "commit": None},
        "seconds": {"sweep": 12.5, "verify": 3.25},
    }
    return StudyResult(**{**fields, **changes})
