"""Exploring on Spark: a world's frontier is spread over tasks, which work out the states one move away.

A task has tables of its own, filled from those of the driver and from what the task before it in the same
process has left, and reports what it had to add. Digests come from contents alone, so they are the same
everywhere, and so is the number of states. What is known is a folder of Parquet files, a level each: the new
states of a level are those that no earlier level has.

Livelocks are looked for only where a search is one process: where moves lead back to states of an
earlier level, the report says so, and is not complete.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from whence.explore.expand import RETRIED, Expander, How, instead
from whence.explore.schedule import shown
from whence.explore.search import Options, Report, SearchProgress, explore
from whence.explore.snapshot import Tables
from whence.explore.state import Counterexample, State
from whence.explore.world import World, checked
from whence.spark.progress import spark_failures
from whence.spark.session import cores_of
from whence.spark.tables import small_table

# What a row of a task is.
STATE, EDGE, COUNT, TABLES, BAD_STATE, BAD_MOVE, RAISED = range(7)
_RAISED = tuple(RETRIED)  # of RAISED: which
STATES_PER_BATCH = 20_000
_encode, _as_state = msgspec.msgpack.encode, msgspec.msgpack.Decoder(State).decode

SAID = StructType(
    [
        StructField("kind", LongType()),
        StructField("digest", LongType()),  # of a state; of COUNT: moves
        StructField("parent", LongType()),  # the state before it; of COUNT: final states
        StructField("state", BinaryType()),
    ]
)
Task: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Tried(NamedTuple):
    """A level that cannot be counted on: try again so."""

    how: How


def explore_on(spark: SparkSession, world: World, options: Options | None = None) -> Report:
    """Explore `world` with the registry's cores; the same states as `explore` in process."""
    world = checked(world)
    options = options or Options()
    how = How(options.symmetry, options.order, options.stale, options.kinds)
    with spark_failures("whence explore", "Give --folder on storage that the driver and all workers share"):
        while True:
            if options.folder is not None:
                options.folder.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="whence-explore-", dir=options.folder))
            try:
                ended = _SparkSearch(spark, world, options, how, folder).run()
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            if isinstance(ended, Report):
                break
            how = ended.how
    found = ended.counterexample
    if found is not None and (ended.order or ended.stale):  # as in process: look for a shorter one
        plain = options._replace(order=False, stale=False, depth_max=len(found.moves) + 1)
        again = explore(world, plain).counterexample
        found = found._replace(shortest=False) if again is None else again
    return ended._replace(counterexample=found)


