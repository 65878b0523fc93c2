"""Submodules under the paths that scripts for ExecuTorch's Arm backend import from.

A script needs another prefix alone. Most are modules without a file; their names are those of
``tosaic.executorch``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = "tosaic.executorch"
_CONFIGS = (
    "QuantizationConfig", "get_symmetric_a16w8_quantization_config",
    "get_symmetric_a8w4_quantization_config", "get_symmetric_quantization_config",
    "get_uint8_io_quantization_config", "get_vgf_snorm_quantization_config",
)  # fmt: skip
_QUANTIZERS = ("EthosUQuantizer", "TOSAQuantizer", "VgfQuantizer")
_ETHOSU = ("EthosUBackend", "EthosUCompileSpec", "EthosUPartitioner", "LinuxOptions",
           "VelaExternalBlockPlacements")  # fmt: skip
_TOSA = ("TOSABackend", "TOSAPartitioner", "TosaCompileSpec", "TosaSpecification")
_VGF = ("VgfBackend", "VgfCompileSpec", "VgfPartitioner")

PATHS: dict[str, tuple[str, ...]] = {
    "ethosu": _ETHOSU,
    "tosa": _TOSA,
    "vgf": _VGF,
    **{f"{each}.{part}": names for each, names in (("ethosu", _ETHOSU), ("tosa", _TOSA),
                                                  ("vgf", _VGF))
       for part in ("backend", "compile_spec", "partitioner")},
    "tosa.specification": ("TosaSpecification",),
    "quantizer.arm_quantizer": (*_QUANTIZERS, *_CONFIGS),
    "quantizer.quantization_config": _CONFIGS,
    "ao_ext": ("MXFPOpConfig", "to_mxfp"),
    "ao_ext.mxfp": ("MXFPOpConfig", "to_mxfp"),
    "common": ("ArmCompileSpec",),
    "common.arm_compile_spec": ("ArmCompileSpec",),
    "util": ("create_partitioner", "create_quantizer"),
    "util._factory": ("create_partitioner", "create_quantizer"),
}  # fmt: skip


class _Paths(MetaPathFinder, Loader):
    """Finds and makes these modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = fullname.removeprefix(f"{_PACKAGE}.")
        if name == fullname or name not in PATHS:
            return None
        return ModuleSpec(fullname, self, is_package="." not in name)

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"Names of {_PACKAGE} under the path that the Arm backend has for them."
        give_names(module)


def give_names(module: ModuleType) -> None:
    """Give a module under one of these paths its names; one with a file calls this itself."""
    names = PATHS[module.__name__.removeprefix(f"{_PACKAGE}.")]

    def found(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return getattr(sys.modules[_PACKAGE], name)

    module.__dict__.update(__all__=list(names), __getattr__=found, __dir__=lambda: list(names))


def install() -> None:
    """Let the import system find them."""
    if not any(isinstance(each, _Paths) for each in sys.meta_path):
        sys.meta_path.append(_Paths())
