"""Record runs at the scale `demo`: `python tests/golden/record_demo.py out/study-*/results.json`.

With `--add NAME ...` only those points of these studies are run, in this process, that are not recorded.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.recorded import add, missing, save
from support.tiny_study import carried_out
from whence.studies import registry


def run_missing(name: str) -> Path:
    """Run and keep the points of a study that are not recorded."""
    study = registry.lookup(name)
    if study.preparation is not None:
        study.preparation()
    with tempfile.TemporaryDirectory() as folder:
        return add(name, carried_out(study, missing(name), Path(folder)).rows)


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[:1] == ["--add"]:
        made = [run_missing(name) for name in given[1:]]
    else:
        made = [save(json.loads(Path(path).read_text(encoding="utf-8"))) for path in given]
    print(*made, sep="\n")
