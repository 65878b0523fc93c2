"""A graph that runs: it checks its inputs, batches them and returns arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tosaic.errors import InvalidInput, one_or
from tosaic.interp.batch import rebatch
from tosaic.interp.cuda import Batches
from tosaic.interp.device import CPU, checked, checked_memory, exact_cuda
from tosaic.interp.kernel import TORCH, place, to_numpy, to_torch
from tosaic.interp.plan import Plan
from tosaic.ir.graph import Array, Graph, Value
from tosaic.ir.specialize import is_dynamic, specialize
from tosaic.ir.verify import verify
from tosaic.runtime.default_device import on_cpu
from tosaic.spec.dtypes import I4, I48, UNKNOWN, DType
from tosaic.spec.env import everything

if hasattr(os, "register_at_fork"):
    # A forked process has none of its parent's OpenMP threads, for which torch would wait.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))

_BATCH_PLANS_KEPT = 2
_SIZES_KEPT = 8


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a graph; ``is_unsigned`` if its integers are read from 0 upwards."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    is_unsigned: bool = False

    def __str__(self) -> str:
        sizes = ("?" if size == UNKNOWN else str(size) for size in self.shape)
        return f"{self.name}: {self.dtype}[{','.join(sizes)}]"


class _Plans:
    """Plans of a graph for a device by the number of samples that they stack: the last ones."""

    def __init__(self, graph: Graph, first: Plan, device: str) -> None:
        self._graph, self._first, self._device = graph, first, device
        self._context = first.context if device == CPU else None
        self._kept: dict[int, Plan | None] = {1: first} if device == CPU else {}

    def of(self, count: int) -> Plan | None:
        """The plan for so many samples; None if some operator mixes them."""
        plans = self._kept
        if count not in plans:
            graph = self._graph if count == 1 else rebatch(self._graph, count)
            plan = None if graph is None else Plan(graph, self._context, self._device)
            # Another dict, as other threads may be looking into this one.
            single = {k: v for k, v in plans.items() if k == 1}
            others = [pair for pair in plans.items() if pair[0] != 1]
            plans = single | dict(others[1 - _BATCH_PLANS_KEPT :]) | {count: plan}
            self._kept = plans
        return plans[count]

    @cached_property
    def can_stack(self) -> bool:
        """Whether samples can run together at all."""
        return rebatch(self._graph, 2) is not None

    @cached_property
    def batches(self) -> Batches:
        """Runs on a GPU, whose first one is compared with the processor's."""

        def execute(count: int, inputs: list[Tensor]) -> list[Tensor]:
            plan = self.of(count)
            assert plan is not None
            with exact_cuda():
                return plan.execute(inputs)

        return Batches(self._device, execute, self._first.execute)


