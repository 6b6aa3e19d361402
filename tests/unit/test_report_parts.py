"""Numbers for people, plots, the space-time diagram, shared parameters."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from support.made_up_study import WITNESS, made_up_result
from whence.report import format as fmt
from whence.report import html as parameters
from whence.report import plots, spacetime
from whence.studies.base import Figure, Panel, Series
from whence.studies.results import Estimate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "∞"),
        (0, "0"),
        (0.0, "0"),
        (25.0, "25"),
        (1234567, "1,234,567"),
        (12345.678, "12,346"),
        (123.456, "123.5"),
        (12.3456, "12.35"),
        (0.012345, "0.0123"),
        (-1.5, "−1.5"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert fmt.number(value) == text


@pytest.mark.parametrize(
    ("mean", "half", "texts"),
    [
        (5, 0.877, ("5.00", "0.88")),
        (92.4, 29.1, ("92", "29")),
        (-0.0741, 0.4077, ("−0.07", "0.41")),
        (12345.6, 1234.5, ("12,346", "1,234")),
        (0.012345, 0.00123, ("0.0123", "0.0012")),
        (0.22, 0.0999, ("0.22", "0.10")),
        (61.8, 0, ("61.8", "")),
        (61.8, None, ("61.8", "")),
    ],
)
def test_a_mean_has_no_more_digits_than_its_interval(
    mean: float, half: float, texts: tuple[str, str]
) -> None:
    assert fmt.with_interval(mean, half) == texts


def test_cells_seconds_plurals() -> None:
    assert [fmt.cell(value) for value in (True, False, "x", 1.5, None)] == ["yes", "no", "x", "1.5", "–"]
    assert [fmt.seconds(value) for value in (1.26, 65, 3725)] == ["1.3 s", "1 min 05 s", "1 h 02 min"]
    assert (fmt.plural(1, "run"), fmt.plural(1200, "run")) == ("1 run", "1,200 runs")


def test_shared_parameters_and_the_rest_make_the_whole() -> None:
    scenarios = [
        {"seed": 1, "link": {"delay": {"kind": "constant", "value_us": 5}}, "list": [1, {}], "params": {}},
        {"seed": 2, "link": {"delay": {"kind": "uniform", "low_us": 5}}, "list": [1, {}], "params": {}},
    ]
    common, own = parameters.split(scenarios)
    assert common == {"list.0": 1, "list.1": {}, "params": {}}
    assert own[0] == {"seed": 1, "link.delay.kind": "constant", "link.delay.value_us": 5}
    for scenario, rest in zip(scenarios, own, strict=True):
        assert common | rest == parameters.flatten(scenario)
    assert parameters.split([]) == ({}, [])
    assert parameters.assignments({"a.0": None, "b": "<x>", "c": 0.5}) == [
        "a.0 = null",
        'b = "<x>"',
        "c = 0.5",
    ]


def test_a_plot_follows_the_page() -> None:
    (first, second) = map(plots.svg, made_up_result().figures)
    assert "var(--series-1)" in first
    assert "currentColor" in first
    assert 'id="order-' in first
    assert 'id="latency-' in second
    assert not set(re.findall(r' id="([^"]*)"', first)) & set(re.findall(r' id="([^"]*)"', second))
    assert "font-family" not in first
    assert ">nodes</text>" in first  # text stays text


def test_the_alternative_text_has_the_numbers() -> None:
    text = plots.alternative(made_up_result().figures[0])
    assert "vector: 0 at 4, 0 at 8, 0 at 16, 0 at 32." in text
    assert "fifo: 0 at constant, 16 at exponential, 32 at pareto." in text


def test_too_many_series_are_refused() -> None:
    series = tuple(Series(str(at), (1.0,), (Estimate(1.0, None, 1),)) for at in range(plots.SERIES_MAX + 1))
    with pytest.raises(ValueError, match="7 series"):
        plots.svg(Figure("f", "F", "", (Panel("p", "x", "y", series),)))


def test_the_diagram_shows_every_event_and_rings_the_early_one() -> None:
    drawn = spacetime.svg(WITNESS)
    assert drawn.count('class="event broadcast') == 2
    assert drawn.count('class="event deliver') == 3
    assert drawn.count('class="lane"') == 3
    assert drawn.count('class="flight') == 3
    (ring,) = re.findall(r'class="wrong" cx="(\d+)" cy="(\d+)"', drawn)
    early = re.search(r'class="event deliver second" cx="(\d+)" cy="(\d+)"', drawn)
    assert early is not None
    assert ring == early.groups()
    places = re.findall(r'class="event \w+ \w+" cx="(\d+)"', drawn)
    assert list(map(int, places)) == sorted(map(int, places))  # time goes to the right


def test_marks_at_one_time_share_a_column() -> None:
    marks = tuple(replace(mark, time_us=5) for mark in WITNESS.marks)
    drawn = spacetime.svg(replace(WITNESS, marks=marks))
    assert len(set(re.findall(r'class="event \w+ \w+" cx="(\d+)"', drawn))) == 1
