"""Golden text of the command line: every `--help`, and what `--json` prints.

    python tests/golden/record_cli.py            # compare, write nothing
    python tests/golden/record_cli.py --write    # record anew

Not here: commands that need Spark (sweep, metrics, stream, study NAME, mom traffic), a running system (node,
mom up and the like), or draw keys (keys), and `version`, whose output is made of version numbers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyarrow import parquet

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.record_studies import Golden, changes, load, save
from whence.cli.main import COMMANDS, main
from whence.cli.main import load as load_command

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"
PLAIN = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
TRAFFIC = {"source": list("aaabbcdde"), "to": list("bcedadaed"), "messages": [9, 4, 1, 7, 2, 3, 8, 5, 6]}
# In this order: some read what an earlier one has written.
LINES = (
    "simulate scenarios/slow-link.toml --out trace --json",
    "simulate scenarios/partition-heal.toml --verify --json",
    "simulate scenarios/lossy-deadlines.toml --seed 3 --set nodes=5 --json",
    "verify trace --json",
    "verify trace --as-promised --witnesses 1 --json",
    "replay trace --json",
    "trace info trace --json",
    "trace check trace --json",
    "trace events trace --limit 12 --json",
    "trace export trace log.txt --json",
    "verify log.txt --json",
    "protocols --json",
    "protocols --choose 100 10 0.1 --json",
    "study list --json",
    "contacts walkers --seeds 1 --json",
    "mom plan traffic.parquet --steps 100 --json",
)
# Times, versions, and the bytes of Parquet files, which change with pyarrow.
VOLATILE = frozenset(("seconds", "rows_per_second", "software", "size_bytes", "sha256"))


# The code under test


def call(line: str) -> tuple[int, str]:
    """The exit code of a command and what it wrote to stdout."""
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(StringIO()):
        try:
            main(line.split())
        except SystemExit as ended:
            return int(ended.code or 0), out.getvalue()
    raise AssertionError(f"whence {line} did not end with an exit code")


def commands() -> Iterator[str]:
    """Every command and sub-command."""
    for entry in COMMANDS:
        yield entry.name
        for name in getattr(load_command(entry), "commands", ()):
            yield f"{entry.name} {name}"


# Its text


def helps() -> Golden:
    """The lines of each `--help`."""
    return {line: _help(f"{line} --help".strip()) for line in ("", *commands())}


def _help(line: str) -> list[str]:
    with patch.dict(os.environ, PLAIN):  # here only: the consoles of other commands keep their width
        code, text = call(line)
    assert code == 0, line
    return [one.rstrip() for one in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]


def documents() -> Golden:
    """The exit code of each of `LINES`, and the lines of its JSON without what is volatile."""
    with tempfile.TemporaryDirectory(prefix="whence-golden-") as folder, chdir(folder):
        shutil.copytree(SCENARIOS, "scenarios")
        parquet.write_table(pa.table(TRAFFIC), "traffic.parquet")
        return {line: _document(line) for line in LINES}


def _document(line: str) -> list[str]:
    code, text = call(line)
    found = json.dumps(_stable(json.loads(text)), indent=1, ensure_ascii=False)
    return [f"exit code {code}", *found.splitlines()]


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stable(each) for key, each in value.items() if key not in VOLATILE}
    return [_stable(each) for each in value] if isinstance(value, list) else value


def run() -> int:
    """Compare or record; exit code 1 if something differs."""
    differs = False
    for name, found in (("cli-help", helps()), ("cli-json", documents())):
        if "--write" in sys.argv[1:]:
            save(name, found)
            continue
        for line in changes(load(name), found):
            print(name + line)
            differs = True
    return int(differs)


if __name__ == "__main__":
    sys.exit(run())