class Model:
    """A TOSA graph ready to run.

    ``run`` takes numpy arrays or torch tensors in graph order and gives a list of arrays. Inputs
    whose first axis is n times the graph's run as a batch of n. Bytes that the graph reads as
    uint8 may be given as such; it gives them in int8, as TOSA has them. Faster kernels are proved
    and prepared once so many values have come that it pays: a graph that runs once has none.
    A graph with unknown sizes is prepared anew for each size that comes.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._is_dynamic = is_dynamic(graph)
        self._sized: dict[tuple[tuple[int, ...], ...], Model] = {}
        unsigned = {op.ins[0] for op in graph.ops if op.attrs.get("input_unsigned")}
        self.inputs = [replace(_port(v), is_unsigned=v in unsigned) for v in graph.inputs]
        self.outputs = [_port(v) for v in graph.outputs]
        self._plans: dict[str, _Plans] = {}
        if not self._is_dynamic:
            self._plan = Plan(graph)

    @on_cpu
    def run(self, *inputs: Any, device: str = CPU, max_memory: int | None = None) -> list[Array]:
        """The outputs of the graph, bit-exact in integers.

        With ``device="cuda"`` a GPU computes them, as many samples at a time as fit its memory, or
        ``max_memory`` bytes of it; inputs may lie there already.
        """
        checked_memory(max_memory)
        if self._is_dynamic:
            at = self.at([tuple(np.shape(given)) for given in inputs])
            return at.run(*inputs, device=device, max_memory=max_memory)
        if device != CPU:
            return self._run_on(checked(device), inputs, max_memory)
        tensors, count = self._accept(inputs, CPU)
        plan = self._plans_on(CPU).of(count)
        if plan is None:
            return self._one_by_one(tensors, count)
        own = self._apart(tensors, plan.execute(tensors))
        return [to_numpy(t, port.dtype) for t, port in zip(own, self.outputs, strict=True)]

    def at(self, shapes: Sequence[tuple[int, ...]]) -> Model:
        """The graph for inputs of some shapes; those of the last ones are kept."""
        if len(shapes) != len(self.inputs):
            names = ", ".join(map(str, self.inputs)) or "none"
            wanted = one_or(len(self.inputs), "input")
            raise InvalidInput(f"the graph takes {wanted} ({names}), not {len(shapes)}")
        key, known = tuple(shapes), self._sized
        if key not in known:
            made = specialize(self.graph, shapes)
            verify(made, everything(made.version, level="none"))
            known = dict([*known.items()][1 - _SIZES_KEPT :]) | {key: Model(made)}
            self._sized = known
        return known[key]

    def _run_on(self, device: str, inputs: Sequence[Any], max_memory: int | None) -> list[Array]:
        """The same on a GPU."""
        tensors, count = self._accept(inputs, device)
        if any(op.name.startswith("VARIABLE") for op in self.graph.ops):
            raise InvalidInput("the graph keeps a state in variables: it runs on the CPU alone")
        plans = self._plans_on(device)
        if count > 1 and not plans.can_stack:
            return self._one_by_one(tensors, count, device=device, max_memory=max_memory)
        made = plans.batches.run(tensors, count, max_memory)
        return [to_numpy(t, port.dtype) for t, port in zip(made, self.outputs, strict=True)]

    def _plans_on(self, device: str) -> _Plans:
        if device not in self._plans:
            self._plans[device] = _Plans(self.graph, self._plan, device)
        return self._plans[device]

    def _apart(self, inputs: list[Tensor], results: list[Tensor]) -> list[Tensor]:
        """Results in memory of their own: not the caller's, a constant's, or one another's."""
        taken, own = set(map(place, inputs)), []
        for tensor in results:
            shared = place(tensor) in taken or self._plan.context.keeps(tensor)
            own.append(tensor.clone() if shared else tensor)
            taken.add(place(own[-1]))
        return own

    def _one_by_one(self, tensors: list[Tensor], count: int, **place: Any) -> list[Array]:
        """Samples that no batched graph can keep apart run one after the other."""
        for port in self.outputs:
            if not port.shape:
                raise InvalidInput(
                    f"'{port.name}' is a scalar, which holds no batch; give one sample at a time"
                )
        runs = [self.run(*row, **place) for row in zip(*(t.chunk(count) for t in tensors))]
        return [np.concatenate(arrays) for arrays in zip(*runs)]

    def _accept(self, inputs: Sequence[Any], device: str) -> tuple[list[Tensor], int]:
        """Inputs as tensors, and how many samples they stack."""
        if len(inputs) != len(self.inputs):
            names = ", ".join(map(str, self.inputs)) or "none"
            wanted = one_or(len(self.inputs), "input")
            raise InvalidInput(f"the graph takes {wanted} ({names}), not {len(inputs)}")
        counts = set()
        tensors = []
        for port, given in zip(self.inputs, inputs, strict=True):
            tensor = _tensor(port, given, device)
            counts.add(_samples(port, tuple(tensor.shape)))
            tensors.append(tensor)
        if len(counts) > 1:
            raise InvalidInput(f"the inputs stack different numbers of samples: {sorted(counts)}")
        return tensors, counts.pop() if counts else 1


def _port(value: Value) -> Port:
    return Port(value.name, value.dtype, value.shape)


def _samples(port: Port, shape: tuple[int, ...]) -> int:
    """How many times the port's first axis the shape has; 1 if it is the port's own."""
    if shape == port.shape:
        return 1
    same_rest = len(shape) == len(port.shape) > 0 and shape[1:] == port.shape[1:]
    if not same_rest or not shape[0] or shape[0] % port.shape[0]:
        raise InvalidInput(f"input {port} was given shape {list(shape)}")
    return shape[0] // port.shape[0]


def _tensor(port: Port, given: Any, device: str) -> Tensor:
    """A tensor over the caller's memory; the type must be the port's own."""
    if port.is_unsigned and _kind(given) == f"u{np.dtype(port.dtype.array).name}":
        is_tensor = isinstance(given, Tensor)
        given = given.view(TORCH[port.dtype]) if is_tensor else np.asarray(given)
        given = given if is_tensor else given.view(port.dtype.array)
    if isinstance(given, Tensor):
        if given.layout is not torch.strided or given.is_meta or given.is_nested:
            layout = str(given.layout).removeprefix("torch.")
            kind = "meta" if given.is_meta else "nested" if given.is_nested else layout
            raise InvalidInput(f"input {port} takes a dense tensor, not a {kind} one")
        if given.dtype != TORCH[port.dtype]:
            raise _wrong_type(port, str(given.dtype).removeprefix("torch."))
        return _checked(port, given.detach().to(device).contiguous())
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        kind = type(given).__name__
        raise InvalidInput(f"input {port} was given a {kind} that makes no array") from None
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype != port.dtype.array:
        made = array.dtype == object and not isinstance(given, np.ndarray)
        kind = type(given).__name__ if made else str(array.dtype)
        raise _wrong_type(port, kind)
    return _checked(port, to_torch(array, port.dtype))


def _kind(given: Any) -> str:
    return str(getattr(given, "dtype", "")).removeprefix("torch.")


def _wrong_type(port: Port, kind: str) -> InvalidInput:
    wanted = np.dtype(port.dtype.array).name
    return InvalidInput(f"input {port} takes {wanted} elements, not {kind}")


def _checked(port: Port, tensor: Tensor) -> Tensor:
    """The tensor, once its values fit a type that has fewer of them than the array's."""
    if port.dtype in (I4, I48) and tensor.numel():
        low, high = (int(end) for end in torch.aminmax(tensor))
        if low < port.dtype.range[0] or high > port.dtype.range[1]:
            raise InvalidInput(f"input {port} was given values {low} to {high}, "
                               f"which {port.dtype} does not hold")  # fmt: skip
    return tensor
