"""`whence mom traffic` and `whence mom plan`: from traces to a traffic matrix to proposed domains."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whence.cli import console
from whence.cli.console import AsJson, SparkMaster
from whence.errors import SchemaError

if TYPE_CHECKING:  # numpy, which no other command of `whence mom` needs
    from whence.overlay.planner import Cost, DomainPlan


def traffic(
    folder: Annotated[Path, typer.Argument(help="A trace folder, or the out folder of a sweep or study.")],
    out: Annotated[Path, typer.Argument(help="The Parquet file to write: source, to, messages.")],
    master: SparkMaster = None,
    as_json: AsJson = False,
) -> None:
    """Count, on Spark, how many messages each server sent to each other one."""
    counts = _count(folder, master)
    _write(counts, out)
    if as_json:
        console.print_json({"file": out.resolve(), "pairs": len(counts), "messages": sum(counts.values())})
        return
    console.out.print(f"{sum(counts.values())} messages between {len(counts)} pairs: {out}", markup=False)


def plan(
    source: Annotated[Path, typer.Argument(help="A traffic.parquet, or a trace folder to count first.")],
    alpha: Annotated[int, typer.Option(min=0, help="What a hop costs besides the clock, in entries.")] = 50,
    router_cap: Annotated[
        float, typer.Option(help="Largest share of all messages through one router.")
    ] = 0.5,
    steps: Annotated[int, typer.Option(min=0, help="Steps of each annealing.")] = 8_000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed may find another plan.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Write the domains as a description (TOML).")] = None,
    master: SparkMaster = None,
    as_json: AsJson = False,
) -> None:
    """Propose domains that make the traffic cheap: hops x (alpha + size^2) per message, without a cycle."""
    from whence.overlay import planner
    from whence.overlay.domain_graph import domain_graph, to_toml

    counts = _count(source, master) if source.is_dir() else _read(source)
    with console.progress("planning"):
        made = planner.plan(
            planner.TrafficMatrix(counts), alpha=alpha, router_cap=router_cap, steps=steps, seed=seed
        )
    if out is not None:
        out.write_text(to_toml(domain_graph(made.groups)), encoding="utf-8")
    if as_json:
        console.print_json(_document(made))
    else:
        _show(made, out)


def _document(made: DomainPlan) -> dict[str, Any]:
    costs = {name: getattr(made, name)._asdict() for name in ("planned", "flat", "bus", "greedy_bus")}
    return {"domains": made.groups, "alpha": made.alpha, "router_cap": made.router_cap, "costs": costs}


def _show(made: DomainPlan, out: Path | None) -> None:
    from whence.overlay.domain_graph import domain_graph

    rows = [
        _line("flat: one domain", made.flat),
        _line("bus of sqrt(n), by name", made.bus),
        _line("bus of sqrt(n), by traffic", made.greedy_bus),
        _line("planned", made.planned),
    ]
    columns = ["organisation", "cost per message", "hops", "largest domain", "busiest router", "its share"]
    console.out.print(console.table("Predicted cost", columns, rows))
    graph = domain_graph(made.groups)
    routers = set(graph.routers)
    domains = [
        (name, len(group), " ".join(f"{server}*" if server in routers else server for server in group))
        for name, group in zip(graph.names, graph.groups, strict=True)
    ]
    console.out.print(console.table("Domains", ["domain", "servers", "members; * is a router"], domains))
    if out is not None:
        console.out.print(f"Written: {out}", markup=False)


def _line(name: str, cost: Cost) -> tuple[object, ...]:
    share = f"{100 * cost.router_load:.0f} %" if cost.busiest_router else "-"
    return (
        name,
        round(cost.per_message, 1),
        round(cost.hops, 2),
        cost.largest_domain,
        cost.busiest_router or "-",
        share,
    )


# Traffic


def _count(folder: Path, master: str | None) -> dict[tuple[str, str], int]:
    """The messages of all runs of a folder together."""
    from whence.trace.reader import open_trace

    trace = open_trace(folder)
    with console.progress("counting"):
        from whence.spark.metrics.wire import traffic_matrix
        from whence.spark.session import get_session
        from whence.spark.tables import flatten, read_segments

        session = get_session(f"whence mom traffic {folder.name}", master=master)
        rows = traffic_matrix(flatten(read_segments(session, trace))).collect()
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts[row.source, row.to] += row.messages
    return dict(counts)


def _write(counts: dict[tuple[str, str], int], out: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pairs = sorted(counts)
    columns: dict[str, Any] = {
        "source": [source for source, _ in pairs],
        "to": [to for _, to in pairs],
        "messages": [counts[pair] for pair in pairs],
    }
    types: dict[str, Any] = {"source": pa.string(), "to": pa.string(), "messages": pa.int64()}
    pq.write_table(pa.table(columns, schema=pa.schema(types)), out)


def _read(path: Path) -> dict[tuple[str, str], int]:
    """A file of source, to, messages; pairs may repeat, as in a table of several runs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fix = "Write one with `whence mom traffic TRACE traffic.parquet`"
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(str(path), f"it is not a Parquet file ({error})", fix) from error
    missing = [name for name in ("source", "to", "messages") if name not in table.column_names]
    if missing:
        raise SchemaError(str(path), f"it has no column {missing[0]!r}", fix)
    counts: Counter[tuple[str, str]] = Counter()
    for row in table.select(["source", "to", "messages"]).to_pylist():
        if not isinstance(row["messages"], int) or row["messages"] < 0 or not row["source"] or not row["to"]:
            raise SchemaError(str(path), f"{row} is not a count of messages between two servers", fix)
        counts[row["source"], row["to"]] += row["messages"]
    return dict(counts)
