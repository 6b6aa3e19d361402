"""How a function of a stream finds the package that a session has shipped.

Whatever a session runs itself finds it: Spark puts it on the workers' path. A stream is different in two
ways, both of them Spark's. Before a stateful query starts, Spark asks a Python beside the driver about it,
and gives that one nothing that was shipped. And over Spark Connect, the workers of a stream have on their
path `userFiles/whence-HASH.zip`, while the file is in `userFiles/SESSION/`.

So what a stream calls first must not need the package: it is sent as code (`by_value`) and imports the rest
when rows come, after `find_shipped`. This module is sent as code itself.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from pyspark import cloudpickle


def by_value(module: str) -> None:
    """From now on, send what is defined in that module as code, not by its name."""
    register: Any = cloudpickle.register_pickle_by_value  # it has no type hints
    register(sys.modules[module])


by_value(__name__)


def find_shipped() -> None:
    """Let this process import the package: installed, found by Spark, or beside where Spark looked."""
    if "whence" in sys.modules:
        return
    for entry in map(Path, list(sys.path)):
        if entry.match("whence-*.zip") and not entry.exists():
            # The hash in its name makes any session's copy the right one.
            found = sorted(entry.parent.glob(f"*/{entry.name}"))
            sys.path[1:1] = map(str, found[:1])
    importlib.invalidate_caches()
