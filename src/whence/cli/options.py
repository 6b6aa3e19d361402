"""Options that several commands take, declared once: the same name and the same help everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
SparkMaster = Annotated[
    str | None, typer.Option(help="Spark master (spark://..., sc://...); default: this machine.")
]
