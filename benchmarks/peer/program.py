"""The peer's side of a benchmark: ExecuTorch's own Arm backend, in the interpreter that has it.

`python program.py accuracy FOLDER` and the like. It reads programs and inputs from a folder and
leaves its results there; nothing of Tosaic is imported.
"""

from __future__ import annotations

import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

SPEC = "TOSA-1.0+INT"


def cpu() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def convert(exported: Any, calibration: list[tuple[Any, ...]], spec: str = SPEC) -> Any:
    """The peer's own quantization, as its documentation has it."""
    from executorch.backends.arm.quantizer import (
        TOSAQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.backends.arm.tosa.specification import TosaSpecification
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = TOSAQuantizer(TosaSpecification.create_from_string(spec))
    quantizer.set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(exported.module(check_guards=False), quantizer)
    for arguments in calibration:
        prepared(*arguments)
    return convert_pt2e(prepared)


def lower(exported: Any, spec: str = SPEC) -> Any:
    """A converted program through the peer's partitioner and backend."""
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
    from executorch.exir import to_edge_transform_and_lower

    partitioner = TOSAPartitioner(TosaCompileSpec(spec))
    return to_edge_transform_and_lower(exported, partitioner=[partitioner])


def remaining(edge: Any) -> tuple[int, list[str]]:
    """How many delegates there are, and the calls that the peer left to the CPU."""
    calls = [n for n in edge.exported_program().graph.nodes if n.op == "call_function"]
    names = [str(getattr(n.target, "__name__", n.target)) for n in calls]
    delegates = sum("delegate" in name for name in names)
    free = ("delegate", "getitem", "quantize", "alloc")
    return delegates, [name for name in names if not any(word in name for word in free)]


def accuracy(folder: Path) -> None:
    """What the peer's converted programs answer in PyTorch."""
    import torch

    for file in sorted(folder.glob("*.pt2")):
        if file.with_suffix(".peer").exists():
            continue
        inputs = torch.load(file.with_suffix(".inputs"))
        found: dict[str, Any] = {}
        try:
            with torch.no_grad():
                converted = convert(torch.export.load(file), inputs["calibration"])
                found["outputs"] = [converted(*each) for each in inputs["evaluation"]]
        except Exception as problem:  # noqa: BLE001  (whatever a peer dies of is a result)
            traceback.print_exc()
            found["problem"] = f"{type(problem).__name__}: {problem}".splitlines()[0]
        torch.save(found, file.with_suffix(".peer"))


def lowering(folder: Path, name: str) -> None:
    """CPU seconds from a converted program to TOSA, imports not counted.

    The program is the peer's own, since it takes no other whole, and is left for the other side.
    """
    import executorch.backends.arm.tosa.partitioner
    import executorch.exir  # noqa: F401
    import torch

    net, calibration = read(folder / f"{name}.net")
    with torch.no_grad():
        converted = convert(torch.export.export(net, calibration[0]), calibration)
        program = torch.export.export(converted, calibration[0])
    torch.export.save(program, folder / f"{name}.pt2")
    start = cpu()
    edge = lower(program)
    found = {"seconds": cpu() - start}
    delegates, kept = remaining(edge)
    torch.save(found | {"delegates": delegates, "kept": kept}, folder / f"{name}.peer")


def read(file: Path) -> tuple[Any, list[tuple[Any, ...]]]:
    """A network and its inputs."""
    import torch

    sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))  # what is pickled
    given = torch.load(file, weights_only=False)
    return given["net"], given["calibration"]


def whole(folder: Path, name: str) -> None:
    """CPU seconds of this process from an nn.Module to TOSA; reading files is not counted."""
    import torch

    start = cpu()
    net, calibration = read(folder / f"{name}.net")
    reading = cpu() - start
    import torch.export._trace
    import torchao.quantization.pt2e.quantize_pt2e  # noqa: F401

    imports = cpu() - reading
    with torch.no_grad():
        converted = convert(torch.export.export(net, calibration[0]), calibration)
        lower(torch.export.export(converted, calibration[0]))
    torch.save({"whole": cpu() - reading, "imports": imports}, folder / f"{name}.whole")


def graphs(folder: Path, name: str, spec: str) -> None:
    """The TOSA files that the peer makes of a network for a specification, and what it leaves."""
    import torch

    net, calibration = read(folder / f"{name}.net")
    with torch.no_grad():
        converted = convert(torch.export.export(net, calibration[0]), calibration, spec)
        edge = lower(torch.export.export(converted, calibration[0]), spec)
    modules = edge.exported_program().graph_module.modules()
    files = [bytes(m.processed_bytes) for m in modules if hasattr(m, "processed_bytes")]
    kept = remaining(edge)[1]
    torch.save({"files": files, "kept": kept}, folder / f"{name}.graphs")


def main() -> None:
    modes = {"accuracy": accuracy, "lowering": lowering, "whole": whole, "graphs": graphs}
    modes[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])


if __name__ == "__main__":
    main()
