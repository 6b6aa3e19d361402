"""`whence stream`: put a stream of rows into causal order, from files to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whence.cli.console import AsJson, SparkMaster
from whence.errors import MisuseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from whence.spark.ordering.job import StreamJob, StreamSummary


# What the command takes, in the order of its --help.
Source = Annotated[
    str, typer.Argument(help="Folder of files, kafka://HOST:PORT/TOPIC, or what the format calls a path.")
]
Out = Annotated[
    str, typer.Argument(help="Folder to write to, or kafka://HOST:PORT/TOPIC (with --checkpoint).")
]
Lifetime = Annotated[
    str, typer.Option(help="How long a row may wait: 10s, 5 minutes, or a column of seconds.")
]
Format = Annotated[
    str,
    typer.Option(
        "--format", help="Of the source: parquet, json, csv, orc, otel, shiviz, or any of Spark's (kafka)."
    ),
]
ToFormat = Annotated[str, typer.Option(help="Of the result: parquet, json, csv, orc.")]
Checkpoint = Annotated[
    str | None, typer.Option(help="Folder with the state of the query.", show_default="OUT.checkpoint")
]
State = Annotated[
    str | None,
    typer.Option(
        help="Path or URL (s3://, gs://, abfs://) of the order's state.", show_default="CHECKPOINT/whence"
    ),
]
Key = Annotated[list[str] | None, typer.Option(help="Column(s) within whose values order is kept.")]
Id = Annotated[str | None, typer.Option("--id", help="Column with a row's id.")]
DependsOn = Annotated[str | None, typer.Option(help="Column with the ids of its predecessors.")]
Clock = Annotated[str | None, typer.Option(help="Instead: column with a vector clock.")]
Origin = Annotated[str | None, typer.Option(help="With --clock: column with its process.")]
EventTime = Annotated[
    str | None, typer.Option(help="Column with the time of arrival; else the time of the batch.")
]
Policy = Annotated[
    str, typer.Option(help="emit or drop a row whose predecessors are missing after its lifetime.")
]
LifetimeMax = Annotated[str | None, typer.Option(help="The largest lifetime, where they differ.")]
Remember = Annotated[str | None, typer.Option(help="How long an id is known after its row's end.")]
Delay = Annotated[str, typer.Option(help="How far a key's times may lag behind another's.")]
AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="Read what is there and end; else go on until interrupted.")
]
Flush = Annotated[
    bool, typer.Option("--flush", help="The data is complete: end whatever waits (with --available-now).")
]
Every = Annotated[str, typer.Option(help="Time between two looks at the source.")]
Schema = Annotated[
    str | None, typer.Option(help="Columns and types of the source, where no file tells them yet.")
]
Separator = Annotated[str, typer.Option(help="Between ids, in formats without lists (csv).")]
Option = Annotated[list[str] | None, typer.Option(help="An option of the source: NAME=VALUE.")]


def command(
    source: Source, out: Out, lifetime: Lifetime, format_: Format = "parquet",
    to_format: ToFormat = "parquet", checkpoint: Checkpoint = None, state: State = None,
    key: Key = None, id_: Id = None, depends_on: DependsOn = None, clock: Clock = None, origin: Origin = None,
    event_time: EventTime = None, policy: Policy = "emit", lifetime_max: LifetimeMax = None,
    remember: Remember = None, delay: Delay = "0s", available_now: AvailableNow = False, flush: Flush = False,
    every: Every = "1 second", schema: Schema = None, separator: Separator = " ", option: Option = None,
    master: SparkMaster = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Put the rows of a stream into causal order (docs/stream.md).

    Every row comes out once, with the columns outcome, missing, position and epoch. Stopped or killed? The
    same command goes on from the checkpoint, and nothing is lost or doubled.
    """
    from whence.cli import console

    order: dict[str, Any] = {
        "key": key or None, "id": id_, "depends_on": depends_on, "clock": clock, "origin": origin,
        "event_time": event_time, "lifetime": lifetime, "lifetime_max": lifetime_max, "remember": remember,
        "delay": delay, "policy": policy,
    }  # fmt: skip
    if out.startswith("kafka:/") and checkpoint is None:
        raise MisuseError("whence stream", "a topic has no folder beside it", "Give --checkpoint FOLDER")
    with console.progress("starting Spark"):
        from whence.spark.ordering.job import StreamJob
        from whence.spark.session import get_session

        job = StreamJob(
            source=source, out=out, checkpoint=checkpoint or f"{out.rstrip('/')}.checkpoint",
            state=state, order=_adapted(order, format_), source_format=format_, out_format=to_format,
            source_options=_options(option or []), schema=schema, separator=separator,
            available_now=available_now, flush=flush, every=every,
        )  # fmt: skip
        session = get_session(f"whence stream {Path(source).name}", master=master)
        _choose_partitions(session)
    summary = _follow(session, job)
    if as_json:
        console.print_json({"source": source, "out": out, "checkpoint": job.checkpoint, "summary": summary})
    else:
        _show(job, summary)


def _choose_partitions(session: SparkSession) -> None:
    """Two partitions of state per core, where the user has not said how many.

    Spark's 200 would start a Python worker for each in every batch: minutes, on a small cluster.
    """
    from whence.spark.session import cores_of

    key = "spark.sql.shuffle.partitions"
    if key not in session.conf.getAll:  # which has what was set, without Spark's defaults
        session.conf.set(key, str(2 * cores_of(session)))


def _follow(session: SparkSession, job: StreamJob) -> StreamSummary:
    """Run the query, and show how far it is."""
    from whence.cli import console
    from whence.spark.ordering.job import run_job

    with console.progress("0 rows in") as bar:
        return run_job(session, job, lambda so_far: bar.update(description=_so_far(so_far)))


def _adapted(order: dict[str, Any], format_: str) -> dict[str, Any]:
    """The columns of a known log, where the user names no others."""
    from whence.spark.adapters import ORDERS

    known = ORDERS.get(format_, {})
    if known and order["id"] is None and order["clock"] is None:
        return order | {name: order.get(name) or value for name, value in known.items()}
    if order["id"] is None and order["clock"] is None:
        raise MisuseError(
            "whence stream",
            "nothing says how rows are known",
            "Give --id and --depends-on, or --clock",
        )
    return order


def _options(pairs: list[str]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise MisuseError(f"--option {pair}", "it has no value", "Write NAME=VALUE")
        options[name] = value
    return options


def _so_far(summary: StreamSummary) -> str:
    """How far a query is; how much is left is unknown."""
    return (
        f"{summary.rows_in:,} rows in, {summary.rows_out:,} out, batch {summary.batches}, "
        f"{summary.rows_per_second:,.0f} rows/s"
    )


def _show(job: StreamJob, summary: StreamSummary) -> None:
    from whence.cli import console

    rows = [(name, count) for name, count in summary.outcomes.items()]
    console.out.print(console.table(f"{job.source} -> {job.out}", ["outcome", "rows"], rows))
    console.out.print(
        f"{summary.rows_in:,} rows in, {summary.rows_out:,} out ({summary.unplaced:,} without a position), "
        f"{summary.batches} batches, {summary.rows_per_second:,.0f} rows/s; "
        f"state: {summary.state_keys:,} keys, {summary.state_rows:,} rows that wait, "
        f"{summary.state_bytes / 1e6:.1f} MB",
        markup=False,
    )
