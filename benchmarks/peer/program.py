"""The peer's side of a benchmark: ExecuTorch's own Arm backend, in the interpreter that has it.

`python program.py accuracy FOLDER` and the like. It reads programs and inputs from a folder and
leaves its results there; nothing of Tosaic is imported.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

SPEC = "TOSA-1.0+INT"


def cpu() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def convert(exported: Any, calibration: list[tuple[Any, ...]]) -> Any:
    """The peer's own quantization, as its documentation has it."""
    from executorch.backends.arm.quantizer import (
        TOSAQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.backends.arm.tosa.specification import TosaSpecification
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = TOSAQuantizer(TosaSpecification.create_from_string(SPEC))
    quantizer.set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(exported.module(check_guards=False), quantizer)
    for arguments in calibration:
        prepared(*arguments)
    return convert_pt2e(prepared)


def lower(exported: Any) -> Any:
    """A converted program through the peer's partitioner and backend."""
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
    from executorch.exir import to_edge_transform_and_lower

    partitioner = TOSAPartitioner(TosaCompileSpec(SPEC))
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


def lowering(folder: Path) -> None:
    """CPU seconds from a converted program to TOSA, imports not counted."""
    import executorch.backends.arm.tosa.partitioner
    import executorch.exir  # noqa: F401
    import torch

    for file in sorted(folder.glob("*.pt2")):
        program = torch.export.load(file)
        start = cpu()
        edge = lower(program)
        delegates, kept = remaining(edge)
        torch.save(
            {"seconds": cpu() - start, "delegates": delegates, "kept": kept},
            file.with_suffix(".peer"),
        )


def main() -> None:
    modes = {"accuracy": accuracy, "lowering": lowering}
    modes[sys.argv[1]](Path(sys.argv[2]))


if __name__ == "__main__":
    main()
