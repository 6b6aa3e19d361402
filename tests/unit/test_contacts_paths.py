"""Contacts of moving nodes in continuous time, by hand and against fine sampling; the generated scenarios."""

from __future__ import annotations

import random

import numpy as np
import pytest

from support.positions import brute, wander
from whence.errors import ContactPlanError, ParameterError
from whence.mobility import kernel
from whence.mobility.buses import BusCity, bus_plan
from whence.mobility.paths import contact_plan, contact_rows, make_paths, sampled
from whence.mobility.published import compare, generate
from whence.mobility.sampled import intervals
from whence.mobility.walkers import WalkerCity, walker_paths, walker_plan
from whence.overlay.contact_statistics import statistics

S = 1_000_000


def test_two_walkers_that_pass_each_other() -> None:
    # 100 m apart, at 1 m/s each towards each other, 30 m to the side: in range while |100 - 2t| <= 40.
    paths = make_paths(
        {"a": [[(0, 0.0, 0.0), (100 * S, 100.0, 0.0)]], "b": [[(0, 100.0, 30.0), (100 * S, 0.0, 30.0)]]}
    )
    assert contact_rows(paths, 50.0).tolist() == [[0, 1, 30 * S, 70 * S]]


def test_standing_still_exactly_at_the_range_is_contact() -> None:
    paths = make_paths(
        {"a": [[(0, 0.0, 0.0), (9 * S, 0.0, 0.0)]], "b": [[(2 * S, 3.0, 4.0), (20 * S, 3.0, 4.0)]]}
    )
    assert contact_rows(paths, 5.0).tolist() == [[0, 1, 2 * S, 9 * S]]
    assert contact_rows(paths, 4.999).tolist() == []


def test_a_contact_goes_on_over_corners_and_ends_where_a_node_leaves() -> None:
    zigzag = [(t * S, float(t % 2), 0.0) for t in range(11)]
    paths = make_paths(
        {"a": [zigzag], "b": [[(0, 0.0, 1.0), (4 * S, 0.0, 1.0)], [(6 * S, 0.0, 1.0), (9 * S, 0.0, 1.0)]]}
    )
    plan = contact_plan(paths, 5.0)
    assert list(plan.contacts) == [(0, 1, 0, 4 * S), (0, 1, 6 * S, 9 * S)]
    assert [row[1:] for row in plan.presence if row.node == 1] == [(0, 4 * S), (6 * S, 9 * S)]


@pytest.mark.parametrize("seed", range(8))
def test_random_paths_against_fine_sampling(seed: int) -> None:
    draw = random.Random(seed)
    tracks = {}
    for at in range(7):
        now, stay = draw.randrange(0, 20 * S), []
        for _ in range(12):
            stay.append((now, draw.uniform(0, 100), draw.uniform(0, 100)))
            now += draw.randrange(S, 12 * S)
        tracks[f"n{at}"] = [stay]
    paths = make_paths(tracks)
    step_us = 20_000
    columns = sampled(paths, step_us)
    here = intervals(columns["time_us"], columns["node"], columns["x"], columns["y"], 30.0, step_us)
    looked = contact_plan(paths, 30.0, step_us=step_us)
    seen = sorted(tuple(row) for row in here.tolist() if row[0] != row[1])
    # The same looks at the same times; only a distance within rounding of the range could differ.
    assert sorted(looked.contacts) == seen
    exact = contact_plan(paths, 30.0)
    assert len(exact.contacts) >= len(seen)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("grid_m", [None, 25.0])
def test_sampled_positions_against_brute_force(seed: int, grid_m: float | None, monkeypatch) -> None:
    monkeypatch.setattr("whence.mobility.sampled.PAIRS_AT_ONCE", 4)  # so that buffers fill up and grow
    rows = wander(seed, 14, 30, grid_m=grid_m)
    time_us, names, x, y = (np.array(column) for column in zip(*rows, strict=True))
    order, node = np.unique(names, return_inverse=True)
    for gap_us in (None, 4 * S):
        found = intervals(time_us, node, x, y, 50.0, S, gap_us).tolist()
        named = sorted((str(order[a]), str(order[b]), start, stop) for a, b, start, stop in found)
        assert named == brute(rows, 50.0, S, gap_us)


def test_the_kernel_without_numba_gives_the_same(monkeypatch) -> None:
    city = WalkerCity(duration_s=600.0)
    fast = walker_plan(3, city)
    for name in ("within", "_keep", "meet", "meet_all"):
        monkeypatch.setattr(kernel, name, getattr(getattr(kernel, name), "py_func", getattr(kernel, name)))
    monkeypatch.setattr("whence.mobility.paths.meet_all", kernel.meet_all)
    assert walker_plan(3, city) == fast


def test_paths_must_go_forward_in_time() -> None:
    for stays in (
        [[(5, 0.0, 0.0), (5, 1.0, 0.0)]],
        [[(0, 0.0, 0.0), (9, 1.0, 0.0)], [(8, 0.0, 0.0), (12, 0.0, 0.0)]],
    ):
        with pytest.raises(ContactPlanError, match="path of 'a'"):
            make_paths({"a": stays})
    with pytest.raises(ContactPlanError, match="no radio range"):
        contact_rows(make_paths({}), 0.0)


@pytest.mark.parametrize("scenario", ["buses", "walkers"])
def test_scenarios_match_the_published_table(scenario: str) -> None:
    found = compare(scenario, [statistics(generate(scenario, seed)) for seed in range(1, 6)])
    wrong = [row.name for row in found if not row.ok and not row.excepted]
    # Whole seconds: of five days of buses one has no contact of 1 s, but of 2 s (docs/oppnet-scenarios.md).
    assert wrong == (["contact, min, s"] if scenario == "buses" else [])


def test_seeds_are_the_same_everywhere_and_differ() -> None:
    assert walker_plan(1).sha256.startswith("c2241f560407")
    assert bus_plan(1).sha256.startswith("d8cc6f775815")
    assert walker_plan(2) != walker_plan(1)
    assert bus_plan(2) != bus_plan(1)


def test_walkers_stay_on_streets_and_keep_their_speed() -> None:
    city = WalkerCity(duration_s=1_200.0)
    paths = walker_paths(4, city)
    on_x = np.isclose(paths.x0 % city.block_x_m, 0) & (paths.x0 == paths.x1)
    on_y = np.isclose(paths.y0 % city.block_y_m, 0) & (paths.y0 == paths.y1)
    assert np.all(on_x | on_y)
    far = np.abs(paths.x1 - paths.x0) + np.abs(paths.y1 - paths.y0)
    speed = far / (paths.stop_us - paths.start_us) * 1e6
    assert speed.min() > city.speed_min - 1e-4
    assert speed.max() < city.speed_max + 1e-4
    for node in range(len(paths.nodes)):
        assert np.ptp(speed[paths.offsets[node] : paths.offsets[node + 1]]) < 1e-4


def test_impossible_cities_are_refused() -> None:
    with pytest.raises(ParameterError):
        walker_plan(1, WalkerCity(columns=1))
    with pytest.raises(ParameterError):
        bus_plan(1, BusCity(speed=0.0))
