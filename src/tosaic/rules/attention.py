"""Attention as one operator, with scores and probabilities of 16 bits and more.

In integers exponentials are multiplied with the values as they are, and each row of the result is
divided by their sum: probabilities of long rows are never rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.alternatives.mask import is_mask
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules import _scores
from tosaic.rules._matmul import products
from tosaic.rules._operands import converted, minus, operands, scale_of, times
from tosaic.rules._rows import reciprocal
from tosaic.rules._scores import Exponentials, Mask, Scores, known_mask
from tosaic.rules._sums import finished, largest, zero_point
from tosaic.rules.linear import batched, multiply
from tosaic.spec import dtypes as d

_LONGEST = 1 << 15
_SHORT = 64  # a row of which every share has 9 bits and more
_LOWEST = -3.0e38  # instead of −∞, whose differences are no numbers


@dataclass(frozen=True, slots=True)
class _Heads:
    """Query, key and value as [N, rows, C], and the shape of the scores as PyTorch has them."""

    query: Value
    key: Value  # turned: [N, C, S]
    value: Value
    scores: tuple[int, ...]

    @property
    def flat(self) -> tuple[int, ...]:
        return (*self.query.shape[:2], self.scores[-1])


def _heads(b: Lowering, query: Value, key: Value, value: Value, grouped: bool) -> _Heads:
    """Heads that share a key and a value are rows of one product."""
    if grouped and query.type.rank > 2 and query.shape[-3] != key.shape[-3]:
        batch = key.shape[:-2]
        if query.shape[:-3] != batch[:-1] or value.shape[:-2] != batch:
            raise Unsupported("grouped heads of attention need query, key and value of one batch")
        rows = query.type.size // math.prod(batch) // query.shape[-1]
        q = b.reshape(query, (math.prod(batch), rows, query.shape[-1]))
        scores = (*query.shape[:-1], key.shape[-2])
    else:
        batch = np.broadcast_shapes(*(v.shape[:-2] for v in (query, key, value)))
        q, scores = batched(b, query, batch), (*batch, query.shape[-2], key.shape[-2])
    k, v = batched(b, key, batch), batched(b, value, batch)
    return _Heads(q, b.permute(k, (0, 2, 1)), v, scores)


def _mask(b: Lowering, given: Value | None, is_causal: bool, heads: _Heads, bound: float) -> Mask:
    """The mask of integer scores, in their rank."""
    rank, (rows, columns) = len(heads.scores), heads.scores[-2:]
    if is_causal:
        allowed = np.tril(np.ones((rows, columns), bool))
        return Mask(allowed=allowed.reshape((1,) * (rank - 2) + allowed.shape))
    if given is None:
        return Mask()
    shape = (1,) * (rank - given.type.rank) + given.shape
    if given.const is None or not given.is_const:
        if is_mask(given):
            return Mask(allowed=b.reshape(given, shape), has_empty_rows=True)
        if given.quant is None:
            raise Unsupported("a mask of numbers beside quantized tensors must be quantized too")
        return Mask(added=b.reshape(given, shape))
    array = given.const.array.reshape(shape)
    real = np.where(array, 0.0, -np.inf) if is_mask(given) else array.astype(np.float64)
    if given.quant is not None and not is_mask(given):
        real = (real - given.quant.zero_point) * scale_of(given)
    return known_mask(np.broadcast_to(real, (*shape[:-1], columns)), bound)


def _scores_of(b: Lowering, heads: _Heads, scale: float) -> tuple[Fixed, float]:
    """Sums of products as int32, and how far from 0 they can be."""
    q, k = heads.query, heads.key
    if k.quant is None or q.quant is None or q.dtype is not k.dtype or scale <= 0:
        raise Unsupported("attention in integers needs query, key and value of one type")
    unit = scale_of(q) * scale_of(k) * scale
    most = q.shape[-1] * largest(q) * largest(k)
    sums = products(b, q, k, unit)
    if q.dtype is d.I16:
        spare = max(most.bit_length() - 27, _scores.spare_bits(unit))
        sums, most = sums.to(d.I32, unit * 2.0**spare), most + 1
    return sums.map(lambda v: b.reshape(v, heads.scores)), most * unit


_Form = Callable[[Lowering, Scores], Exponentials]


def _integers(
    b: Lowering, heads: _Heads, mask: Value | None, is_causal: bool, scale: float
) -> Value:
    if heads.scores[-1] > _LONGEST:
        raise Unsupported(f"attention over {heads.scores[-1]} elements; {_LONGEST} is the most")

    def form(exponentials: _Form, weigh: Callable[..., Value]) -> Callable[[], Value]:
        def build() -> Value:
            sums, bound = _scores_of(b, heads, scale)
            made = Scores(sums, bound, _mask(b, mask, is_causal, heads, bound))
            return weigh(b, exponentials(b, made), heads)

        return build

    if heads.query.dtype is d.I16:
        return first(b, form(_scores.exact, _by_two_shorts), form(_scores.fine, _by_products))
    return first(
        b,
        form(_scores.short, _by_shares),
        form(_scores.short, _by_shorts),
        form(_scores.short, _by_products),
        form(_scores.in_bytes, _by_two_bytes),
    )


def _divided(sums: Fixed, total: Fixed, bits: int, value: Value) -> Value:
    """sums / total, where a total of a row that allows something has ``bits`` bits.

    The result is within the values' range, whose bits it has 30 of: the shift follows. A mean
    of values is no further from zero than the furthest of them, and its roundings are small.
    """
    inverse = reciprocal(_at_least_half(total, bits), bits, exact=value.dtype is d.I16)
    unit = 2.0 ** (largest(value).bit_length() - 30)
    made = sums.times(inverse, unit).proved(-(2.0**30.5) * unit, 2.0**30.5 * unit)
    return made.at(scale_of(value) * unit).quantized()


def _at_least_half(total: Fixed, bits: int) -> Fixed:
    """Sums of rows, where those that allow nothing must not be 0."""
    return total.maximum((1 << (bits - 1)) * total.unit)


def _flat(e: Exponentials, heads: _Heads) -> Fixed:
    return e.values.map(lambda values: e.values.b.reshape(values, heads.flat))


def _short(b: Lowering, value: Value) -> Value:
    return value if value.dtype is d.I16 else b.rescale(value, [1.0], 0, d.I16)


def _weighed(b: Lowering, shares: Fixed, value: Value) -> Fixed:
    """int16 shares times int16 values, whose sums have 48 bits."""
    zero = b.const([0], d.I16)
    return Fixed(b, b.MATMUL(shares.value, value, zero, zero, out=d.I48), shares.unit)


def _by_shorts(b: Lowering, e: Exponentials, heads: _Heads) -> Value:
    """int16 exponentials times int16 values, whose sums have 48 bits."""
    short = _flat(e, heads)
    total = short.to(d.I32).sum(2)
    sums, _ = _weighed(b, short, _short(b, heads.value)).fitted(30)
    return _divided(sums, total, 15, heads.value)


def _by_two_shorts(b: Lowering, e: Exponentials, heads: _Heads) -> Value:
    """Exponentials of 30 bits as two int16, each with a product of its own."""
    length = heads.scores[-1]
    high, low = _flat(e, heads).split(15)
    up = 15 - math.ceil(math.log2(length))  # the bits that a sum of the upper ones leaves
    totals = [v.sum(2) for v in (high, low)]
    total = (totals[0] << up) + totals[1].to(d.I32, 2.0 ** (15 - up)).at(1.0)
    spare = max((length * 32767 * largest(heads.value)).bit_length() - 29, 0)
    parts = [
        _weighed(b, part.to(d.I16), heads.value).to(d.I32, 2.0**bits).at(2.0**spare)
        for part, bits in ((high, spare), (low, spare + 15))
    ]
    return _divided(parts[0] + parts[1], total.at(2.0**-up), 15 + up, heads.value)


def _by_shares(b: Lowering, e: Exponentials, heads: _Heads) -> Value:
    """Short rows: probabilities as int16, which leave nothing to divide in the result."""
    length = heads.scores[-1]
    if length > _SHORT or length > 2 * heads.value.shape[-1]:
        raise Unsupported("probabilities of long rows are too small for int16")
    short = _flat(e, heads)
    total = _at_least_half(short.to(d.I32).sum(2), 15)
    inverse = reciprocal(total, 15, exact=False)
    brief = inverse.to(d.I16, 1 / (16384 * 32767))  # 16384 and little more
    shares = (short * brief).to(d.I16, 1 / 32767)
    sums = _weighed(b, shares, _short(b, heads.value))
    return finished(b, sums.at(scale_of(heads.value) / 32767).quantized(), 1, 24)


def _by_products(b: Lowering, e: Exponentials, heads: _Heads) -> Value:
    """int16 exponentials times values, for targets without such products of matrices."""
    short = _flat(e, heads)
    total = short.to(d.I32).sum(2)
    sums, _ = products(b, short.value, heads.value, 1.0).fitted(30)
    return _divided(sums, total, 15, heads.value)


def _by_two_bytes(b: Lowering, e: Exponentials, heads: _Heads) -> Value:
    """Exponentials of 16 bits as two bytes, each with a product of its own."""
    whole, v = _flat(e, heads), heads.value
    sums = []
    for byte in whole.split_down(8):
        short = b.rescale(byte.value, [1.0], -128, d.I8)
        zeros = b.const([-128], d.I8), zero_point(b, v)
        sums.append(Fixed(b, b.MATMUL(short, v, *zeros, out=d.I32)))
    upper, lower = sums
    spare = max((heads.scores[-1] * 65535 * 255).bit_length() - 30, 0)
    if spare > 8:
        raise Unsupported(
            f"attention over {heads.scores[-1]} elements needs int16, which the target lacks"
        )
    if spare < 8:
        upper <<= 8 - spare
    if spare:
        lower >>= spare
    return _divided((upper + lower).at(2.0**spare), whole.sum(2), 16, v)


def _float(b: Lowering, heads: _Heads, mask: Value | None, is_causal: bool, scale: float) -> Value:
    """In float32 but for the products' operands, as PyTorch computes it."""
    kind = heads.query.dtype
    sums = multiply(b, times(b, heads.query, scale), heads.key)
    x = b.reshape(converted(b, sums, d.F32), heads.scores)
    if is_causal:
        rows, columns = heads.scores[-2:]
        mask = b.const(np.tril(np.ones((rows, columns), bool)), d.BOOL)
    if mask is not None:
        x = _masked(b, x, mask)
    below = minus(b, x, extreme(b, "REDUCE_MAX", x, x.type.rank - 1))
    exponentials = b.EXP(below)
    if mask is not None and not is_causal:  # a row may allow nothing, and is 0 then
        some = b.GREATER(x, b.number(_LOWEST / 2, x))
        exponentials = b.SELECT(some, exponentials, b.number(0.0, x))
    total = b.REDUCE_SUM(exponentials, axis=x.type.rank - 1)
    if mask is not None:
        total = b.MAXIMUM(total, b.number(2.0**-60, total))
    shares = converted(b, times(b, exponentials, b.RECIPROCAL(total)), kind)
    return multiply(b, b.reshape(shares, heads.flat), heads.value)


