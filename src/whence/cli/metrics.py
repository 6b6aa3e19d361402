"""`whence metrics`: measure the runs of a trace folder on Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from whence.cli import console
from whence.cli.console import SparkMaster
from whence.cli.verify import is_tables
from whence.trace.reader import Trace, open_trace

# What the terminal shows of a SUMMARY row: heading, unit. --json has all of it.
_COLUMNS = {
    "broadcasts": ("messages", 1),
    "packets_per_broadcast": ("packets", 1),
    "control_bytes_per_packet": ("control", 1),
    "delivery_mean_us": ("delivery", 1_000),
    "delivery_p99_us": ("p99", 1_000),
    "held_mean_us": ("held", 1_000),
    "held_share": ("share", 1),
    "held_peak_max": ("peak", 1),
}
_CAPTION = """\
packets per message; control bytes per packet; delivery: ms from broadcast to remote delivery, mean and 99th
percentile; held: ms from first reception to delivery, mean; share: of deliveries that had to wait; peak: most
messages held by one node. More figures with --json. A dash: the run did not record what the figure needs."""


def command(
    folder: Annotated[Path, typer.Argument(help="A trace folder, or the out folder of a sweep or study.")],
    master: SparkMaster = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document with every figure.")
    ] = False,
) -> None:
    """Measure every run: latency, held time, packets, bytes, buffer peaks.

    A dash (null in JSON) means that the run did not record what the figure needs.
    """

    if is_tables(folder):
        _measure_tables(folder, master, as_json)
        return
    trace = open_trace(folder)
    with console.progress("starting Spark"):
        from whence.spark.metrics.summary import summary
        from whence.spark.progress import watched
        from whence.spark.session import get_session
        from whence.spark.tables import read_segments

        session = get_session(f"whence metrics {folder.name}", master=master)
    began = time.perf_counter()
    with (
        console.progress("measuring, tasks", total=0) as bar,
        watched(session, lambda done, total: bar.update(done, total=total)),
    ):
        rows = summary(read_segments(session, trace)).collect()
    seconds = time.perf_counter() - began
    rate = f"{trace.event_count:,} events in {seconds:.1f} s ({trace.event_count / seconds:,.0f} events/s)"
    console.err.print(rate, markup=False)
    figures = sorted((row.asDict() for row in rows), key=lambda row: str(row["run"]))
    if as_json:
        console.print_json({"folder": folder.resolve(), "runs": [_described(trace, row) for row in figures]})
    else:
        _show(trace, figures)


def _measure_tables(folder: Path, master: str | None, as_json: bool) -> None:
    """Measure every run of a sweep's tables, into the table `summaries`."""
    from whence.trace.dataset import url_of

    where = url_of(folder)
    with console.progress("starting Spark"):
        from whence.spark.datasets import summarise_tables
        from whence.spark.session import get_session

        session = get_session("whence metrics", master=master)
    totals = summarise_tables(session, where)
    if as_json:
        console.print_json(totals)
    else:
        said = f"{totals.runs:,} runs measured in {where}"
        console.out.print(f'{said} (whence sql --in {where} "select * from summaries")', markup=False)


def _described(trace: Trace, row: Mapping[str, Any]) -> dict[str, Any]:
    """A SUMMARY row with what the manifest says of the run."""
    manifest = trace.of_run(row["run"])[0]
    about = {"protocol": manifest.protocol, "nodes": len(trace.nodes(row["run"])), "seed": manifest.seed}
    return {"run": row["run"]} | about | dict(row)


def _show(trace: Trace, figures: Sequence[Mapping[str, Any]]) -> None:

    rows = []
    for row in figures:
        about = _described(trace, row)
        shown = [
            None if row[name] is None else row[name] / unit if unit > 1 else row[name]
            for name, (_, unit) in _COLUMNS.items()
        ]
        rows.append([row["run"], about["protocol"], about["nodes"], *shown])
    headings = ["run", "protocol", "nodes", *(heading for heading, _ in _COLUMNS.values())]
    console.out.print(console.table(None, headings, rows, caption=_CAPTION))
