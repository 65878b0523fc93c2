"""Control-flow regions: each branch and loop body is observed and converted as a program.

Parameters reach the functions of ``cond`` and ``while_loop`` as operands. Before anything else they
move inside, so that weights are constants there. What goes round a loop has one range, be it given,
carried or left; everything else that crosses a border is rescaled there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor, fx, nn

from tosaic.front import torchapi
from tosaic.front.hints import MARK, Mark, mark_of
from tosaic.front.roles import is_real
from tosaic.passes.match import hold

_EMPTY = "tosaic.empty"
_FUNCTIONS = {"cond": (1, 2), "while_loop": (0, 1), "tosaic_scan": (0,)}  # which arguments they are


def region_calls(module: fx.GraphModule) -> Iterator[fx.Node]:
    """The branches and loops of a program."""
    for node in module.graph.nodes:
        if torchapi.is_region_call(node) and torchapi.target_name(node) in _FUNCTIONS:
            yield node


def functions(module: fx.GraphModule, call: fx.Node) -> list[tuple[str, fx.GraphModule]]:
    """The functions of a branch or a loop, and where the module has them."""
    named = [call.args[place] for place in _FUNCTIONS[torchapi.target_name(call)]]
    paths = [str(n.target) for n in named if isinstance(n, fx.Node)]
    return [(path, torchapi.attribute(module, path)) for path in paths]


def apart(
    module: fx.GraphModule, step: Callable[[fx.GraphModule], fx.GraphModule]
) -> fx.GraphModule:
    """Take a step of torchao with a program and with each function alone.

    It would take it with the bodies of loops itself, and with no other function. So it finds
    functions that do nothing there, which it may change as it likes.
    """
    held = {path: f for call in region_calls(module) for path, f in functions(module, call)}
    empty: dict[str, fx.GraphModule] = module.meta.pop(_EMPTY, {})
    seen = {
        path for call in region_calls(module) if torchapi.is_scan(call)
        for path, _ in functions(module, call)
    }  # fmt: skip
    hidden = [path for path in held if path not in seen]  # the quantizer looks into a scan
    for path in hidden:
        module.set_submodule(path, empty.get(path) or _nothing())
    made = step(module)
    if held:
        made.meta[_EMPTY] = {path: torchapi.attribute(made, path) for path in hidden}
    for path, function in held.items():
        made.set_submodule(path, apart(function, step))
    return made


def _nothing() -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(())
    return fx.GraphModule(nn.Module(), graph)


def move_constants_in(module: fx.GraphModule) -> None:
    """Give functions the parameters that they are called with; each call has its own functions."""
    for call in list(region_calls(module)):
        name = torchapi.target_name(call)
        operands: Any = (*call.args, ())
        kept: list[fx.Node] = list(operands[2]) if name == "while_loop" else []
        if torchapi.is_scan(call):
            kept = [*operands[1], *operands[2]]
        given: list[fx.Node] = list(operands[3])
        known = {len(kept) + i: _value(module, n) for i, n in enumerate(given)}
        values = {i: value for i, value in known.items() if value is not None}
        arguments = list(call.args)
        for place in _FUNCTIONS[name]:
            arguments[place] = _with_constants(module, call, arguments[place], values)
        if len(arguments) > 3:
            left = [n for i, n in enumerate(given) if len(kept) + i not in values]
            arguments[3] = tuple(left)
        call.args = tuple(arguments)
        _mark_border(module, call)
    torchapi.sweep(module.graph)
    module.recompile()


def _value(module: fx.GraphModule, node: Any) -> Tensor | None:
    is_held = isinstance(node, fx.Node) and node.op == "get_attr"
    found = torchapi.attribute(module, str(node.target)) if is_held else None
    return found if isinstance(found, Tensor) else None


def _with_constants(
    module: fx.GraphModule, call: fx.Node, function: Any, values: dict[int, Tensor]
) -> fx.Node:
    """A copy of a function that holds some of its operands."""
    made = torchapi.copied(torchapi.attribute(module, str(function.target)))
    for index, node in enumerate(made.graph.find_nodes(op="placeholder")):
        if index not in values:
            continue
        held = hold(node, f"_given_{index}", values[index].detach(), dict(node.meta))
        node.replace_all_uses_with(held)
        made.graph.erase_node(node)
    made.recompile()
    path = f"{call.name}_{function.target}".replace(".", "_")
    module.add_module(path, made)
    with module.graph.inserting_before(call):
        reads: fx.Node = module.graph.get_attr(path)
    move_constants_in(made)
    return reads


def _mark_border(module: fx.GraphModule, call: fx.Node) -> None:
    """Operands of functions are observed, what a loop carries together with what its body gives."""
    is_loop = torchapi.target_name(call) == "while_loop"
    carried: Any = call.args[2] if is_loop else ()
    for number, (_, function) in enumerate(functions(module, call)):
        nodes = list(function.graph.nodes)
        inputs = [n for n in nodes if n.op == "placeholder"]
        for index, node in enumerate(inputs):
            tied = is_loop and number == 1 and index < len(carried)
            node.meta[MARK] = Mark(tie=f"carried {index}" if tied else "")
        outputs: Any = nodes[-1].args[0]
        for index, node in enumerate(outputs if is_loop and number == 1 else ()):
            if isinstance(node, fx.Node) and is_real(node) and not mark_of(node).tie:
                node.meta[MARK] = replace(mark_of(node), tie=f"carried {index}")
