"""`whence emulate`: live nodes whose meetings follow a contact plan, beside its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whence.cli.console import AsJson
from whence.sim.model import Scenario

if TYPE_CHECKING:
    from whence.lab.emulate import Emulated

WITHIN = 0.03  # of the simulation's receives


def command(
    plan: Annotated[
        Path,
        typer.Argument(
            help="A scenario (TOML) over contacts under protocol log, or a contact plan.", metavar="PLAN"
        ),
    ],
    speed: Annotated[
        float, typer.Option(help="How many times as fast as the plan.", min=0.001, max=1e6)
    ] = 200.0,
    out: Annotated[
        Path | None, typer.Option(help="Leave the trace of the emulation in this folder.", metavar="DIR")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change the scenario, as `simulate` does.", metavar="FIELD=VALUE"),
    ] = None,
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval", help="For a contact plan: seconds between a node's broadcasts.", min=0.001, max=1e9
        ),
    ] = 1200.0,
    processes: Annotated[int, typer.Option(help="Spread the nodes over so many processes.", min=1)] = 1,
    free: Annotated[
        bool,
        typer.Option("--free", help="Let the clock run on where the machine is too slow, as real time does."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run live nodes whose meetings follow a contact plan, judge their trace, compare with the simulation.

    Exit code 1: the verifier found violations, or receives differ from the simulation by more than 3 %.
    """
    import json
    import tempfile

    from msgspec import to_builtins

    from whence.cli import console
    from whence.lab.emulate import emulate

    scenario = _scenario(plan, set_ or [], interval_s)
    total_ms = scenario.stop.duration_us // 1_000
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "trace" if out is None else out
        with console.progress("emulated ms", total=total_ms) as bar:
            found = emulate(
                scenario,
                folder,
                speed,
                lambda at_us: bar.update(min(at_us // 1_000, total_ms)),
                processes=processes,
                free=free,
            )
    is_near = abs(found.difference) <= WITHIN
    if as_json:
        typer.echo(json.dumps({**to_builtins(found), "within_3_percent": is_near}))
    else:
        _show(found)
    if not found.ok or not is_near:
        raise typer.Exit(1)


def _scenario(plan: Path, changes: list[str], interval_s: float) -> Scenario:
    from whence.sim.files import from_dict, load

    if plan.suffix == ".toml":
        return load(plan, changes)
    from whence.mobility.plan_io import load_plan
    from whence.sim.files import change

    contacts = load_plan(plan)
    data = {
        "name": plan.stem,
        "nodes": len(contacts.nodes),
        "protocol": "log",
        "params": {"tick_us": 2_000_000, "pull_us": 6_000_000, "jump_us": 60_000_000},
        "topology": {"kind": "contacts", "file": str(plan)},
        "link": {"delay": {"kind": "constant", "value_us": 2_000}},
        "workloads": [{"kind": "periodic", "interval_us": round(interval_s * 1e6), "from_entry": True}],
        "stop": {"duration_us": contacts.stop_us, "drain": False},
    }
    for assignment in changes:
        change(data, assignment)
    return from_dict(data)


def _show(found: Emulated) -> None:
    from whence.cli import console

    rows: list[tuple[str, object]] = [
        ("nodes, processes, speed", f"{found.nodes}, {found.processes}, {found.speed:g}"),
        ("contacts (connections made)", f"{found.contacts:,} ({found.connections:,})"),
        ("broadcasts", f"{found.broadcasts:,}"),
        ("receives: simulated", f"{found.simulated_receives:,}"),
        ("receives: emulated", f"{found.emulated_receives:,} ({100 * found.difference:+.2f} %)"),
        ("delay (s): simulated, emulated", f"{found.simulated_delay_s:,.1f}, {found.emulated_delay_s:,.1f}"),
        ("took (s of ours)", f"{found.took_s:,.1f}"),
        ("the clock was held for (s of ours)", f"{found.lost_us / found.speed / 1e6:,.1f}"),
        ("the latest event was late by (s of ours)", f"{found.late_us / found.speed / 1e6:,.3f}"),
        ("verdict", "ok" if found.ok else f"{found.violations} violations"),
    ]
    console.out.print(console.table(f"emulation {found.run}", ("measure", "value"), rows))
