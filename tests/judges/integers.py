"""A sample of a rule in quantized integers for a target: its graph and inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judges.rules import finish
from tosaic.ir.build import Constraint
from tosaic.ir.graph import Graph
from tosaic.ir.traits import PLAIN, Traits
from tosaic.lowering.builder import Lowering
from tosaic.lowering.samples import Case, lowered, operands
from tosaic.rewrite import Cost
from tosaic.spec.dtypes import DType
from tosaic.spec.env import Env

# Operators whose forms have more or fewer bits, as a target allows: tests of their own bound each.
FORMS_DIFFER = frozenset({"aten.scaled_dot_product_attention.default"})


@dataclass(frozen=True)
class Integers:
    """A graph with inputs for it."""

    graph: Graph
    arrays: list[np.ndarray]


def in_integers(
    case: Case, kind: DType, env: Env, constraints: Sequence[Constraint] = (),
    cost: Cost | None = None, traits: Traits = PLAIN,
) -> Integers:  # fmt: skip
    """The sample lowered in int8 or int16; Unsupported where the target refuses it."""
    b = Lowering(env, None, constraints, traits)
    made = operands(b, case, kind)
    return Integers(finish(b, lowered(b, case, made, kind), env, constraints, cost), made.arrays)
