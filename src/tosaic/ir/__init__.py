"""Values, operators and graphs, how they are built and how they are verified."""

from tosaic.ir.build import Builder
from tosaic.ir.graph import Const, Graph, Loc, Op, Quant, Value
from tosaic.ir.verify import problems, verify

__all__ = [
    "Builder", "Const", "Graph", "Loc", "Op", "Quant", "Value", "problems", "verify",
]  # fmt: skip
