"""Paper 000, sections 2 and 4.2: clusters and trees; then our trees over any set of nodes."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from whence.errors import ParameterError
from whence.overlay.hypercube import (
    Cube,
    View,
    children,
    cluster,
    cluster_nodes,
    complete,
    dimension,
    first_child,
    height,
)

# Figure 3: the table of all c(i, s) of the 3-VCube
FIGURE_3 = {
    1: [[1], [0], [3], [2], [5], [4], [7], [6]],
    2: [[2, 3], [3, 2], [0, 1], [1, 0], [6, 7], [7, 6], [4, 5], [5, 4]],
    3: [
        [4, 5, 6, 7], [5, 4, 7, 6], [6, 7, 4, 5], [7, 6, 5, 4],
        [0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0],
    ],
}  # fmt: skip


def test_figure_3_clusters():
    for s, rows in FIGURE_3.items():
        assert [list(cluster_nodes(i, s)) for i in range(8)] == rows


def test_clusters_of_node_0_are_tested_at_1_2_and_4():
    assert [cluster_nodes(0, s)[0] for s in (1, 2, 3)] == [1, 2, 4]


def test_a_cluster_has_2_to_the_s_minus_1_nodes_and_all_of_them_are_the_others():
    for i in range(16):
        sizes = [len(cluster_nodes(i, s)) for s in range(1, 5)]
        assert sizes == [1, 2, 4, 8]
        assert sorted(j for s in range(1, 5) for j in cluster_nodes(i, s)) == sorted({*range(16)} - {i})


def test_section_4_2_first_child():
    assert first_child(0, 1) == 1
    assert first_child(1, 2) == 3
    assert first_child(1, 3) == first_child(7, 2) == first_child(4, 1) == 5


def test_section_4_2_cluster():
    assert cluster(0, 1) == 1
    assert cluster(0, 2) == cluster(0, 3) == 2
    assert cluster(0, 4) == cluster(0, 5) == cluster(0, 6) == cluster(0, 7) == 3


def test_cluster_says_where_a_node_is():
    for i in range(32):
        for s in range(1, 6):
            assert {cluster(i, j) for j in cluster_nodes(i, s)} == {s}


def test_section_4_2_children_of_4_in_the_tree_of_2():
    assert children(4, 2, 3) == children(4, 6, 2) == children(4, 4, 1) == (5,)


def test_section_4_2_the_tree_of_0_in_figure_4():
    assert children(0, 0, 3) == (1, 2, 4)
    assert children(1, 1, 0) == children(1, 0, 3) == ()
    assert children(2, 2, 1) == children(2, 0, 3) == (3,)
    assert children(4, 4, 2) == children(4, 0, 3) == (5, 6)
    assert children(5, 5, 0) == children(5, 0, 3) == ()
    assert children(6, 6, 1) == children(6, 0, 3) == (7,)
    assert children(7, 7, 0) == children(7, 0, 3) == ()


def test_section_4_3_node_5_is_4s_child_for_0_and_2_and_its_parent_for_1():
    assert children(4, 0, 3) == (5, 6)
    assert children(4, 2, 3) == (5,)
    assert 5 not in children(4, 1, 3)
    assert 4 in children(5, 1, 3)


def test_closed_form_is_the_recursion_for_all_nodes_up_to_64():
    for d in range(7):
        for source in range(2**d):
            for i in range(2**d):
                h = height(i, source, d)
                assert children(i, source, d) == tuple(i ^ 1 << k for k in range(h))


def test_the_cube_over_all_nodes_is_the_papers():
    for d in range(7):
        cube = complete(2**d)
        for i in range(2**d):
            for source in range(2**d):
                assert cube.height(i, source) == height(i, source, d)
                assert cube.children(i, source) == children(i, source, d)


# Any set of nodes (our extension)


def check_cube(nodes: list[int]) -> None:
    cube = Cube(nodes)
    for i in cube.nodes:
        for s in range(1, cube.d + 1):
            there = [j for j in cluster_nodes(i, s) if j in nodes]
            assert cube.first(i, s) == (there[0] if there else None)
    for source in cube.nodes:
        reached = [source]
        for i in reached:  # it grows
            reached += cube.children(i, source)
        assert sorted(reached) == sorted(nodes), "each node is reached exactly once"


@pytest.mark.parametrize("count", range(1, 34))
def test_any_number_of_nodes(count):
    check_cube(list(range(count)))


def test_every_set_of_up_to_eight_nodes():
    for size in range(1, 9):
        for nodes in combinations(range(8), size):
            check_cube(list(nodes))


def test_random_sets_of_nodes():
    draw = random.Random(1)
    for _ in range(300):
        limit = draw.choice([16, 40, 64, 100])
        check_cube(sorted(draw.sample(range(limit), draw.randrange(1, limit // 2))))


def test_depth_is_logarithmic():
    for count in (5, 31, 64, 100):
        cube = complete(count)
        for source in range(count):
            for i in range(count):
                assert cube.height(i, source) <= dimension(count)


def test_a_view_has_the_heights_of_all_sources():
    cube = Cube([0, 1, 3, 6, 9])
    for me in cube.nodes:
        view = View(cube, me)
        assert view.children == tuple(cube.first(me, s) for s in range(1, 5))
        assert {s: view.heights[s] for s in cube.nodes} == {s: cube.height(me, s) for s in cube.nodes}
        single = View(cube, me, root=3)
        assert {single.heights[s] for s in cube.nodes} == {cube.height(me, 3)}


def test_links_are_those_that_trees_use():
    for count in (1, 2, 6, 8, 13):
        links = complete(count).links()
        used = {
            (i, child)
            for i in range(count)
            for source in range(count)
            for child in complete(count).children(i, source)
        }
        assert used <= {(i, other) for i in range(count) for other in links[i]}
        assert all(i in links[other] for i in range(count) for other in links[i])
    assert complete(8).links() == [tuple(sorted(i ^ 1 << k for k in range(3))) for i in range(8)]
    assert all(0 in each for each in complete(13).links(root=0)[1:])


def test_a_cube_without_nodes_or_with_a_stranger():
    with pytest.raises(ParameterError):
        Cube([])
    with pytest.raises(ParameterError, match="node 2"):
        Cube([0, 1]).height(2, 0)
