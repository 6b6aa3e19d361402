"""The engine with changing links: runs verify, are the same every time, and survive departures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from whence.core.rng import stream
from whence.errors import ScenarioError
from whence.overlay.spray import Pairs, Spray
from whence.sim.dynamic import DynamicEngine
from whence.sim.experiment import Departure, Experiment, Point, checked, load, paper
from whence.sim.hashing import HashingRecorder
from whence.trace.memory import MemoryTrace
from whence.trace.schema import PromisesMade
from whence.verify.run import verify_table

ROOT = Path(__file__).parents[2]
SMALL = Experiment(
    nodes=14,
    duration_us=8_000_000,
    joins_us=1_500_000,
    latency=[Point(2_000_000, 2_000), Point(5_000_000, 90_000)],
    shuffle_every_us=400_000,
    shuffle_stop_us=6_000_000,
    broadcast_start_us=500_000,
    broadcast_stop_us=6_000_000,
    broadcast_every_us=60_000,
)


def judged(experiment: Experiment) -> DynamicEngine:
    trace = MemoryTrace()
    engine = DynamicEngine(experiment, trace, check=True)
    engine.run()
    report = verify_table(trace.table("x"), PromisesMade(complete=False), engine.names)
    assert report.ok, report.findings
    return engine


@pytest.mark.parametrize("protocol", ["prc", "preventive"])
def test_runs_verify_and_link_memory_ends_empty(protocol: str) -> None:
    for seed in range(2):
        engine = judged(msgspec.structs.replace(SMALL, seed=seed, protocol=protocol))
        series = engine.series()
        assert series.expected_left == series.buffered_left == 0
        assert series.broadcasts > 80
        hops = series.control / series.opened
        assert hops == pytest.approx(8 if protocol == "prc" else 6, rel=0.05)


@pytest.mark.parametrize("protocol", ["prc", "preventive"])
def test_table_1_memory_forgets_or_grows_with_the_origins(protocol: str) -> None:
    engine = judged(msgspec.structs.replace(SMALL, protocol=protocol))
    entries = {engine.core(node).entries() for node in range(SMALL.nodes)}
    origins = {engine.core(node).last > 0 for node in range(SMALL.nodes)}
    assert origins == {True}
    assert entries == ({0} if protocol == "prc" else {SMALL.nodes})


def test_departures_are_survived() -> None:
    """Links of the lost go, handshakes time out, views stay filled; order and memory hold."""
    departures = [Departure(2_000_000 + 300_000 * at, node) for at, node in enumerate((3, 7, 0, 11))]
    for seed in range(2):
        params = {"timeout_us": 500_000}
        engine = judged(
            msgspec.structs.replace(SMALL, seed=seed, departures=departures, params=params, nodes=24)
        )
        assert len(engine.members) == 20
        for node in engine.members:
            assert engine.core(node).entries() == 0


def test_the_same_experiment_gives_the_same_trace() -> None:
    def hashed() -> str:
        recorder = HashingRecorder()
        DynamicEngine(SMALL, recorder).run()
        return recorder.hexdigest()

    assert hashed() == hashed()


def test_the_experiment_of_the_paper_is_there_as_data() -> None:
    assert load(ROOT / "examples" / "experiments" / "prc.toml") == paper(100)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="falls"):
        checked(msgspec.structs.replace(SMALL, latency=[Point(0, 5), Point(9, 4)]))
    with pytest.raises(ScenarioError, match="no point"):
        checked(msgspec.structs.replace(SMALL, latency=[]))
    with pytest.raises(ScenarioError, match="process 99"):
        checked(msgspec.structs.replace(SMALL, departures=[Departure(1, 99)]))
    (tmp_path / "x.toml").write_text("nodes = 'many'")
    with pytest.raises(ScenarioError, match=r"Expected `int`"):
        load(tmp_path / "x.toml")


# Spray


def test_arcs_are_neither_made_nor_lost_by_shuffles() -> None:
    engine = DynamicEngine(SMALL)
    engine.run()
    arcs = sum(len(view.arcs) for view in engine.views)
    assert arcs == sum(engine.pairs.arcs.values())
    # Every join adds one arc of the joiner and one for every introduction: between 1 and ln(n) + 1 each.
    assert SMALL.nodes < arcs < 6 * SMALL.nodes
    assert all(view.me not in view.arcs for view in engine.views)
    linked = set(engine.incarnations)
    assert linked == set(engine.pairs.arcs), "a pair is linked just while an arc joins it"


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
