"""Places lookups of constant tables on the host where its copy of rows beats the device.

A device without an operator that gathers multiplies the whole table by a one-hot matrix. The host
copies the rows that are asked for. So a lookup whose indices are an input of the program moves
there if the device's judge finds it dearer than the host's cost row; the table stays in integers,
and the graph begins behind the lookup.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, fx

from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE
from tosaic.front.imported import Imported
from tosaic.front.program import Program, program_of
from tosaic.ir.graph import Graph, Value
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.lowering.target import Target
from tosaic.lowering.walk import Walker
from tosaic.passes.match import hold
from tosaic.spec.dtypes import TensorType

_PLACED = "tosaic.host"
_FAR = 20  # times: formulas are not so wrong


def host_reason(node: fx.Node) -> str:
    """Why a call was given to the host; "" if it was not."""
    return str(node.meta.get(_PLACED, ""))


def on_cheapest_side(source: Imported, target: Target) -> Imported:
    """The program with lookups on the host that are dearer on the device."""
    if not target.host_costs or target.judge is None or not source.is_quantized:
        return source
    program = program_of(source)
    lookups = (_lookup(node, program) for node in program.calls
               if torchapi.target_name(node) in target.host_costs)  # fmt: skip
    moved = {
        found.call.name: (found.integers, reason)
        for found in lookups
        if found is not None and (reason := _dearer(found, program, target))
    }
    if not moved:
        return source
    module = torchapi.module_of(source.model)
    for node in list(module.graph.nodes):
        if node.name in moved:
            _look_up_integers(node, *moved[node.name])
    torchapi.sweep(module.graph)
    module.recompile()
    return source.with_model(module)


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A call that reads a constant table at inputs, and the table as its result is quantized."""

    call: fx.Node
    integers: Tensor


def _lookup(call: fx.Node, program: Program) -> _Lookup | None:
    """The table of a call in integers; None if another kind of value than an input is its index."""
    table, *indices = call.all_input_nodes
    wanted = {user.args[1:] for user in call.users if torchapi.target_name(user) == QUANTIZE}
    others = [user for user in call.users if torchapi.target_name(user) != QUANTIZE]
    numbers = _numbers(table, program)
    if others or len(wanted) != 1 or numbers is None or not indices:
        return None
    if not all(index in program.inputs for index in indices):
        return None
    quantize = next(iter(call.users))
    return _Lookup(call, quantize.target(numbers, *quantize.args[1:]))  # type: ignore[operator]


def _numbers(node: fx.Node, program: Program) -> Tensor | None:
    """The real numbers of a constant that is quantized, or will be."""
    if node in program.tensors:
        return program.tensors[node].detach()
    if torchapi.target_name(node) in DEQUANTIZE and node.args[0] in program.tensors:
        given = fx.map_arg(node.args, lambda n: program.tensors.get(n))
        return None if any(n is None for n in given[:1]) else node.target(*given)  # type: ignore[operator]
    return None


def _dearer(found: _Lookup, program: Program, target: Target) -> str:
    """What the device and the host take for a lookup, in words; "" if the device takes less.

    What the device refuses is the host's as well: in integers its table is smaller than in float.
    """
    call, (table, *indices) = found.call, found.call.all_input_nodes
    count = call.meta["val"].numel()
    cost = target.host_costs[torchapi.target_name(call)]
    theirs = cost.cycles(count, count * found.integers.itemsize)
    walker = Walker(program, Lowering.of(target))
    try:
        for index in indices:
            example = index.meta["val"]
            kind = TensorType(TYPES[example.dtype], tuple(example.shape))
            walker.take(index, Value(kind, index.name))
        for node in (table, call, next(iter(call.users))):
            result = walker.values[node] if node in program.tensors else walker.call(node)
        walker.b.output(result)
    except Unsupported as refusal:
        other = f"the device does not: {refusal.reason}"
    else:
        taken = _device_cycles(walker.b.graph, target, theirs)
        if taken <= theirs:
            return ""
        other = f"the device would take {taken:,} or more"
    size = found.integers.nbytes
    return (
        f"the host copies rows of its table of {size:,} bytes in about {theirs:,} cycles; {other}"
    )


def _device_cycles(graph: Graph, target: Target, theirs: int) -> int:
    """What the judge says of a lookup; a formula that is far beyond the host's cost saves it that.

    The judge compresses the whole table, which takes seconds for a vocabulary.
    """
    assert target.judge is not None
    if target.cost is not None:
        about = sum(map(target.cost, graph.ops))
        if about > _FAR * theirs:
            return round(about)
    (own,) = target.judge([target.improve(graph)])
    return 0 if own is None else own.cycles


def _look_up_integers(node: fx.Node, integers: Tensor, reason: str) -> None:
    """The call on the integers of its table, for those who read its quantized result."""
    table, rows = node.all_input_nodes[0], hold(node, f"{node.name}_rows", integers)
    node.args = fx.map_arg(node.args, lambda n: rows if n is table else n)
    node.meta |= {"val": node.meta["val"].to(integers.dtype), _PLACED: reason}
    for user in list(node.users):
        user.replace_all_uses_with(node)
