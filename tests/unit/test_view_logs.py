"""Foreign logs as scenes: events in their places, sends that nobody logged, findings, clocks."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from support.corpus import cases
from unit.test_view_scene import past_by_sets
from whence.cli.main import app
from whence.foreign.clocks import read_clocks
from whence.foreign.graph import build, find_sends
from whence.foreign.judge import judge
from whence.foreign.model import Contract, EventKind, Log, LogBuilder
from whence.foreign.read import read_log
from whence.view.open import LOG_KINDS, scene_of_log
from whence.view.scene import Scene, cone


def shown(log: Log) -> Scene:
    return scene_of_log(log, judge(log))


def overtaken() -> Log:
    """Two sends that were logged in one context; the receiver has them the other way round."""
    builder = LogBuilder("line")
    for pos, msg in enumerate(("m1", "m2")):
        builder.add(proc="a", kind=EventKind.SEND, msg=msg, pos=pos, t0=pos * 1_000_000, line=pos)
    for pos, msg in enumerate(("m2", "m1")):
        builder.add(
            proc="b",
            kind=EventKind.DELIVER,
            msg=msg,
            pos=pos,
            scope="b",
            t0=5_000_000 + pos * 1_000_000,
            line=9 + pos,
        )
    return builder.log()


def test_a_finding_has_its_chain_and_its_two_deliveries():
    scene = shown(overtaken())
    assert scene.tone == "bad"
    assert scene.verdict.startswith("broken: causal 1")
    finding = scene.findings[0]
    assert (finding.kind, finding.broken, finding.message, finding.chain) == ("causal", True, "m1", 2)
    names = [
        (scene.lanes[scene.lane_of(step.event)], scene.msgs[scene.msg[step.event]]) for step in finding.steps
    ]
    assert names == [("a", "m1"), ("a", "m2"), ("b", "m2"), ("b", "m1")]
    assert finding.wrong == finding.steps[-1].event
    assert scene.unjudged  # says what it could not judge, and why


def test_a_send_that_nobody_logged_is_shown_in_its_channel():
    builder = LogBuilder("line")
    for pos, rank in enumerate((1, 3, 2)):
        builder.add(
            proc="c",
            kind=EventKind.DELIVER,
            msg=f"t@{rank}",
            pos=pos,
            scope="c",
            channel="t",
            rank=rank,
            line=pos,
        )
    scene = shown(builder.log())
    assert scene.procs == ["c", "t (not logged)"]
    lane = scene.lanes.index("t (not logged)")
    events = range(int(scene.starts[lane]), int(scene.starts[lane + 1]))
    assert [scene.msgs[scene.msg[event]] for event in events] == ["t@1", "t@2", "t@3"]
    assert {LOG_KINDS[scene.kind[event]].name for event in events} == {"send, not logged"}
    finding = next(each for each in scene.findings if each.kind == "fifo")
    assert [step.event in events for step in finding.steps] == [True, True, False, False]


def test_intervals_are_not_put_into_an_order():
    """Two spans of one process that overlap: neither is in the past of the other."""
    builder = LogBuilder("interval", spans=True)
    for name, start in (("parent", 0), ("one", 10), ("two", 20)):
        links = () if name == "parent" else ("parent",)
        builder.add(
            proc="s",
            ctx=name,
            kind=EventKind.INTERNAL,
            ref=name,
            links=links,
            t0=start,
            t1=start + 100,
            text=name,
        )
    scene = shown(builder.log())
    assert scene.procs == ["s"]
    assert len(scene.lanes) == 3
    place = {scene.details[scene.detail[event]].split()[0]: event for event in range(len(scene))}
    past = past_by_sets(scene, place["two"])
    assert past == {place["parent"], place["two"]}


def test_happened_before_is_that_of_the_judge():
    """Every path in the judge's graph between logged events is one in the scene."""
    builder = LogBuilder("line")
    builder.add(proc="a", kind=EventKind.SEND, msg="x", pos=0)
    builder.add(proc="b", kind=EventKind.DELIVER, msg="x", pos=0, scope="b")
    builder.add(proc="b", kind=EventKind.DELIVER, msg="y", pos=1, scope="b", deps=["x"])
    builder.add(proc="c", kind=EventKind.DELIVER, msg="y", pos=0, scope="c")
    builder.add(proc="c", kind=EventKind.SEND, msg="z", pos=1)
    builder.add(proc="d", kind=EventKind.RECEIVE, msg="z", pos=0)
    log = builder.log()
    scene = shown(log)
    graph = build(log, find_sends(log), read_clocks(log))
    kinds = [
        (scene.lanes[scene.lane_of(event)], int(scene.kind[event]), int(scene.msg[event]))
        for event in range(len(scene))
    ]
    place = [kinds.index((log.ctxs[log.ctx[e]], int(log.kind[e]), int(log.msg[e]))) for e in range(len(log))]
    before = 0
    for one in range(len(log)):
        for two in range(len(log)):
            if one != two:
                there = bool(graph.path(one, two))
                reach = cone(scene, [place[two]], past=True)
                assert (reach[scene.lane_of(place[one])] > place[one]) == there
                before += there
    assert before >= 9


