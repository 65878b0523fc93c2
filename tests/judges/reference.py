"""Arm's reference model: the answers that conformance tests, and any other test, compare with."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from judges import wheel
from judges.arrays import from_file, to_file

_STATUS = {0: "TOSA_VALID", 1: "TOSA_UNPREDICTABLE", 2: "TOSA_ERROR"}


class ReferenceRefused(Exception):
    """The reference model calls the graph an error or its result unpredictable."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def answer(folder: Path) -> str:
    """Run a generated test in its folder, leaving outputs, bounds and ``status`` beside it."""
    description = json.loads((folder / "desc.json").read_bytes())
    tensors = description["meta"].get("compliance", {}).get("tensors", {})
    integers = all(
        t["mode"] == "EXACT" and t["data_type"].startswith(("INT", "BOOL", "SHAPE"))
        for t in tensors.values()
    )
    status, _ = _command_line(folder, precise=not integers)
    (folder / "status").write_text(status)
    return status


def run_reference(
    graph: bytes, inputs: Sequence[np.ndarray], level: str = "EIGHTK", apart: bool = False
) -> list[np.ndarray]:
    """Outputs of a serialized graph in Tosaic's array types; raises ReferenceRefused.

    It runs in this process or, if ``apart`` or for types that its Python bindings lack, as a
    program: on a division by zero, for one, it dies.
    """
    import tosa_reference_model

    block = _main_block(graph)
    taken = {t for names in (block.inputs, block.outputs) for _, t in names}
    if apart or taken & {"INT48", "SHAPE", "INT4"}:
        return _run_as_program(graph, inputs, level)
    given = [to_file(a, t) for a, (_, t) in zip(inputs, block.inputs, strict=True)]
    given = [a.view(f"u{a.dtype.itemsize}") if a.dtype.kind == "V" else a for a in given]
    try:
        outputs, status = tosa_reference_model.run(graph, given, tosa_level=level)
    except ValueError as error:
        raise ReferenceRefused("TOSA_ERROR", str(error)) from error
    if status.name != "TOSA_VALID":
        raise ReferenceRefused(status.name, "see the messages above")
    return [from_file(a, t) for a, (_, t) in zip(outputs, block.outputs, strict=True)]


def intermediates(graph: bytes, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor that an operator of the main block makes, by name, outputs included."""
    widened = _with_all_outputs(graph)
    names = [name for name, _ in _main_block(widened).outputs]
    return dict(zip(names, run_reference(widened, inputs), strict=True))


@dataclass(frozen=True, slots=True)
class _Block:
    """Names and TOSA types of a graph's inputs and outputs."""

    inputs: list[tuple[str, str]]
    outputs: list[tuple[str, str]]


def _main_block(graph: bytes) -> _Block:
    from tosa.DType import DType
    from tosa.TosaGraph import TosaGraph

    type_names = {code: name for name, code in vars(DType).items() if isinstance(code, int)}
    block = TosaGraph.GetRootAs(graph, 0).Regions(0).Blocks(0)
    tensors = (block.Tensors(i) for i in range(block.TensorsLength()))
    types = {t.Name().decode(): type_names[t.Type()] for t in tensors}
    inputs = [block.Inputs(i).decode() for i in range(block.InputsLength())]
    outputs = [block.Outputs(i).decode() for i in range(block.OutputsLength())]
    return _Block(
        [(n, types.get(n, "SHAPE")) for n in inputs], [(n, types.get(n, "SHAPE")) for n in outputs]
    )


def _with_all_outputs(graph: bytes) -> bytes:
    import tosa_serializer
    from tosa.TosaGraph import TosaGraph

    version = TosaGraph.GetRootAs(graph, 0).Version()
    numbers = (version._Major(), version._Minor(), version._Patch(), version._Draft())
    serializer = tosa_serializer.TosaSerializer("", tosa_serializer.ConstMode.EMBED, *numbers)
    with tempfile.NamedTemporaryFile(suffix=".tosa") as file:
        file.write(graph)
        file.flush()
        serializer.loadTosaFlatbuffer(file.name)
    block = serializer.regions[0].basicBlocks[0]
    seen = {*block.outputs, *block.shapes}  # shapes are held by name
    for operator in block.operators:
        for name in operator.outputs:
            if name not in seen:
                block.addOutput(name)
    return bytes(serializer.serialize())


def _run_as_program(graph: bytes, inputs: Sequence[np.ndarray], level: str) -> list[np.ndarray]:
    block = _main_block(graph)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test.tosa").write_bytes(graph)
        for i, (array, (_, tosa_type)) in enumerate(zip(inputs, block.inputs, strict=True)):
            np.save(folder / f"input-{i}.npy", to_file(array, tosa_type))
        description = {
            "tosa_file": "test.tosa",
            "ifm_name": [n for n, _ in block.inputs],
            "ifm_file": [f"input-{i}.npy" for i in range(len(block.inputs))],
            "ofm_name": [n for n, _ in block.outputs],
            "ofm_file": [f"output-{i}.npy" for i in range(len(block.outputs))],
        }
        (folder / "desc.json").write_text(json.dumps(description))
        status, message = _command_line(folder, level=level)
        if status != "TOSA_VALID":
            raise ReferenceRefused(status, message)
        loaded = [np.load(folder / f) for f in description["ofm_file"]]
    return [from_file(a, t) for a, (_, t) in zip(loaded, block.outputs, strict=True)]


def _command_line(folder: Path, precise: bool = False, level: str = "EIGHTK") -> tuple[str, str]:
    command = [wheel.program("tosa_reference_model"), "--test_desc", str(folder / "desc.json")]
    command += ["--tosa_level", level, f"--precise_mode={int(precise)}"]
    done = subprocess.run(command, capture_output=True, env=wheel.without_gdb(), check=False)
    message = done.stderr.decode(errors="replace").strip()
    if done.returncode not in _STATUS:
        return f"CRASH_{done.returncode}", message
    return _STATUS[done.returncode], message
