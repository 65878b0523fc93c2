"""A ``.pte`` in Python: CPU operators by PyTorch, delegates by Tosaic's own executors.

Memory is laid out as the file plans it, since ExecuTorch expresses views by nothing else. Buffers
that the program changes keep their values from run to run, as they do on a device. Loading reads
and checks the file, without PyTorch; the first run prepares memory, kernels and executors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tosaic.errors import InvalidGraph, InvalidInput, TosaicError, first_line, kind_of, one_or
from tosaic.executorch.api import quiet
from tosaic.executorch.blobs import contents_of
from tosaic.executorch.datafiles import bundled_program, named_data
from tosaic.executorch.programreader import (
    DELEGATE,
    JUMP_FALSE,
    KERNEL,
    MOVE,
    Instruction,
    ProgramFile,
    read_program,
)
from tosaic.executorch.tensors import TensorInfo, infos_of
from tosaic.runtime.default_device import on_cpu

if TYPE_CHECKING:
    from tosaic.executorch.executors import Executor
    from tosaic.executorch.kernels import Kernel
    from tosaic.executorch.memory import Memory

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
_IDENTIFIER, _BUNDLED, _WEIGHTS = b"ET12", b"BP", b"FT"
_STEPS = 1 << 24  # more instructions than that in one run means a loop without an end


def load_pte(
    source: bytes | str | os.PathLike[str],
    external_weights: Paths = None,
) -> Runner:
    """Read a ``.pte``; InvalidInput says what is wrong with it."""
    if isinstance(source, bytes):
        return _loaded(source, external_weights)
    data = _read(source)
    try:
        return _loaded(data, external_weights)
    except InvalidInput as problem:
        raise InvalidInput(f"{os.fspath(source)}: {problem.reason}", problem.where) from None


def _loaded(data: bytes, external_weights: Paths) -> Runner:
    if data[4:6] == _BUNDLED:
        data = bundled_program(data)
    if data[4:6] == _WEIGHTS:
        raise InvalidInput("this file holds weights alone: load its .pte with external_weights=")
    if data[4:8] != _IDENTIFIER:
        raise InvalidInput("this is no .pte file of ExecuTorch: its identifier is not ET12")
    is_one = isinstance(external_weights, (str, os.PathLike))
    files: Any = [external_weights] if is_one else external_weights or ()
    if not isinstance(files, (list, tuple)):
        kind = kind_of(external_weights)
        raise InvalidInput(f"external_weights is a .ptd file or a list of them, not {kind}")
    outside = {key: data for file in files for key, data in named_data(_read(file)).items()}
    try:
        return Runner(read_program(data), outside)
    except InvalidGraph as problem:
        raise InvalidInput(f"this .pte file is damaged: {problem}") from None


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as problem:
        raise InvalidInput(f"cannot read '{os.fspath(path)}': {problem.strerror}") from None


class Runner:
    """A loaded program; ``run`` takes and gives what its method does, ``forward`` or the first."""

    def __init__(
        self, file: ProgramFile, outside: Mapping[str, bytes], name: str | None = None
    ) -> None:
        plans = file.plans
        own = next(iter(plans), "forward") if name is None and "forward" not in plans else name
        if (own or "forward") not in plans:
            raise InvalidInput(f"the program has no method {name!r}, only {sorted(plans)}")
        self._is_given = name is not None  # which method runs; else the inputs choose
        self._others: dict[str, Runner] = {}
        self._file, self._outside, self.methods = file, outside, list(plans)
        self._plan = plans[own or "forward"]
        self._infos = infos_of(self._plan, outside)
        named = {**file.named, **outside}
        self._contents = [
            contents_of(number, *delegate, named)
            for number, delegate in enumerate(self._plan.delegates)
        ]
        self.inputs = self._ports(self._plan.inputs)
        self.outputs = self._ports(self._plan.outputs)

    @cached_property
    def _memory(self) -> Memory:
        from tosaic.executorch.memory import Memory

        return Memory(self._plan, self._infos, self._outside)

    @cached_property
    def _executors(self) -> list[Executor]:
        from tosaic.executorch.executors import executor_of

        given = zip(self._plan.delegates, self._contents)
        return [executor_of(*delegate, contents) for delegate, contents in given]

    @cached_property
    def _kernels(self) -> list[Kernel]:
        from tosaic.executorch.kernels import kernel_of, register_kernels

        register_kernels(name for name, _ in self._plan.operators)
        return [kernel_of(*operator) for operator in self._plan.operators]

    @property
    def operators(self) -> list[str]:
        """What runs on the CPU, by ExecuTorch's names."""
        return [".".join(filter(None, each)) for each in self._plan.operators]

    @property
    def delegates(self) -> list[Executor]:
        """What runs the delegates, in their order."""
        return list(self._executors)

    def method(self, name: str) -> Runner:
        """Another method of the program."""
        return Runner(self._file, self._outside, name)

    def _ports(self, indices: Sequence[int]) -> tuple[TensorInfo | None, ...]:
        if not all(0 <= index < len(self._plan.values) for index in indices):
            raise InvalidInput("an input or an output of the program is no value of it")
        return tuple(self._infos.get(index) for index in indices)

    @on_cpu
    def run(self, *inputs: Any, engine: str | None = None, **named: Any) -> Any:
        """The program's outputs for its inputs, in its own structure.

        ``engine`` is what runs delegates that have several: "vulkan" those of VGF on the driver.
        """
        import torch

        self._check_engine(engine)
        flat = self._leaves(inputs, named)
        if len(flat) != len(self.inputs):
            kinds = ", ".join(map(str, self.inputs))
            wanted = one_or(len(self.inputs), "input")
            raise InvalidInput(f"the program takes {wanted}, not {len(flat)}: {kinds}")
        if (other := self._other_size(flat)) is not None:
            return other.run(*inputs, engine=engine, **named)
        with torch.no_grad(), quiet():
            try:
                for number, (index, given) in enumerate(zip(self._plan.inputs, flat)):
                    self._memory.accept(index, given, number)
                for chain in self._plan.chains:
                    self._run(chain, engine)
            except TosaicError:
                raise
            except Exception as problem:  # what the file says reaches kernels as it is
                raise InvalidInput(f"the program does not run: {first_line(problem)}") from problem
        return self._structured([self._memory.result(index) for index in self._plan.outputs])

    def _other_size(self, flat: list[Any]) -> Runner | None:
        """The method that takes inputs of these sizes, where this one does not and another does."""
        shapes = [tuple(getattr(value, "shape", ())) for value in flat]
        if self._is_given or _shapes(self.inputs) == shapes:
            return None
        for name in self.methods:
            if name not in self._others:
                self._others[name] = Runner(self._file, self._outside, name)
            if _shapes(self._others[name].inputs) == shapes:
                return self._others[name]
        return None

    def _leaves(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """Arguments as the program has them, or one after another."""
        from tosaic.front import torchapi

        spec = torchapi.structure(self._plan.structures[0])
        if spec is not None:
            try:
                return torchapi.flatten_as((inputs, named), spec)
            except (ValueError, KeyError):
                pass
        if named:
            names = torchapi.names_of(spec) if spec is not None else []
            known = f"by the names {', '.join(names)}" if names else "by position alone"
            raise InvalidInput(f"the program takes arguments {known}, not {', '.join(named)}")
        return torchapi.flatten(inputs)[0]

    def _structured(self, outputs: list[Any]) -> Any:
        from tosaic.front import torchapi

        spec = torchapi.structure(self._plan.structures[1])
        if spec is None or spec.num_leaves > len(outputs):
            return outputs
        # New values of inputs that the program writes to come before its own results.
        return torchapi.unflatten(outputs[len(outputs) - spec.num_leaves :], spec)

    def _check_engine(self, engine: str | None) -> None:
        known = dict.fromkeys(each for one in self._executors for each in one.engines)
        if engine not in (None, *known):
            has = f"delegates that run by {', '.join(known)}" if known else "no delegates"
            raise InvalidInput(f"the program has no engine {engine!r}: it has {has}")

    def _run(self, instructions: Sequence[Instruction], engine: str | None) -> None:
        position = steps = 0
        while position < len(instructions):
            steps += 1
            if steps > _STEPS:
                raise InvalidInput(f"the program has not ended after {_STEPS} instructions")
            position = self._step(instructions[position], position, engine)

    def _step(self, step: Instruction, position: int, engine: str | None) -> int:
        """Execute one instruction; the position of the next."""
        values = self._memory.values
        if step.kind == KERNEL:
            self._kernels[step.first](self._memory, step.args)
        elif step.kind == DELEGATE:
            self._delegate(self._executors[step.first], step.args, engine)
        elif step.kind == MOVE:
            values[step.second] = values[step.first]
        elif step.kind == JUMP_FALSE:
            condition = values[step.first]
            if not (bool(condition.all()) if hasattr(condition, "all") else condition):
                return step.second
        return position + 1

    def _delegate(self, executor: Executor, args: Sequence[int], engine: str | None) -> None:
        from tosaic.executorch.executors import physical

        count = executor.inputs
        given = [physical(self._memory.values[i], self._memory.order(i)) for i in args[:count]]
        made = executor.run(given, engine if engine in executor.engines else None)
        if len(made) != len(args) - count or len(given) != count:
            raise InvalidInput(f"a delegate of {count} inputs is called with {len(args)} tensors")
        for index, data in zip(args[count:], made):
            self._memory.store(index, data)


def _shapes(infos: Sequence[TensorInfo | None]) -> list[tuple[int, ...]]:
    return [() if info is None else tuple(info.shape) for info in infos]
