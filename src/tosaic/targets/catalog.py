"""Targets by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.lowering.target import Target
from tosaic.spec.env import Env
from tosaic.targets.ethosu.target import ETHOS_U, with_options


def target_of(name: str | Target, options: Mapping[str, Any] = MappingProxyType({})) -> Target:
    """The target of that name: a TOSA specification or an Ethos-U configuration."""
    if isinstance(name, Target) or name not in ETHOS_U:
        for option in options:
            if option != "check":
                raise InvalidInput(f"{option} is an option of Ethos-U targets only")
        found = name if isinstance(name, Target) else _specification(name)
        told = options.get("check")  # None is as the target has it
        return found if told is None else replace(found, check=bool(told))
    return with_options(name, options)


def _specification(name: str) -> Target:
    if str(name).upper().startswith("TOSA"):
        env = Env.parse(name)
        return Target(str(env), env)
    near = get_close_matches(str(name).lower().replace("_", "-"), ETHOS_U, 1, 0.7)
    meant = f", perhaps {near[0]}" if near else ""
    raise InvalidInput(
        f"there is no target {name!r}{meant}; there are {', '.join(ETHOS_U)}, and TOSA "
        "specifications such as TOSA-1.0+INT"
    )
