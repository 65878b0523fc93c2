"""Forms of kernels: portable C, the DSP extension, the vector extension."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tosaic.targets.cortexm.cores import Core
from tosaic.targets.cortexm.forms import dsp, mve, portable
from tosaic.targets.cortexm.layers import Call, Layer

# A form takes layers of some kinds, and may decline one with None.
FORMS: dict[str, Mapping[type, Callable[[Any, Core], Call | None]]] = {
    "c": portable.FORMS, "dsp": dsp.FORMS, "mve": mve.FORMS,
}  # fmt: skip


def lower(layer: Layer, core: Core) -> Call | None:
    """The call of the first of a core's forms that takes a layer; None if none does."""
    for name in core.forms:
        form = FORMS.get(name, {}).get(type(layer))
        made = form(layer, core) if form is not None else None
        if made is not None:
            return made
    return None
