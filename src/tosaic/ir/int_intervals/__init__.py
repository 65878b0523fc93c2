"""Interval analysis of integer graphs: what each value can be, for all inputs of its type."""

from tosaic.ir.int_intervals import (  # noqa: F401  (each registers its rules)
    control,
    functions,
    moves,
    pointwise,
    products,
    reductions,
)
from tosaic.ir.int_intervals.core import (
    RULES,
    Bounds,
    Finding,
    Intervals,
    analysed,
    quick,
    tracked,
)

__all__ = ["RULES", "Bounds", "Finding", "Intervals", "analysed", "quick", "tracked"]
