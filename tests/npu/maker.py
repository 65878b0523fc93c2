"""Builds one random graph: operators, inputs, and scales with which results spread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tosaic.interp.model import Model
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import I4, I8, I16, I32, I48, SHAPE, DType

ENV = "TOSA-1.0+INT+int16+int4+cf+doubleround"
UNIT = (1 << 30, 30)


class Maker:
    """A Builder with a random source, the inputs' data, and scales measured on that data.

    The interpreter measures how far values reach, so that a RESCALE fills its type without
    saturating; the expected results never come from it.
    """

    def __init__(self, seed: Sequence[int], u85: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.u85 = u85
        self.b = Builder(ENV)
        self.data: list[np.ndarray] = []
        self.dedicated = True  # may the NPU have fast memory of its own beside the arena?
        self.fewest = 24  # distinct values that every result must have, if it is large enough
        self.sharing = 0.0  # how often weights and tables are those of another operator
        self.arrays: dict[object, list[np.ndarray]] = {}
        self._known: dict[Value, np.ndarray] = {}

    # Choices

    def shared(self, key: object, make: Callable[[], np.ndarray]) -> np.ndarray:
        """An array that was made for the same key before, now and then."""
        known = self.arrays.setdefault(key, [])
        if self.sharing and known and self.chance(self.sharing):
            return self.pick(*known)
        known.append(make())
        return known[-1]

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def size(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def shape(self, rank: int, high: int = 9, room: int = 1500) -> tuple[int, ...]:
        """A shape with at most ``room`` elements, and at least 48."""
        while True:
            sizes = tuple(self.size(1, high) for _ in range(rank - 1))
            sizes = (*sizes, self.size(1, 4 * high if rank < 5 else high))
            if 48 <= np.prod(sizes) <= room or rank == 1:
                return sizes if rank > 1 else (self.size(60, 300),)

    def picture(self, high: int = 12, channels: int = 36, batch: int = 1) -> tuple[int, ...]:
        """A shape [N, H, W, C] with at least 40 elements."""
        while True:
            shape = (batch, self.size(1, high), self.size(1, high), self.size(1, channels))
            if 40 <= np.prod(shape) <= 6000:
                return shape

    def zero_point(self) -> int:
        return self.pick(0, self.size(-30, 30), -128 + self.size(0, 40), self.size(-60, 60))

    # Values

    def draw(self, kind: DType, shape: Sequence[int], reach: float | None = None) -> np.ndarray:
        """Numbers of a type: uniform over all of it, or normal with most of them in ``reach``."""
        if kind.name == "bool":
            return self.rng.random(tuple(shape)) < 0.5
        low, high = kind.range
        if reach is None:
            if kind is I32:
                low, high = -(1 << 20), 1 << 20
            return self.rng.integers(low, high, tuple(shape), endpoint=True).astype(kind.array)
        numbers = np.rint(self.rng.normal(0, reach / 2, tuple(shape)))
        return numbers.clip(low, high).astype(kind.array)

    def input(
        self, kind: DType, shape: Sequence[int], data: np.ndarray | None = None, **how: Any
    ) -> Value:
        given = self.draw(kind, shape, **how) if data is None else data.astype(kind.array)
        self.data.append(given)
        return self.b.input(kind, tuple(shape), f"input_{len(self.data)}")

    def const(self, kind: DType, shape: Sequence[int], **how: Any) -> Value:
        return self.b.const(self.draw(kind, shape, **how), kind)

    def either(self, kind: DType, shape: Sequence[int], **how: Any) -> Value:
        """An input, or now and then a constant."""
        make = self.const if self.chance(0.25) else self.input
        return make(kind, shape, **how)

    def zero(self, kind: DType, value: int = 0) -> Value:
        return self.b.const([value], kind)

    def finish(self, *outputs: Value) -> Graph:
        for i, value in enumerate(outputs):
            value.name = f"output_{i + 1}"
        self.b.output(*outputs)
        return self.b.graph

    # Scales

    def measure(self, value: Value) -> np.ndarray:
        """What the value is for the given inputs, to choose scales by."""
        if value.const is not None:
            return value.const.array.astype(np.float64)
        if value in self.b.graph.inputs:
            return self.data[self.b.graph.inputs.index(value)].astype(np.float64)
        self._compute()
        return self._known[value].astype(np.float64)

    def _compute(self) -> None:
        """Run the operators that are new; those before them have run."""
        known = self._known | dict(zip(self.b.graph.inputs, self.data, strict=True))
        ops = [op for op in self.b.graph.ops if any(v not in known for v in op.outs)]
        made = [v for op in ops for v in op.outs if v.dtype is not SHAPE]
        read = [v for v in dict.fromkeys(v for op in ops for v in op.ins) if v in known]
        graph = Graph(inputs=read, outputs=made, ops=ops)
        self._known.update(zip(made, Model(graph).run(*(known[v] for v in read)), strict=True))

    def rescale(
        self,
        x: Value,
        scale: tuple[int, int] | tuple[np.ndarray, np.ndarray],
        to: DType,
        zero_points: tuple[int, int] = (0, 0),
        rounding: str = "SINGLE_ROUND",
        scale32: bool | None = None,
        unsigned: tuple[bool, bool] = (False, False),
    ) -> Value:
        """RESCALE by multiplier · 2^−shift; arrays of them make it per channel."""
        wide = x.dtype is not I48 if scale32 is None else scale32
        per_channel = isinstance(scale[0], np.ndarray)
        multiplier = self.b.const(np.atleast_1d(scale[0]), I32 if wide else I16)
        shift = self.b.const(np.atleast_1d(scale[1]), I8)
        zeros = [
            self.b.const(np.array([z]).astype(k.array), k)
            for z, k in zip(zero_points, (x.dtype, to), strict=True)
        ]
        return self.b.RESCALE(
            x, multiplier, shift, *zeros, out=to, scale32=wide, rounding_mode=rounding,
            per_channel=per_channel, input_unsigned=unsigned[0], output_unsigned=unsigned[1],
        )  # fmt: skip

    def scales(self, factors: np.ndarray, wide: bool) -> tuple[np.ndarray, np.ndarray]:
        """Multipliers of 31 or 15 bits and shifts for real factors."""
        bits = 31 if wide else 15
        fraction, exponent = np.frexp(factors)
        multiplier = (fraction * 2.0**bits).astype(np.int64)
        shift = bits - exponent
        excess = np.maximum(shift - 62, 0)  # a tiny factor loses bits
        return multiplier >> excess, shift - excess

    def settle(
        self,
        x: Value,
        to: DType,
        *,
        per_channel: bool | None = None,
        zero_points: tuple[int, int] | None = None,
        rounding: str | None = None,
        fill: float = 0.8,
    ) -> Value:
        """RESCALE so that most results fill ``fill`` of the type without saturating."""
        wide = x.dtype is not I48 and (x.dtype is not I32 or self.chance(0.85))
        before, after = zero_points or (0, self.size(-16, 16) if to is I8 else 0)
        values = np.abs(self.measure(x) - before)
        reach = max(float(np.quantile(values, 0.96)), 1.0)
        top = to.range[1] if to is not I32 else 1 << 24
        factor = min((fill * top - abs(after)) / reach, 2.0 ** (28 if wide else 12))
        if per_channel is None:
            per_channel = self.chance(0.5)
        if per_channel and len(x.shape) > 0:
            factors = factor * self.rng.uniform(0.5, 1.2, x.shape[-1])
        else:
            factors = np.array([factor])
        multiplier, shift = self.scales(factors, wide)
        pair = (multiplier, shift) if per_channel else (int(multiplier[0]), int(shift[0]))
        mode = rounding or ("DOUBLE_ROUND" if wide and self.chance(0.2) else "SINGLE_ROUND")
        return self.rescale(x, pair, to, (before, after), mode, wide)

    def clamp(self, x: Value, share: float = 0.06) -> Value:
        """CLAMP that touches at most about ``share`` of the values at each end."""
        values = self.measure(x)
        low = int(np.quantile(values, self.rng.uniform(0, share)))
        high = max(low + 1, int(np.quantile(values, 1 - self.rng.uniform(0, share))))
        low, high = self.pick((low, x.dtype.range[1]), (x.dtype.range[0], high), (low, high))
        return self.b.CLAMP(x, min_val=low, max_val=high, nan_mode="PROPAGATE")

    def table(self, x: Value) -> Value:
        """TABLE of int8 or int16 with a rough curve that jumps about."""
        if x.dtype is I8:
            steps = self.shared("table", lambda: self.pick(
                lambda: np.sort(self.draw(I8, (256,))),
                lambda: self.draw(I8, (256,)),
                lambda: (120 * np.sin(np.arange(256) / self.size(9, 50))).astype(np.int8),
            )())  # fmt: skip
            return self.b.TABLE(x, self.b.const(steps, I8))
        curve = 30000 * np.sin(np.arange(513) / self.rng.uniform(20, 200)) + self.rng.normal(
            0, 300, 513
        )
        return self.b.TABLE(x, self.b.const(np.rint(curve).clip(-32768, 32767).astype(np.int16)))

    # Convolutions

    def weights(self, kind: DType, shape: Sequence[int]) -> np.ndarray:
        """Random weights: dense, small, or with many zeros, which compress differently."""
        return self.shared((kind, tuple(shape)), lambda: self._weights(kind, shape))

    def _weights(self, kind: DType, shape: Sequence[int]) -> np.ndarray:
        data = self.draw(kind, shape)
        if kind is I4:
            return np.clip(data, -7, 7)
        style = self.pick("dense", "dense", "small", "zeros", "few")
        if style == "small":
            return np.clip(np.rint(self.rng.normal(0, 9, tuple(shape))), -127, 127).astype(np.int8)
        if style == "zeros":
            return np.where(self.rng.random(tuple(shape)) < 0.6, 0, data).astype(np.int8)
        if style == "few":  # few distinct values make a palette
            return self.rng.choice(self.draw(I8, (self.size(3, 14),)), tuple(shape))
        return np.clip(data, -127, 127)

    def bias(self, acc: DType, channels: int, scale: float = 1e4) -> Value:
        count = self.pick(channels, channels, 1)
        numbers = np.rint(self.rng.normal(0, scale, count)).astype(np.int64)
        return self.b.const(numbers.astype(acc.array), acc)

    def window(
        self, outs: int, kernel: int, stride: int, dilation: int, padded: bool = True
    ) -> tuple[int, int, int]:
        """Input size and the padding before and after that give ``outs`` results exactly."""
        reach = (kernel - 1) * dilation
        need = (outs - 1) * stride + reach + 1
        before = self.size(0, min(reach, need - 1)) if padded else 0
        after = self.size(0, max(0, min(reach, need - 1 - before))) if padded else 0
        return need - before - after, before, after
