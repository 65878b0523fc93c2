"""Constants that a mean divides by: what they are for each count of elements.

A mean over an axis whose size is unknown is a REDUCE_SUM and a factor of its own for each size:
in float a number that it is multiplied by, in integers the multiplier and shift of a RESCALE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Op
from tosaic.ir.multipliers import multipliers_and_shifts

MOST = 1 << 16  # numbers of a table
_PASSED = ("RESHAPE", "TRANSPOSE", "REDUCE_SUM")

Numbers = tuple[int, ...]


def counted(ops: Sequence[Op]) -> tuple[Numbers, list[tuple[Op, int]]]:
    """How many elements go into what one operator of each graph reads: numbers, and sums."""
    now, numbers, sums = list(ops), [1] * len(ops), list[tuple[Op, int]]()
    while True:
        sources = [next((v.producer for v in op.ins if v.const is None), None) for op in now]
        before = [op for op in sources if op is not None and op.name in _PASSED]
        if len(before) < len(ops) or len({op.name for op in before}) > 1:
            return tuple(numbers), sums
        now = before
        if now[0].name == "REDUCE_SUM":
            axis = now[0].attrs["axis"]
            sizes = [op.ins[0].shape[axis] for op in now]
            if len(set(sizes)) > 1:
                sums.append((now[0], axis))
            numbers = [a * b for a, b in zip(numbers, sizes)]


def table(
    ops: Sequence[Op], position: int, arrays: Sequence[Array], counts: Numbers
) -> Array | None:
    """The numbers of an operand for each count up to twice the largest; None if no rule is known.

    What the rule gives for the counts that there are must be what these graphs have.
    """
    most = min(2 * max(counts), MOST - 1)
    if max(counts) > most or len({array.shape for array in arrays}) > 1 or arrays[0].size != 1:
        return None
    make = _integers(ops, position, counts) if ops[0].name == "RESCALE" else _real(arrays, counts)
    if make is None:
        return None
    try:
        numbers = make(np.maximum(np.arange(most + 1), 1))
    except Unsupported:
        return None
    if any(numbers[count] != array.reshape(-1)[0] for count, array in zip(counts, arrays)):
        return None
    return numbers.astype(arrays[0].dtype)


def _integers(ops: Sequence[Op], position: int, counts: Numbers) -> Callable[[Array], Array] | None:
    """Multipliers or shifts, from what the integers before and behind mean."""
    given, made = (value.quant for value in (ops[0].ins[0], ops[0].outs[0]))
    if position not in (1, 2) or given is None or made is None:
        return None
    total, scale = given.one_scale * counts[0], made.one_scale
    bits = 31 if ops[0].attrs["scale32"] else 15
    return lambda numbers: multipliers_and_shifts(total / numbers / scale, bits)[position - 1]


def _real(arrays: Sequence[Array], counts: Numbers) -> Callable[[Array], Array] | None:
    """A short number such as 1 over the count, or over one less, as of a variance."""
    if arrays[0].dtype.kind != "f":
        return None
    one, other = (float(array.reshape(-1)[0]) for array in (arrays[0], arrays[-1]))
    less = int(abs(one * counts[0] - other * counts[-1]) > 1e-5 * abs(one * counts[0]))
    over = float(np.float32(f"{one * (counts[0] - less):.6g}"))
    return lambda numbers: (over / np.maximum(numbers - less, 1)).astype(arrays[0].dtype)
