"""Quantizers for PT2E under the names that users of ExecuTorch know.

Which config counts for a call: that of its node, else of its operator, else of the innermost
module by name, else by type, else the global one. None leaves the call in float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import fx
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, Quantizer

from tosaic.errors import InvalidInput
from tosaic.executorch.configs import QuantizationConfig
from tosaic.executorch.specs import (
    CompileSpec,
    EthosUCompileSpec,
    TosaCompileSpec,
    VgfCompileSpec,
)
from tosaic.front import torchapi
from tosaic.front.calls import rides
from tosaic.quant import TosaicQuantizer
from tosaic.quant.roles import is_real
from tosaic.targets.base import Target

_KEY = "quantization_annotation"
Config = QuantizationConfig | None


class ArmQuantizer(Quantizer):  # type: ignore[misc]
    """What a compile spec's target lowers in integers is quantized, as the configs say."""

    spec_type: type[CompileSpec] = CompileSpec

    def __init__(self, compile_spec: CompileSpec) -> None:
        if not isinstance(compile_spec, self.spec_type):
            wanted, kind = self.spec_type.__name__, type(compile_spec).__name__
            raise InvalidInput(f"{type(self).__name__} takes a {wanted}, not a {kind}")
        super().__init__()
        self.compile_spec = compile_spec
        self.refused: dict[str, Any] = {}
        self._global: Config = None
        self._io: Config = None
        self._nodes: dict[str, Config] = {}
        self._targets: dict[Any, Config] = {}
        self._names: dict[str, Config] = {}
        self._types: dict[Any, Config] = {}
        self._chosen: dict[fx.Node, QuantizationConfig] = {}
        self._used: dict[QuantizationConfig, TosaicQuantizer] = {}

    def set_global(self, quantization_config: Config) -> ArmQuantizer:
        """For everything that has no config of its own."""
        self._global = _checked(quantization_config)
        return self

    def set_io(self, quantization_config: Config) -> ArmQuantizer:
        """For the model's inputs and outputs, also where what reads them stays in float."""
        self._io = _checked(quantization_config)
        return self

    def set_module_name(self, module_name: str, quantization_config: Config) -> ArmQuantizer:
        """For a module and all within it, by its path, as ``features.0``."""
        self._names[module_name] = _checked(quantization_config)
        return self

    def set_module_type(self, module_type: Any, quantization_config: Config) -> ArmQuantizer:
        """For every module of a class and all within it."""
        self._types[module_type] = _checked(quantization_config)
        return self

    def set_node_name(self, node_name: str, quantization_config: Config) -> ArmQuantizer:
        """For one call, by the name of its node."""
        self._nodes[node_name] = _checked(quantization_config)
        return self

    def set_node_target(self, node_target: Any, quantization_config: Config) -> ArmQuantizer:
        """For every call of an operator, as ``torch.ops.aten.relu.default``."""
        self._targets[node_target] = _checked(quantization_config)
        return self

    def config_of(self, node: fx.Node) -> Config:
        """The config that counts for a call."""
        if node.name in self._nodes:
            return self._nodes[node.name]
        if node.target in self._targets:
            return self._targets[node.target]
        modules = [*torchapi.modules_of(node)]
        for path, _ in modules:
            if path in self._names:
                return self._names[path]
        for _, kind in modules:
            for wanted, config in self._types.items():
                if kind in (wanted, _qualified(wanted)):
                    return config
        return self._global

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        return TosaicQuantizer().transform_for_annotation(model)

    def prepare_obs_or_fq_callback(
        self, model: fx.GraphModule, edge_or_node_to_obs_or_fq: dict[Any, Any]
    ) -> None:
        """Each quantizer sees the edges of its own calls."""
        found = edge_or_node_to_obs_or_fq
        for config, quantizer in self._used.items():
            own = {
                edge: observer for edge, observer in found.items()
                if isinstance(edge, tuple) and self._chosen.get(edge[1]) == config
            }  # fmt: skip
            quantizer.prepare_obs_or_fq_callback(model, own)
            found.update(own)

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        """Each scheme annotates the whole model; each call keeps what its own config gave it."""
        chosen = {n: c for n, c in self._choices(model.graph) if c is not None}
        found: dict[fx.Node, QuantizationAnnotation] = {}
        device = self.compile_spec.device
        self._used = {c: _quantizer(c, device) for c in dict.fromkeys(chosen.values())}
        self._chosen = chosen
        for config, quantizer in self._used.items():
            quantizer.annotate(model)
            self.refused |= quantizer.refused
            for node in model.graph.nodes:
                annotation = node.meta.pop(_KEY, None)
                if annotation is not None and chosen.get(node) == config:
                    found[node] = annotation
        for node, annotation in found.items():
            node.meta[_KEY] = annotation
        self._annotate_io(model.graph)
        return model

    def _choices(self, graph: fx.Graph) -> Iterator[tuple[fx.Node, Config]]:
        """A config for each call; what rides on another call, or takes its results, follows it."""
        made: dict[fx.Node, Config] = {}
        for node in graph.nodes:
            if node.op != "call_function":
                continue
            first = node.all_input_nodes[0] if node.all_input_nodes else None
            follows = first in made and first is not None and _follows(first, node)
            made[node] = made[first] if follows and first is not None else self.config_of(node)
            yield node, made[node]

    def _annotate_io(self, graph: fx.Graph) -> None:
        if self._io is None:
            return
        spec = _quantizer(self._io, self.compile_spec.device).scheme.activation(self._io.is_qat)
        for node in graph.nodes:
            if node.op == "placeholder" and is_real(node):
                node.meta[_KEY] = QuantizationAnnotation(output_qspec=spec, _annotated=True)
            elif node.op == "output":
                inputs = {n: spec for n in node.all_input_nodes if is_real(n)}
                node.meta[_KEY] = QuantizationAnnotation(input_qspec_map=inputs, _annotated=True)

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to add: what was annotated has been tried."""


def _quantizer(config: QuantizationConfig, device: Target) -> TosaicQuantizer:
    return TosaicQuantizer(config.scheme, training=config.is_qat, target=device)


def _follows(first: fx.Node, node: fx.Node) -> bool:
    names = torchapi.target_name(first), torchapi.target_name(node)
    return names[1] == "getitem" or (len(first.users) == 1 and rides(*names))


def _checked(config: Any) -> Config:
    if config is None or isinstance(config, QuantizationConfig):
        return config
    kind = type(config).__name__
    raise InvalidInput(
        f"a quantization config is None or made by tosaic.executorch, as by "
        f"get_symmetric_quantization_config(); this is a {kind}"
    )


def _qualified(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)


class TOSAQuantizer(ArmQuantizer):
    """For delegates that hold TOSA itself."""

    spec_type = TosaCompileSpec


class EthosUQuantizer(ArmQuantizer):
    """For an Ethos-U."""

    spec_type = EthosUCompileSpec


class VgfQuantizer(ArmQuantizer):
    """For Vulkan ML."""

    spec_type = VgfCompileSpec


def create_quantizer(compile_spec: CompileSpec) -> ArmQuantizer:
    """The quantizer for a compile spec."""
    kinds: tuple[Callable[[CompileSpec], ArmQuantizer], ...] = (
        EthosUQuantizer, TOSAQuantizer, VgfQuantizer
    )  # fmt: skip
    for kind in kinds:
        if isinstance(compile_spec, getattr(kind, "spec_type", ())):
            return kind(compile_spec)
    raise InvalidInput(f"there is no quantizer for a {type(compile_spec).__name__}")
