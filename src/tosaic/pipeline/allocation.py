"""Allocation of bits: the cheapest choice of 8 or 16 bits for what each call reads and gives.

A tensor is rounded to 8 bits where it is made, or for one reader alone. Errors add up, and so do
the costs of calls and of casts between the two widths. For a price of the error this is a minimum
cut, whose linear program has a solution of whole numbers. Cuts for prices in steps, and what lies
between them, are the choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tosaic.pipeline.sensitivity import Rounding, Sensitivities

_PRICES, _DECADES = 48, 4  # of an error: how many, and how far below and above all costs
_FEWEST = 1e-4  # of the dearest call: of equal costs the fewest calls are taken


@dataclass(frozen=True, slots=True)
class Widths:
    """The calls that read, and those that give, 16 bits where they can."""

    reads: frozenset[str] = frozenset()
    gives: frozenset[str] = frozenset()

    @property
    def calls(self) -> frozenset[str]:
        return self.reads | self.gives

    def scheme(self, call: str) -> str:
        """The scheme of a call."""
        names = "int8", "int16_to_int8", "int8_to_int16", "a16w8"
        return names[(call in self.reads) + 2 * (call in self.gives)]


@dataclass(slots=True)
class Allocation:
    """The choices for one program: ``extra`` is what 16 bits cost more, ``cast`` an element."""

    found: Sensitivities
    extra: Mapping[str, float]
    cast: float = 1.0
    groups: dict[str, str] = field(default_factory=dict)  # each call's first, of those tied
    costs: dict[str, float] = field(default_factory=dict)
    uneven: set[str] = field(default_factory=set)  # groups that may read other bits than they give
    layers: set[str] = field(default_factory=set)  # those that take as long with either result

    _known: tuple[float, list[tuple[float, float, Widths]]] | None = None

    def __post_init__(self) -> None:
        self.groups = {call: call for call in self.extra}
        for one, other in self.found.ties:
            if one in self.groups and other in self.groups:
                first, second = self.groups[one], self.groups[other]
                for call, own in self.groups.items():
                    if own == second:
                        self.groups[call] = first
        for call, first in self.groups.items():
            self.costs[first] = self.costs.get(first, 0.0) + self.extra[call]
        for first in self.costs:
            calls = {call for call, own in self.groups.items() if own == first}
            if calls & self.found.layers:
                self.layers.add(first)
            elif len(calls) == 1 and calls <= self.found.uneven and self.costs[first] >= 0:
                self.uneven.add(first)

    def widths(self, reads: Iterable[str], gives: Iterable[str]) -> Widths:
        """Of groups, those of all their calls."""
        wide = frozenset(reads), frozenset(gives)
        return Widths(*(frozenset(c for c, g in self.groups.items() if g in w) for w in wide))

    def error(self, widths: Widths) -> float:
        """The sum of what is rounded to 8 bits."""
        total = 0.0
        for each in self.found.roundings:
            is_wide, parts = self._parts(each, widths)
            total += 0.0 if is_wide or each.moved else each.error
            total += sum(each.of(r) for r in parts) if is_wide else 0.0
        return total

    def _parts(self, each: Rounding, widths: Widths) -> tuple[bool, list[str]]:
        """Whether a tensor has 16 bits, and its readers that take 8."""
        narrow = [r for r in each.readers if r in self.groups and r not in widths.reads]
        if each.maker not in self.groups:
            return len(narrow) < len(each.readers), narrow
        return each.maker in widths.gives, narrow

    def casts(self, widths: Widths) -> int:
        """Elements that change their width between two calls."""
        total = 0
        for each in self.found.roundings:
            is_wide, narrow = self._parts(each, widths)
            count = len(narrow) if is_wide else len(each.readers) - len(narrow)
            total += each.size * bool(count)
        return total

    def price(self, widths: Widths) -> float:
        """Extra costs of calls, without those of casts."""
        return sum(
            self.costs[group] for group in self.costs
            if group in widths.reads or (group in widths.gives and group not in self.layers)
        )  # fmt: skip

    def cheapest(self, most: float) -> Widths:
        """The choice that leaves so much error at most, and costs least.

        Choices do not depend on what is asked for, so a looser error never costs more.
        """
        fitting = [each for each in self._choices() if each[0] <= most]
        if not fitting:
            return self.widths(self.costs, self.costs)
        return min(fitting, key=lambda each: (each[1], each[0]))[2]

    def _choices(self) -> list[tuple[float, float, Widths]]:
        """Errors and costs of minimum cuts for prices in steps, and of what lies between them."""
        if self._known and self._known[0] == self.cast:
            return self._known[1]
        total = self.error(Widths())
        scale = sum(map(abs, self.costs.values())) / total if total else 1.0
        cuts = [Widths()]
        for step in range(_PRICES + 1):
            cut = self._cut((scale or 1.0) * 10 ** (_DECADES * (2 * step / _PRICES - 1)))
            if cut != cuts[-1]:
                cuts.append(cut)
        cuts.append(self.widths(self.costs, self.costs))
        every = {each for pair in pairwise(cuts) for each in self._from(*pair)}
        made = [(self.error(w), self.cost(w), w) for w in (*cuts, *every)]
        made.sort(key=lambda each: (each[0], each[1], sorted(each[2].reads), sorted(each[2].gives)))
        self._known = self.cast, made
        return made

    def _from(self, narrow: Widths, wide: Widths) -> Iterator[Widths]:
        """Between two cuts: 16 bits given back by call, the dearest for their error first."""
        steps = list[tuple[float, str, Widths]]()
        error, cost = self.error(wide), self.cost(wide)
        for group in self.costs:
            calls = frozenset(c for c, g in self.groups.items() if g == group)
            less = Widths(wide.reads - (calls - narrow.reads), wide.gives - (calls - narrow.gives))
            if less != wide:
                saved, more = cost - self.cost(less), self.error(less) - error
                steps.append((saved / max(more, 1e-30), group, Widths(calls, calls)))
        for _, _, given in sorted(steps, key=lambda each: (-each[0], each[1])):
            wide = Widths(
                wide.reads - (given.reads - narrow.reads), wide.gives - (given.gives - narrow.gives)
            )
            yield wide

    def cost(self, widths: Widths) -> float:
        """Extra costs of a choice."""
        return self.price(widths) + self.cast * self.casts(widths)

    def _cut(self, worth: float) -> Widths:
        """The minimum cut for what an error is worth."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

        costs: list[float] = []
        rows: list[list[tuple[int, float]]] = []

        def variable(cost: float = 0.0) -> int:
            costs.append(cost)
            return len(costs) - 1

        def above(least: int, *others: tuple[int, float]) -> None:
            rows.append([(least, -1.0), *others])

        fewest = _FEWEST * (max(self.costs.values(), default=0.0) or 1.0)
        reads, gives = dict[str, int](), dict[str, int]()
        for group in self.costs:
            cost = self.costs[group]
            if group in self.layers:
                reads[group], gives[group] = variable(cost + fewest), variable(fewest)
            elif group in self.uneven:
                whole = variable(cost + fewest)
                reads[group], gives[group] = variable(), variable()
                above(whole, (reads[group], 1.0))
                above(whole, (gives[group], 1.0))
            else:
                reads[group] = gives[group] = variable(cost + fewest)
        for each in self.found.roundings:
            known = [r for r in each.readers if r in self.groups]
            maker = self.groups.get(each.maker or "")
            wide = variable() if maker is None else gives[maker]
            if not each.moved:
                costs[wide] -= worth * each.error
            if maker is None and each.readers:  # as wide as its widest reader
                rows.append([(wide, 1.0), *((reads[self.groups[r]], -1.0) for r in known)])
            for reader in known:
                read = reads[self.groups[reader]]
                if maker == self.groups[reader]:
                    continue
                narrow = variable(worth * each.of(reader) + self.cast * each.size)
                above(narrow, (wide, 1.0), (read, -1.0))
                above(variable(self.cast * each.size), (read, 1.0), (wide, -1.0))
        table = [(i, j, v) for i, row in enumerate(rows) for j, v in row]
        places = np.array([t[:2] for t in table]).T.reshape(2, -1)
        limits = csr_array(
            (np.array([t[2] for t in table]), (places[0], places[1])), (len(rows), len(costs))
        )
        scale = max(map(abs, costs)) or 1.0
        made = linprog(
            np.array(costs) / scale, A_ub=limits, b_ub=np.zeros(len(rows)), bounds=(0, 1),
            method="highs-ds",
        )  # fmt: skip
        if made.x is None:
            return self.widths(self.costs, self.costs)
        wide_reads = [g for g, v in reads.items() if made.x[v] > 0.5]
        return self.widths(wide_reads, [g for g, v in gives.items() if made.x[v] > 0.5])
