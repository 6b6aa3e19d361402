"""Graphs: symmetric, without loops, connected, of the right degree, and the same for the same seed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.errors import ParameterError
from whence.overlay.graphs import Graph, full, grid, is_connected, random_regular, regular_problem, ring


def check(graph: Graph) -> None:
    for node, neighbours in enumerate(graph):
        assert list(neighbours) == sorted(set(neighbours))
        assert node not in neighbours
        assert all(node in graph[other] for other in neighbours)
    assert is_connected(graph)


@given(st.integers(1, 40))
def test_full_ring_and_grid_are_sound(count: int) -> None:
    for graph in (full(count), ring(count), grid(count)):
        assert len(graph) == count
        check(graph)
    assert all(len(neighbours) == count - 1 for neighbours in full(count))
    assert all(len(neighbours) == min(2, count - 1) for neighbours in ring(count))
    assert all(len(neighbours) <= 4 for neighbours in grid(count))


@given(st.integers(1, 40), st.integers(1, 40))
def test_grids_of_any_width_are_connected(count: int, columns: int) -> None:
    check(grid(count, columns))


def test_a_grid_by_hand() -> None:
    #  0 1 2
    #  3 4 5
    #  6 7
    assert grid(8, 3) == [(1, 3), (0, 2, 4), (1, 5), (0, 4, 6), (1, 3, 5, 7), (2, 4), (3, 7), (4, 6)]
    with pytest.raises(ParameterError, match="columns"):
        grid(8, 0)


@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 2**63))
def test_random_regular_is_regular_and_connected_or_refused(count: int, degree: int, seed: int) -> None:
    if regular_problem(count, degree) is not None:
        with pytest.raises(ParameterError, match="degree"):
            random_regular(count, degree, seed)
        return
    graph = random_regular(count, degree, seed)
    check(graph)
    assert all(len(neighbours) == degree for neighbours in graph)
    assert random_regular(count, degree, seed) == graph


@pytest.mark.parametrize(
    ("count", "degree", "reason"),
    [(5, 5, "at most 4"), (5, 3, "odd"), (6, 1, "connected"), (3, 0, "connected"), (1, 1, "at most 0")],
)
def test_impossible_degrees_say_why(count: int, degree: int, reason: str) -> None:
    problem = regular_problem(count, degree)
    assert problem is not None
    assert reason in problem


def test_the_smallest_graphs() -> None:
    assert random_regular(1, 0, 1) == [()]
    assert random_regular(2, 1, 1) == [(1,), (0,)]
    assert full(0) == []
    assert is_connected([])
    assert not is_connected([(), ()])


def test_seeds_give_different_graphs_and_the_golden_one() -> None:
    assert len({tuple(random_regular(10, 3, seed)) for seed in range(20)}) == 20
    assert random_regular(8, 3, 1) == [
        (1, 2, 4), (0, 5, 6), (0, 3, 5), (2, 6, 7), (0, 5, 7), (1, 2, 4), (1, 3, 7), (3, 4, 6),
    ]  # fmt: skip
    large = random_regular(1_000, 4, 7)
    check(large)
