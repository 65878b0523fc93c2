"""Eager runs with disturbed edges: fake quantization of every call, and noise of its rounding.

Both are torch function modes: each call that makes a new float tensor has its result replaced. A
view is left as its base is; a write in place changes what it wrote to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from judges.fuzz.program import Loaded, eager, plain_cond

Change = Callable[[int, Tensor], Tensor]


class Edges(TorchFunctionMode):
    """Replaces the result of each call by what ``change`` makes of its number and value."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.calls = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        result = func(*args, **(kwargs or {}))
        self.calls += 1
        if getattr(func, "__name__", "") == "__setitem__":
            self._written(args[0])
            return result
        several = isinstance(result, (tuple, list))
        made = [self._made(r, args) for r in (result if several else [result])]
        if not several:
            return made[0]
        return type(result)(made) if type(result) in (tuple, list) else result

    def _made(self, result: Any, args: Any) -> Any:
        if not isinstance(result, Tensor) or result.dtype != torch.float32 or not result.numel():
            return result
        if args and result is args[0]:
            self._written(result)
            return result
        if any(isinstance(a, Tensor) and _shares(a, result) for a in args):
            return result
        return self.change(self.calls, result)

    def _written(self, value: Tensor) -> None:
        shared = torch._debug_has_internal_overlap(value) == 1  # a view, which is not written to
        if value.dtype == torch.float32 and value.numel() and not shared:
            value.copy_(self.change(self.calls, value.clone()))


def _shares(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def run_with(
    model: nn.Module, inputs: Iterable[Sequence[Tensor]], change: Change
) -> list[list[Tensor]]:
    """Results for inputs in turn; inputs are changed as the results of calls are."""
    found = []
    for given in inputs:
        changed = [
            change(-1 - i, t.clone()) if t.dtype == torch.float32 else t.clone()
            for i, t in enumerate(given)
        ]
        with torch.no_grad(), plain_cond(), Edges(change):
            results = model(*changed)
        found.append([*(t.clone() for t in tree_leaves(results)), *changed])
    return found


class FakeQuant:
    """Ranges of every call over calibration inputs, and runs that are rounded to them."""

    def __init__(self, loaded: Loaded, seeds: Sequence[int], bits: int) -> None:
        self.loaded = loaded
        self.bits = bits
        self.low: dict[int, float] = {}
        self.high: dict[int, float] = {}
        self.whole: dict[int, bool] = {}
        run_with(loaded.make(), map(loaded.inputs, seeds), self._observe)

    def _observe(self, call: int, value: Tensor) -> Tensor:
        self.low[call] = min(self.low.get(call, 0.0), float(value.min()))
        self.high[call] = max(self.high.get(call, 0.0), float(value.max()))
        self.whole[call] = self.whole.get(call, True) and bool((value == value.round()).all())
        return value

    def run(
        self, seeds: Iterable[int], widened: float = 1.0,
        rounded: Callable[[Tensor], Tensor] = torch.round,
    ) -> list[list[Tensor]]:  # fmt: skip
        """What a fake-quantized model gives; ``widened`` ranges round elsewhere."""
        levels = 2**self.bits - 1

        def change(call: int, value: Tensor) -> Tensor:
            low, high = self.low.get(call, 0.0) * widened, self.high.get(call, 0.0) * widened
            if high - low == 0 or (self.whole.get(call) and high - low <= levels):
                return value.clone()
            if self.bits > 8:  # int16 activations have no zero point
                high = max(high, -low)
                low = -high
            step = (high - low) / levels
            return (rounded(value.clamp(low, high) / step) * step).clone()

        model = _rounded_weights(self.loaded.make())
        return run_with(model, map(self.loaded.inputs, seeds), change)


def _rounded_weights(model: nn.Module) -> nn.Module:
    """Constants of two axes and more in int8, a scale for each slice of the first axis."""
    with torch.no_grad():
        for value in (*model.parameters(), *model.buffers()):
            if value.dim() > 1 and value.dtype == torch.float32:
                step = value.flatten(1).abs().amax(1).clamp(min=1e-9) / 127
                step = step.reshape(-1, *[1] * (value.dim() - 1))
                value.copy_((value / step).round() * step)
    return model


def noisy(loaded: Loaded, seeds: Iterable[int], relative: float, draw: int) -> list[list[Tensor]]:
    """Eager results where each call's result is off by a rounding of some relative size."""
    g = torch.Generator().manual_seed(draw)

    def change(call: int, value: Tensor) -> Tensor:
        if call < 0:
            return value.clone()
        return value * (1 + relative * (2 * torch.rand(value.shape, generator=g) - 1))

    return run_with(loaded.make(), map(loaded.inputs, seeds), change)


def precise(loaded: Loaded, seeds: Iterable[int]) -> list[list[Tensor]]:
    """Eager results in float64; none where a call wants float32."""
    model = loaded.make().double()
    found = []
    for seed in seeds:
        given = [t.double() if t.is_floating_point() else t for t in loaded.inputs(seed)]
        try:
            found.append(eager(model, tuple(given)))
        except RuntimeError:
            return []
    return found


class _Zeros(TorchDispatchMode):
    """Which ATen calls, by number, have given nothing but 0."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.dead = 0, dict[int, bool]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls += 1
        if isinstance(result, Tensor) and result.is_floating_point() and result.numel():
            is_zero = not bool(result.count_nonzero())
            self.dead[self.calls] = self.dead.get(self.calls, True) and is_zero
        return result


def has_dead(loaded: Loaded, seeds: Iterable[int]) -> bool:
    """Whether an ATen call of a program gives 0 alone on some inputs, as the difference x - x."""
    model, seen = loaded.make(), _Zeros()
    for seed in seeds:
        given = loaded.inputs(seed)
        seen.calls = 0
        with seen:
            eager(model, given)
    return any(seen.dead.values())
