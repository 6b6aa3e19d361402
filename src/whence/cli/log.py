"""`whence log`: foreign logs before they are judged, and while they grow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whence.cli import console
from whence.cli.console import AsJson
from whence.cli.verify import LogOptions, mapping_of_log, say, with_contract

if TYPE_CHECKING:
    from whence.foreign.report import Audit

MapFile = Annotated[str | None, typer.Option("--map", help="Its mapping: a file, or a preset's name.")]

app = typer.Typer(no_args_is_help=True, help="Look into logs that others wrote.")


@app.callback()
def _root() -> None:
    """Look into logs that others wrote."""


@app.command("guess")
def guess_(
    log: Annotated[Path, typer.Argument(help="A log: CSV, JSON lines, Parquet, ShiViz, OTLP, MCAP.")],
    as_json: AsJson = False,
) -> None:
    """Draft a mapping for a log, and say which properties it would make judgeable."""
    from whence.foreign.guess import guess
    from whence.foreign.report import NOT_JUDGED

    found = guess(log)
    if as_json:
        console.print_json(found)
        return
    console.out.print(found.mapping, markup=False, soft_wrap=True)
    for name, each in found.audit.properties.items():
        if each.status == NOT_JUDGED:
            said = f"# {name}: not judged: {each.why}; {each.remedy}"
        else:
            said = f"# {name}: judged"
        console.out.print(said, markup=False, soft_wrap=True)
    text = f"# Correct it, save it as {log.stem}.toml, then: whence verify {log} --map {log.stem}.toml"
    console.out.print(text, markup=False, soft_wrap=True)


@app.command("skew")
def skew_(
    log: Annotated[Path, typer.Argument(help="A log with times: CSV, JSON lines, Parquet, OTLP, MCAP.")],
    map_: MapFile = None,
    drift_ppm: Annotated[
        int, typer.Option(min=0, max=999_999, help="How much the rates of two clocks may differ.")
    ] = 500,
    linear: Annotated[
        bool, typer.Option("--linear", help="Rates are constant: narrower intervals, if it is true.")
    ] = False,
    moments: Annotated[int, typer.Option(min=1, help="At so many moments of the log.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Bound how far the clocks of each two processes are apart, from messages alone; exit 1 if impossible."""
    from whence.foreign.mapping import load_mapping
    from whence.foreign.offsets import offsets_of
    from whence.foreign.read import read_log

    found = offsets_of(
        read_log(log, None if map_ is None else load_mapping(map_)),
        drift_ppm=drift_ppm,
        linear=linear,
        moments=moments,
    )
    if as_json:
        console.print_json(found)
    else:
        rows = [
            (each.first, each.second, f"{each.at_ns / 1e9:.6f}", _ms(each.low_ns), _ms(each.high_ns))
            for each in found.pairs
        ]
        columns = ["process", "other", "at, s", "ahead by at least, ms", "at most, ms"]
        console.out.print(console.table(str(log), columns, rows))
        for note in found.notes:
            console.out.print(f"note: {note}", markup=False, soft_wrap=True)
        for each in found.impossible:
            console.out.print(f"impossible by {_ms(each.by_ns)} ms: {'; '.join(each.circle)}", markup=False)
    if found.impossible:
        raise typer.Exit(1)


def _ms(value: int | None) -> str:
    return "?" if value is None else f"{value / 1e6:.3f}"


@app.command()
def follow(
    log: Annotated[Path, typer.Argument(help="A log that grows (JSON lines, CSV, text); a folder: --spark.")],
    map_: MapFile = None,
    contract: Annotated[
        list[str] | None, typer.Option(help="A term that it must keep, KEY=VALUE; may be repeated.")
    ] = None,
    require: Annotated[list[str] | None, typer.Option(help="A property that must be judged.")] = None,
    state: Annotated[
        Path | None, typer.Option(help="Where to keep how far it was judged; the next call goes on there.")
    ] = None,
    horizon: Annotated[int, typer.Option(min=1, help="So many rows back causes are known.")] = 10_000,
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Judge what is there and end.")] = False,
    spark: Annotated[bool, typer.Option("--spark", help="A folder of files, on Spark.")] = False,
    master: Annotated[str | None, typer.Option(help="The Spark master (implies --spark).")] = None,
    as_json: AsJson = False,
) -> None:
    """Judge a log while it grows: findings as they come, the verdict at the end (Ctrl-C); exit as verify."""
    options = LogOptions(map_=map_, contract=contract or [], require=require or [])
    if spark or master is not None:
        found = _follow_on_spark(log, options, state, horizon, every, once, master)
    else:
        found = _follow_file(log, options, state, horizon, every, once, as_json)
    say(found, as_json, 3)
    raise typer.Exit(found.exit)


def _follow_file(
    log: Path, options: LogOptions, state: Path | None, horizon: int, every: float, once: bool, as_json: bool
) -> Audit:
    from whence.foreign.follow import Follower

    follower = Follower(log, mapping_of_log(log, options), state=state, horizon=horizon)
    try:
        while True:
            for name, finding in follower.read():
                if not as_json:
                    console.out.print(f"{name}: {finding.text}", markup=False, soft_wrap=True)
            if once:
                break
            time.sleep(every)
    except KeyboardInterrupt:  # how a watch ends
        _say_kept(state, "nothing is kept without --state")
    return follower.audit()


def _say_kept(state: Path | None, otherwise: str) -> None:
    """How a watch that was interrupted goes on."""
    kept = otherwise if state is None else f"{state} has how far it was judged; the same command goes on"
    console.err.print(f"interrupted: {kept}", markup=False, soft_wrap=True)


def _follow_on_spark(
    folder: Path, options: LogOptions, state: Path | None, horizon: int, every: float, once: bool,
    master: str | None,
) -> Audit:  # fmt: skip
    from whence.foreign.mapping import load_mapping

    mapping = load_mapping(options.map_ or "plain")
    mapping = with_contract(mapping, options)
    with console.progress("starting Spark"):
        from whence.spark.audit.stream import audit_stream, read_stream, read_verdict
        from whence.spark.session import get_session

        session = get_session("whence log follow", master=master)
    kept = state or folder.with_name(f"{folder.name}.audit")
    rows = read_stream(session, folder, mapping)
    query = audit_stream(rows, mapping, kept, horizon=horizon, available_now=once)
    try:
        while not query.awaitTermination(max(1, round(every)) if not once else None):
            pass
    except KeyboardInterrupt:
        query.stop()
        _say_kept(kept, "")
    return read_verdict(kept, mapping)
