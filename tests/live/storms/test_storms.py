"""Storms on real processes (slow), and the judge itself: it must catch what it is there for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whence
from live.storms.indoors import Indoors, patched
from live.storms.judge import Judge
from live.storms.storm import CASES, KINDS, Step, Storm, names_of, one, schedule_of
from live.storms.storm_member import Speaker
from live.storms.virtual import World
from live.storms.weather import Proxied, can_make_spaces
from support.living import in_a_loop

SEEDS = int(os.environ.get("WHENCE_STORMS", "31"))  # storms of random faults: one of each kind
INDOORS = int(os.environ.get("WHENCE_STORMS_INDOORS", "310"))  # in memory, of a minute each: about a second
CASE_SEEDS = int(os.environ.get("WHENCE_CASE_SEEDS", "20"))  # of each case of the specification, in memory
STORM_S = float(os.environ.get("WHENCE_STORM_S", "20"))
FIRST = int(os.environ.get("WHENCE_STORM_SEED", "0"))

Line = list[object]


def calm() -> dict[str, list[Line]]:
    """Two members: a says m1, b has it and says m2, a has that; both leave."""
    m1, m2 = ["a", "", 1, "a.1.1"], ["b", "", 1, "b.1.1"]
    return {
        "a": [
            ["open", 1, 1.0], ["says", "a.1.1", [], None, 1.5], ["sent", *m1, None, 2.0],
            ["got", *m1, [], 2.0], ["got", *m2, ["a.1.1"], 4.0], ["leaves", [], 9.0],
        ],
        "b": [
            ["open", 1, 1.0], ["got", *m1, [], 3.0], ["says", "b.1.1", ["a.1.1"], None, 3.0],
            ["sent", *m2, None, 3.5], ["got", *m2, ["a.1.1"], 3.5], ["leaves", [], 9.0],
        ],
    }  # fmt: skip


def judged(logs: dict[str, list[Line]], folder: Path, **options: bool) -> list[str]:
    judge = Judge(**options)
    for node, lines in logs.items():
        path = folder / f"{node}.log"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        judge.read(node, path)
    return judge.judge().problems


def test_a_store_that_was_lost_before_a_process_could_open_it_begins_another_chain(tmp_path: Path) -> None:
    logs = calm()
    logs["b"] += [["start", "lost", 20.0], ["start", "same", 20.5], ["open", 3, 21.0],
                  ["got", "a", "", 1, "a.1.1", [], 22.0]]  # fmt: skip
    assert judged(logs, tmp_path) == []


def _loses(logs: dict[str, list[Line]]) -> None:
    logs["b"] = [line for line in logs["b"] if line[0] != "got"]


def _doubles(logs: dict[str, list[Line]]) -> None:
    logs["b"].insert(2, logs["b"][1])


def _renames(logs: dict[str, list[Line]]) -> None:
    logs["b"][1] = ["got", "a", "", 1, "a.1.9", [], 3.0]


def _swaps(logs: dict[str, list[Line]]) -> None:
    third = ["c", "", 1, "c.1.1"]
    logs["c"] = [
        ["open", 1, 1.0], ["got", "b", "", 1, "b.1.1", ["a.1.1"], 5.0], ["got", "a", "", 1, "a.1.1", [], 6.0],
        ["says", third[3], [], None, 7.0],
    ]  # fmt: skip


def _ends(logs: dict[str, list[Line]]) -> None:
    logs["b"].append(["ended", "the node has failed", 9.0])


def _repeats(logs: dict[str, list[Line]]) -> None:
    logs["b"] += [["start", "same", 20.0], ["open", 2, 21.0], ["got", "a", "", 1, "a.1.1", [], 22.0]]


WRONGS: dict[str, Callable[[dict[str, list[Line]]], None]] = {
    "silence": _loses, "once": _doubles, "identity": _renames, "order": _swaps, "going on": _ends,
}  # fmt: skip


def test_a_calm_run_is_clean(tmp_path: Path) -> None:
    assert judged(calm(), tmp_path) == []


@pytest.mark.parametrize("rule", WRONGS)
def test_the_judge_catches(rule: str, tmp_path: Path) -> None:
    logs = calm()
    WRONGS[rule](logs)
    assert any(problem.startswith(rule) for problem in judged(logs, tmp_path))


def test_what_was_done_long_before_a_restart_must_not_come_again(tmp_path: Path) -> None:
    logs = calm()
    _repeats(logs)
    assert [problem.split(":")[0] for problem in judged(logs, tmp_path)] == ["once"]


def test_a_loss_that_is_told_is_no_silence(tmp_path: Path) -> None:
    logs = calm()
    _loses(logs)
    logs["b"].append(["told", "missed", "a", "a 1 to 1: before joining", 8.0])
    assert judged(logs, tmp_path) == []


def test_survivors_of_a_dead_sender_agree_or_are_told(tmp_path: Path) -> None:
    logs = calm()
    logs["c"] = [["open", 1, 1.0], ["got", "b", "", 1, "b.1.1", ["a.1.1"], 5.0], ["leaves", [], 9.0]]
    logs["a"] += [["start", "fresh", 6.0], ["open", 2, 7.0]]
    assert [problem.split(":")[0] for problem in judged(logs, tmp_path)] == ["agreement"]
    assert judged(logs, tmp_path, agrees=False) == []


def test_a_schedule_is_drawn_from_its_name() -> None:
    for name in ("vector/durable/7", "prc/volatile/7"):
        kind = KINDS[name.split("/")[0]]
        durable = "durable" in name
        assert schedule_of(name, kind, durable, (), 60.0) == schedule_of(name, kind, durable, (), 60.0)
        assert schedule_of(name, kind, durable, (), 60.0) != schedule_of(f"{name}1", kind, durable, (), 60.0)


def _storm(name: str, case: str, seconds: float, folder: Path) -> None:
    if KINDS[name.split("/", maxsplit=1)[0]].network == "spaces" and not can_make_spaces():
        pytest.skip("this machine does not let us make network namespaces")
    verdict = one(name, seconds, case, folder)
    assert not verdict["problems"], json.dumps(verdict, indent=1)


# Each found a fault that is repaired; all kinds blow again.
FOUND = (
    "matrix/volatile/117", "domains/volatile/105", "domains/volatile/111", "domains/durable/222",
    "matrix/durable/200", "domains/volatile/209", "barrier/volatile/223", "vector/durable/6012",
    "vector/durable/6000", "domains/durable/6000", "vcube/volatile/20027", "prc/volatile/40001 split",
    "vcube/volatile/1 alone",
)  # fmt: skip
SHORT = ("117", "105", "111", "alone")


@pytest.mark.parametrize("found", FOUND)
def test_a_storm_in_memory_that_found_a_fault(found: str, tmp_path: Path) -> None:
    name, _, case = found.partition(" ")
    verdict = one(name, 30.0 if found.endswith(SHORT) else 60.0, case or "all", tmp_path, indoors=True)
    assert not verdict["problems"], json.dumps(verdict, indent=1)
    assert verdict["sent"] > 100


@pytest.mark.parametrize("seed", [0, 5])
def test_who_only_begins_keeps_nobody_from_founding_the_group_again(seed: int, tmp_path: Path) -> None:
    """After a blackout all were out and waited for the smallest name, which waited for them (prc/161146)."""
    world = World(f"prc/volatile/{seed}")
    storm = Storm(f"prc/volatile/{seed}", 16.0, "all", tmp_path, world)
    storm.steps = [Step(5.0, "away", "a", 0.0, 3.0), Step(6.0, "blackout", "abcd", 0.0, 9.0)]
    with patched(world):
        world.run(storm.run())
    assert not storm.judged()["problems"]


@pytest.mark.parametrize("seed", [0, 1])
def test_two_parts_that_meet_say_that_they_were_split_and_one_comes_back(seed: int, tmp_path: Path) -> None:
    world = World(f"prc/volatile/{seed}")
    storm = Storm(f"prc/volatile/{seed}", 20.0, "split", tmp_path, world)
    storm.steps = [Step(5.0, "partition", "ab", 0.0, 12.0)]
    with patched(world):
        world.run(storm.run())
    assert not storm.judged()["problems"]
    logs = {name: [json.loads(line) for line in member.log.open()] for name, member in storm.members.items()}
    assert any(line[:2] == ["told", "split"] for log in logs.values() for line in log)
    assert {name for name, log in logs.items() if any(line[0] == "rejoined" for line in log)} in (
        {*"ab"},
        {*"cd"},
    )


@pytest.mark.parametrize("spaces", [False, True])
@in_a_loop
async def test_a_fault_opens_no_way_that_another_has_closed(spaces: bool) -> None:
    """A connection that had lost something went on without it, which no TCP does (vector/volatile/161058)."""
    world, proxied = World("x"), Proxied("ab")
    indoors = Indoors(world, "ab", spaces=spaces)
    for network in (indoors, proxied):
        await network.hurt("a", "b", "black hole", 0.0)
        await network.hurt("b", "a", "half-open", 0.9)
    [pair], [proxy] = world.pairs.values(), proxied.mesh.proxies.values()
    assert (pair.holds if spaces else pair.swallows) == proxy.swallows == {True, False}
    await indoors.heal("a", "b")
    assert pair.holds == pair.swallows == set()


def _takes_is_done(patch: pytest.MonkeyPatch) -> None:
    """W7 as it was: to ask for a message said that it is done."""
    receive = whence.Group.receive

    async def taken(group: whence.Group) -> whence.Message:
        message = await receive(group)
        group.done(message)
        return message

    patch.setattr(whence.Group, "receive", taken)


def _forgets_keys(patch: pytest.MonkeyPatch) -> None:
    """W8 as it was: nothing says that a message is tried again."""
    call = Speaker._call

    async def keyless(self: Speaker, payload: bytes, to: str | None, options: dict[str, Any]) -> Any:
        return await call(self, payload, to, {"timeout": options["timeout"]})

    patch.setattr(Speaker, "_call", keyless)


@pytest.mark.parametrize(
    ("case", "spoil", "rule"), [("W7", _takes_is_done, "silence"), ("W8", _forgets_keys, "once")]
)
def test_what_was_wrong_before_is_found(
    case: str, spoil: Callable[[pytest.MonkeyPatch], None], rule: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert not one("vector/durable/1", 20.0, case, tmp_path / "right", indoors=True)["problems"]
    spoil(monkeypatch)
    problems = one("vector/durable/1", 20.0, case, tmp_path / "wrong", indoors=True)["problems"]
    assert any(problem.startswith(rule) for problem in problems), problems


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [each for each in names_of("all", INDOORS, FIRST, []) if "udp" not in each])
def test_a_storm_in_memory(name: str, tmp_path: Path) -> None:
    verdict = one(name, 60.0, "all", tmp_path, indoors=True)
    assert not verdict["problems"], json.dumps(verdict, indent=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", list(names_of("all", SEEDS, FIRST, [])))
def test_a_storm(name: str, tmp_path: Path) -> None:
    _storm(name, "all", STORM_S, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", [case for case in CASES if case != "all"])
def test_a_storm_of_one_case(case: str, tmp_path: Path) -> None:
    [name] = names_of(case, 1, FIRST, [])
    _storm(name, case, STORM_S, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", [case for case in CASES if case != "all"])
def test_storms_of_one_case_in_memory(case: str, tmp_path: Path) -> None:
    for name in names_of(case, CASE_SEEDS, FIRST, []):
        if "udp" not in name:
            verdict = one(name, 30.0, case, tmp_path / name.replace("/", "-"), indoors=True)
            assert not verdict["problems"], json.dumps(verdict, indent=1)
