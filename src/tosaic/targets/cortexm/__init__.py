"""Arm Cortex-M as targets: a network becomes C that needs no runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tosaic.targets.cortexm.cores import CORES
from tosaic.targets.family import Family

if TYPE_CHECKING:
    from tosaic.lowering.target import Target


def _make(name: str, options: Mapping[str, Any]) -> Target:
    from tosaic.targets.cortexm.target import with_options

    return with_options(name, options)


FAMILY = Family(
    {core.name: core.about for core in CORES.values()}, _make, kinds={"cortex-m4": "Cortex-M and C"}
)