def test_clocks_are_corrected_by_logged_times_alone():
    """b is 5 s behind; the send that nobody logged has no clock, so it bounds nothing."""
    builder = LogBuilder("line")
    for pos in range(4):
        builder.add(proc="a", kind=EventKind.SEND, msg=f"m{pos}", pos=2 * pos, t0=pos * 10**9)
        builder.add(
            proc="b",
            kind=EventKind.DELIVER,
            msg=f"m{pos}",
            pos=2 * pos,
            scope="b",
            t0=pos * 10**9 - 5 * 10**9 + 2000,
        )
        builder.add(
            proc="b", kind=EventKind.SEND, msg=f"r{pos}", pos=2 * pos + 1, t0=pos * 10**9 - 5 * 10**9 + 3000
        )
        builder.add(
            proc="a", kind=EventKind.DELIVER, msg=f"r{pos}", pos=2 * pos + 1, scope="a", t0=pos * 10**9 + 6000
        )
    builder.add(proc="c", kind=EventKind.DELIVER, msg="v", pos=0, scope="c", t0=77)
    scene = shown(builder.log())
    assert scene.reference == scene.procs.index("a")
    assert set(scene.corrections) == {scene.procs.index(name) for name in "ab"}
    correction = scene.corrections[scene.procs.index("b")]
    for low, add, high in zip(correction.low, correction.add, correction.high, strict=True):
        assert low is not None
        assert high is not None
        assert low <= 5 * 10**9 <= high
        assert abs(add - 5 * 10**9) < 600_000  # 500 ppm of a second, and the delays


def test_the_command_shows_a_log(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("node,kind,message,time\na,send,x,1\nb,deliver,x,2\n")
    result = CliRunner().invoke(app, ["view", str(log), "-o", str(tmp_path / "v.html"), "--json"])
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert (made["events"], made["verdict"]) == (2, "ok")


def test_the_command_bounds_clocks(tmp_path):
    log = tmp_path / "log.csv"
    rows = ["node,kind,message,time"]
    for number in range(20):
        at = 10.0 + number
        rows += [
            f"a,send,x{number},{at}",
            f"b,deliver,x{number},{at + 3.001}",
            f"b,send,y{number},{at + 3.002}",
        ]
        rows += [f"a,deliver,y{number},{at + 0.004}"]
    log.write_text("\n".join(rows) + "\n")
    for extra in ([], ["--linear"]):
        result = CliRunner().invoke(app, ["log", "skew", str(log), "--json", *extra])
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert found["impossible"] == []
        assert len(found["pairs"]) == 3
        for pair in found["pairs"]:
            assert (pair["first"], pair["second"]) == ("a", "b")
            assert pair["low_ns"] <= 3_000_000_000 <= pair["high_ns"]
            assert pair["high_ns"] - pair["low_ns"] < 5_000_000
    rows.append("a,send,z,50.0")
    rows.append("b,deliver,z,40.0")
    log.write_text("\n".join(rows) + "\n")
    result = CliRunner().invoke(app, ["log", "skew", str(log), "--json"])
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["impossible"]) == 1
    text = CliRunner().invoke(app, ["log", "skew", str(log)])
    assert "impossible by" in text.stdout
    assert np.isfinite(float(text.stdout.split("impossible by ")[1].split()[0]))


def test_a_log_without_times_is_refused(tmp_path: Path):
    log = tmp_path / "log.csv"
    log.write_text("node,kind,message\na,send,x\nb,deliver,x\n")
    result = CliRunner().invoke(app, ["log", "skew", str(log)])
    assert "it has no times" in str(result.exception)


def test_what_was_lost_can_be_asked_for():
    """A member that lacks a message: the page is told which and where, so that it can say why."""
    builder = LogBuilder("line", contract=Contract(complete=("sends", "deliveries"), members=("b", "c")))
    builder.add(proc="a", kind=EventKind.SEND, msg="x", pos=0)
    builder.add(proc="b", kind=EventKind.DELIVER, msg="x", pos=0, scope="b", group="b")
    builder.add(proc="c", kind=EventKind.INTERNAL, pos=0)
    finding = next(each for each in shown(builder.log()).findings if each.kind == "lost")
    assert (finding.at, finding.message, finding.wrong) == ("c", "x", -1)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_every_case_of_the_corpus_is_shown_as_it_is_judged(case):
    """All events are there once, and each step of a proof is an event that precedes the next one."""
    log = read_log(case.log, case.mapping)
    audit = judge(log, case.name)
    scene = scene_of_log(log, audit)
    assert int(np.sum(scene.kind < len(EventKind))) == len(log)
    assert len(scene.findings) == sum(len(each.findings) for each in audit.properties.values())
    assert scene.tone == {"ok": "good", "broken": "bad", "unknown": "warn"}[case.expect["verdict"]]
    assert len(scene.unjudged) == len(audit.not_judged)
    for finding in scene.findings:
        chain = [step.event for step in finding.steps[: finding.chain]]
        assert all(step.event >= 0 for step in finding.steps)
        by_clock = any("[interval]" in step.text for step in finding.steps)  # no cause: one clock's order
        for one, two in pairwise(chain) if not by_clock else ():
            assert cone(scene, [two], past=True)[scene.lane_of(one)] > one
        assert not by_clock or (finding.kind == "fifo" and log.spans)
        if finding.kind in {"causal", "fifo"}:
            early, late = (step.event for step in finding.steps[-2:])
            assert late == finding.wrong
            assert scene.msgs[scene.msg[early]] == scene.msgs[scene.msg[chain[-1]]]
            assert scene.msgs[scene.msg[late]] == scene.msgs[scene.msg[chain[0]]] == finding.message
