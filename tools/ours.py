"""Keep what a study measured as what later runs are compared with: `ours.toml` beside its claims.

    python tools/ours.py out/study-vcube/results.json [...]

Takes every mean over five runs or more that a claim of the paper is judged by (whence.studies.verdicts).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

STUDIES = Path(__file__).parents[1] / "src" / "whence" / "studies"


def written(document: dict[str, object]) -> str:
    """The file for one result."""
    kept = document["ours"]
    assert isinstance(kept, dict)
    rows = [
        f"# What `whence study {document['study']} --scale {document['scale']}` measured (tools/ours.py)\n\n"
    ]
    for name, one in kept.items():
        mean, deviation, runs = f"{one['mean']:.6g}", f"{one['deviation']:.3g}", one["runs"]
        rows.append(f'"{name}" = {{ mean = {mean}, deviation = {deviation}, runs = {runs} }}\n')
    return "".join(rows)


def main() -> int:
    """Write one file for each result that is named."""
    for name in sys.argv[1:]:
        document = json.loads(Path(name).read_text(encoding="utf-8"))
        path = STUDIES / document["study"] / "ours.toml"
        path.write_text(written(document), encoding="utf-8")
        print(f"{path}: {len(document['ours'])} numbers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
