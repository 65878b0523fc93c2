"""Rows whose remedy is a copy of an output: results that Vela forgets or changes."""

from __future__ import annotations

from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec import dtypes as d
from tosaic.targets.ethosu.vela_workarounds.rows import Output, Uses

_SAME = {"RESHAPE", "IDENTITY", "TRANSPOSE"}
_TURNS = {"TRANSPOSE", "REDUCE_SUM"}  # the latter to sum over channels
_MOVES = {"RESHAPE", "TRANSPOSE", "RESCALE"}  # which Vela moves a TRANSPOSE through


def _is_mask_that_is_read(value: Value, graph: Graph, uses: Uses) -> bool:
    """Whether anything else reads a bool, in whatever shape."""
    if value.dtype is not d.BOOL:
        return False
    if uses.get(value):
        return True
    made = value.producer
    while made is not None and made.name in _SAME:
        if len(uses[made.ins[0]]) > 1:
            return True
        made = made.ins[0].producer
    return False


def _is_second_matrix(value: Value, graph: Graph, uses: Uses) -> bool:
    """Whether it is the second operand of a MATMUL, in whatever shape, order and scale."""
    for op in uses.get(value, ()):
        if op.name == "MATMUL" and op.ins[1] is value:
            return True
        if op.name in _MOVES and _is_second_matrix(op.outs[0], graph, uses):
            return True
    return False


def _is_between_transposes(value: Value, graph: Graph, uses: Uses) -> bool:
    """A RESHAPE that adds or removes axes of one element alone is a TRANSPOSE for Vela."""
    made = value.producer
    while made is not None and made.name == "RESHAPE" and not _moves_ones(made):
        made = made.ins[0].producer
    return made is not None and made.name in ("TRANSPOSE", "RESHAPE") and _is_turned(value, uses)


def _moves_ones(op: Op) -> bool:
    before, after = ([n for n in v.shape if n > 1] for v in (op.ins[0], op.outs[0]))
    return before == after


def _is_turned(value: Value, uses: Uses) -> bool:
    return any(
        op.name in _TURNS or (op.name in _MOVES and _is_turned(op.outs[0], uses))
        for op in uses.get(value, ())
    )


OUTPUTS = (
    Output("An input that is an output as it is has no writer, which Vela asks for.",
           lambda value, graph, uses: value in graph.inputs,
           test="test_an_input_that_is_an_output_is_copied"),
    Output("A bool is 0 or -1 inside and 0 or 1 as an output, and consumers read the latter.",
           _is_mask_that_is_read, test="test_a_bool_that_is_a_result_chooses_as_well"),
    Output("Two TRANSPOSE of a MATMUL's second operand cancel; what is between is no output.",
           _is_second_matrix,
           test="test_a_result_that_is_the_second_matrix_of_a_product_is_not_lost"),
    Output("Two TRANSPOSE become one, and what is between them is no output.",
           _is_between_transposes, test="test_a_result_between_two_transpositions"),
)  # fmt: skip
