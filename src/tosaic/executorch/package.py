"""Writes an artifact as a ``.pte``: ExecuTorch operators for the CPU part, delegates for graphs.

ExecuTorch gets the remainder and the calls of finished delegates only, so the time it takes does
not depend on the size of what is delegated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from tosaic.errors import InvalidInput, TosaicError, Unsupported, first_line
from tosaic.executorch.api import quiet, require_executorch
from tosaic.executorch.delegates import Blob, device_blobs, lowered_module, tosa_blob
from tosaic.executorch.outer import STATE, example_inputs, outer_module
from tosaic.executorch.plain import NotPlain, plain_method
from tosaic.executorch.programfile import write_program
from tosaic.executorch.specs import LinuxOptions
from tosaic.files.whole import write_together
from tosaic.front import torchapi
from tosaic.ir.graph import Graph
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.sized import SizedArtifact

BlobOf = Callable[[Graph], Blob]


def save(
    artifact: Artifact,
    path: str | os.PathLike[str],
    *,
    external_weights: str | os.PathLike[str] | None = None,
    etrecord: str | os.PathLike[str] | None = None,
    linux: LinuxOptions | None = None,
    test_inputs: Iterable[Any] | None = None,
) -> None:
    """Write an artifact for ExecuTorch's runtime: a ``.pte``, or a ``.bpte`` with test inputs.

    ``external_weights`` is a ``.ptd`` that gets the weights, ``etrecord`` a file for ExecuTorch's
    developer tools, ``linux`` what the runtime on Linux shall do with the NPU. ``test_inputs``
    are inputs that a ``.bpte`` carries along with the outputs they must give.
    """
    bundled = Path(path).suffix == ".bpte"
    if bundled is not (test_inputs is not None):
        raise InvalidInput("test_inputs=[...] are for a .bpte, and a .bpte needs them")
    place = _placement(external_weights)
    if not (bundled or place or etrecord is not None):
        plain = plain_file(artifact, linux or LinuxOptions())
        if plain is not None:
            write_together({Path(path): plain})
            return
    manager = executorch_program(artifact, place, linux or LinuxOptions(), etrecord is not None)
    files: dict[Path, bytes | Callable[[Path], None]] = {}
    if bundled:
        files[Path(path)] = bundle(manager, artifact, test_inputs or ())
    else:
        files[Path(path)] = bytes(manager.buffer)
    if external_weights is not None:
        files[Path(external_weights)] = _data_file(manager, place)
    if etrecord is not None:
        files[Path(etrecord)] = lambda file: manager.get_etrecord().save(str(file))
    write_together(files)


def plain_file(artifact: Artifact, linux: LinuxOptions) -> bytes | None:
    """The file of a program that needs no compiler of ExecuTorch's; None if it does."""
    blob_of = blobs(artifact, "")
    try:
        return write_program(*(
            plain_method(
                each, {id(p): blob_of(p.graph) for p in each.partition.walk() if p.graph},
                _specs(each, linux), name,
            )
            for name, each in methods_of(artifact).items()
        ))  # fmt: skip
    except NotPlain:
        return None


def methods_of(artifact: Artifact) -> dict[str, Artifact]:
    """The methods of a file: ``forward``, or one for each size, such as ``forward_length_100``."""
    if not isinstance(artifact, SizedArtifact):
        return {"forward": artifact}
    return {
        re.sub(r"\W+", "_", f"forward {size}").strip("_"): made
        for size, made in artifact.variants.items()
    }


def _specs(artifact: Artifact, linux: LinuxOptions) -> list[tuple[str, bytes]]:
    """What the runtime is told beside the delegate itself."""
    return [("target", artifact.target.encode()), *linux.entries()]


def _placement(external_weights: str | os.PathLike[str] | None) -> str:
    if external_weights is None:
        return ""
    file = Path(external_weights)
    if file.suffix != ".ptd" or not file.stem:
        raise InvalidInput(f"external weights go to a .ptd file, not to '{file}'")
    return file.stem


