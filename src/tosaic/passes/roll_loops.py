"""Rolls loops: what a Python loop repeated becomes one function that is called again and again.

Export writes out every round of a Python loop. Rounds are found again by their period: a run of
calls in which each equals the call a period before it, but for positions that go on by one. What a
round reads of the round before is carried, what all rounds read alike is read or held, and what is
taken at the position of the round is the element of a sequence.
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.fold_constants import fold
from tosaic.passes.match import free_name, values_of

aten = torch.ops.aten
_SELECT, _UNBIND = "aten.select.int", "aten.unbind.int"
_CANDIDATES = 12  # periods that are tried
_LEAST, _TRIED = 4, 8  # rounds, and where one may begin
CALLS = 10  # of a step of a recurrence, or more
_SEVERAL = 8  # results of a call
_SMALL = 4096  # elements of a constant that differs from round to round


def roll_loops(module: fx.GraphModule, longest: int) -> int:
    """Roll runs of more than ``longest`` calls; how many loops were made."""
    made = 0
    if sum(n.op == "call_function" for n in module.graph.nodes) <= longest:
        return made
    fold(module, _alike)  # such as positions that are counted up
    _take_apart(module.graph)
    while True:
        calls = [n for n in module.graph.nodes if n.op == "call_function"]
        found = next(_runs(calls, longest), None)
        if found is None:
            torchapi.sweep(module.graph)
            return made
        _Roll(module, found).replace(f"round_{made}")
        torchapi.sweep(module.graph)
        made += 1


def _alike(known: set[fx.Node]) -> set[fx.Node]:
    """Calls that are known in every round: what one round alone knows is computed by all."""
    groups: dict[Any, list[fx.Node]] = defaultdict(list)
    for node in next(iter(known)).graph.nodes if known else ():
        if node.op == "call_function":
            groups[_described(node)].append(node)
    return {node for group in groups.values() if known.issuperset(group) for node in group}


def _take_apart(graph: fx.Graph) -> None:
    """Let all items of several results follow their call: the last round may lack some."""
    for node in list(graph.nodes):
        several = node.meta.get("val")
        if not isinstance(several, (tuple, list)) or len(several) > _SEVERAL:
            continue
        items = {user.args[1]: user for user in node.users}
        if any(torchapi.target_name(user) != "getitem" for user in node.users):
            continue
        for place in reversed(range(len(several))):
            with graph.inserting_after(node):
                made = graph.call_function(operator.getitem, (node, place))
            made.meta = {**node.meta, "val": several[place]}
            if (item := items.get(place)) is not None:
                made.meta = dict(item.meta)
                item.replace_all_uses_with(made)
                graph.erase_node(item)


@dataclass(slots=True)
class _Rounds:
    """The calls of each round, and what each place of a round is given."""

    rounds: list[list[fx.Node]]
    place: dict[fx.Node, tuple[int, int]] = field(default_factory=dict)
    back: bool = False
    # A place whose call is an element of a sequence, and operands that are one.
    elements: dict[int, tuple[fx.Node, int, int]] = field(default_factory=dict)
    given: dict[tuple[int, int], tuple[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place = {
            node: (number, place)
            for number, calls in enumerate(self.rounds) for place, node in enumerate(calls)
        }  # fmt: skip


def _runs(calls: list[fx.Node], longest: int) -> Iterator[_Rounds]:
    """Runs of equal rounds, the longest first."""
    if len(calls) <= longest:
        return
    names: dict[Any, int] = {}
    line = [names.setdefault(_described(n), len(names)) for n in calls]
    where: dict[int, list[int]] = defaultdict(list)
    for index, name in enumerate(line):
        where[name].append(index)
    gaps = Counter(
        found[i + lag] - found[i]
        for found in where.values() for lag in (1, 2, 3, 4) for i in range(len(found) - lag)
    )  # fmt: skip
    spans = []
    for period, _ in gaps.most_common(_CANDIDATES):
        start, most = 0, (0, 0)
        for index in range(len(line) - period + 1):
            if index == len(line) - period or line[index] != line[index + period]:
                if index > start and index + period - start > most[1] - most[0]:
                    most = start, index + period
                start = index + 1
        if most[1] - most[0] >= _LEAST * period and most[1] - most[0] > longest:
            spans.append((most[0] - most[1], period, most))
    for _, period, (first, last) in sorted(spans):
        for begin in _beginnings(calls, first, period)[:_TRIED]:
            count = (last - begin) // period
            rounds = [calls[begin + i * period : begin + (i + 1) * period] for i in range(count)]
            found = _Rounds(rounds)
            if count >= _LEAST and _understood(found):
                yield found


def _beginnings(calls: list[fx.Node], first: int, period: int) -> list[int]:
    """Where a round may begin: there first where the fewest values cross."""
    crossing = []
    for begin in range(first, first + period):
        middle = begin + period
        before = set(calls[begin:middle])
        read = {n for call in calls[middle : middle + period] for n in call.all_input_nodes}
        crossing.append((len(before & read), begin))
    return [begin for _, begin in sorted(crossing)]


def _described(node: fx.Node) -> Any:
    """All that two calls of a loop have in common; positions may differ."""
    example = node.meta.get("val")
    shape: Any = str(example)
    if isinstance(example, Tensor):  # whose sizes may be known only when it runs
        shape = str(tuple(example.shape)), example.dtype
    args: tuple[Any, ...] = node.args
    if torchapi.target_name(node) == _SELECT:
        args = args[:2]
    held = [n.target if n.op == "get_attr" and _is_weight(n) else ""
            for n in _operands(node)]  # fmt: skip
    told = fx.map_arg((args, node.kwargs), lambda n: None)
    return node.target, shape, str(told), tuple(held)


def _operands(node: fx.Node) -> list[fx.Node]:
    """The nodes that a call reads, in the order of its arguments, as often as it reads them."""
    found: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), found.append)
    return found


def _is_weight(node: fx.Node) -> bool:
    found = values_of(node)
    return isinstance(found, torch.nn.Parameter) or (found is not None and found.numel() > _SMALL)


def _understood(found: _Rounds) -> bool:
    """Find out what the operands of a round are; False where some are of no known kind."""
    if not all(_stays_inside(found, node) for node in found.place):
        return False
    steps = set[int]()
    for place in range(len(found.rounds[0])):
        column = [calls[place] for calls in found.rounds]
        if torchapi.target_name(column[0]) == _SELECT:
            line, axis = column[0].args[:2]
            ends = [int(str(n.args[2])) for n in column]
            if len(set(ends)) > 1:
                step = _step(ends)
                if not step or any(n.args[0] is not line for n in column):
                    return False
                assert isinstance(line, fx.Node)
                steps.add(step)
                found.elements[place] = (line, int(str(axis)), min(ends))
                if line in found.place:
                    return False
                continue
        for number, operands in enumerate(zip(*map(_operands, column))):
            kind = _kind(found, operands, steps)
            if kind is None:
                return False
            found.given[place, number] = kind
    found.back = steps == {-1}
    return len(steps) <= 1 and any(kind == "carried" for kind, _ in found.given.values())


def _stays_inside(found: _Rounds, node: fx.Node) -> bool:
    """Whether a value is a tensor, or one of several results that its own round takes apart."""
    if isinstance(node.meta.get("val"), Tensor):
        return True
    number = found.place[node][0]
    return all(found.place.get(user, (-1, 0))[0] == number for user in node.users)


def _step(ends: list[int]) -> int:
    """How much positions differ from round to round: 1 or -1; 0 for anything else."""
    differ = {b - a for a, b in pairwise(ends)}
    return differ.pop() if differ in ({1}, {-1}) else 0


def _kind(found: _Rounds, operands: tuple[fx.Node, ...], steps: set[int]) -> tuple[str, Any] | None:
    """What the rounds read at one place."""
    at = [found.place.get(n) for n in operands]
    if all(a is not None and a == (i, at[0][1] if at[0] else -1) for i, a in enumerate(at)):
        return "own", at[0][1] if at[0] else -1
    if at[0] is None and at[1] is not None:
        place = at[1][1]
        if all(a == (i, place) for i, a in enumerate(at[1:])):
            return "carried", (place, operands[0])
    if any(a is not None for a in at):
        return None
    if len(set(operands)) == 1:
        return "read", operands[0]
    if all(n.op == "get_attr" for n in operands):
        values = [values_of(n) for n in operands]
        shapes = {None if v is None else (v.shape, v.dtype) for v in values}
        if len(shapes) == 1 and None not in shapes:
            return "held", operands
    if all(torchapi.target_name(n) == "getitem" for n in operands):
        source: Any = operands[0].args[0]
        step = _step([int(str(n.args[1])) for n in operands])
        same = all(n.args[0] is source for n in operands)
        if same and step and torchapi.target_name(source) == _UNBIND:
            steps.add(step)
            line, axis = source.args[0], source.args[1] if len(source.args) > 1 else 0
            return "element", (line, axis, min(int(str(n.args[1])) for n in operands))
    return None


class _Roll:
    """Puts one loop in the place of its rounds."""

    def __init__(self, module: fx.GraphModule, found: _Rounds) -> None:
        self.module, self.found, self.count = module, found, len(found.rounds)
        self.first, self.last = found.rounds[0], found.rounds[-1]
        self.graph = module.graph
        self.behind = self.last[-1].next
        self.lines: dict[Any, fx.Node] = {}  # sequences, by what they are made of
        self.carried: dict[tuple[int, fx.Node], fx.Node] = {}
        self.reads: dict[fx.Node, fx.Node] = {}

    def replace(self, name: str) -> None:
        body, root = fx.Graph(), torch.nn.Module()
        self._name_operands(body)
        copies = self._copy(body, root)
        ends = [copies[place] for place, _ in self.carried]
        wanted = self._wanted()
        body.output((*ends, *(copies[place] for place, _ in wanted)))
        step = fx.GraphModule(root, body)
        self.module.add_module(name, step)
        with self.graph.inserting_before(self.behind):
            lines = [(self._line(key), key) for key in self.lines]
            function = self.graph.create_node("get_attr", name)
            axes = [self._axis(key) for _, key in lines] + [axis for _, axis in wanted]
            call = self.graph.call_function(torchapi.SCAN, (
                function, tuple(first for _, first in self.carried), tuple(n for n, _ in lines),
                tuple(self.reads), self.count, tuple(axes), self.found.back, 0,
            ))  # fmt: skip
            kept = {k: v for k, v in self.first[-1].meta.items() if k != "val"}
            stacks = [self._stacked(place, axis) for place, axis in wanted]
            shown = (*(first.meta["val"] for _, first in self.carried), *stacks)
            call.meta = {**kept, "val": shown}
            for number, (place, axis) in enumerate(wanted):
                self._give(call, len(self.carried) + number, place, axis, kept)
        for calls in reversed(self.found.rounds):
            for node in reversed(calls):
                self.graph.erase_node(node)

    def _name_operands(self, body: fx.Graph) -> None:
        """Placeholders: what is carried, then elements, then what is read."""
        kinds = self.found.given.values()
        for kind, what in kinds:
            if kind == "carried" and what not in self.carried:
                self.carried[what] = self._take(body, what[1], what[1].meta["val"])
        keys: list[Any] = [_at(what) for what in self.found.elements.values()]
        keys += [_at(what) for kind, what in kinds if kind == "element"]
        keys += [("held", what) for kind, what in kinds if kind == "held"]
        for key in dict.fromkeys(keys):
            if key[0] == "held":
                like, example = key[1][0], key[1][0].meta["val"]
            else:
                like = key[1]
                example = torchapi.computed_beside(
                    like, torch.select, (like.meta["val"], key[2], 0)
                )
            self.lines[key] = self._take(body, like, example)
        for kind, what in kinds:
            if kind == "read" and values_of(what) is None and what not in self.reads:
                self.reads[what] = self._take(body, what, what.meta["val"])

    def _take(self, body: fx.Graph, like: fx.Node, example: Any) -> fx.Node:
        made: fx.Node = body.placeholder(like.name)
        made.meta = {**like.meta, "val": example}
        return made

    def _copy(self, body: fx.Graph, root: torch.nn.Module) -> list[fx.Node]:
        """The calls of the first round."""
        copies: list[fx.Node] = []
        held: dict[fx.Node, fx.Node] = {}

        def known(kind: str, what: Any) -> Any:
            if kind == "own":
                return copies[what]
            if kind == "carried":
                return self.carried[what]
            if kind == "read" and (values := values_of(what)) is not None:
                if what not in held:
                    name = f"held_{len(held)}"
                    root.register_buffer(name, values.detach(), persistent=False)
                    held[what] = body.create_node("get_attr", name)
                    held[what].meta = dict(what.meta)
                return held[what]
            if kind == "read":
                return self.reads[what]
            return self.lines["held", what] if kind == "held" else self.lines[_at(what)]

        for place, node in enumerate(self.first):
            if place in self.found.elements:
                copies.append(self.lines[_at(self.found.elements[place])])
                continue
            each = range(len(_operands(node)))
            given = iter([known(*self.found.given[place, number]) for number in each])
            copies.append(body.node_copy(node, partial(_next, given)))
        return copies

    def _line(self, key: Any) -> fx.Node:
        """A sequence: what is selected from, as far as the rounds go, or constants together."""
        if key[0] == "held":
            values = torch.stack([_known(n) for n in key[1]])
            name = free_name(self.module, f"held_{len(list(self.module.buffers()))}")
            self.module.register_buffer(name, values, persistent=False)
            made: fx.Node = self.graph.create_node("get_attr", name)
            made.meta["val"] = torchapi.stand_in_beside(self.first[-1], values)
            return made
        _, line, axis, begin = key
        if line.meta["val"].shape[axis] == self.count:
            return line  # type: ignore[no-any-return]
        args = (line, axis, begin, begin + self.count)
        made = self.graph.call_function(aten.slice.Tensor, args)
        made.meta = dict(line.meta)
        made.meta["val"] = torchapi.computed_beside(
            line, torch.narrow, (line.meta["val"], axis, begin, self.count)
        )
        return made

    def _axis(self, key: Any) -> int:
        return 0 if key[0] == "held" else int(key[2] % key[1].meta["val"].dim())

    def _wanted(self) -> list[tuple[int, int]]:
        """Places of a round that others read, and the axes along which they want all rounds."""
        found: dict[tuple[int, int], None] = {}
        for place in range(len(self.first)):
            for calls in self.found.rounds:
                for user in calls[place].users:
                    if user not in self.found.place:
                        found[place, self._stack_axis(user, place)] = None
        return list(found)

    def _stack_axis(self, user: fx.Node, place: int) -> int:
        """The axis along which a call puts the results of all rounds together; 0 for others."""
        axis: Any = user.args[1] if len(user.args) > 1 else 0
        return int(axis) % self._rank(user) if self._joins(user, place) else 0

    def _rank(self, user: fx.Node) -> int:
        return int(user.meta["val"].dim())

    def _joins(self, user: fx.Node, place: int) -> bool:
        order = self.found.rounds[::-1] if self.found.back else self.found.rounds
        is_join = torchapi.target_name(user) in ("aten.stack.default", "aten.cat.default")
        return is_join and list(user.args[0]) == [calls[place] for calls in order]  # type: ignore[arg-type]

    def _stacked(self, place: int, axis: int) -> Tensor:
        example = self.first[place].meta["val"]
        sizes = [*example.shape]
        sizes.insert(axis, self.count)
        made: Tensor = torchapi.computed_beside(
            self.first[place], aten.new_empty.default, (example, sizes)
        )
        return made

    def _give(self, call: fx.Node, number: int, place: int, axis: int, kept: Any) -> None:
        """The results of a place, for all that read them."""
        item = self.graph.call_function(operator.getitem, (call, number))
        item.meta = {**kept, "val": call.meta["val"][number]}
        for index, calls in enumerate(self.found.rounds):
            at = self.count - 1 - index if self.found.back else index
            for user in list(calls[place].users):
                if user in self.found.place or self._stack_axis(user, place) != axis:
                    continue
                if self._joins(user, place):
                    self._put(user, item)
                    continue
                with self.graph.inserting_before(self.behind):
                    one = self.graph.call_function(aten.select.int, (item, axis, at))
                one.meta = dict(calls[place].meta)
                user.replace_input_with(calls[place], one)

    def _put(self, user: fx.Node, item: fx.Node) -> None:
        """All results in the place of a call that puts them together."""
        made = item
        if torchapi.target_name(user) == "aten.cat.default":
            with self.graph.inserting_before(user):
                shape = list(user.meta["val"].shape)
                made = self.graph.call_function(aten.view.default, (item, shape))
            made.meta = dict(user.meta)
        user.replace_all_uses_with(made)
        self.graph.erase_node(user)


def _next(given: Iterator[fx.Node], _: fx.Node) -> fx.Node:
    return next(given)


def _at(what: tuple[fx.Node, int, int]) -> tuple[Any, ...]:
    return ("at", *what)


def _known(node: fx.Node) -> Tensor:
    found = values_of(node)
    assert found is not None
    return found.detach()
