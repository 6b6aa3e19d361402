"""`whence contacts`: contact plans from positions, foreign traces, timetables and made-up cities."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from whence.cli import console
from whence.cli.console import AsJson
from whence.errors import MisuseError
from whence.mobility.readers import Reading
from whence.overlay.contact_statistics import PlanSpread, PlanStatistics, statistics
from whence.overlay.contacts import ContactPlan

SPARK_ROWS = 20_000_000  # positions above which Spark takes over, where there is one
SCENARIOS = ("buses", "walkers")
OUT_FORMATS = ("parquet", "csv", "one")


def command(
    source: Annotated[
        str, typer.Argument(help="A file (Parquet: positions or a plan), or a scenario: buses, walkers.")
    ],
    range_m: Annotated[float | None, typer.Option("--range", help="Radio range in metres.")] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Format: positions, haggle, sociopatterns, the-one, ns2, gtfs, plan.",
            show_default="positions, or plan if the file is one",
        ),
    ] = None,
    step: Annotated[
        float | None, typer.Option(help="Seconds between positions.", show_default="the least that is found")
    ] = None,
    gap: Annotated[
        float | None,
        typer.Option(help="Seconds up to which missing positions are bridged.", show_default="the step"),
    ] = None,
    day: Annotated[
        str | None, typer.Option(help="Service day of a timetable, YYYYMMDD.", show_default="the busiest")
    ] = None,
    lasting: Annotated[
        float, typer.Option(min=0, help="Make every contact at least this long, in seconds (scan interval).")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="First seed of a scenario.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds of a scenario to compare.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Write the plan here.")] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Of --out: parquet, csv, one.", show_default="by its name")
    ] = None,
    spark: Annotated[
        bool | None, typer.Option("--spark/--no-spark", help="Use Spark; by default from 20 M positions on.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark master, e.g. spark://host:7077.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a contact plan, print its statistics, and write it with --out."""
    write_as = _write_format(out, format_)
    began = time.monotonic()
    if source in SCENARIOS and from_ is None and not Path(source).exists():
        _scenario(source, seed, seeds, out, write_as, as_json)
        return
    about, plan = _from_file(Path(source), from_, range_m, step, gap, day, spark, master)
    if lasting:
        plan = plan.lasting(int(lasting * 1_000_000))
    if out is not None:
        _write(plan, out, write_as)
    about["seconds"] = time.monotonic() - began
    about["rows_per_second"] = about["rows"] / about["seconds"]
    _show(about, plan, out, as_json)


def _from_file(
    path: Path,
    from_: str | None,
    range_m: float | None,
    step: float | None,
    gap: float | None,
    day: str | None,
    spark: bool | None,
    master: str | None,
) -> tuple[dict[str, Any], ContactPlan]:
    """A description of the source, and its plan."""
    format_in = from_ or _guess(path)
    if format_in == "positions":
        if range_m is None:
            raise MisuseError("--range", "positions need a radio range", "Give one, e.g. --range 50")
        if day is not None:
            raise MisuseError("--day", "positions have no service days", "Leave it out")
        return _positions(path, range_m, step, gap, spark, master)
    if step is not None or gap is not None or spark or master:
        raise MisuseError(
            "--step, --gap, --spark and --master",
            f"they are for positions, not for {format_in}",
            "Leave them out",
        )
    return _read(path, format_in, range_m, day)


def _write_format(out: Path | None, format_: str | None) -> str:
    if format_ is not None and out is None:
        raise MisuseError("--format", "there is nothing to write", "Give --out too")
    if out is not None and not out.parent.is_dir():
        raise MisuseError(
            f"--out {out}", f"there is no folder {out.parent}", "Make the folder, or give another path"
        )
    guessed = {".csv": "csv", ".txt": "one", ".tsv": "one"}.get(out.suffix if out else "", "parquet")
    if format_ is not None and format_ not in OUT_FORMATS:
        raise MisuseError(
            f"--format {format_}", "plans are not written so", f"Choose: {', '.join(OUT_FORMATS)}"
        )
    return format_ or guessed


def _guess(path: Path) -> str:
    from whence.mobility.plan_io import is_plan

    if path.suffix == ".csv" or is_plan(path):
        return "plan"
    if path.exists() and path.suffix not in (".parquet", "") and not path.is_dir():
        raise MisuseError(
            str(path), "it is not Parquet, and no format is named", "Name it: --from haggle, --from gtfs ..."
        )
    return "positions"


def _read(
    path: Path, format_in: str, range_m: float | None, day: str | None
) -> tuple[dict[str, Any], ContactPlan]:
    from whence.mobility.sources import RANGE_M, read_contacts

    with console.progress(f"reading {path.name}"):
        reading: Reading = read_contacts(path, format_in, range_m=range_m, day=day)
    about = {
        "source": reading.source,
        "format": reading.format,
        "range_m": range_m if range_m is not None else RANGE_M.get(format_in),
        "rows": reading.rows,
        "begin_s": reading.begin_s,
        "left_out": reading.left_out,
    }
    return about, reading.plan


