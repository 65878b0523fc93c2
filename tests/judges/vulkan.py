"""Whether this machine has the model converter, and a Vulkan driver with the ML extensions."""

from functools import cache

import pytest

from tosaic.errors import TosaicError
from tosaic.files.flatbuffer import write
from tosaic.ir.build import Builder
from tosaic.targets.vgf.converter import convert, find_converter


def converter_problem() -> str:
    """Why nothing can be converted here; nothing if it can."""
    try:
        find_converter()
    except TosaicError as problem:
        return str(problem)
    return ""


@cache
def vulkan_problem() -> str:
    """Why nothing runs on Vulkan here; nothing if it does."""
    from tosaic.sim.vulkan import Session

    b = Builder("TOSA-1.0+INT")
    b.output(b.ABS(b.input("i32", (2,), "x")))
    try:
        Session(convert(write(b.graph)))
    except TosaicError as problem:
        return str(problem)
    return ""


needs_converter = pytest.mark.skipif(bool(converter_problem()), reason=converter_problem())
needs_vulkan = pytest.mark.skipif(
    bool(converter_problem() or vulkan_problem()), reason=converter_problem() or vulkan_problem()
)
