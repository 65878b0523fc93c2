"""Exact products of integer matrices: 8-bit digits on oneDNN's int8 kernels, floats otherwise.

An operand is a sum of digits, each an int8 matrix times a power of 256, and of one number for all
elements, of which zero points are a part. Products of digits are exact in int32.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from tosaic.errors import Unpredictable
from tosaic.interp.bounds import Ends
from tosaic.interp.device import is_gpu
from tosaic.interp.exact import FLOAT32_EXACT, strict_float32
from tosaic.interp.rescale import dtype_range

# Multiplications of one matrix from which digits are faster: than float32, than float64.
_LARGE, _WIDE = 1 << 20, 1 << 17
LONGEST = 1 << 16  # terms of a sum, so that products of bytes fit int32


def matmul(
    a: Tensor, b: Tensor, *, a_zp: int = 0, b_zp: int = 0, accumulator: torch.dtype = torch.int32,
    a_ends: Ends | None = None, b_ends: Ends | None = None,
) -> Tensor:  # fmt: skip
    """MATMUL of [N, H, C] and [N, C, W]: exact, whatever the operands.

    The ends are what is known of the operands, if it is less than all of their types.
    """
    ends = a_ends or dtype_range(a.dtype), b_ends or dtype_range(b.dtype)
    peaks = [max(zp - low, high - zp) for (low, high), zp in zip(ends, (a_zp, b_zp))]
    bound = peaks[0] * peaks[1] * a.shape[2]
    dtype = torch.float32 if bound < FLOAT32_EXACT else torch.float64
    size = a.shape[1] * a.shape[2] * b.shape[2]
    least = _LARGE if dtype is torch.float32 else _WIDE
    if size >= least and a.shape[2] <= LONGEST and bound < 1 << 52 and available():
        total = _by_digits(_digits(a, ends[0], a_zp), _digits(b, ends[1], b_zp), bound)
    else:
        with strict_float32():
            total = torch.bmm(a.to(dtype) - a_zp, b.to(dtype) - b_zp)
    low, high = dtype_range(accumulator)
    if bound > high and bool(((total < low) | (total > high)).any()):
        raise Unpredictable("a sum lies outside its accumulator")
    return total.to(accumulator)


Digits = tuple[list[Tensor], int]  # int8 tensors, the lowest first, and a number for all elements


def _digits(x: Tensor, ends: Ends, zero_point: int) -> Digits:
    if ends[0] >= -128 and ends[1] <= 127:
        return [x.to(torch.int8)], -zero_point
    if ends[1] - ends[0] <= 255:
        middle = ends[0] + 128
        return [(x - middle).to(torch.int8)], middle - zero_point
    # The low byte is taken as it is and lowered by 128.
    return [(x.to(torch.uint8) ^ 128).view(torch.int8), (x >> 8).to(torch.int8)], 128 - zero_point


def _by_digits(a: Digits, b: Digits, bound: int) -> Tensor:
    (left, more_left), (right, more_right) = a, b
    count, rows, terms = left[0].shape
    wide = torch.int32 if bound < 1 << 28 and len(left) == len(right) == 1 else torch.int64
    left, right = list(map(dense, left)), list(map(dense, right))
    total = torch.empty((count, rows, right[0].shape[2]), dtype=wide)
    pairs = [(i, j) for i in reversed(range(len(left))) for j in reversed(range(len(right)))]
    # What one number for all elements adds: times the sums of rows and of columns.
    by_row = _sums(left, 2, wide).mul_(more_right) if more_right else None
    by_column = None
    if more_left:
        by_column = _sums(right, 1, wide).add_(more_right * terms).mul_(more_left)
    for n in range(count):
        for i, j in pairs:
            if (i, j) == pairs[0] and wide is torch.int32:
                torch._int_mm(left[i][n], right[j][n], out=total[n])
            elif (i, j) == pairs[0]:
                total[n] = torch._int_mm(left[i][n], right[j][n])
                if i + j:
                    total[n] <<= 8 * (i + j)
            else:
                product = torch._int_mm(left[i][n], right[j][n])
                total[n].add_(product, alpha=1 << 8 * (i + j))
        for sums in (by_row, by_column):
            if sums is not None:
                total[n].add_(sums[n])
    return total


def dense(x: Tensor) -> Tensor:
    """The same with the strides of its shape: of one element PyTorch allows any stride.

    oneDNN takes one below a row's length for a mistake, and then _int_mm of PyTorch 2.13 leaves its
    result as it was (pytorch/pytorch#195066).
    """
    return x.contiguous().view(-1).view(x.shape)


def signed_sums(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of the positive and of the negative elements of each row of an int8 matrix."""
    ones = torch.ones(1, rows.shape[1], dtype=torch.int8)
    positive, total = (torch._int_mm(ones, dense(part).T)[0] for part in (rows.clamp(min=0), rows))
    return positive, total - positive


def _sums(digits: list[Tensor], axis: int, wide: torch.dtype) -> Tensor:
    """The sums of a matrix along an axis, of those of its digits."""
    total = digits[0].sum(axis, keepdim=True, dtype=wide)
    for place, part in enumerate(digits[1:], 1):
        total.add_(part.sum(axis, keepdim=True, dtype=wide), alpha=1 << 8 * place)
    return total


def available() -> bool:
    """Is the operator there, and is it exact on this processor? Some saturate sums of two."""
    return not is_gpu() and _works()


@lru_cache(maxsize=1)
def _works() -> bool:
    make = torch.Generator().manual_seed(0)
    try:
        for rows, terms, columns in ((17, 33, 5), (64, 64, 64), (3, 1500, 64), (40, 200, 31)):
            a = torch.randint(-128, 128, (rows, terms), generator=make).to(torch.int8)
            b = torch.randint(-128, 128, (terms, columns), generator=make).to(torch.int8)
            a[0], a[1], b[:, 0], b[:, 1] = -128, 127, -128, 127
            right = a.double() @ b.double()
            for each in (b, b.T.contiguous().T):
                if not torch.equal(torch._int_mm(a, each).double(), right):
                    return False
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return True
