"""The study of opportunistic networks: grid, runner, advice, expectations that can fail. No Spark."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from support.tiny_study import TinyStudies, changed, drawn, failed
from whence.kernels.oppnet.kernel import run, run_plan, settings_of, since_entry
from whence.kernels.oppnet.state import OppnetSettings
from whence.mobility.buses import BusCity
from whence.mobility.walkers import WalkerCity
from whence.overlay.contacts import make_plan
from whence.sim.faults import clocks_of, plan_faults
from whence.sim.files import checked, run_id
from whence.sim.model import Contacts, Crash, Full, Skew
from whence.studies import registry
from whence.studies.base import check_grid
from whence.studies.claims import Evidence
from whence.studies.oppnet import advice as oppnet_advice
from whence.studies.oppnet import data as oppnet_data
from whence.studies.oppnet.claims import BUSES, LIFETIMES, PRINTED, REGISTRIES, WALKERS, paper
from whence.studies.oppnet.grid import FIRST_US, INTERVAL_US, MINUTE_US, SCALES, SKEWS_S, STUDY, scenario
from whence.studies.oppnet.measures import region_factor, run_point
from whence.studies.oppnet.page import region
from whence.studies.results import Results, Row
from whence.studies.verdicts import NO_MEASURE, Verdict
from whence.trace.measures import read_measures

INTEL = oppnet_data.DATA_SETS["Intel"]


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(oppnet_data.VARIABLE, raising=False)


# The grid


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("scale", SCALES)
def test_the_grid(scale: str) -> None:
    points = STUDY.grid(scale)
    check_grid(STUDY, points)
    assert len({run_id(point.scenario) for point in points}) == len(points)
    assert checked(points[0].scenario) == points[0].scenario
    parts = {"main", "region", "first", "capacity", "skew", "advice"}
    assert {point.labels["part"] for point in points} == parts


def test_a_recorded_run_of_another_seed_is_the_one_that_a_grid_would_have() -> None:
    """tools/ours.py changes the seeds of a grid: another plan has other nodes, and another end."""
    spec = importlib.util.spec_from_file_location("ours", Path(__file__).parents[2] / "tools" / "ours.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    topology = Contacts(generator="walkers", options=dict(SCALES["tiny"].options[WALKERS]))
    one, other = (scenario(topology, 5, "safe", seed, "measures") for seed in (1, 1001))
    assert one.nodes != other.nodes
    assert tool.reseeded(one, 1001) == other


@pytest.mark.usefixtures("no_data")
def test_the_papers_scale_has_every_lifetime_in_both_modes_on_the_same_plans() -> None:
    points = [point for point in STUDY.grid("paper") if point.labels["part"] == "main"]
    for plan, columns in LIFETIMES.items():
        for mode, seeds in (("published", 20), ("safe", 3)):
            found = [
                point for point in points if point.labels["plan"] == plan and point.labels["mode"] == mode
            ]
            assert {point.labels["lifetime"] for point in found} == set(columns)
            assert len(found) == seeds * len(columns)
    twins: dict[tuple[Any, ...], set[str]] = {}
    for point in points:
        plain = msgspec.structs.replace(point.scenario, params={**point.scenario.params, "mode": "safe"})
        place = (point.labels["plan"], point.labels["lifetime"], point.labels["seed"])
        run = msgspec.structs.replace(plain, record=points[0].scenario.record)
        twins.setdefault(place, set()).add(run_id(run))
    assert all(len(alike) == 1 for alike in twins.values())


def test_it_is_registered() -> None:
    assert registry.lookup("oppnet") is STUDY


def test_the_papers_numbers_agree_with_each_other() -> None:
    for plan, columns in LIFETIMES.items():
        for lifetime in columns:

            def number(name: str, plan: str = plan, lifetime: int = lifetime) -> float:
                found = paper(plan, name, lifetime)
                assert found is not None, (plan, name, lifetime)
                return found

            messages = number("broadcasts") + number("receives")
            assert 100 * number("deliveries") / messages == pytest.approx(number("ratio"), abs=0.011)
            assert number("age-mean") == pytest.approx(number("delay-mean") + number("latency-mean"), abs=1.5)
            if lifetime:
                expired = 100 * number("expiries") / number("receives")
                assert expired == pytest.approx(number("expiry-ratio"), abs=0.006)
                assert number("age-max") <= 60 * lifetime


# The runner


def small(seed: int = 1, mode: str = "published", skew_s: int = 0) -> Any:
    point = next(each for each in STUDY.grid("tiny") if each.labels["plan"] == WALKERS)
    return scenario(point.scenario.topology, 5, mode, seed, "deliveries", skew_s=skew_s)


@pytest.mark.parametrize("mode", ["published", "safe"])
def test_a_run_is_what_the_kernel_makes_of_its_scenario(mode: str, tmp_path: Path) -> None:
    made = small(seed=2, mode=mode)
    manifest = run_point(made, tmp_path / "trace").manifest
    outcome = run(made).detail
    counted = read_measures(tmp_path / "trace")
    assert counted is not None
    found = outcome.measures()
    assert counted.measures["receives"] == found.receives > 1_000
    assert counted.measures["deliveries"] == found.deliveries
    assert counted.measures["expiries"] == found.expiries
    assert counted.measures["latency"][3] == round(found.latency.mean_us)
    assert counted.measures["delay_percentiles"][50] == round(float(np.median(outcome.delay_us)))
    assert counted.measures["latency_within"][0] == int((outcome.latency_us <= 0).sum())
    waits_us = [wait_us for wait_us in outcome.latency_us.tolist() if wait_us > 60_000_000]
    assert counted.measures["latency_long"] == [len(waits_us), sum(waits_us)]
    assert sum(waits_us) > 0
    # The longest of these stays is shorter than the half hour that counts as early.
    assert counted.measures["latency_early"] == sum(outcome.latency_us.tolist())
    ends = found.broadcasts + found.deliveries + found.expiries + len(outcome.late)
    moves = plan_faults(made).outages  # who is away is down
    assert manifest.events == ends + len(moves) + sum(
        each.restart_us < made.stop.duration_us for each in moves
    )


def test_clocks_are_counted_from_the_slowest() -> None:
    made = small(mode="safe", skew_s=30)
    settings = settings_of(made)
    around = Skew(nodes="all", offset_us=30_000_000, drawn=True)
    crash = Crash(nodes=1, at_us=1)
    others = msgspec.structs.replace(made, faults=[crash, around], topology=Full())
    assert clocks_of(others) == plan_faults(others).clocks != {}
    clocks = clocks_of(msgspec.structs.replace(made, faults=[around]))
    drawn = [clocks[node].offset_us for node in range(made.nodes)]
    assert min(drawn) < 0 < max(drawn)
    assert list(settings.offsets_us) == [offset_us - min(drawn) for offset_us in drawn]
    assert max(settings.offsets_us) <= settings.skew_us == 60_000_000
    assert settings_of(small(seed=2)).offsets_us == ()


# The smallest lifetime


def test_bisection_finds_the_smallest() -> None:
    for least_us in (1, 1_500_000, 77_000_000, 999_000_000):
        found_us = oppnet_advice.bisect(
            lambda us, least_us=least_us: us >= least_us, 1, oppnet_advice.SHORTEST_US, 1_000_000_000
        )
        assert max(least_us, 1_000_000) <= found_us <= max(1_000_000, least_us * 1.02 + 1)


def test_the_smallest_lifetime_in_a_plan_that_can_be_seen_through() -> None:
    # ann and bob are together all the time; eve meets bob once, in minute 30, and leaves; joe comes too late.
    minute_us = MINUTE_US
    plan = make_plan(
        ["ann", "bob", "eve", "joe"],
        [
            (0, 1, 0, 60 * minute_us),
            (1, 2, 30 * minute_us, 31 * minute_us),
            (0, 3, 50 * minute_us, 55 * minute_us),
        ],
        [
            (0, 0, 60 * minute_us),
            (1, 0, 60 * minute_us),
            (2, 0, 40 * minute_us),
            (3, 45 * minute_us, 60 * minute_us),
        ],
        stop_us=60 * minute_us,
    )
    broadcasts = np.array([(10 * minute_us, 0), (20 * minute_us, 1)], dtype=np.int64)
    settings = OppnetSettings(setup_max_us=0)
    counts = oppnet_advice.smallest_lifetimes(plan, settings, broadcasts)
    assert counts["pairs"] == 4  # joe is not there yet
    assert counts["pairs_possible"] == 4
    longest_us = counts["lifetime_99_us"]
    assert 20 * minute_us < longest_us <= 20.5 * minute_us  # ann's message to eve takes 20 minutes
    shares = dict(zip(counts["tried_us"], counts["tried_reached"], strict=True))
    assert shares[longest_us] == 4
    assert max((us for us, reached in shares.items() if reached < 4), default=0) > 0.97 * longest_us


def test_who_comes_later_or_has_left_is_not_counted() -> None:
    plan = make_plan(
        ["ann", "bob"], [(0, 1, 5_000_000, 60_000_000)], [(0, 0, 60_000_000), (1, 4_000_000, 60_000_000)]
    )
    for sent_us, pairs in ((3_000_000, 0), (4_000_000, 1)):
        broadcasts = np.array([(sent_us, 0)], dtype=np.int64)
        outcome = run_plan(plan, OppnetSettings(setup_max_us=0), broadcasts)
        assert outcome.measures().receives == 1
        assert oppnet_advice.pairs_reached(plan, outcome) == pairs
        assert oppnet_advice.pairs_present(plan, broadcasts) == pairs


# Real traces


def test_traces_are_found_by_an_environment_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(oppnet_data.VARIABLE, raising=False)
    assert oppnet_data.find() == {}
    (reason,) = oppnet_data.skipped(set())
    assert "WHENCE_DATA is not set" in reason
    assert all(name in reason for name in oppnet_data.DATA_SETS)
    monkeypatch.setenv(oppnet_data.VARIABLE, str(tmp_path))
    assert oppnet_data.find() == {}
    path = tmp_path / INTEL.file
    path.parent.mkdir()
    path.write_text(
        "0\tCONN\ta\tb\tup\n4000\tCONN\ta\tb\tdown\n4001\tCONN\ta\tc\tup\n9000\tCONN\ta\tc\tdown\n"
    )
    assert list(oppnet_data.find()) == ["Intel"]
    points = [point for point in STUDY.grid("tiny") if point.labels["plan"] == "Intel"]
    assert {point.labels["part"] for point in points} == {"trace", "advice"}
    traced = next(point for point in points if point.labels["part"] == "trace")
    manifest = run_point(traced.scenario, tmp_path / "trace").manifest
    assert manifest is not None
    assert manifest.events > 3 * (9_000 // 1_200)
    (reason,) = oppnet_data.skipped({"Intel"})
    assert f"not in {tmp_path}" in reason
    assert "Intel" not in reason
    assert oppnet_data.skipped(set(oppnet_data.DATA_SETS)) == []


# Expectations


@pytest.fixture(scope="module")
def results(tiny_studies: TinyStudies) -> Results:
    """The smallest scale, without Spark and without real traces."""
    return tiny_studies.carried_out(STUDY)[0]


@pytest.mark.usefixtures("no_data")
def test_the_smallest_scale_holds(results: Results) -> None:
    assert failed(STUDY, results) == set()
    found = {one.claim.text: one for one in STUDY.judge(results)}
    assert found["safe: runs with a trace that keep every promise"].measured == 3 + len(SKEWS_S)
    names = {table.name for table in STUDY.tables(results)}
    assert names == {
        "plan-buses", "counts-buses", "delays-buses", "plan-walkers", "counts-walkers", "delays-walkers",
        "region-buses", "region-walkers", "n777", "first", "capacity", "modes", "skew", "advice",
    }  # fmt: skip
    figures = {figure.name: figure for figure in STUDY.figures(results)}
    assert {
        "figure-3",
        "figure-8",
        "region",
        "figure-4",
        "figure-5",
        "figure-6",
        "figure-9",
        "figure-10",
        "figure-11",
        "churn",
        "churn-all",
    } <= set(figures)
    assert all(drawn(figure) for figure in figures.values())
    assert any("WHENCE_DATA is not set" in sentence for sentence in STUDY.findings(results))


@pytest.mark.parametrize(
    ("measure", "value", "labels", "name"),
    [
        ("expiries", 1, {"mode": "safe", "plan": BUSES, "seed": 2}, "safe: expiries"),
        ("causal", 1, {"mode": "safe", "part": "skew"}, "safe: what the verifier found"),
        ("duplicate", 1, {"mode": "safe", "part": "main", "seed": 1}, "safe: what the verifier found"),
        ("receives", 5, {"mode": "safe", "plan": WALKERS, "seed": 2}, "safe and published: difference"),
        ("causal", 0, {"mode": "published", "skew_s": 30}, "published: violations with clocks ± 30 s"),
    ],
)
def test_expectations_can_fail(
    results: Results, measure: str, value: float, labels: dict[str, Any], name: str
) -> None:
    assert any(found.startswith(name) for found in failed(STUDY, changed(results, measure, value, **labels)))


def test_every_claim_of_the_paper_is_there_and_has_a_verdict_or_a_reason(results: Results) -> None:
    judged = [one for one in STUDY.judge(results) if one.claim.evidence is Evidence.PAPER]
    assert len(judged) == 258
    for one in judged:
        if one.verdict is Verdict.NOT_JUDGED:
            assert one.reason
            assert one.reason != NO_MEASURE


def test_the_generators_have_the_printed_parameters() -> None:
    buses, walkers = BusCity(), WalkerCity()
    assert (buses.range_m, walkers.range_m) == (200, 50)
    assert buses.duration_s == (19 * 60 + 45 - 5 * 60 - 30) * 60
    assert buses.school_buses > 0
    assert (FIRST_US[BUSES], INTERVAL_US[BUSES]) == (20_000_000, 1_200_000_000)
    assert INTERVAL_US[WALKERS] == 60_000_000
    assert (walkers.speed_min, walkers.speed_max, walkers.speed_mean) == (0.6, 2.0, 1.3)
    entrances = 2 * (walkers.columns + walkers.rows) - 4
    assert walkers.arrivals_per_s / entrances == pytest.approx(0.01, abs=0.002)


def row_of(results: Results, lifetime: int, **measures: float) -> Results:
    """Five seeds of walkers with these measures."""
    (row,) = results.select(part="main", plan=WALKERS, mode="published", seed=1)
    rows = [
        replace(
            row,
            labels={**row.labels, "lifetime": lifetime, "seed": seed},
            measures={**row.measures, **measures},
        )
        for seed in range(1, 6)
    ]
    return Results(tuple(rows))


@pytest.mark.parametrize(
    ("name", "measure", "lifetime", "value", "verdict"),
    [
        ("table-V-receives-20", "receives", 20, 1_475_328, Verdict.AGREES),
        ("table-V-receives-20", "receives", 20, 1_400_000, Verdict.NEAR),
        ("table-V-receives-20", "receives", 20, 2_950_656, Verdict.DIFFERS),
        ("table-VI-latency-mean-20", "latency_mean_s", 20, 19.2, Verdict.FITTED),
        ("table-VI-latency-mean-20", "latency_mean_s", 20, 38, Verdict.DIFFERS),
        ("quantile-walkers-10-delay-42", "delay_over_5_min_percent", 10, 40, Verdict.REFUTED),
        ("n777-received-5", "n777_received_place", 5, 62, Verdict.AGREES),
        ("n777-received-5", "n777_received_place", 5, 97, Verdict.DIFFERS),
        ("walkers-95", "ratio_percent", 20, 94.0, Verdict.DIFFERS),
    ],
)
def test_the_tables_are_judged(
    results: Results, name: str, measure: str, lifetime: int, value: float, verdict: Verdict
) -> None:
    judged = {one.claim.id: one for one in STUDY.judge(row_of(results, lifetime, **{measure: value}))}
    assert judged[f"001-{name}"].verdict is verdict


def test_walkers_like_n777_are_counted(results: Results) -> None:
    (row,) = results.select(part="main", plan=WALKERS, mode="published", seed=1)
    counted = row.counted
    assert counted["alike_published"]
    assert len(counted["alike_published"]) == len(counted["alike_received"]) == len(counted["alike_pending"])
    for own, received, delivered in zip(
        counted["alike_published"], counted["alike_received"], counted["alike_delivered"], strict=True
    ):
        assert own <= delivered <= own + received
    assert 0 <= row.measure("n777_received_place") <= 100


@pytest.mark.parametrize(
    ("places", "verdict"),
    [((2, 60), "agrees"), ((97, 99), "differs"), ((0, 9), "differs"), ((100, 100, 100), "differs")],
)
def test_plans_that_differ_do_not_widen_the_band_of_n777(places: tuple[float, ...], verdict: str) -> None:
    """Of two plans an interval can be wider than the whole of 0 to 100 %."""
    at = {"part": "main", "plan": WALKERS, "lifetime": 20, "mode": "published"}
    rows = tuple(
        Row(str(seed), {**at, "seed": seed}, {}, {"n777_received_place": place}, {})
        for seed, place in enumerate(places, 1)
    )
    found = {one.claim.id: one for one in STUDY.judge(Results(rows))}["001-n777-received-20"]
    assert (found.verdict, found.half, found.runs) == (verdict, 0, len(places))


def test_the_region_is_the_worst_factor_over_lifetimes(results: Results) -> None:
    (row, *_) = results.select(part="region", plan=BUSES)

    def at(lifetime: int, factor: float) -> Row:
        latency = (paper(BUSES, "latency-mean", lifetime) or 0) * factor
        return replace(
            row, labels={**row.labels, "lifetime": lifetime, "rate": 8, "setup_s": 5},
            measures={"latency_mean_s": latency},
        )  # fmt: skip

    rows = Results((at(20, 1.2), at(60, 1 / 1.4)))
    found = region_factor(rows, BUSES, "latency_mean_s", PRINTED[BUSES]["latency"], 8, 5)
    assert found == pytest.approx(1.4)


@pytest.mark.parametrize(
    ("latency", "receives", "points", "agrees"),
    [
        (1.4, 1.05, 0.9, True),
        (1.6, 1.05, 0.9, False),
        (1.4, 0.85, 0.9, False),
        (1.4, 1.05, -1.1, False),
    ],
)
def test_an_exchange_agrees_by_latency_receives_and_share(
    results: Results, latency: float, receives: float, points: float, agrees: bool
) -> None:
    (row, *_) = results.select(part="region", plan=WALKERS)
    printed = {name: PRINTED[WALKERS][name][20] for name in ("latency", "receives", "delay", "ratio")}
    only = replace(
        row,
        labels={**row.labels, "lifetime": 20, "rate": 8, "setup_s": 5},
        measures={
            "latency_mean_s": printed["latency"] * latency,
            "receives": printed["receives"] * receives,
            "delay_mean_s": printed["delay"] * 3,
            "ratio_percent": printed["ratio"] + points,
        },
    )
    (found,) = region(Results((only,)), WALKERS).rows
    factor = round(max(receives, 1 / receives), 2)
    assert found == (8, 5, latency, factor, 3.0, points, "agrees" if agrees else "")


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("part", ["main", "region", "first", "capacity", "skew", "advice"])
def test_a_page_without_runs_of_a_kind_is_made_all_the_same(results: Results, part: str) -> None:
    left = Results(tuple(row for row in results.rows if row.labels["part"] != part))
    assert STUDY.judge(left)
    assert STUDY.findings(left)
    assert STUDY.tables(left)
    assert all(drawn(figure) for figure in STUDY.figures(left))


def test_a_growing_registry_is_a_failure(results: Results) -> None:
    (row,) = results.select(part="main", plan=WALKERS, mode="safe", seed=1)
    level = {f"watched_{each}": [40] * 60 for each in REGISTRIES}
    for kind, name in REGISTRIES.items():
        for sizes, is_failure in ((list(range(10, 70)), True), ([40] * 60, False)):
            other = replace(row, counted={**row.counted, **level, f"watched_{kind}": sizes})
            grown = Results((replace(other, measures={**row.measures, **STUDY.derive(other)}),))
            found = {
                one.claim.text: one.failed for one in STUDY.judge(grown) if "Figure 11" in one.claim.text
            }
            assert len(found) == len(REGISTRIES)
            assert {each for each, failed in found.items() if failed} == {
                each for each in found if name in each and is_failure
            }


def test_the_page_says_which_plans_have_no_smallest_lifetime(results: Results) -> None:
    (advice,) = [table for table in STUDY.tables(results) if table.name == "advice"]
    assert [row[0] for row in advice.rows] == ["city buses"]
    assert "Not looked for at this scale: Östermalm walkers." in advice.note
    every = [row for row in results.rows if row.labels["plan"] == BUSES]
    (advice,) = [table for table in STUDY.tables(Results(tuple(every))) if table.name == "advice"]
    assert "Not looked for" not in advice.note


def test_at_the_scale_of_all_every_plan_has_a_smallest_lifetime() -> None:
    everything = {BUSES, WALKERS, *oppnet_data.DATA_SETS}
    assert set(SCALES["all"].advice) == everything
    assert set(SCALES["paper"].advice) == set(SCALES["demo"].advice) == everything - {"WS16"}


def test_since_entry_is_the_papers_workload() -> None:
    plan = make_plan(
        ["a", "b"], [(0, 1, 100, 200)], [(0, 0, 150_000_000), (1, 100, 50_000_000)], stop_us=150_000_000
    )
    assert since_entry(plan, 43_000_000, 60_000_000).tolist() == [
        [43_000_000, 0], [43_000_100, 1], [103_000_000, 0]
    ]  # fmt: skip
