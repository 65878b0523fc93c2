"""Forms of kernels: portable C, the DSP extension, the vector extension."""

from __future__ import annotations

from collections.abc import Callable

from tosaic.targets.cortexm.cores import Core
from tosaic.targets.cortexm.forms import dsp, mve, portable
from tosaic.targets.cortexm.layers import Call, Conv

Form = Callable[[Conv, Core], Call | None]
CONV: dict[str, Form] = {"c": portable.conv, "dsp": dsp.conv, "mve": mve.conv}


def conv_call(layer: Conv, core: Core) -> Call | None:
    """The call of the first of a core's forms that takes a convolution."""
    for name in core.forms:
        made = CONV[name](layer, core) if name in CONV else None
        if made is not None:
            return made
    return None
