"""Graphs are drawn without overlaps, downwards, and quickly."""

from __future__ import annotations

import random
from functools import partial

import pytest

from judges.timing import SOON, seconds, within
from tosaic.report.layout import HEIGHT, WIDTH, Edge, layout


def network(count: int, seed: int = 0) -> list[Edge]:
    """Mostly a chain, with branches and long skips."""
    draw, edges = random.Random(seed), []
    for end in range(1, count):
        near = draw.random() < 0.8
        edges.append((end - 1 if near else draw.randrange(max(0, end - 30), end), end))
        if draw.random() < 0.2:
            edges.append((draw.randrange(end), end))
    return edges


@pytest.mark.parametrize("seed", range(5))
def test_nodes_do_not_overlap_and_edges_lead_down(seed: int) -> None:
    edges = network(120, seed)
    found = layout(120, edges)
    for one, (x, y) in enumerate(found.nodes):
        for u, v in found.nodes[:one]:
            assert abs(x - u) >= WIDTH or abs(y - v) >= HEIGHT
    for (start, end), bends in zip(edges, found.edges, strict=True):
        ys = [found.nodes[start][1], *(y for _, y in bends), found.nodes[end][1]]
        assert ys == sorted(set(ys))


def test_a_chain_with_skips_is_straight() -> None:
    """As in a residual network: what passes by makes way."""
    edges = [(n, n + 1) for n in range(40)] + [(n, n + 3) for n in range(0, 36, 3)]
    xs = [x for x, _ in layout(41, edges).nodes]
    assert max(xs) - min(xs) < 1


def test_skips_pass_beside_the_nodes_of_a_chain() -> None:
    edges = [(n, n + 1) for n in range(10)] + [(0, 10)]
    found = layout(11, edges)
    assert len(found.edges[-1]) == 9
    assert all(abs(x - found.nodes[0][0]) > WIDTH / 2 for x, _ in found.edges[-1])


@pytest.mark.parametrize("count", [0, 1])
def test_small_graphs_have_places(count: int) -> None:
    assert len(layout(count, []).nodes) == count


def test_a_thousand_nodes_take_under_a_second_and_time_grows_with_size() -> None:
    spent = {count: seconds(partial(layout, count, network(count))) for count in (1000, 3000)}
    assert spent[1000] < 1
    assert spent[3000] < 7 * spent[1000]


def test_a_tensor_that_all_read_costs_no_square() -> None:
    count = 3000
    edges = [(0, n) for n in range(1, count)] + [(n, n + 1) for n in range(1, count - 1)]
    with within(SOON):
        found = layout(count, edges)
    assert sum(map(len, found.edges)) < 10 * count
