"""Operators that change a shape: elements keep their order, change it by axes, or repeat.

PyTorch says what they do: the operator itself runs on a tensor without data. Its result has the
new shape, and where the sizes tell the axes apart, their new order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from tosaic.front.registry import Sample, shared
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives import data_movement as moves
from tosaic.lowering.builder import Lowering


def meta_result(name: str, sizes: Sequence[int], arguments: dict[str, Any]) -> Any:
    """What an operator makes of a tensor of some sizes, without its data."""
    packet, overload = name.split(".")
    given = {k: _empty(v.shape) if isinstance(v, Value) else v for k, v in arguments.items()}
    return getattr(getattr(torch.ops.aten, packet), overload)(_empty(sizes), **given)


def _empty(sizes: Sequence[int]) -> torch.Tensor:
    return torch.empty(tuple(sizes), device="meta")


def _reshaped(name: str, b: Lowering, self: Value, **arguments: Any) -> Value:
    return b.reshape(self, meta_result(name, self.shape, arguments).shape)


def _permuted(name: str, b: Lowering, self: Value, **arguments: Any) -> Value:
    made = meta_result(name, range(2, self.type.rank + 2), arguments)
    return b.permute(self, [size - 2 for size in made.shape])


def _expanded(name: str, b: Lowering, self: Value, **arguments: Any) -> Value:
    return moves.expanded(b, self, meta_result(name, self.shape, arguments).shape)


_VIEWS = (Sample(((2, 3, 4),), ([6, 4],)), Sample(((2, 3, 4),), ([2, -1],)),
          Sample(((2, 6, 2, 2),), ([-1],)))  # fmt: skip
_LIKE = (Sample(((2, 3, 4), (4, 6))), Sample(((6, 4), (1, 2, 12))))
_MATRICES = (Sample(((3, 4),)), Sample(((5,),)))
_ROWS: dict[Any, dict[str, tuple[Sample, ...]]] = {
    _reshaped: {
        "view.default": _VIEWS,
        "reshape.default": _VIEWS,
        "_reshape_alias.default": (),
        "view_as.default": _LIKE,
        "reshape_as.default": _LIKE,
        "flatten.using_ints": (Sample(((2, 3, 4),), (1,)), Sample(((2, 3, 4),)),
                               Sample(((2, 3, 4, 2),), (1, -2))),
        "ravel.default": (Sample(((2, 3, 4),)), Sample(((5,),))),
        "unflatten.int": (Sample(((2, 12, 3),), (1, [3, 4])),
                          Sample(((2, 12),), (-1, [2, -1, 3]))),
        "squeeze.default": (Sample(((1, 3, 1, 4),)), Sample(((2, 3),))),
        "squeeze.dim": (Sample(((1, 3, 1, 4),), (2,)), Sample(((3, 1),), (-1,)),
                        Sample(((3, 2),), (1,))),
        "squeeze.dims": (Sample(((1, 3, 1, 4),), ([0, -2],)),
                         Sample(((1, 3, 1, 4),), ([1, 2],))),
        "unsqueeze.default": (Sample(((3, 4),), (1,)), Sample(((3, 4),), (-1,)),
                              Sample(((3, 4),), (0,))),
    },
    _permuted: {
        "permute.default": (Sample(((2, 3, 4),), ([2, 0, 1],)), Sample(((2, 3),), ([-1, 0],)),
                            Sample(((1, 2, 3, 2, 4),), ([0, 3, 1, -1, 2],))),
        "transpose.int": (Sample(((2, 3, 4),), (1, 2)), Sample(((2, 3, 4),), (-1, 0))),
        "t.default": _MATRICES,
        "numpy_T.default": _MATRICES,
        "mT.default": (Sample(((3, 4),)), Sample(((2, 3, 4),))),
        "movedim.int": (Sample(((2, 3, 4),), (0, -1)), Sample(((2, 3, 4, 2),), (3, 1))),
        "movedim.intlist": (Sample(((2, 3, 4),), ([0, 1], [-1, 0])),
                            Sample(((2, 3, 4, 2),), ([3, -3], [0, 2]))),
    },
    _expanded: {
        "expand.default": (Sample(((3, 1),), ([3, 4],)), Sample(((1, 3, 1),), ([2, -1, 4],)),
                           Sample(((3, 1),), ([2, 3, 2],))),
        "broadcast_to.default": (Sample(((3, 1),), ([2, 3, 4],)), Sample(((4,),), ([3, 4],))),
        "expand_as.default": (Sample(((3, 1), (2, 3, 4))),),
    },
}  # fmt: skip
for _how, _overloads in _ROWS.items():
    for _name, _samples in _overloads.items():
        shared(f"aten.{_name}", samples=_samples)(partial(_how, _name))


@shared(
    "aten.repeat.default", samples=[Sample(((2, 3),), ([2, 2],)), Sample(((3,),), ([4, 2, 1],))]
)
def repeat(b: Lowering, self: Value, repeats: Sequence[int]) -> Value:
    extra = len(repeats) - self.type.rank
    return moves.tiled(b, b.reshape(self, (1,) * extra + self.shape), repeats)


@shared("aten.tile.default", samples=[Sample(((2, 3),), ([2, 2],)), Sample(((2, 3, 2),), ([3],))])
def tile(b: Lowering, self: Value, dims: Sequence[int]) -> Value:
    return repeat(b, self, (*(1,) * (self.type.rank - len(dims)), *dims))


@shared(
    "aten.repeat_interleave.self_int",
    samples=[Sample(((2, 3),), (2,)), Sample(((2, 3, 4),), (3, 1)), Sample(((2, 3),), (2, -1))],
)
def repeat_interleave(
    b: Lowering, self: Value, repeats: int, dim: int | None = None, output_size: int | None = None
) -> Value:
    """Each element along an axis several times: a new axis behind it, repeated."""
    x = b.reshape(self, (self.type.size,)) if dim is None else self
    axis = (dim or 0) % max(x.type.rank, 1)
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    if x.type.rank + 1 > b.env.level.max_rank:
        before, after = (math.prod(before),), (math.prod(after),)
    apart = b.reshape(x, (*before, 1, *after))
    multiples = [1] * len(before) + [repeats] + [1] * len(after)
    shape = [s * repeats if i == axis else s for i, s in enumerate(x.shape)]
    return b.reshape(moves.tiled(b, apart, multiples), shape)
