"""Quantizers for PT2E under the names that users of ExecuTorch know.

Which config counts for a call: that of its node, else of its operator, else of the innermost
module by name, else by type, else the global one. None leaves the call in float.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from torch import fx

from tosaic.errors import InvalidInput
from tosaic.executorch.configs import QuantizationConfig
from tosaic.executorch.specs import (
    CompileSpec,
    EthosUCompileSpec,
    TosaCompileSpec,
    VgfCompileSpec,
)
from tosaic.quant import Scheme, Schemes, TosaicQuantizer
from tosaic.quant.annotations import annotate_ends
from tosaic.quant.boundary import Bytes

Config = QuantizationConfig | None
Own = TypeVar("Own", bound="ArmQuantizer")


class ArmQuantizer(TosaicQuantizer):
    """What a compile spec's target lowers in integers is quantized, as the configs say."""

    spec_type: type[CompileSpec]

    def __init__(self, compile_spec: CompileSpec) -> None:
        if not isinstance(compile_spec, self.spec_type):
            wanted, kind = self.spec_type.__name__, type(compile_spec).__name__
            raise InvalidInput(f"{type(self).__name__} takes a {wanted}, not a {kind}")
        super().__init__(Schemes(None), target=compile_spec.device)
        self.compile_spec = compile_spec
        self._trains: bool | None = None

    def set_global(self: Own, quantization_config: Config) -> Own:
        """For everything that has no config of its own."""
        return self._set(global_=self._scheme_of(quantization_config))

    def set_io(self: Own, quantization_config: Config) -> Own:
        """For the model's inputs and outputs, also where what reads them stays in float."""
        scheme = self._scheme_of(quantization_config, is_boundary=True)
        if quantization_config is None or scheme is None:
            return self._set(io=None)
        unsigned = quantization_config.is_unsigned
        return self._set(io=Bytes(scheme.eps) if unsigned else _Boundary(scheme))

    def set_module_name(self: Own, module_name: str, quantization_config: Config) -> Own:
        """For a module and all within it, by its path, as ``features.0``."""
        return self._add("module_names", module_name, quantization_config)

    def set_module_type(self: Own, module_type: Any, quantization_config: Config) -> Own:
        """For every module of a class and all within it."""
        return self._add("module_types", module_type, quantization_config)

    def set_node_name(self: Own, node_name: str, quantization_config: Config) -> Own:
        """For one call, by the name of its node."""
        return self._add("nodes", node_name, quantization_config)

    def set_node_target(self: Own, node_target: Any, quantization_config: Config) -> Own:
        """For every call of an operator, as ``torch.ops.aten.relu.default``."""
        return self._add("nodes", node_target, quantization_config)

    def _add(self: Own, kind: str, name: Any, config: Config) -> Own:
        chosen = {**getattr(self.schemes, kind), name: self._scheme_of(config)}
        return self._set(**{kind: chosen})

    def _set(self: Own, **parts: Any) -> Own:
        self.schemes = replace(self.schemes, **parts)
        self.schemes.check(self.compile_spec.device.env)
        return self

    def _scheme_of(self, config: Any, is_boundary: bool = False) -> Scheme | None:
        """The scheme of a config; all configs are for training, or none is."""
        if config is None:
            return None
        if not isinstance(config, QuantizationConfig):
            raise InvalidInput(
                "a quantization config is None or made by tosaic.executorch, as by "
                f"get_symmetric_quantization_config(); this is a {type(config).__name__}"
            )
        if config.is_unsigned and not is_boundary:
            raise InvalidInput("uint8 is for the boundary of a model: give this config to set_io")
        if self._trains not in (None, config.is_qat):
            raise InvalidInput("the configs of a quantizer have is_qat all alike, True or False")
        self._trains = self.training = config.is_qat
        self.sums_ride = not config.is_qat and self.compile_spec.device.sums_ride
        return config.scheme


@dataclass(frozen=True, slots=True)
class _Boundary:
    """Inputs and outputs in the integers of a scheme."""

    scheme: Scheme

    def annotate(self, graph: fx.Graph, quantizer: TosaicQuantizer) -> None:
        annotate_ends(graph, self.scheme.activation(quantizer.training))

    def link(self, observers: dict[Any, Any]) -> None:
        """Nothing to add: they are integers of their own."""


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
