"""Calibration inputs: matched to arguments, and checked for plausibility."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from tosaic.errors import InvalidInput, TosaicError, first_line
from tosaic.front import torchapi
from tosaic.runtime.warn import warn

# How many times as large an example may be as the calibration data, or the other way round. Noise
# as an example beside pictures from 0 to 1 is usual; bytes beside normalised ones are a mistake.
_APART = 8.0
_KEPT = 16  # inputs at most
_HELD = 1 << 23  # elements of one value, of all inputs together
_MANY = 5000  # inputs, which no calibration needs


class DataRun(fx.Interpreter, ABC):
    """Runs a program over calibration data, and looks at its values."""

    @abstractmethod
    def end_input(self, leaves: Sequence[Any]) -> None:
        """What is seen from now on belongs to the input behind this one."""


class Arguments:
    """How a program takes its arguments: in order, by name, or as one structure."""

    def __init__(self, module: fx.GraphModule, example_inputs: tuple[Any, ...]) -> None:
        self.placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.names = torchapi.argument_names(module)
        self.example, self.structure = torchapi.flatten((example_inputs, {}))
        # What is no tensor is part of the program, and need not be given by name.
        is_plain = len(self.names) == len(self.example)
        pairs = zip(self.names, self.example if is_plain else ())
        self._fixed = {n: v for n, v in pairs if not isinstance(v, Tensor)}

    def each(self, calibration: Iterable[Any]) -> Iterator[list[Any]]:
        """The leaves of each calibration input."""
        for count, item in enumerate(read_each(calibration), 1):
            leaves = with_tensors(self._leaves(item, count))
            for node, value, like in zip(self.placeholders, leaves, self.example):
                if isinstance(value, Tensor) and like.numel() and not value.numel():
                    raise InvalidInput(
                        f"calibration input {count} has no elements in {node.target}: leave it out"
                    )
                if isinstance(like, Tensor) and not isinstance(value, Tensor):
                    kind = type(value).__name__
                    raise InvalidInput(
                        f"calibration input {count} does not fit: "
                        f"{node.target} must be a tensor, not {kind}"
                    )
            yield leaves

    def _leaves(self, item: Any, count: int) -> list[Any]:
        readings, unlike = list(self._readings(item)), ""
        for args in readings:
            try:
                leaves = torchapi.flatten_as((args, {}), self.structure)
            except ValueError as problem:
                unlike = unlike or first_line(problem)
                continue
            nested = [(n, v) for n, v in zip(self.placeholders, leaves) if _is_nested(v)]
            if not nested:
                return leaves
            unlike = (
                unlike or f"{nested[0][0].target} is one value, not {type(nested[0][1]).__name__}"
            )
        if isinstance(item, Mapping) and set(item) != set(self.names):
            raise InvalidInput(self._misnamed(item, count))
        for args in readings:
            leaves, _ = torchapi.flatten((args, {}))
            if len(leaves) == len(self.placeholders) and not _has_names(args):
                return leaves
        first = self._without_labels(item, count)
        if first is not None:
            return first
        if _has_names(readings[0]):  # which no order stands for
            raise InvalidInput(
                f"calibration input {count} is not nested like the example: {unlike}"
            )
        wanted = f"{len(self.names)} ({', '.join(self.names)})"
        got = len(item) if isinstance(item, (tuple, list, Mapping)) else 1
        raise InvalidInput(
            f"calibration input {count} does not fit: the model takes {wanted} arguments, "
            f"this has {got}; give a tensor, a tuple of arguments or a dict by name"
        )

    def _misnamed(self, item: Mapping[Any, Any], count: int) -> str:
        """A sentence with the names that a dict lacks, and those that nothing takes."""
        unknown = [repr(name) for name in item if name not in self.names]
        absent = [name for name in self.names if name not in item]
        what = f"nothing is named {', '.join(unknown)}" if unknown else f"{absent[0]} is missing"
        return (
            f"calibration input {count} does not fit: {what}; the model takes "
            f"{', '.join(self.names)}"
        )

    def _without_labels(self, item: Any, count: int) -> list[Any] | None:
        """The first values of a batch that has more than the model takes: labels come last."""
        if not isinstance(item, (tuple, list)) or len(item) <= len(self.names):
            return None
        leaves, structure = torchapi.flatten((tuple(item)[: len(self.names)], {}))
        if structure != self.structure:
            return None
        if count == 1:
            first = "the first is" if len(self.names) == 1 else f"the first {len(self.names)} are"
            warn(
                f"calibration inputs have {len(item)} values and the model takes "
                f"{len(self.names)}: {first} taken, the rest is left out as labels"
            )
        return leaves

    def _readings(self, item: Any) -> Iterator[tuple[Any, ...]]:
        """An input as arguments: in order, by name, or as the only one."""
        if isinstance(item, (tuple, list)):
            yield tuple(item)
        if isinstance(item, Mapping) and set(item) <= set(self.names):
            given = {**self._fixed, **item}
            if len(given) == len(self.names):
                yield tuple(given[name] for name in self.names)
        yield (item,)


def read_each(data: Iterable[Any], noun: str = "calibration input") -> Iterator[Any]:
    """The data as it comes; what goes wrong in reading it is told with its number."""
    items, count = iter(data), 0
    while True:
        count += 1
        try:
            item = next(items)
        except StopIteration:
            if count == 1:
                raise InvalidInput(
                    f"there is no {noun}: give at least one; a generator is empty once it is read"
                ) from None
            return
        except (TosaicError, MemoryError):
            raise
        except Exception as problem:
            raise InvalidInput(
                f"{noun} {count} cannot be read: {type(problem).__name__}: {first_line(problem)}"
            ) from problem
        if count == _MANY:
            warn(
                f"{count:,} {noun}s are read, and there may be more: a few hundred are enough; if "
                "the data has no end, give a part (itertools.islice)"
            )
        yield item


def _is_nested(value: Any) -> bool:
    return isinstance(value, (Mapping, tuple, list))


def _has_names(value: Any) -> bool:
    """Whether values in a structure are told apart by their names."""
    if isinstance(value, (tuple, list)):
        return any(map(_has_names, value))
    return isinstance(value, Mapping)


def with_tensors(leaves: Iterable[Any]) -> list[Any]:
    """Arrays as tensors, and all else as it is."""
    return [torch.as_tensor(v) if isinstance(v, np.ndarray) else v for v in leaves]


def batch_size(leaves: Iterable[Any]) -> int:
    """The leading dimension that all tensors of an input have in common, or 1."""
    sizes = {v.shape[0] for v in leaves if isinstance(v, Tensor) and v.dim() > 1}
    return max(sizes.pop(), 1) if len(sizes) == 1 else 1


class KeptInputs:
    """Some calibration inputs from all of the data, as many as a program runs with side by side."""

    def __init__(self, prepared: fx.GraphModule) -> None:
        values = (n.meta.get("val") for n in prepared.graph.nodes)
        shapes = (torchapi.known_shape(v) for v in values if isinstance(v, Tensor))
        largest = max((math.prod(shape) for shape in shapes if shape), default=1)
        self.most = min(_KEPT, _HELD // max(largest, 1))
        if any(map(torchapi.is_region_call, prepared.graph.nodes)):
            self.most = 0  # observers inside of loops would see their data again
        self.inputs: list[Sequence[Any]] = []
        self._count, self._step = 0, 1

    @property
    def rows(self) -> int:
        """How many inputs they are; a batch counts as its rows."""
        return sum(map(batch_size, self.inputs))

    def keep(self, leaves: Sequence[Any]) -> None:
        """Take an input into account: one of each so many is kept, and more apart the more come."""
        if self._count % self._step == 0 and self.most:
            self.inputs.append(leaves)
            while len(self.inputs) > 1 and self.rows > self.most:
                self.inputs, self._step = self.inputs[::2], 2 * self._step
        self._count += 1


class InputWatch:
    """What was seen of each real input, and what of it a user should know."""

    def __init__(self, arguments: Arguments, is_example: bool = False) -> None:
        self.is_example = is_example  # which serves where there is no data
        self.names = [str(n.target) for n in arguments.placeholders]
        self.example = arguments.example
        self.low = [float("inf")] * len(self.names)
        self.high = [float("-inf")] * len(self.names)
        self.size = [0] * len(self.names)  # of the largest tensor
        self.squares = [0.0] * len(self.names)
        self.values = [0] * len(self.names)  # finite ones
        self.seen: set[bytes] = set()
        self.count = 0

    @property
    def name(self) -> str:
        """The input that was seen last, in words."""
        return "the example input" if self.is_example else f"calibration input {self.count}"

    def see(self, leaves: Sequence[Any]) -> None:
        """Take one calibration input into account; NaN in it is an error."""
        self.count += 1
        digest = hashlib.blake2b(digest_size=16)
        for index, value in enumerate(leaves):
            if not isinstance(value, Tensor):
                digest.update(repr(value).encode())
                continue
            digest.update(_bytes(value))
            if value.is_complex() and (why := self.unlike(leaves)):
                raise InvalidInput(f"{self.name} does not fit: {why}")
            if value.dtype.is_floating_point and value.numel():
                low, high = (float(v) for v in torch.aminmax(value.detach()))
                if low != low:
                    way = "give one without" if self.is_example else "leave it out"
                    raise InvalidInput(f"{self.name} has NaN in {self.names[index]}: {way}")
                self.low[index] = min(self.low[index], low)
                self.high[index] = max(self.high[index], high)
                self.size[index] = max(self.size[index], value.numel())
                squares, count = _energy(value)
                self.squares[index] += squares
                self.values[index] += count
        self.seen.add(digest.digest())

    def unlike(self, leaves: Sequence[Any]) -> str | None:
        """The first input of another type or shape than the example, as a sentence."""
        for name, value, like in zip(self.names, leaves, self.example):
            if not isinstance(value, Tensor) or not isinstance(like, Tensor):
                continue
            ours, theirs = _described(value), _described(like)
            if ours != theirs:
                return (
                    f"{name} is {ours} there, and {theirs} in the example inputs: make them alike"
                )
        return None

    def other_floats(self, leaves: Sequence[Any], module: torch.nn.Module) -> str | None:
        """The first input whose floats are not of the weights' type, as a sentence."""
        kinds = {str(p.dtype)[6:] for p in module.parameters() if p.is_floating_point()}
        for name, value in zip(self.names, leaves):
            if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
                kind = str(value.dtype)[6:]
                if len(kinds) == 1 and kind not in kinds:
                    (own,) = kinds
                    return f"{name} is {kind}, and the weights are {own}: give x.to(torch.{own})"
        return None

    def doubts(self, against_example: bool) -> Iterator[str]:
        """Why the data may not be like what the network will see, a sentence each."""
        if self.count > 1 and 2 * len(self.seen) <= self.count:
            some = f"{len(self.seen)} of {self.count} calibration inputs"
            yield f"only {some} {'is' if len(self.seen) == 1 else 'are'} distinct"
        whole = f" in all {self.count} calibration inputs" if self.count > 1 else ""
        for index, name in enumerate(self.names):
            low, high = self.low[index], self.high[index]
            if self.size[index] < 2:
                continue
            if low == high and math.isinf(low):
                raise InvalidInput(
                    f"input {name} is {low:g} everywhere{whole}: give some with finite numbers"
                )
            if low == high:
                yield (
                    f"input {name} is {low:g} everywhere{whole}: ranges will not fit other values"
                )
            elif against_example and isinstance(self.example[index], Tensor):
                yield from self._far(index)

    def _far(self, index: int) -> Iterator[str]:
        example = self.example[index].detach()
        if example.device.type == "meta":
            return  # it has no values
        finite = example[example.isfinite()]
        if finite.numel() < 2 or finite.min() == finite.max() or not self.values[index]:
            return  # a placeholder, or a mask
        squares, count = _energy(example)
        mine = math.sqrt(self.squares[index] / self.values[index])
        other = math.sqrt(squares / count)
        if max(mine, other) > _APART * min(mine, other):
            yield (
                f"input {self.names[index]} is {mine:.3g} in the calibration data and {other:.3g} "
                "in the example (root mean square): one of them is not like what will come"
            )


def _described(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]"


def _energy(value: Tensor) -> tuple[float, int]:
    """The sum of squares of what is finite, and how many values that are."""
    plain = value.detach().double().flatten()
    is_finite = plain.isfinite()
    if not bool(is_finite.all()):  # picking takes several times as long as all the rest
        plain = plain[is_finite]
    return float(plain.square().sum()), plain.numel()


def _bytes(value: Tensor) -> bytes:
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    # An axis of one element may have any stride in a contiguous tensor: 0 where it was expanded.
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8).numpy().tobytes()
