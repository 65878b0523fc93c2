"""Layer, root mean square, group and instance norms, and batch norms by the batch itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.lowering.builder import Lowering
from tosaic.rules._normalised import Affine, normalised, rows_of
from tosaic.rules._operands import first_of
from tosaic.rules.norm import batch_norm
from tosaic.spec import dtypes as d

First = tuple[Value, None, None]  # a norm and what of its statistics has no form
_EPS = {d.F16: 2.0**-10, d.BF16: 2.0**-7}  # what PyTorch takes where none is given


def _over_last(
    b: Lowering, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None,
    eps: float, centred: bool,
) -> Value:  # fmt: skip
    count = math.prod(shape)
    if tuple(shape) != x.shape[x.type.rank - len(shape) :]:
        raise Unsupported(f"normalized_shape is {tuple(shape)}, and the tensor is {x.shape}")
    rows = rows_of(b, x, count)
    affine = Affine(weight, bias, (1, 1, *rows.shape), 3)
    return b.reshape(normalised(b, rows, eps, affine, centred), x.shape)


_LAYER = (
    Sample(((2, 5, 16), (16,), (16,)), ([16],)),
    Sample(((3, 24),), ([24], None, None, 1e-3)),
    Sample(((2, 4, 6, 5), (6, 5), (6, 5)), ([6, 5], 1e-6)),
    Sample(((1, 7, 96), (96,)), ([96], None, 1e-5), domain=(-0.5, 4.0)),
    Sample(((10, 2),), ([2], None, None, 0.25)),
    Sample(((48,), (48,), (48,)), ([48],), domain=(-100.0, 100.0)),
)


@rule("aten.layer_norm.default", constants=True, samples=_LAYER)
def layer_norm(
    b: Lowering, input: Value, normalized_shape: Sequence[int], weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> Value:  # fmt: skip
    return _over_last(b, input, normalized_shape, weight, bias, eps, centred=True)


_NATIVE = (Sample(((2, 5, 16), (16,), (16,)), ([16], 1e-5)), _LAYER[1])
rule("aten.native_layer_norm.default", constants=True, samples=_NATIVE)(first_of(layer_norm, 3))


@rule(
    "aten.rms_norm.default",
    constants=True,
    samples=[
        Sample(((2, 5, 16), (16,)), ([16], 1e-5)),
        Sample(((3, 24),), ([24],), domain=(-1.0, 5.0)),
        Sample(((2, 4, 6, 5), (6, 5)), ([6, 5],)),
        Sample(((40,),), ([40], None, 0.1)),
    ],
)
def rms_norm(
    b: Lowering, input: Value, normalized_shape: Sequence[int], weight: Value | None = None,
    eps: float | None = None,
) -> Value:  # fmt: skip
    if eps is None:
        eps = _EPS.get(input.dtype, 2.0**-23)
    return _over_last(b, input, normalized_shape, weight, None, eps, centred=False)


rule("aten._fused_rms_norm.default", constants=True,
     samples=[Sample(((2, 5, 16), (16,)), ([16], 1e-5))])(first_of(rms_norm, 2))  # fmt: skip


@rule(
    "aten.group_norm.default",
    constants=True,
    samples=[
        Sample(((1, 8, 4, 4), (8,), (8,)), (2,)),
        Sample(((2, 6, 5), (6,), (6,)), (6,)),
        Sample(((3, 12),), (4, None, None, 1e-3)),
        Sample(((2, 4, 2, 3, 3), (4,)), (1, None, 1e-5), domain=(0.0, 9.0)),
    ],
)
def group_norm(
    b: Lowering, input: Value, num_groups: int, weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Value:  # fmt: skip
    batch, channels, *inner = input.shape
    size = math.prod(inner)
    rows = rows_of(b, input, channels // num_groups * size)
    affine = Affine(weight, bias, (batch, channels, size), 1)
    return b.reshape(normalised(b, rows, eps, affine), input.shape)


@rule(
    "aten.native_group_norm.default",
    constants=True,
    samples=[Sample(((2, 8, 4, 4), (8,), (8,)), (2, 8, 16, 4, 1e-5))],
)
def native_group_norm(
    b: Lowering, input: Value, weight: Value | None, bias: Value | None, N: int, C: int, HxW: int,
    group: int, eps: float,
) -> First:  # fmt: skip
    return group_norm(b, input, group, weight, bias, eps), None, None


@rule(
    "aten.instance_norm.default",
    constants=True,
    samples=[
        Sample(((2, 3, 5, 4), (3,), (3,)), (None, None, True, 0.1, 1e-5, True)),
        Sample(((1, 4, 30),), (None, None, None, None, True, 0.1, 1e-3, True)),
        Sample(((2, 3, 4, 4), (3,), (3,), (3,), (3,)), (False, 0.1, 1e-5, True), domain=(0.2, 2.0)),
    ],
)
def instance_norm(
    b: Lowering, input: Value, weight: Value | None, bias: Value | None,
    running_mean: Value | None, running_var: Value | None, use_input_stats: bool, momentum: float,
    eps: float, cudnn_enabled: bool,
) -> Value:  # fmt: skip
    if not use_input_stats:
        return batch_norm(
            b, input, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled
        )
    if running_mean is not None or running_var is not None:
        raise Unsupported("an instance norm in training mode: call eval() before export")
    return group_norm(b, input, input.shape[1], weight, bias, eps)


@rule(
    "aten._native_batch_norm_legit.no_stats",
    constants=True,
    samples=[
        Sample(((1, 6, 4, 4), (6,), (6,)), (True, 0.1, 1e-5)),
        Sample(((4, 3, 5),), (None, None, True, 0.1, 1e-3)),
        Sample(((9, 5), (5,), (5,)), (True, 0.1, 1e-5)),
    ],
)
def batch_norm_by_batch(
    b: Lowering, input: Value, weight: Value | None, bias: Value | None, training: bool,
    momentum: float, eps: float,
) -> First:  # fmt: skip
    """Each channel by its mean and variance over the whole batch."""
    order = (1, 0, *range(2, input.type.rank))
    transposed = b.permute(input, order) if input.shape[0] > 1 else b.reshape(
        input, tuple(input.shape[i] for i in order)
    )  # fmt: skip
    rows = rows_of(b, transposed, input.type.size // input.shape[1])
    y = b.reshape(normalised(b, rows, eps, Affine(weight, bias, rows.shape, 0)), transposed.shape)
    if input.shape[0] == 1:
        return b.reshape(y, input.shape), None, None
    return b.permute(y, np.argsort(order).tolist()), None, None
