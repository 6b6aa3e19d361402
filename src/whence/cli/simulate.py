"""`whence simulate`: run a scenario file, write its trace, say what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from whence.errors import MisuseError
from whence.sim.outcome import Outcome

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
    kernel: Annotated[
        Literal["auto", "never", "always"],
        typer.Option(help="Run in a kernel: where it saves time, never, or wherever one can."),
    ] = "auto",
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
        outcome, reports = _run(loaded, out, overwrite, verify, kernel)
    else:
        with tempfile.TemporaryDirectory(prefix="whence-") as folder:
            outcome, reports = _run(loaded, Path(folder), False, verify, kernel, for_the_verdict=True)
    if as_json:
        console.print_json(
            {
                "result": _plain(outcome),
                "trace": None if out is None else out,
                "trace_hash": None if outcome.manifest is None else outcome.manifest.trace_hash,
                "verdict": reports[0] if reports else None,
            }
        )
    else:
        _show(outcome, out, reports)
    if reports and not all(report.ok for report in reports):
        raise typer.Exit(1)


def _run(
    scenario: Any,
    folder: Path | None,
    overwrite: bool,
    verify: bool,
    kernel: Literal["auto", "never", "always"],
    *,
    for_the_verdict: bool = False,
) -> tuple[Outcome, list[Any]]:
    """Run and judge. A trace that is only for the verdict has no more than the verifier needs."""
    from functools import partial

    from whence.cli import console
    from whence.lab.run import run
    from whence.trace.schema import Level

    level = Level.DELIVERIES if for_the_verdict else None
    work = partial(run, scenario, folder, level=level, kernel=kernel, overwrite=overwrite)
    if scenario.stop.duration_us < _LONG_US:
        outcome = work()
    else:
        total_ms = scenario.stop.duration_us // 1_000
        with console.progress("simulated ms", total=total_ms) as bar:
            outcome = work(progress=lambda time_us: bar.update(min(time_us // 1_000, total_ms)))
    if not verify or folder is None:
        return outcome, []
    from whence.verify.run import verify_trace

    return outcome, list(verify_trace(folder, causal=True))


def _plain(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as a document: the counters, and of the scenario what names the run."""
    import msgspec

    scenario = outcome.scenario
    named = {"run": outcome.run} | {
        name: getattr(scenario, name) for name in ("name", "protocol", "nodes", "seed")
    }
    left_out = ("run", "scenario", "manifest", "detail", "measures")
    counted = {name: getattr(outcome, name) for name in outcome.__struct_fields__ if name not in left_out}
    if outcome.series is None:
        del counted["series"]
    plain: dict[str, Any] = msgspec.to_builtins(named | counted)
    return plain


def _show(outcome: Outcome, out: Path | None, reports: list[Any]) -> None:
    from msgspec.structs import asdict

    from whence.cli import console

    scenario, waiting, manifest = outcome.scenario, outcome.waiting, outcome.manifest
    rows: list[tuple[str, object]] = [
        ("run", outcome.run),
        ("protocol, nodes, seed", f"{scenario.protocol}, {scenario.nodes}, {scenario.seed}"),
        ("path", f"{outcome.path}: {outcome.why}"),
    ]
    if outcome.final_us is not None:
        cut_off = "" if outcome.drained else " (not drained)"
        rows.append(("simulated time (ms)", f"{outcome.final_us / 1_000:,.3f}{cut_off}"))
    if outcome.steps is not None:
        rows.append(("steps", f"{outcome.steps:,}"))
    rows += [
        ("broadcasts (skipped)", f"{outcome.broadcasts:,} ({outcome.skipped_broadcasts:,})"),
        ("deliveries (missing)", f"{outcome.deliveries:,} ({outcome.undelivered:,})"),
    ]
    if outcome.packets is not None:
        lost, duplicated = outcome.lost_packets or 0, outcome.duplicated_packets or 0
        rows.append(("packets (lost, duplicated)", f"{outcome.packets:,} ({lost:,}, {duplicated:,})"))
    if outcome.in_flight is not None and waiting is not None:
        held = sum(map(len, waiting.values()))
        rows.append(("still in flight, still held", f"{outcome.in_flight:,}, {held:,}"))
    rows += [(f"discarded: {reason}", f"{count:,}") for reason, count in (outcome.discards or {}).items()]
    rows += [(f"undelivered: {reason}", f"{count:,}") for reason, count in outcome.expiries.items()]
    if manifest is not None and out is not None:
        rows += [
            ("events recorded", f"{manifest.events:,}"),
            ("trace hash", manifest.trace_hash),
            ("trace", out),
        ]
    for report in reports:
        rows.append(("verdict", "ok" if report.ok else "BROKEN"))
        rows += [(f"found: {kind}", count) for kind, count in asdict(report.counts).items() if count]
    console.out.print(console.table(scenario.name, ["measure", "value"], rows))
    for name, held_back in list((waiting or {}).items())[:5]:
        first = held_back[0]
        console.out.print(
            f"{name} holds {len(held_back)}: first {first.message}, "
            f"which waits for {', '.join(first.missing)}"
        )
