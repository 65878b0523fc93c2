"""RESCALE is bit-equal to the reference model in every mode, and its fast paths to RESCALE."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import tosa_serializer as ts

from judges.single import Single
from tosaic.errors import Unpredictable
from tosaic.interp import affine
from tosaic.interp.affine import fit_float32, fit_float64
from tosaic.interp.exact import Interval
from tosaic.interp.onednn import from_carrier
from tosaic.interp.rescale import Rescale, Rounding

HELD = {"INT8": torch.int8, "INT16": torch.int16, "INT32": torch.int32}
BITS = {"INT8": 8, "INT16": 16, "INT32": 32}


@dataclass(frozen=True)
class Mode:
    input: str
    output: str
    scale32: bool
    rounding: Rounding
    per_channel: bool
    input_unsigned: bool = False
    output_unsigned: bool = False


MODES = [
    Mode(i, o, scale32, rounding, per_channel, iu, ou)
    for i in HELD
    for o in HELD
    for scale32 in (True, False)
    for rounding in ("SINGLE_ROUND", "INEXACT_ROUND", "DOUBLE_ROUND")
    for per_channel in (True, False)
    for iu, ou in ((False, False), (True, False), (False, True))
    # What the specification calls an error.
    if scale32 or rounding != "DOUBLE_ROUND"
    if not (iu and "INT32" in (i, o)) and not (ou and "INT32" in (i, o))
]


def decompose(factor: float, scale32: bool) -> tuple[int, int]:
    fraction, exponent = np.frexp(factor)
    bits = 31 if scale32 else 15
    return min(round(float(fraction) * 2**bits), 2**bits - 1), bits - int(exponent)


def reference(
    mode: Mode, x: np.ndarray, multiplier: list[int], shift: list[int], zero_points: tuple[int, int]
) -> tuple[np.ndarray, str]:
    graph = Single()
    graph.input("x", x, mode.input)
    graph.const("m", multiplier, "INT32" if mode.scale32 else "INT16")
    graph.const("s", shift, "INT8")
    graph.const("iz", [zero_points[0]], mode.input)
    graph.const("oz", [zero_points[1]], mode.output)
    rounding = getattr(ts.RoundingMode, mode.rounding)
    graph.op(
        "RESCALE", ["x", "m", "s", "iz", "oz"], "y", x.shape, mode.output,
        lambda a: a.RescaleAttribute(
            mode.scale32, rounding, mode.per_channel, mode.input_unsigned, mode.output_unsigned
        ),
    )  # fmt: skip
    return graph.run("y")


def prepared(
    mode: Mode, multiplier: list[int], shift: list[int], zero_points: tuple[int, int]
) -> Rescale:
    return Rescale(
        torch.tensor(multiplier), torch.tensor(shift), input=HELD[mode.input],
        output=HELD[mode.output], scale32=mode.scale32, input_zp=zero_points[0],
        output_zp=zero_points[1], rounding=mode.rounding, input_unsigned=mode.input_unsigned,
        output_unsigned=mode.output_unsigned,
    )  # fmt: skip


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_every_mode_equals_the_reference_model(mode: Mode) -> None:
    random = np.random.default_rng(len(str(mode)))
    bits = {**BITS, "INT32": 26}
    channels = 5 if mode.per_channel else 1
    x = random.integers(-(1 << bits[mode.input] - 1), 1 << bits[mode.input] - 1, (40, 3, channels))
    x[0, :, :] = [[-1], [0], [1]]
    ratio = 2.0 ** (bits[mode.output] - bits[mode.input])
    factors = [decompose(ratio * random.uniform(0.6, 1.4), mode.scale32) for _ in range(channels)]
    multiplier, shift = (list(column) for column in zip(*factors, strict=True))
    zero_points = (-37 if mode.input == "INT8" else 0, 19 if mode.output == "INT8" else 0)
    expected, status = reference(mode, x, multiplier, shift, zero_points)
    if status != "TOSA_VALID":
        with pytest.raises(Unpredictable):
            prepared(mode, multiplier, shift, zero_points)(torch.from_numpy(x).to(HELD[mode.input]))
        assert status == "TOSA_UNPREDICTABLE"
        return
    rescale = prepared(mode, multiplier, shift, zero_points)
    tensor = torch.from_numpy(x).to(HELD[mode.input])
    np.testing.assert_array_equal(rescale(tensor).numpy(), expected)
    np.testing.assert_array_equal(rescale.exact(tensor).numpy(), expected)
    assert len(np.unique(expected)) > 30


ORDINARY = Mode("INT32", "INT32", True, "SINGLE_ROUND", False)


@pytest.mark.parametrize(
    ("value", "multiplier", "shift"),
    [(1, 1 << 30, 1), (1, 1 << 30, 63), (1, -5, 31), (1 << 30, 1 << 30, 31), (600, 1, 4)],
)
def test_what_the_reference_model_calls_unpredictable_raises(
    value: int, multiplier: int, shift: int
) -> None:
    _, status = reference(ORDINARY, np.array([[value]]), [multiplier], [shift], (0, 0))
    assert status == "TOSA_UNPREDICTABLE"
    with pytest.raises(Unpredictable):
        prepared(ORDINARY, [multiplier], [shift], (0, 0))(torch.tensor([[value]]))


def test_a_result_outside_int32_raises_only_when_it_comes() -> None:
    mode = Mode("INT32", "INT32", False, "SINGLE_ROUND", False)
    rescale = prepared(mode, [1 << 14], [10], (0, 0))
    assert rescale(torch.tensor([1 << 26])).item() == 1 << 30
    with pytest.raises(Unpredictable, match="outside int32"):
        rescale(torch.tensor([1 << 28]))


def random_rescale(slope: float, reach: int, channels: int = 40, **options: object) -> Rescale:
    generator = torch.Generator().manual_seed(channels)
    factors = slope * (0.7 + 0.6 * torch.rand(channels, generator=generator, dtype=torch.float64))
    pairs = [decompose(float(f), True) for f in factors]
    multiplier, shift = (torch.tensor(column) for column in zip(*pairs, strict=True))
    interval = Interval(torch.full((channels,), -reach), torch.full((channels,), reach))
    return Rescale(
        multiplier, shift, input=torch.int32, output=torch.int8, interval=interval, **options
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"output_zp": -128}, {"output_zp": 9, "clamp": (-5, 77)}])
@pytest.mark.parametrize("slope", [0.5, 2e-2, 3e-3])
def test_proved_coefficients_are_right_on_every_single_input(
    slope: float, options: dict[str, object]
) -> None:
    """The proof tries some 500 inputs a channel; here all of them are tried."""
    rescale = random_rescale(slope, 60_000, **options)
    steps = rescale.steps(rescale.interval)
    assert steps is not None
    assert bool(steps.found.all())
    every = torch.arange(-60_000, 60_001)[:, None].expand(-1, 40)
    expected = rescale.exact(every)
    narrow, wide = fit_float32(steps), fit_float64(steps)
    assert bool(wide.proved.all())
    assert narrow.proved.double().mean() > 0.5
    low, high = rescale.levels
    scaled = every.float() * narrow.slope + narrow.offset
    same = (scaled.round().clamp(low, high).to(torch.int8) == expected).all(0)
    assert torch.equal(same | ~narrow.proved, torch.ones_like(same))
    floor = (every.double() * wide.slope + wide.offset + 0.5).floor().clamp(low, high)
    assert torch.equal(floor.to(torch.int8), expected)
    assert len(expected.unique()) > 0.9 * (high - low)


def least_rests(shift: int) -> tuple[list[int], list[int]]:
    """Multipliers, and values whose products lie next to a step: one unit below it or above."""
    generator, found = np.random.default_rng(shift), dict[int, int]()
    half, whole = 1 << shift - 1, 1 << shift
    while len(found) < 64:
        value = 2 * int(generator.integers(1 << 12, 1 << 16)) + 1
        rest = 1 if len(found) % 2 else -1
        multiplier = (rest - half) * pow(value, -1, whole) % whole
        if multiplier < 1 << 31 and value * multiplier >> shift < 100:
            found[multiplier] = value
    return list(found), list(found.values())


@pytest.mark.parametrize("zero_point", [0, 100, -128])
def test_floats_hold_products_next_to_a_step_where_they_need_no_search(zero_point: int) -> None:
    multiplier, value = least_rests(41)
    channels = len(multiplier)
    reach = torch.full((channels,), 1 << 22)
    rescale = Rescale(
        torch.tensor(multiplier), torch.tensor([41] * channels), input=torch.int32,
        output=torch.int8, output_zp=zero_point, interval=Interval(-reach, reach),
    )  # fmt: skip
    rescale.prepare(float32=False, fits=False)
    assert rescale._float64 is not None
    x = torch.tensor([value, [-v for v in value]])
    assert torch.equal(rescale(x), rescale.exact(x))
    # With twice the distance for half of it, a number below a step is on the other side.
    found = rescale._float64
    rescale._float64 = affine.Affine(found.slope, 4 * found.offset, found.proved)
    rescale._rows.clear()
    assert not torch.equal(rescale(x), rescale.exact(x))


def test_floats_are_refused_where_products_have_too_many_digits() -> None:
    rescale = Rescale(
        torch.tensor([(1 << 31) - 1]), torch.tensor([45]), input=torch.int32, output=torch.int8,
        interval=Interval(torch.tensor([-(1 << 24)]), torch.tensor([1 << 24])),
    )  # fmt: skip
    rescale.prepare(float32=False, fits=False)
    assert rescale._float64 is None


def test_unproved_coefficients_are_wrong_somewhere() -> None:
    """A mutation of the proof: small slopes do fail, so the proof refuses for a reason."""
    rescale = random_rescale(2e-4, 1_000_000)
    steps = rescale.steps(rescale.interval)
    assert steps is not None
    narrow = fit_float32(steps)
    refused = (~narrow.proved).nonzero().flatten()[:5]
    every = torch.arange(-1_000_000, 1_000_001)[:, None].expand(-1, 5)
    scaled = every.float() * narrow.slope[refused] + narrow.offset[refused]
    exact = rescale.select(refused, rescale.interval).exact(every)
    assert bool((scaled.round().clamp(-128, 127).to(torch.int8) != exact).any(0).all())


@pytest.mark.parametrize("shape", [(1, 7, 7, 40), (1, 13, 17, 40), (2, 61, 67, 40), (3, 40)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.float64])
@pytest.mark.parametrize("slope", [2e-2, 3e-4])
def test_blocks_of_any_shape_equal_the_definition(
    shape: tuple[int, ...], dtype: torch.dtype, slope: float
) -> None:
    rescale = random_rescale(slope, 700_000, output_zp=-17)
    generator = torch.Generator().manual_seed(1)
    reach = int(150 / slope)
    v = torch.randint(-reach, reach, shape, generator=generator)
    expected = rescale.exact(v)
    rescale.prepare()
    assert torch.equal(rescale(v.to(dtype)), expected)
    assert torch.equal(from_carrier(rescale(v.to(dtype), torch.uint8)), expected)
    assert rescale._float64 is not None
    assert len(expected.unique()) > 40


def test_a_proof_that_skips_steps_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation: without the check of each step, wrong coefficients pass."""
    monkeypatch.setattr(
        affine, "_agrees", lambda steps, slope, offset: torch.ones_like(steps.found)
    )
    rescale = random_rescale(1e-3, 200_000)
    steps = rescale.steps(rescale.interval)
    assert steps is not None
    careless = fit_float32(steps)
    every = torch.arange(-200_000, 200_001)[:, None].expand(-1, 40)
    scaled = every.float() * careless.slope + careless.offset
    assert not torch.equal(scaled.round().clamp(-128, 127).to(torch.int8), rescale.exact(every))
