"""How far a Spark job is, and why one failed: Spark's status and errors made readable.

`watched` tells how many tasks of the jobs within have ended. `spark_failures` turns whatever Spark raises
into one line of ours, and for want of memory names the setting to change.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.errors import PySparkException

from whence.errors import DataError, DiskError, PlatformError, WhenceError
from whence.spark.java import last_error
from whence.spark.session import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Receives (tasks ended, tasks known so far), from another thread while jobs are under way.
Tasks: TypeAlias = Callable[[int, int], None]

POLL_SECONDS = 0.25
_GROUP = "spark.jobGroup.id"

# What Spark says, and what the JVM says through it (a file that is not Parquet, a disk that is full); and
# the silence of a JVM that is gone.
SPARK_ERRORS: tuple[type[Exception], ...] = (
    PySparkException,
    import_module("py4j.protocol").Py4JError,  # it has no type hints
    ConnectionError,
)

_HEAP = re.compile(r"(?:java\.lang\.|Spark)OutOfMemoryError(?:: ([\w ]+))?")
_HEAP_FIX = (
    "Give Spark more memory: the variable SPARK_DRIVER_MEMORY=8g on this machine, the setting "
    "spark.executor.memory on a cluster"
)
_GONE_FIX = (
    "If the machine has run out of memory, give Spark less (SPARK_DRIVER_MEMORY=2g) or let fewer tasks run "
    "at a time (--master 'local[1]'); WHENCE_SPARK_LOG=FILE keeps all that the JVM says"
)
_SERVER_FIX = "Its log says why it ended; start it again, and give the same command"
# What gRPC says to a Spark Connect client that has asked in vain often enough.
_UNANSWERED = re.compile(r"StatusCode\.UNAVAILABLE")
# A Python worker says MemoryError, or nothing at all if the system killed it.
_WORKER = re.compile(
    r"^\s*(?:numpy\S*)?MemoryError|Python worker exited unexpectedly|exit code 137|exceeding memory limits",
    re.MULTILINE,
)
_WORKER_FIX = (
    "Let fewer tasks run at a time (--master 'local[1]') or give them less (--memory of whence verify); on a "
    "cluster raise spark.executor.memoryOverhead"
)


_FULL = re.compile(r"No space left on device|Disk quota exceeded|Read-only file system")
_FULL_FIX = (
    "Make room, or write elsewhere; what Spark spills goes to the folder of the variable SPARK_LOCAL_DIRS. "
    "Then give the same command again"
)


# Failures


def explained(error: Exception, what: str, fix: str) -> WhenceError:
    """Spark's error as one of ours: of the machine if that was the cause, else of the data, with `fix`."""
    return platform_problem(error, what) or DataError(what, reason_of(error), fix)


def platform_problem(error: BaseException, what: str) -> PlatformError | None:
    """The error to show if memory or disk was short, or the JVM or the server is gone; else None."""
    said = str(error)
    if _is_silence(error):
        said += last_error() or ""
    full = _FULL.search(said)
    if full:
        return DiskError(what, f"a disk that Spark writes to is full or closed ({full[0]})", _FULL_FIX)
    heap = _HEAP.search(said)
    if heap:
        detail = f" ({heap[1]})" if heap[1] else ""
        return PlatformError(what, f"Spark's JVM has too little memory{detail}", _HEAP_FIX)
    if _WORKER.search(said):
        return PlatformError(what, "a Python worker died, probably of too little memory", _WORKER_FIX)
    if _UNANSWERED.search(said):
        return PlatformError(what, "the Spark Connect server is gone", _SERVER_FIX)
    if _is_silence(error):
        return PlatformError(what, "Spark's JVM is gone; the system may have killed it", _GONE_FIX)
    return None


def _is_silence(error: BaseException) -> bool:
    """Whether the JVM does not reply any more: a call has failed, and its reason cannot be asked for."""
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return True
    said = str(error).strip()
    return "SparkContext was shut down" in said or bool(re.fullmatch(r"An error \w+ while calling \S+", said))


@contextmanager
def spark_failures(what: str, fix: str) -> Iterator[None]:
    """Within, whatever Spark raises becomes an error of ours."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise explained(error, what, fix) from error


def reason_of(error: BaseException) -> str:
    """One line of what Spark says: its innermost cause, without names of classes and codes."""
    text = str(error)
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]
    causes = [line.removeprefix("Caused by:").strip() for line in lines if line.startswith("Caused by:")]
    raised = [line for line in lines if re.match(r"(?:\w+\.)*\w+(?:Error|Exception): ", line)]
    if "Traceback (most recent call last)" in text and raised:  # of a Python worker
        causes = raised
    telling = [line for line in lines if line.startswith("[")]
    line = (causes[-1:] or telling or lines or [type(error).__name__])[0]
    line = re.sub(r"^(?:[\w$]+\.)+[\w$]+:\s*", "", line)
    line = re.sub(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE: \w+", "", line)
    return line.rstrip(". ")


# Progress


@contextmanager
def watched(spark: SparkSession, tell: Tasks | None) -> Iterator[None]:
    """Tell how far the jobs are that this thread starts within. A Spark Connect client tells nothing.

    Spark plans a job stage by stage, so that the number of tasks may grow on the way.
    """
    if tell is None or is_remote(spark):
        yield
        return
    context = spark.sparkContext
    group, before = f"whence-{uuid.uuid4()}", context.getLocalProperty(_GROUP)
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(POLL_SECONDS):
            tell(*_tasks(context.statusTracker(), group))

    watcher = threading.Thread(target=watch, name="spark-progress", daemon=True)
    context.setLocalProperty(_GROUP, group)
    watcher.start()
    try:
        yield
        stopped.set()
        watcher.join()
        tell(*_tasks(context.statusTracker(), group))
    finally:
        stopped.set()
        context.setLocalProperty(_GROUP, before or "")


def _tasks(tracker: Any, group: str) -> tuple[int, int]:
    """The tasks of a group's jobs that have ended, and all."""
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        stages = [] if info is None else [tracker.getStageInfo(stage) for stage in info.stageIds]
        for stage in filter(None, stages):
            total += stage.numTasks
            done += min(stage.numCompletedTasks, stage.numTasks)
    return done, total
