"""Observers of inputs and outputs, so that integers at the boundary have a scale."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.boundary.ports import Ends
from tosaic.boundary.types import IO
from tosaic.front import torchapi
from tosaic.quant.annotations import ANNOTATION as _KEY
from tosaic.quant.annotations import annotate_ends, annotation
from tosaic.quant.observer import LEAST, RangeObserver
from tosaic.quant.pt2e import (
    DerivedObserverOrFakeQuantize,
    QuantizationAnnotation,
    QuantizationSpec,
)
from tosaic.quant.quantizer import TosaicQuantizer
from tosaic.quant.schemes import rounding, scheme_of

_SHIFT = 128  # between int8 and uint8


@dataclass(frozen=True, slots=True)
class Bytes:
    """uint8 for a model's inputs and outputs, whatever the calls within have.

    It is an annotation of inputs and of the result alone, so nothing within shares it. Where what
    reads an input or gives an output is int8, the bytes have its scale: see ``link``. Elsewhere
    their scale is ``eps`` at least.
    """

    eps: float = LEAST

    def annotate(self, graph: fx.Graph, quantizer: Any) -> None:
        """Say so on a graph whose calls are annotated."""
        annotate_ends(graph, _unsigned(bool(quantizer.training), self.eps))

    def link(self, observers: dict[Any, Any]) -> None:
        """Let bytes follow the int8 beside them, so that one becomes the other without rounding."""
        for key, observer in observers.items():
            if getattr(observer, "dtype", None) is not torch.uint8:
                continue
            inner = [
                observers.get((key, user)) for user in key.users
            ] if isinstance(key, fx.Node) else [observers.get(key[0])]  # fmt: skip
            near = [o for o in inner if getattr(o, "dtype", None) is torch.int8]
            if near:
                observers[key] = DerivedObserverOrFakeQuantize(
                    torch.uint8, near[:1], _shifted, 0, 255, torch.per_tensor_affine
                )


def _unsigned(training: bool, eps: float) -> QuantizationSpec:
    made: Any = RangeObserver.with_args(eps=eps)
    if training:
        made = rounding(eps)
    return QuantizationSpec(torch.uint8, made, 0, 255, torch.per_tensor_affine, is_dynamic=False)


def _shifted(observers: list[Any]) -> tuple[Tensor, Tensor]:
    scale, zero_point = observers[0].calculate_qparams()
    return scale, zero_point + _SHIFT


class WithEnds(TosaicQuantizer):
    """A quantizer that observes inputs and outputs in any case, if they are to be integers.

    What reads an input, or computes an output, and is quantized observes it already. What stays
    in float does not, nor does anything where an input goes straight to an output.
    """

    def __init__(self, *args: Any, ends: Ends, **options: Any) -> None:
        super().__init__(*args, **options)
        self.ends = ends

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        super().annotate(model)
        inputs = [n for n in model.graph.nodes if n.op == "placeholder"]
        end = model.graph.output_node()
        outputs, _ = torchapi.flatten(end.args[0])
        for node, spec in self._asked(inputs, self.ends.inputs):
            if not any(node in _annotated(user).input_qspec_map for user in node.users):
                node.meta[_KEY] = annotation({}, spec)
        bare = {
            node: spec for node, spec in self._asked(outputs, self.ends.outputs)
            if isinstance(node, fx.Node) and _annotated(node).output_qspec is None
        }  # fmt: skip
        end.meta[_KEY] = annotation(bare, None)
        return model

    def _asked(self, nodes: list[Any], asked: tuple[IO | None, ...]) -> Iterator[tuple[Any, Any]]:
        """Tensors that need a scale, and how they are observed."""
        for node, io in zip(nodes, asked):
            if io is not None and io.scale is None:
                name = "a16w8" if io.dtype == "int16" else "int8"
                yield node, scheme_of(name).activation(self.training)


def _annotated(node: fx.Node) -> QuantizationAnnotation:
    return node.meta.get(_KEY) or QuantizationAnnotation()
