"""Quantization configs under the names that users of ExecuTorch know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tosaic.errors import Unsupported


@dataclass(frozen=True, slots=True)
class QuantizationConfig:
    """Which of Tosaic's schemes a part of a model is quantized with."""

    scheme: str
    is_qat: bool = False


def get_symmetric_quantization_config(
    is_per_channel: bool = True,
    is_qat: bool = False,
    is_dynamic: bool = False,
    act_qmin: int = -128,
    act_qmax: int = 127,
    weight_qmin: int = -127,
    weight_qmax: int = 127,
    eps: float = 2.0**-16,
) -> QuantizationConfig:
    """int8 activations and int8 weights with a scale for each channel."""
    _only("eps", eps, 2.0**-16)
    _only("the range of activations", (act_qmin, act_qmax), (-128, 127))
    return _config("int8", is_per_channel, is_qat, is_dynamic, weight_qmin, weight_qmax)


def get_symmetric_a16w8_quantization_config(
    is_per_channel: bool = True,
    is_qat: bool = False,
    is_dynamic: bool = False,
    weight_qmin: int = -127,
    weight_qmax: int = 127,
    epsilon: float = 2.0**-12,
) -> QuantizationConfig:
    """int16 activations and int8 weights with a scale for each channel."""
    _only("epsilon", epsilon, 2.0**-12)
    return _config("a16w8", is_per_channel, is_qat, is_dynamic, weight_qmin, weight_qmax)


def get_symmetric_a8w4_quantization_config(*args: Any, **kwargs: Any) -> QuantizationConfig:
    """int8 activations and int4 weights: not there yet."""
    raise Unsupported(
        "there are no int4 weights yet: use get_symmetric_quantization_config() for int8"
    )


def get_uint8_io_quantization_config(*args: Any, **kwargs: Any) -> QuantizationConfig:
    """uint8 at the model's boundary: not there yet."""
    raise Unsupported(
        "there is no uint8 at a model's boundary yet: use get_symmetric_quantization_config()"
    )


def _config(
    scheme: str, is_per_channel: bool, is_qat: bool, is_dynamic: bool, low: int, high: int
) -> QuantizationConfig:
    _only("is_per_channel", is_per_channel, True)
    _only("is_dynamic", is_dynamic, False)
    _only("the range of weights", (low, high), (-127, 127))
    return QuantizationConfig(scheme, is_qat)


def _only(name: str, value: object, there: object) -> None:
    if value != there:
        raise Unsupported(f"{name} can only be {there} yet, not {value}")
