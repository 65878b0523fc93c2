"""Which calls fuse: an activation or a sum that uses the accumulator of the call before it."""

from __future__ import annotations

from torch import fx

from tosaic.front import torchapi

_NAMESPACE = "quantized_decomposed"
QUANTIZE = f"{_NAMESPACE}.quantize_per_tensor.default"
DEQUANTIZE = {
    f"{_NAMESPACE}.dequantize_per_tensor.default",
    f"{_NAMESPACE}.dequantize_per_channel.default",
}
_PRODUCTS = frozenset({
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "convolution", "linear", "addmm", "mm", "bmm", "matmul",
})  # fmt: skip
_SUMS = frozenset({"add", "sub"})
_PRELU = frozenset({"prelu", "_prelu_kernel"})
_LIMITS = frozenset({"relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max"})


def fuses_activation(before: str, after: str) -> bool:
    """Whether a call of ``after`` is free on the accumulator that ``before`` leaves.

    It is for limits of a range that are numbers, which are part of the rescaling that has to happen
    anyway.
    """
    is_limit = _plain(after) in _LIMITS and not after.endswith(".Tensor")
    return is_limit and _plain(before) in _PRODUCTS | _SUMS | {"mul"}


def fuses_sum(before: str, after: str) -> bool:
    """Whether a call of ``after`` can take the accumulator that ``before`` leaves as it is.

    It saves a rescaling and a rounding; whether it saves time is for the target to say.
    """
    return _plain(before) in _PRODUCTS and _plain(after) in _SUMS | _PRELU


def _plain(target: str) -> str:
    """``aten.relu.default`` as ``relu``; no name for what is no ATen operator."""
    space, _, rest = target.partition(".")
    return rest.partition(".")[0] if space == "aten" else ""


def origin(node: fx.Node) -> fx.Node:
    """What a value is the quantized form of."""
    while torchapi.target_name(node) in (QUANTIZE, *DEQUANTIZE):
        source = node.args[0]
        if not isinstance(source, fx.Node):
            break
        node = source
    return node


def label(node: fx.Node) -> str:
    """What a tensor is called: an input as the model's author called it."""
    return str(node.target) if node.op == "placeholder" else node.name
