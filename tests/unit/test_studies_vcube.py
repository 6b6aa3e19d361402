"""The VCube study: its grid, the published numbers and the measures of one run. No Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from whence.lab.run import path_of
from whence.sim.files import checked, run_id
from whence.sim.workload import sources
from whence.studies import registry
from whence.studies.base import check_grid
from whence.studies.claims import printed
from whence.studies.results import Estimate, Results, Row, percent_change
from whence.studies.vcube import crashes
from whence.studies.vcube.claims import BYTES, CLAIMS, CRASHES, PROTOTYPE_R0, SIZES, mean_hops
from whence.studies.vcube.crashes import CASES, crash_scenario, run_crashes
from whence.studies.vcube.grid import MODES, PROFILES, SCALES, STUDY, scenario
from whence.studies.vcube.measures import derive, differences
from whence.studies.vcube.runs import MAIN
from whence.trace.schema import Level
from whence.verify.run import verify_trace

# The grid


@pytest.mark.parametrize("scale", SCALES)
def test_the_grid(scale: str) -> None:
    points = STUDY.grid(scale)
    check_grid(STUDY, points)
    assert len({run_id(point.scenario) for point in points}) == len(points)
    for point in points[:: max(1, len(points) // 40)]:
        labels, made = point.labels, point.scenario
        assert checked(made) == made
        if labels["part"] == CRASHES:
            assert len(made.faults) == (CASES[str(labels["mode"])] > 0)
            continue
        assert path_of(made, kernel="always")[0] == "kernel"
        assert (made.nodes, made.seed) == (labels["nodes"], labels["seed"])
        profile, mode = PROFILES[str(labels["profile"])], MODES[str(labels["mode"])]
        assert made.workloads[0].stop_us == made.stop.duration_us == profile.window_us
        assert made.link.delay.deviation_us == profile.deviation_us
        assert (made.params["aggregate"], made.params["tree"]) == (mode.aggregate, mode.tree)


def test_the_papers_scale_is_the_papers() -> None:
    points = STUDY.grid("paper")
    main = [point for point in points if point.labels["part"] == MAIN]
    runs = Counter(str(point.labels["profile"]) for point in main)
    assert runs["R0"] == 30 * (8 * 3 + 1)
    assert runs["R1"] == 30 * 6 * 3 + 10 * (2 * 3 + 1)
    assert runs["T25"] == runs["T35"] == runs["U35"] == 10 * 7 * 2 + 5 * 3
    assert {point.labels["nodes"] for point in main} == set(SIZES)
    five = {point.labels["nodes"] for point in main if point.labels["mode"] == "5 bytes"}
    assert five == {1024}


def test_one_run_of_every_small_point_is_traced() -> None:
    for scale, wanted in SCALES.items():
        traced = [
            point.labels
            for point in STUDY.grid(scale)
            if point.scenario.record.as_level() > Level.MEASURES and point.labels["part"] != CRASHES
        ]
        assert all(labels["seed"] == 1 for labels in traced)
        for profile, sizes in wanted.runs.items():
            for nodes in (nodes for nodes in sizes if nodes <= wanted.traced):
                modes = {
                    labels["mode"]
                    for labels in traced
                    if (labels["profile"], labels["nodes"]) == (profile, nodes)
                }
                assert modes >= {"aggregation", "plain"}
                assert "single tree" in modes or profile not in ("R0", "R1")


def shape_rows(one: dict[int, tuple[float, ...]], many: dict[int, tuple[float, ...]]) -> Results:
    """Receptions over a single tree and over many, by size and seed."""
    return Results(
        tuple(
            Row(
                f"{mode}-{nodes}-{seed}",
                {"profile": "R0", "nodes": nodes, "mode": mode, "part": MAIN, "seed": seed},
                {},
                {"reception_ut": time, "reception_start_0_ut": 0.0, "reception_start_9_ut": time},
                {},
            )
            for mode, times in (("single tree", one), ("plain", many))
            for nodes, values in times.items()
            for seed, time in enumerate(values, 1)
        )
    )


MANY = {128: (100.0, 100.0, 100.0), 1024: (100.0, 100.0, 100.0)}


@pytest.mark.parametrize(
    ("one", "root", "rise"),
    [
        ({128: (150, 151, 149), 1024: (900, 901, 899)}, "agrees", "agrees"),
        # No more than chance between 128 and 1024 nodes, and between one tree and many.
        ({128: (150, 151, 149), 1024: (100, 300, 60)}, "not judged", "not judged"),
        ({128: (150, 151, 149), 1024: (90, 91, 89)}, "differs", "differs"),
    ],
)
def test_shapes_are_judged_beyond_the_interval_over_the_seeds(
    one: dict[int, tuple[float, ...]], root: str, rise: str
) -> None:
    found = {each.claim.id: each for each in STUDY.judge(shape_rows(one, MANY))}
    assert found["000-figure-11-root"].verdict == root
    assert found["000-figure-1"].verdict == rise
    assert found["000-figure-1"].half > 0


def test_the_models_of_the_specification() -> None:
    r0, r1 = (scenario(profile, 256, "plain", 1, "measures") for profile in ("R0", "R1"))
    assert (r0.link.delay.mean_us, r0.link.delay.deviation_us) == (100_000, 25_000)
    assert (r0.link.service_us, r0.link.process_us, r0.link.fifo) == (1_000, 1_000, False)
    assert (r0.workloads[0].count, r0.workloads[0].stop_us, r0.workloads[0].payload_bytes) == (1, 500_000, 50)
    assert r0.params == {"aggregate": False, "tree": "source", "mtu_bytes": 1500, "size_model": "paper"}
    assert (r1.link.delay.deviation_us, r1.workloads[0].stop_us) == (35_400, 550_000)


# What the paper prints must agree with itself


def test_the_published_numbers_agree_with_each_other() -> None:
    paper = {name.removeprefix("000-"): number for name, number in printed(CLAIMS).items()}
    for nodes in PROTOTYPE_R0:
        plain, aggregated = (paper[f"table-1-{mode}-packets-{nodes}"] for mode in ("plain", "aggregated"))
        assert plain == nodes * (nodes - 1)
        reduction = paper[f"table-1-reduction-{nodes}"]
        assert 100 * (1 - aggregated / plain) == pytest.approx(reduction, abs=0.006)
    every = {messages: paper[f"table-2-all-{messages}"] for messages in ("1", "2", "3", "4", "5", "more")}
    assert sum(every.values()) == pytest.approx(100, abs=0.02)
    assert 100 - every["1"] == pytest.approx(paper["table-1-several-256"], abs=0.01)
    for messages in list(every)[1:]:
        of_several = paper[f"table-2-several-{messages}"]
        assert 100 * every[messages] / (100 - every["1"]) == pytest.approx(of_several, abs=0.05)
    columns = {mode: [paper[f"table-3-{mode}-{low}"] for low in BYTES] for mode in ("aggregation", "plain")}
    for column in columns.values():
        assert sum(column) == pytest.approx(100, abs=0.02)
    # Section 5.2: 8.45 % of the packets *with* aggregation are larger than all without: headings swapped.
    assert sum(columns["aggregation"][3:]) == pytest.approx(8.45)
    assert sum(columns["plain"][3:]) == 0
    assert pytest.approx(paper["figure-10-5-bytes"] / 100, abs=0.001) == 833 / 1024


def test_hops_grow_more_than_the_printed_factors() -> None:
    levels = [node.bit_count() for node in range(1, 8)]  # below node 0
    assert mean_hops(8) == pytest.approx(sum(levels) / 7)
    assert mean_hops(1024) / mean_hops(8) == pytest.approx(2.92, abs=0.005)


# Measures of one run


def counted(**changes: Any) -> dict[str, Any]:
    """What a kernel could have counted in a group of 4: 12 copies, 10 packets."""
    return {
        "nodes": 4,
        "messages": 4,
        "packets": 10,
        "aggregated_packets": 2,
        "copies": 12,
        "aggregated_messages": 4,
        "packets_by_messages": [0, 8, 2],
        "packets_by_bytes": {"74": 5, "102": 2, "200": 1, "204": 1, "1404": 1},
        "packet_bytes": 2400,
        "splits": 3,
        "larger_than_plain": 2,
        "messages_by_dependencies": [1, 0, 1, 0, 1] + [0] * 8 + [1],
        "receptions": 12,
        "reception_us": 2_400_000,
        "reception_max_us": 300_000,
        "deliveries": 12,
        "delivery_us": 2_640_000,
        "delivery_max_us": 400_000,
        "delayed": 3,
        "held_us": 240_000,
        "held_max_us": 100_000,
        "queued_us": 5_000,
        "queued_max_us": 1_000,
        "held_peaks": [0, 1, 26, 251],
        "messages_max": [1, 2, 7, 11],
        "final_us": 900_000,
        "receptions_by_start": [12, *[0] * 9],
        "reception_us_by_start": [2_400_000, *[0] * 9],
        "pair_copies": 4,
        "pair_reception_us": 880_000,
        "pair_delivery_us": 880_000,
        "pair_plain_reception_us": 800_000,
        "pair_plain_delivery_us": 960_000,
        **changes,
    }


def test_measures_by_hand() -> None:
    found = derive(counted(), 4)
    expected = {
        "reduction_percent": 100 * 2 / 12,
        "aggregated_percent": 20,
        "undelivered": 0,
        "reception_ut": 200,
        "delivery_ut": 220,
        "held_ut": 20,
        "queued_ut": 0.5,
        "packets_of_1": 80,
        "packets_of_2": 20,
        "packets_of_3": 0,
        "packets_of_more": 0,
        "aggregated_of_2": 100,
        "largest_packet": 2,
        "bytes_above_0": 50,
        "bytes_above_100": 30,
        "bytes_above_200": 10,
        "bytes_above_300": 0,
        "bytes_above_400": 10,
        "bytes_over_1400": 10,
        "dependencies_from_0": 25,
        "dependencies_from_1": 50,
        "dependencies_from_5": 0,
        "dependencies_from_10": 25,
        "dependencies_over_12": 25,
        "dependencies_max": 13,
        "nodes_buffering_at_most_25": 2,
        "nodes_buffering_at_most_50": 3,
        "nodes_buffering_at_most_250": 3,
        "nodes_buffering_at_most_275": 4,
        "largest_7_to_11_percent": 50,
        "largest_8_to_12_percent": 25,
        "largest_max": 11,
        "largest_mean": 21 / 4,
        "largest_2_and_more": 3,
        "splits": 3,
        "bytes_total": 2400,
        "reception_max_ut": 300,
        "larger_than_plain_percent": 20,
        "pair_reception_ut": 220,
        "pair_held_ut": 0,
        "pair_plain_held_ut": 40,
        "reception_start_0_ut": 200,
        "reception_start_9_ut": None,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_spark_must_measure_what_the_kernel_counted() -> None:
    measured: dict[str, float | None] = {
        "broadcasts": 4,
        "deliveries": 16,
        "packets": 10,
        "reception_mean_us": 200_000.0,
        "reception_max_us": 300_000,
        "delivery_mean_us": 220_000.0,
        "delivery_max_us": 400_000,
        "held_mean_us": 20_000.0,
        "held_max_us": 100_000,
        "held_share": 0.25,
        "held_peak_max": 251,
    }
    assert differences(counted(), measured) == 0
    for name in measured:
        assert differences(counted(), {**measured, name: None}) == 1


def test_a_ratio_of_means_and_its_interval() -> None:
    found = percent_change([10, 30], [5, 15])
    assert (found.mean, found.half, found.count) == (-50, 0, 2)
    assert percent_change([0, 0], [1, 2]) is None
    assert percent_change([4], [5]) == Estimate(25, None, 1)
    # 60 / 40: what is left of each run is 20 - 1.5 x 10 = 5 and -5; t(0.975, 1) = 12.706
    found = percent_change([10, 30], [20, 40])
    assert found.mean == pytest.approx(50)
    assert found.half == pytest.approx(100 * 12.7062 * (50**0.5) / 2**0.5 / 20)


def test_a_crash_is_found_by_all_and_survivors_miss_nothing(tmp_path: Path) -> None:
    outcome = run_crashes(crash_scenario(8, 1, seed=3), tmp_path / "run")
    found = crashes.derive(outcome.measures)
    assert (found["survivors_missed"], found["survivors_without_news"]) == (0, 0)
    assert 800 <= found["first_knows_ut"] <= found["all_know_ut"] <= 2_500  # the timeout is 1,000
    assert found["latency_during_ut"] > found["latency_before_ut"] > 100  # some wait for the detection
    assert found["tests_per_node_and_second"] > 5
    (report,) = verify_trace(tmp_path / "run")
    assert report.ok


def test_several_messages_and_triangular_starts_are_what_they_say() -> None:
    triangular = scenario("T25", 64, "plain", 1, "measures", messages=4)
    (load,) = triangular.workloads
    assert (load.count, load.law, load.stop_us) == (4, "triangular", 590_000)
    times_us = [at for source in sources(triangular) for at in source.times_us]
    assert len(times_us) == 4 * 64
    middle = sum(590_000 / 4 <= at < 590_000 * 3 / 4 for at in times_us) / len(times_us)
    assert middle == pytest.approx(0.75, abs=0.08)  # of the uniform law it would be a half


def test_the_study_is_registered() -> None:
    assert registry.lookup("vcube") is STUDY
    assert list(STUDY.scales)[:2] == ["demo", "paper"]
