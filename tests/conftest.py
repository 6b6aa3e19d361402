"""Fixtures that several kinds of test share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.quick_java import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.tiny_study import TinyStudies

# pytest-xdist tells its workers that they are 80 columns wide; our tables take a pipe's width.
os.environ.pop("COLUMNS", None)

# A shell that runs us in the background ignores SIGINT, and programs that tests interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of processes, each of which would compile half of the package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What collecting makes (tests, parameters, modules) stays to the end: it is not searched for garbage while it
# is made, nor ever after (`pytest_collection_finish`). The tests' own is searched for in larger steps.
gc.disable()
GARBAGE = (50_000, 10, 10)

# Tests are many small jobs; so are the commands that they start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JAVA)
SPARK_CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    # Else PySpark asks the JVM four things more at every use of a column, to tell where an error was made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Workers are forks of a daemon that has imported what they need (`spark/daemon.py`).
    "spark.python.daemon.module": "spark.daemon",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent),
}
SPARK_TESTS = "tests/spark/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files to workers as they are free, and all of Spark's to one: a JVM is slow until it is warm."""
    from xdist.scheduler import LoadFileScheduling

    class OneSpark(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return SPARK_TESTS if file.startswith(SPARK_TESTS) else file

    return OneSpark(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    gc.enable()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of all tests: a process can have but one, and starting it takes seconds."""
    from whence.spark.session import get_session

    session = get_session("whence tests", conf=SPARK_CONF)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def tiny_studies(tmp_path_factory: pytest.TempPathFactory) -> TinyStudies:
    """Studies at their smallest scale, which several files judge and every worker may need."""
    from support.tiny_study import TinyStudies

    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # that of all workers
    shared = place / "tiny-studies"
    shared.mkdir(exist_ok=True)
    return TinyStudies(shared)
