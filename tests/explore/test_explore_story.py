"""A counterexample as a story, a trace and a file; `whence explore` and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whence.cli.main import main
from whence.core.effects import Effects
from whence.core.message import NodeId, Packet
from whence.core.protocol import State
from whence.errors import MisuseError
from whence.explore.search import Options, explore
from whence.explore.story import Kept, read, repeat, write_trace
from whence.explore.world import FaultBudget, Line, World
from whence.protocols.baselines.vector import Vector
from whence.sim.replay import replay
from whence.verify.run import verify_trace

CLEAN = 'protocol = "vector"\nlinks = "any"\nnodes = 2\n[[say]]\nnode = "n0"\n[[say]]\nnode = "n1"\n'
LATE = World(
    protocol="tdca",
    links="any",
    params={"mode": "published"},
    say=[Line(node="n0", lifetime_us=1000), Line(node="n1", lifetime_us=100)],
    budget=FaultBudget(ticks=2),
)
SCHEDULES = Path(__file__).parent / "schedules"


def whence(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def flaw() -> Kept:
    found = explore(LATE).counterexample
    assert found is not None
    return Kept.of(LATE, found)


def test_a_story_ends_with_what_is_wrong() -> None:
    told = repeat(flaw())
    assert told.finding is not None
    assert told.lines[0].startswith("1. n0 says message 0, which lives 1000 us; n0 delivers message 0")
    assert told.lines[-1].startswith("late: ")
    assert len(told.lines) == told.followed + 1


def test_a_trace_is_judged_and_replayed(tmp_path: Path) -> None:
    kept = flaw()
    write_trace(kept, tmp_path)
    (report,) = verify_trace(tmp_path)
    assert report.counts.late == 1
    assert replay(tmp_path).ok


def test_a_file_is_the_same_schedule(tmp_path: Path) -> None:
    kept = flaw()
    kept.write(tmp_path / "schedule.json")
    assert read(tmp_path / "schedule.json") == kept
    assert repeat(read(tmp_path / "schedule.json")) == repeat(kept)


def test_a_move_that_is_not_possible_ends_the_story() -> None:
    kept = flaw()
    told = repeat(Kept(world=kept.world, moves=[["receive", "n1", "n0", "n0:1", 0], *kept.moves]))
    assert (told.followed, told.finding) == (0, None)
    assert "not possible any more" in told.lines[-1]


def test_a_late_joiner_does_not_break_the_order_of_barrier() -> None:
    assert repeat(read(SCHEDULES / "barrier-late-joiner.json")).finding is None


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean = tmp_path / "clean.toml"
    clean.write_text(CLEAN)
    assert whence("explore", clean) == 0
    assert "every schedule is clean" in capsys.readouterr().out
    assert whence("explore", clean, "--depth-max", 2) == 3
    assert whence("explore", clean, "--states-max", 3) == 3
    assert whence("explore") == 2
    clean.write_text(CLEAN.replace("vector", "vektor"))
    assert whence("explore", clean) == 2
    clean.write_text("colour = 1\n" + CLEAN)
    assert whence("explore", clean) == 2


def test_what_is_found_is_written_and_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = tmp_path / "world.toml"
    world.write_text(
        'protocol = "tdca"\nlinks = "any"\nparams = {mode = "published"}\n'
        '[[say]]\nnode = "n0"\nlifetime_us = 1000\n'
        '[[say]]\nnode = "n1"\nlifetime_us = 100\n[budget]\nticks = 2\n'
    )
    assert whence("explore", world, "--out", tmp_path / "out", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["counterexample"]["kind"] == "late"
    assert document["counterexample"]["shortest"]
    assert whence("explore", world, "--kind", "causal") == 0
    capsys.readouterr()
    assert whence("explore", "--replay", tmp_path / "out" / "schedule.json", "--json") == 1
    again = json.loads(capsys.readouterr().out)
    assert again["story"] == document["counterexample"]["story"]
    assert whence("replay", tmp_path / "out") == 0


def test_reductions_can_be_switched_off() -> None:
    world = World(protocol="vector", say=[Line(node=f"n{at}") for at in range(3)])
    counts = {
        (symmetry, order): explore(world, Options(symmetry=symmetry, order=order)).states
        for symmetry in (True, False)
        for order in (True, False)
    }
    assert counts[True, True] < counts[True, False] < counts[False, False]
    assert counts[True, True] < counts[False, True] < counts[False, False]


class Raises(Vector):
    """A stranger's core with a mistake that no check of its own names."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        if self.me == "n1" and self.last:
            raise KeyError("no such clock")
        return super().receive(peer, packet, now_us)


class SavesAnObject(Vector):
    """A stranger's core whose state is no plain data."""

    def save(self) -> State:
        return {**super().save(), "thing": object()}


def test_what_a_core_raises_is_a_finding(tmp_path: Path) -> None:
    world = World(protocol="vector", nodes=2, say=[Line(node="n0"), Line(node="n1")])
    found = explore(world, make=Raises).counterexample
    assert found is not None
    assert found.finding.kind == "raised"
    assert "KeyError" in found.finding.text
    assert len(found.moves) == 3
    kept = Kept.of(world, found, Raises)
    told = repeat(kept, Raises)
    assert told.finding == found.finding
    write_trace(kept, tmp_path, Raises)
    (report,) = verify_trace(tmp_path)
    assert report.ok
    assert repeat(kept).finding is None  # once it is repaired


def test_a_state_that_is_no_plain_data_is_refused() -> None:
    with pytest.raises(MisuseError, match="plain data"):
        explore(World(protocol="vector", say=[Line(node="n0")]), make=SavesAnObject)


PLUGIN = """
from whence.protocols.baselines.vector import Vector
from whence.protocols.registry import CAUSAL, ProtocolInfo
class HastyPlugin(Vector):
    name = "hasty"
    def missing_of(self, packet):
        return None
    receive = Vector.__mro__[1].receive
PROTOCOLS = [ProtocolInfo.of(HastyPlugin, CAUSAL, environment="nowhere", summary="takes what comes")]
"""


def test_a_strangers_protocol_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/explore.md has it: found, told, repeated, judged, replayed, shown."""
    (tmp_path / "hasty_plugin.py").write_text(PLUGIN)
    world, out = tmp_path / "world.toml", tmp_path / "found"
    world.write_text('protocol = "hasty"\nlinks = "any"\n[[say]]\nnode = "n0"\n[[say]]\nnode = "n1"\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WHENCE_PLUGINS", "")
    use = ("--plugin", "hasty_plugin")
    assert whence(*use, "explore", world, "--out", out) == 1
    assert "causal: n2 delivers message 0 after 1" in capsys.readouterr().out
    assert whence(*use, "explore", "--replay", out / "schedule.json") == 1
    assert "causal: n2 delivers message 0 after 1" in capsys.readouterr().out
    assert whence("verify", out) == 1
    assert whence(*use, "replay", out) == 0
    assert whence("view", out, "--out", tmp_path / "view.html") == 0
    assert (tmp_path / "view.html").stat().st_size > 1000
