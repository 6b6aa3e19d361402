"""The auditor on Spark: rows as the Python closures make them, verdicts as in process, on every case."""

from __future__ import annotations

import csv
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from support.corpus import CorpusCase, cases, differences
from whence.errors import ImportFormatError, MisuseError
from whence.foreign.judge import judge
from whence.foreign.mapping import LogMapping, Normaliser, mapping_of, order_of
from whence.foreign.model import number
from whence.foreign.read import read_log
from whence.foreign.report import Audit
from whence.foreign.tables import is_json_list, table_rows
from whence.spark.audit.columns import TABLES, exact_reading, normalise, read_rows
from whence.spark.audit.judge import audit_log
from whence.spark.audit.stream import audit_stream, read_stream, read_verdict

pytestmark = pytest.mark.spark

CASES = cases()
TABLE_CASES = [case for case in CASES if case.mapping.format in TABLES and not is_json_list(case.log)]
FIELDS = (
    "proc", "ctx", "pos", "kind", "msg", "to", "scope", "group", "channel", "rank", "deps", "links", "ref",
    "vc", "t0", "t1",
)  # fmt: skip


def plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else value
    return list(value) if isinstance(value, tuple) else value


def by_python(path: Path, mapping: LogMapping) -> list[list[Any]]:
    rows = table_rows(path, mapping.format or "", mapping.delimiter)
    normaliser = Normaliser(mapping)
    made = [normaliser.row(row, line) for line, row in rows]
    return [[plain(value) for value in row[:16]] for row in made]


def by_spark(spark: SparkSession, path: Path, mapping: LogMapping, *, exact: bool) -> list[list[Any]]:
    with exact_reading(spark):
        events = normalise(read_rows(spark, path, mapping), mapping, exact=exact)
        rows = sorted(events.collect(), key=lambda row: row["line"])  # Spark would read the log twice
    return [[plain(value_of(row, field)) for field in FIELDS] for row in rows]


def value_of(row: Any, field: str) -> Any:
    """Places and ranks are texts where they are exact."""
    return number(row[field]) if field in {"pos", "rank"} else row[field]


def without_lines(rows: list[list[Any]], mapping: LogMapping) -> list[list[Any]]:
    """A place by lines is a number of the line in one and of the row in the other."""
    if order_of(mapping) == "line":
        return [[*row[:2], None, *row[3:]] for row in rows]
    return rows


# Their places and ranks are times or no numbers of 64 bits, which the judge finds out first.
EXACT = {"fractions-of-a-send-order", "numbers-of-128-bits", "parquet-of-pandas", "postgres-lsn",
         "raft-term-and-index", "redis-stream-ids", "same-millisecond", "sqs-fifo",
         "times-of-two-zones"}  # fmt: skip


@pytest.mark.parametrize("case", TABLE_CASES, ids=lambda case: case.name)
def test_rows_are_those_of_the_closures(case: CorpusCase, spark: SparkSession) -> None:
    expected = without_lines(by_python(case.log, case.mapping), case.mapping)
    exact = case.name in EXACT
    found = without_lines(by_spark(spark, case.log, case.mapping, exact=exact), case.mapping)
    assert found == expected


ODD = """{"p": "a", "k": "SENT", "o": 1.5, "m": 1.50, "d": ["x", 2, null], "t": 1.25, "n": {"v": true}, \
"q|": "|"}
{"p": "", "k": "what", "o": "7", "m": "", "d": "x, y;z", "t": "2024-01-02T03:04:05.678Z", "n": {"v": ""}}
{"k": null, "o": null, "d": [], "t": "soon", "a.b": "whole", "v": {"a": 3}}
"""


def test_odd_values_are_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text(ODD)
    mapping = mapping_of({
        "log": {"format": "jsonl", "time_unit": "s"},
        "event": {
            "process": "p", "context": ["p", "q|"], "order": "o", "kind": {"column": "k", "send": "sent"},
            "message": "{m}-{n.v}", "depends_on": "d", "time": "t", "channel": "a.b", "clock": "v",
            "session": ["n.v", "zzz"], "to": "d",
        },
    })  # fmt: skip
    expected = by_python(tmp_path / "odd.jsonl", mapping)
    assert by_spark(spark, tmp_path / "odd.jsonl", mapping, exact=True) == expected