def _positions(
    path: Path, range_m: float, step: float | None, gap: float | None, spark: bool | None, master: str | None
) -> tuple[dict[str, Any], ContactPlan]:
    from importlib.util import find_spec

    from whence.mobility.positions import row_count

    if master is not None and spark is False:
        raise MisuseError("--master", "it is given together with --no-spark", "Leave out one of the two")
    step_us = None if step is None else round(step * 1_000_000)
    gap_us = None if gap is None else round(gap * 1_000_000)
    by_spark = spark or master is not None
    if spark is None and not by_spark:
        by_spark = row_count(path) >= SPARK_ROWS and find_spec("pyspark") is not None
    made = (
        _by_spark(path, range_m, step_us, gap_us, master)
        if by_spark
        else _here(path, range_m, step_us, gap_us)
    )
    rows, left_out, used_us, plan = made
    about = {
        "source": str(path),
        "format": "positions",
        "engine": "Spark" if by_spark else "this process",
        "range_m": range_m,
        "step_s": used_us / 1_000_000,
        "gap_s": gap,
        "rows": rows,
        "left_out": {"positions with a null or no number": left_out} if left_out else {},
    }
    return about, plan


def _here(
    path: Path, range_m: float, step_us: int | None, gap_us: int | None
) -> tuple[int, int, int, ContactPlan]:
    from whence.mobility.positions import find_step_us, load_positions, positions_plan

    with console.progress("positions to contacts"):
        table = load_positions(path)
        used_us = step_us if step_us is not None else find_step_us(table)
        plan = positions_plan(table, range_m, step_us=used_us, gap_us=gap_us)
    return table.time_us.size + table.left_out, table.left_out, used_us, plan


def _by_spark(
    path: Path, range_m: float, step_us: int | None, gap_us: int | None, master: str | None
) -> tuple[int, int, int, ContactPlan]:

    with console.progress("starting Spark"):
        from whence.spark import contacts
        from whence.spark.session import get_session

        session = get_session(f"whence contacts {path.name}", master=master)
    with console.progress("positions to contacts"):
        table = contacts.read_positions(session, path)
        found = contacts.look_over(table)
        used_us = step_us if step_us is not None else contacts.find_step_us(table)
        made = contacts.intervals_of_files(session, path, range_m, step_us=used_us, gap_us=gap_us)
        plan = contacts.collect_plan(made)
    return found.rows, found.left_out, used_us, plan


def _write(plan: ContactPlan, out: Path, write_as: str) -> None:
    from whence.mobility.sources import write_contacts

    write_contacts(plan, out, write_as)


def _scenario(name: str, seed: int, seeds: int, out: Path | None, write_as: str, as_json: bool) -> None:
    """Generate a scenario of paper 001 and set its statistics beside the published table."""
    from whence.mobility.published import compare, generate

    found = []
    with console.progress(f"making {name}", total=seeds) as bar:
        for each in range(seed, seed + seeds):
            plan = generate(name, each)
            found.append(statistics(plan))
            if out is not None and each == seed:
                _write(plan, out, write_as)
            bar.advance()
    rows = compare(name, found)
    if as_json:
        document = {"scenario": name, "seeds": list(range(seed, seed + seeds))}
        console.print_json(document | {"figures": [row._asdict() for row in rows], "statistics": found})
        return
    table = "Table I" if name == "buses" else "Table IV"
    shown = [
        (
            row.name, *(round(each, 1) for each in (row.published, row.ours, row.least, row.greatest)),
            f"{100 * row.difference:+.1f} %", "yes" if row.ok else "NO (excepted)" if row.excepted else "NO",
        )
        for row in rows
    ]  # fmt: skip
    columns = ["statistic", "published", "ours, mean", "least", "greatest", "difference", "within 10 %"]
    title = f"{name}: {seeds} seed(s) from {seed}, beside {table} of paper 001"
    console.out.print(console.table(title, columns, shown, right=("difference",)))
    if out is not None:
        console.out.print(f"the plan of seed {seed} -> {out}", markup=False)


def _show(about: dict[str, Any], plan: ContactPlan, out: Path | None, as_json: bool) -> None:

    found = statistics(plan)
    if as_json:
        document = {**about, "joined": plan.joined, "sha256": plan.sha256, "out": out, "statistics": found}
        console.print_json(document)
        return
    console.out.print(console.table(f"Contacts in {about['source']}", ["statistic", "value"], _rows(found)))
    for why, many in about["left_out"].items():
        console.out.print(f"left out: {many} {why}", markup=False)
    if plan.joined:
        console.out.print(
            f"{plan.joined} contacts overlapped others of their pair and were joined", markup=False
        )
    rate = f"{about['rows']} rows in {about['seconds']:.1f} s, {about['rows_per_second']:,.0f} per second"
    console.out.print(f"{rate}; plan {plan.sha256[:16]}" + (f" -> {out}" if out else ""), markup=False)


def _rows(found: PlanStatistics) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [
        ("nodes", found.nodes),
        ("nodes at the same time, max", found.present_max),
        ("duration, h", round(found.duration_s / 3600, 2)),
        ("contacts", found.contacts),
        ("  of them instants", found.instants),
        ("pairs that meet", found.pairs),
        ("linked neighbours, mean", round(found.neighbours_mean, 3)),
    ]
    spreads: list[tuple[str, PlanSpread | None]] = [
        ("contact, s", found.contact_s),
        ("between contacts of a pair, s", found.gap_s),
        ("contacts per node", found.contacts_per_node),
        ("stay of a node, s", found.stay_s),
    ]
    for name, each in spreads:
        if each is not None:
            values = (each.least, each.mean, each.deviation, each.greatest)
            rows += [(f"{name}: min / mean / sd / max", " / ".join(f"{value:,.1f}" for value in values))]
    return rows
