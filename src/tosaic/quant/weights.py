"""Observers of weights and biases: they know their layer, and write the integers themselves.

torchao would keep the real numbers, look for a free name from the beginning for each parameter
and fold what it made at the end; here each layer is done once, in time that grows with the network.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.quant.observer import LEAST
from tosaic.quant.pt2e import ObserverBase, PerChannelMinMaxObserver

# A bias leaves room beside it for the products: the accumulator must hold both.
_BITS, _WIDE_BITS = 30, 46
_MOST = 2**31 - 1


class PerChannelWeightObserver(PerChannelMinMaxObserver):
    """The largest magnitude of each channel, looked at once: weights do not change.

    A channel with a bias that would not fit its accumulator gets a larger scale, so that it does:
    beside such a bias the finer digits of the products do not show.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"eps": LEAST, **options})
        self.biases: list[BiasObserver] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.min_val.numel() == 0:
            super().forward(x)
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        scale, zero_point = super().calculate_qparams()
        for bias in self.biases:
            scale = torch.maximum(scale, bias.least_scale(len(scale)))
        return scale, zero_point

    def convert(self, model: fx.GraphModule, node: fx.Node) -> None:
        """Replace the observer by integers and what they mean."""
        scale, zero_point = self.calculate_qparams()
        source = node.args[0]
        assert isinstance(source, fx.Node)
        limits = self.ch_axis, self.quant_min, self.quant_max, self.dtype
        if source.op == "get_attr":
            real = torchapi.attribute(model, str(source.target)).detach().float()
            levels = _operators().quantize_per_channel(real, scale, zero_point, *limits)
            _replace(model, node, levels, scale, zero_point, limits)
            return
        with model.graph.inserting_before(node):  # computed from constants: torchao folds it
            names = _stored(model, node, scale=scale, zero_point=zero_point)
            quantized = model.graph.call_function(
                _operators().quantize_per_channel.default, (source, *names, *limits)
            )
            real_again = model.graph.call_function(
                _operators().dequantize_per_channel.default, (quantized, *names, *limits)
            )
        node.replace_all_uses_with(real_again)
        model.graph.erase_node(node)


class BiasObserver(ObserverBase):
    """A bias in the scale of the products, so that it adds to the accumulator as it is.

    ``wide`` says that the accumulator has 48 bits. A bias that needs more than 32 of them stays
    real in the program, which has no integers for it, and is rounded when it is lowered.
    """

    def __init__(self, source: Any, weight: PerChannelWeightObserver, wide: bool) -> None:
        super().__init__(dtype=torch.int32)
        self.qscheme, self.ch_axis = torch.per_channel_symmetric, 0
        self._layer = source, weight  # in a tuple: modules with places of their own
        self.bits = _WIDE_BITS if wide else _BITS
        self.values = torch.zeros(0)
        weight.biases.append(self)

    def forward(self, x: Tensor) -> Tensor:
        self.values = x.detach()
        return x

    def least_scale(self, channels: int) -> Tensor:
        """The smallest scale of weights for which each bias fits; groups share channels."""
        most = self.values.double().abs().reshape(-1, channels).amax(0)
        source = float(self._layer[0].calculate_qparams()[0])
        return (most / source / 2.0**self.bits).float()

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        (source, _), (weight, _) = (observer.calculate_qparams() for observer in self._layer)
        scale = (source * weight).repeat(max(self.values.numel() // weight.numel(), 1))
        return scale, torch.zeros(scale.shape, dtype=torch.int64)

    def convert(self, model: fx.GraphModule, node: fx.Node) -> None:
        """Replace the observer by integers, where 32 bits hold them."""
        scale, zero_point = self.calculate_qparams()
        levels = (self.values.double() / scale.double()).round()
        if bool((levels.abs() > _MOST).any()):
            node.replace_all_uses_with(node.all_input_nodes[0])
            model.graph.erase_node(node)
            return
        limits = 0, -_MOST, _MOST, torch.int32
        _replace(model, node, levels.to(torch.int32), scale, zero_point, limits)


def _operators() -> Any:
    return torch.ops.quantized_decomposed


def _replace(
    model: fx.GraphModule, node: fx.Node, levels: Tensor, scale: Tensor, zero_point: Tensor,
    limits: tuple[Any, ...],
) -> None:  # fmt: skip
    """Stored integers and a dequantize call in place of an observer."""
    with model.graph.inserting_before(node):
        parts = _stored(model, node, levels=levels, scale=scale, zero_point=zero_point)
        made = model.graph.call_function(
            _operators().dequantize_per_channel.default, (*parts, *limits)
        )
    made.meta = {k: v for k, v in node.meta.items() if k != "val"}
    node.replace_all_uses_with(made)
    model.graph.erase_node(node)


def _stored(model: fx.GraphModule, node: fx.Node, **tensors: Tensor) -> list[fx.Node]:
    """Buffers named after the observed parameter and the observer, which is unique."""
    number = node.name.rpartition("_")[2]
    owner = str(node.all_input_nodes[0].target if node.all_input_nodes[0].op == "get_attr" else "")
    made = []
    for kind, tensor in tensors.items():
        path = f"{owner.replace('.', '_')}_{kind}_{number}"
        model.register_buffer(path, tensor.clone())
        made.append(model.graph.get_attr(path))
    return made
