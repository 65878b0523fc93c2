"""Stable names of the values of a program, equal from run to run and for every target.

A value is named after the call of the exported program that it comes from: module path, operator
and index. Where passes have made other calls of that one, such as the parts of an operator that a
target has no form of, a digest of what they compute tells them apart.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.hints import CALL, mark_of
from tosaic.quant.regions import functions, region_calls

CALIBRATED = "tosaic.calibrated"  # a value as the size has it that all sizes are calibrated as
_NAME, OUTLINE = "tosaic.point", "tosaic.outline"


def parts_of(module: fx.GraphModule, path: str = "") -> Iterator[tuple[str, fx.GraphModule]]:
    """A program and the functions of its branches and loops, each with its place."""
    yield path, module
    for call in region_calls(module):
        for name, function in functions(module, call):
            yield from parts_of(function, f"{path}{name}/")


def mark_calls(module: fx.GraphModule) -> None:
    """Give each call of an exported program its name; what passes make of it keeps the name."""
    for path, part in parts_of(module):
        seen = Counter[str]()
        for node in part.graph.nodes:
            if node.op in ("placeholder", "call_function"):
                name = path + _plain(node)
                seen[name] += 1
                node.meta[CALL] = name if seen[name] == 1 else f"{name}.{seen[name]}"
    module.meta[OUTLINE] = _outline(module)


def name_points(module: fx.GraphModule) -> None:
    """Name the values of a program that passes have changed."""
    for path, part in parts_of(module):
        taken, digests = set[str](), dict[fx.Node, str]()
        for node in part.graph.nodes:
            if node.op not in ("placeholder", "call_function"):
                continue
            call = str(node.meta.get(CALL, path))
            where = "" if call.startswith(path) else path  # a function that a pass has made
            digests[node] = _digest(node, call, digests, where)
            is_own = _operator(node) == call.rpartition("/")[2].partition(".")[0]
            inner = any(n.meta.get(CALL) == call for n in node.all_input_nodes)
            plain = node.op == "placeholder" or (is_own and not inner and call not in taken)
            name = call if plain else f"{call} {_operator(node)} {digests[node]}"
            taken.add(name)
            node.meta[_NAME] = name


def name_of(node: fx.Node) -> str:
    """The name of a value, once its program has names."""
    return str(node.meta.get(_NAME, ""))


def constant_name(node: fx.Node) -> str:
    """The name of a constant by the call that reads it: its own may differ with the size."""
    reader, value = next(iter(node.users), node), node
    while reader.op == "call_module" and reader.users:  # an observer
        reader, value = next(iter(reader.users)), reader
    places = [n for n, each in enumerate(reader.all_input_nodes) if each is value]
    return f"constant {places[:1]} of {name_of(reader)}"


def adopt_names(module: fx.GraphModule, other: fx.GraphModule) -> None:
    """Give values the names of another size of the program, where both have the same calls."""
    for (_, ours), (_, theirs) in zip(parts_of(module), parts_of(other)):
        one, two = (
            [n for n in part.graph.nodes if n.op in ("placeholder", "call_function")]
            for part in (ours, theirs)
        )
        if list(map(_operator, one)) == list(map(_operator, two)):
            for node, like in zip(one, two):
                node.meta[_NAME] = name_of(like)
                node.meta[CALIBRATED] = like.meta.get("val")


def _outline(module: fx.GraphModule) -> list[str]:
    """The structure of a program: its calls by name, with the sizes of parameters."""
    lines = []
    for _, part in parts_of(module):
        for node in part.graph.nodes:
            if node.op == "call_function":
                held = [n for n in node.all_input_nodes if n.op == "get_attr"]
                lines.append(" ".join([node.meta[CALL], *map(_size, held)]))
            elif node.op == "placeholder":
                lines.append(str(node.meta[CALL]))
    return lines


def _plain(node: fx.Node) -> str:
    if node.op == "placeholder":
        return str(node.target)
    module = torchapi.location(node).module
    return f"{module}/{_operator(node)}" if module else _operator(node)


def _operator(node: fx.Node) -> str:
    """The operator as the model's author called it: ``relu_`` stays, be it canonical since."""
    name = torchapi.target_name(node)
    if name.count(".") < 2:
        return name
    written, made = node.meta.get(torchapi.WRITTEN_AS, ("", ""))
    return str(written) if made == name else name.split(".")[1]


def _size(node: fx.Node) -> str:
    example = node.meta.get("val")
    return "x".join(map(str, example.shape)) or "1" if isinstance(example, Tensor) else ""


def _digest(node: fx.Node, call: str, digests: dict[fx.Node, str], where: str) -> str:
    """A short hash of how a value is computed from values of other calls.

    Values that have one range, such as those of the steps of a recurrent layer, count as one.
    """

    def read(other: fx.Node) -> Any:
        if other.op == "get_attr":
            return f"[{other.target}]"
        own, tie = str(other.meta.get(CALL, "")), mark_of(other).tie
        return f"<{tie or digests.get(other, '')}>" if own in ("", call) else f"<{own}>"

    text = f"{where}{_operator(node)}{fx.map_arg((node.args, node.kwargs), read)}"
    return hashlib.sha256(text.encode()).hexdigest()[:6]
