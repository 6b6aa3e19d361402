"""Consoles, JSON, tables and progress as commands use them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from whence.cli import console, node
from whence.cli.console import shown_id
from whence.core.message import Message


class Struct(msgspec.Struct):
    at: Path


@dataclass
class Data:
    inner: Struct


def test_consoles_follow_redirection(capsys: pytest.CaptureFixture[str]) -> None:
    console.out.print("to the reader")
    console.err.print("about the work")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("to the reader\n", "about the work\n")
    with pytest.raises(AttributeError, match="nothing"):
        console.nothing  # noqa: B018 - the attribute's absence is what is tested


def test_json_is_one_document_and_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    console.print_json({"data": Data(Struct(Path("a/b"))), "long": long, "text": "[bold]ö"})
    text = capsys.readouterr().out
    assert json.loads(text) == {"data": {"inner": {"at": "a/b"}}, "long": long, "text": "[bold]ö"}
    assert long in text


def test_tables_align_numbers_and_take_no_markup() -> None:
    made = console.table("Runs", ["run", "events"], [["[red]a", 1200], ["b", None], ["c", 3.25]])
    assert [column.justify for column in made.columns] == ["left", "right"]
    told = console.table(None, ["run", "mean"], [["a", "1 ± 2"]], right=["mean"])
    assert [column.justify for column in told.columns] == ["left", "right"]
    screen = Console(width=60, no_color=True)
    with screen.capture() as captured:
        screen.print(made)
    text = captured.get()
    assert "[red]a" in text
    assert "1,200" in text
    assert "3.25" in text
    assert "–" in text


def test_an_empty_table() -> None:
    assert console.table(None, ["a", "b"], []).row_count == 0


def test_progress_in_a_log_is_a_few_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 4))  # each look at the clock is four seconds later
    monkeypatch.setattr(console.time, "monotonic", lambda: float(next(clock)))
    with console.progress("sweep", 10) as bar:
        for _ in range(10):
            bar.advance()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "sweep 0/10 ..."
    assert lines[-1] == "sweep 10/10 done in 44.0 s"
    assert [line for line in lines if "after" in line] == [
        "sweep 3/10 after 12 s",
        "sweep 6/10 after 24 s",
        "sweep 9/10 after 36 s",
    ]


def test_progress_without_a_total_and_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with console.progress("verify") as bar:
            bar.update(description="verifying")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    first, last = capsys.readouterr().err.splitlines()
    assert first == "verify ..."
    assert last.startswith("verifying stopped in ")


@pytest.mark.parametrize("total", [3, None])
def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, total: int | None) -> None:
    screen = Console(force_terminal=True, width=100, record=True, stderr=True)
    monkeypatch.setitem(vars(console), "err", screen)
    with console.progress("[sweep]", total) as bar:
        bar.update(1)
        bar.advance(2)
    text = screen.export_text()
    assert "[sweep]" in text
    assert "✓" in text
    assert ("3/3" in text) == (total is not None)


def test_an_id_of_a_later_life_is_short_for_people() -> None:
    later = (1_794_979_550_000 << 20) + 5
    assert shown_id("ann", 5) == "ann:5"
    assert shown_id("ann", later) == "ann:5~mwloh8vk"
    assert node._as_line(Message("ann", 5, b"hello")) == "ann:5 hello\n"
    assert node._as_line(Message("ann", later, b"hello")) == "ann:5~mwloh8vk hello\n"
