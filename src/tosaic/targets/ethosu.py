"""The Ethos-U targets: eleven configurations of three products."""

from __future__ import annotations

from tosaic.spec.env import Env
from tosaic.targets.base import Target
from tosaic.targets.ethosu_forms import FAMILIES, constraint
from tosaic.targets.vela import ACCELERATORS

# U85 branches; the older ones do not.
_ENVS = {
    "u55": "TOSA-1.0+INT+int16+int4",
    "u65": "TOSA-1.0+INT+int16+int4",
    "u85": "TOSA-1.0+INT+int16+int4+cf",
}


def family(accelerator: str) -> str:
    """The product of a configuration: u55, u65 or u85."""
    return accelerator.split("-")[1]


ETHOS_U: dict[str, Target] = {
    name: Target(
        name, Env.parse(_ENVS[family(name)]), (constraint(FAMILIES[family(name)]),)
    )
    for name in ACCELERATORS
}  # fmt: skip
