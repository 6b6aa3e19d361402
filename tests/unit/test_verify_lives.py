"""The verifier on runs with lives: numbers, prefixes, stable cuts, each shown broken by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from whence.lab.run import run
from whence.sim.files import load as load_scenario
from whence.trace.reader import Event
from whence.trace.schema import Kind, PromisesMade
from whence.verify.run import verify_events, verify_trace

A, B = "a/00000000000000aa", "b/00000000000000bb"
EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"
ORDERED = PromisesMade(complete=False)


def judged(*rows: tuple[str, Kind, str, int] | tuple[str, Kind, str, int, str]) -> list[str]:
    """The findings about rows (node, kind, origin, number, detail), as "kind message"."""
    seqs: dict[str, int] = {}
    events = []
    for node, kind, origin, number, *detail in rows:
        seq = seqs[node] = seqs.get(node, -1) + 1
        events.append(
            Event("run", node, seq, seq, kind, origin, number, None, 1, 0, detail[0] if detail else None)
        )
    report = verify_events(events, ORDERED, ["a", "b"])
    found = [each for each in report.findings if each.kind != "missing"]  # not everybody need have everything
    assert report.ok == (not found)
    return [f"{finding.kind} {finding.message}" for finding in found]


SAYS = [("a", Kind.BROADCAST, A, number) for number in (1, 2, 3)]
HEARS = [("a", Kind.DELIVER, A, number) for number in (1, 2, 3)]
OWN = [row for pair in zip(SAYS, HEARS, strict=True) for row in pair]


def test_a_right_run_has_no_findings() -> None:
    assert judged(*OWN, *[("b", Kind.DELIVER, A, number) for number in (1, 2, 3)]) == []


def test_a_second_life_of_a_node_begins_at_one() -> None:
    again = "a/00000000000000ac"
    rows = [("a", Kind.RESTART, "a", 0), ("a", Kind.BROADCAST, again, 1), ("a", Kind.DELIVER, again, 1)]
    both = [("b", Kind.DELIVER, A, number) for number in (1, 2, 3)]
    assert judged(*OWN, *rows, *both, ("b", Kind.DELIVER, again, 1)) == []
    assert "causal" in " ".join(judged(*OWN, *rows, ("b", Kind.DELIVER, again, 1), *both))


def test_numbers_that_are_left_out_must_be_told() -> None:
    assert judged(*OWN, ("b", Kind.DELIVER, A, 1), ("b", Kind.DELIVER, A, 3)) == [f"malformed {A}:3"]
    told = ("b", Kind.MISSED, A, 2, "2 truncated")
    assert judged(*OWN, ("b", Kind.DELIVER, A, 1), told, ("b", Kind.DELIVER, A, 3)) == []


def test_a_gap_must_begin_where_the_node_is() -> None:
    assert judged(*OWN, ("b", Kind.MISSED, A, 2, "2 truncated"), ("b", Kind.DELIVER, A, 3)) == [
        f"malformed {A}:2"
    ]


def test_what_precedes_a_delivery_must_have_come_or_be_told() -> None:
    reply = [("b", Kind.DELIVER, A, 1), ("b", Kind.BROADCAST, B, 1), ("b", Kind.DELIVER, B, 1)]
    third = ("c", Kind.DELIVER, B, 1)
    assert judged(*OWN, *reply, third) == [f"causal {B}:1"]
    assert judged(*OWN, *reply, ("c", Kind.MISSED, A, 1, "1 before joining"), third) == []


def test_what_is_concurrent_with_a_stable_message_must_be_flagged() -> None:
    other = [("b", Kind.BROADCAST, B, 1), ("b", Kind.DELIVER, B, 1)]
    stable = ("a", Kind.STABLE, A, 1)
    assert judged(*OWN, *other, stable, ("a", Kind.DELIVER, B, 1)) == [f"causal {B}:1"]
    assert judged(*OWN, *other, stable, ("a", Kind.DELIVER, B, 1, "late")) == []


@pytest.mark.parametrize("name", ["log-restarts", "log-meetings"])
def test_the_examples_are_right(name: str, tmp_path: Path) -> None:
    run(load_scenario(EXAMPLES / f"{name}.toml"), tmp_path / "trace")
    reports = verify_trace(tmp_path / "trace")
    assert [report.ok for report in reports] == [True]
    assert verify_trace(tmp_path / "trace", memory_bytes=1)[0].counts == reports[0].counts
