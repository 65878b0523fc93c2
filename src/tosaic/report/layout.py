"""Where nodes of a graph are drawn: in layers from top to bottom, edges short and seldom crossing.

Layers are longest paths, orders come from medians of neighbours, places from averages of
neighbours. All of it takes time in proportion to the number of nodes and edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 150.0, 36.0
_APART, _BETWEEN, _THREAD = 26.0, 44.0, 16.0  # nodes of a layer, layers, edges that pass by
_SWEEPS = 6
_BENDS, _FREE = 4, 2000  # for each node, and in any case; edges that would need more go straight

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """The middle of each node, and for each edge the points that it passes on its way."""

    nodes: list[tuple[float, float]]
    edges: list[list[tuple[float, float]]]


def layout(count: int, edges: Sequence[Edge]) -> Layout:
    """Places for nodes 0 to count - 1. Edges lead from lower to higher numbers."""
    layers = _layers(count, edges)
    drawn = _Drawing(count, layers, edges)
    drawn.order()
    drawn.place()
    return drawn.result(edges)


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    """The longest way from above to each node; what nothing leads to stands above its reader."""
    layer, readers = [0] * count, [count] * count
    has_source = [False] * count
    for start, end in sorted(edges, key=lambda edge: edge[1]):
        layer[end] = max(layer[end], layer[start] + 1)
        has_source[end] = True
    for start, end in edges:
        readers[start] = min(readers[start], layer[end])
    return [
        layer[node] if has_source[node] or readers[node] >= count else max(readers[node] - 1, 0)
        for node in range(count)
    ]


class _Drawing:
    """Nodes and the bends of long edges, by layer. Bends are nodes without width."""

    def __init__(self, count: int, layers: Sequence[int], edges: Sequence[Edge]) -> None:
        self.count = count
        self.layer = list(layers)
        self.above: list[list[int]] = [[] for _ in range(count)]
        self.below: list[list[int]] = [[] for _ in range(count)]
        self.bent: set[Edge] = set()
        self.bends: dict[tuple[int, int], int] = {}  # of a source, by layer: its edges share them
        self.room = _BENDS * count + _FREE
        for start, end in sorted(set(edges), key=lambda edge: layers[edge[1]] - layers[edge[0]]):
            self._lead(start, end)
        depth = max(self.layer, default=0) + 1
        self.rows: list[list[int]] = [[] for _ in range(depth)]
        for node, layer in enumerate(self.layer):
            self.rows[layer].append(node)
        self.x = [0.0] * len(self.layer)
        self.trunk = self._trunk()

    def _trunk(self) -> set[int]:
        """The nodes of a longest way from layer to layer."""
        height = [0] * len(self.layer)
        for row in reversed(self.rows):
            for node in row:
                near = (n for n in self.below[node] if self.layer[n] == self.layer[node] + 1)
                height[node] = max((height[n] + 1 for n in near if n < self.count), default=0)
        found: list[int] = []
        heads: Sequence[int] = range(self.count)
        while heads:
            found.append(max(heads, key=height.__getitem__))
            last = found[-1]
            heads = [
                n for n in self.below[last]
                if n < self.count and self.layer[n] == self.layer[last] + 1
            ]  # fmt: skip
        return set(found)

    def _lead(self, start: int, end: int) -> None:
        last, passed = start, range(self.layer[start] + 1, self.layer[end])
        if len(passed) <= self.room:
            self.room -= len(passed)
            for layer in passed:
                last = self._bend(start, last, layer)
            self.bent.add((start, end))
        self._join(last, end)

    def _bend(self, start: int, last: int, layer: int) -> int:
        bend = self.bends.get((start, layer))
        if bend is None:
            bend = self.bends[start, layer] = len(self.layer)
            self.layer.append(layer)
            self.above.append([])
            self.below.append([])
            self._join(last, bend)
        return bend

    def _join(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)

    def order(self) -> None:
        """Sort each layer by the middle of what its nodes are joined to, down and up again."""
        position = [0.0] * len(self.layer)
        for row in self.rows:
            _number(row, position)
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            joined = self.above if down else self.below
            for row in self.rows if down else reversed(self.rows):
                if len(row) > 1:
                    middles = {
                        n: _median([position[j] for j in joined[n]], position[n]) for n in row
                    }
                    row.sort(key=middles.__getitem__)
                    _number(row, position)

    def place(self) -> None:
        """Move each node towards its neighbours as far as the others of its layer allow."""
        for row in self.rows:
            spread, last = 0.0, None
            for node in row:
                spread += 0.0 if last is None else self._gap(last, node)
                self.x[node], last = spread, node
            for node in row:
                self.x[node] -= spread / 2
        for sweep in range(2 * _SWEEPS + 1):
            down = sweep % 2 == 0
            for row in self.rows if down else reversed(self.rows):
                self._settle(row, self.above if down else self.below)

    def _settle(self, row: list[int], joined: list[list[int]]) -> None:
        """The places nearest to those wished for that keep the order and the gaps."""
        blocks: list[list[float]] = []  # sum of wishes, weight, so many nodes
        offsets, offset = [], 0.0
        for index, node in enumerate(row):
            offset += self._gap(row[index - 1], node) if index else 0.0
            offsets.append(offset)
            wish, weight = self._wish(node, joined[node])
            blocks.append([(wish - offset) * weight, weight, 1])
            while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] > blocks[-1][0] * blocks[-2][1]:
                last = blocks.pop()
                blocks[-1] = [a + b for a, b in zip(blocks[-1], last)]
        nodes = iter(zip(row, offsets))
        for total, weight, size in blocks:
            for _ in range(int(size)):
                node, off = next(nodes)
                self.x[node] = total / weight + off

    def _wish(self, node: int, joined: list[int]) -> tuple[float, float]:
        """Where a node wants to be, and how much: nodes follow nodes, so that chains are straight.

        The longest way is straight in any case; what passes by makes way for nodes.
        """
        if node in self.trunk:
            on = [self.x[j] for j in joined if j in self.trunk]
            return (on[0] if on else self.x[node]), 1000.0
        if node >= self.count:
            return _median([self.x[j] for j in joined], self.x[node]), 0.001
        near = [self.x[j] for j in joined if j < self.count]
        return _median(near or [self.x[j] for j in joined], self.x[node]), 8.0 if near else 2.0

    def _gap(self, left: int, right: int) -> float:
        """How far apart two neighbours of a layer are."""
        return self._room(left) + self._room(right)

    def _room(self, node: int) -> float:
        return (WIDTH + _APART) / 2 if node < self.count else _THREAD / 2

    def result(self, edges: Sequence[Edge]) -> Layout:
        step = HEIGHT + _BETWEEN
        left = min((self.x[n] for n in range(self.count)), default=0.0) - WIDTH / 2
        places = [(round(x - left, 1), round(n * step + HEIGHT / 2, 1))
                  for x, n in zip(self.x, self.layer)]  # fmt: skip
        ways = []
        for start, end in edges:
            passed = range(self.layer[start] + 1, self.layer[end])
            is_bent = (start, end) in self.bent
            ways.append([places[self.bends[start, n]] for n in passed] if is_bent else [])
        return Layout(places[: self.count], ways)


def _number(row: list[int], position: list[float]) -> None:
    for place, node in enumerate(row):
        position[node] = place - (len(row) - 1) / 2


def _median(values: list[float], otherwise: float) -> float:
    if not values:
        return otherwise
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
