"""Axes of the report's plots: logarithmic, below zero, and points that nothing joins."""

from __future__ import annotations

import re

from support.made_up_study import judged
from whence.report import html, plots
from whence.studies.base import Figure, Panel, Series, Table
from whence.studies.results import Estimate


def drawn(*series: Series, y_log: bool = False, panels: int = 1) -> str:
    panel = Panel("a panel", "x", "y", series, y_log=y_log)
    return plots.svg(Figure("figure", "A figure", "A caption", (panel,) * panels))


def line(*means: float, joined: bool = True, label: str = "series") -> Series:
    return Series(
        label,
        tuple(range(10, 10 + 10 * len(means), 10)),
        tuple(Estimate(mean, 5.0, 3) for mean in means),
        joined=joined,
    )


def labels(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    svg = drawn(line(1, 20, 300), y_log=True)
    assert "mathdefault" not in svg
    assert {"1", "10", "100"} <= set(labels(svg))


def test_an_interval_down_to_zero_does_not_stretch_a_logarithmic_axis() -> None:
    shown = {text for text in labels(drawn(line(2, 20, 300), y_log=True)) if text.startswith("0.")}
    assert shown == set()


def test_labels_of_sizes_do_not_overlap() -> None:
    sizes = (16, 25, 36, 49, 64, 81, 100, 121, 144, 150)
    series = Series("series", sizes, (Estimate(1.0, None, 1),) * len(sizes))
    svg = plots.svg(Figure("f", "F", "C", (Panel("a panel", "x", "y", (series,), x_log2=True),)))
    shown = [text for text in labels(svg) if text.isdigit() and int(text) in sizes]
    assert shown == [str(size) for size in sizes if size != 144]


def test_what_is_below_zero_is_on_the_plot() -> None:
    assert any(text.startswith("\u2212") for text in labels(drawn(line(3, -4))))
    assert not any(text.startswith("\u2212") for text in labels(drawn(line(3, 4))))


def test_single_points_are_not_joined() -> None:
    """The line of a series is the only path with as many vertices as it has points, beside its markers."""
    joined, single = (drawn(line(30, 40, 50, joined=is_joined)) for is_joined in (True, False))
    path = re.compile(r'd="M [\d.]+ [\d.]+ \nL [\d.]+ [\d.]+ \nL [\d.]+ [\d.]+ \n"')
    assert len(path.findall(joined)) == len(path.findall(single)) + 1


def test_one_panel_is_as_large_as_one_of_two() -> None:
    assert "max-width: 600px" in drawn(line(1))
    assert "max-width: 1200px" in drawn(line(1), panels=2)


def test_columns_of_numbers_and_tables_of_words() -> None:
    table = Table("t", "t", ("name", "paper", "why"), (("a", None, "x"), ("b", 3.5, "y")))
    assert [html._of_numbers(at, table) for at in range(3)] == [False, True, False]
    assert not html._of_words(table)
    assert html._of_words(Table("t", "t", ("name", "why"), (("a", "x"),)))


def test_the_words_of_a_demand() -> None:
    right, wrong = (html._demand(judged("one", 1, value)) for value in (1, 2))
    assert (right["verdict"], right["tone"]) == ("holds", "good")
    assert (wrong["verdict"], wrong["tone"]) == ("fails", "bad")
    assert html._demand(judged("one", 1, 2, demanded=False))["tone"] == "warn"
