"""Signal-to-noise ratio of a quantized program against its float original on one example.

It costs one run of the float program. The integer graphs have been run on the same example where
their compiled form was checked; else they are run when somebody asks for the ratio.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.program import Program
from tosaic.pipeline import execution
from tosaic.runtime.warn import warn

LOW = 10.0  # decibels below which a network rarely does its work
_NAMED = 4  # outputs that are told one by one


@dataclass(frozen=True, slots=True)
class OutputAccuracy:
    """An output of the program: decibels if it is real, else the share of equal elements."""

    name: str
    sqnr: float | None
    equal: float | None = None

    def __str__(self) -> str:
        if self.sqnr is None:
            return f"{self.name} equal in {self.equal:.1%}"
        return f"{self.name} {_decibels(self.sqnr)}"


@dataclass(frozen=True, slots=True)
class Reference:
    """What the float program gives for an example, which begins with ``values`` in the other."""

    results: tuple[Any, ...]
    values: execution.Values


def reference_of(original: Program, program: Program, examples: Sequence[Any]) -> Reference | None:
    """The results of the float program for the first example that fits; None if none does."""
    values = execution.start(original, examples)
    begun = execution.start(program, examples)
    if values is None or begun is None:
        return None
    last = {n: call for call in original.calls for n in call.all_input_nodes}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user has seen them, or will
            for call in original.calls:
                values[call] = torchapi.evaluate(call, values)
                for node in call.all_input_nodes:
                    if last[node] is call and node not in original.results:
                        del values[node]
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None
    return Reference(tuple(_value(o, values) for o in original.outputs), begun)


def accuracy_of(
    reference: Reference, program: Program, ports: Sequence[Any], values: execution.Values
) -> tuple[OutputAccuracy, ...]:
    """Each output of a program beside the float one's; what is constant or empty says nothing."""
    found = []
    for port, right, node in zip(ports, reference.results, program.outputs):
        ours = _value(node, values)
        if isinstance(right, Tensor) and isinstance(ours, Tensor) and right.numel():
            told = _compared(port.name, right, port.dequantize(ours))
            found += [] if told is None else [told]
    return tuple(found)


def _value(node: Any, values: execution.Values) -> Any:
    return values.get(node) if isinstance(node, fx.Node) else node


def _compared(name: str, right: Tensor, ours: Tensor) -> OutputAccuracy | None:
    if right.shape != ours.shape or right.is_complex():
        return None
    if not right.is_floating_point():
        return OutputAccuracy(name, None, float((right == ours).double().mean()))
    real, made = (torch.nan_to_num(t.double(), 0.0, 0.0, 0.0) for t in (right, ours))
    signal, noise = float(real.square().sum()), float((made - real).square().sum())
    if not signal:
        return None
    return OutputAccuracy(name, 10 * math.log10(signal / noise) if noise else math.inf)


def listed(told: Sequence[OutputAccuracy]) -> str:
    """The ratios in words; of many outputs, the lowest."""
    if len(told) <= _NAMED:
        return ", ".join(map(str, told))
    low = sorted(told, key=lambda o: math.inf if o.sqnr is None else o.sqnr)[:_NAMED]
    return f"{', '.join(map(str, low))}, and {len(told) - _NAMED} outputs above"


def warn_if_low(told: Sequence[OutputAccuracy]) -> None:
    """Say that a network is unlikely to do its work, and what helps."""
    low = min((o for o in told if o.sqnr is not None), key=lambda o: o.sqnr or 0.0, default=None)
    if low is None or low.sqnr is None or low.sqnr >= LOW:
        return
    warn(
        f"on an example the quantized network's {low.name} has {_decibels(low.sqnr)} of SQNR "
        "against float, too little for most uses: tosaic.compare names the layer where the ratio "
        'falls; scheme="a16w8" or "auto", and more calibration inputs, help most often'
    )


def _decibels(ratio: float) -> str:
    return "exact" if ratio == math.inf else f"{ratio:.1f} dB"
