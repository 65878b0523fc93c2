"""Sizes that inputs choose: the program at each of some sizes, quantized with one calibration."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.imported import Imported
from tosaic.lowering.support import constants
from tosaic.lowering.target import Target
from tosaic.passes.importer import import_model
from tosaic.passes.widen_residuals import outliers
from tosaic.pipeline.calibration import Recorder
from tosaic.quant.bias_correction import known_value
from tosaic.quant.calibrate import iterable, run_over
from tosaic.quant.calibration import Calibration
from tosaic.quant.flow import NO_DATA, float_module, given
from tosaic.quant.inputs import Arguments, read_each, with_tensors
from tosaic.quant.quantizer import TosaicQuantizer
from tosaic.quant.statistics import Statistics
from tosaic.quant.value_names import adopt_names, constant_name, name_of
from tosaic.runtime.warn import warn

Values = tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """A model whose inputs choose sizes: it is imported at any of them, each once."""

    model: Any  # an nn.Module
    examples: tuple[Any, ...]
    free: torchapi.FreeSizes
    fft: bool = False

    def told(self, values: Sequence[int]) -> str:
        """Sizes in words, such as "length=100"."""
        return ", ".join(f"{f.name}={v}" for f, v in zip(self.free.free, values))

    def chosen(self, wanted: Iterable[Any] | None) -> list[Values]:
        """The sizes to compile for: those that are wanted, or a few of the range."""
        if wanted is None:
            return self._some()
        made = list(dict.fromkeys(self._values(each) for each in wanted))
        if not made:
            raise InvalidInput("sizes is empty: name one at least")
        return made

    def _some(self) -> list[Values]:
        """The example's size, and the ends of the range, or half and twice the example's."""
        free = self.free.free
        low = tuple(f.low if f.low > 1 else max(1, f.example // 2) for f in free)
        high = tuple(2 * f.example if f.high is None else f.high for f in free)
        return sorted({low, tuple(f.example for f in free), high})

    def _values(self, given: Any) -> Values:
        free = self.free.free
        names = [f.name for f in free]
        if isinstance(given, Mapping):
            if unknown := [str(name) for name in given if name not in names]:
                raise InvalidInput(f"nothing of the model is sized by {unknown[0]!r}, but by "
                                   f"{', '.join(names)}")  # fmt: skip
            found = [given.get(f.name, f.example) for f in free]
        else:
            found = list(given) if isinstance(given, (tuple, list)) else [given]
        if len(found) != len(names) or not all(type(n) is int for n in found):
            raise InvalidInput(
                f"a size of this model is {'a number' if len(names) == 1 else 'a dict'} for "
                f"{', '.join(names)}, not {given!r}"
            )
        for size, number in zip(free, found):
            if number < size.low or (size.high is not None and number > size.high):
                end = "on" if size.high is None else f"to {size.high}"
                raise InvalidInput(f"{size.name} is from {size.low} {end}, and {number} is not")
        return tuple(found)

    def values_of(self, leaves: Sequence[Any]) -> Values | None:
        """The sizes of the leaves of some arguments; None if the program does not take them."""
        return self.free.values_of([tuple(v.shape) if _is_array(v) else None for v in leaves])

    def examples_at(self, values: Values, like: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """Arguments of some sizes: the example's, cut off or repeated."""
        flat, spec = torchapi.flatten(self.examples if like is None else like)
        shapes = self.free.shapes_at(values)
        made = [v if s is None else _resized(v, s) for v, s in zip(flat, shapes, strict=True)]
        sized: tuple[Any, ...] = torchapi.unflatten(made, spec)
        return sized

    @cached_property
    def _sources(self) -> dict[Values, Imported]:
        return {}

    def at(self, values: Values) -> Imported:
        """The program at some sizes."""
        if values not in self._sources:
            self._sources[values] = import_model(
                self.model, self.examples_at(values), None, self.fft
            )
        return self._sources[values]

    def __getstate__(self) -> None:
        raise TypeError("a model with free sizes is for compiling alone")


def sizes_of(
    model: Any, examples: tuple[Any, ...], dynamic_shapes: Any, fft: bool = False
) -> Sizes | None:
    """What is free in a model's sizes; None if nothing is."""
    if isinstance(model, (str, os.PathLike)) and dynamic_shapes is None:
        model = torchapi.load(model)
    if isinstance(model, ExportedProgram):
        if dynamic_shapes is not None:
            return None
        free = torchapi.free_sizes(model)
        return Sizes(model.module(), examples, free, fft) if free.free else None
    if dynamic_shapes is None or not isinstance(model, torch.nn.Module):
        return None
    names = list(inspect.signature(model.forward).parameters)
    leaves = torchapi.flatten(examples)[0]
    stated = torchapi.stated_sizes(dynamic_shapes, names, leaves)
    if stated is None:
        exported = torchapi.export(model, examples, dynamic_shapes)
        stated = torchapi.free_sizes(exported, dynamic_shapes)
        stated = _with_others(Sizes(model, examples, stated, fft), dynamic_shapes, names)
    return Sizes(model, examples, stated, fft) if stated.free else None


def _with_others(sizes: Sizes, dynamic_shapes: Any, names: Sequence[str]) -> torchapi.FreeSizes:
    """What is free, with automatic sizes that an export has fixed and that the model takes others
    of, as that of a recurrence."""
    found = sizes.free
    for leaf, axis in torchapi.automatic_sizes(dynamic_shapes, names):
        shape = found.shapes[leaf] if leaf < len(found.shapes) else None
        if shape is None or axis >= len(shape) or not isinstance(number := shape[axis], int):
            continue
        name = f"{names[leaf] if leaf < len(names) else f'input {leaf}'}.shape[{axis}]"
        more = found.with_size(name, leaf, axis, number)
        tried = replace(sizes, free=more)
        if _runs(sizes.model, tried.examples_at((*(f.example for f in found.free), number + 1))):
            found = more
        else:
            warn(f"{name} is always {number}: torch.export says so, and the model does not run "
                 f"with {number + 1}")  # fmt: skip
    return found