class _SparkSearch:
    def __init__(self, spark: SparkSession, world: World, options: Options, how: How, folder: Path) -> None:
        self._spark, self._world, self._options, self._how = spark, world, options, how
        self._folder = folder
        self._expander = Expander(world, how)
        self._name = uuid.uuid4().hex
        self._counts: list[int] = []  # states by level
        self._moves = self._finals = 0
        self._goes_back = False
        self._began_s = time.process_time()

    def run(self) -> Report | _Tried:
        rows, flaws = self._expander.first()
        if flaws:
            return self._report(Counterexample(flaws[0], (), True), None)
        digests, _ = self._expander.layout.canonical(rows)
        first = [(_signed(digests)[0].item(), 0, _encode(self._expander.layout.state(rows[0].tolist())))]
        self._keep(small_table(self._spark, first, StructType(SAID.fields[1:])))
        while self._counts[-1]:
            if self._options.progress is not None:
                seconds = time.process_time() - self._began_s
                now = SearchProgress(len(self._counts) - 1, sum(self._counts), self._counts[-1], seconds)
                self._options.progress(now)
            if len(self._counts) - 1 == self._options.depth_max:
                return self._report(
                    None, f"schedules longer than {self._options.depth_max} moves are not explored"
                )
            ended = self._level()
            if ended is not None:
                return ended
            if sum(self._counts) > self._options.states_max:
                return self._report(None, f"there are more than {self._options.states_max:,} states")
        why = "moves lead back: livelocks are looked for only in one process" if self._goes_back else None
        return self._report(None, why)

    def _report(self, found: Counterexample | None, why_not: str | None) -> Report:
        states = sum(self._counts)
        return Report(
            states=states,
            steps=self._moves,
            depth=max(len(self._counts) - 1 - (self._counts[-1:] == [0]), 0),
            finals=self._finals,
            complete=found is None and why_not is None,
            why_not=why_not,
            symmetry=len(self._expander.layout.names),
            order=self._expander.order,
            stale=self._expander.drops,
            counterexample=found,
            seconds=time.process_time() - self._began_s,
            missed_chance=states**2 / 2.0**65,
        )

    # Levels as files

    def _at(self, level: int) -> str:
        return str(self._folder / f"{level:05}")

    def _read(self, level: int) -> DataFrame:
        return self._spark.read.parquet(self._at(level))

    def _known(self) -> DataFrame:
        return self._spark.read.parquet(*map(self._at, range(len(self._counts)))).select("digest")

    def _keep(self, states: DataFrame) -> None:
        """Write a new level."""
        level = len(self._counts)
        states.write.parquet(self._at(level))
        self._counts.append(self._read(level).count())

    def _level(self) -> Report | _Tried | None:
        """One more level; or how the search ends."""
        frontier = self._read(len(self._counts) - 1).repartition(2 * cores_of(self._spark))
        known = self._known()
        found = frontier.mapInArrow(self._task(rest=False), SAID).persist(StorageLevel.MEMORY_AND_DISK)
        ended = self._heard(found)
        if ended is not None:
            return ended
        if found.filter(F.col("kind") == EDGE).limit(1).count():
            stale = self._stale(found, known)
            more = frontier.join(stale, "digest", "left_semi").mapInArrow(self._task(rest=True), SAID)
            more = more.persist(StorageLevel.MEMORY_AND_DISK)
            ended = self._heard(more)
            if ended is not None:
                return ended
            found = found.unionAll(more)
        states = found.filter(F.col("kind") == STATE).groupBy("digest")
        distinct = states.agg(F.min("parent").alias("parent"), F.first("state").alias("state"))
        if not self._goes_back:
            self._goes_back = distinct.join(known, "digest", "left_semi").limit(1).count() > 0
        self._keep(distinct.join(known, "digest", "left_anti"))
        found.unpersist()
        return None

    def _stale(self, found: DataFrame, known: DataFrame) -> DataFrame:
        """The reduced states without a successor that is new."""
        edges = found.filter(F.col("kind") == EDGE).select("digest", "parent")
        alive = edges.join(known, "digest", "left_anti").select("parent").distinct()
        reduced = edges.select("parent").distinct()
        return reduced.join(alive, "parent", "left_anti").withColumnRenamed("parent", "digest")

    def _heard(self, found: DataFrame) -> Report | _Tried | None:
        """Take note of what tasks say besides states."""
        said = found.filter(~F.col("kind").isin(STATE, EDGE)).collect()
        raised = [_RAISED[row.digest] for row in said if row.kind == RAISED]
        if raised:
            return _Tried(instead(self._how, raised[0]))
        try:
            for row in said:
                if row.kind == TABLES:
                    msgspec.msgpack.decode(row.state, type=Tables).into(self._expander)
        except _RAISED as error:
            return _Tried(instead(self._how, type(error)))
        self._moves += sum(row.digest for row in said if row.kind == COUNT)
        self._finals += sum(row.parent for row in said if row.kind == COUNT)
        for kind in (BAD_STATE, BAD_MOVE):  # the shorter schedule first
            bad = min((row.digest for row in said if row.kind == kind), default=None)
            if bad is not None:
                finding, moves = shown(self._expander, self._way_to(bad))
                return self._report(Counterexample(finding, moves, not self._expander.is_reduced), None)
        return None

    def _way_to(self, digest: int) -> list[int]:
        """The digests from the first state (without it) to a state of the last level."""
        chain: list[int] = []
        for level in range(len(self._counts) - 1, 0, -1):
            chain.append(digest % 2**64)
            (row,) = self._read(level).filter(F.col("digest") == digest).select("parent").take(1)
            digest = row.parent
        return chain[::-1]

    def _task(self, *, rest: bool) -> Task:
        world, how, name = msgspec.json.encode(self._world), self._how, self._name
        tables = msgspec.msgpack.encode(Tables.of(self._expander))

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            work = Work.of(name, world, how, tables)
            yield from work.done(batches, rest=rest)

        return task


