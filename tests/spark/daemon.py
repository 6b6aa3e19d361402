"""PySpark's daemon of Python workers, which has imported what tasks of the tests need: its forks need not.

PySpark has every worker import for itself, and from a zip, which keeps no bytecode; and after every task the
worker searches all that was imported for garbage. Both take longer than a small task. `SPARK_CONF` names this
module for the one session of the tests; sessions of other processes have PySpark's own daemon.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from socket import socket

WORKER = "pyspark.worker"  # Spark asks a daemon for other things, too: those it does once
# Threads do not come through a fork. Of these, pyarrow and numpy have some, and both start them again.
IMPORTED = (
    "numba.np.random.distributions",  # and with it what numba's compiled functions are loaded with
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "whence.spark.datasets",
    "whence.spark.metrics.summary",
    "whence.spark.sweep",
    "whence.spark.verify",
)


def main() -> None:
    """What the program does."""
    sys.path[:] = [each for each in sys.path if not each.endswith("/pyspark.zip")]  # it is installed, too
    from pyspark import daemon

    perform = daemon.worker

    def worker(sock: socket, authenticated: bool) -> int:
        code = perform(sock, authenticated)
        gc.collect(1)  # what the task has left; PySpark then searches the rest
        gc.freeze()
        return code

    daemon.worker = worker
    if sys.argv[1:] == [WORKER]:
        for name in (WORKER, *IMPORTED):
            import_module(name)
        gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
