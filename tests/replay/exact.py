"""Weights and inputs that are the same on every processor: integers of PCG64 times powers of two.

PyTorch's normal distributions and batch norms that have seen data differ in their last bits.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

Random = np.random.Generator
_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def drawn(random: Random, shape: tuple[int, ...] | torch.Size, exponent: int = -6) -> Tensor:
    """Multiples of a power of two, from -127 to 127 of them."""
    return torch.from_numpy(random.integers(-127, 128, tuple(shape)) * 2.0**exponent).float()


@torch.no_grad()
def with_exact_weights(net: nn.Module, seed: int = 0) -> nn.Module:
    """Give a network drawn weights, of the size that keeps the scale of what goes through it."""
    random = np.random.default_rng(seed)
    norms = {id(v) for m in net.modules() if isinstance(m, _NORMS) for v in m.parameters(False)}
    for name, value in sorted(
        {**dict(net.named_parameters()), **dict(net.named_buffers())}.items()
    ):
        if not value.is_floating_point():
            continue
        if name.endswith("running_var") or (id(value) in norms and name.endswith("weight")):
            value.copy_(1 + drawn(random, value.shape, -8))
        elif isinstance(value, nn.Parameter) and value.ndim > 1:
            terms = value[0].numel()
            value.copy_(drawn(random, value.shape, round(math.log2(1 / terms) / 2) - 6))
        elif isinstance(value, nn.Parameter) or name.endswith("running_mean"):
            value.copy_(drawn(random, value.shape, -9))
        else:  # tables and masks, computed in floats: without their last bits
            value.copy_(torch.where(value.abs() < 1e4, (value * 4096).round() / 4096, value))
    return net.eval()
