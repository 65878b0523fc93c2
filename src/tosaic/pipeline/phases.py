"""The phases of compilation in the order in which they run: of the FX program, then of TOSA graphs.

``--print-after`` and ``TOSAIC_PRINT_AFTER`` take their names. The passes over the FX program are
those of ``passes/phases.py``, what rewrites TOSA is in ``rewrite/phases.py``.
"""

from __future__ import annotations

from tosaic.errors import InvalidInput
from tosaic.passes import phases as passes
from tosaic.rewrite import phases as rewriting
from tosaic.runtime.phases import wanted_phases

# An ATen program after it was imported, with integers, and with refused calls as their parts.
IMPORT, QUANTIZE, DECOMPOSE = "import", "quantize", "decompose"
_PASSES = (*passes.FLOAT, *passes.quantization(lambda _: False))
FX = tuple(dict.fromkeys((
    *(p.name for p in passes.IMPORT), IMPORT, *(p.name for p in _PASSES), QUANTIZE, DECOMPOSE
)))  # fmt: skip
# Graphs as the rules emit them, rewritten, with their final boundary, as the device's compiler
# gets them.
LOWER, BOUNDARY, WORKAROUNDS = "lower", "boundary", "workarounds"
TOSA = (LOWER, *(phase.name for phase in rewriting.PHASES), BOUNDARY, WORKAROUNDS)
PHASES = (*FX, *TOSA)


def check_wanted() -> None:
    """InvalidInput if the program is to be printed after a phase that there is not."""
    for name in sorted(wanted_phases()[0].difference(PHASES, ["all"])):
        known = ", ".join(PHASES)
        raise InvalidInput(
            f"there is no phase {name!r} to print after; in order, there are {known}"
        )
