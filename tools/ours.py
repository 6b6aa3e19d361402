"""Keep what a study measured as what later runs are compared with: `ours.toml` beside its claims.

    python tools/ours.py --from-seed 6 out/study-vcube/results.json [...]

Takes every mean over five runs or more that a claim of the paper is judged by (whence.studies.verdicts), of
the runs with that seed and higher ones: seeds that `demo` does not run make it a test of other runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from whence.studies import registry
from whence.studies.results import Results, Row
from whence.studies.verdicts import recordable

STUDIES = Path(__file__).parents[1] / "src" / "whence" / "studies"


def written(document: dict[str, Any], from_seed: int) -> str:
    """The file for one result."""
    study = registry.lookup(document["study"])
    rows = [
        Row(run["run"], run["labels"], run["parameters"], run["measures"], run["verdict"])
        for run in document["runs"]
        if run["labels"][study.repetition] >= from_seed
    ]
    kept = recordable(study.judge(Results(tuple(rows), study.repetition)))
    command = f"whence study {document['study']} --scale {document['scale']}"
    lines = [
        f"# What `{command}` measured, seeds from {from_seed} on\n",
        f"# (tools/ours.py; commit {document['environment']['commit']})\n\n",
    ]
    for name, one in kept.items():
        mean, deviation, runs = f"{one['mean']:.6g}", f"{one['deviation']:.3g}", one["runs"]
        seeds = f"[{from_seed}, {from_seed + runs - 1}]"
        lines.append(
            f'"{name}" = {{ mean = {mean}, deviation = {deviation}, runs = {runs}, seeds = {seeds} }}\n'
        )
    return "".join(lines)


def main() -> int:
    """Write one file for each result that is named."""
    parser = argparse.ArgumentParser(description="Keep what a study measured for its regressions.")
    parser.add_argument("results", type=Path, nargs="+", help="results.json of studies")
    parser.add_argument("--from-seed", type=int, default=1, help="leave out the runs of lower seeds")
    given = parser.parse_args()
    for name in given.results:
        document = json.loads(name.read_text(encoding="utf-8"))
        path = STUDIES / document["study"] / "ours.toml"
        path.write_text(written(document, given.from_seed), encoding="utf-8")
        print(f"{path}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
