"""Traits of a target: what its accumulators, lanes, axes and fusions are worth.

Rules and rewrites choose between exact expressions by these numbers and name no device. The
defaults are those of a machine that nothing is known of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Traits:
    """What is fast, free or fused on a target. All of it is about speed and memory, not results.

    Accumulators: with ``fuses_sums`` a sum takes an int32 accumulator as quickly as int8.
    ``sum_bits`` widen the larger operand of a sum of int8, and of int16.

    Lanes: ``lanes`` neighbouring elements are computed at once; elementwise operators idle below
    ``narrow_channels``, and ``channel_block`` channels lie together in memory. ``op_cycles`` is
    what starting an operation costs, in elements; ``row_cost`` what an element costs that is
    summed along a row, beside one that is summed along channels.

    Axes: ``transposed_axes`` are permuted in one operation, SLICE and broadcasts are free over
    ``view_axes``. The device's compiler is made for ``most_axes`` of a tensor; 0 is any number.
    ``kernel_rows`` and ``kernel_elements`` are those of a kernel in one piece, dilation included.
    A form of TRANSPOSE or GATHER is judged unless it is ``transpose_doubt`` times as slow by
    formulas, which know nothing of transpositions that cancel.

    Fusions: with ``fuses_widening`` a RESCALE or CAST to int32 is part of each consumer, with
    ``fuses_epilogue`` so is a TABLE or CLAMP behind the RESCALE of an accumulator. ``loads_tables``
    means that a TABLE by itself loads all its entries first. With ``one_shape`` a tensor has one
    shape in memory, and a RESHAPE for a second consumer is a copy. MATMUL is ``matmul``: an
    operation, one that transposes its right operand first, or a product for each element. Where
    ``deconvolution`` is slow, a transposed convolution of integers is several plain ones.

    Control flow: with ``computes_both`` a target without branches computes both sides and selects;
    a loop whose number of rounds is known is written out up to ``most_rounds`` of them.

    ``domains`` are those of the custom operators that it takes.

    ``steps_at_once`` of a recurrent layer, at least, are multiplied by its weights in one call:
    fewer calls fetch weights less often, and their results take more memory. A recurrence of more
    than ``longest_unrolled`` steps in all is a loop; 0 is never. A device that
    has ``host_loops`` computes ``steps_a_call`` of it, and the host calls it again and again;
    without, all are written out.

    With ``free_sizes`` a graph is generalised from several sizes, so its form must not depend on
    them: constants are folded whatever their size, elements apart from each other are gathered.

    A folded constant of ``folded_bytes`` may be larger than what it is made from.
    """

    fuses_sums: bool = True
    sum_bits: tuple[int, int] = (19, 14)
    lanes: int = 16
    narrow_channels: int = 0
    channel_block: int = 16
    op_cycles: int = 500
    row_cost: float = 1.3
    transposed_axes: int = 3
    view_axes: int = 4
    most_axes: int = 0
    kernel_rows: int = 64
    kernel_elements: int = 4096
    folded_bytes: int = 4096
    free_sizes: bool = False
    fuses_widening: bool = False
    transpose_doubt: float = 1.0
    fuses_epilogue: bool = False
    loads_tables: bool = False
    one_shape: bool = False
    matmul: Literal["native", "transposes", "elementwise"] = "native"
    deconvolution: Literal["native", "slow"] = "native"
    steps_at_once: int = 8
    longest_unrolled: int = 0
    steps_a_call: int = 1
    host_loops: bool = False
    computes_both: bool = False
    most_rounds: int = 0
    domains: tuple[str, ...] = ()


PLAIN = Traits()
