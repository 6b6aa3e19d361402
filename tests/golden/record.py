"""Record goldens: what this release does, so that a later one can be held to it.

    PYTHONPATH=tests python -m golden.record                # all of them
    PYTHONPATH=tests python -m golden.record frames saves   # these

A module `of_*.py` in this folder may have a dictionary `GOLDENS`: name -> function that makes its data. The
tests beside it compare. Record again only in a commit that says what has changed, and why.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

from golden.files import keep


def goldens() -> dict[str, Callable[[], Any]]:
    """Every golden by name."""
    found: dict[str, Callable[[], Any]] = {}
    for path in sorted(Path(__file__).parent.glob("of_*.py")):
        found |= getattr(importlib.import_module(f"golden.{path.stem}"), "GOLDENS", {})
    return found


def main(names: list[str]) -> None:
    """Record those of `names`, or all."""
    known = goldens()
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SystemExit(f"There is no golden {', '.join(unknown)}. Choose from: {', '.join(known)}")
    for name in names or known:
        began_s = process_time()
        path = keep(name, known[name]())
        print(f"{name}: {path.stat().st_size:,} bytes, {process_time() - began_s:.1f} CPU-s")


if __name__ == "__main__":
    main(sys.argv[1:])
