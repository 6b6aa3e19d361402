"""A study's result as one HTML page that needs nothing else: no network, no files beside it.

The page is a pure function of the result and a date. Everything in it is escaped by the template;
the only raw markup is the SVG that `plots` and `spacetime` make, which escape their own text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isclose, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from whence.errors import writing
from whence.report import plots, spacetime
from whence.report.format import MINUS, MISSING, cell, number, plural, seconds, with_interval
from whence.report.views import Views
from whence.studies.base import Figure, StudyResult, Table
from whence.studies.claims import Claim, Evidence
from whence.studies.results import Estimate, Row
from whence.studies.verdicts import Judged, Verdict
from whence.verify.report import KINDS

if TYPE_CHECKING:
    from jinja2 import Environment

DECIMALS_MAX = 6

# What many scenarios share, and where they differ: so that a page can hold all of them and be read.


def flatten(parameters: Mapping[str, Any] | Sequence[Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables and lists as dotted keys, as `whence simulate --set` takes them."""
    flat: dict[str, Any] = {}
    pairs = parameters.items() if isinstance(parameters, Mapping) else enumerate(parameters)
    for key, value in pairs:
        if isinstance(value, Mapping | list | tuple) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def split(all_parameters: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The dotted parameters that all share, and for each the rest. Nothing is in both, nothing is lost."""
    flat = [flatten(parameters) for parameters in all_parameters]
    if not flat:
        return {}, []
    common = {
        key: value for key, value in flat[0].items() if all(key in one and one[key] == value for one in flat)
    }
    return common, [{key: value for key, value in one.items() if key not in common} for one in flat]


def assignments(parameters: Mapping[str, Any]) -> list[str]:
    """`key = value` for each parameter, the value as JSON."""
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in parameters.items()]


class Tile(NamedTuple):
    """One number at the top of the page."""

    value: str
    label: str
    tone: str = ""


class Section(NamedTuple):
    """A figure (already SVG) with the tables that belong to it."""

    name: str
    title: str
    caption: str
    svg: str
    tables: list[Table]


def write(
    result: StudyResult,
    path: Path,
    *,
    date: str,
    links: Mapping[str, str] | None = None,
    views: Views | None = None,
) -> Path:
    """Write the page; `links` are relative names of files beside it, each with what it is."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(result, date=date, links=links, views=views), encoding="utf-8")
    return path


def environment() -> Environment:
    """The templates, with the filters and tests that they use."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("whence.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(cell=cell, number=number, seconds=seconds)
    made.filters["interval"] = lambda value: with_interval(value.mean, value.half)
    made.tests["estimate"] = lambda value: isinstance(value, Estimate)
    made.tests["of_numbers"] = _of_numbers
    made.tests["of_words"] = _of_words
    return made


def render(
    result: StudyResult, *, date: str, links: Mapping[str, str] | None = None, views: Views | None = None
) -> str:
    """The whole page as text."""
    rows = result.results.rows
    common, varying = split([row.parameters for row in rows])
    return (
        environment()
        .get_template("study.html")
        .render(
            result=result,
            date=date,
            links=dict(links or {}),
            views=views or Views({}, 0),
            tiles=tiles(result),
            sections=sections(result.figures, result.tables),
            printed=[_printed(one) for one in result.judged if one.claim.is_printed],
            demands=[_demand(one) for one in result.judged if not one.claim.is_printed],
            groups=groups(result),
            runs=[(row, *verdict(row), assignments(varying[at])) for at, row in enumerate(rows)],
            unseen=sum(not row.judged for row in rows),
            kinds=KINDS,
            counts=counts,
            common=assignments(common),
            witness_svg=spacetime.svg(result.witness) if result.witness else "",
        )
    )


def _of_numbers(at: int, table: Table) -> bool:
    """Whether a column (not the first, which names the row) holds numbers, some of which may be absent."""
    return at > 0 and not any(isinstance(row[at], str | bool) for row in table.rows)


def _of_words(table: Table) -> bool:
    return not any(_of_numbers(at, table) for at in range(len(table.columns)))


def tiles(result: StudyResult) -> list[Tile]:
    """How much was done, and how it ended."""
    rows = result.results.rows
    paper = [one for one in result.judged if one.claim.evidence is Evidence.PAPER]
    good = sum(one.verdict is Verdict.AGREES for one in paper)
    asked = [one for one in result.judged if one.demanded]
    held = sum(not one.failed for one in asked)
    judged = [row for row in rows if row.judged]
    kept = sum(row.ok for row in judged)
    deliveries = sum(int(row.verdict["deliveries"]) for row in judged)
    promise = "runs keep every promise" if len(judged) == len(rows) else "traced runs keep every promise"
    tone = _tone(kept == len(judged))
    if kept < len(judged) and result.holds:  # a study may have runs that are meant to break theirs
        promise, tone = f"{promise}; the demands say which must", ""
    return [
        *([Tile(f"{good} of {len(paper)}", "claims of the paper agree")] if paper else []),
        Tile(f"{held} of {len(asked)}", "demands hold", _tone(result.holds)),
        Tile(f"{kept} of {len(judged)}", promise, tone),
        Tile(number(len(rows) + len(result.failures)), "simulated runs"),
        Tile(number(deliveries), "deliveries judged"),
        Tile(seconds(sum(result.seconds.values())), "from start to report"),
    ]


def _tone(good: bool) -> str:
    return "good" if good else "bad"


def sections(figures: Sequence[Figure], tables: Sequence[Table]) -> list[Section]:
    """A table stands beside the figure of the same name; the others follow alone."""
    made = []
    for figure in figures:
        beside = [table for table in tables if table.name == figure.name]
        made.append(Section(figure.name, figure.title, figure.caption, plots.svg(figure), beside))
    drawn = {figure.name for figure in figures}
    made += [Section(table.name, table.title, "", "", [table]) for table in tables if table.name not in drawn]
    return made


TONES = {
    Verdict.AGREES: "good",
    Verdict.NEAR: "good",
    Verdict.FITTED: "warn",
    Verdict.DIFFERS: "bad",
    Verdict.REFUTED: "bad",
    Verdict.NOT_JUDGED: "none",
}


def _number(relation: str, value: float | None, unit: str) -> str:
    return f"{relation} {number(value)} {unit}".rstrip() if value is not None else MISSING


def _as_printed(claim: Claim) -> str:
    """The paper's number with the digits that it prints, where half of the last one is known."""
    digit = 2 * claim.rounding
    decimals = -round(log10(digit)) if digit else 0
    is_known = digit and 0 < decimals <= DECIMALS_MAX and isclose(digit, 10.0**-decimals)
    text = f"{claim.published:,.{decimals}f}".replace("-", MINUS) if is_known else number(claim.published)
    return f"{claim.relation.value} {text} {claim.unit}".rstrip()


def _measured(one: Judged) -> str:
    """The number with the interval that the verdict took; a single run has none, and says so."""
    if one.measured is None:
        return MISSING
    half = one.half
    shown, width = with_interval(one.measured, half)
    return f"{shown} ± {width}" if width else number(one.measured)


def _printed(one: Judged) -> dict[str, Any]:
    """A claim of the paper: what is printed, what was measured, and the verdict."""
    claim = one.claim
    fitted = "; ".join(f"{name}: {number(other.measured)}, {other.verdict}" for name, other in one.others)
    said = "; ".join(part for part in (one.reason, claim.open, fitted) if part)
    return {
        "name": claim.text,
        "printed": MISSING if claim.published is None else _as_printed(claim),
        "measured": _measured(one),
        "runs": (number(one.runs) if one.runs != 1 else "1, no interval") if one.runs else MISSING,
        "reading": claim.reading.value if claim.measure else MISSING,
        "source": claim.source,
        "reason": said,
        "verdict": one.verdict.value,
        "tone": TONES[one.verdict],
    }


def _demand(one: Judged) -> dict[str, Any]:
    """An invariant or a regression: what is demanded, and whether it holds."""
    difference = one.difference
    holds = one.verdict is Verdict.AGREES
    return {
        "name": one.claim.text,
        "evidence": one.claim.evidence.value,
        "expected": _number(one.claim.relation.value, one.expected, one.claim.unit),
        "measured": number(one.measured),
        "difference": MISSING if difference is None else ("+" if difference > 0 else "") + number(difference),
        "tolerance": str(one.tolerance),
        "source": "; ".join(part for part in (one.claim.source, one.note) if part),
        "verdict": "holds" if holds else "not judged" if one.verdict is Verdict.NOT_JUDGED else "fails",
        "tone": "good" if holds else "bad" if one.demanded else "warn",
        "demanded": one.demanded,
    }


def counts(row: Row) -> dict[str, int]:
    """The verifier's exact counts of one run, every kind named."""
    found = row.verdict.get("counts", {})
    return {kind: int(found.get(kind, 0)) for kind in KINDS}


def verdict(row: Row) -> tuple[str, str]:
    """The verdict on one run in words, and its tone: a promise that was not made cannot be broken."""
    if not row.judged:
        return "no trace", "none"
    found = {kind: count for kind, count in counts(row).items() if count}
    if not row.ok:
        return "broken", "bad"
    if found:
        return "not promised", "warn"
    return "ok", "good"


def groups(result: StudyResult) -> list[dict[str, Any]]:
    """The verdicts summed over the repetitions of each point, as far as they have been judged."""
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (row for row in result.results.rows if row.judged):
        labels = {name: at for name, at in row.labels.items() if name != result.results.repetition}
        group = made.setdefault(
            tuple(labels.items()),
            {
                "labels": labels,
                "runs": 0,
                "kept": 0,
                "counts": dict.fromkeys(KINDS, 0),
                "tones": set(),
            },
        )
        group["runs"] += 1
        group["kept"] += row.ok
        group["tones"].add(verdict(row))
        for kind, count in counts(row).items():
            group["counts"][kind] += count
    order = (("broken", "bad"), ("not promised", "warn"), ("ok", "good"))
    for group in made.values():
        group["verdict"], group["tone"] = next(one for one in order if one in group["tones"])
        group["kept_text"] = f"{group['kept']} of {plural(group['runs'], 'run')}"
    return list(made.values())
