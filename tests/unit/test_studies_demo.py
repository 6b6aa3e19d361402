"""The demonstration's grid, its analytic numbers, and that its expectations can fail."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.running import simulate, simulate_to
from whence.sim.files import checked, run_id
from whence.studies import witness
from whence.studies.base import check_grid
from whence.studies.demo.claims import degree, packets_per_broadcast
from whence.studies.demo.grid import NETWORKS, SCALES, STUDY, scenario
from whence.studies.results import Results, Row
from whence.studies.verdicts import Verdict
from whence.verify.run import verify_trace


@pytest.mark.parametrize("scale", SCALES)
def test_the_grid_pairs_the_protocols(scale: str) -> None:
    points = STUDY.grid(scale)
    check_grid(STUDY, points)
    wanted = SCALES[scale]
    assert len(points) == len(wanted.sizes) * len(wanted.networks) * wanted.seeds * 2
    assert len({run_id(point.scenario) for point in points}) == len(points)
    by_place: dict[tuple[Any, ...], set[str]] = {}
    for point in points:
        labels = dict(point.labels)
        protocol = str(labels.pop("protocol"))
        assert point.scenario.protocol == protocol
        assert point.scenario.seed == labels["seed"]
        by_place.setdefault(tuple(labels.values()), set()).add(protocol)
        alike = msgspec.structs.replace(point.scenario, protocol="x", name="x")
        other = scenario(
            "fifo", point.scenario.nodes, str(labels["network"]), point.scenario.seed, wanted.duration_us
        )
        assert alike == msgspec.structs.replace(other, protocol="x", name="x")
    assert all(protocols == {"fifo", "vector"} for protocols in by_place.values())
    assert wanted.seeds >= 2


def test_every_scenario_is_valid() -> None:
    for point in STUDY.grid("full")[::7]:
        assert checked(point.scenario) == point.scenario


def test_networks_have_the_same_mean_delay() -> None:
    means = {
        "constant": NETWORKS["constant"].value_us,
        "uniform": (NETWORKS["uniform"].low_us + NETWORKS["uniform"].high_us) / 2,
        "exponential": NETWORKS["exponential"].mean_us,
        "pareto": 3 * NETWORKS["pareto"].min_us,
    }
    assert means.keys() == NETWORKS.keys()
    assert all(mean == pytest.approx(10_000, rel=1e-3) for mean in means.values())


@pytest.mark.parametrize(("nodes", "packets"), [(4, 9), (8, 25), (16, 49), (32, 97), (64, 193)])
def test_flooding_by_hand(nodes: int, packets: int) -> None:
    assert packets_per_broadcast(nodes) == packets
    assert degree(nodes) * nodes % 2 == 0  # a regular graph exists


@pytest.mark.parametrize("protocol", ["fifo", "vector"])
def test_flooding_in_the_simulator(protocol: str) -> None:
    result = simulate(scenario(protocol, 8, "pareto", 1, 200_000))
    assert result.broadcasts > 5
    assert result.packets == result.broadcasts * packets_per_broadcast(8)
    assert result.undelivered == 0


def test_replies_are_drawn_alike_where_nothing_is_held() -> None:
    """The pairing that the constant network's expectation rests on: one run, whichever the protocol."""
    fifo, vector = (simulate(scenario(name, 8, "constant", 3, 200_000)) for name in ("fifo", "vector"))
    assert (fifo.broadcasts, fifo.final_us, fifo.packets) == (
        vector.broadcasts,
        vector.final_us,
        vector.packets,
    )


# Expectations on invented measures


def made_up(protocol: str, nodes: int, network: str, seed: int, **changes: float) -> Row:
    broadcasts = 50
    measures: dict[str, float | None] = {
        "broadcasts": broadcasts,
        "deliveries": broadcasts * nodes,
        "packets_per_broadcast": packets_per_broadcast(nodes),
        "control_bytes_per_packet": 10 if protocol == "fifo" else 14.5,
        "reception_mean_us": 10_000,
        "delivery_mean_us": 10_000,
        "delivery_p99_us": 10_000,
        "delivery_max_us": 10_000,
        "held_mean_us": 0,
        "held_share": 0,
        "held_peak_max": 0,
        "entries_peak_max": nodes,
        "causal": 3 if protocol == "fifo" and network != "constant" else 0,
        "fifo": 0,
    }
    labels = {"network": network, "nodes": nodes, "protocol": protocol, "seed": seed}
    verdict = {
        "ok": changes.pop("ok", 1) == 1,
        "deliveries": broadcasts * nodes,
        "counts": {},
        "findings": [],
    }
    row = Row(f"{labels}", labels, {}, measures | changes, verdict)
    return Row(row.run, labels, {}, {**row.measures, **STUDY.derive(row)}, verdict)


def results(**changes: dict[str, float]) -> Results:
    """The tiny grid; `changes` by protocol and network, as fifo_constant."""
    return Results(
        tuple(
            made_up(protocol, nodes, network, seed, **changes.get(f"{protocol}_{network}", {}))
            for network in ("constant", "exponential")
            for nodes in (4, 6)
            for protocol in ("fifo", "vector")
            for seed in (1, 2)
        )
    )


