"""`whence mom`: message-oriented middleware over domains of causality."""

from __future__ import annotations

import typer

from whence.cli import mom_plan

app = typer.Typer(
    no_args_is_help=True, help="Message-oriented middleware over domains of causality (paper 004)."
)
app.command()(mom_plan.traffic)
app.command()(mom_plan.plan)
