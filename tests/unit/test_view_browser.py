"""The viewer in a real Chromium: clicks, keys, search, links, pictures. Skipped where there is none."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from support.browser import BROWSER, DRIVER, ENTER, ESCAPE, NO_BROWSER, Browser
from unit.scenes import large_scene, random_scene
from unit.test_view_scene import write_trace
from whence.trace.schema import LATER_LIVES, Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter
from whence.view.exports import perfetto, shiviz
from whence.view.open import open_scene
from whence.view.page import write
from whence.view.scene import Scene, cone

pytestmark = pytest.mark.skipif(BROWSER is None or DRIVER is None, reason=NO_BROWSER)

STATE = """const v = whence.view;
  return {x0: v.x0, x1: v.x1, axis: v.axisName, selected: v.selected, second: v.second, finding: v.finding,
    step: v.step, tab: v.tab, query: v.query, filter: v.filter, packets: v.packets, height: v.rowHeight,
    hidden: [...v.hidden], rows: v.rows.map(row => row.name), bookmarks: v.bookmarks, hit: v.hit,
    dark: document.documentElement.classList.contains("dark"), hits: v.hits && v.hits.total, path: v.path,
    order: v.order}"""
PIXEL = """const c = document.getElementById("canvas"), sharp = whence.view.sharp;
  const found = c.getContext("2d").getImageData(arguments[0] * sharp, arguments[1] * sharp, 1, 1).data;
  return [...found].slice(0, 3)"""
COLOUR = """const value = parseInt(whence.view.colour[arguments[0]].slice(1), 16);
  return [value >> 16, value >> 8 & 255, value & 255]"""
COLUMNS = """const g = whence.view.graph, edges = [];
  for (let e = 0; e < g.n; e++) {
    for (let k = g.ins.start[e]; k < g.ins.start[e + 1]; k++) edges.push([g.ins.event[k], e]);
  }
  return JSON.stringify({kind: [...g.kind], text: [...g.msg].map((_, e) => whence.long(e)), x: [...g.x],
    edges, time: g.time && [...g.time], detail: [...g.detail], packetKind: [...g.packetKind]})"""
CONES = """whence.view.packets = true; await whence.select(given[0]);
  return [[...whence.view.cones.past], [...whence.view.cones.future]]"""
EXPORT = """const blob = await whence.exported(given[0]);
  return given[1] ? [...new Uint8Array(await blob.arrayBuffer())] : await blob.text()"""
MIDDLE = """const v = whence.view, middle = (v.axis.low + v.axis.high) / 2;
  const width = v.axis.span * arguments[0]; v.x0 = middle - width / 2; v.x1 = middle + width / 2"""
BOX = "const b = document.getElementById('canvas').getBoundingClientRect();"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as made:
        yield made


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scene, Path]:
    folder = tmp_path_factory.mktemp("view")
    scene = open_scene(write_trace(folder / "t"), None, events_max=None)
    return scene, write(scene, folder / "demo.html", version="test")


def state(browser: Browser) -> dict:
    return browser.run(STATE)


def at(scene: Scene, lane: str, place: int) -> int:
    return int(scene.starts[scene.lanes.index(lane)]) + place


def click_event(browser: Browser, event: int) -> None:
    count = browser.run("return whence.stats.clickMs.length")
    browser.click(*browser.run("return whence.place(arguments[0])", event))
    browser.until("return whence.stats.clickMs.length > arguments[0]", count)


def settled(browser: Browser) -> None:
    """Until what was asked for is drawn, arrows and all."""
    browser.until("return !whence.view.moving")
    browser.wait("await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def picture(browser: Browser) -> str:
    settled(browser)
    return browser.run("return document.getElementById('canvas').toDataURL()")


def test_it_opens_and_says_what_was_found(browser, demo):
    browser.open(demo[1])
    assert browser.console() == []
    assert browser.run("return document.getElementById('verdict').textContent") == "broken: causal 3"
    items = browser.run("return [...document.querySelectorAll('#panel .item')].map(each => each.innerText)")
    assert len(items) == 3
    assert "delivered after a message that depends on it" in items[0]
    assert browser.run("return document.getElementById('busy').hidden")
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")


def test_a_click_shows_past_and_future(browser, demo):
    scene, page = demo
    browser.open(page)
    event = at(scene, "b", 1)  # b broadcasts b:1
    click_event(browser, event)
    assert state(browser)["selected"] == event
    got = browser.run("return [[...whence.view.cones.past], [...whence.view.cones.future]]")
    assert got == [cone(scene, [event], past=way).tolist() for way in (True, False)]
    panel = browser.run("return document.getElementById('panel').innerText")
    assert "2 events" in panel  # past: a broadcasts and b delivers a:1
    assert "b:1" in browser.run("return document.getElementById('say').textContent")
    settled(browser)
    blue, orange = (browser.run(COLOUR, name) for name in ("past", "future"))
    x, y = browser.run("return whence.place(arguments[0])", at(scene, "b", 0))
    box = browser.run(
        "const b = document.getElementById('canvas').getBoundingClientRect(); return [b.left, b.top]"
    )
    assert browser.run(PIXEL, x - box[0] + 14, y - box[1]) == blue
    x, y = browser.run("return whence.place(arguments[0])", at(scene, "b", 1))
    assert browser.run(PIXEL, x - box[0] + 14, y - box[1]) == orange
    browser.keys(ESCAPE)
    assert state(browser)["selected"] == -1


def test_two_clicks_show_the_relation_and_a_shortest_chain(browser, demo):
    scene, page = demo
    browser.open(page)
    first, last = at(scene, "a", 0), at(scene, "d", 0)
    click_event(browser, first)
    click_event(browser, last)
    now = state(browser)
    assert (now["selected"], now["second"], now["order"]) == (first, last, "before")
    assert now["path"][0] == first
    assert now["path"][-1] == last
    lanes = [scene.lane_of(event) for event in now["path"]]
    assert [scene.lanes[lane] for lane in dict.fromkeys(lanes)] == ["a", "b", "c", "d"]
    assert "happened before" in browser.run("return document.getElementById('panel').innerText")
    click_event(browser, at(scene, "a", 3))  # a third click begins anew
    assert state(browser)["second"] == -1
    click_event(browser, at(scene, "d", 0))
    assert state(browser)["order"] == "concurrent"


def test_a_proof_is_drawn_and_stepped_through(browser, demo):
    scene, page = demo
    browser.open(page)
    red = browser.run(COLOUR, "find")
    places = "const b = document.getElementById('canvas').getBoundingClientRect();"
    places += (
        "return arguments[0].map(e => { const [x, y] = whence.place(e); return [x - b.left, y - b.top]; })"
    )
    steps = [step.event for step in scene.findings[1].steps]
    assert scene.findings[1].chain == 5

    def drawn() -> list[bool]:
        spots = browser.run(places, steps)
        pairs = list(pairwise(spots))[: scene.findings[1].chain - 1]
        return [browser.run(PIXEL, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2) == red for a, b in pairs]

    settled(browser)
    assert drawn() == [False] * 4
    browser.keys("ff")
    settled(browser)
    assert state(browser)["finding"] == 1
    assert drawn() == [True] * 4
    browser.keys("n")
    assert state(browser)["step"] == 1
    browser.keys("ppp")
    assert state(browser)["step"] == len(steps) - 2
    current = browser.run("return document.querySelector('[aria-current=step]').innerText")
    assert scene.findings[1].steps[-2].text in current
    browser.keys("pppp" + "f" * 2)
    assert scene.findings[0].at == "c"
    assert state(browser)["finding"] == 0
    browser.run(
        "[...document.querySelectorAll('#panel button')].find(b => b.innerText === 'Only its rows').click()"
    )
    assert state(browser)["rows"] == ["a", "b", "c"]


def test_keys(browser, demo):
    _, page = demo
    browser.open(page)
    start = state(browser)
    browser.keys("++")
    zoomed = state(browser)
    assert zoomed["x1"] - zoomed["x0"] < 0.6 * (start["x1"] - start["x0"])
    browser.keys("l")
    assert state(browser)["x0"] > zoomed["x0"]
    browser.keys("h")
    assert state(browser)["x0"] == pytest.approx(zoomed["x0"])
    browser.keys("-0")
    assert state(browser)["x0"] == pytest.approx(start["x0"])
    browser.keys("]")
    assert state(browser)["height"] > start["height"]
    browser.keys("?")
    assert browser.run("return document.getElementById('keys').open")
    browser.keys(ESCAPE)
    assert not browser.run("return document.getElementById('keys').open")
    browser.keys("t")
    assert state(browser)["dark"] != start["dark"]
    browser.keys("t")


def test_search_and_filter(browser, demo):
    scene, page = demo
    browser.open(page)
    delivered = int(np.sum((scene.kind == Kind.DELIVER) & (scene.msg == scene.msgs.index("a:1"))))
    browser.keys("/kind:deliver msg:a:1" + ENTER)
    browser.until("return whence.view.hits")
    now = state(browser)
    assert (now["hits"], now["tab"], now["hit"]) == (delivered, "matches", 0)
    browser.keys("n")
    assert state(browser)["hit"] == 1
    browser.run("document.getElementById('filter').click()")
    assert browser.run("return whence.view.mask.reduce((sum, each) => sum + each, 0)") == delivered
    for query, count in (("proc:b", 4), ("kind:/^b/", 3), ("c:1", 5), ('msg:"a:*"', 5), ("nothing", 0)):
        browser.run(
            "const q = document.getElementById('query'); q.value = arguments[0]; q.form.requestSubmit()",
            query,
        )
        browser.until("return whence.view.query === arguments[0] && whence.view.hits", query)
        assert (query, state(browser)["hits"]) == (query, count)
    browser.run("const q = document.getElementById('query'); q.value = 'msg:/(/'; q.form.requestSubmit()")
    assert browser.run("return document.getElementById('query').classList.contains('wrong')")


def test_the_address_restores_the_view(browser, demo):
    scene, page = demo
    browser.open(page)
    browser.keys("t++l")
    browser.run("document.querySelector('[data-axis=raw]').click()")
    browser.until("return whence.view.axisName === 'raw'")
    browser.keys("0")
    settled(browser)
    click_event(browser, at(scene, "b", 1))
    browser.keys("b")
    browser.run("document.querySelector('.label .hide').click()")
    browser.run("whence.view.sequence.reverse()")
    browser.keys("]+")
    before, seen = state(browser), picture(browser)
    address = browser.run("return whence.address()")
    browser.until("return location.hash === whence.address()")
    browser.open(page, address)
    after = state(browser)
    assert after == {
        **before,
        "x0": pytest.approx(before["x0"]),
        "x1": pytest.approx(before["x1"]),
        "height": after["height"],
    }
    assert round(after["height"]) == round(before["height"])
    assert before["dark"]
    assert before["bookmarks"] == [at(scene, "b", 1)]
    browser.open(page, browser.run("return whence.address()"))
    assert picture(browser) == picture_of(browser, page, address)
    assert seen != ""
    browser.run("location.hash = '#axis=logical&find=1.2'")  # an address that is typed in, too
    browser.until("return whence.view.finding === 0")
    assert state(browser)["selected"] == -1


def picture_of(browser: Browser, page: Path, address: str) -> str:
    browser.open(page, address)
    return picture(browser)


@pytest.mark.parametrize(
    "junk", ["#x=nan,1&sel=99.99,-1.3&find=77&rows=9,9,a&hide=1e9&axis=no", "#&&&==%", "#tab=x&h=0&y=-5"]
)
def test_an_address_that_makes_no_sense_does_no_harm(browser, demo, junk):
    browser.open(demo[1], junk)
    assert browser.console() == []
    assert len(state(browser)["rows"]) == 4


def test_dark_and_light_follow_the_preference(browser, demo):
    _, page = demo
    for scheme in ("dark", "light"):
        browser.prefer(scheme)
        browser.open(page)
        settled(browser)
        assert state(browser)["dark"] is (scheme == "dark")
        assert browser.run(PIXEL, 3, 60) == browser.run(COLOUR, "page")
        brightness = sum(browser.run(COLOUR, "page"))
        assert (brightness < 200) is (scheme == "dark")


def test_two_clocks_are_compared_by_messages_alone(browser, tmp_path):
    """b is 3 s ahead. Corrected, an answer comes after its question; raw, the question after its answer."""
    with TraceWriter(
        tmp_path / "t", run="clocks", writer="sim", protocol="fifo", parameters={}, promises=PromisesMade(),
        seed=1, nodes=["a", "b"], level=Level.DELIVERIES,
    ) as trace:  # fmt: skip
        for number in range(1, 6):
            sent = number * 1_000_000
            trace.event("a", sent, Kind.BROADCAST, "a", number)
            trace.event("b", sent + 3_000_400, Kind.DELIVER, "a", number)
            trace.event("b", sent + 3_000_500, Kind.BROADCAST, "b", number)
            trace.event("a", sent + 900, Kind.DELIVER, "b", number)
    scene = open_scene(tmp_path / "t")
    browser.open(write(scene, tmp_path / "clocks.html", version="test"), "#axis=corrected")
    times = browser.run("return [...whence.view.x]")
    source, target = scene.all_edges()
    assert len(source) == 10
    assert all(times[one] <= times[two] for one, two in zip(source.tolist(), target.tolist(), strict=True))
    question, answer = at(scene, "a", 4), at(scene, "b", 5)  # a:3 begins, b:3 begins
    browser.wait("await whence.select(given[0]); await whence.select(given[1], true)", question, answer)
    told = browser.run("return document.getElementById('panel').innerText")
    found = re.search(r"comes (-?[\d.]+) (ns|µs|ms) to (-?[\d.]+) (ns|µs|ms) after the first", told)
    assert found is not None, told
    scale = {"ns": 1e-3, "µs": 1, "ms": 1e3}
    low, high = float(found[1]) * scale[found[2]], float(found[3]) * scale[found[4]]
    assert low <= 500 <= high
    assert high - low < 3000


def test_rows_are_hidden_moved_and_folded(browser, tmp_path):
    scene = next(
        scene for seed in range(99) if len((scene := random_scene(seed)).lanes) > len(scene.procs) > 1
    )
    browser.open(write(scene, tmp_path / "rows.html", version="test"))
    names = scene.procs
    assert len(state(browser)["rows"]) == len(scene.lanes)  # so few that all are unfolded
    while len(state(browser)["rows"]) > len(names):
        browser.run("document.querySelector('.label button[title=Fold]').click()")
    assert state(browser)["rows"] == names
    browser.run("document.querySelector('.label button[title=Unfold]').click()")
    assert len(state(browser)["rows"]) > len(names)
    browser.run("document.querySelector('.label button[title=Fold]').click()")
    spots = browser.run(
        "return [...document.querySelectorAll('.label')].map(each => {"
        "const b = each.getBoundingClientRect(); return [b.left + 20, b.top + b.height / 2]; })"
    )
    browser.drag(tuple(spots[0]), tuple(spots[-1]))
    assert state(browser)["rows"] == [*names[1:], names[0]]
    browser.run("document.querySelector('.label .hide').click()")
    assert state(browser)["rows"] == [*names[2:], names[0]]
    browser.run("document.querySelector('#hidden-rows button').click()")
    assert sorted(state(browser)["rows"]) == names


def test_the_table_lists_what_is_in_sight(browser, demo):
    scene, page = demo
    browser.open(page, "#tab=table")
    browser.until("return document.querySelectorAll('#panel tbody tr').length === arguments[0]", len(scene))
    assert "(finding)" in browser.run("return document.getElementById('panel').innerText")
    browser.run("document.querySelectorAll('#panel tbody tr')[2].focus()")
    browser.keys(ENTER)
    browser.until("return whence.view.selected >= 0")
    assert state(browser)["tab"] == "table"


def test_why_a_message_waits(browser, tmp_path):
    """b got c:1, which depends on a:1, which never came."""
    with TraceWriter(
        tmp_path / "t", run="stuck", writer="sim", protocol="vector", parameters={}, promises=PromisesMade(),
        seed=1, nodes=["a", "b", "c"], level=Level.ALL,
    ) as trace:  # fmt: skip
        trace.event("a", 0, Kind.BROADCAST, "a", 1)
        trace.event("a", 1, Kind.SEND, "a", 1, "c")
        trace.event("c", 5, Kind.RECEIVE, "a", 1, "a")
        trace.event("c", 6, Kind.DELIVER, "a", 1)
        trace.event("c", 7, Kind.BROADCAST, "c", 1)
        trace.event("c", 8, Kind.SEND, "c", 1, "b")
        trace.event("b", 12, Kind.RECEIVE, "c", 1, "c")
    scene = open_scene(tmp_path / "t", None, events_max=None)
    browser.open(write(scene, tmp_path / "stuck.html", version="test"))
    browser.until(
        "return document.getElementById('panel').innerText.includes('Received and never delivered (1)')"
    )
    browser.run(
        "[...document.querySelectorAll('#panel .item')].find(each => each.innerText === 'c:1 at b').click()"
    )
    browser.until("return whence.view.selected >= 0")
    browser.run(
        "[...document.querySelectorAll('#panel button')].find(each => each.innerText === 'Why?').click()"
    )
    browser.until("return document.querySelector('.why')")
    told = browser.run("return document.querySelector('.why').innerText")
    assert "1 message in its past was not delivered there" in told
    assert "a:1" in told
    assert "never came there; held by a, c" in told


def test_the_worker_reads_what_was_packed(browser, tmp_path):
    """Columns, edges, cones, chains and the logical axis of random scenes, against Python."""
    for seed in range(12):
        scene = random_scene(seed, circles=seed % 4 == 3)
        browser.open(write(scene, tmp_path / "random.html", version="test"))
        assert browser.console() == []
        got = json.loads(browser.run(COLUMNS))
        assert got["kind"] == scene.kind.tolist()
        assert got["detail"] == scene.detail.tolist()
        for event, text in enumerate(got["text"]):
            name = scene.msgs[scene.msg[event]] if scene.msg[event] >= 0 else ""
            kind = scene.kinds[scene.kind[event]].name
            assert text.startswith(f"{scene.lanes[scene.lane_of(event)]} {kind} {name}".rstrip())
        if scene.time is not None and len(scene):
            assert got["time"] == (scene.time - scene.time.min()).tolist()
        edges = sorted(zip(*(each.tolist() for each in scene.all_edges()), strict=True))
        assert sorted(map(tuple, got["edges"])) == edges
        if seed % 4 != 3:
            for one, two in edges:
                assert got["x"][one] <= got["x"][two] - (not got["packetKind"][got["kind"][two]])
        for event in range(0, len(scene), 5):
            cones = browser.wait(CONES, event)
            assert cones == [cone(scene, [event], past=way).tolist() for way in (True, False)]


def test_numbers_of_later_lives_are_shown_to_the_last_digit(browser, tmp_path):
    """They are beyond 2**53, where a JavaScript number would round them: names, search and exports."""
    numbers = [LATER_LIVES + (5 << 20) + more for more in (1, 2, 3, 10**15 - 7)]
    names = [f"a:{number}" for number in numbers]
    with TraceWriter(
        tmp_path / "t", run="later", writer="sim", protocol="fifo", parameters={}, promises=PromisesMade(),
        seed=1, nodes=["a", "b"], level=Level.DELIVERIES,
    ) as trace:  # fmt: skip
        for at, number in enumerate(numbers):
            trace.event("a", 10 * at, Kind.BROADCAST, "a", number)
            trace.event("b", 10 * at + 5, Kind.DELIVER, "a", number)
    scene = open_scene(tmp_path / "t", None, events_max=None)
    assert sorted(scene.msgs) == sorted(names)
    browser.open(write(scene, tmp_path / "later.html", version="test"))
    texts = json.loads(browser.run(COLUMNS))["text"]
    for event, text in enumerate(texts):
        assert scene.msgs[scene.msg[event]] in text.split()
    for name in names:
        browser.run(
            "const q = document.getElementById('query'); q.value = arguments[0]; q.form.requestSubmit()",
            f"msg:{name}",
        )
        browser.until("return whence.view.query === arguments[0] && whence.view.hits", f"msg:{name}")
        assert (name, state(browser)["hits"]) == (name, 2)
    log = browser.wait(EXPORT, "shiviz", False)
    assert all(f"broadcast {name}\n" in log for name in names)


def test_more_arrows_than_can_be_drawn_are_bundled(browser, tmp_path):
    scene = large_scene(400_000, 400)
    browser.open(write(scene, tmp_path / "wide.html", version="test"), "#h=2")
    browser.run(MIDDLE, 0.175)
    browser.keys("l")
    settled(browser)
    drawn = browser.run("return whence.drawn()")
    assert browser.run("return whence.level()") == "marks"
    assert drawn["arrows"] == 20_000
    assert drawn["bundled"] > 0
    assert browser.console() == []


def test_exports_of_a_window(browser, demo):
    scene, page = demo
    browser.open(page, "#axis=raw&find=1.2")
    png = bytes(browser.wait(EXPORT, "png", True))
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">2I", png[16:24])[0] > 800
    svg = browser.wait(EXPORT, "svg", False)
    root = ElementTree.fromstring(svg)
    texts = {each.text for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"a", "b", "c", "d", "a:1"} <= texts
    made = json.loads(browser.wait(EXPORT, "perfetto", False))
    check_chrome_trace(made, events=len(scene))
    assert without_ids(made) == without_ids(json.loads(perfetto(scene)))
    log = browser.wait(EXPORT, "shiviz", False)
    check_shiviz(scene, log)
    check_shiviz(scene, shiviz(scene).decode())
    browser.keys("++++")
    settled(browser)
    part = json.loads(browser.wait(EXPORT, "perfetto", False))
    assert 0 < sum(each["ph"] == "X" for each in part["traceEvents"]) < len(scene)


def without_ids(document: dict) -> list[str]:
    return sorted(
        json.dumps({**row, "id": 0, "ts": float(row.get("ts", 0))}, sort_keys=True)
        for row in document["traceEvents"]
    )


def check_shiviz(scene: Scene, log: str) -> None:
    """Every event once, with the vector clock that its past has; the first line is the pattern."""
    lines = log.splitlines()
    assert lines[0] == r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
    seen: dict[str, int] = dict.fromkeys(scene.lanes, 0)
    for text, clocked in zip(lines[2::2], lines[3::2], strict=True):
        host, _, clock = clocked.partition(" ")
        lane = scene.lanes.index(host)
        event = int(scene.starts[lane]) + seen[host]
        seen[host] += 1
        reach = cone(scene, [event], past=True) - scene.starts[:-1]
        assert json.loads(clock) == {
            name: count for name, count in zip(scene.lanes, reach.tolist(), strict=True) if count
        }
        assert text == f"{scene.kinds[scene.kind[event]].name} {scene.msgs[scene.msg[event]]}"
    assert list(seen.values()) == np.diff(scene.starts).tolist()


def check_chrome_trace(document: dict, *, events: int) -> None:
    """As the Trace Event Format has it: phases, numbers, names of threads, flows between slices."""
    assert document["displayTimeUnit"] in {"ms", "ns"}
    rows = document["traceEvents"]
    slices = [each for each in rows if each["ph"] == "X"]
    assert len(slices) == events
    named = {
        (each["pid"], each["tid"]) for each in rows if each["ph"] == "M" and each["name"] == "thread_name"
    }
    for each in rows:
        assert each["ph"] in {"X", "M", "s", "f"}
        assert all(isinstance(each[key], int) for key in ("pid", "tid"))
        if each["ph"] != "M":
            assert isinstance(each["ts"], int | float)
            assert isinstance(each["name"], str)
            assert (each["pid"], each["tid"]) in named
    places = {(each["pid"], each["tid"], each["ts"]) for each in slices}
    begun = {each["id"]: each for each in rows if each["ph"] == "s"}
    ended = {each["id"]: each for each in rows if each["ph"] == "f"}
    assert begun.keys() == ended.keys()
    assert begun
    for flow in (*begun.values(), *ended.values()):
        assert (flow["pid"], flow["tid"], flow["ts"]) in places
    assert all(each["bp"] == "e" for each in ended.values())


@pytest.mark.parametrize(
    "events",
    [pytest.param(100_000, id="100000"), pytest.param(1_000_000, marks=pytest.mark.slow, id="1000000")],
)
def test_budgets_measured_by_the_page(browser, tmp_path, events):
    """Prints what the page measured; what is asserted of times leaves room for a busy machine."""
    scene = large_scene(events, 64)
    page = write(scene, tmp_path / "large.html", version="test")
    megabytes = page.stat().st_size / 1e6
    browser.open(page)
    opened = browser.run("return whence.stats")
    pans = {}
    for share in (1, 0.1, 0.01, 0.001):
        browser.run(MIDDLE, share)
        pans[share] = browser.wait("return await whence.measurePan(45)")
    browser.keys("0")
    settled(browser)
    for lane in (10, 20, 30, 40, 50):
        event = int(scene.starts[lane] + scene.starts[lane + 1]) // 2
        browser.wait("await whence.select(given[0])", event)
    clicks = sorted(browser.run("return whence.stats.clickMs"))
    heap = browser.run("return performance.memory ? performance.memory.usedJSHeapSize / 1e6 : 0")
    print(f"{len(scene):,} events, 64 processes: {megabytes:.1f} MB; open {opened['openMs']:.0f} ms")
    for share, pan in pans.items():
        frames = f"{pan['fps']:.0f} frames/s, worst {pan['worstMs']:.0f} ms"
        print(f"pan at {share:g} of the run ({pan['level']}): {frames}")
    print(f"click: median {clicks[2]:.0f} ms, worst {clicks[-1]:.0f} ms; heap of the page {heap:.0f} MB")
    assert megabytes <= 6
    assert {pan["level"] for pan in pans.values()} >= {"dense", "marks"}
    assert opened["openMs"] < 30_000
    assert browser.console() == []
