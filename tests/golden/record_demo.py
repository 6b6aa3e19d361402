"""Record runs at the scale `demo`: `python tests/golden/record_demo.py out/study-*/results.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.recorded import save

if __name__ == "__main__":
    for given in sys.argv[1:]:
        print(save(json.loads(Path(given).read_text(encoding="utf-8"))))
