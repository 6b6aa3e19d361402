"""`whence mom`: message-oriented middleware over domains of causality."""

from __future__ import annotations

import typer

from whence.cli import mom_people, mom_plan, mom_system

app = typer.Typer(
    no_args_is_help=True, help="Message-oriented middleware over domains of causality (paper 004)."
)
RUN, PLAN = "Run a system", "Plan its domains"
app.command(rich_help_panel=RUN)(mom_system.up)
app.command(rich_help_panel=RUN)(mom_system.down)
app.command(rich_help_panel=RUN)(mom_system.serve)
app.command(rich_help_panel=RUN)(mom_people.status)
app.command(rich_help_panel=RUN)(mom_people.send)
app.command(rich_help_panel=RUN)(mom_people.tail)
app.command(rich_help_panel=PLAN)(mom_plan.traffic)
app.command(rich_help_panel=PLAN)(mom_plan.plan)
