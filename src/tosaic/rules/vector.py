"""Products of vectors, and sums with them."""

from __future__ import annotations

import math

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import scale_of
from tosaic.rules._sums import largest
from tosaic.rules._variance import spread
from tosaic.rules.activation import leaky_relu
from tosaic.rules.elementwise import mul
from tosaic.rules.linear import addmm, matmul
from tosaic.spec import dtypes as d


@rule("aten.mv.default", samples=[Sample(((5, 8), (8,)))])
def mv(b: Lowering, self: Value, vec: Value) -> Value:
    return matmul(b, self, vec)


@rule("aten.dot.default", "aten.vdot.default", samples=[Sample(((12,), (12,)))])
def dot(b: Lowering, self: Value, tensor: Value | None = None, other: Value | None = None) -> Value:
    second = tensor if tensor is not None else other
    assert second is not None
    return matmul(b, self, second)


@rule("aten.outer.default", samples=[Sample(((5,), (7,)))])
def outer(b: Lowering, self: Value, vec2: Value) -> Value:
    return mul(b, b.reshape(self, (self.type.size, 1)), b.reshape(vec2, (1, vec2.type.size)))


@rule(
    "aten.addmv.default",
    samples=[
        Sample(((5,), (5, 8), (8,))),
        Sample(((5,), (5, 8), (8,)), keywords=(("beta", 0.5), ("alpha", 2.0))),
    ],
)
def addmv(
    b: Lowering, self: Value, mat: Value, vec: Value, beta: float = 1, alpha: float = 1
) -> Value:
    rows = b.reshape(self, (self.type.size, 1))
    found = addmm(b, rows, mat, b.reshape(vec, (vec.type.size, 1)), beta, alpha)
    return b.reshape(found, (mat.shape[0],))


@rule(
    "aten.addr.default",
    samples=[
        Sample(((5, 7), (5,), (7,))),
        Sample(((7,), (5,), (7,)), keywords=(("alpha", 0.5),)),
    ],
)
def addr(
    b: Lowering, self: Value, vec1: Value, vec2: Value, beta: float = 1, alpha: float = 1
) -> Value:
    column, row = b.reshape(vec1, (vec1.type.size, 1)), b.reshape(vec2, (1, vec2.type.size))
    return addmm(b, self, column, row, beta, alpha)


_DISTANCES = [
    Sample(((2, 4, 3), (2, 5, 3)), (1.0,)),
    Sample(((4, 6), (5, 6)), (1.0,)),
    Sample(((4, 6), (5, 6)), (math.inf,)),
    Sample(((4, 3), (2, 5, 3)), (2.0,), steps16=2),
    Sample(((4, 6), (5, 6)), (2.0,), domain=(0.0, 5.0), steps16=2),
    Sample(((3, 40), (4, 40)), (2.0,), steps16=2),
    Sample(((4, 6), (5, 6)), (3.0,), integers=()),
    Sample(((4, 6), (5, 6)), (0.0,), integers=(), whole=True),
]


@rule(
    "aten.cdist.default",
    samples=_DISTANCES,
    why="of the roots of sums only the square root is computed in integers",
)
@rule("aten._cdist_forward.default")
def cdist(
    b: Lowering, x1: Value, x2: Value, p: float = 2.0, compute_mode: int | None = None
) -> Value:
    """Every row of one with every row of the other."""
    left = b.reshape(x1, (*x1.shape[:-1], 1, x1.shape[-1]))
    right = b.reshape(x2, (*x2.shape[:-2], 1, *x2.shape[-2:]))
    left, right = b.same_rank(left, right)
    axis = left.type.rank - 1
    quant: Quant | None = None
    if left.quant is not None:
        if p not in (1, 2, math.inf):
            raise Unsupported(
                "distances of quantized values are lowered for p = 1, 2 and infinity: of the "
                "roots of sums only the square root is computed in integers"
            )
        reach = sum(scale_of(v) * largest(v) for v in (left, right))
        left, right, quant = _one_scale(b, left, right, x1.shape[-1])
        if p == 2:
            return _euclidean(b, b.with_quant(left, quant), right, reach)
    apart = b.ABS(b.SUB(left, right))
    if p == math.inf:
        found = extreme(b, "REDUCE_MAX", apart, axis)
    elif p == 1:
        found = b.REDUCE_SUM(apart, axis=axis)
    elif p == 2:
        squares = b.REDUCE_SUM(b.mul(apart, apart), axis=axis)
        found = b.RECIPROCAL(b.RSQRT(squares))
    elif p > 0:
        powers = b.REDUCE_SUM(b.POW(apart, b.number(p, apart)), axis=axis)
        found = b.POW(powers, b.number(1 / p, powers))
    else:
        zero, one = b.number(0.0, apart), b.number(1.0, apart)
        found = b.REDUCE_SUM(b.SELECT(b.EQUAL(apart, zero), zero, one), axis=axis)
    return b.reshape(b.with_quant(found, quant), found.shape[:-1])


def _euclidean(b: Lowering, x: Value, y: Value, reach: float) -> Value:
    """√Σ (x − y)² of int32 operands in one scale, from differences in int16."""
    scale, apart = scale_of(x), b.SUB(x, y)
    short = b.with_quant(b.rescale(apart, [scale * 32767 / reach], 0, d.I16), Quant(reach / 32767))
    rows = b.reshape(short, (short.type.size // short.shape[-1], short.shape[-1]))
    found = b.requantized(spread(b, rows, 0.0, centred=False).root(reach / 32767))
    return b.reshape(found, short.shape[:-1])


def _one_scale(b: Lowering, x: Value, y: Value, terms: int) -> tuple[Value, Value, Quant]:
    """Two operands in one scale, as fine as int32 can add up so many differences of them."""
    bits = 29 - x.dtype.bits - math.ceil(math.log2(terms))
    if bits < 0:
        raise Unsupported("the sum of so many integers does not fit int32")
    scales = scale_of(x), scale_of(y)
    left, right = (b.widened(v, bits, s / max(scales)) for v, s in zip((x, y), scales))
    return left, right, Quant(max(scales) / 2.0**bits)


@rule("aten.rrelu.default", samples=[Sample(((2, 3, 4),)), Sample(((40,),), (0.1, 0.5))])
def rrelu(
    b: Lowering, self: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
    generator: object = None,
) -> Value:  # fmt: skip
    if training:
        raise Unsupported("rrelu in training mode is random: call eval() before exporting")
    return leaky_relu(b, self, (lower + upper) / 2)
