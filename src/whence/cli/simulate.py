"""`whence simulate`: run a scenario file, write its trace, say what happened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whence.errors import MisuseError

if TYPE_CHECKING:
    from whence.sim.run import RunResult
    from whence.trace.schema import Manifest

_LONG_US = 1_000_000  # simulated time from which on a progress bar is worth its line


def command(
    scenario: Annotated[Path, typer.Argument(help="The scenario file (TOML; docs/scenarios.md).")],
    out: Annotated[Path | None, typer.Option(help="Folder for the trace; none is kept without it.")] = None,
    seed: Annotated[int | None, typer.Option(help="Use this seed instead of the file's.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY.PATH=VALUE", help="Change a field, e.g. link.loss=0.1; repeatable."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Judge the trace afterwards; exit 1 if it is not causal.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a trace that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Simulate a scenario: deterministic, so that the same file gives the same trace everywhere."""
    import tempfile

    from whence.cli import console
    from whence.sim.files import load

    changes = [*(set_ or []), *([] if seed is None else [f"seed={seed}"])]
    loaded = load(scenario, changes)
    if verify and loaded.record.level == "measures":
        raise MisuseError(
            "--verify", "the scenario records measures only", "Add: --set record.level=deliveries"
        )
    if out is not None or not verify:
        result, manifest, reports = _run(loaded, out, overwrite, verify)
    else:
        with tempfile.TemporaryDirectory(prefix="whence-") as folder:
            result, manifest, reports = _run(loaded, Path(folder), False, verify)
    if as_json:
        console.print_json(
            {
                "result": result,
                "trace": None if out is None else out,
                "trace_hash": None if manifest is None else manifest.trace_hash,
                "verdict": reports[0] if reports else None,
            }
        )
    else:
        _show(result, manifest, out, reports)
    if reports and not all(report.ok for report in reports):
        raise typer.Exit(1)


def _run(
    scenario: Any, folder: Path | None, overwrite: bool, verify: bool
) -> tuple[RunResult, Manifest | None, list[Any]]:
    from whence.cli import console
    from whence.sim.run import record_to, simulate

    stop = scenario.stop

    def work(progress: Any) -> tuple[RunResult, Manifest | None]:
        if folder is None:
            return simulate(scenario, progress=progress), None
        return record_to(scenario, folder, overwrite=overwrite, progress=progress)

    if stop.duration_us < _LONG_US:
        result, manifest = work(None)
    else:
        total_ms = stop.duration_us // 1_000
        with console.progress("simulated ms", total=total_ms) as bar:
            result, manifest = work(lambda time_us: bar.update(min(time_us // 1_000, total_ms)))
    if not verify or folder is None:
        return result, manifest, []
    from whence.verify.run import verify_trace

    return result, manifest, list(verify_trace(folder, causal=True))


def _show(result: RunResult, manifest: Manifest | None, out: Path | None, reports: list[Any]) -> None:
    from msgspec.structs import asdict

    from whence.cli import console

    held = sum(map(len, result.waiting.values()))
    rows: list[tuple[str, object]] = [
        ("run", result.run),
        ("protocol, nodes, seed", f"{result.protocol}, {result.nodes}, {result.seed}"),
        (
            "simulated time (ms)",
            f"{result.final_us / 1_000:,.3f}{'' if result.drained else ' (not drained)'}",
        ),
        ("steps", f"{result.steps:,}"),
        ("broadcasts (skipped)", f"{result.broadcasts:,} ({result.skipped_broadcasts:,})"),
        ("deliveries (missing)", f"{result.deliveries:,} ({result.undelivered:,})"),
        (
            "packets (lost, duplicated)",
            f"{result.packets:,} ({result.lost_packets:,}, {result.duplicated_packets:,})",
        ),
        ("still in flight, still held", f"{result.in_flight:,}, {held:,}"),
        *((f"discarded: {reason}", f"{count:,}") for reason, count in result.discards.items()),
        *((f"undelivered: {reason}", f"{count:,}") for reason, count in result.expiries.items()),
    ]
    if manifest is not None and out is not None:
        rows += [
            ("events recorded", f"{manifest.events:,}"),
            ("trace hash", manifest.trace_hash),
            ("trace", out),
        ]
    for report in reports:
        rows.append(("verdict", "ok" if report.ok else "BROKEN"))
        rows += [(f"found: {kind}", count) for kind, count in asdict(report.counts).items() if count]
    console.out.print(console.table(result.name, ["measure", "value"], rows))
    for name, waiting in list(result.waiting.items())[:5]:
        first = waiting[0]
        console.out.print(
            f"{name} holds {len(waiting)}: first {first.message}, which waits for {', '.join(first.missing)}"
        )
