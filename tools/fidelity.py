"""Write docs/fidelity.md: how many claims of each paper came out how.

    python tools/fidelity.py                                   # compare; exit 1 if the page is not current
    python tools/fidelity.py --write
    python tools/fidelity.py --write --paper out/study-*/results.json    # keep the counts of `paper`

The counts of the scale `demo` come from the runs that tests/golden/record_demo.py recorded, judged anew.
Those of the scale `paper` are kept as the runs' own page has them, with the command, the day, the commit and
the exit code.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from golden.recorded import NAMES, path_of, recorded  # noqa: E402 - of the tests, which are beside
from whence.studies import registry  # noqa: E402
from whence.studies.claims import Evidence, Reading  # noqa: E402
from whence.studies.verdicts import Judged, Verdict, tally  # noqa: E402

PAGE = ROOT / "docs" / "fidelity.md"
PAPER_SCALE = ROOT / "tests" / "golden" / "data" / "fidelity-paper.json"
WORDS = [verdict.value for verdict in Verdict]
HEAD = """# Fidelity

How many numbers and statements of each paper came out how. `python tools/fidelity.py --write` makes this
page; a test keeps it current. The words are those of [Studies](studies.md): a claim *agrees* if the printed
value lies within its rounding plus the interval, is *near* within 10 %, and is *not judged* for a reason that
is given; *weak* counts those that agree because their interval is wider than ± 20 %. Verdicts do not set the
exit code of a study: demands do, and they are of four kinds. *Invariants* follow from an argument; numbers of
a *prototype*, and limits, are ours; *our earlier runs* guard the program against change and say nothing of a
paper, least of all where they had the same seeds.

"""


class Came(NamedTuple):
    """One claim, as far as it is counted here."""

    evidence: str
    reading: str  # of what a paper or its authors' program has; else empty
    verdict: str
    weak: bool


def page() -> str:
    """The whole page."""
    judged = {name: registry.lookup(name).judge(recorded(name)) for name in NAMES if path_of(name).exists()}
    came = {name: _came(found) for name, found in judged.items()}
    parts = [HEAD, "## At the scale `demo`\n\n", _counts(came)]
    for name, found in judged.items():
        parts += [f"\n### {name}\n\n", f"{tally(found).text()}.\n", _reasons(found), _refuted(found)]
    return "".join([*parts, "\n## At the scale `paper`\n\n", *_at_paper_scale()])


def _came(found: Iterable[Judged]) -> list[Came]:
    """Claims of papers, and what is demanded."""
    return [
        Came(
            one.claim.evidence.value,
            one.claim.reading.value if one.claim.is_printed else "",
            one.verdict.value,
            one.is_weak,
        )
        for one in found
        if one.claim.is_printed or one.demanded
    ]


def _counts(came: dict[str, list[Came]]) -> str:
    heads = [*("study", "evidence", "reading", "claims"), *WORDS, "weak"]
    lines = [f"| {' | '.join(heads)} |\n", "|---" * len(heads) + "|\n"]
    for name, found in came.items():
        for evidence, reading in sorted({(one.evidence, one.reading) for one in found}, key=_place):
            some = [one for one in found if (one.evidence, one.reading) == (evidence, reading)]
            verdicts = Counter(one.verdict for one in some)
            numbers = [len(some), *(verdicts[word] for word in WORDS), sum(one.weak for one in some)]
            kind = evidence if reading else f"{evidence}; demanded"
            lines.append(f"| {name} | {kind} | {reading} | {' | '.join(map(str, numbers))} |\n")
    return "".join(lines)


def _place(kind: tuple[str, str]) -> tuple[int, int]:
    """The paper first, and what is printed before what is chosen or fitted."""
    evidence, reading = kind
    return list(Evidence).index(Evidence(evidence)), list(Reading).index(Reading(reading)) if reading else 0


def _reasons(found: list[Judged]) -> str:
    reasons = Counter(
        one.reason for one in found if one.claim.is_printed and one.verdict is Verdict.NOT_JUDGED
    )
    lines = [f"- {count} not judged: {reason}\n" for reason, count in reasons.most_common()]
    return "".join(["\n", *lines]) if lines else ""


def _refuted(found: list[Judged]) -> str:
    lines = [
        f"- refuted: {one.claim.text} ({one.claim.source}): {one.reason}\n"
        for one in found
        if one.verdict is Verdict.REFUTED
    ]
    return "".join(["\n", *lines]) if lines else ""


def _kept() -> dict[str, Any]:
    return json.loads(PAPER_SCALE.read_text(encoding="utf-8")) if PAPER_SCALE.exists() else {}


def _at_paper_scale() -> list[str]:
    kept = _kept()
    came = {name: [Came(*one) for one in kept[name]["came"]] for name in NAMES if name in kept}
    lines = [_counts(came), "\n"] if came else []
    for name in NAMES:
        command, one = f"- `whence study {name} --scale paper`", kept.get(name)
        if one is None:
            lines.append(f"{command}: not run\n")
        else:
            done = f"{one['runs']:,} runs, {one['failed']} not finished"
            when = f"{one['day']}; commit {one['commit']}"
            when += f"; exit code {one['exit']}" if "exit" in one else ""
            note = f"; {one['note']}" if one["note"] else ""
            broken = "".join(f"; **failed**: {each}" for each in one.get("broken", ()))
            lines.append(f"{command} ({done}; {when}{note}): {one['claims']}{broken}\n")
    return lines


def _failed(one: dict[str, Any]) -> bool:
    return one["demanded"] and one["verdict"] != Verdict.AGREES


def keep(results: list[Path], note: str) -> None:
    """Keep the counts of each result of the scale `paper`, as its page has them; `note`: what was not run."""
    kept = _kept()
    for path in results:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["scale"] != "paper":
            sys.exit(f"error: {path}: the scale is {document['scale']!r}\nfix: run it with --scale paper")
        expectations = document["expectations"]
        kept[document["study"]] = {
            "claims": document["claims"],
            "runs": len(document["runs"]),
            "failed": len(document["failures"]),
            "note": note,
            "day": datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%d"),
            "commit": document["environment"]["commit"],
            "exit": int(not document["holds"]),
            "broken": [f"{one['name']} ({one['id']})" for one in expectations if _failed(one)],
            "came": [
                Came(one["evidence"], one["reading"] or "", one["verdict"], one["weak"])
                for one in expectations
                if one["reading"] or one["demanded"]
            ],
        }
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(kept[name], ensure_ascii=False)}" for name in kept)
    PAPER_SCALE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def main() -> int:
    """Compare or write; exit code 1 if the page is not current."""
    parser = argparse.ArgumentParser(description="Count the verdicts of all studies in docs/fidelity.md.")
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--paper", type=Path, nargs="+", default=[], help="results.json of the scale `paper`")
    parser.add_argument("--note", default="", help="what of these results was not run")
    given = parser.parse_args()
    if given.paper:
        keep(given.paper, given.note)
    made = page()
    if given.write:
        PAGE.write_text(made, encoding="utf-8")
    is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == made
    print(f"{PAGE}: {'current' if is_current else 'not current: python tools/fidelity.py --write'}")
    return int(not is_current)


if __name__ == "__main__":
    sys.exit(main())
