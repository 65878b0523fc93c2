"""Files beside a ``.vgf``: a scenario with inputs for the SDK's runner, and a C++ program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from io import BytesIO
from pathlib import Path

import numpy as np

from tosaic.errors import InvalidInput
from tosaic.files.vgf.container import Container, Slot, read_container
from tosaic.files.vgf.formats import dtype_of, format_name
from tosaic.ir.graph import Array


def scenario_files(
    data: bytes, path: Path, inputs: Sequence[Array] | None = None
) -> dict[Path, bytes]:
    """``net.scenario.json`` and ``net.input_0.npy`` beside ``net.vgf``; zeros unless told."""
    held = read_container(memoryview(data))
    slots, stem = held.sequence.inputs, path.stem
    if inputs is not None and len(inputs) != len(slots):
        raise InvalidInput(f"the scenario has {len(slots)} inputs, and {len(inputs)} were given")
    files, bindings = dict[Path, bytes](), list[dict[str, object]]()
    held_by: list[dict[str, object]] = [{"graph": {"uid": "graph", "src": path.name}}]
    seen: set[int] = set()
    sides = [("input", i, s) for i, s in enumerate(slots)]
    sides += [("output", i, s) for i, s in enumerate(held.sequence.outputs)]
    for side, number, slot in sides:
        if slot.binding in seen:
            continue
        seen.add(slot.binding)
        name = f"{side}_{number}"
        tensor = _tensor(held, slot, name)
        if side == "input":
            file = f"{stem}.{name}.npy"
            array = _zeros(held, slot) if inputs is None else np.asarray(inputs[number])
            files[path.with_name(file)] = _npy(array)
            tensor |= {"src": file, "shader_access": "readonly"}
        else:
            tensor |= {"dst": f"{stem}.{name}.npy", "shader_access": "writeonly"}
        held_by.append({"tensor": tensor})
        bindings.append({"set": 0, "id": slot.binding, "resource_ref": name})
    command = {"dispatch_graph": {"graph_ref": "graph", "bindings": bindings}}
    made = {"commands": [command], "resources": held_by}
    files[path.with_name(f"{stem}.scenario.json")] = (json.dumps(made, indent=1) + "\n").encode()
    return files


def sample(path: Path) -> bytes:
    """A C++ program that opens the file."""
    text = (resources.files(__package__) / "sample.cpp").read_text(encoding="utf-8")
    return text.replace("@FILE@", path.name).replace("@STEM@", path.stem).encode()


def _tensor(held: Container, slot: Slot, name: str) -> dict[str, object]:
    resource = held.resources[slot.resource]
    return {
        "uid": name, "dims": list(resource.shape) or [1], "format": format_name(resource.format),
    }  # fmt: skip


def _zeros(held: Container, slot: Slot) -> Array:
    resource = held.resources[slot.resource]
    return np.zeros(resource.shape, dtype_of(resource.format).array)


def _npy(array: Array) -> bytes:
    file, plain = BytesIO(), array
    if array.dtype.isbuiltin != 1:  # floats that numpy has no type of its own for
        plain = array.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16)
    np.save(file, np.ascontiguousarray(plain))
    return file.getvalue()
