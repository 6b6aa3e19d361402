"""The data pipeline: sweeps, verification and measures on Spark.

PySpark's workers collect garbage after every task, and look through all that they have loaded: with the
modules of numba and Spark 0.1 to 0.3 CPU seconds, most of what workers of short tasks did. So in a worker,
what has outlived such a collection is not looked through again.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

_TASKS: Any = sys.modules.get("pyspark.taskcontext")  # not imported: what finds Java needs no pyspark


def _keep_what_outlived(phase: str, info: dict[str, int]) -> None:
    """Between two tasks only: what a task holds may become garbage."""
    if phase == "stop" and info["generation"] == 2 and _TASKS.TaskContext.get() is None:
        gc.freeze()


if _TASKS is not None and _TASKS.TaskContext.get() is not None:  # first imported in a task: this is a worker
    gc.callbacks.append(_keep_what_outlived)
