"""What a page says in words is what its runs show: other runs, other words. Runs as recorded at `demo`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from golden.recorded import recorded
from whence.studies import registry
from whence.studies.results import Results, Row

Change = Callable[[Row], dict[str, float | None]]


def told(name: str, begins: str, results: Results) -> str:
    """The sentence that begins so."""
    study = registry.lookup(name)
    whole = replace(results, derived=tuple(study.derived(results)))
    return next(sentence for sentence in study.findings(whole) if sentence.startswith(begins))


def with_other(name: str, change: Change, **labels: Any) -> Results:
    """The recorded runs; of some of them, measures are others."""

    def other(row: Row) -> Row:
        if any(row.labels.get(label) != at for label, at in labels.items()):
            return row
        return replace(row, measures={**row.measures, **change(row)})

    results = recorded(name)
    return replace(results, rows=tuple(other(row) for row in results.rows))


def times(measure: str, factor: float, row: Row) -> dict[str, float | None]:
    value = row.measures.get(measure)
    return {} if value is None else {measure: value * factor}


@pytest.mark.parametrize(("kept", "is_short"), [(1024, True), (1024 - 12, False), (1024 - 300, False)])
def test_the_tail_of_figure_9_is_short_where_it_is(kept: int, is_short: bool) -> None:
    results = with_other("vcube", lambda row: {"nodes_buffering_at_most_250": kept}, nodes=1024)
    said = told("vcube", "Of 1024 nodes", results)
    assert f"R0 {1024 - kept} and {1024 - kept}; the paper has 24 and 212" in said
    assert ("none of these readings has half" in said) == is_short


def test_delivery_is_sooner_later_or_neither() -> None:
    begins, at = "Up to 512 nodes", {"nodes": 1024, "mode": "aggregation", "part": "main"}
    assert "at 1024 nodes 15.5 % sooner (" in told("vcube", begins, recorded("vcube"))
    later = with_other("vcube", partial(times, "delivery_ut", 2), **at)
    assert "% later (" in told("vcube", begins, later)
    plain = {
        row.labels["seed"]: row.measure("delivery_ut")
        for row in recorded("vcube").select(**{**at, "mode": "plain"}, profile="R0")
    }
    even = {1: 1.05, 2: 0.95}  # of two seeds; the others are as without
    same = with_other(
        "vcube",
        lambda row: {"delivery_ut": plain[row.labels["seed"]] * even.get(int(row.labels["seed"]), 1.0)},
        **at,
    )
    assert "which is inside its interval (" in told("vcube", begins, same)


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((0.5, 0.5, 0.5), "50 ± 0 % less in the same runs"),
        ((1.5, 1.5, 1.5), "50 ± 0 % more in the same runs"),
        ((1.2, 0.8, 1.1), "inside its interval"),
    ],
)
def test_control_traffic_falls_only_beyond_the_interval(factors: tuple[float, ...], words: str) -> None:
    def late(row: Row) -> dict[str, float | None]:
        factor = factors[int(row.labels["seed"]) - 1]
        return {"control_late": row.measure("control_early") * factor, "control_end": 7.0}

    results = with_other("prc", late, part="hour", nodes=1000, profile="text")
    said = told("prc", "With 1,000 processes", results)
    assert words in said
    assert said.endswith("and is 7 once nobody shuffles.")


@pytest.mark.parametrize(("over", "looks_swapped"), [(40.0, True), (57.0, False)])
def test_the_shares_look_swapped_if_ours_is_the_other_one(over: float, looks_swapped: bool) -> None:
    at = {"part": "main", "plan": "walkers", "lifetime": 10, "mode": "published", "skew_s": 0, "rate": 8}
    measures = {"delay_over_5_min_percent": over, "delay_mean_s": 257.0, "delay_sd_s": 176.0, "expiries": 0.0}
    rows = tuple(Row(str(seed), {**at, "seed": seed}, {}, measures, {}) for seed in (1, 2))
    said = told("oppnet", "The paper says that 58 %", Results(rows))
    assert ("look swapped" in said) == looks_swapped


def test_a_lead_inside_its_interval_is_called_that() -> None:
    begins = "Our default delivers"
    assert "interval" not in told("deadline", begins, recorded("deadline"))
    odca = {
        (row.labels["reading"], row.labels["nodes"], row.labels["seed"]): row.measure("ratio")
        for row in recorded("deadline").select(part="main", variant="ODCA")
    }

    def as_good(row: Row) -> dict[str, float | None]:
        seed = int(row.labels["seed"])
        other = odca[row.labels["reading"], row.labels["nodes"], seed]
        return {"ratio": other + (0.01 if seed % 2 else -0.01)}

    results = with_other("deadline", as_good, part="main", variant="default")
    assert "(8 of the 8 differences are inside their interval)" in told("deadline", begins, results)


def test_the_rise_needs_no_further_loss_only_if_it_is_there() -> None:
    begins = "With 5 % of loss"
    assert told("deadline", begins, recorded("deadline")).endswith("it needs no further loss.")
    flat = with_other("deadline", lambda row: {"ratio": 0.9}, part="map")
    assert told("deadline", begins, flat).endswith("goes up to 0 % as delays spread over the deadlines.")


def test_being_one_of_many_costs_nothing_only_if_it_does() -> None:
    begins = "The clock work of a message"
    assert "costs nothing" in told("domains", begins, recorded("domains"))
    results = with_other("domains", lambda row: {"work": float(row.labels["nodes"])}, part="cost")
    assert "costs nothing" not in told("domains", begins, results)
