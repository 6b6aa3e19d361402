"""How far a job is, by Spark's own status."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from whence.spark.cores import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Told (tasks ended, tasks known so far), from another thread while jobs are under way.
Tasks: TypeAlias = Callable[[int, int], None]

POLL_SECONDS = 0.25
_GROUP = "spark.jobGroup.id"


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
