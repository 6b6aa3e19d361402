"""Scenes: cones against brute force, cuts, packing; and what the command says."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from html import escape
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from support.made_up_study import made_up_result
from support.traces import parse
from unit.scenes import random_scene
from whence.cli.main import app
from whence.errors import MisuseError
from whence.foreign.judge import judge
from whence.foreign.read import read_log
from whence.live.watched import is_watched
from whence.report import html
from whence.report.views import write_views
from whence.studies.results import Row
from whence.trace.schema import Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter
from whence.verify.run import verify_trace
from whence.view.exports import perfetto, shiviz
from whence.view.live import LiveTrace
from whence.view.page import pack, page_of, varints, zigzag
from whence.view.scene import Scene, around, cone
from whence.view.traces import TRACE_KINDS

BROKEN = {
    "a": "b:a1 d:a1 d:b1 d:c1",
    "b": "d:a1 b:b1 d:b1 d:c1",
    "c": "d:b1 b:c1 d:c1 d:a1",
    "d": "d:c1 d:a1 d:b1",
}


def write_trace(folder: Path, run: str = "demo", **nodes: str) -> Path:
    rows = parse(**(nodes or BROKEN))
    with TraceWriter(
        folder, run=run, writer="sim", protocol="fifo", parameters={}, promises=PromisesMade(),
        seed=7, nodes=sorted(rows), level=Level.DELIVERIES,
    ) as trace:  # fmt: skip
        for at, (node, events) in enumerate(rows.items()):
            for seq, (kind, origin, number) in enumerate(events):
                trace.event(node, 150 * at + 130 * seq, kind, origin, number)
    return folder


def past_by_sets(scene: Scene, event: int) -> set[int]:
    """The past of an event, by walking backwards over single edges."""
    before: dict[int, list[int]] = {}
    for lane in range(len(scene.lanes)):
        for e in range(int(scene.starts[lane]) + 1, int(scene.starts[lane + 1])):
            before.setdefault(e, []).append(e - 1)
    for source, target in zip(*scene.all_edges(), strict=True):
        before.setdefault(int(target), []).append(int(source))
    found, todo = {event}, [event]
    while todo:
        for cause in before.get(todo.pop(), []):
            if cause not in found:
                found.add(cause)
                todo.append(cause)
    return found


@pytest.mark.parametrize("circles", [False, True])
def test_cones_are_what_sets_say(circles):
    asked = 0
    for seed in range(60):
        scene = random_scene(seed, circles=circles)
        pasts = {event: past_by_sets(scene, event) for event in range(len(scene))}
        for event in range(len(scene)):
            reach = cone(scene, [event], past=True)
            got = {
                e
                for lane in range(len(scene.lanes))
                for e in range(int(scene.starts[lane]), int(reach[lane]))
            }
            assert got == pasts[event]
            reach = cone(scene, [event], past=False)
            got = {
                e
                for lane in range(len(scene.lanes))
                for e in range(int(reach[lane]), int(scene.starts[lane + 1]))
            }
            assert got == {other for other in pasts if event in pasts[other]}
            asked += 1
    assert asked > 500


def test_numbers_are_packed_as_documented():
    values = np.array([0, 1, 127, 128, 16383, 16384, 2**40, 2**53 - 1], dtype=np.uint64)
    raw, found, at = varints(values), [], 0
    while at < len(raw):
        value = shift = 0
        while raw[at] > 127:
            value |= (raw[at] & 127) << shift
            at, shift = at + 1, shift + 7
        found.append(value | raw[at] << shift)
        at += 1
    assert found == values.tolist()
    assert zigzag(np.array([0, -1, 1, -2, 2, -(2**50)])).tolist() == [0, 1, 2, 3, 4, 2**51 - 1]
    assert varints(np.zeros(0, dtype=np.uint64)) == b""


def test_a_page_is_closed_in_itself_and_its_texts_are_data():
    scene = random_scene(next(seed for seed in range(99) if "</script>" in random_scene(seed).msgs))
    page = page_of(scene, version="1.2.3")
    assert page.count("</script>") == 4  # its own four: names cannot close an element
    assert "{{" not in re.sub(r"\$\{\{|\{\{ png", "", page.split("<script>")[0])
    assert not re.search(r"(?:src|href)=\"(?!data:|\$\{)", page)
    assert "connect-src 'none'" in page
    assert f"<title>{escape(scene.title)} " in page
    head = json.loads(page.split('id="head">')[1].split("</script>")[0])
    assert head["title"] == scene.title
    assert "</script>" in head["prefixes"]
    packed = pack(scene)
    raw = zlib.decompress(base64.b64decode(packed.data))
    assert len(raw) == sum(size for _, size in packed.head["columns"])


def test_around_a_finding_keeps_its_proof(tmp_path):
    quiet = " ".join(f"b:x{number}" for number in range(1, 400))
    folder = write_trace(tmp_path / "t", **BROKEN, x=quiet)
    made = _json("view", folder, "-o", tmp_path / "all.html")
    part = _json("view", folder, "-o", tmp_path / "part.html", "--around", "2", "--pad", "3")
    assert made["events"] == 414
    assert part["events"] < 40
    from whence.view.open import open_scene

    scene = open_scene(folder, None, events_max=None)
    cut = around(scene, [1], pad=3, limit=1000)
    finding = cut.findings[1]
    assert len(finding.steps) >= 4
    for step, whole in zip(finding.steps, scene.findings[1].steps, strict=True):
        assert step.text == whole.text
        assert cut.msgs[cut.msg[step.event]] == scene.msgs[scene.msg[whole.event]]
        assert cut.kind[step.event] == scene.kind[whole.event]
    delivered = cut.kind[finding.wrong] == Kind.DELIVER
    assert delivered
    assert any("a part:" in note for note in cut.notes)
    # Within the cut happened-before is what it was: each step of the chain precedes the next.
    for one, two in zip(finding.steps[: finding.chain], finding.steps[1 : finding.chain], strict=False):
        assert cone(cut, [two.event], past=True)[cut.lane_of(one.event)] > one.event


def _json(*words: object) -> dict:
    result = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def _refused(*words: object) -> str:
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exception is not None
    return str(result.exception)


def test_the_command_writes_a_page_and_says_what_it_holds(tmp_path):
    folder = write_trace(tmp_path / "t")
    made = _json("view", folder, "-o", tmp_path / "deep" / "view.html")
    assert made["verdict"] == "broken: causal 3"
    assert (made["events"], made["processes"], made["findings"]) == (15, 4, 3)
    assert made["bytes"] == (tmp_path / "deep" / "view.html").stat().st_size


def test_windows_for_other_viewers(tmp_path):
    folder = write_trace(tmp_path / "t")
    whole = _json("view", folder, "--format", "perfetto", "-o", tmp_path / "w.json")
    part = _json("view", folder, "--format", "perfetto", "-o", tmp_path / "p.json", "--until", "0.0004")
    assert whole["events"] == 15
    rows = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    slices = [row for row in rows if row["ph"] == "X"]
    assert 0 < len(slices) == part["events"] < 15
    assert max(row["ts"] for row in slices) < 400
    flows = [row["id"] for row in rows if row["ph"] in "sf"]
    assert all(flows.count(each) == 2 for each in flows)
    _json("view", folder, "--format", "shiviz", "-o", tmp_path / "w.log", "--around", "1")
    found = judge(read_log(tmp_path / "w.log"))
    assert (found.verdict, found.properties["causal"].count) == ("broken", 3)


@pytest.mark.parametrize("circles", [False, True])
def test_exports_put_causes_first(circles):
    """Clocks are those of brute force, and without times the slices lie on the longest path."""
    for seed in range(40):
        scene = replace(random_scene(seed, circles=circles), time=None)
        seen = dict.fromkeys(range(len(scene.lanes)), 0)
        for line in shiviz(scene).decode().splitlines()[3::2]:
            host, _, clock = line.partition(" ")
            lane = scene.lanes.index(host.replace("_", " "))
            event = int(scene.starts[lane]) + seen[lane]
            seen[lane] += 1
            if not circles:
                reach = (cone(scene, [event], past=True) - scene.starts[:-1]).tolist()
                known = {name.replace("_", " "): count for name, count in json.loads(clock).items()}
                assert known == {name: count for name, count in zip(scene.lanes, reach, strict=True) if count}
        assert sum(seen.values()) == len(scene)
        rows = json.loads(perfetto(scene))["traceEvents"]
        begun = {row["id"]: row["ts"] for row in rows if row["ph"] == "s"}
        ended = {row["id"]: row["ts"] for row in rows if row["ph"] == "f"}
        assert len(begun) == len(scene.all_edges()[0])
        assert circles or all(begun[flow] < ended[flow] for flow in begun)


def test_a_report_is_shown_without_its_trace(tmp_path):
    folder = write_trace(tmp_path / "t")
    report = CliRunner().invoke(app, ["verify", str(folder), "--json"])
    assert report.exit_code == 1
    (tmp_path / "report.json").write_text(report.stdout)
    made = _json("view", tmp_path / "report.json", "-o", tmp_path / "view.html")
    assert made["verdict"] == "broken: causal 3"
    assert made["findings"] == 3
    assert 4 < made["events"] < 15


def test_bad_input_is_refused_with_its_name(tmp_path):
    folder = write_trace(tmp_path / "t")
    assert "finding 4" in _refused("view", folder, "-o", tmp_path / "v.html", "--around", "4")
    assert "no run 'x'" in _refused("view", folder, "--run", "x")
    (tmp_path / "odd.json").write_text("{}")
    assert "odd.json" in _refused("view", tmp_path / "odd.json")
    write_trace(tmp_path / "s" / "run=demo")
    write_trace(tmp_path / "s" / "run=two", run="two")
    assert "it holds 2 runs" in _refused("view", tmp_path / "s")


def test_every_kind_of_a_trace_has_a_name_and_a_role():
    assert [kind.name for kind in TRACE_KINDS[1:]] == [kind.name.lower() for kind in Kind]
    assert not TRACE_KINDS[Kind.DELIVER].packet
    assert TRACE_KINDS[Kind.SEND].packet


def test_a_report_links_a_page_for_every_finding(tmp_path):
    traces = tmp_path / "traces"
    write_trace(traces / "run=demo")
    report = verify_trace(traces / "run=demo", causal=True)[0]
    row = Row("demo", {"protocol": "fifo", "seed": 1}, {}, {}, msgspec.to_builtins(report))
    clean = Row("clean", {"protocol": "fifo", "seed": 2}, {}, {}, {"ok": True, "findings": []})
    lost = Row("lost", {"protocol": "fifo", "seed": 3}, {}, {}, msgspec.to_builtins(report))
    views = write_views([row, clean, lost], traces, tmp_path, version="test")
    assert list(views.runs) == ["demo"]
    assert views.left_out == 1
    text = html.render(made_up_result(), date="today", views=views)
    links = re.findall(r'href="(views/[^"]+)"', text)
    assert links == [f"views/demo.html#find={number}.1" for number in (1, 2, 3)]
    page = (tmp_path / "views" / "demo.html").read_text()
    head = json.loads(page.split('id="head">')[1].split("</script>")[0])
    assert [each["kind"] for each in head["findings"]] == ["causal"] * 3
    assert head["focus"] == 1


def test_the_commands_of_the_document_run(tmp_path, monkeypatch):
    """Every line of docs/view.md but the one that serves for ever; each says what it wrote."""
    text = (Path(__file__).parents[2] / "docs" / "view.md").read_text()
    lines = [
        line.split("#")[0].split()
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    lines = [line for line in lines if "--live" not in line]
    assert len(lines) == 9
    write_trace(tmp_path / "traces" / "my-run")
    rows = ["node,kind,message,time", "a,send,x,1.0", "b,deliver,x,1.2", "b,send,y,1.3", "a,deliver,y,1.6"]
    (tmp_path / "system.csv").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    report = CliRunner().invoke(app, ["verify", "traces/my-run", "--json"])
    (tmp_path / "report.json").write_text(report.stdout)
    for line in lines:
        assert line[0] == "whence"
        result = CliRunner().invoke(app, line[1:])
        assert result.exit_code == 0, f"{line}: {result.output} {result.exception}"
    made = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert {
        "view.html",
        "page.html",
        "findings.html",
        "log.html",
        "start.html",
        "run.perfetto.json",
        "finding.shiviz.log",
    } <= set(made)
    shown = CliRunner().invoke(app, ["verify", "traces/my-run"])
    assert "see it: whence view traces/my-run --around 1" in shown.stdout


def test_a_growing_trace_is_read_anew_and_judged_with_care(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    growing = LiveTrace(folder, None, events_max=20)
    state, scene = growing.latest()
    assert (state, len(scene), scene.verdict) == ("", 0, "nothing recorded yet")
    assert is_watched(folder)  # so that nodes flush
    write_trace(folder, a="b:a1 d:a1", b="d:a1 d:x7")  # x's part has not come yet
    state, scene = growing.latest()
    assert (len(scene), scene.verdict) == (4, "ok: causal and as promised")
    assert growing.latest() == (state, scene)
    with pytest.raises(MisuseError, match="it has grown to 4 events"):
        LiveTrace(folder, None, events_max=3).latest()
    with pytest.raises(MisuseError, match="no such folder"):
        LiveTrace(tmp_path / "none", None, events_max=3)
    (folder / "sim.manifest.json").write_text("{")  # a node is just writing
    assert growing.latest() == (state, scene)
