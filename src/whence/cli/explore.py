"""`whence explore`: visit every schedule of a small world, and tell the shortest counterexample."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whence.cli.console import AsJson, SparkMaster
from whence.errors import MisuseError

if TYPE_CHECKING:
    from whence.explore.search import Options, Report, SearchProgress
    from whence.explore.world import World

EXIT_FOUND = 1
EXIT_INCOMPLETE = 3
_LINE_EVERY_S = 2.0


def command(
    world: Annotated[Path | None, typer.Argument(help="The world (TOML; docs/explore.md).")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for a counterexample: schedule.json, and its trace.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Repeat this schedule.json instead, and tell it.")
    ] = None,
    no_symmetry: Annotated[
        bool, typer.Option("--no-symmetry", help="Tell states apart that differ by names alone.")
    ] = False,
    no_order: Annotated[
        bool, typer.Option("--no-order", help="Explore every order of steps that commute.")
    ] = False,
    no_stale: Annotated[
        bool, typer.Option("--no-stale", help="Explore when packets arrive that change nothing.")
    ] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Keep states whole, not as 64-bit digests.")] = False,
    states_max: Annotated[int | None, typer.Option(min=1, help="Stop after so many states.")] = None,
    depth_max: Annotated[int | None, typer.Option(min=1, help="No schedules with more moves.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Look for findings of this kind only; repeatable.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep what is known here, not in memory; the same command goes on after a stop."),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Spread the frontier over Spark.")] = False,
    master: SparkMaster = None,
    as_json: AsJson = False,
) -> None:
    """Explore: exit 0 if every schedule is clean, 1 if something is found, 3 if not all were explored."""
    from whence.explore.search import STATES_MAX, Options, explore
    from whence.explore.story import Kept, repeat, write_trace
    from whence.explore.world import load

    if (world is None) == (replay is None):
        raise MisuseError("whence explore", "it needs one thing to do", "Give a world, or --replay FILE")
    if replay is not None:
        _repeat(replay, out, as_json)
        return
    assert world is not None
    described = load(world)
    options = Options(
        symmetry=not no_symmetry,
        order=not no_order,
        stale=not no_stale,
        exact=exact,
        states_max=states_max or STATES_MAX,
        depth_max=depth_max,
        kinds=frozenset(kind) if kind else None,
        progress=_ProgressLine(),
        folder=folder,
    )
    if spark or master is not None:
        report = _on_spark(described, options, master)
    else:
        report = explore(described, options)
    story: list[str] = []
    if report.counterexample is not None:
        kept = Kept.of(described, report.counterexample)
        story = repeat(kept).lines
        if out is not None:
            kept.write(out / "schedule.json")
            write_trace(kept, out, overwrite=True)
    _show(described.name, report, story, as_json)
    if report.counterexample is not None:
        raise typer.Exit(EXIT_FOUND)
    if not report.complete:
        raise typer.Exit(EXIT_INCOMPLETE)


def _on_spark(world: World, options: Options, master: str | None) -> Report:
    from whence.spark.session import get_session

    if options.exact:
        raise MisuseError("--exact", "on Spark states are known by digests", "Leave out one of the two")
    session = get_session(f"whence explore {world.name}", master=master)
    from whence.spark.explore import explore_on

    return explore_on(session, world, options)


def _repeat(path: Path, out: Path | None, as_json: bool) -> None:
    from whence.cli import console
    from whence.explore.story import read, repeat, write_trace

    kept = read(path)
    told = repeat(kept)
    if out is not None:
        write_trace(kept, out, overwrite=True)
    if as_json:
        console.print_json({"followed": told.followed, "moves": len(kept.moves), "story": told.lines,
                            "finding": told.finding and told.finding._asdict()})  # fmt: skip
    else:
        for line in told.lines or ["nothing happens"]:
            console.out.print(line, markup=False)
    if told.finding is not None:
        raise typer.Exit(EXIT_FOUND)
    if told.followed < len(kept.moves):
        raise typer.Exit(EXIT_INCOMPLETE)


class _ProgressLine:
    """SearchProgress on stderr: a line now and then."""

    def __init__(self) -> None:
        self._said_s = 0.0

    def __call__(self, now: SearchProgress) -> None:
        """Say how far the search is."""
        if now.seconds - self._said_s < _LINE_EVERY_S:
            return
        self._said_s = now.seconds
        rate = now.states / now.seconds
        sys.stderr.write(
            f"depth {now.depth}: {now.states:,} states, {rate:,.0f} states/s, frontier {now.frontier:,}\n"
        )


def _reduced(report: Report) -> list[str]:
    return [name for name, is_used in (("order", report.order), ("stale", report.stale)) if is_used]


def _show(name: str, report: Report, story: list[str], as_json: bool) -> None:
    from whence.cli import console

    found = report.counterexample
    if as_json:
        document = report._asdict()
        document["counterexample"] = found and {
            "kind": found.finding.kind,
            "text": found.finding.text,
            "moves": len(found.moves),
            "shortest": found.shortest,
            "story": story,
        }
        console.print_json(document)
        return
    verdict = "every schedule is clean"
    if found is not None:
        verdict = f"FOUND {found.finding.kind}"
    elif not report.complete:
        verdict = f"not complete: {report.why_not}"
    rows: list[tuple[str, object]] = [
        ("verdict", verdict),
        ("states", f"{report.states:,}"),
        ("moves tried", f"{report.steps:,}"),
        ("depth", report.depth),
        ("final states", f"{report.finals:,}"),
        ("renamings", report.symmetry),
        ("reduced by", ", ".join(_reduced(report)) or "nothing else"),
        ("CPU s", f"{report.seconds:.1f}"),
        ("chance that a state was missed", f"{report.missed_chance:.1e}"),
    ]
    if report.never:
        rows.append(("never happens in any schedule", ", ".join(report.never)))
    console.out.print(console.table(name, ["measure", "value"], rows))
    if found is not None:
        shortest = "the shortest schedule" if found.shortest else "a schedule"
        console.out.print(f"{shortest}, {len(found.moves)} moves:")
        for line in story:
            console.out.print(line, markup=False)
