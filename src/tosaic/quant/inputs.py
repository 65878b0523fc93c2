"""Calibration inputs: which arguments they are, and whether they look like what will come."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.errors import InvalidInput
from tosaic.front import torchapi

# How many times as far an example may reach as the calibration data, or the other way round: noise
# as an example beside pictures from 0 to 1 is usual, bytes beside normalised pictures are a mistake.
_APART = 8.0


class Arguments:
    """How a program takes its arguments: in order, by name, or as one structure."""

    def __init__(self, module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
        self.placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.names = torchapi.argument_names(module)
        self.example, self.structure = torchapi.flatten((example_inputs, {}))

    def each(self, calibration: Iterable[Any]) -> Iterator[list[Any]]:
        """The leaves of each calibration input."""
        for count, item in enumerate(calibration, 1):
            yield self._leaves(item, count)

    def _leaves(self, item: Any, count: int) -> list[Any]:
        flat = [torchapi.flatten((args, {})) for args in self._readings(item)]
        for leaves, structure in flat:
            if structure == self.structure:
                return leaves
        for leaves, _ in flat:
            if len(leaves) == len(self.placeholders):
                return leaves
        wanted = f"{len(self.names)} ({', '.join(self.names)})"
        got = len(item) if isinstance(item, (tuple, list, Mapping)) else 1
        raise InvalidInput(
            f"calibration input {count} does not fit: the model takes {wanted} arguments, "
            f"this has {got}; give a tensor, a tuple of arguments or a dict by name"
        )

    def _readings(self, item: Any) -> Iterator[tuple[Any, ...]]:
        """An input as arguments: in order, by name, or as the only one."""
        if isinstance(item, (tuple, list)):
            yield tuple(item)
        if isinstance(item, Mapping) and set(item) == set(self.names):
            yield tuple(item[name] for name in self.names)
        yield (item,)


class InputWatch:
    """What was seen of each real input, and what of it a user should know."""

    def __init__(self, arguments: Arguments) -> None:
        self.names = [str(n.target) for n in arguments.placeholders]
        self.example = arguments.example
        self.low = [float("inf")] * len(self.names)
        self.high = [float("-inf")] * len(self.names)
        self.size = [0] * len(self.names)
        self.seen: set[bytes] = set()
        self.count = 0

    def see(self, leaves: Sequence[Any]) -> None:
        """Take one calibration input into account; NaN in it is an error."""
        self.count += 1
        digest = hashlib.blake2b(digest_size=16)
        for index, value in enumerate(leaves):
            if not isinstance(value, Tensor):
                digest.update(repr(value).encode())
                continue
            digest.update(_bytes(value))
            if value.dtype.is_floating_point and value.numel():
                low, high = (float(v) for v in torch.aminmax(value.detach()))
                if low != low:
                    raise InvalidInput(
                        f"calibration input {self.count} has NaN in {self.names[index]}"
                    )
                self.low[index] = min(self.low[index], low)
                self.high[index] = max(self.high[index], high)
                self.size[index] = max(self.size[index], value.numel())
        self.seen.add(digest.digest())

    def doubts(self, against_example: bool) -> Iterator[str]:
        """Why the data may not be like what the network will see, a sentence each."""
        if self.count > 1 and 2 * len(self.seen) <= self.count:
            yield f"only {len(self.seen)} of {self.count} calibration inputs differ from the others"
        for index, name in enumerate(self.names):
            low, high = self.low[index], self.high[index]
            if self.size[index] < 2:
                continue
            if low == high:
                yield (
                    f"input {name} is {low:g} everywhere in all {self.count} calibration inputs: "
                    "ranges will not fit other values"
                )
            elif against_example and isinstance(self.example[index], Tensor):
                yield from self._far(index, max(-low, high))

    def _far(self, index: int, reach: float) -> Iterator[str]:
        values = self.example[index].detach().float()
        values = values[values.isfinite()]
        if values.numel() < 2 or values.min() == values.max() or reach == float("inf"):
            return  # a placeholder, or a mask
        other = float(values.abs().max())
        if max(reach, other) > _APART * min(reach, other):
            yield (
                f"input {self.names[index]} reaches {reach:.3g} in the calibration data and "
                f"{other:.3g} in the example: one of them is not like what the network will see"
            )


def _bytes(value: Tensor) -> bytes:
    plain = value.detach().cpu().contiguous()
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() and plain.dim() else repr(
        plain.tolist()).encode()  # fmt: skip
