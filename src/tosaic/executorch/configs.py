"""Quantization configs under the names that users of ExecuTorch know."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tosaic.errors import InvalidInput, Unsupported
from tosaic.quant.schemes import Scheme, scheme_of


@dataclass(frozen=True, slots=True)
class QuantizationConfig:
    """The scheme that a part of a model is quantized with, after training or while it trains."""

    scheme: Scheme
    is_qat: bool = False
    is_unsigned: bool = False  # uint8, for the boundary of a model


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
    """int8 activations and int8 weights; steps of activations are ``eps`` at least."""
    _check_limits("activations", act_qmin, act_qmax)
    made = _config("int8", is_per_channel, is_qat, is_dynamic, weight_qmin, weight_qmax, eps)
    return replace(made, scheme=replace(made.scheme, low=act_qmin, high=act_qmax))


def get_vgf_snorm_quantization_config(
    is_per_channel: bool = True,
    is_qat: bool = False,
    weight_qmin: int = -127,
    weight_qmax: int = 127,
    eps: float = 2.0**-16,
) -> QuantizationConfig:
    """int8 without its smallest integer, as images of signed fractions have it."""
    return get_symmetric_quantization_config(
        is_per_channel, is_qat, False, -127, 127, weight_qmin, weight_qmax, eps
    )


def get_symmetric_a16w8_quantization_config(
    is_per_channel: bool = True,
    is_qat: bool = False,
    is_dynamic: bool = False,
    weight_qmin: int = -127,
    weight_qmax: int = 127,
    epsilon: float = 2.0**-12,
) -> QuantizationConfig:
    """int16 activations and int8 weights; steps of activations are ``epsilon`` at least.

    A smaller ``epsilon`` gives activations within ±8 more of the 16 bits.
    """
    return _config("a16w8", is_per_channel, is_qat, is_dynamic, weight_qmin, weight_qmax, epsilon)


def get_symmetric_a8w4_quantization_config(
    is_per_channel: bool = True, is_qat: bool = True, is_dynamic: bool = False
) -> QuantizationConfig:
    """int8 activations and int4 weights."""
    return _config("a8w4", is_per_channel, is_qat, is_dynamic, -7, 7, 2.0**-16)


def get_uint8_io_quantization_config(
    is_qat: bool = False, is_dynamic: bool = False, eps: float = 2.0**-16
) -> QuantizationConfig:
    """uint8 at the model's boundary, for ``set_io``; everything within stays as it is."""
    made = _config("int8", True, is_qat, is_dynamic, -127, 127, eps)
    return replace(made, is_unsigned=True)


def _config(
    name: str, is_per_channel: bool, is_qat: bool, is_dynamic: bool, low: int, high: int,
    eps: float,
) -> QuantizationConfig:  # fmt: skip
    if is_dynamic:
        raise Unsupported(
            "scales that change from run to run are none that TOSA has: calibrate the model, "
            "without is_dynamic"
        )
    _check_limits("weights", low, high)
    if not 0 < eps < 1:
        raise InvalidInput(f"the smallest step of activations lies between 0 and 1, not at {eps}")
    scheme = scheme_of(name if is_per_channel else f"{name}_per_tensor")
    return QuantizationConfig(replace(scheme, weight_low=low, weight_high=high, eps=eps), is_qat)


def _check_limits(what: str, low: int, high: int) -> None:
    if not -128 <= low < 0 < high <= 127:
        raise InvalidInput(
            f"the integers of {what} range from -128 to 127 at most, with 0 between their ends, "
            f"not from {low} to {high}"
        )
