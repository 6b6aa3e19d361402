"""What a kernel counts is what Spark computes from the full trace of the same run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from whence.lab.run import expected_seconds
from whence.sim.files import run_id
from whence.sim.model import Scenario, Window
from whence.spark import tables
from whence.spark.metrics.summary import latencies, summary
from whence.spark.metrics.wire import buffer_peaks, dependencies, packing
from whence.spark.sweep import sweep
from whence.studies.vcube.grid import scenario
from whence.studies.vcube.measures import differences, run_point
from whence.trace.measures import read_measures
from whence.trace.schema import Kind

pytestmark = pytest.mark.spark

# One broadcast per node in each of the modes, one of them with three, so that clocks are compressed.
SCENARIOS = {
    mode: scenario("R0", 32, mode, 7, "all") for mode in ("aggregation", "plain", "single tree", "5 bytes")
} | {
    "repeated": msgspec.structs.replace(
        scenario("R1", 16, "aggregation", 7, "all"),
        workloads=[Window(count=3, stop_us=500_000, payload_bytes=50)],
    )
}
RUNS = {run_id(each): mode for mode, each in SCENARIOS.items()}


@pytest.fixture(scope="module")
def out(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernel")
    statuses = sweep(spark, SCENARIOS.values(), folder)  # the sweep's own way: through the kernel
    assert [status.status for status in statuses] == ["done"] * len(SCENARIOS)
    return folder


@pytest.fixture(scope="module")
def counted(out: Path) -> dict[str, dict[str, Any]]:
    found = {mode: read_measures(out / f"run={run}") for run, mode in RUNS.items()}
    return {mode: dict(one.measures) for mode, one in found.items() if one is not None}


@pytest.fixture(scope="module")
def events(spark: SparkSession, out: Path) -> DataFrame:
    return tables.flatten(tables.read_segments(spark, out)).cache()


def test_the_sweep_leaves_the_measures_of_every_run(counted: dict[str, dict[str, Any]]) -> None:
    assert list(counted) == list(SCENARIOS)
    assert counted["aggregation"]["aggregated_packets"] > 10
    assert counted["repeated"]["aggregated_packets"] > 10


def test_summaries(events: DataFrame, counted: dict[str, dict[str, Any]]) -> None:
    rows = {RUNS[row.run]: row.asDict() for row in summary(events).collect()}
    assert {mode: differences(counted[mode], rows[mode]) for mode in SCENARIOS} == dict.fromkeys(SCENARIOS, 0)


def test_copies_and_buffers(events: DataFrame, counted: dict[str, dict[str, Any]]) -> None:
    held = F.col("held_us")
    sums = latencies(events).groupBy("run").agg(
        F.count("received_us").alias("receptions"),
        F.sum("reception_us").alias("reception_us"),
        F.sum("delivery_us").alias("delivery_us"),
        F.sum(held).alias("held_us"),
        F.count_if(held > 0).alias("delayed"),
    )  # fmt: skip
    for row in sums.collect():
        found = row.asDict()
        mode = RUNS[found.pop("run")]
        assert found == {name: counted[mode][name] for name in found}, mode
    peaks: dict[str, list[int]] = {mode: [] for mode in SCENARIOS}
    for row in buffer_peaks(events).orderBy("run", "node").collect():
        peaks[RUNS[row.run]].append(row.held_peak)
    assert peaks == {mode: counted[mode]["held_peaks"] for mode in SCENARIOS}


def test_packing(events: DataFrame, counted: dict[str, dict[str, Any]]) -> None:
    table = packing(events)
    tables.require(table, tables.PACKING, "packing")
    sums = table.groupBy("run").agg(
        *(
            F.sum(name).alias(name)
            for name in ("packets", "copies", "aggregated_packets", "aggregated_copies")
        ),
        F.array_sort(F.collect_list(F.struct("node", "messages_max"))).alias("largest"),
    )
    rows = {RUNS[row.run]: row for row in sums.collect()}
    for mode, made in SCENARIOS.items():
        row, own = rows[mode], counted[mode]
        found = (row.packets, row.copies, row.aggregated_packets, row.aggregated_copies)
        assert found == tuple(
            own[name] for name in ("packets", "copies", "aggregated_packets", "aggregated_messages")
        ), mode
        largest = {int(node.node[1:]): node.messages_max for node in row.largest}
        assert [largest.get(node, 0) for node in range(made.nodes)] == own["messages_max"], mode


def _carried(packets: DataFrame) -> DataFrame:
    """A row for each message in a packet: the first one's id is in columns, the others' in the detail."""
    ids = F.split(F.concat_ws(" ", F.concat_ws(":", "origin", "number"), "detail"), " ")
    return (
        packets.withColumn("id", F.explode(ids))
        .withColumn("origin", F.substring_index("id", ":", 1))
        .withColumn("number", F.substring_index("id", ":", -1).cast("bigint"))
    )


def test_dependencies_and_the_papers_sizes(events: DataFrame, counted: dict[str, dict[str, Any]]) -> None:
    """Tables 2 and 3 and Figure 6, once more: from the trace alone."""
    depends = dependencies(events)
    tables.require(depends, tables.DEPENDENCIES, "dependencies")
    found: dict[str, Counter[int]] = {mode: Counter() for mode in SCENARIOS}
    for row in depends.collect():
        found[RUNS[row.run]][row.dependencies] += 1
    for mode, histogram in found.items():
        own = counted[mode]["messages_by_dependencies"]
        assert histogram == {place: count for place, count in enumerate(own) if count}, mode
    sizes = (
        _carried(events.where(F.col("kind") == Kind.SEND).withColumn("packet", F.struct("node", "seq")))
        .join(depends, ["run", "origin", "number"])
        .groupBy("run", "packet")
        .agg(F.count("*").alias("messages"), F.sum(4 * (F.col("dependencies") + 1)).alias("clocks"))
    )
    by_bytes: dict[str, Counter[str]] = {mode: Counter() for mode in SCENARIOS}
    by_messages: dict[str, Counter[int]] = {mode: Counter() for mode in SCENARIOS}
    for row in sizes.collect():
        mode = RUNS[row.run]
        payload_bytes = SCENARIOS[mode].workloads[0].payload_bytes
        by_bytes[mode][str(20 + payload_bytes * row.messages + row.clocks)] += 1
        by_messages[mode][row.messages] += 1
    for mode in SCENARIOS:
        assert by_bytes[mode] == counted[mode]["packets_by_bytes"], mode
        own = counted[mode]["packets_by_messages"]
        assert by_messages[mode] == {place: count for place, count in enumerate(own) if count}, mode


def test_the_rows_of_all_measures(spark: SparkSession, out: Path, counted: dict[str, dict[str, Any]]) -> None:
    table = tables.read_measured(spark, out)
    tables.require(table, tables.MEASURED, "measured")
    rows: dict[str, dict[str, Any]] = {mode: {} for mode in SCENARIOS}
    for row in table.collect():
        own = rows[RUNS[row.run]]
        if row.place is None:
            own[row.measure] = row.value
        else:
            own.setdefault(row.measure, {})[row.place] = row.value

    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return dict(enumerate(value))
        return {int(key): one for key, one in value.items()} if isinstance(value, dict) else value

    for mode, own in counted.items():
        expected = {name: placed(value) for name, value in own.items()}
        assert rows[mode] == {name: value for name, value in expected.items() if value != {}}
    (one,) = tables.read_measured(spark, out, [run_id(SCENARIOS["plain"])]).select("run").distinct().collect()
    assert RUNS[one.run] == "plain"


def test_the_estimate_knows_that_a_kernel_is_faster_than_the_core() -> None:
    made = scenario("R0", 256, "aggregation", 1, "measures")
    slow = msgspec.structs.replace(made, link=msgspec.structs.replace(made.link, fifo=True))
    assert 0.05 < expected_seconds(made, "always") < 1
    assert expected_seconds(slow, "always") > 10 * expected_seconds(made, "always")


# The study's own measures


def _copies(spark: SparkSession, out: Path, made: Scenario) -> DataFrame:
    run = run_id(made)
    return latencies(tables.flatten(tables.read_segments(spark, out / f"run={run}")))


def test_pairs_are_those_of_two_full_traces(spark: SparkSession, out: Path, tmp_path: Path) -> None:
    """Figure 8: the copies that came in packets of two, joined with the same copies of the plain run."""
    made, plain = SCENARIOS["aggregation"], SCENARIOS["plain"]
    run = run_id(made)
    flat = tables.flatten(tables.read_segments(spark, out / f"run={run}")).where(
        F.col("kind") == Kind.RECEIVE
    )
    in_two = _carried(flat.where(F.size(F.split("detail", " ")) == 1)).select("node", "origin", "number")
    key = ["node", "origin", "number"]
    first = _copies(spark, out, made).join(in_two, key)
    second = _copies(spark, out, plain).select(
        *key,
        F.col("reception_us").alias("alone_reception_us"),
        F.col("delivery_us").alias("alone_delivery_us"),
    )
    (row,) = first.join(second, key).agg(
        F.count("*"),
        F.sum("reception_us"),
        F.sum("delivery_us"),
        F.sum("alone_reception_us"),
        F.sum("alone_delivery_us"),
    ).collect()  # fmt: skip
    run_point(made, tmp_path)
    found = read_measures(tmp_path)
    assert found is not None
    names = [name for name in found.measures if name.startswith("pair_")]
    own = {name: found.measures[name] for name in names}
    assert own["pair_copies"] > 20
    assert [
        own["pair_copies"],
        own["pair_reception_us"],
        own["pair_delivery_us"],
        own["pair_plain_reception_us"],
        own["pair_plain_delivery_us"],
    ] == list(row)
    assert sum(found.measures["receptions_by_start"]) == found.measures["receptions"]
    assert sum(found.measures["reception_us_by_start"]) == found.measures["reception_us"]
