"""Say which tests vanished and which are new since `tests/golden/data/test-functions.txt` was written.

    python tools/compare_tests.py            # exit code 1 if a test vanished without being named
    python tools/compare_tests.py --write    # write the list anew

A test is its function and parameters, without its file and class: tests may move. A name that is there twice
counts twice. Tests that were removed on purpose are named in `test-removals.txt` beside the list, one a line
(once for each copy), with a reason after `#` in a line of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
KNOWN = ROOT / "tests" / "golden" / "data" / "test-functions.txt"
REMOVALS = KNOWN.with_name("test-removals.txt")
PLACE = re.compile(r"tests/[\w/]+\.py::(?:\w+::)*")  # the file and the classes


def collected() -> Counter[str]:
    """Every test that pytest finds, the slow ones too."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=", "tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pytest cannot collect the tests:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    lines = done.stdout.splitlines()
    return Counter(line[found.end() :] for line in lines if (found := PLACE.match(line)))


def read(path: Path) -> Counter[str]:
    """The names in a file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return Counter(line for line in lines if line and not line.startswith("#"))


def main(arguments: list[str]) -> int:
    """Compare, or write."""
    found = collected()
    if "--write" in arguments:
        KNOWN.write_text("".join(f"{name}\n" for name in sorted(found.elements())), encoding="utf-8")
        return 0
    known, named = read(KNOWN), read(REMOVALS)
    vanished = known - found
    unnamed = vanished - named
    for title, names in (
        ("new", found - known),
        ("removed, as named", vanished - unnamed),
        ("named as removed, but there", named - vanished),
        ("VANISHED", unnamed),
    ):
        for name in sorted(names.elements()):
            sys.stdout.write(f"{title}: {name}\n")
    sys.stdout.write(f"{found.total()} tests, {known.total()} before, {unnamed.total()} vanished\n")
    return int(bool(unnamed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
