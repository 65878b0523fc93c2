"""ERROR_IF conditions that inference does not meet: each returns a sentence or None."""

from __future__ import annotations

import math

from tosaic.spec.dtypes import I8, I16, I32, I48
from tosaic.spec.env import Level
from tosaic.spec.table import Check, Site


def zero_points(**allowed: str) -> Check:
    """Only int8 tensors (and int8 weights) carry a zero point; others must have 0.

    Keywords map the zero-point operand to the operand whose type decides.
    """

    def check(site: Site) -> str | None:
        for zero_point, tensor in allowed.items():
            value = site.const(zero_point)
            kind = site.type(tensor).dtype
            if value is not None and kind is not I8 and value[0] != 0:
                return f"{zero_point} must be 0 for {kind}, not {value[0]}"
        return None

    return check


def bias_channels(*dims: str) -> Check:
    """A bias has one element, or one for each output channel."""

    def check(site: Site) -> str | None:
        channels, given = math.prod(site.dims[d] for d in dims), site.dims["BC"]
        if given in (1, channels):
            return None
        return f"bias has {given} elements; it must have 1 or {channels}"

    return check


def _limit(level: Level, bound: str, what: str, value: int) -> str | None:
    most = getattr(level, bound)
    if value <= most:
        return None
    return f"{what} is {value}; level {level.name} allows {most}"


def at_most(bound: str, *names: str) -> Check:
    """Attributes or shape operands whose every element a level limits."""

    def check(site: Site) -> str | None:
        for name in names:
            values = site.attrs[name] if name in site.attrs else site.const(name)
            problem = values and _limit(site.env.level, bound, name, max(values))
            if problem:
                return problem
        return None

    return check


def kernel_span(axes: str, dilated: bool = True) -> Check:
    """Dilation times kernel size, limited by the level."""

    def check(site: Site) -> str | None:
        for i, axis in enumerate(axes):
            dilation = site.attrs["dilation"][i] if dilated else 1
            reach = site.dims[f"K{axis}"] * dilation
            problem = _limit(site.env.level, "max_kernel", f"kernel reach in {axis}", reach)
            if problem:
                return problem
        return None

    return check


def dims_at_most(bound: str, *names: str) -> Check:
    def check(site: Site) -> str | None:
        problems = (_limit(site.env.level, bound, n, site.dims[n]) for n in names)
        return next(filter(None, problems), None)

    return check


def clamp_bounds(site: Site) -> str | None:
    low, high, kind = site["min_val"], site["max_val"], site.types["t"]
    if math.isnan(low) or math.isnan(high):
        return "the bounds must not be NaN"
    if low > high:
        return f"min_val {low} is above max_val {high}"
    if kind.is_int and not (kind.range[0] <= low and high <= kind.range[1]):
        return f"bounds {low} to {high} do not fit {kind}"
    return None


def mul_shift(site: Site) -> str | None:
    shift = site.const("shift")
    if shift is None:
        return None
    if site.type("input1").dtype is not I32 and shift[0] != 0:
        return f"shift must be 0 for {site.type('input1').dtype}, not {shift[0]}"
    if not 0 <= shift[0] <= 63:
        return f"shift {shift[0]} is outside of 0 to 63"
    return None


def table_size(site: Site) -> str | None:
    needed = 256 if site.type("input1").dtype is I8 else 513
    given = site.shape("table")[0]
    return None if given == needed else f"table must have {needed} elements, not {given}"


def scatter_room(site: Site) -> str | None:
    if site.dims["K"] < site.dims["W"]:
        return f"{site.dims['W']} writes do not fit {site.dims['K']} rows without a repeat"
    return None


def resize_scale(site: Site) -> str | None:
    scale = site.const("scale")
    for i in range(0, 4 if scale else 0, 2):
        ratio = -(-scale[i] // scale[i + 1])  # type: ignore[index]
        if scale[i] > site.env.level.max_scale * scale[i + 1]:  # type: ignore[index]
            return _limit(site.env.level, "max_scale", "scale", ratio)
    return None


def resize_types(site: Site) -> str | None:
    """Bilinear results of integers keep the weights' bits; nearest neighbours do not."""
    given, result = site.types["in"], site.types["out"]
    if not given.is_int:
        return None
    wanted = given if site["mode"] == "NEAREST_NEIGHBOR" else {I8: I32, I16: I48}[given]
    return None if result is wanted else f"{site['mode']} of {given} gives {wanted}, not {result}"


def rescale_types(site: Site) -> str | None:
    given, result = site.types["in"], site.types["out"]
    signless_in, signless_out = site["input_unsigned"], site["output_unsigned"]
    multiplier = site.type("multiplier").dtype
    wanted = I32 if site["scale32"] else I16
    if multiplier is not wanted:
        return f"multiplier must be {wanted} with scale32 = {site['scale32']}, not {multiplier}"
    if site["scale32"] and given is I48:
        return "scale32 is not for int48"
    if site["rounding_mode"] == "DOUBLE_ROUND" and not site["scale32"]:
        return "DOUBLE_ROUND needs scale32"
    if signless_in and signless_out:
        return "input and output cannot both be unsigned"
    if signless_in and (given in (I32, I48) or result is I32):
        return f"input_unsigned is not for {given} to {result}"
    if signless_out and (given in (I32, I48) or result is I32):
        return f"output_unsigned is not for {given} to {result}"
    return None


def rescale_zero_points(site: Site) -> str | None:
    """int8 carries any zero point, unsigned int16 carries 0 or 32768, others 0."""
    for side in ("in", "out"):
        name, unsigned = f"{side}put_zp", f"{side}put_unsigned"
        value, kind = site.const(name), site.types[side]
        if value is None or kind is I8:
            continue
        if kind is I16 and site[unsigned]:
            if value[0] & 0xFFFF not in (0, 32768):
                return f"{name} must be 0 or 32768 for unsigned int16, not {value[0] & 0xFFFF}"
        elif value[0] != 0:
            return f"{name} must be 0 for {kind}, not {value[0]}"
    return None


def rescale_channels(site: Site) -> str | None:
    shape = site.shape("input")
    if site["per_channel"] and not shape:
        return "per_channel needs a tensor of rank 1 or more"
    channels = shape[-1] if site["per_channel"] else 1
    given = site.dims["NC"]
    return None if given == channels else f"multiplier needs {channels} elements, not {given}"


def rounding_extension(site: Site) -> str | None:
    mode = site["rounding_mode"]
    needs = {"DOUBLE_ROUND": "doubleround", "INEXACT_ROUND": "inexactround"}.get(mode)
    if needs is None or site.env.has(needs):
        return None
    return f"{mode} needs extension {needs}, which {site.env} lacks"
