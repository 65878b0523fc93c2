"""What is observed at a model's boundary, so that its integers have a scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

from tosaic.front import torchapi
from tosaic.front.io import IO
from tosaic.front.ports import Ends
from tosaic.quant.quantizer import TosaicQuantizer
from tosaic.quant.schemes import scheme_of

_KEY = "quantization_annotation"


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
        end = next(reversed(model.graph.nodes))
        outputs, _ = torchapi.flatten(end.args[0])
        for node, spec in self._asked(inputs, self.ends.inputs):
            if not any(node in _annotated(user).input_qspec_map for user in node.users):
                node.meta[_KEY] = QuantizationAnnotation(output_qspec=spec, _annotated=True)
        bare = {
            node: spec for node, spec in self._asked(outputs, self.ends.outputs)
            if isinstance(node, fx.Node) and _annotated(node).output_qspec is None
        }  # fmt: skip
        end.meta[_KEY] = QuantizationAnnotation(input_qspec_map=bare, _annotated=True)
        return model

    def _asked(self, nodes: list[Any], asked: tuple[IO | None, ...]) -> Iterator[tuple[Any, Any]]:
        """Tensors that need a scale, and how they are observed."""
        for node, io in zip(nodes, asked):
            if io is not None and io.scale is None:
                name = "a16w8" if io.dtype == "int16" else "int8"
                yield node, scheme_of(name).activation(self.training)


def _annotated(node: fx.Node) -> QuantizationAnnotation:
    return node.meta.get(_KEY) or QuantizationAnnotation()
