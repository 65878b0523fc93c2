"""Block-scaled (MX) layers under the names that users of ExecuTorch's Arm backend know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchao.core.config import AOBaseConfig
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx

from tosaic.errors import InvalidInput
from tosaic.front.torchapi.mx import ELEMENTS, MX_CONV2D, MX_LINEAR
from tosaic.spec.dtypes import BLOCK


@dataclass
class MXFPOpConfig(AOBaseConfig):  # type: ignore[misc]
    """The type of weights and activations, and how the scales of weights are chosen."""

    weight_dtype: Any = torch.float8_e4m3fn
    weight_scaling_mode: ScaleCalculationMode = ScaleCalculationMode.RCEIL

    @property
    def block_size(self) -> int:
        """Input channels that share a scale."""
        return BLOCK

    def __post_init__(self) -> None:
        if self.weight_dtype not in ELEMENTS:
            known = ", ".join(map(str, ELEMENTS))
            raise InvalidInput(f"TOSA has no blocks of {self.weight_dtype}; it has {known}")
        if not isinstance(self.weight_scaling_mode, ScaleCalculationMode):
            raise InvalidInput(f"{self.weight_scaling_mode!r} is no ScaleCalculationMode")


class MXFPLayer(nn.Module):
    """A linear layer or a convolution that rounds weights once, and activations when it runs."""

    def __init__(self, layer: nn.Linear | nn.Conv2d, config: MXFPOpConfig) -> None:
        super().__init__()
        self.layer, self.element = layer.requires_grad_(False), ELEMENTS[config.weight_dtype]
        layer.weight.copy_(_rounded(layer.weight, config))

    def forward(self, x: Tensor) -> Tensor:
        own = self.layer
        if isinstance(own, nn.Linear):
            made: Tensor = MX_LINEAR(x, own.weight, own.bias, self.element)
            return made
        pads = own._reversed_padding_repeated_twice
        if own.padding_mode != "zeros" or pads[::2] != pads[1::2]:
            mode = "constant" if own.padding_mode == "zeros" else own.padding_mode
            x, pads = F.pad(x, pads, mode), [0] * 4
        windows = own.stride, [pads[2], pads[0]], own.dilation, own.groups
        made = MX_CONV2D(x, own.weight, own.bias, *windows, self.element)
        return made


def to_mxfp(
    model: nn.Module,
    config: MXFPOpConfig,
    filter_fn: Callable[[nn.Module, str], bool] | None = None,
) -> None:
    """Make block-scaled layers of a model's linear layers and convolutions, in place.

    ``filter_fn`` is asked about each layer and its name; without it all are taken.
    """
    for name, module in list(model.named_modules()):
        if not isinstance(module, (nn.Linear, nn.Conv2d)) or name.endswith(".layer"):
            continue
        if filter_fn is None or filter_fn(module, name):
            path, _, own = name.rpartition(".")
            if not name:
                raise InvalidInput("the model is a layer itself: give a module that holds it")
            setattr(model.get_submodule(path), own, MXFPLayer(module, config))


def _rounded(weight: Tensor, config: MXFPOpConfig) -> Tensor:
    """Weights as torchao rounds them, in blocks of input channels."""
    rows = weight.detach().float().movedim(1, -1)
    whole = F.pad(rows, (0, -rows.shape[-1] % BLOCK)).contiguous()
    kind = config.weight_dtype
    scale, data = to_mx(whole, kind, BLOCK, config.weight_scaling_mode)
    real: Tensor = to_dtype(data, scale, kind, BLOCK, torch.float32)
    return real[..., : rows.shape[-1]].movedim(-1, 1)
