"""The report page: complete, escaped, self-contained, the same for the same result."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from support.made_up_study import WITNESS, judged, made_up_result, made_up_results, made_up_row
from whence.report import html
from whence.report.html import render, sections, verdict
from whence.studies.base import Failure, Table
from whence.studies.results import Results
from whence.studies.witness import Mark

VOID = {"meta", "link", "br", "hr", "img", "input"}
EVIL = '<script>alert("x")</script>\'& $x^{2$'


class Page(HTMLParser):
    """Checks that tags close in order, and collects what a test asks about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.seen.append((tag, found))
        if found.get("id"):
            self.ids.append(str(found["id"]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for seen, attrs in self.seen if seen == tag]


@pytest.fixture(scope="module")
def page_text() -> str:
    return render(made_up_result(), date="2024-05-01", links={"results.json": "everything"})


@pytest.fixture(scope="module")
def page(page_text: str) -> Page:
    return Page(page_text)


def test_the_page_says_what_the_result_says(page_text: str) -> None:
    for text in (
        "What causal order costs, and what it saves",
        "2024-05-01",
        "FIFO broke causality 1,234 times.",
        "whence study vcube --scale demo",
        "Traceback: &lt;boom&gt; &amp; more",
        "f08exp1",
        "± 10 %",
        "paper, table 3",
        "2 claims of the paper; as printed: 1 agree, 0 near, 0 differ, 1 refuted, 0 not judged;",
        "hops alone grow by 2.9",
    ):
        assert text in page_text
    for row in made_up_result().results.rows:
        assert f"<code>{row.run}</code>" in page_text


def test_tags_close_and_ids_are_unique(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    for attrs in page.all("a"):
        target = attrs["href"] or ""
        assert target == "results.json" or target[1:] in page.ids
    for tag, attrs in page.seen:
        for value in attrs.values():
            for name in re.findall(r"url\(#([^)]*)\)", value or ""):
                assert name in page.ids, tag
    for attrs in page.all("use"):
        assert (attrs["href"] or "")[1:] in page.ids


def test_nothing_is_loaded_from_anywhere(page: Page, page_text: str) -> None:
    for tag, attrs in page.seen:
        assert tag not in {"script", "iframe", "object", "embed", "img", "image", "base"}
        for name, value in attrs.items():
            assert name not in {"src", "srcset", "xlink:href", "onload", "onclick"}
            assert "://" not in (value or "")
    (icon,) = page.all("link")
    assert icon["href"] == "data:,"  # or the browser would ask for /favicon.ico
    style = page_text[page_text.index("<style>") : page_text.index("</style>")]
    assert "@import" not in style
    assert "url(" not in style
    assert page_text.count("<style") == 1  # matplotlib's own would apply to the whole page


def test_every_figure_and_table_can_be_read_aloud(page: Page, page_text: str) -> None:
    drawings = page.all("svg")
    assert len(drawings) == 3  # two figures and the witness
    for attrs in drawings:
        assert attrs["role"] == "img"
        assert len(attrs["aria-label"] or "") > 40
    assert len(page.all("caption")) == len(page.all("table"))
    assert page.all("html")[0]["lang"] == "en"
    assert "fifo: 2 at 4, 4 at 8" in page_text.replace("&#x27;", "'")


def test_both_colour_schemes_and_print_are_there(page_text: str) -> None:
    assert "prefers-color-scheme: dark" in page_text
    assert "@media print" in page_text
    assert not re.search(r"#0a0[bc]0\d", page_text)  # a role that was not replaced
    for name in set(re.findall(r"var\((--[a-z0-9-]+)\)", page_text)):
        assert f"{name}:" in page_text


def test_equal_results_give_equal_pages(page_text: str) -> None:
    assert render(made_up_result(), date="2024-05-01", links={"results.json": "everything"}) == page_text
    other = render(made_up_result(), date="2024-05-02", links={"results.json": "everything"})
    assert other.replace("2024-05-02", "2024-05-01") == page_text


def test_everything_is_escaped() -> None:
    base = made_up_result()
    row = made_up_row("fifo", 4, "pareto", 1)
    evil_row = replace(
        row,
        run=EVIL,
        labels={**row.labels, "network": EVIL, EVIL: 1},
        parameters={"params": {EVIL: EVIL}},
    )
    figures = tuple(
        replace(
            figure,
            title=EVIL,
            caption=EVIL,
            panels=tuple(
                replace(
                    panel,
                    title=EVIL,
                    x_label=EVIL,
                    series=tuple(
                        replace(series, label=EVIL + str(at)) for at, series in enumerate(panel.series)
                    ),
                )
                for panel in figure.panels
            ),
        )
        for figure in base.figures
    )
    marks = tuple(
        Mark(mark.node + EVIL, mark.time_us, mark.message + EVIL, mark.kind) for mark in WITNESS.marks
    )
    evil = replace(
        base,
        **dict.fromkeys(("name", "title", "paper", "summary", "scale", "scale_text", "command"), EVIL),
        results=Results((evil_row,)),
        failures=(Failure(EVIL, {EVIL: EVIL}, EVIL),),
        headline=Table("glance", EVIL, (EVIL,), ((EVIL,),), EVIL),
        tables=(Table("order", EVIL, (EVIL,), ((EVIL,),), EVIL),),
        figures=figures,
        judged=tuple(
            replace(one, claim=replace(one.claim, text=EVIL, source=EVIL, unit=EVIL)) for one in base.judged
        ),
        findings=(EVIL,),
        witness=replace(WITNESS, run=EVIL, marks=marks, sentences=(EVIL,), labels={EVIL: EVIL}),
        environment={"whence": EVIL, EVIL: EVIL},
        seconds={EVIL: 1.0},
    )
    text = render(evil, date=EVIL, links={EVIL: EVIL})
    assert "<script" not in text
    assert not Page(text).all("script")
    assert text.count("&lt;script&gt;") > 40


def test_verdicts_tell_broken_from_not_promised() -> None:
    assert verdict(made_up_row("vector", 4, "constant", 1)) == ("ok", "good")
    assert verdict(made_up_row("fifo", 4, "pareto", 1)) == ("not promised", "warn")
    assert verdict(made_up_row("vector", 4, "pareto", 1, ok=False, counts={"missing": 2})) == (
        "broken",
        "bad",
    )


def test_runs_that_are_meant_to_break_a_promise_are_no_alarm() -> None:
    """The claims say which runs must keep theirs; where these hold, the rest is as it should be."""
    rows = [made_up_row("vector", 8, "constant", seed, ok=seed == 1) for seed in (1, 2)]
    one_must = judged("runs that keep theirs", 1.0, 1.0)
    for expected, tone in ((one_must, ""), (replace(one_must, expected=2.0), "bad")):
        result = made_up_result(results=Results(tuple(rows)), judged=(expected,), failures=())
        assert (html.tiles(result)[1].value, html.tiles(result)[1].tone) == ("1 of 2", tone)


def test_groups_sum_over_the_seeds_and_show_the_worst() -> None:
    rows = [
        made_up_row("fifo", 4, "constant", 1),
        made_up_row("fifo", 4, "constant", 2, counts={"causal": 5}),
        made_up_row("fifo", 4, "constant", 3, ok=False, counts={"causal": 2, "missing": 1}),
    ]
    (group,) = html.groups(made_up_result(results=Results(tuple(rows)), tables=(), figures=()))
    assert group["labels"] == {"protocol": "fifo", "nodes": 4, "network": "constant"}
    assert (group["kept"], group["runs"]) == (2, 3)
    assert (group["counts"]["causal"], group["counts"]["missing"]) == (7, 1)
    assert (group["verdict"], group["tone"]) == ("broken", "bad")


def test_tables_stand_beside_the_figure_of_their_name() -> None:
    result = made_up_result()
    alone = Table("alone", "Alone", ("a",), ((1,),))
    made = sections(result.figures, (*result.tables, alone))
    assert [(one.name, [table.title for table in one.tables]) for one in made] == [
        ("order", ["Violations per 1,000 deliveries"]),
        ("latency", []),
        ("alone", ["Alone"]),
    ]


def test_a_result_without_extras_still_makes_a_page(tmp_path: Path) -> None:
    bare = made_up_result(
        results=made_up_results(sizes=(4,), networks=("constant",)),
        failures=(),
        headline=None,
        tables=(),
        figures=(),
        judged=(),
        findings=(),
        witness=None,
    )
    path = html.write(bare, tmp_path / "deep" / "page.html", date="today")
    Page(path.read_text())
