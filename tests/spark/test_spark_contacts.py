"""Contacts on Spark against brute force: borders of pieces, missing samples, ties, exact range."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from support.positions import Position, brute, wander
from whence.cli.main import main
from whence.errors import ContactPlanError, SchemaError
from whence.mobility.paths import sampled
from whence.mobility.positions import TimeGroup, save_positions, time_groups
from whence.mobility.walkers import WalkerCity, walker_paths
from whence.spark import contacts
from whence.spark.contacts import (
    collect_plan,
    contact_intervals,
    find_step_us,
    intervals_by_join,
    intervals_of_files,
    look_over,
    read_pieces,
)
from whence.spark.tables import POSITIONS

pytestmark = pytest.mark.spark
S = 1_000_000


def rows_of(found: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in found.collect())


CASES = {
    "free": (wander(1, 12, 40), 50.0, None),
    "ties at exactly the range": (wander(2, 10, 40, grid_m=25.0), 50.0, None),
    "bridged gaps": (wander(3, 10, 40, missing=0.3), 60.0, 3 * S),
    "all at one place": ([(t * S, f"n{at}", 7.0, 7.0) for t in range(8) for at in range(15)], 1.0, None),
    "several positions in a step": (
        [(t * S + part, f"n{at}", float(t * at), float(part)) for t in range(6) for at in range(4)
         for part in (0, 3, 5)], 4.0, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("piece_s", [1, 7])
def test_kernel_equals_brute_force(spark: SparkSession, name: str, piece_s: int) -> None:
    rows, range_m, gap_us = CASES[name]
    table = spark.createDataFrame(rows, POSITIONS)
    found = contact_intervals(table, range_m, step_us=S, gap_us=gap_us, piece_us=piece_s * S)
    assert rows_of(found) == brute(rows, range_m, S, gap_us)


@pytest.mark.parametrize("name", CASES)
def test_self_join_equals_brute_force(spark: SparkSession, name: str) -> None:
    rows, range_m, gap_us = CASES[name]
    found = intervals_by_join(spark.createDataFrame(rows, POSITIONS), range_m, step_us=S, gap_us=gap_us)
    assert rows_of(found) == brute(rows, range_m, S, gap_us)


@pytest.mark.parametrize("name", CASES)
def test_tasks_that_read_a_file_equal_brute_force(
    spark: SparkSession, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, range_m, gap_us = CASES[name]
    path = in_groups(sorted(rows), tmp_path, 7)  # a group may end within a step
    monkeypatch.setattr(contacts, "TASK_ROWS", 20)
    groups = time_groups(path)
    assert groups is not None
    assert len(read_pieces(groups, S) or ()) > 1
    found = intervals_of_files(spark, path, range_m, step_us=S, gap_us=gap_us)
    assert rows_of(found) == brute(rows, range_m, S, gap_us)


def test_a_file_in_another_order_is_shuffled(spark: SparkSession, tmp_path: Path) -> None:
    rows, range_m, gap_us = CASES["free"]
    path = in_groups(sorted(rows, key=lambda row: row[1]), tmp_path, 7)  # by node: all groups have all times
    found = intervals_of_files(spark, path, range_m, step_us=S, gap_us=gap_us)
    assert rows_of(found) == brute(rows, range_m, S, gap_us)


def in_groups(rows: list[Position], folder: Path, rows_each: int) -> Path:
    """A file with row groups of a few rows each, and a row at the end that cannot be used."""
    lost = (rows[-1][0], "lost", float("nan"), 0.0)
    columns = [pa.array(column) for column in zip(*rows, lost, strict=True)]
    path = folder / "positions.parquet"
    pq.write_table(pa.table(columns, names=POSITIONS.names), path, row_group_size=rows_each)
    return path


def test_pieces_of_files_keep_steps_whole_and_are_few_or_none() -> None:
    third = contacts.TASK_ROWS // 3 + 1
    in_order = [TimeGroup(third, at * 10, at * 10 + 12) for at in range(9)]
    assert read_pieces(in_order, 7) == [(0, 28), (28, 56), (56, 93)]
    assert read_pieces([TimeGroup(third, 0, 1_000)] * 9, 7) == [(0, 1_001)]  # one piece, read once
    assert read_pieces([TimeGroup(contacts.READ_ROWS_MAX, 0, 9), TimeGroup(1, 5, 20)], 1) is None
    everywhere = [TimeGroup(third, at, 1_000) for at in range(12)]
    assert read_pieces(everywhere, 1) is None  # every group has the times of every piece
    assert read_pieces([], 1) is None
    usual = [TimeGroup(2**20, at * 2**20 // 1_000, (at + 1) * 2**20 // 1_000) for at in range(10)]
    assert len(read_pieces(usual, 1) or ()) == 10  # what pyarrow writes: groups that cut a step in two


def test_a_plan_is_collected(spark: SparkSession) -> None:
    rows: list[Position] = [
        (t * S, node, x, 0.0) for t in range(10, 16) for node, x in (("10", 0.0), ("9", 3.0), ("z", 99.0))
    ]
    plan = collect_plan(contact_intervals(spark.createDataFrame(rows, POSITIONS), 5.0, step_us=S))
    assert plan.nodes == ("9", "10", "z")
    assert list(plan.contacts) == [(0, 1, 0, 6 * S)]
    assert list(plan.presence) == [(at, 0, 6 * S) for at in range(3)]


def test_bad_rows_are_counted_and_left_out(spark: SparkSession) -> None:
    good: list[Any] = [(0, "a", 0.0, 0.0), (0, "b", 1.0, 0.0)]
    bad: list[Any] = [
        (0, "c", float("nan"), 0.0), (0, "d", 0.0, float("inf")), (None, "e", 0.0, 0.0), (0, None, 0.0, 0.0)
    ]  # fmt: skip
    table = spark.createDataFrame(good + bad, POSITIONS)
    assert look_over(table)[:2] == (6, 4)
    plan = collect_plan(contact_intervals(table, 5.0, step_us=S))
    assert plan.nodes == ("a", "b")
    assert len(plan.contacts) == 1


def test_the_step_is_found(spark: SparkSession) -> None:
    rows = [(when * S, "a", 0.0, 0.0) for when in (0, 30, 50, 90)]
    assert find_step_us(spark.createDataFrame(rows, POSITIONS)) == 20 * S
    with pytest.raises(ContactPlanError, match="two different times"):
        find_step_us(spark.createDataFrame(rows[:1], POSITIONS))


def test_wrong_tables_and_measures(spark: SparkSession) -> None:
    with pytest.raises(SchemaError, match="column 'node'"):
        contact_intervals(spark.createDataFrame([(1, 2)], "time_us bigint, x bigint"), 5.0, step_us=S)
    table = spark.createDataFrame([(-5, "a", 0.0, 0.0)], POSITIONS)
    with pytest.raises(ContactPlanError, match="negative"):
        look_over(table)
    for range_m, step_us, gap_us in (
        (0.0, S, None),
        (float("nan"), S, None),
        (5.0, 0, None),
        (5.0, S, S - 1),
    ):
        with pytest.raises(ContactPlanError):
            contact_intervals(table, range_m, step_us=step_us, gap_us=gap_us, piece_us=S)


def test_wrong_files(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ContactPlanError, match="negative"):
        intervals_of_files(spark, in_groups([(-5, "a", 0.0, 0.0)], tmp_path, 5), 5.0, step_us=S)
    with pytest.raises(ContactPlanError, match="no such file"):
        intervals_of_files(spark, tmp_path / "nothing.parquet", 5.0, step_us=S)
    with pytest.raises(ContactPlanError, match="range"):
        intervals_of_files(spark, tmp_path / "positions.parquet", 0.0, step_us=S)


def test_no_positions_give_an_empty_plan(spark: SparkSession) -> None:
    plan = collect_plan(contact_intervals(spark.createDataFrame([], POSITIONS), 5.0, step_us=S))
    assert (plan.nodes, len(plan.contacts), plan.stop_us) == ((), 0, 0)


def test_the_command_gives_the_same_plan_on_spark_and_in_process(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = walker_paths(1, WalkerCity(duration_s=900.0))
    source = tmp_path / "positions.parquet"
    save_positions(paths.nodes, sampled(paths, S), source)
    documents = []
    for where in ("--spark", "--no-spark"):
        with pytest.raises(SystemExit) as ended:
            main(["contacts", str(source), "--range", "50", "--json", where])
        assert not ended.value.code
        documents.append(json.loads(capsys.readouterr().out))
    assert [each["engine"] for each in documents] == ["Spark", "this process"]
    assert documents[0]["sha256"] == documents[1]["sha256"]
    assert documents[0]["statistics"]["contacts"] > 100