ODD_TEXTS = {
    "o": ["1", "01", " 2", "3 ", "-4", "+5", "1.0", "1.50", "1e3", "0x10", "1_000", "\u0663", "NaN", "inf",
          "", "9223372036854775808", "1.", ".", " .5", "5f", "5L", "0.0000000001", "\uff11", "1e9999",
          "3 | 17", "1526919030474-1", "16/B374D848", "-1-2", "1 | x", "5/", "ff/0"],
    "t": ["1700000000", "1700000000.123456789", "2024-01-02", "2024-01-02T03:04:05Z", "2024-01-02 03:04:05",
          "2024-01-02T03:04:05.678901234Z", "2024-01-02T03:04:05,678", "2024-01-02T03:04:05+01:00",
          "03:04:05", "2024-01-02T03:04:05+0100", "2024-01-02T03:04:05+01", "20240102T030405Z", "2024-W01-2",
          "2024-01", "now", " 2024-01-02T03:04:05Z ", "2024-1-2 3:4:5", "2024-01-02T03:04",
          "2024-01-02T24:00:00", "2024-01-02T03:04:05 Europe/Berlin", "9999-12-31T23:59:59.999999Z",
          "1700000000000000000000"],
    "d": ["a", "a b;c|d", '["a","b"]', '["a", 1, true, null, ""]', "[]", '["a"', " a ", "|||", "a\u00a0b",
          "a\u2003b", "[a]"],
    "v": ['{"a":1}', '{"a": 1, "b": 2}', '{"a":1.0}', '{"a":-1}', '{"a":"1"}', '{"a":null}', "{}", "[]", "x",
          '{"a":9223372036854775808}'],
    "k": ["send", "SEND", "Deliver", "sent", "what", ""],
    "m": ["x", "X", "a|b", " x ", "\\", "'", '"', "null", "0", "line\nbreak", 'say ""hi""', "a,b"],
}  # fmt: skip


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_odd_texts_are_read_alike(form: str, spark: SparkSession, tmp_path: Path) -> None:
    count = max(map(len, ODD_TEXTS.values()))
    rows = [{name: some[at % len(some)] for name, some in ODD_TEXTS.items()} for at in range(count)]
    path = tmp_path / f"odd.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif form == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*ODD_TEXTS])
            writer.writeheader()
            writer.writerows(rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    mapping = mapping_of({
        "log": {"format": form, "time_unit": "s"},
        "event": {
            "process": "m", "order": "o", "kind": {"column": "k", "send": "sent"}, "message": "{m}-{k}",
            "depends_on": "d", "links": "d", "to": "d", "time": "t", "end": "t", "clock": "v",
            "channel": ["m", "k"], "send_order": "o",
        },
    })  # fmt: skip
    assert by_spark(spark, path, mapping, exact=True) == by_python(path, mapping)


REFUSED = {
    "more-cells.csv": b"p,m,o\na,x,1,9\nb,y,2\n",
    "two-of-a-name.csv": b"p,m,m,o\na,x,y,1\n",
    "without-a-column.csv": b"p,o\na,1\n",
    "a-list-of-numbers.jsonl": b"[1, 2]\n",
    "null.jsonl": b'null\n{"p":"b","o":2}\n',
    "latin-1.jsonl": b'{"p":"\xe9","o":1}\n',
    "quotes.jsonl": b"{'p':'a','o':1}\n",
    "remark.jsonl": b'{"p":"a","o":1} // x\n',
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_in_process_is_refused(name: str, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(REFUSED[name])
    mapping = mapping_of({
        "log": {"format": path.suffix[1:]}, "event": {"process": "p", "message": "m", "order": "o"}
    })  # fmt: skip
    for refuse in (lambda: read_log(path, mapping), lambda: audit_log(spark, path, mapping)):
        with pytest.raises(ImportFormatError):
            refuse()


# The rest takes minutes of Spark's time.
QUICK = {"antidote-458", "kafka-rebalance", "librdkafka-1092", "p2panda-1278", "sampled"}
MARKED = [case if case.name in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES]


@pytest.mark.parametrize("case", MARKED, ids=lambda case: case.name)
def test_a_case_comes_out_right(case: CorpusCase, spark: SparkSession) -> None:
    audit = audit_log(spark, case.log, case.mapping)
    assert differences(audit, case.expect) == []
    here = judge(read_log(case.log, case.mapping))
    assert (audit.judged, audit.events) == (here.judged, here.events)


@pytest.mark.parametrize("name", ["restart-replay-out-of-order"])
def test_blocks_of_scopes_add_up(name: str, spark: SparkSession) -> None:
    case = next(case for case in CASES if case.name == name)
    one, three = (audit_log(spark, case.log, case.mapping, blocks=blocks) for blocks in (1, 3))
    assert one == three


def test_a_log_that_does_not_fit_says_so(spark: SparkSession) -> None:
    case = next(case for case in CASES if case.name == "retries")
    audit = audit_log(spark, case.log, case.mapping, memory_bytes=1)
    assert audit.counts("seen") == {"duplicate": 1}
    assert {"causal", "cycle", "time"} <= set(audit.not_judged)
    assert "8 events" in audit.properties["causal"].why
    assert "created" in audit.judged


def test_parquet_is_read_as_csv_is(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow.csv

    case = next(case for case in CASES if case.name == "zenohex-216")
    pq.write_table(pyarrow.csv.read_csv(case.log), tmp_path / "samples.parquet")
    mapping = mapping_of({
        "log": {"format": "parquet", "time_unit": "us"}, "event": case.mapping.event,
        "contract": {"order": "fifo"},
    })  # fmt: skip
    for audit in (
        judge(read_log(tmp_path / "samples.parquet", mapping)),
        audit_log(spark, tmp_path / "samples.parquet", mapping),
    ):
        assert differences(audit, case.expect) == []


def test_bad_lines_and_folders_without_order_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    mapping = mapping_of({"log": {"format": "jsonl"}, "event": {"process": "p", "message": "m"}})
    (tmp_path / "bad.jsonl").write_text('{"p": "a", "m": "x"}\n{"p": \n')
    with pytest.raises(ImportFormatError, match="lines are not JSON"):
        audit_log(spark, tmp_path / "bad.jsonl", mapping)
    with pytest.raises(MisuseError, match="several files"):
        audit_log(spark, tmp_path, mapping)


def test_a_stream_is_judged_as_it_comes_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "librdkafka-1092")
    lines = case.log.read_text().splitlines(keepends=True)
    (tmp_path / "in").mkdir()

    def judged(name: str, some: list[str]) -> Audit:
        (tmp_path / "in" / name).write_text("".join(some))
        rows = read_stream(spark, tmp_path / "in", case.mapping)
        query = audit_stream(rows, case.mapping, tmp_path / "audit", available_now=True)
        assert query.awaitTermination(200)
        said = msgspec.json.decode((tmp_path / "audit" / "audit.json").read_bytes(), type=Audit)
        assert said == read_verdict(tmp_path / "audit", case.mapping)
        return said

    assert judged("1.json", lines[:4]).counts("broken") == {}
    whole = judged("2.json", lines[4:])
    assert (whole.verdict, whole.counts("broken"), whole.events) == ("broken", {"fifo": 2}, 7)
    with pytest.raises(MisuseError, match="Map `order`"):
        audit_stream(spark.readStream.text(str(tmp_path / "in")), mapping_of({}), tmp_path / "x")


def test_places_with_decimals_are_exact(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("1", "1.25"), ("3", "1.5"), ("2", "1.75"), ("5", "1.9"), ("4", "1.9")]
    text = "".join(f'{{"p": "c", "n": {rank}, "at": {place}}}\n' for rank, place in rows)
    (tmp_path / "x.jsonl").write_text(text)
    event = {"process": "p", "message": "n", "channel": "p", "send_order": "n", "order": "at"}
    mapping = mapping_of({"log": {"format": "jsonl"}, "event": event})
    for audit in (
        judge(read_log(tmp_path / "x.jsonl", mapping)),
        audit_log(spark, tmp_path / "x.jsonl", mapping),
    ):
        assert audit.counts("broken") == {"causal": 1, "fifo": 1}  # 2 after 3; 5 and 4 have one place


@pytest.mark.slow
def test_the_fast_path_of_ranks_says_what_the_judge_says(spark: SparkSession, tmp_path: Path) -> None:
    """On random logs of two groups and sessions: the same counts, or it declines."""
    rng = random.Random(7)
    rows = [
        {"topic": rng.choice("tu"), "partition": rng.randint(0, 1), "offset": rng.randint(0, 9) + n // 9,
         "group": rng.choice("gh"), "consumer": rng.choice("cd"), "assignment": rng.randint(1, 2), "n": n}
        for n in range(300)
    ]  # fmt: skip
    paths = [tmp_path / "x.jsonl", tmp_path / "x.parquet"]
    for place in (None, "1.5", "u/0"):  # a place that is not whole; a topic that could be read in two ways
        if place is not None:
            rows.append({**rows[0], **({"n": place} if place == "1.5" else {"topic": place})})
        paths[0].write_text("".join(json.dumps(row) + "\n" for row in rows))
        pq.write_table(pa.Table.from_pylist([{**row, "n": str(row["n"])} for row in rows]), paths[1], 37)
        for path in paths:
            for event in ({"order": "n"}, {}):
                document = {"log": {"preset": "kafka", "format": path.suffix[1:]}, "event": event}
                mapping = mapping_of(document)
                here = judge(read_log(path, mapping))
                audit = audit_log(spark, path, mapping, large_bytes=0)
                check_same_counts(audit, here)


def check_same_counts(audit: Audit, here: Audit) -> None:
    assert here.properties["fifo"].count > 10
    for name in ("causal", "fifo", "duplicate"):
        mine, theirs = audit.properties[name], here.properties[name]
        assert (mine.status, mine.count, mine.judged) == (theirs.status, theirs.count, theirs.judged), name
    assert {note.code for note in audit.notes} >= {note.code for note in here.notes} - {"swapped"}