def differing(found: Results) -> list[str]:
    return [one.claim.text for one in STUDY.judge(found) if one.verdict is Verdict.DIFFERS]


def test_right_measures_meet_every_expectation() -> None:
    assert differing(results()) == []
    assert len(STUDY.judge(results())) == 12


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (
            {"vector_exponential": {"packets_per_broadcast": 9.5}},
            [
                "packets per broadcast, 4 nodes, both protocols",
                "packets per broadcast, 6 nodes, both protocols",
            ],
        ),
        ({"vector_exponential": {"causal": 1}}, ["causal violations of vector, all runs"]),
        ({"vector_exponential": {"ok": 0}}, ["runs of vector that keep every promise"]),
        ({"fifo_exponential": {"fifo": 1}}, ["FIFO violations of fifo, all runs"]),
        ({"fifo_exponential": {"broadcasts": 51}}, ["deliveries missing from any run"]),
        ({"fifo_constant": {"causal": 1}}, ["causal violations of fifo, constant delays"]),
        ({"vector_constant": {"held_share": 0.001}}, ["deliveries that vector holds, constant delays"]),
        (
            {"vector_constant": {"delivery_max_us": 10_001}},
            ["latency of vector less that of fifo, constant delays"],
        ),
        (
            {"vector_constant": {"reception_mean_us": 9_999.5}},
            ["reception latency, 4 nodes all linked, constant delays"],
        ),
        ({"fifo_exponential": {"causal": 0}}, ["causal violations of fifo, exponential delays"]),
        ({"fifo_exponential": {"control_bytes_per_packet": 10.01}}, ["control bytes of a fifo packet"]),
    ],
)
def test_a_wrong_measure_is_found(change: dict[str, dict[str, float]], names: list[str]) -> None:
    assert differing(results(**change)) == names


def test_tables_figures_and_sentences_hold_the_measures() -> None:
    found = results()
    figures = STUDY.figures(found)
    assert [figure.name for figure in figures] == ["order", "latency", "held", "bytes", "memory"]
    assert all(len(panel.series) == 2 for figure in figures for panel in figure.panels)
    tables = {table.name: table for table in STUDY.tables(found)}
    assert set(tables) == {*(figure.name for figure in figures), "costs"}
    assert len(tables["costs"].rows) == 4
    glance = STUDY.headline(found)
    assert [row[:2] for row in glance.rows] == [
        ("constant", "fifo"),
        ("constant", "vector"),
        ("exponential", "fifo"),
        ("exponential", "vector"),
    ]
    assert glance.rows[2][2] == found.estimate(
        "violations_per_1000", network="exponential", protocol="fifo", nodes=6
    )
    sentences = STUDY.findings(found)
    # 3 in each of 4 fifo runs with exponential delays; 2 networks x 2 seeds x (150 + 250) deliveries
    assert sentences[0].startswith(
        "FIFO broke causal order 12 times in 1,600 remote deliveries: 0 times where all"
    )
    assert "20.0 times per 1,000 deliveries" in sentences[0]  # 3 of 150, in the smaller group
    assert sentences[1].startswith("Vector clocks broke it 0 times in 1,600")


def test_the_witness_is_a_chain_of_real_events(tmp_path: Path) -> None:
    one = scenario("fifo", 8, "exponential", 1, 300_000)
    simulate_to(one, tmp_path)
    (report,) = verify_trace(tmp_path)
    row = Row(report.run, {"nodes": 8}, {}, {}, msgspec.to_builtins(report))
    found = witness.pick([row])
    assert found is not None
    told = witness.tell(*found, tmp_path)
    chain, (early, late) = told.marks[:-2], told.marks[-2:]
    assert (chain[0].kind, chain[0].message) == ("broadcast", told.first)
    assert (chain[-1].kind, chain[-1].message) == ("broadcast", told.second)
    assert (early.node, early.message, late.node, late.message) == (
        told.node,
        told.second,
        told.node,
        told.first,
    )
    assert [mark.time_us for mark in chain] == sorted(mark.time_us for mark in chain)
    assert early.time_us <= late.time_us
    for before, after in itertools.pairwise(chain):
        assert before.node == after.node or (before.message == after.message and after.kind == "deliver")
    assert told.second in told.sentences[0]
    assert told.node in told.sentences[1]


def test_the_shortest_chain_is_picked() -> None:
    def row(run: str, *lengths: int) -> Row:
        findings = [{"kind": "causal", "seq": 1, "chain": [{}] * length} for length in lengths]
        return Row(run, {}, {}, {}, {"findings": [{"kind": "fifo", "seq": 1, "chain": []}, *findings]})

    found = witness.pick([row("a", 7, 5), row("b", 3, 9), row("c", 3)])
    assert found is not None
    assert (found[0].run, len(found[1]["chain"])) == ("b", 3)
    assert witness.pick([row("a")]) is None
