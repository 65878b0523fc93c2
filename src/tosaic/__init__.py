"""Tosaic takes PyTorch models to Arm edge devices.

``compile`` lowers a model to TOSA, ``load`` reads a TOSA graph or a ``.pte``; both give objects
that run it exactly, here and now. ``explain`` says what would be compiled and why not all of it,
``compare`` where a compiled model differs from the original, ``quantize`` does PT2E alone.
``tune`` compiles in many ways and finds the Pareto front, ``evaluate`` judges on a data set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from tosaic.boundary.types import IO
from tosaic.errors import (
    InvalidGraph,
    InvalidInput,
    ToolFailed,
    TosaicError,
    Unpredictable,
    Unsupported,
)
from tosaic.pipeline import formats
from tosaic.pipeline.goals import Goal
from tosaic.runtime.gc import of_new_objects
from tosaic.runtime.lock import in_turn
from tosaic.search.api import evaluate, tune

if TYPE_CHECKING:
    from torch import Tensor, fx

    from tosaic.executorch.runner import Paths, Runner
    from tosaic.interp.model import Model
    from tosaic.pipeline.artifact import Artifact
    from tosaic.pipeline.compare import Comparison
    from tosaic.pipeline.explain import Explanation
    from tosaic.quant.calibration import Calibration
    from tosaic.quant.selection import Schemes
    from tosaic.targets.ethosu.verdict import Verdict

__all__ = [
    "IO", "Goal", "InvalidGraph", "InvalidInput", "Schemes", "ToolFailed", "TosaicError",
    "Unpredictable", "Unsupported", "calibrate", "check", "compare", "compile", "convert",
    "evaluate",
    "explain", "load", "prepare_qat", "quantize", "shader", "tune",
]  # fmt: skip
__version__ = "0.1.0"
Examples = Union["Tensor", tuple[Any, ...], Mapping[str, Any]]


def __getattr__(name: str) -> Any:
    if name == "Schemes":  # it knows PyTorch, which importing tosaic does not load
        from tosaic.quant import Schemes

        return Schemes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load(
    source: bytes | str | os.PathLike[str],
    *,
    external_weights: Paths = None,
) -> Model | Runner:
    """Read a ``.tosa``, ``.pte`` or ``.bpte`` file (a path, or its bytes), and prepare it to run.

    So is a file of a target's own, by its suffix.

    The result has ``run(*inputs)``, ``inputs`` and ``outputs``. A file that breaks a rule of
    TOSA or of its format raises InvalidGraph or InvalidInput. ``external_weights`` is the ``.ptd``
    file of a ``.pte`` whose weights lie outside of it, or a list of such files.
    """
    if isinstance(source, (bytearray, memoryview)):
        source = bytes(source)
    _check_foreign(source)
    if _is_pte(source):
        from tosaic.executorch.runner import load_pte

        return load_pte(source, external_weights)
    if (own := _own_reader(source)) is not None:
        made: Model = own(source if isinstance(source, bytes) else _bytes_of(source))
        return made
    from tosaic.files.flatbuffer import read
    from tosaic.interp.model import Model
    from tosaic.ir.verify import verify
    from tosaic.spec.env import everything

    with of_new_objects():
        graph = read(source)
        verify(graph, everything(graph.version, level="none"))
        return Model(graph)


def _own_reader(source: object) -> Callable[[bytes], Any] | None:
    """What reads a file of a target's own, by its suffix or its first bytes; None for TOSA."""
    if isinstance(source, (str, os.PathLike)):
        suffix, start = Path(source).suffix, b""
    else:
        suffix, start = "", source[:8] if isinstance(source, bytes) else b""
    if suffix in ("", ".tosa") and (not start or start[4:8] == b"TOSA"):
        return None
    from tosaic.targets.catalog import formats

    for name, own in formats().items():
        if name == suffix or (own.magic and start.startswith(own.magic)):
            return own.read
    return None


def _bytes_of(source: str | os.PathLike[str]) -> bytes:
    try:
        return Path(source).read_bytes()
    except OSError as problem:
        raise InvalidInput(f"'{source}' cannot be read: {problem.strerror}") from None


def _check_foreign(source: bytes | str | os.PathLike[str]) -> None:
    """InvalidInput with what to give instead of another tool's file."""
    from tosaic.files.foreign import sentence

    if not isinstance(source, bytes) and (told := sentence(source)) is not None:
        raise InvalidInput(told)


def _is_pte(source: bytes | str | os.PathLike[str]) -> bool:
    """Whether bytes, or a file, are ExecuTorch's: by identifier, or by suffix if it has none."""
    if isinstance(source, bytes):
        return source[4:6] in (b"ET", b"BP", b"FT")
    from tosaic.executorch.api import SUFFIXES

    named = isinstance(source, (str, os.PathLike))
    return named and os.path.splitext(os.fspath(source))[1] in SUFFIXES


