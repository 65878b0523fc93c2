"""Scaling arithmetic of the output stage: multiply, shift, round, clamp, look up."""

from __future__ import annotations

import numpy as np
import torch

from tosaic.errors import Unsupported
from tosaic.sim.ethosu.arrays import Ints
from tosaic.sim.ethosu.registers import Rounding

_SAFE = 1 << 62


def rescale(values: Ints, multiplier: int | Ints, shift: int | Ints, rounding: Rounding) -> Ints:
    """values * multiplier / 2^shift, exactly, with one of the hardware's roundings."""
    if isinstance(multiplier, int) and isinstance(shift, int) and (multiplier, shift) == (1, 0):
        return values.astype(np.int64, copy=False)
    product = multiply(values, multiplier)
    right = np.asarray(shift)
    if not right.any():
        return _narrow(product)
    if rounding is Rounding.DOUBLE_SYMMETRIC:
        return _narrow(_double(product, values, right))
    if rounding is Rounding.NATURAL and product.dtype != object and right.min() > 0:
        # Products of 63 bits leave room for half a step; nobody else reads them.
        whole, shifts = torch.from_numpy(product), torch.from_numpy(right.astype(np.int64))
        whole.add_(1 << shifts - 1).bitwise_right_shift_(shifts)
        return product
    return _narrow(shift_right(product, right, rounding))


def shift_right(product: Ints, right: Ints, rounding: Rounding) -> Ints:
    """A shift that rounds once."""
    if rounding is Rounding.TRUNCATE_TO_LOWER:
        return product >> right
    if rounding is Rounding.TRUNCATE_TO_ZERO:
        return np.where(product < 0, -(-product >> right), product >> right)
    if rounding is Rounding.NATURAL:
        return _half_up(product, right)
    if rounding in (Rounding.SYMMETRIC, Rounding.DOUBLE_SYMMETRIC):
        return _half_away(product, right)
    raise Unsupported(f"the rounding {rounding.value}")


def multiply(values: Ints, multiplier: int | Ints) -> Ints:
    """The products; numbers of any size where 64 bits may not do."""
    factor = np.asarray(multiplier)
    if values.dtype.itemsize <= 4 and factor.dtype.kind == "i" and np.abs(factor).max() < 1 << 31:
        return np.multiply(values, factor, dtype=np.int64)
    largest = max(int(values.max()), -int(values.min())) if values.size else 0
    wide = values.size and largest * int(np.abs(factor).max()) >= _SAFE
    result: Ints = values.astype(object) * factor.astype(object) if wide else values * factor
    return result


def limited(values: Ints, lowest: int, highest: int) -> Ints:
    """The nearest of the integers from the lowest to the highest; PyTorch is faster than NumPy."""
    return torch.from_numpy(values).clamp_(lowest, highest).numpy()


def _narrow(result: Ints) -> Ints:
    """Back to 64 bits; what lies beyond wraps round, as it does when bits are cut off."""
    if result.dtype != object:
        return result
    half = 1 << 63
    wrapped: Ints = ((result + half) % (2 * half) - half).astype(np.int64)
    return wrapped


def _half_up(product: Ints, shift: Ints) -> Ints:
    if shift.min() > 0:
        result = product >> (shift - 1)
        result += 1
        result >>= 1
        return result
    one = np.where(shift > 0, shift - 1, 0)
    return np.where(shift > 0, ((product >> one) + 1) >> 1, product)


def _half_away(product: Ints, shift: Ints) -> Ints:
    return np.where(product < 0, -_half_up(-product, shift), _half_up(product, shift))


def _double(product: Ints, values: Ints, shift: Ints) -> Ints:
    """First to 31 bits, then the rest, as TOSA's DOUBLE_ROUND and TensorFlow Lite define it.

    Half of 2^31 goes away from zero, then half of the shift upwards; both at once.
    """
    nudge = np.where(values < 0, -(1 << 30), 1 << 30)
    return _half_up(np.where(shift > 31, product + nudge, product), shift)
