"""Runs over an overlay: they verify, are the same every time, and survive departures; what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from support.running import simulate, simulate_in
from whence.core.rng import stream
from whence.errors import ScenarioError
from whence.overlay.spray import Pairs, Spray
from whence.sim.distributions import Constant, Ramp, Uniform
from whence.sim.engine import Engine
from whence.sim.files import checked, dumps, from_dict, load, run_id, to_dict
from whence.sim.hashing import HashingRecorder
from whence.sim.links_overlay import OverlayLinks
from whence.sim.model import (
    Crash,
    Link,
    Override,
    Partition,
    Poisson,
    Record,
    Replies,
    Ring,
    Scenario,
    Skew,
    Slow,
    Stop,
)
from whence.sim.replay import replay
from whence.studies.prc.grid import changing, hour
from whence.trace.memory import MemoryTrace
from whence.trace.schema import PromisesMade
from whence.verify.run import verify_table

ROOT = Path(__file__).parents[2]
SMALL = changing(
    nodes=14,
    duration_us=8_000_000,
    joins_us=1_500_000,
    delays=[(2_000_000, 2_000), (5_000_000, 90_000)],
    shuffle_every_us=400_000,
    shuffle_stop_us=6_000_000,
    broadcast_start_us=500_000,
    broadcast_stop_us=6_000_000,
    broadcast_every_us=60_000,
)


def links_of(engine: Engine) -> OverlayLinks:
    assert isinstance(engine.links, OverlayLinks)
    return engine.links


def judged(scenario: Scenario) -> Engine:
    trace = MemoryTrace()
    engine = Engine(checked(scenario), None, trace, check=True)
    engine.run()
    report = verify_table(trace.table("x"), PromisesMade(complete=False), engine.names)
    assert report.ok, report.findings
    return engine


@pytest.mark.parametrize("protocol", ["prc", "preventive"])
def test_runs_verify_and_link_memory_ends_empty(protocol: str) -> None:
    for seed in range(2):
        engine = judged(msgspec.structs.replace(SMALL, seed=seed, protocol=protocol))
        series = engine.series()
        assert series is not None
        assert series.expected_left == series.buffered_left == 0
        assert series.broadcasts > 80
        hops = series.control / series.opened
        assert hops == pytest.approx(8 if protocol == "prc" else 6, rel=0.05)


@pytest.mark.parametrize("protocol", ["prc", "preventive"])
def test_table_1_memory_forgets_or_grows_with_the_origins(protocol: str) -> None:
    engine = judged(msgspec.structs.replace(SMALL, protocol=protocol))
    entries = {links_of(engine).core(node).entries() for node in range(SMALL.nodes)}
    origins = {links_of(engine).core(node).last > 0 for node in range(SMALL.nodes)}
    assert origins == {True}
    assert entries == ({0} if protocol == "prc" else {SMALL.nodes})


def test_departures_are_survived() -> None:
    """Links of the lost go, handshakes time out, views stay filled; order and memory hold."""
    gone = enumerate(("n03", "n07", "n00", "n11"))
    faults = [Crash(nodes=[name], at_us=2_000_000 + 300_000 * at) for at, name in gone]
    for seed in range(2):
        params = {"timeout_us": 500_000}
        engine = judged(msgspec.structs.replace(SMALL, seed=seed, faults=faults, params=params, nodes=24))
        assert len(engine.links.members) == 20
        for node in engine.links.members:
            assert links_of(engine).core(node).entries() == 0


def test_the_same_experiment_gives_the_same_trace() -> None:
    def hashed() -> str:
        recorder = HashingRecorder()
        Engine(SMALL, None, recorder).run()
        return recorder.hexdigest()

    assert hashed() == hashed()


def test_the_experiment_of_the_paper_is_there_as_data() -> None:
    assert load(ROOT / "examples" / "scenarios" / "prc-hour.toml") == hour(100)


def changed(**fields: object) -> Scenario:
    return msgspec.structs.replace(SMALL, **fields)


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (changed(link=Link(delay=Ramp(points=((0, 5), (9, 4))))), "falls"),
        (changed(link=Link(delay=Ramp(points=((9, 4), (9, 5))))), "does not come after"),
        (changed(link=Link(delay=Ramp(points=()))), "has none"),
        (changed(link=Link(delay=Uniform(low_us=1, high_us=9))), "overtake"),
        (changed(link=Link(loss=0.1)), r"link\.loss"),
        (changed(link=Link(fifo=True)), r"link\.fifo"),
        (changed(control=Link()), "control"),
        (changed(overrides=[Override(loss=0.1)]), "overrides"),
        (changed(faults=[Crash(nodes=["n99"], at_us=1)]), "n99"),
        (changed(faults=[Crash(nodes=["n01"], at_us=1, restart_us=9)]), "restart_us"),
        (changed(faults=[Slow(nodes="all", factor=2.0)]), r"faults\[0\]"),
        (changed(faults=[Partition(start_us=1)]), r"faults\[0\]"),
        (changed(protocol="vector"), "prc, preventive"),
        (changed(params={"links": "static"}), r"params\.links"),
        (changed(topology=Ring(), params={"links": "dynamic"}), r"params\.links"),
        (changed(topology=Ring()), r"record\.window_us"),
        (changed(record=Record(sample_nodes=["n99"])), r"record\.sample_nodes"),
        (changed(protocol="matrix"), "topology"),
    ],
)
def test_what_cannot_be_is_refused(scenario: Scenario, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        checked(scenario)


def test_a_run_over_an_overlay_is_a_scenario_like_any_other(tmp_path: Path) -> None:
    """TOML and manifest give it back, the trace replays, and completeness is computed."""
    example = load(ROOT / "examples" / "scenarios" / "prc-shuffle.toml")
    (tmp_path / "copy.toml").write_text(dumps(example))
    assert load(tmp_path / "copy.toml") == example
    result = simulate_in(example, tmp_path / "trace")
    manifest = result.manifest
    assert manifest is not None
    assert from_dict(manifest.parameters) == example
    assert (result.drained, result.promises.complete) == (True, True)
    assert result.undelivered == 0
    again = HashingRecorder()
    simulate(from_dict(manifest.parameters), again)
    assert again.hexdigest() == manifest.trace_hash
    assert replay(tmp_path / "trace").ok


@pytest.mark.parametrize(
    "change",
    [
        {"faults": [Crash(nodes=["n03"], at_us=7_000_000)]},  # its neighbours may have been its only ones
        {"topology": msgspec.structs.replace(SMALL.topology, joins_us=3_000_000)},  # some join too late
        {"stop": Stop(duration_us=5_100_000, drain=False)},  # messages are in flight
    ],
)
def test_completeness_is_promised_only_where_it_must_be(change: dict[str, object]) -> None:
    late = SMALL.workloads[0]
    loads = [msgspec.structs.replace(late, start_us=2_500_000, stop_us=5_000_000)]
    assert simulate(changed(workloads=loads)).promises.complete
    assert not simulate(changed(workloads=loads, **change)).promises.complete


def test_other_workloads_replies_clocks_and_samples(tmp_path: Path) -> None:
    """A node that has not joined skips its broadcasts; the rest is as with all links."""
    scenario = changed(
        workloads=[Poisson(interval_us=400_000, stop_us=5_000_000), Replies(probability=0.02)],
        faults=[Skew(nodes=3, offset_us=5_000), Crash(nodes=["n05"], at_us=4_000_000)],
        record=Record(sample_every_us=500_000, sample_nodes=["n01", "n05"]),
        stop=Stop(duration_us=6_000_000),
    )
    result = simulate_in(scenario, tmp_path / "trace", check=True)
    assert result.skipped_broadcasts > 0
    assert result.drained
    assert result.waiting == {}
    report = replay(tmp_path / "trace")
    assert report.ok, report.mismatches


def test_the_series_changes_nothing_and_a_window_more_renames_no_other_run() -> None:
    hashes = []
    for window_us in (None, 1_000_000):
        recorder = HashingRecorder()
        scenario = changed(record=Record(window_us=window_us))
        engine = Engine(scenario, None, recorder)
        engine.run()
        hashes.append(recorder.hexdigest())
        assert (engine.series() is None) == (window_us is None)
    assert hashes[0] == hashes[1]
    assert run_id(SMALL) != run_id(changed(record=Record()))


def test_a_run_id_is_the_hash_of_what_is_not_a_default() -> None:
    assert run_id(from_dict(to_dict(SMALL))) == run_id(SMALL)
    given = changed(link=Link(delay=Constant(value_us=7), loss=0.0))
    assert run_id(given) == run_id(changed(link=Link(delay=Constant(value_us=7))))
    assert run_id(given) != run_id(changed(link=Link(delay=Constant(value_us=8))))


# Spray


def test_arcs_are_neither_made_nor_lost_by_shuffles() -> None:
    engine = Engine(SMALL)
    engine.run()
    overlay = links_of(engine)
    arcs = sum(len(view.arcs) for view in overlay.views)
    assert arcs == sum(overlay.pairs.arcs.values())
    # Every join adds one arc of the joiner and one for every introduction: between 1 and ln(n) + 1 each.
    assert SMALL.nodes < arcs < 6 * SMALL.nodes
    assert all(view.me not in view.arcs for view in overlay.views)
    linked = set(overlay.incarnations)
    assert linked == set(overlay.pairs.arcs), "a pair is linked just while an arc joins it"


def test_half_is_given_and_the_partners_arc_is_turned_round() -> None:
    view: Spray[str] = Spray("p")
    view.take(["q", "a", "b", "q", "c"])
    given = view.give("q", lambda name: name != "c", stream(1, 2), begins=True)
    assert len(given) == 2
    assert given[0] == ("q", "p")
    assert all(there == ("p" if here == "q" else here) for here, there in given)
    assert len(view.arcs) == 3
    assert "c" in view.arcs  # not over a safe link


def test_introductions_name_the_contact_if_it_knows_nobody() -> None:
    view: Spray[str] = Spray("k")
    assert view.introductions(lambda name: True) == ["k"]
    view.take(["a", "a", "b"])
    assert view.introductions(lambda name: name == "a") == ["a", "a"]


def test_pairs_count_arcs_of_both_directions() -> None:
    pairs: Pairs[str] = Pairs()
    pairs.add("a", "b")
    pairs.add("b", "a")
    pairs.remove("a", "b")
    assert pairs.joined("b", "a")
    pairs.remove("a", "b")
    assert not pairs.joined("a", "b")