def _data_file(manager: Any, place: str) -> bytes:
    data = manager._tensor_data
    if place not in data:
        raise InvalidInput("the program has no weights to put outside of its file")
    return bytes(data[place])


def executorch_program(
    artifact: Artifact, placement: str, linux: LinuxOptions, record: bool
) -> Any:
    """ExecuTorch's own program, before it becomes a file."""
    require_executorch()
    return assemble(artifact, blobs(artifact, placement), placement, linux, record)


def blobs(artifact: Artifact, placement: str) -> BlobOf:
    """How the artifact's target makes delegates: of what was compiled, or of TOSA itself."""
    compiled = [d for each in methods_of(artifact).values() for d in each.delegates]
    if not compiled:
        return tosa_blob
    if not artifact.device.backend:
        way = "; tosaic firmware makes an image of it" if "+c" in artifact.target else ""
        raise Unsupported(f"ExecuTorch has no delegate for {artifact.target}{way}")
    placements = {"weight_data": placement} if placement else {}
    made = device_blobs(artifact.device.backend, compiled, placements)
    return lambda graph: made[id(graph)]


def assemble(
    artifact: Artifact, blob_of: BlobOf, placement: str, linux: LinuxOptions, record: bool = False
) -> Any:
    """The remainder and the delegates through ExecuTorch."""
    with quiet(), torch.no_grad():
        import executorch.kernels.quantized  # noqa: F401  (registers operators)
        from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
        from executorch.exir.backend.compile_spec_schema import CompileSpec
        from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

        specs = [CompileSpec(key, value) for key, value in _specs(artifact, linux)]
        exported = {}
        for name, each in methods_of(artifact).items():
            delegates = {
                id(piece): lowered_module(piece, blob_of(piece.graph), specs)
                for piece in each.partition.walk() if piece.graph is not None
            }  # fmt: skip
            outer = outer_module(each, delegates)
            exported[name] = torchapi.export(outer, example_inputs(each))
        outside = {"external_constants": lambda _: placement} if placement else {}
        try:
            edge = to_edge(exported, compile_config=EdgeCompileConfig(), generate_etrecord=record)
            starts = [InitializedMutableBufferPass([STATE])]  # values that state begins with
            return edge.to_executorch(ExecutorchBackendConfig(passes=starts, **outside))
        except TosaicError:
            raise
        except Exception as problem:
            raise Unsupported(_reason(problem)) from problem


def _reason(problem: Exception) -> str:
    found = re.search(r"aten\.\w+\.\w+", str(problem))
    if type(problem).__name__ == "SpecViolationError" and found:
        return (
            f"{found[0]} stays on the CPU, and ExecuTorch's runtime has no kernel for it: write it "
            "with other calls (the report has its line), or keep it out of the model"
        )
    return f"ExecuTorch does not take what stays on the CPU: {first_line(problem)}"


def bundle(manager: Any, artifact: Artifact, test_inputs: Iterable[Any]) -> bytes:
    """The bundled program; what must come out is what the artifact computes."""
    with quiet():
        from executorch.devtools import BundledProgram
        from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
        from executorch.devtools.bundled_program.serialize import (
            serialize_from_bundled_program_to_flatbuffer,
        )

        cases = []
        for given in test_inputs:
            arguments = tuple(given) if isinstance(given, (list, tuple)) else (given,)
            made = artifact.run(*arguments, raw=True)
            taken = artifact.boundary.quantized(_leaves(arguments))
            cases.append(MethodTestCase(taken, _leaves(made)))
        if not cases:
            raise InvalidInput("test_inputs is empty: give at least one input")
        suite = [MethodTestSuite("forward", cases)]
        return bytes(serialize_from_bundled_program_to_flatbuffer(BundledProgram(manager, suite)))


def _leaves(value: Any) -> list[Any]:
    flat, _ = torchapi.flatten(value)
    return [v.detach().contiguous() if isinstance(v, torch.Tensor) else v for v in flat]
