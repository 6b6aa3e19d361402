"""The output of every command: two consoles, progress, JSON, tables; and options that they share.

    from whence.cli import console

    console.out.print("for the reader")           # stdout, colours only on a terminal
    console.err.print("about the work")           # stderr
    console.print_json(report)                    # one JSON document on stdout
    console.out.print(console.table("Runs", ["run", "events"], rows))
    with console.progress("sweep", total=48) as bar:
        bar.advance()

Rich and msgspec are imported by the first use, not by the import of this module.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from whence.core.group import LIFE_BITS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    out: Console
    err: Console

# Options that several commands take: the same name and the same help everywhere.
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
SparkMaster = Annotated[
    str | None, typer.Option(help="Spark master (spark://..., sc://...); default: this machine.")
]

PIPE_COLUMNS = 120  # a pipe has no width; rich would assume 80 and break tables
LINE_EVERY_S = 10.0  # how often progress says a line where there is no terminal


def __getattr__(name: str) -> Any:
    """Make `out` and `err` when they are first asked for (PEP 562)."""
    if name not in ("out", "err"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = _console(stderr=name == "err")
    return made


def _console(*, stderr: bool) -> Console:
    import os

    from rich.console import Console

    # `file` is left open: rich then asks for sys.stdout at each print, so redirection works.
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(stderr=stderr, highlight=False, width=PIPE_COLUMNS)
    return console


def _consoles(name: str) -> Console:
    """`out` or `err`, from within this module, where `__getattr__` is not asked."""
    made: Console = globals().get(name) or __getattr__(name)
    return made


# JSON


def _plain(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def print_json(document: Any) -> None:
    """Print `document` (plain data, dataclasses, msgspec structs, paths) as one JSON document."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(document, enc_hook=_plain), indent=2)
    sys.stdout.write(text.decode() + "\n")


# Tables


def table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    caption: str | None = None,
    right: Container[str] = (),
) -> Table:
    """A table for `out.print`. Columns of numbers, and those named in `right`, are aligned to the right.

    Cells are never read as markup; a `rich.text.Text` keeps its style.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from whence.report.format import cell

    cells = [list(row) for row in rows]
    made = Table(
        title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left"
    )
    for at, column in enumerate(columns):
        numeric = column in right or (bool(cells) and all(_numeric(row[at]) for row in cells))
        made.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        made.add_row(*(value if isinstance(value, Text) else Text(cell(value)) for value in row))
    return made


def _numeric(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


# Progress


class ProgressBar(Protocol):
    """The bar that `progress` gives, to be updated as the work goes on."""

    def advance(self, count: int = 1) -> None:
        """`count` more units are done."""

    def update(
        self, done: int | None = None, *, total: int | None = None, description: str | None = None
    ) -> None:
        """Set what is known anew."""


class LineBar:
    """Progress for a log file: a line at the start, at most one every ten seconds, one at the end."""

    def __init__(self, description: str, total: int | None) -> None:
        self.description = description
        self.total = total
        self.done = 0
        self._began = self._said = time.monotonic()
        self._say("...")

    def _say(self, tail: str) -> None:
        of = "" if self.total is None else f"/{self.total}"
        count = f" {self.done}{of}" if self.done or self.total else ""
        sys.stderr.write(f"{self.description}{count} {tail}\n")
        sys.stderr.flush()

    def advance(self, count: int = 1) -> None:
        self.update(self.done + count)

    def update(
        self, done: int | None = None, *, total: int | None = None, description: str | None = None
    ) -> None:
        self.done = self.done if done is None else done
        self.total = self.total if total is None else total
        self.description = description or self.description
        now = time.monotonic()
        if now - self._said >= LINE_EVERY_S:
            self._said = now
            self._say(f"after {now - self._began:.0f} s")

    def close(self, *, ok: bool) -> None:
        """Say how it ended."""
        self._say(f"{'done' if ok else 'stopped'} in {time.monotonic() - self._began:.1f} s")


class RichBar:
    """Progress on a terminal."""

    def __init__(self, description: str, total: int | None) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        counting = (MofNCompleteColumn(),) if total is not None else ()
        remaining = (TextColumn("left"), TimeRemainingColumn()) if total is not None else ()
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description:<18}", markup=False),
            BarColumn(bar_width=32),
            *counting,
            TimeElapsedColumn(),
            *remaining,
            console=_consoles("err"),
        )
        self._task = self._progress.add_task(description, total=total)
        self._progress.start()

    def advance(self, count: int = 1) -> None:
        self._progress.advance(self._task, count)

    def update(
        self, done: int | None = None, *, total: int | None = None, description: str | None = None
    ) -> None:
        self._progress.update(self._task, completed=done, total=total, description=description)

    def close(self, *, ok: bool) -> None:
        """Leave the finished bar on the screen."""
        if ok:
            task = self._progress.tasks[0]
            total = task.total if task.total is not None else max(task.completed, 1)
            self._progress.update(self._task, total=total, completed=total)
        self._progress.stop()


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[ProgressBar]:
    """Show the progress of one piece of work on stderr; `total` is None where it is not known."""
    on_screen = _consoles("err").is_terminal
    bar: RichBar | LineBar = RichBar(description, total) if on_screen else LineBar(description, total)
    ok = False
    try:
        yield bar
        ok = True
    finally:
        bar.close(ok=ok)


_LONG_ID = re.compile(r":(\d{15,})")
_LIFE_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def shown_id(origin: str, number: int) -> str:
    """An id as people read it: of a later life a:5~mi3k2x1f, the fifth message since that life of a began."""
    return friendly(f"{origin}:{number}")


def friendly(text: str) -> str:
    """A text whose ids are as `shown_id` shows them."""
    return _LONG_ID.sub(lambda found: _in_its_life(int(found[1])), text)


def _in_its_life(number: int) -> str:
    life, count = number >> LIFE_BITS, number & ((1 << LIFE_BITS) - 1)
    digits = ""
    while life:
        life, digit = divmod(life, len(_LIFE_DIGITS))
        digits = _LIFE_DIGITS[digit] + digits
    return f":{count}~{digits}"
