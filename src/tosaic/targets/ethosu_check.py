"""Does a stream compute what its graph says? It is run on the simulator, beside the interpreter.

Vela 5.2 compiles some forms wrongly, beside others even such as are right alone. What this finds is
a failure of Vela like any other: the call stays on the CPU, with the reason.
"""

from __future__ import annotations

import numpy as np

from tosaic.errors import ToolFailed, TosaicError
from tosaic.front.masks import Mask
from tosaic.interp.model import Model
from tosaic.ir.graph import Array, Graph, Value
from tosaic.targets.vela import VelaResult

# Bytes of weights up to which a check takes about a second, as weights are decoded in Python; and
# up to which it is worth some for operators that Vela has been seen to compile wrongly.
_CHEAP, _WORTH_IT = 1 << 19, 1 << 22
_PROVED = frozenset(
    {"CONV2D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D", "MAX_POOL2D", "AVG_POOL2D", "ADD", "SUB",
     "MUL", "CLAMP", "RESCALE", "TABLE", "RESHAPE", "TRANSPOSE", "CONCAT", "SLICE", "PAD",
     "RESIZE", "MATMUL", "MAXIMUM", "MINIMUM", "CONST", "CONST_SHAPE", "IDENTITY"}
)  # fmt: skip


def is_worth_a_check(graph: Graph, result: VelaResult) -> bool:
    """Whether a stream is checked unless the user says otherwise."""
    is_common = all(op.name in _PROVED for op in graph.ops)
    return len(result.weights) <= (_CHEAP if is_common else _WORTH_IT)


def check_stream(graph: Graph, result: VelaResult) -> None:
    """ToolFailed if the stream gives another result than the graph for arbitrary inputs."""
    from tosaic.sim.ethosu import load

    random = np.random.default_rng(0)
    given = [_numbers(random, value) for value in graph.inputs]
    try:
        wanted = Model(graph).run(*given)
    except TosaicError:
        return  # these inputs have no result, such as indices of nothing
    try:
        found = load(result).run(*given)
    except TosaicError as problem:
        raise ToolFailed(f"Vela compiles the graph wrongly: {problem}") from None
    if len(found) != len(wanted):
        raise ToolFailed(
            f"Vela compiles the graph wrongly: it gives {len(found)} of {len(wanted)} results"
        )
    for number, (ours, right) in enumerate(zip(found, wanted, strict=True)):
        wrong = int(np.count_nonzero(ours.reshape(right.shape) != right.astype(ours.dtype)))
        if wrong:
            raise ToolFailed(
                f"Vela compiles the graph wrongly: {wrong} of {right.size} elements of result "
                f"{number} are others than TOSA's"
            )


def _numbers(random: np.random.Generator, value: Value) -> Array:
    """All that a type holds; 0 and 1 for a mask, small numbers for what may be an index."""
    low, high = value.dtype.range
    if isinstance(value.quant, Mask):
        low, high = 0, 1
    elif value.quant is None:
        low, high = 0, 3
    made: Array = random.integers(low, high + 1, value.shape).astype(value.dtype.array)
    return made
