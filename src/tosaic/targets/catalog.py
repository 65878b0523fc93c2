"""Targets by name."""

from __future__ import annotations

from tosaic.errors import InvalidInput
from tosaic.spec.env import Env
from tosaic.targets.base import Target
from tosaic.targets.ethosu import ETHOS_U


def target_of(name: str | Target) -> Target:
    """The target of that name: a TOSA specification or an Ethos-U configuration."""
    if isinstance(name, Target):
        return name
    if name in ETHOS_U:
        return ETHOS_U[name]
    if str(name).lower().startswith("tosa"):
        env = Env.parse(name)
        return Target(str(env), env)
    known = ", ".join(ETHOS_U)
    raise InvalidInput(
        f"there is no target {name!r}; there are {known}, and TOSA specifications such as "
        "TOSA-1.0+INT"
    )
