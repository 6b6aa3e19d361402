"""The screen of `whence top`: a table of nodes, and below it the one that is chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Header, Static

from whence.servers.watch import COLUMNS, Look, NodeLook, NodeRates, cells, rows

NOTHING = "Nothing waits here."


class Screen(App[None]):
    """Looks at its targets again and again, in a thread, and shows what it saw."""

    TITLE = "whence top"
    CSS = """
    DataTable { height: 1fr; }
    #detail { height: 1fr; padding: 1 2; overflow-y: auto; border-top: solid $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "quit", "End"), Binding("p", "pause", "Pause")]

    def __init__(self, look: Look, every_s: float, clock_s: Callable[[], float]) -> None:
        super().__init__()
        self._look = look
        self._every_s = every_s
        self._clock_s = clock_s
        self._rows: list[NodeRates] = []
        self._seen: list[NodeLook] = []
        self._at_s = 0.0
        self._paused = False

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        yield Header(show_clock=True)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="detail")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self.query_one(DataTable).add_columns(*COLUMNS)
        self.run_worker(self._watch(), exclusive=True)

    def action_pause(self) -> None:
        """Hold what is on the screen, or go on."""
        self._paused = not self._paused
        self.sub_title = "paused" if self._paused else ""

    def on_data_table_row_highlighted(self) -> None:
        """Another node was chosen."""
        self._show_detail()

    async def _watch(self) -> None:
        while True:
            if not self._paused:
                seen = list(await asyncio.to_thread(self._look))
                now_s = self._clock_s()
                self._rows = rows(seen, self._seen, now_s - self._at_s)
                self._seen, self._at_s = seen, now_s
                self._show()
            await asyncio.sleep(self._every_s)

    def _show(self) -> None:
        table = self.query_one(DataTable)
        chosen = table.cursor_row
        table.clear()
        for row in self._rows:
            table.add_row(*cells(row))
        if self._rows:
            table.move_cursor(row=min(chosen, len(self._rows) - 1))
        self._show_detail()

    def _show_detail(self) -> None:
        chosen = self.query_one(DataTable).cursor_row
        if not 0 <= chosen < len(self._rows):
            return
        seen = self._rows[chosen].seen
        lines = [f"{seen.name} in {seen.group or '?'}: {seen.state}", ""]
        lines += [f"link  {peer}: {state}, {lag:,} unacknowledged" for peer, state, lag in seen.links]
        lines += ["", *(seen.waiting or (NOTHING,)), "", *reversed(seen.events)]
        self.query_one("#detail", Static).update("\n".join(lines).replace("[", "\\["))
