"""Rounds weights by the statistics of their inputs, to reduce the error of the layer.

The nearest integer of each weight is not the best for their sum: inputs of a layer are alike, so
that an error in one weight can be made up for by the next. Weights are rounded one after the other,
and each takes over what is left of the errors before it, as far as the inputs that calibration has
seen go together (as in Frantar and others, "GPTQ", 2022, arXiv:2210.17323).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.quant.correlation import Spread, spread_of
from tosaic.quant.value_names import CALIBRATED

_ROWS = 256  # places of an input that are looked at
_BLOCK = 64  # terms whose errors are passed on at once
_MOST = 640  # terms that are looked at together: the time grows with their third power


class Together:
    """How the inputs of a layer go together: their covariance, for parts of the terms of a sum."""

    def __init__(self, layer: fx.Node, weight: Tensor) -> None:
        bound = torchapi.bound_arguments(layer)
        self.groups = int(bound.get("groups", 1))
        self.sizes = tuple(weight.shape[2:])
        whole = weight[0].numel()
        self.parts = next(n for n in range(1, whole + 1) if whole % n == 0 and whole // n <= _MOST)
        self.terms = whole // self.parts
        axes = len(self.sizes)
        self.stride, self.dilation = (_each(bound.get(k), axes) for k in ("stride", "dilation"))
        self.padding = _padding(bound.get("padding", 0), self.sizes, self.dilation)
        self.count = 0
        blocks = self.groups * self.parts
        self.first = torch.zeros(blocks, self.terms, dtype=torch.float64)
        self.second = torch.zeros(blocks, self.terms, self.terms, dtype=torch.float64)

    def see(self, x: Tensor) -> None:
        rows = self._rows(x.float()).transpose(0, 1)  # [blocks, places, terms]
        if bool(rows.isfinite().all()):
            self.first += rows.sum(1).double()
            self.second += (rows.transpose(1, 2) @ rows).double()
            self.count += rows.shape[1]

    def _rows(self, x: Tensor) -> Tensor:
        """Some of the places of an input, with what a sum is made of: [places, blocks, terms]."""
        axes = len(self.sizes)
        if not axes:
            rows = x.reshape(-1, self.parts, self.terms)
            return rows[:: max(len(rows) // _ROWS, 1)]
        x = x.reshape(-1, *x.shape[-1 - axes :])
        x = torch.nn.functional.pad(x, [n for pair in reversed(self.padding) for n in pair])
        for axis, (size, step, gap) in enumerate(zip(self.sizes, self.stride, self.dilation), 2):
            x = x.unfold(axis, (size - 1) * gap + 1, step)[..., ::gap]
        every = max(round((x.shape[0] * x.shape[2 : 2 + axes].numel() / _ROWS) ** (1 / axes)), 1)
        taken = (slice(None), slice(None), *(slice(None, None, every),) * axes)
        x = x[taken]
        places = (0, *range(2, 2 + axes), 1, *range(2 + axes, 2 + 2 * axes))
        return x.permute(places).reshape(-1, self.groups * self.parts, self.terms)

    def spread(self) -> Spread | None:
        """Their covariance in few bytes: what a file of ranges holds gives the same weights."""
        if not self.count:
            return None
        mean = self.first / self.count
        found = self.second / self.count - mean[:, :, None] * mean[:, None, :]
        return spread_of(found, self.groups, self.parts, self.count)


def together(layer: fx.Node, weight: Tensor) -> Together | None:
    """For layers of which it is known how they read their input."""
    name = torchapi.target_name(layer).split(".")[1]
    return Together(layer, weight) if name in ("linear", "conv1d", "conv2d", "conv3d") else None


def rounded(weight: Tensor, steps: Tensor, limits: tuple[int, int], seen: Spread) -> Tensor | None:
    """Integers of a weight [O, ...], one term after the other; those that count most come first.

    None where the data is too large or too alike to say which rounding is better.
    """
    covariance = seen.covariance()
    # Single precision and a stable order: terms that count alike are told apart by nothing else.
    size = covariance.diagonal(dim1=1, dim2=2).mean(0).float()
    order = size.argsort(descending=True, stable=True)
    covariance = covariance[:, order][:, :, order]
    root, failed = torch.linalg.cholesky_ex(covariance)
    if bool(failed.any()) or not bool(root.isfinite().all()):
        return None
    left, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(root), upper=True)
    if bool(failed.any()) or not bool(left.isfinite().all()):
        return None
    shape = seen.groups, -1, seen.parts, seen.terms
    apart = weight.double().reshape(shape).transpose(1, 2)  # [groups, parts, channels, terms]
    real = apart.flatten(0, 1)[:, :, order]
    steps = steps.expand(weight.shape[0], *[1] * (weight.dim() - 1)).reshape(seen.groups, -1)
    steps = steps.repeat_interleave(seen.parts, 0)
    levels = torch.empty(len(real), seen.terms, real.shape[1], dtype=torch.int8)
    for start in range(0, seen.terms, _BLOCK):
        stop = min(start + _BLOCK, seen.terms)
        inner = left[:, start:stop, start:stop]
        part = real[:, :, start:stop].transpose(1, 2).contiguous()  # a term is a row, side by side
        errors = torch.empty_like(part)
        for term in range(stop - start):
            found = (part[:, term] / steps).round_().clamp_(*limits)
            levels[:, start + term] = found
            errors[:, term] = (part[:, term] - found * steps) / inner[:, term, term, None]
            part[:, term + 1 :] -= inner[:, term, term + 1 :, None] * errors[:, term, None]
        real[:, :, stop:] -= errors.transpose(1, 2).contiguous() @ left[:, start:stop, stop:]
    whole = levels[:, order.argsort()].transpose(1, 2).reshape(apart.shape).transpose(1, 2)
    return whole.reshape(weight.shape)


def taps_inside(layer: fx.Node, sizes: Sequence[int]) -> Tensor:
    """The share of results for which each tap of a kernel lies inside of the input.

    None does where some results see padding alone: those are the bias, which has to stay as it is.
    """
    shares, source = torch.ones(1, dtype=torch.float64), layer.all_input_nodes[0]
    while source.op == "call_module":  # an observer
        source = source.all_input_nodes[0]
    bound = torchapi.bound_arguments(layer)
    shape = torchapi.known_shape(source.meta.get(CALIBRATED, source.meta["val"]))
    if not sizes or shape is None or bound.get("transposed") or "transpose" in str(layer.target):
        return torch.ones(math.prod(sizes), dtype=torch.float64)
    axes = len(sizes)
    strides, gaps = (_each(bound.get(key), axes) for key in ("stride", "dilation"))
    padding = _padding(bound.get("padding", 0), sizes, gaps)
    if not any(map(any, padding)):
        return torch.ones(math.prod(sizes), dtype=torch.float64)
    for count, size, step, gap, (low, high) in zip(shape[-axes:], sizes, strides, gaps, padding):
        ends = torch.arange(0, count + low + high - (size - 1) * gap, step) - low
        places = ends + gap * torch.arange(size)[:, None]
        inside = (places >= 0) & (places < count)
        along = inside.double().mean(1) * bool(inside.any(0).all())
        shares = (shares[:, None] * along).flatten()
    return shares


def _each(given: Any, axes: int) -> tuple[int, ...]:
    numbers = [1] if given is None else list(given) if isinstance(given, Sequence) else [given]
    return tuple(numbers * axes if len(numbers) == 1 else numbers)


def _padding(given: Any, sizes: Sequence[int], gaps: Sequence[int]) -> list[tuple[int, int]]:
    if given == "valid":
        return [(0, 0)] * len(sizes)
    if given == "same":
        totals = [(size - 1) * gap for size, gap in zip(sizes, gaps)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(n, n) for n in _each(given, len(sizes))]