def _masked(b: Lowering, x: Value, mask: Value) -> Value:
    x, mask = b.same_rank(x, mask)
    if mask.dtype is d.BOOL:
        return b.SELECT(mask, x, b.number(_LOWEST, x))
    x, mask = operands(b, x, converted(b, mask, d.F32))
    return b.MAXIMUM(b.ADD(x, mask), b.number(_LOWEST, x))


_SAMPLES = (
    Sample(((1, 2, 6, 8), (1, 2, 6, 8), (1, 2, 6, 8))),
    Sample(((2, 5, 16), (2, 9, 16), (2, 9, 4)), keywords=(("scale", 0.5),)),
    Sample(((1, 2, 6, 8), (1, 2, 6, 8), (1, 2, 6, 8)), (None, 0.0, True)),
    Sample(
        ((2, 2, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8), (2, 1, 5, 7)),
        kinds=("", "", "", "bool"),
    ),
    Sample(
        ((1, 4, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8)),
        keywords=(("enable_gqa", True),),
    ),
    Sample(((1, 2, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8), (5, 6))),
    Sample(((7, 12), (10, 12), (10, 3)), domain=(-1.0, 1.0)),
)


@rule("aten.scaled_dot_product_attention.default", masks=("attn_mask",), samples=_SAMPLES)
def scaled_dot_product_attention(
    b: Lowering, query: Value, key: Value, value: Value, attn_mask: Value | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if dropout_p:
        raise Unsupported("attention with dropout: call eval() before export")
    heads = _heads(b, query, key, value, enable_gqa)
    size = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    build = _float if query.quant is None else _integers
    made = build(b, heads, attn_mask, is_causal, size)
    if made.quant is not None:
        made = b.requantized(made)  # before the reshape, where it is fused
    return b.reshape(made, (*heads.scores[:-1], value.shape[-1]))
