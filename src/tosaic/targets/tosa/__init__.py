"""Plain TOSA as a target: any version, profiles and extensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tosaic.targets.family import Family

if TYPE_CHECKING:
    from tosaic.lowering.target import Target

_ABOUT = "plain TOSA; profiles and extensions join with +, as in TOSA-1.1+INT+FP+int16"


def _make(name: str, options: Mapping[str, Any]) -> Target:
    from tosaic.lowering.target import Target, with_check
    from tosaic.spec.env import Env

    env = Env.parse(name)
    return with_check(Target(str(env), env, about=_ABOUT), options)


FAMILY = Family(
    dict.fromkeys(("TOSA-1.0+INT", "TOSA-1.0+INT+int16", "TOSA-1.0+FP"), _ABOUT),
    _make,
    prefix="TOSA",
    kinds=dict.fromkeys(
        ("TOSA-1.0+INT", "TOSA-1.0+INT+int16+int4", "TOSA-1.0+INT+int16+int4+cf",
         "TOSA-1.0+INT+FP+int16+int4+cf"), ""
    ),
)  # fmt: skip
