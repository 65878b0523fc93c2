"""A ``.vgf`` on a Vulkan device: built once, run as often as one likes."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tosaic.errors import InvalidInput, ToolMissing, Unsupported
from tosaic.files.vgf import graph_of
from tosaic.files.vgf.container import (
    BUFFER_DESCRIPTOR,
    TENSOR_DESCRIPTOR,
    Resource,
    Slot,
    read_container,
)
from tosaic.files.vgf.formats import dtype_of, name_of
from tosaic.ir.graph import Array, Graph
from tosaic.sim.vulkan.environment import (
    APT,
    DEVICES,
    PIP,
    Driver,
    find_driver,
    find_loader,
    loading,
)
from tosaic.sim.vulkan.messages import cause_of

_BYTES = {1: np.uint8, 2: np.uint16}  # how numpy holds floats that it has no type of its own for


class Session:
    """A file's graph on a device. ``run`` takes and gives arrays in the order of the file.

    The file is read by Tosaic first: Vulkan never gets one that its reader refuses. ``profile`` is
    a folder that the emulation layers write their measurements into.
    """

    def __init__(
        self, data: bytes, device: str = DEVICES[0], profile: str | Path | None = None
    ) -> None:
        self._process = os.getpid()
        self._held = read_container(memoryview(data))
        _check_transforms(graph_of(self._held))
        self._runner = _runner()
        self._inputs = self._held.sequence.inputs
        self._outputs = self._held.sequence.outputs
        if not self._outputs:
            raise InvalidInput("the file has no outputs, so there is nothing to run")
        driver = find_driver(device)
        if find_loader() is None:
            raise ToolMissing(f"Vulkan's loader is missing: {APT}")
        more = {} if profile is None else {"VMEL_GRAPH_PROFILING": "1"}
        with loading(driver, more), tempfile.TemporaryDirectory(prefix="tosaic-vgf-") as folder:
            path = Path(folder, "graph.vgf")
            path.write_bytes(data)
            try:
                self._scenario, self._tensors = self._build(path, profile)
                _instance(driver)
            except (RuntimeError, ValueError, TypeError, MemoryError) as problem:
                raise cause_of(problem, "building the graph") from None

    def _build(self, path: Path, profile: str | Path | None) -> tuple[Any, dict[int, Any]]:
        api = self._runner
        builder, info = api.ScenarioBuilder(), api.VgfInfo()
        info.load_source(str(path))
        dispatch = api.DispatchVgfData(builder.add_vgf(info))
        tensors: dict[int, Any] = {}
        bindings = []
        for slot in (*self._inputs, *self._outputs):
            if slot.binding in tensors:  # outputs that are one value share a binding
                continue
            made, kind = _added(api, builder, self._held.resources[slot.resource])
            tensors[slot.binding] = made
            bindings.append(api.TypedBinding(0, slot.binding, made, kind))
        dispatch.bindings = bindings
        builder.add_dispatch_vgf(dispatch)
        options = api.ScenarioOptions()
        if profile is not None:
            options.graph_profiling_dump_dir = str(profile)
        return builder.build(options=options), tensors

    def run(self, *inputs: Array) -> list[Array]:
        """The outputs for some inputs."""
        if self._process != os.getpid():
            raise InvalidInput("a Vulkan session ends at a fork: load the file in the new process")
        if len(inputs) != len(self._inputs):
            raise InvalidInput(f"the file takes {len(self._inputs)} inputs, not {len(inputs)}")
        try:
            for slot, given in zip(self._inputs, inputs):
                self._scenario.upload(self._tensors[slot.binding], self._raw(slot, given))
            self._scenario.run()
            return [self._taken(slot) for slot in self._outputs]
        except (RuntimeError, ValueError, TypeError) as problem:
            raise cause_of(problem, "running the graph") from None

    def _raw(self, slot: Slot, given: Any) -> Array:
        """An array in the form that the runner takes: its own types, at least one axis."""
        held = self._held.resources[slot.resource]
        kind = np.dtype(dtype_of(held.format).array)
        array = np.ascontiguousarray(given)
        if array.dtype.itemsize != kind.itemsize or array.size != _size(held.shape):
            wanted = f"{kind.name}{list(held.shape)}"
            raise InvalidInput(f"an input takes {wanted}, not {array.dtype}{list(array.shape)}")
        array = array.reshape(held.shape).astype(kind, copy=False)
        return array if kind.isbuiltin == 1 else array.view(_BYTES[kind.itemsize])

    def _taken(self, slot: Slot) -> Array:
        held = self._held.resources[slot.resource]
        kind = np.dtype(dtype_of(held.format).array)
        raw = np.ascontiguousarray(self._scenario.download(self._tensors[slot.binding]))
        return raw.reshape(-1).view(np.uint8).view(kind).reshape(held.shape).copy()


def _added(api: Any, builder: Any, held: Resource) -> tuple[Any, Any]:
    """What holds an input or an output: a tensor, or a buffer where a shader reads one."""
    if held.descriptor == TENSOR_DESCRIPTOR:
        made = builder.add_tensor(list(held.shape), getattr(api.Format, name_of(held.format)))
        return made, api.DescriptorType.TensorArm
    if held.descriptor == BUFFER_DESCRIPTOR:
        width = np.dtype(dtype_of(held.format).array).itemsize
        return builder.add_buffer(_size(held.shape) * width), api.DescriptorType.StorageBuffer
    raise Unsupported(
        f"the file takes or gives a resource of Vulkan's descriptor type {held.descriptor}; "
        "tensors and storage buffers are run here"
    )


def _check_transforms(graph: Graph) -> None:
    """The emulation layers end the process where a transform's results are read by operators."""
    for op in graph.ops:
        if op.name in ("FFT2D", "RFFT2D") and not set(op.outs) <= set(graph.outputs):
            raise Unsupported(f"{op.name} runs on Vulkan only where the graph gives its results")


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


@cache
def _instance(driver: Driver) -> Any:
    """An instance with nothing to run, which stays as long as the process.

    The emulation layers compile a shader for each kind of operator, and forget all of them when
    the last instance ends: sessions of small graphs, one after the other, take ten times as long.
    """
    return _runner().ScenarioBuilder().build()


# A process that is forked off has no threads of the driver, for which the end of one would wait.
if sys.platform != "win32":
    os.register_at_fork(before=_instance.cache_clear)


def _runner() -> Any:
    try:
        return importlib.import_module("scenario_runner_py")
    except ImportError as problem:
        raise ToolMissing(f"the SDK's scenario runner is missing ({problem}): {PIP}") from None