def _runs(model: torch.nn.Module, inputs: tuple[Any, ...]) -> bool:
    try:
        with torch.no_grad():
            copy.deepcopy(model)(*inputs)
    except Exception:  # noqa: BLE001  (torch raises many kinds)
        return False
    return True


def calibrated_at(
    sizes: Sizes, chosen: Sequence[Values], calibration: Any, quantizer: TosaicQuantizer
) -> Calibration:
    """What calibration sees of the program, whatever the sizes of the data are.

    A chosen size without data of its own is shown an input cut off or repeated, for those values
    alone that no other size has, such as further steps of a recurrence.
    """
    groups = _grouped(sizes, chosen, calibration)
    made, first, doubts = Calibration([]), None, list[str]()
    for values, items in groups.items():
        module = _module(sizes, values, quantizer, made)
        first = recorder = Recorder(module, made, first)
        doubts += _see(sizes, values, items, module, recorder, made)
        recorder.finish()
    like = next(iter(groups.values()))[0]
    for values in chosen:
        if values not in groups:
            module = _module(sizes, values, quantizer, made)
            recorder = Recorder(module, made)
            if recorder.is_new:
                _see(sizes, values, [sizes.examples_at(values, like)], module, recorder, made)
                recorder.finish()
    _see_constants([_module(sizes, values, quantizer, made) for values in chosen], made)
    for sentence in dict.fromkeys(doubts if calibration is not None else [NO_DATA, *doubts]):
        warn(sentence)
    return made


def _see_constants(modules: list[fx.GraphModule], made: Calibration) -> None:
    """Constants that differ with the size, such as positions, have one range for all sizes."""
    found: dict[str, list[Tensor]] = {}
    known_at = {module: constants(module.graph) for module in modules}
    for module in modules:
        for node in module.graph.nodes:
            if node.op != "get_attr" and node not in known_at[module]:
                continue
            value = known_value(module, node)
            if isinstance(value, Tensor) and value.is_floating_point():
                found.setdefault(constant_name(node), []).append(value.detach())
    for name, values in found.items():
        if len({value.shape for value in values}) > 1:
            made.tensors[name] = seen = Statistics()
            for value in values:
                seen.see(value.float())


def _module(
    sizes: Sizes, values: Values, quantizer: TosaicQuantizer, made: Calibration
) -> fx.GraphModule:
    """The program at some sizes, with the names of the first one."""
    module = float_module(sizes.at(values), quantizer)
    if made.form is None:
        made.form = module
    else:
        adopt_names(module, made.form)
    return module


def _grouped(
    sizes: Sizes, chosen: Sequence[Values], calibration: Any
) -> dict[Values, list[tuple[Any, ...]]]:
    """Calibration inputs by their sizes, as arguments in order."""
    if calibration is None:
        values = sizes.values_of(torchapi.flatten(sizes.examples)[0])
        return {values or chosen[0]: [sizes.examples]}
    source = sizes.at(chosen[0])
    assert isinstance(source.model, ExportedProgram)
    names = torchapi.argument_names(torchapi.module_of(source.model))
    structure = torchapi.flatten(sizes.examples)[1]
    found: dict[Values, list[tuple[Any, ...]]] = {}
    for count, item in enumerate(read_each(iterable(calibration)), 1):
        if isinstance(item, Mapping) and set(item) <= set(names):
            item = tuple(item[name] for name in names if name in item)
        elif not isinstance(item, (list, tuple)):
            item = (item,)
        leaves = with_tensors(torchapi.flatten(tuple(item))[0])[: structure.num_leaves]
        values = sizes.values_of(leaves) if len(leaves) == structure.num_leaves else None
        if values is None:
            got = " and ".join(str(list(v.shape)) for v in leaves if _is_array(v)) or "no tensor"
            raise InvalidInput(f"calibration input {count} is {got}, which the model does not take")
        found.setdefault(values, []).append(torchapi.unflatten(leaves, structure))
    return found


def _see(
    sizes: Sizes, values: Values, items: list[tuple[Any, ...]], module: fx.GraphModule,
    recorder: Recorder, made: Calibration,
) -> list[str]:  # fmt: skip
    """Run the program over inputs of one size; what is doubtful about them."""
    data, example = given(sizes.at(values), sizes.examples_at(values), items)
    with torch.no_grad():
        for leaves in Arguments(module, example).each([example]):
            made.outliers |= {name_of(n) for n in outliers(module, leaves)}
        count, doubts = run_over(module, example, data, recorder)
    made.count += count
    return doubts


def quantizes(source: Imported, target: Target, scheme: Any) -> bool:
    """Whether the program is quantized for a target, which a block-scaled scheme alone is not."""
    from tosaic.quant.selection import schemes_of  # for those who quantize

    has = target.env.profiles
    if scheme is not None and schemes_of(scheme).without_blocks() is None:
        return False
    return not source.is_quantized and "INT" in has and (scheme is not None or "FP" not in has)


def _is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray))


def _resized(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor cut off or repeated along its axes, which keep their order in memory."""
    if tuple(tensor.shape) == shape:
        return tensor
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda axis: -strides[axis])
    for axis, size in enumerate(shape):
        if tensor.shape[axis] != size:
            tensor = tensor.index_select(axis, torch.arange(size) % max(tensor.shape[axis], 1))
    back = [order.index(axis) for axis in range(tensor.dim())]
    return tensor.permute(order).contiguous().permute(back)
