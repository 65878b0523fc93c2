"""Tables of int16 functions: no factor behind them that is not worth one."""

from __future__ import annotations

import pytest
import torch

from tosaic.ir.graph import Quant
from tosaic.lowering.alternatives.lut import LIMIT, Function, table16


@pytest.mark.parametrize("function", [torch.tanh, torch.sigmoid], ids=["tanh", "sigmoid"])
@pytest.mark.parametrize("limit", [5.0, 9.3, 11.0])
def test_a_function_that_ends_at_the_largest_value_needs_no_factor(
    function: Function, limit: float
) -> None:
    nodes, factor, _ = table16(function, Quant(limit / 32768), Quant(2.0**-15))
    real = function(torch.arange(-256, 257).double() * 128 * limit / 32768) * 2**15
    assert factor == 1
    assert (nodes - real).abs().max() < 4


def test_a_function_that_is_cut_off_has_a_factor_where_lines_would_bend_early() -> None:
    nodes, factor, _ = table16(torch.abs, Quant(1.0), Quant(0.7))
    assert factor < 1
    assert nodes.abs().max() <= 32767
    inside = torch.arange(-170, 171)  # nodes of results that fit
    meant = inside.abs() * 128 / 0.7
    assert (nodes[inside + 256] / factor - meant).abs().max() < LIMIT
