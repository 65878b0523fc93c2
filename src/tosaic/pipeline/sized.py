"""An artifact of several sizes: one compiled program a size, of which a run takes what fits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from tosaic.boundary.arguments import leaves_of
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.ir.graph import Graph
from tosaic.lowering.target import Target
from tosaic.pipeline import batches, driver
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.report import Report
from tosaic.pipeline.sizes import Sizes, Values, calibrated_at, quantizes
from tosaic.quant.calibration import Calibration
from tosaic.quant.quantizer import TosaicQuantizer
from tosaic.runtime.warn import warn


@dataclass(eq=False, repr=False)
class SizedArtifact(Artifact):
    """A program compiled for several sizes, by their names; itself is that of the first.

    ``sizes`` are in words, such as "length=100"; ``variants[size]`` is the artifact of one of them.
    """

    variants: dict[str, Artifact] = field(default_factory=dict)

    @property
    def sizes(self) -> list[str]:
        """The sizes there are."""
        return list(self.variants)

    def at(self, *inputs: Any, **named: Any) -> Artifact:
        """The artifact of the size of some inputs; InvalidInput names the sizes there are."""
        leaves = leaves_of(self.program, inputs, named)
        for made in self.variants.values():
            if _fits(made, leaves):
                return made
        for made in reversed(self.variants.values()):
            if batches.parts_of(made.program, leaves) is not None:
                return made
        shapes = " and ".join(str(list(v.shape)) for v in leaves if hasattr(v, "shape"))
        raise InvalidInput(
            f"nothing was compiled for inputs of {shapes}; there is {'; '.join(self.sizes)}: "
            "compile again with this size in sizes=[...]"
        )

    def run(self, *inputs: Any, **options: Any) -> Any:
        """The outputs for some inputs, by the program of their size; options are those of any."""
        known = ("engine", "raw", "device", "max_memory")
        named = {name: value for name, value in options.items() if name not in known}
        made = self.at(*inputs, **named)
        if self.program.states:
            made.__dict__["_state"] = self._state
        return Artifact.run(made, *inputs, **options)

    @cached_property
    def report(self) -> Report:
        """The report of the first size, with the names of all."""
        each = {size: made.report for size, made in self.variants.items()}
        first = next(iter(each.values()))
        settings = {**first.settings, "sizes": "; ".join(each)}
        return replace(first, settings=settings, sizes=each)

    @cached_property
    def file_sizes(self) -> dict[str, int]:
        """Those of the first size."""
        return next(iter(self.variants.values())).file_sizes

    def _save(self, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        suffix = os.path.splitext(os.fspath(path))[1]
        if suffix in (".tosa", ".mlir", ".h") or (suffix in self.device.formats and suffix):
            raise InvalidInput(
                f"a {suffix} file holds one size: save one of {', '.join(map(repr, self.sizes))} "
                "by artifact.variants[size].save, or all of them as .pte"
            )
        super()._save(path, options)


def _fits(made: Artifact, leaves: list[Any]) -> bool:
    """Whether leaves have the sizes that a program was compiled for."""
    pairs = list(zip(made.program.arguments, leaves))
    return len(leaves) == len(made.program.arguments) and all(
        torchapi.known_shape(example) == tuple(getattr(leaf, "shape", ()))
        for node, leaf in pairs if isinstance(example := node.meta.get("val"), Tensor)
    )  # fmt: skip


def compile_sizes(
    sizes: Sizes, wanted: Iterable[Any] | None, target: Target, scheme: Any, calibration: Any,
    io: Any, options: Mapping[str, Any],
) -> SizedArtifact:  # fmt: skip
    """The program at each of the wanted sizes, all with the same quantization parameters."""
    chosen = sizes.chosen(wanted)
    if wanted is None:
        told = "; ".join(sizes.told(values) for values in chosen)
        warn(
            f"{target.name} has fixed sizes, and none were named with sizes=[...]: these are "
            f"compiled: {told}"
        )
    stored = calibration_for(sizes, chosen, target, scheme, calibration)
    if len(chosen) > 1:
        target = with_equal_constants(target)
    used = {"scheme": scheme, "io": io, **options}
    made = {
        sizes.told(values): artifact_at(sizes, values, target, scheme, stored, io, used)
        for values in chosen
    }
    first = next(iter(made.values()))
    return SizedArtifact(
        first.program, first.partition, first.target, first.delegates, used, target, variants=made
    )


def with_equal_constants(target: Target) -> Target:
    """The target, whose graphs have the same constants for all sizes, and those of its host."""
    own, host = [each and _alike(each) for each in (target, target.host)]
    assert own is not None
    return replace(own, host=host)


def _alike(target: Target) -> Target:
    first, then = target.alike, target.workarounds
    if first is None:
        return target

    def change(graph: Graph) -> None:
        first(graph)
        if then is not None:
            then(graph)

    return replace(target, workarounds=change)


def calibration_for(
    sizes: Sizes, chosen: Sequence[Values], target: Target, scheme: Any, calibration: Any
) -> Any:
    """What calibration saw at all sizes, for a target that the program is quantized for."""
    if not quantizes(sizes.at(chosen[0]), target, scheme):
        return calibration
    if isinstance(calibration, (str, os.PathLike)):
        return Calibration.load(calibration)
    if isinstance(calibration, Calibration):
        return calibration
    quantizer = TosaicQuantizer("int8" if scheme is None else scheme, target=target)
    return calibrated_at(sizes, chosen, calibration, quantizer)


def artifact_at(
    sizes: Sizes, values: Values, target: Target, scheme: Any, stored: Any, io: Any,
    used: Mapping[str, Any],
) -> Artifact:  # fmt: skip
    """The program at one size."""
    examples = sizes.examples_at(values)
    program = driver.program_from(sizes.at(values), examples, target, scheme, stored, io)
    return driver.artifact_of(program, target, [examples], used)
