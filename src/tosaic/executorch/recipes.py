"""Export recipes under the names of ExecuTorch's Arm backend, for ``executorch.export``.

``export(model, inputs, ExportRecipe.get_recipe(ArmRecipeType.VGF_INT8))`` quantizes, partitions and
lowers with Tosaic. Importing this registers them as the recipes of the backend "arm".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from executorch.export import (
    BackendRecipeProvider,
    ExportRecipe,
    LoweringRecipe,
    QuantizationRecipe,
    RecipeType,
    recipe_registry,
)

from tosaic.executorch.configs import (
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from tosaic.executorch.partitioner import create_partitioner
from tosaic.executorch.quantizer import create_quantizer
from tosaic.executorch.specs import (
    ArmCompileSpec,
    EthosUCompileSpec,
    TosaCompileSpec,
    VgfCompileSpec,
)

_LOG = logging.getLogger("tosaic")
_MACS = {"u55": 128, "u65": 256, "u85": 256}
_OPTIONS = ("macs", "system_config", "memory_mode", "extra_flags", "config_ini")


class ArmRecipeType(RecipeType):  # type: ignore[misc]
    """A device and what it computes in.

    Recipes for an Ethos-U take ``macs``, and the options of EthosUCompileSpec by their names.
    """

    ETHOS_U55_INT8 = "arm_ethos_u55_int8"
    ETHOS_U65_INT8 = "arm_ethos_u65_int8"
    ETHOS_U85_INT8 = "arm_ethos_u85_int8"
    TOSA_FP = "arm_tosa_fp"
    TOSA_INT8 = "arm_tosa_int8"
    TOSA_A16W8 = "arm_tosa_a16w8"
    VGF_FP = "arm_vgf_fp"
    VGF_INT8 = "arm_vgf_int8"

    @classmethod
    def get_backend_name(cls) -> str:
        return "arm"


class ArmRecipeProvider(BackendRecipeProvider):  # type: ignore[misc]
    """Makes the recipes of these types."""

    @property
    def backend_name(self) -> str:
        return ArmRecipeType.get_backend_name()

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        return list(ArmRecipeType)

    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
        if not isinstance(recipe_type, ArmRecipeType):
            return None
        _, device, *core, precision = recipe_type.value.split("_")
        known = _OPTIONS if device == "ethos" else ()
        for name in sorted(set(kwargs) - set(known)):
            _LOG.warning("recipe %s takes no '%s', which is ignored", recipe_type.value, name)
        spec = _spec(device, core, precision, {n: kwargs[n] for n in known if n in kwargs})
        return ExportRecipe(
            name=recipe_type.value,
            quantization_recipe=_quantization(spec, precision),
            lowering_recipe=LoweringRecipe(partitioners=[create_partitioner(spec)]),
            strict=False,
        )


def _spec(device: str, core: list[str], precision: str, options: dict[str, Any]) -> ArmCompileSpec:
    if device == "ethos":
        macs = options.pop("macs", _MACS[core[0]])
        return EthosUCompileSpec(f"ethos-{core[0]}-{macs}", **options)
    profile = {"fp": "FP", "int8": "INT", "a16w8": "INT+int16"}[precision]
    made = VgfCompileSpec if device == "vgf" else TosaCompileSpec
    return made(f"TOSA-1.0+{profile}")


def _quantization(spec: ArmCompileSpec, precision: str) -> QuantizationRecipe | None:
    if precision == "fp":
        return None
    is_wide = precision == "a16w8"
    config = (
        get_symmetric_a16w8_quantization_config if is_wide else get_symmetric_quantization_config
    )
    quantizer = create_quantizer(spec)
    quantizer.set_global(config())
    return QuantizationRecipe(quantizers=[quantizer])


recipe_registry.register_backend_recipe_provider(ArmRecipeProvider())
