"""`whence trace`: look into traces, and export them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whence.cli import console
from whence.cli.console import AsJson
from whence.errors import MisuseError
from whence.trace.reader import Trace, check_trace, open_trace

app = typer.Typer(no_args_is_help=True, help="Look into traces, and export them.")

_Folder = Annotated[Path, typer.Argument(help="A trace folder, a sweep's folder, or one manifest.")]
_Format = Annotated[str, typer.Option("--format", help="The foreign format: shiviz (also GoVector).")]


@app.command()
def info(folder: _Folder, as_json: AsJson = False) -> None:
    """Say what a trace holds: its writers, runs, nodes, events."""
    trace = open_trace(folder, hashes=False)
    if as_json:
        console.print_json(trace.manifests)
        return
    columns = ["run", "writer", "protocol", "nodes", "level", "events", "parts", "MB", "trace hash"]
    rows = [
        (
            each.run, each.writer, each.protocol, len(each.nodes), each.level, each.events, len(each.parts),
            round(sum(part.size_bytes for part in each.parts) / 1e6, 3), each.trace_hash[:16],
        )
        for each in trace.manifests
    ]  # fmt: skip
    console.out.print(console.table(str(folder), columns, rows))
    for leftover in trace.leftovers:
        console.out.print(f"not part of the trace: {leftover} (unfinished)", markup=False)


@app.command()
def check(folder: _Folder, as_json: AsJson = False) -> None:
    """Read every event of a trace and hold it against its manifests; exit 2 if anything is wrong."""
    hashes = check_trace(folder)
    if as_json:
        console.print_json(hashes)
        return
    for each in hashes:
        console.out.print(
            f"ok: {each.run} {each.writer}: {each.events} events, {each.trace_hash}", markup=False
        )


@app.command()
def events(
    folder: _Folder,
    run: Annotated[str | None, typer.Option(help="This run only.")] = None,
    node: Annotated[str | None, typer.Option(help="This node only.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many to print; 0 for all.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Print events, one per line, in stored order (with --json as a list of objects)."""
    from itertools import islice

    found = open_trace(folder).events(run)
    chosen = islice((event for event in found if node is None or event.node == node), limit or None)
    if as_json:
        console.print_json([{**event._asdict(), "kind": event.kind.name.lower()} for event in chosen])
        return
    columns = ["run", "node", "seq", "time_us", "kind", "message", "peer", "bytes", "control", "detail"]
    rows = [
        (
            event.run, event.node, event.seq, event.time_us, event.kind.name.lower(),
            str(event.number) if event.origin is None else f"{event.origin}:{event.number}", event.peer or "",
            event.total_bytes, event.control_bytes, event.detail or "",
        )
        for event in chosen
    ]  # fmt: skip
    console.out.print(console.table(str(folder), columns, rows))


@app.command()
def export(
    trace: _Folder,
    out: Annotated[Path, typer.Argument(help="The file to write.")],
    format_: _Format = "shiviz",
    run: Annotated[str | None, typer.Option(help="This run only.")] = None,
    first: Annotated[int, typer.Option(min=0, help="Begin with this message, in order of broadcast.")] = 0,
    messages: Annotated[
        int | None, typer.Option(min=1, help="Write only that many messages' events.")
    ] = None,
    since_us: Annotated[
        int | None, typer.Option(help="Only messages broadcast at this time or later.")
    ] = None,
    until_us: Annotated[int | None, typer.Option(help="Only messages broadcast before this time.")] = None,
    node: Annotated[list[str] | None, typer.Option(help="Only events at this node; may be repeated.")] = None,
    findings: Annotated[
        int | None,
        typer.Option(min=1, help="Verify, and write the messages of this many witnesses of each kind."),
    ] = None,
    packets: Annotated[bool, typer.Option("--packets", help="Write send and receive events too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a trace, or a window of it, as a foreign log."""
    from whence.trace.exporters.shiviz import ExportWindow
    from whence.trace.exporters.shiviz import export as export_shiviz

    _require(format_, "shiviz", "govector")
    opened = open_trace(trace)
    ids = None if findings is None else _witnesses(opened, run, findings)
    nodes = frozenset(node) if node else None
    window = ExportWindow(first, messages, since_us, until_us, ids, nodes)
    chosen = None if window == ExportWindow() else window
    report = export_shiviz(opened, out, run=run, window=chosen, packets=packets)
    if as_json:
        console.print_json(report)
    else:
        console.out.print(f"{report.events} events of {report.runs} run(s) -> {report.file}", markup=False)


def _witnesses(trace: Trace, run: str | None, findings: int) -> frozenset[tuple[str, int]]:
    """The messages that prove what is wrong with a trace."""
    from whence.verify.run import verify_trace

    named: set[str] = set()
    for report in verify_trace(trace, run=run, witness_max=findings, causal=True):
        for finding in report.findings:
            named.update(each for each in (finding.message, finding.other) if each is not None)
            named.update(step.message for step in finding.chain)
    if not named:
        raise MisuseError(
            f"findings of {trace.path}", "there are none: nothing is wrong with it", "Leave out --findings"
        )
    pairs = (name.rpartition(":") for name in named)
    return frozenset((origin, int(number)) for origin, _, number in pairs)


def _require(format_: str, *known: str) -> None:
    if format_ not in known:
        raise MisuseError(
            f"format {format_!r}", "there is none of that name", f"Choose from: {', '.join(known)}"
        )
