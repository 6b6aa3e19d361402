"""Writes docs/project/coverage.md from what coverage.py measured: `make coverage` does it at its end.

    coverage json -o out/coverage/coverage.json
    python tools/coverage_page.py out/coverage/coverage.json --tests "make coverage"

What is said of the run (which tests, what failed) is given, not guessed; everything else is counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "project" / "coverage.md"
WEAKEST = 25
SMALL = 20  # statements: of fewer, a share says little
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def share(counts: Counter[str]) -> float:
    """Percent of lines and branches together that were reached, as coverage.py counts it."""
    of = counts["num_statements"] + counts["num_branches"]
    return 100.0 * (counts["covered_lines"] + counts["covered_branches"]) / of if of else 100.0


def counted(measured: dict[str, Any]) -> dict[str, Counter[str]]:
    """The counts of each module, by its path below src/whence."""
    return {
        Path(name.partition("src/whence/")[2]).as_posix(): Counter(
            {key: int(about["summary"][key]) for key in COUNTS}
        )
        for name, about in measured["files"].items()
    }


def table(title: str, rows: dict[str, Counter[str]]) -> list[str]:
    """A table of names, shares and what is left."""
    lines = [
        f"| {title} | reached | lines | not reached | branches | not taken |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, each in rows.items():
        missing = each["num_statements"] - each["covered_lines"]
        untaken = each["num_branches"] - each["covered_branches"]
        figures = f"{each['num_statements']:,} | {missing:,} | {each['num_branches']:,} | {untaken:,}"
        lines.append(f"| `{name}` | {share(each):.1f} % | {figures} |")
    return lines


ABOUT = """\
Written by `tools/coverage_page.py`, which `make coverage` calls; `out/coverage/index.html` then shows every line.
Processes that tests start are counted, unless they are killed; what numba compiles, and what runs in the Python
workers of Spark, is not seen. A line that was reached is not a line that was judged: what the tests would notice is
shown by the broken variants in `tests/zoo`.
"""  # noqa: E501 - as wide as the other pages


def page_of(measured: dict[str, Any], tests: str, commit: str, day: str) -> str:
    """The page, in Markdown."""
    modules = counted(measured)
    rooms: dict[str, Counter[str]] = {}
    for name, each in modules.items():
        rooms.setdefault(name.partition("/")[0] if "/" in name else "(top)", Counter()).update(each)
    total: Counter[str] = sum(modules.values(), Counter())
    large = [name for name, each in modules.items() if each["num_statements"] >= SMALL]
    weak = sorted(large, key=lambda name: share(modules[name]))[:WEAKEST]
    of = f"{total['num_statements']:,} lines and {total['num_branches']:,} branches"
    when = f"{day}, commit `{commit}`, Python {platform.python_version()}, by {tests}"
    by_room = table("room", dict(sorted(rooms.items(), key=lambda item: share(item[1]))))
    by_module = table("module", {name: modules[name] for name in weak})
    lines = [
        f"# Coverage\n\n**{share(total):.1f} %** of {of} were reached: {when}.\n", ABOUT, *by_room,
        f"\n## The weakest modules, of those with {SMALL} lines or more\n", *by_module,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the measurement, write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("measured", type=Path, help="what `coverage json` wrote")
    parser.add_argument("--tests", default="`make coverage`", help="which tests were run")
    parser.add_argument("--commit", help="of which commit; default: the one that is checked out")
    options = parser.parse_args()
    head = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    commit = options.commit or subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    measured = json.loads(options.measured.read_text())
    PAGE.write_text(page_of(measured, options.tests, commit, datetime.now(UTC).date().isoformat()))
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
