"""Control flow: branches and loops of steps in the network's own function."""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.ir.graph import Graph, Op
from tosaic.targets.cortexm.lowering import Lowerer, c_type, kernel
from tosaic.targets.cortexm.program import Branch, Item, Loop
from tosaic.targets.cortexm.views import Buffer, View, whole


def _region(
    lowerer: Lowerer, region: Graph, ins: Sequence[View], outs: Sequence[Buffer]
) -> list[Item]:
    """The steps of a region, from views of its inputs into buffers of its outputs."""
    child = Lowerer(region, lowerer.core, lowerer.program)
    child.items = []
    for value, view in zip(region.inputs, ins, strict=True):
        child.keep(value, View(view.buffer, view.offset, tuple(value.shape), view.strides))
    for value, buffer in zip(region.outputs, outs, strict=True):
        child.wanted.setdefault(child.source(value), []).append(buffer)
    child.body()
    return child.items


@kernel("COND_IF")
def cond_if(lowerer: Lowerer, op: Op) -> None:
    condition = lowerer.view(op.ins[0])
    ins = [lowerer.view(value) for value in op.ins[1:]]
    outs = [lowerer.new(value) for value in op.outs]
    then, other = (_region(lowerer, region, ins, outs) for region in op.regions)
    lowerer.items.append(Branch(condition, then, other, (op,)))
    for value, buffer in zip(op.outs, outs):
        lowerer.keep(value, whole(buffer, value.shape))


@kernel("WHILE_LOOP")
def while_loop(lowerer: Lowerer, op: Op) -> None:
    """The state lies in the buffers of the results; a turn computes all of the next one first."""
    holds, body = op.regions
    state = [whole(lowerer.new(value), value.shape) for value in op.outs]
    for value, view in zip(op.ins, state):
        lowerer.store(lowerer.lazy(value), view, (op,))
    flag = Buffer("uint8_t", 1, value=holds.outputs[0])
    before = _region(lowerer, holds, state, [flag])
    after = [Buffer(c_type(v), v.type.size, value=v) for v in body.outputs]
    steps = _region(lowerer, body, state, after)
    inner = Lowerer(body, lowerer.core, lowerer.program)
    inner.items = steps
    for buffer, view in zip(after, state):
        inner.copy(whole(buffer, view.shape), view, buffer.count, (op,))
    lowerer.items.append(Loop(whole(flag, ()), before, steps, (op,)))
    for value, view in zip(op.outs, state):
        lowerer.keep(value, view)
