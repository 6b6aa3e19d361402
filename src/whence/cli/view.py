"""`whence view`: look at a trace, a log or a finding as one interactive page."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from whence.cli import console
from whence.cli.console import AsJson
from whence.view import AROUND_EVENTS, EVENTS_MAX, PAD


class ViewFormat(StrEnum):
    """What to write."""

    HTML = "html"
    PERFETTO = "perfetto"
    SHIVIZ = "shiviz"


DEFAULT_FILES = {
    ViewFormat.HTML: "view.html",
    ViewFormat.PERFETTO: "view.perfetto.json",
    ViewFormat.SHIVIZ: "view.shiviz.log",
}


def command(
    what: Annotated[
        Path, typer.Argument(help="A trace folder, a foreign log, or what `whence verify --json` printed.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write.", show_default="view.html")
    ] = None,
    run: Annotated[str | None, typer.Option(help="This run, of a trace with several.")] = None,
    map_: Annotated[
        str | None, typer.Option("--map", help="A foreign log's mapping: a file, or the name of a preset.")
    ] = None,
    around: Annotated[
        int | None,
        typer.Option(min=1, help="Only what happened around this finding, counted from 1; opens with it."),
    ] = None,
    pad: Annotated[int, typer.Option(min=0, help="With --around: events beside it, in each row.")] = PAD,
    since: Annotated[
        float | None, typer.Option(help="Only from so many seconds after the first event.")
    ] = None,
    until: Annotated[float | None, typer.Option(help="Only until so many seconds after it.")] = None,
    format_: Annotated[
        ViewFormat, typer.Option("--format", help="A page, or the same events for Perfetto or ShiViz.")
    ] = ViewFormat.HTML,
    live: Annotated[
        bool, typer.Option("--live", help="Serve the page of a running group's trace folder on loopback.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --live: the port; 0 for any.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained page that shows a run: causal past and future at a click, findings, search."""
    from whence.studies.environment import version
    from whence.view import exports
    from whence.view.open import open_scene
    from whence.view.page import write
    from whence.view.scene import around as cut_around
    from whence.view.scene import between

    if live:
        _serve(what, run, port)
        return
    scene = open_scene(what, run, map_=map_, events_max=None if around else EVENTS_MAX, finding=around)
    if around is not None:
        scene = cut_around(scene, [around - 1], pad=pad, limit=AROUND_EVENTS)
    if since is not None or until is not None:
        scene = between(scene, since, until)
    out = out or Path(DEFAULT_FILES[format_])
    if format_ is ViewFormat.HTML:
        write(scene, out, version=version(), focus=around or 0)
    else:
        out.write_bytes(getattr(exports, format_.value)(scene))
    if as_json:
        console.print_json(
            {
                "file": out,
                "bytes": out.stat().st_size,
                "events": len(scene),
                "processes": len(scene.procs),
                "findings": len(scene.findings),
                "verdict": scene.verdict,
            }
        )
        return
    size = out.stat().st_size / 1e6
    held = f"{len(scene):,} events of {len(scene.procs):,} processes"
    lines = f"{scene.title}: {scene.verdict}\n{held} -> {out} ({size:.1f} MB)"
    console.out.print(lines, markup=False, soft_wrap=True)


def _serve(folder: Path, run: str | None, port: int) -> None:
    """Serve the page until interrupted."""
    from whence.studies.environment import version
    from whence.view.live import LiveServer, LiveTrace

    with LiveServer(LiveTrace(folder, run, events_max=EVENTS_MAX), port, version()) as server:
        console.out.print(f"{server.address} shows {folder} while it grows; Ctrl-C ends it", markup=False)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.err.print(
                f"the page is gone; {folder} is as it was, and can be shown again", markup=False
            )
