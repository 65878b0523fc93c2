"""A loaded graph that runs: checks what it is given, batches it, gives arrays back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tosaic.errors import InvalidInput
from tosaic.interp.batch import rebatch
from tosaic.interp.kernel import TORCH, to_numpy, to_torch
from tosaic.interp.plan import Plan
from tosaic.ir.graph import Array, Graph, Value
from tosaic.spec.dtypes import DType

_BATCH_PLANS_KEPT = 2


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a graph."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{','.join(map(str, self.shape))}]"


class Model:
    """A TOSA graph ready to run.

    ``run`` takes numpy arrays or torch tensors in graph order and gives a list of arrays. Inputs
    whose first axis is n times the graph's run as a batch of n.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.inputs = [_port(v) for v in graph.inputs]
        self.outputs = [_port(v) for v in graph.outputs]
        self._plan = Plan(graph)
        self._batched: dict[int, Plan | None] = {}

    def run(self, *inputs: Any) -> list[Array]:
        """The outputs of the graph, bit-exact in integers."""
        return self.observe((), *inputs)[0]

    def observe(self, names: Iterable[str], *inputs: Any) -> tuple[list[Array], dict[str, Array]]:
        """The outputs, and by name any other values of the graph, from the same run."""
        names = list(names)
        tensors, count = self._accept(inputs)
        plan = self._plan if count == 1 else self._batch_plan(count)
        if plan is None:
            return self._one_by_one(names, tensors, count)
        watch = [_find(plan.graph, name) for name in names]
        outputs, seen = plan.observe(tensors, watch)
        arrays = [to_numpy(t, p.dtype) for t, p in zip(outputs, self.outputs, strict=True)]
        return arrays, {n: to_numpy(seen[v], v.dtype) for n, v in zip(names, watch, strict=True)}

    def _one_by_one(
        self, names: list[str], tensors: list[Tensor], count: int
    ) -> tuple[list[Array], dict[str, Array]]:
        """Samples that no batched graph can keep apart run one after the other."""
        runs = [self.observe(names, *row) for row in zip(*(t.chunk(count) for t in tensors))]
        outputs = [np.concatenate(arrays) for arrays in zip(*(run[0] for run in runs))]
        return outputs, {n: np.concatenate([run[1][n] for run in runs]) for n in names}

    def _batch_plan(self, count: int) -> Plan | None:
        if count not in self._batched:
            graph = rebatch(self.graph, count)
            while len(self._batched) >= _BATCH_PLANS_KEPT:
                self._batched.pop(next(iter(self._batched)))
            self._batched[count] = None if graph is None else Plan(graph, self._plan.context)
        return self._batched[count]

    def _accept(self, inputs: Sequence[Any]) -> tuple[list[Tensor], int]:
        """Inputs as tensors, and how many samples they stack."""
        if len(inputs) != len(self.inputs):
            names = ", ".join(map(str, self.inputs)) or "none"
            raise InvalidInput(f"the graph takes {len(self.inputs)} inputs ({names}); "
                               f"{len(inputs)} were given")  # fmt: skip
        counts = set()
        tensors = []
        for port, given in zip(self.inputs, inputs, strict=True):
            tensor = _tensor(port, given)
            counts.add(_samples(port, tuple(tensor.shape)))
            tensors.append(tensor)
        if len(counts) > 1:
            raise InvalidInput(f"the inputs stack different numbers of samples: {sorted(counts)}")
        return tensors, counts.pop() if counts else 1


def _port(value: Value) -> Port:
    return Port(value.name, value.dtype, value.shape)


def _find(graph: Graph, name: str) -> Value:
    try:
        return graph.find(name)
    except KeyError:
        raise InvalidInput(f"the graph has no value named '{name}'") from None


def _samples(port: Port, shape: tuple[int, ...]) -> int:
    """How many times the port's first axis the shape has; 1 if it is the port's own."""
    if shape == port.shape:
        return 1
    same_rest = len(shape) == len(port.shape) > 0 and shape[1:] == port.shape[1:]
    if not same_rest or not shape[0] or shape[0] % port.shape[0]:
        raise InvalidInput(f"input {port} was given shape {list(shape)}")
    return shape[0] // port.shape[0]


def _tensor(port: Port, given: Any) -> Tensor:
    """A tensor over the caller's memory; the type must be the port's own."""
    if isinstance(given, Tensor):
        tensor = given.detach().cpu().contiguous()
    else:
        array = np.asarray(given)
        if array.dtype == port.dtype.array:
            return to_torch(np.ascontiguousarray(array).reshape(array.shape), port.dtype)
        tensor = torch.empty(0) if array.dtype == object else _from_numpy(port, array)
    if tensor.dtype != TORCH.get(port.dtype):
        kind = str(tensor.dtype).removeprefix("torch.")
        wanted = np.dtype(port.dtype.array).name
        raise InvalidInput(f"input {port} takes {wanted} elements, not {kind}")
    return tensor


def _from_numpy(port: Port, array: Array) -> Tensor:
    try:
        return torch.from_numpy(np.ascontiguousarray(array))
    except TypeError:
        wanted = np.dtype(port.dtype.array).name
        raise InvalidInput(f"input {port} takes {wanted} elements, not {array.dtype}") from None
