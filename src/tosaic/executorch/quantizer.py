"""Quantizers for PT2E under the names that users of ExecuTorch know.

Which config counts for a call: the one that was set last of those that name it, by its node, its
operator, a module or a type of modules, else the global one. None leaves the call in float.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import fx
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from tosaic.errors import InvalidInput, kind_of
from tosaic.executorch.configs import (  # those that scripts import from here
    QuantizationConfig,
    get_symmetric_a8w4_quantization_config,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
    get_uint8_io_quantization_config,
    get_vgf_snorm_quantization_config,
)
from tosaic.executorch.specs import (
    ArmCompileSpec,
    EthosUCompileSpec,
    TosaCompileSpec,
    TosaSpecification,
    VgfCompileSpec,
)
from tosaic.front import torchapi
from tosaic.front.functionalize import is_functional
from tosaic.passes.engine import run
from tosaic.passes.fuse_attention import fuse_attention
from tosaic.passes.phases import CANONICAL, SIMPLIFY, expression
from tosaic.quant import Scheme, Schemes, TosaicQuantizer
from tosaic.quant.annotations import annotate_ends
from tosaic.quant.boundary import Bytes
from tosaic.quant.regions import apart
from tosaic.quant.selection import check_names
from tosaic.spec.env import Env

__all__ = [
    "ArmQuantizer", "EthosUQuantizer", "QuantizationConfig", "TOSAQuantizer", "VgfQuantizer",
    "create_quantizer", "get_symmetric_a8w4_quantization_config",
    "get_symmetric_a16w8_quantization_config", "get_symmetric_quantization_config",
    "get_uint8_io_quantization_config", "get_vgf_snorm_quantization_config",
]  # fmt: skip
__path__: list[str] = []  # submodules of it are those of ``paths``

Config = QuantizationConfig | None
Own = TypeVar("Own", bound="ArmQuantizer")


class ArmQuantizer(TosaicQuantizer):
    """What a compile spec's target lowers in integers is quantized, as the configs say."""

    spec_type: type[ArmCompileSpec]
    only_written = True  # scripts name classes and operators that some of their models lack

    def __init__(self, compile_spec: Any, use_composable_quantizer: bool = True) -> None:
        """``use_composable_quantizer`` is kept for its users: there is one way here."""
        if isinstance(compile_spec, (str, Env)):
            compile_spec = TosaCompileSpec(compile_spec)
        elif not isinstance(compile_spec, self.spec_type):
            own, wanted = type(self).__name__, self.spec_type.__name__
            raise InvalidInput(f"give {own}({wanted}(...)), not {kind_of(compile_spec)}")
        super().__init__(Schemes(None), target=compile_spec.device)
        self.compile_spec: ArmCompileSpec = compile_spec
        self._trains: bool | None = None
        self._global: Config = None
        self._io: Config = None
        self._configs: dict[str, dict[Any, Config]] = {"module_names": {}, "module_types": {}}
        self._finders: list[tuple[Any, Scheme | None]] = []
        self._others: list[Any] = []

    @property
    def tosa_spec(self) -> TosaSpecification:
        """What TOSA the target takes."""
        return self.compile_spec.tosa_spec

    @property
    def global_config(self) -> Config:
        """What counts for everything that has no config of its own."""
        return self._global

    @global_config.setter
    def global_config(self, value: Config) -> None:
        self.set_global(value)

    def set_global(self: Own, quantization_config: Config) -> Own:
        """For everything that has no config of its own."""
        self._global = quantization_config
        return self._set(global_=self._scheme_of(quantization_config))

    def set_io(self: Own, quantization_config: Config) -> Own:
        """For the model's inputs and outputs, also where what reads them stays in float."""
        scheme = self._scheme_of(quantization_config, is_boundary=True)
        self._io = quantization_config
        if quantization_config is None or scheme is None:
            return self._set(io=None)
        unsigned = quantization_config.is_unsigned
        return self._set(io=Bytes(scheme.eps) if unsigned else _Boundary(scheme))

    @property
    def io_config(self) -> Config:
        """What counts for the model's inputs and outputs."""
        return self._io

    @io_config.setter
    def io_config(self, value: Config) -> None:
        self.set_io(value)

    @property
    def module_name_config(self) -> dict[str, Config]:
        """What counts for modules by their paths."""
        return dict(self._configs["module_names"])

    @module_name_config.setter
    def module_name_config(self, value: Mapping[str, Config]) -> None:
        for name, config in value.items():
            self.set_module_name(name, config)

    @property
    def module_type_config(self) -> dict[Any, Config]:
        """What counts for modules by their classes."""
        return dict(self._configs["module_types"])

    @module_type_config.setter
    def module_type_config(self, value: Mapping[Any, Config]) -> None:
        for kind, config in value.items():
            self.set_module_type(kind, config)

    def set_module_name(self: Own, module_name: str, quantization_config: Config) -> Own:
        """For a module and all within it, by its path, as ``features.0``."""
        return self._add("module_names", module_name, quantization_config)

    def set_module_type(self: Own, module_type: Any, quantization_config: Config) -> Own:
        """For every module of a class and all within it."""
        return self._add("module_types", module_type, quantization_config)

    def set_node_name(self: Own, node_name: Any, quantization_config: Config) -> Own:
        """For a call by the name of its node, or for several."""
        return self._add("nodes", node_name, quantization_config)

    def set_node_target(self: Own, node_target: Any, quantization_config: Config) -> Own:
        """For every call of an operator, as ``torch.ops.aten.relu.default``, or of several."""
        return self._add("nodes", node_target, quantization_config)

    def set_node_finder(self: Own, quantization_config: Config, node_finder: Any) -> Own:
        """For the calls that ``node_finder.find_nodes`` finds in the exported model."""
        self._finders.append((node_finder, self._scheme_of(quantization_config)))
        return self

    def add_quantizer(self: Own, quantizer: Any) -> Own:
        """Let another quantizer annotate first; what it leaves is quantized here."""
        self._others.insert(0, quantizer)
        return self

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Calls as rules know them: attention whole, recurrent layers and the like as parts."""
        for other in self._others:
            model = other.transform_for_annotation(model)
        for finder, scheme in self._finders:
            self._name([n.name for n in finder.find_nodes(model) if _is_call(n)], "nodes", scheme)
        self._finders.clear()
        check_names(model, self.schemes, self.only_written)
        if not keeps_state(model):
            with torch.no_grad():
                first = CANONICAL if is_functional(model) else ()
                then = (fuse_attention,) if self.training else SIMPLIFY
                run(model, (*first, *then, *expression(self.expand)))
        return super().transform_for_annotation(model)

    def quantize_with_submodules(
        self, model: fx.GraphModule, calibration_samples: Iterable[tuple[Any, ...]],
        is_qat: bool = False, fold_quantize: bool = True,
    ) -> fx.GraphModule:  # fmt: skip
        """The model in integers, its branches and loops as well; for training it is prepared so."""
        step = prepare_qat_pt2e if is_qat else prepare_pt2e
        prepared = apart(model, lambda part: step(part, self))
        for sample in calibration_samples:
            prepared(*sample)
        return apart(prepared, lambda part: convert_pt2e(part, fold_quantize=fold_quantize))

    _quantize_with_submodules = quantize_with_submodules

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        for other in self._others:
            other.annotate(model)
        return super().annotate(model)

    def _add(self: Own, kind: str, names: Any, config: Config) -> Own:
        several = names if isinstance(names, (list, tuple, set)) else [names]
        self._configs.setdefault(kind, {}).update(dict.fromkeys(several, config))
        return self._name(several, kind, self._scheme_of(config))

    def _name(self: Own, names: Iterable[Any], kind: str, scheme: Scheme | None) -> Own:
        """Say of parts of a model what counts for them from now on."""
        new = dict.fromkeys(names, scheme)
        order = (*(key for key in self.schemes.order if key not in new), *new)
        return self._set(**{kind: {**getattr(self.schemes, kind), **new}}, order=order)

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
        self.fuses_sums = not config.is_qat and self.compile_spec.device.traits.fuses_sums
        return config.scheme


def keeps_state(model: fx.GraphModule) -> bool:
    """Whether a model writes to its own buffers."""
    return any(
        isinstance(written := node.args[position], fx.Node) and written.op == "get_attr"
        for node in model.graph.nodes if _is_call(node)
        for position in torchapi.written_positions(node)
    )  # fmt: skip


def _is_call(node: fx.Node) -> bool:
    return bool(node.op == "call_function")


@dataclass(frozen=True, slots=True)
class _Boundary:
    """Inputs and outputs in the integers of a scheme."""

    scheme: Scheme

    def annotate(self, graph: fx.Graph, quantizer: TosaicQuantizer) -> None:
        annotate_ends(graph, self.scheme.activation(quantizer.training))

    def link(self, observers: dict[Any, Any]) -> None:
        """Nothing to add: they are integers of their own."""


class TOSAQuantizer(ArmQuantizer):
    """For delegates that hold TOSA itself, or for any target that has a compile spec."""

    spec_type = ArmCompileSpec

    def __init__(
        self, compile_spec_or_tosa_spec: Any, use_composable_quantizer: bool = True
    ) -> None:
        super().__init__(compile_spec_or_tosa_spec, use_composable_quantizer)


class EthosUQuantizer(ArmQuantizer):
    """For an Ethos-U."""

    spec_type = EthosUCompileSpec


class VgfQuantizer(ArmQuantizer):
    """For Vulkan ML."""

    spec_type = VgfCompileSpec


def create_quantizer(compile_spec: ArmCompileSpec) -> ArmQuantizer:
    """The quantizer for a compile spec."""
    kinds: tuple[type[ArmQuantizer], ...] = (EthosUQuantizer, VgfQuantizer, TOSAQuantizer)
    for kind in kinds:
        if isinstance(compile_spec, kind.spec_type):
            return kind(compile_spec)
    raise InvalidInput(f"there is no quantizer for a {type(compile_spec).__name__}")
