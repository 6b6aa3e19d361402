"""Golden results of the studies: what they are today, written down to compare with.

    python tests/golden/record_studies.py                            # compare all, write nothing
    python tests/golden/record_studies.py --write                    # record all anew
    python tests/golden/record_studies.py --write vcube prc --part page

`studies-<name>.json` holds, of the scale `tiny`, in parts that can be recorded one by one:

    runs       the labels of each run, its measures, what was counted in it, and the verifier's verdict
    claims     each claim with its expected and measured number and its verdict
    page       the text of the report, one block a line, without figures, times, versions and run ids
    figures    titles, captions and every number that is drawn

Live measurements (the part `live` of `domains`) are left out: no two are alike.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.tiny_study import TinyStudies, without
from whence.report.html import render
from whence.studies.base import StudyResult
from whence.studies.registry import lookup
from whence.studies.results import Row
from whence.studies.witness import pick, tell

DATA = Path(__file__).parent / "data"
SCALE = "tiny"
COUNTED = ("vcube", "oppnet", "deadline", "prc", "domains")  # these need no Spark
PARTS = ("runs", "claims", "page", "figures")
JUDGED = (
    "ok",
    "promises",
    "nodes",
    "events",
    "broadcasts",
    "deliveries",
    "expiries",
    "counts",
    "missing_by_node",
)
DIGITS = 10  # of a float: the last ones depend on the order of a sum
SHOWN, LINE_MAX = 20, 400

Golden = dict[str, list[Any]]


# The code under test


def counted_study(name: str, studies: TinyStudies) -> StudyResult:
    """One of `COUNTED`, judged in this process."""
    study = lookup(name)
    results, folder = studies.carried_out(study)
    with without("WHENCE_DATA"):  # real traces of contacts, which not every machine has
        found = pick(results.rows)
        told = tell(*found, folder / str(results.rows.index(found[0]))) if found else None
        return StudyResult(
            name=study.name,
            title=study.title,
            paper=study.paper,
            summary=study.summary,
            scale=SCALE,
            scale_text=study.scales[SCALE],
            results=results,
            failures=(),
            headline=study.headline(results),
            tables=tuple(study.tables(results)),
            figures=tuple(study.figures(results)),
            judged=tuple(study.judge(results)),
            findings=tuple(study.findings(results)),
            witness=told,
            command="",
            environment={"whence": ""},
            seconds={},
        )


def page_text(result: StudyResult) -> list[str]:
    """What a reader reads, without the figures and without what differs from day to day."""
    page = render(replace(result, figures=(), seconds={}), date="")
    text = _Text()
    text.feed(page.partition("<body>")[2].partition('<section aria-labelledby="repeat">')[0])
    runs = [row.run for row in result.results.rows]
    return [_unnamed(line, runs) for line in text.lines()]


# Results as plain data


def golden(result: StudyResult) -> Golden:
    """All parts of a study's result."""
    claims = [
        {
            "id": one.claim.id,
            "name": one.claim.text,
            "relation": one.claim.relation.value,
            "expected": one.expected,
            "measured": one.measured,
            "tolerance": None if one.claim.is_printed else str(one.tolerance),
            "unit": one.claim.unit,
            "source": one.claim.source,
            "demanded": one.demanded,
            "verdict": one.verdict.value,
            "reason": one.reason,
        }
        for one in result.judged
    ]
    return plain(
        {
            "runs": [_run(row) for row in result.results.rows],
            "claims": claims,
            "page": page_text(result),
            "figures": msgspec.to_builtins(result.figures),
        }
    )


def _run(row: Row) -> dict[str, Any]:
    return {
        "labels": row.labels,
        "measures": row.measures,
        "counted": row.counted,
        "verdict": _verdict(row.verdict),
    }


def _verdict(report: Mapping[str, Any]) -> dict[str, Any]:
    """What the verifier found, but for the names of the run and of its witnesses."""
    return {name: report[name] for name in JUDGED} if report else {}


def plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if isfinite(value) else str(value)
    return value


def _unnamed(line: str, runs: list[str]) -> str:
    for each in runs:
        line = line.replace(each, "RUN")
    return line


class _Text(HTMLParser):
    """The text of a page, one line for each paragraph, heading, item and row of a table."""

    LINES = frozenset(("h1", "h2", "h3", "p", "li", "tr", "caption", "figcaption", "summary", "pre"))

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[str] = []
        self._drawing = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._drawing |= tag == "svg"
        self._pieces.append("\0" if tag in self.LINES else " | " if tag in ("td", "th") else " ")

    def handle_endtag(self, tag: str) -> None:
        self._drawing &= tag != "svg"

    def handle_data(self, data: str) -> None:
        if not self._drawing:
            self._pieces.append(data)

    def lines(self) -> list[str]:
        found = (" ".join(line.split()).removeprefix("| ") for line in "".join(self._pieces).split("\0"))
        return [line for line in found if line]


# Files


def path_of(name: str) -> Path:
    """Where golden results are kept."""
    return DATA / f"{name}.json"


def load(name: str) -> Golden:
    """What was recorded under that name."""
    found: Golden = json.loads(path_of(name).read_text())
    return found


def save(name: str, parts: Golden) -> None:
    """Write it with a line for each item, so that a small change is a small difference."""
    blocks = []
    for part, items in parts.items():
        lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in items)
        blocks.append(f"{json.dumps(part)}: [\n{lines}\n]")
    path_of(name).write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def changes(old: Any, new: Any) -> list[str]:
    """The first places where two documents differ, and how."""
    return list(islice(_changes(old, new, ""), SHOWN))


def _changes(old: Any, new: Any, at: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        at = f"{at} {old['labels']}" if "labels" in old else at
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _changes(old.get(key, "nothing"), new.get(key, "nothing"), f"{at}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _changes(before, after, f"{at}[{index}]")
    elif isinstance(old, list) and isinstance(new, list):
        yield f"{at}: {len(old)} items -> {len(new)}"
        yield from (f"{at} no longer has {item!r}" for item in old if item not in new)
        yield from (f"{at} has in addition {item!r}" for item in new if item not in old)
    elif old != new:
        yield f"{at}: {old!r} -> {new!r}"


# The command


def _made(name: str) -> Golden:
    with tempfile.TemporaryDirectory(prefix="whence-golden-") as folder:
        return golden(counted_study(name, TinyStudies(Path(folder))))


def main() -> int:
    """Compare or record; exit code 1 if something differs."""
    parser = argparse.ArgumentParser(description="Compare or record the golden results of studies.")
    parser.add_argument("names", nargs="*", default=list(COUNTED), help="studies; all without it")
    parser.add_argument("--part", action="append", help="only this part; repeatable")
    parser.add_argument("--write", action="store_true", help="record what is found")
    given = parser.parse_args()
    differs = False
    for name in given.names:
        found = {part: at for part, at in _made(name).items() if not given.part or part in given.part}
        kept = load(f"studies-{name}") if path_of(f"studies-{name}").exists() else {}
        for line in changes({part: kept.get(part, []) for part in found}, found):
            print(f"{name}{line}"[:LINE_MAX])
            differs = True
        if given.write:
            save(f"studies-{name}", kept | found if given.part else found)
    return int(differs and not given.write)


if __name__ == "__main__":
    sys.exit(main())
