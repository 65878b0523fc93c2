"""Tosaic inside ExecuTorch's own flow: compile specs, partitioners and quantizers by their names.

``from tosaic.executorch import EthosUCompileSpec, EthosUPartitioner, EthosUQuantizer`` is the one
line that a user of ExecuTorch's Arm backend changes. Each name is imported when it is first asked
for: those of partitioners need ExecuTorch, the others do not.
"""

from __future__ import annotations

import importlib
from typing import Any

from tosaic.executorch import paths
from tosaic.executorch.api import quiet, require_executorch

_MODULES = {
    "specs": (
        "ArmCompileSpec",
        "EthosUCompileSpec",
        "LinuxOptions",
        "TosaCompileSpec",
        "TosaSpecification",
        "VelaExternalBlockPlacements",
        "VgfCompileSpec",
    ),
    "partitioner": ("EthosUPartitioner", "TOSAPartitioner", "VgfPartitioner", "create_partitioner"),
    "quantizer": ("EthosUQuantizer", "TOSAQuantizer", "VgfQuantizer", "create_quantizer"),
    "configs": (
        "QuantizationConfig",
        "get_symmetric_a16w8_quantization_config",
        "get_symmetric_a8w4_quantization_config",
        "get_symmetric_quantization_config",
        "get_uint8_io_quantization_config",
        "get_vgf_snorm_quantization_config",
    ),
    "backends": ("EthosUBackend", "TOSABackend", "VgfBackend"),
    "mxfp": ("MXFPOpConfig", "to_mxfp"),
    "recipes": ("ArmRecipeProvider", "ArmRecipeType"),
}
paths.install()
_PLACES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _PLACES[name]
    if module in ("partitioner", "backends", "recipes"):
        require_executorch()
    with quiet():
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__
