"""Write docs/fidelity.md: how many claims of each paper came out how.

    python tools/fidelity.py                                   # compare; exit 1 if the page is not current
    python tools/fidelity.py --write
    python tools/fidelity.py --write --paper out/study-*/results.json    # keep headlines of the scale `paper`

The counts of the scale `demo` come from the runs that tests/golden/record_demo.py recorded, judged anew.
Those of the scale `paper` are kept as they were printed when it was run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.recorded import NAMES, path_of, recorded  # noqa: E402 - of the tests, which are beside
from whence.studies import registry  # noqa: E402
from whence.studies.claims import Evidence  # noqa: E402
from whence.studies.verdicts import Judged, Verdict, tally  # noqa: E402

PAGE = ROOT / "docs" / "fidelity.md"
PAPER_SCALE = ROOT / "tests" / "golden" / "data" / "fidelity-paper.json"
WORDS = [verdict.value for verdict in Verdict]
HEAD = """# Fidelity

How many numbers and statements of each paper came out how. `python tools/fidelity.py --write` makes this
page; a test keeps it current. The words are those of [Studies](studies.md): a claim *agrees* if the printed
value lies within its rounding plus the interval, is *near* within 10 %, and is *not judged* for a reason that
is given. Verdicts do not set the exit code of a study: invariants and regressions do.

"""


def page() -> str:
    """The whole page."""
    judged = {name: registry.lookup(name).judge(recorded(name)) for name in NAMES if path_of(name).exists()}
    parts = [HEAD, "## At the scale `demo`\n\n", _counts(judged), "\n"]
    for name, found in judged.items():
        parts += [f"### {name}\n\n", f"{tally(found).text()}.\n\n", _reasons(found), _refuted(found)]
    parts += ["## At the scale `paper`\n\n", _at_paper_scale()]
    return "".join(parts)


def _counts(judged: dict[str, list[Judged]]) -> str:
    lines = [
        f"| study | evidence | reading | claims | {' | '.join(WORDS)} |\n",
        "|---" * (4 + len(WORDS)) + "|\n",
    ]
    for name, found in judged.items():
        kinds = Counter((one.claim.evidence, one.claim.reading) for one in found if one.claim.is_printed)
        for (evidence, reading), count in kinds.items():
            verdicts = Counter(
                one.verdict.value
                for one in found
                if one.claim.is_printed and (one.claim.evidence, one.claim.reading) == (evidence, reading)
            )
            cells = " | ".join(str(verdicts[word]) for word in WORDS)
            lines.append(f"| {name} | {evidence} | {reading} | {count} | {cells} |\n")
        for evidence in (Evidence.INVARIANT, Evidence.PROTOTYPE):
            asked = [one for one in found if one.claim.evidence is evidence and one.demanded]
            verdicts = Counter(one.verdict.value for one in asked)
            cells = " | ".join(str(verdicts[word]) for word in WORDS)
            lines.append(f"| {name} | {evidence}, demanded | | {len(asked)} | {cells} |\n")
    return "".join(lines)


def _reasons(found: list[Judged]) -> str:
    reasons = Counter(
        one.reason for one in found if one.claim.is_printed and one.verdict is Verdict.NOT_JUDGED
    )
    lines = [f"- {count} not judged: {reason}\n" for reason, count in reasons.most_common()]
    return "".join(lines) + ("\n" if lines else "")


def _refuted(found: list[Judged]) -> str:
    lines = [
        f"- refuted: {one.claim.text} ({one.claim.source}): {one.reason}\n"
        for one in found
        if one.verdict is Verdict.REFUTED
    ]
    return "".join(lines) + ("\n" if lines else "")


def _kept() -> dict[str, Any]:
    return json.loads(PAPER_SCALE.read_text(encoding="utf-8")) if PAPER_SCALE.exists() else {}


def _at_paper_scale() -> str:
    kept = _kept()
    lines = []
    for name in NAMES:
        one = kept.get(name)
        said = f"{one['claims']} ({one['runs']:,} runs, commit {one['commit']})" if one else "not run yet"
        lines.append(f"- `whence study {name} --scale paper`: {said}\n")
    return "".join(lines)


def keep(results: list[Path]) -> None:
    """Keep the headline of each result of the scale `paper`."""
    kept = _kept()
    for path in results:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["scale"] != "paper":
            sys.exit(f"error: {path}: the scale is {document['scale']!r}\nfix: run it with --scale paper")
        kept[document["study"]] = {
            "claims": document["claims"],
            "runs": len(document["runs"]),
            "commit": document["environment"]["commit"],
        }
    PAPER_SCALE.write_text(
        json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def main() -> int:
    """Compare or write; exit code 1 if the page is not current."""
    parser = argparse.ArgumentParser(description="Count the verdicts of all studies in docs/fidelity.md.")
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--paper", type=Path, nargs="+", default=[], help="results.json of the scale `paper`")
    given = parser.parse_args()
    if given.paper:
        keep(given.paper)
    made = page()
    if given.write:
        PAGE.write_text(made, encoding="utf-8")
    is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == made
    print(f"{PAGE}: {'current' if is_current else 'not current: python tools/fidelity.py --write'}")
    return int(not is_current)


if __name__ == "__main__":
    sys.exit(main())