def _in_order(model: Any, example_inputs: Any) -> Any:
    """Example inputs as a tuple, be they given by name."""
    if isinstance(example_inputs, tuple):
        return example_inputs
    from tosaic.front.examples import in_order

    return in_order(model, example_inputs)


@in_turn
def compile(
    model: Any,
    example_inputs: Examples | None = None,
    *,
    target: str = "TOSA-1.0+INT",
    scheme: str | Schemes | None = None,
    calibration: Iterable[Any] | str | os.PathLike[str] | Calibration | None = None,
    dynamic_shapes: Any = None,
    sizes: Iterable[Any] | None = None,
    io: Any = None,
    preserve_io_quantization: bool = False,
    accuracy: Goal | None = None,
    budget_s: float | None = None,
    **options: Any,
) -> Artifact:
    """Lower a PyTorch model to TOSA, and compile it for a device where one is the target.

    ``model`` is an nn.Module, an ExportedProgram, a GraphModule that PT2E has converted, or the
    path of a ``.pt2`` file; ``example_inputs`` are its arguments, in order or by name, or
    the one tensor that it takes; a program that was exported has its own. For a target of integers
    it is quantized first (int8 unless ``scheme`` says otherwise, see ``quantize``), calibrated with
    the inputs in ``calibration``, or with what ``calibrate`` has stored in the file of that name;
    for a target of integers and floats if there is a ``scheme``. What cannot be lowered stays in
    PyTorch; ``report`` has the operator, the reason and the line of the user's own source.

    ``dynamic_shapes`` says what of the inputs' sizes is free, as torch.export has it. A target has
    fixed sizes, so ``sizes`` lists those to compile for: numbers, or dicts by the names of Dims
    where several are free. One artifact holds them all, quantized alike from calibration inputs
    of any size; ``run`` takes the one that fits.

    ``io`` is the type of inputs and outputs: "uint8", "int8", "int16" or "float", which is what
    they are unless told; ``IO("uint8", scale=1 / 255)`` says what the integers mean as well. It
    is for all, a dict of types by name or by index of an input, or a pair: (inputs, outputs).
    Everything within stays as the scheme has it; ``Artifact.boundary`` tells what came of it.
    Floats are quantized outside of the graphs, and within them where the target has floats, too,
    unless ``preserve_io_quantization``.

    With ``scheme="auto"`` each call has 8 or 16 bits, as few as ``accuracy`` asks for: a ``Goal``
    of signal-to-noise ratio or of a metric, or the best within a budget of cycles or SRAM.
    ``report.precision`` says what was chosen and why. The search ends after ``budget_s`` seconds
    with the best that it found.

    ``target`` is a TOSA specification or a device such as "ethos-u55-128" (``tosaic targets`` lists
    them), with ``options`` of its own. An Ethos-U has system_config, memory_mode, vela_ini (a file
    of your own), vela_flags, the limits max_scratch_bytes and max_flash_bytes, unroll: how many
    steps of a recurrence a stream computes, which the host calls in a loop (True is all of them),
    all_on_npu: lookups of tables stay there though the host is faster, and share_weights: several
    sizes read one set of weights, layers being in parts of 16 channels. ``check=False`` leaves
    out what is checked otherwise: float graphs against the model on the example, streams against
    their graphs.
    """
    with of_new_objects():
        from tosaic.pipeline.driver import compile_model

        return compile_model(
            model, _in_order(model, example_inputs), target, scheme, calibration, dynamic_shapes,
            options, io, preserve_io_quantization, accuracy, budget_s, sizes,
        )  # fmt: skip


@in_turn
def calibrate(
    model: Any,
    example_inputs: Examples | None = None,
    *,
    calibration: Iterable[Any] | None = None,
    target: str | None = None,
    dynamic_shapes: Any = None,
) -> Calibration:
    """Run a model over data, and keep what its values were; ``save`` writes it to a file of text.

    ``compile(..., calibration="net.ranges.json")`` compiles from the file for any target and
    scheme, without the data, and gives the same bytes on every processor. ``target`` is one more
    that it shall be for: those that ``tosaic targets`` lists are known. What the model is
    trained to may change after that; its structure may not.
    """
    with of_new_objects():
        from tosaic.pipeline.calibration import calibrated

        return calibrated(
            model, _in_order(model, example_inputs), calibration, target, dynamic_shapes
        )


@in_turn
def quantize(
    model: Any,
    example_inputs: Examples | None = None,
    *,
    scheme: str | Schemes = "int8",
    calibration: Iterable[Any] | str | os.PathLike[str] | Calibration | None = None,
) -> fx.GraphModule:
    """Quantize a model after training; the result is a program of PT2E, which ``compile`` takes.

    ``scheme`` is "int8", "a16w8" (int16 activations, int8 weights) or "a8w4" (int4 weights), each
    also with one scale for all channels of a weight, as "int8_per_tensor". ``tosaic.Schemes``
    chooses for each part of a model. ``calibration`` is any
    iterable of inputs like those that will come: tensors, tuples of arguments, or dicts by name;
    without it the example inputs serve, and a warning says so. Data that looks unlike what will
    come is warned about, and what does not fit the model raises InvalidInput.
    """
    with of_new_objects():
        from tosaic.quant import quantize as quantized

        return quantized(
            model, _in_order(model, example_inputs), scheme=scheme, calibration=calibration
        )