class Work:
    """What a worker's process knows of a search."""

    _of: dict[str, Work] = {}  # noqa: RUF012 - one for each process

    def __init__(self, world: World, how: How) -> None:
        self._expander = Expander(world, how)

    @classmethod
    def of(cls, name: str, world: bytes, how: How, tables: bytes) -> Work:
        """The work of a search in this process, with the driver's tables."""
        work = cls._of.get(name)
        if work is None:
            cls._of.clear()
            work = cls._of[name] = cls(msgspec.json.decode(world, type=World), how)
        msgspec.msgpack.decode(tables, type=Tables).into(work._expander)
        return work

    def done(self, batches: Iterator[pa.RecordBatch], *, rest: bool) -> Iterator[pa.RecordBatch]:
        """What is one move away from the states of some batches."""
        before = Tables.sizes(self._expander)
        try:
            for batch in batches:
                for begin in range(0, batch.num_rows, STATES_PER_BATCH):
                    yield from self._expanded(batch.slice(begin, STATES_PER_BATCH), rest)
            yield _said(TABLES, state=[_encode(Tables.of(self._expander, before))])
        except _RAISED as error:
            yield _said(RAISED, np.array([_RAISED.index(type(error))]))

    def _expanded(self, batch: pa.RecordBatch, rest: bool) -> Iterator[pa.RecordBatch]:
        expander, layout = self._expander, self._expander.layout
        own = batch.column("digest").to_numpy()
        states = [_as_state(each) for each in batch.column("state").to_pylist() if each is not None]
        rows = np.array([layout.row(state) for state in states], np.uint32)
        survey = expander.survey(rows)
        if not rest:
            yield _said(COUNT, parent=np.array([int(survey.finals.sum())]))
            wrong = expander.misjudged(rows, survey.finals)
            if wrong is not None:
                yield _said(BAD_STATE, own[wrong : wrong + 1])
        needed = expander.needed(rows, survey)
        found = expander.successors(rows, survey, ~needed if rest else needed)
        if found.bad is not None:
            yield _said(BAD_MOVE, own[found.bad : found.bad + 1])
            return
        yield _said(COUNT, np.array([len(found.rows)]))
        digests, names = layout.canonical(found.rows)
        distinct, first = np.unique(digests, return_index=True)
        fresh = layout.renamed(found.rows[first], names[first])
        contents = [_encode(layout.state(row)) for row in fresh.tolist()]
        yield _said(STATE, _signed(distinct), own[found.parents[first]], contents)
        if not rest:
            some = np.logical_not(needed.all(axis=1))[found.parents]
            if some.any():
                yield _said(EDGE, _signed(digests[some]), own[found.parents[some]])


def _signed(digests: Any) -> Any:
    """Spark has no unsigned numbers."""
    return digests.view(np.int64)


def _said(
    kind: int, digest: Any = None, parent: Any = None, state: list[bytes] | None = None
) -> pa.RecordBatch:
    """Rows of one kind."""
    count = max(len(each) for each in (digest, parent, state) if each is not None)
    columns = [np.full(count, kind, np.int64)]
    columns += [np.zeros(count, np.int64) if each is None else each for each in (digest, parent)]
    arrays: list[Any] = [pa.array(each, pa.int64()) for each in columns]
    arrays.append(pa.array([b""] * count if state is None else state, pa.binary()))
    return pa.RecordBatch.from_arrays(arrays, names=SAID.names)
