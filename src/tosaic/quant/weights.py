"""Observers of weights and biases, which know their layer and write the integers.

torchao would keep the real numbers, look for a free name from the beginning for each parameter
and fold what it made at the end; here each layer is done once, in time that grows with the network.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.row_blocks import by_rows
from tosaic.passes.match import free_name
from tosaic.passes.step_lattice import common
from tosaic.quant.observer import LEAST
from tosaic.quant.pt2e import ObserverBase, UniformQuantizationObserverBase

# A bias leaves room beside it for the products: the accumulator must hold both.
_BITS, _WIDE_BITS = 30, 46
_MOST = 2**31 - 1
# Of so many integers or fewer, scales are tried that leave out the largest magnitudes.
_FEW, _SHRUNK = 31, [1.0 - step / 40 for step in range(25)]


_SMALL = 4096  # elements of a weight that may be whole multiples of a step
_OFF = 1e-4  # of a step


class WeightObserver(UniformQuantizationObserverBase):
    """The largest magnitudes of a weight, looked at once: weights do not change.

    A channel with a bias that would not fit its accumulator gets a larger scale, so that it does:
    beside such a bias the finer digits of the products do not show. Of few integers none are spent
    on magnitudes that are rare: the scale is the one of least error. ``by_data`` says that
    calibration may choose other integers than the nearest ones.
    """

    def __init__(self, ch_axis: int | None = None, by_data: bool = False, **options: Any) -> None:
        super().__init__(**{"eps": LEAST, **options})
        self.ch_axis, self.by_data = ch_axis, by_data
        self.biases: list[BiasObserver] = []
        self.scale: Tensor | None = None
        self.levels: Tensor | None = None  # if they are not the nearest ones
        self.names: list[str] = []  # of the integers and their scales, once they are stored
        self._nearest: tuple[Tensor, Tensor, Tensor] | None = None  # of a weight with scales

    @property
    def has_seen(self) -> bool:
        return self.scale is not None

    def forward(self, x: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = self._scale(x.detach())
        return x

    def _scale(self, real: Tensor) -> Tensor:
        """One scale, or one for each channel."""
        rows = real.reshape(1, -1) if self.ch_axis is None else real.movedim(self.ch_axis, 0)
        rows = rows.flatten(1)
        most = _largest(rows).double() / min(-self.quant_min, self.quant_max)
        if self.quant_max - self.quant_min <= _FEW:
            most = by_rows(self._best, rows, most)
        if real.numel() <= _SMALL:
            most = self._even(rows.double(), most)
        scale: Tensor = most.clamp(min=LEAST).float()
        return scale

    def _even(self, rows: Tensor, scale: Tensor) -> Tensor:
        """The steps of rows that are whole multiples of one, such as those of a Sobel filter."""
        levels = rows / scale.clamp(min=LEAST)[:, None]
        is_exact = ((levels - levels.round()).abs() <= _OFF).all(1).tolist()
        made = scale.tolist()
        for index, numbers in enumerate(rows.abs().tolist()):
            step = None if is_exact[index] else common(sorted(set(numbers)))
            if step is not None and max(numbers) <= step * (self.quant_max + _OFF):
                made[index] = step
        return scale.new_tensor(made)

    def _best(self, rows: Tensor, most: Tensor) -> Tensor:
        """Scales of least error for rows."""
        rows, factors = rows.double(), most.new_tensor(_SHRUNK)
        errors = torch.stack([self._error(rows, most * factor) for factor in factors])
        best: Tensor = most * factors[errors.argmin(0)]
        return best

    def _error(self, rows: Tensor, scale: Tensor) -> Tensor:
        steps = scale.clamp(min=LEAST)[:, None]
        levels = (rows / steps).round_().clamp_(self.quant_min, self.quant_max)
        return levels.mul_(steps).sub_(rows).square_().sum(1)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        scale = torch.ones(1) if self.scale is None else self.scale
        for bias in self.biases:
            scale = torch.maximum(scale, bias.least_scale(len(scale)))
        return scale, torch.zeros(scale.shape, dtype=torch.int64)

    def rounded(self, real: Tensor, scale: Tensor) -> Tensor:
        """Integers of a weight in steps of a scale."""
        if self.levels is not None:
            return self.levels
        if self._nearest is not None:
            weight, before, levels = self._nearest
            if weight.data_ptr() == real.data_ptr() and torch.equal(before, scale):
                return levels
        levels = by_rows(self._levels, real, self.along(scale, real.dim()))
        self._nearest = real, scale, levels
        return levels

    def _levels(self, real: Tensor, steps: Tensor) -> Tensor:
        levels = real.double().div_(steps)
        return levels.round_().clamp_(self.quant_min, self.quant_max).to(torch.int8)

    def along(self, scale: Tensor, rank: int) -> Tensor:
        """Scales where a weight of that rank has its channels."""
        shape = [-1 if axis == self.ch_axis else 1 for axis in range(rank)]
        return scale.double().reshape(shape)

    def convert(self, model: fx.GraphModule, node: fx.Node) -> None:
        """Replace the observer by integers and what they mean."""
        scale, _ = self.calculate_qparams()
        limits = self.quant_min, self.quant_max, self.dtype
        source = node.all_input_nodes[0]
        if source.op == "get_attr":
            if not self.names:
                real = torchapi.attribute(model, str(source.target)).detach()
                self.names = _stored(model, node, self.rounded(real, scale), scale)
            _replace(model, node, self.names, scale, self.ch_axis, limits)
            return
        with model.graph.inserting_before(node):  # computed from constants: torchao folds it
            names = _stored(model, node, None, scale)
            meaning = _meaning(model, names, scale, self.ch_axis)
            levels = _call(model, "quantize", self.ch_axis, source, meaning, limits)
            real_again = _call(model, "dequantize", self.ch_axis, levels, meaning, limits)
        node.replace_all_uses_with(real_again)
        model.graph.erase_node(node)


class PerChannelWeightObserver(WeightObserver):
    """With a scale for each channel; torchao gives the axis to observers with such a name."""


class PerTensorWeightObserver(WeightObserver):
    """With one scale."""


class BiasObserver(ObserverBase):
    """A bias in the scale of the products, so that it adds to the accumulator as it is.

    ``wide`` says that the layer reads 16 bits, for which the accumulator has 48. A bias that needs
    more than 32 of them stays real in the program, which has no integers for it, and is rounded
    when it is lowered.
    """

    def __init__(self, source: Any, weight: WeightObserver, wide: bool) -> None:
        super().__init__(dtype=torch.int32)
        self.ch_axis: int | None = 0
        self.qscheme = torch.per_channel_symmetric
        if weight.ch_axis is None:
            self.qscheme, self.ch_axis = torch.per_tensor_symmetric, None
        self._layer = source, weight  # in a tuple: modules with places of their own
        self.is_wide, self.bits = wide, _WIDE_BITS if wide else _BITS
        self.values = torch.zeros(0)
        self.names: list[str] = []
        weight.biases.append(self)

    @property
    def has_seen(self) -> bool:
        return self.values.numel() > 0

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
        scale = source * weight
        if self.ch_axis is not None:
            scale = scale.repeat(max(self.values.numel() // weight.numel(), 1))
        return scale, torch.zeros(scale.shape, dtype=torch.int64)

    def convert(self, model: fx.GraphModule, node: fx.Node) -> None:
        """Replace the observer by integers, where 32 bits hold them."""
        scale, _ = self.calculate_qparams()
        levels = (self.values.double() / scale.double()).round()
        if bool((levels.abs() > _MOST).any()):
            node.replace_all_uses_with(node.all_input_nodes[0])
            model.graph.erase_node(node)
            return
        if not self.names:
            self.names = _stored(model, node, levels.to(torch.int32), scale)
        _replace(model, node, self.names, scale, self.ch_axis, (-_MOST, _MOST, torch.int32))


def _largest(rows: Tensor) -> Tensor:
    """The largest magnitude of each row that is a number."""
    most = torch.maximum(rows.amax(1), -rows.amin(1))
    if bool(most.isfinite().all()):
        return most
    return rows.abs().nan_to_num(0, 0, 0).amax(1)


def _replace(
    model: fx.GraphModule, node: fx.Node, names: list[str], scale: Tensor, axis: int | None,
    limits: tuple[Any, ...],
) -> None:  # fmt: skip
    """Stored integers and a dequantize call in place of an observer."""
    with model.graph.inserting_before(node):
        levels = model.graph.get_attr(names[0])
        meaning = _meaning(model, names[1:], scale, axis)
        made = _call(model, "dequantize", axis, levels, meaning, limits)
    made.meta = {k: v for k, v in node.meta.items() if k != "val"}
    node.replace_all_uses_with(made)
    model.graph.erase_node(node)


def _meaning(
    model: fx.GraphModule, names: list[str], scale: Tensor, axis: int | None
) -> tuple[Any, ...]:
    """Scale and zero point as the operators of torchao take them: numbers, or stored tensors."""
    if axis is None:
        return float(scale), 0
    return *map(model.graph.get_attr, names), axis


def _call(
    model: fx.GraphModule, name: str, axis: int | None, source: fx.Node, meaning: tuple[Any, ...],
    limits: tuple[Any, ...],
) -> fx.Node:  # fmt: skip
    kind = "per_tensor" if axis is None else "per_channel"
    operator = getattr(torch.ops.quantized_decomposed, f"{name}_{kind}").default
    return model.graph.call_function(operator, (source, *meaning, *limits))


def _stored(
    model: fx.GraphModule, node: fx.Node, levels: Tensor | None, scale: Tensor
) -> list[str]:
    """Buffers named after the observed parameter and the observer, which is unique."""
    number = node.name.rpartition("_")[2]
    owner = str(node.all_input_nodes[0].target if node.all_input_nodes[0].op == "get_attr" else "")
    zeros = torch.zeros(scale.shape, dtype=torch.int64)
    made = []
    for kind, tensor in (("levels", levels), ("scale", scale.clone()), ("zero_point", zeros)):
        if tensor is not None:
            made.append(free_name(model, f"{owner.replace('.', '_')}_{kind}_{number}"))
            model.register_buffer(made[-1], tensor)
    return made