@in_turn
def prepare_qat(
    model: Any,
    example_inputs: Examples,
    *,
    scheme: str | Schemes = "int8",
) -> fx.GraphModule:
    """A model that computes with the rounded numbers of a scheme, to be trained as any other.

    Its weights are those of the model; batch norms are part of the layers before them. The batch
    is that of the examples. ``convert`` makes a quantized program of it when it is trained.
    """
    from tosaic.executorch.api import quiet

    with quiet():
        from tosaic.pipeline.training import prepare_qat as prepared
    return prepared(model, _in_order(model, example_inputs), scheme=scheme)


def shader(glsl: str, groups: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: a function of tensors that a GLSL shader computes where the target has Vulkan.

    PyTorch and the interpreter run the function; a ``.vgf`` holds the shader. Its tensors are bound
    from 0 on in the order of the arguments, then the results. ``groups`` is the number of
    workgroups in three directions, or a function of the arguments' shapes that gives it. When a
    network is compiled, both are compared on Vulkan.
    """
    from tosaic.targets.vgf.shaders import shader as made

    return made(glsl, groups)


@in_turn
def convert(prepared: fx.GraphModule) -> fx.GraphModule:
    """What ``prepare_qat`` has made, trained, as the quantized program that ``compile`` takes."""
    from tosaic.executorch.api import quiet

    with quiet():
        from tosaic.pipeline.training import convert as converted
    return converted(prepared)


@in_turn
def explain(
    model: Any,
    example_inputs: Examples | None = None,
    *,
    target: str = "TOSA-1.0+INT",
    scheme: str | Schemes | None = None,
) -> Explanation:
    """What of a model would be compiled, and the reason and the line for each call that would not.

    The result prints as a table; ``calls`` and ``refused`` hold the same as data.
    """
    from tosaic.pipeline.explain import explain_model

    return explain_model(model, _in_order(model, example_inputs), target, scheme)


@in_turn
def check(
    source: bytes | str | os.PathLike[str],
    target: str = "ethos-u55-128",
    inputs: Any = None,
    *,
    reduce: bool = False,
) -> Verdict:
    """Compile a ``.tosa`` file for an Ethos-U, and compare the stream with the graph.

    ``inputs`` are arrays for the graph; random ones are tried as well. With ``reduce`` a verdict
    that something is wrong holds the fewest operators with which it is, and ``save`` writes them.
    """
    from tosaic.interp.model import Model
    from tosaic.targets.catalog import target_of

    model = load(source)
    if not isinstance(model, Model):
        raise InvalidInput("a .pte holds streams without their TOSA graphs; check a .tosa")
    device = target_of(target)
    if device.verdict is None:
        raise InvalidInput(f"{device.name} has no compiler to check: name a device")
    verdict: Verdict = device.verdict(model.graph, inputs, reduce)
    return verdict


@in_turn
def compare(model: Any, artifact: Artifact, inputs: Any) -> Comparison:
    """Layer by layer, how far a compiled model is from the original on some inputs.

    ``inputs`` is one set of arguments as a tuple, or an iterable of them. The result prints as a
    table with signal-to-noise ratio, largest error and saturation, worst layers named.
    """
    from tosaic.pipeline.compare import compare_models

    return compare_models(model, artifact, inputs)


@in_turn
def _save_pte(artifact: Artifact, path: str | os.PathLike[str], **options: Any) -> None:
    from tosaic.executorch.package import save

    save(artifact, path, **options)


@in_turn
def _save_report(artifact: Artifact, path: str | os.PathLike[str], **options: Any) -> None:
    from tosaic.report import write_report

    write_report(artifact, path, **options)


def _save_explorer(artifact: Artifact, path: str | os.PathLike[str]) -> None:
    from tosaic.report.explorer import write_explorer

    write_explorer(artifact, path)


def _save_array(artifact: Artifact, path: str | os.PathLike[str], **options: Any) -> None:
    from tosaic.pipeline.c_array import write_array

    write_array(artifact, path, **options)


def _run_firmware(artifact: Artifact, leaves: list[Any]) -> dict[Any, Any]:
    from tosaic.firmware import run_artifact

    return run_artifact(artifact, leaves)


formats.ENGINES["firmware"] = _run_firmware
formats.WRITERS.update(dict.fromkeys((".pte", ".bpte"), _save_pte))
formats.WRITERS.update({".html": _save_report, ".json": _save_explorer, ".h": _save_array})
