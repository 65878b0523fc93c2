"""Operators that users write out by hand: norms, activations, products by the names of axes.

What stands for one operator is lowered and quantized as one. Each idiom is the call that gives the
result; it becomes the operator, and what only led there is dead then. Attention, whose masks are
known only when constants are, is found later: see ``quant.attend``.
"""

from __future__ import annotations

from collections.abc import Container
from functools import partial

import torch
from torch import Tensor, fx

from tosaic.passes.idioms.norms import affine, norm
from tosaic.passes.idioms.products import product
from tosaic.passes.idioms.spectra import has_complex, make_real
from tosaic.passes.match import become, before, name_of, orders

aten = torch.ops.aten
_SIGNS = frozenset(
    {"aten.rsqrt.default", "aten.sqrt.default", "aten.pow.Tensor_Scalar", "aten.sigmoid.default",
     "aten.einsum.default"}
)  # fmt: skip


def may_have_idioms(graph: fx.Graph) -> bool:
    return any(name_of(node) in _SIGNS or has_complex(node) for node in graph.nodes)


def recognise(graph: fx.Graph, held: Container[str]) -> None:
    """Put operators in the place of their idioms. ``held`` are the names of parameters."""
    make_real(graph)
    graph.eliminate_dead_code()  # what nothing reads would count as a reader
    idioms = (norm, partial(affine, held=held), _silu, product)
    for node in list(graph.nodes):
        if node.op == "call_function" and isinstance(node.meta.get("val"), Tensor):
            with graph.inserting_before(node):
                any(idiom(node) for idiom in idioms)
    graph.eliminate_dead_code()


def _silu(node: fx.Node) -> bool:
    for value, gate in orders(node, ("aten.mul.Tensor",)):
        if name_of(gate) == "aten.sigmoid.default" and before(gate.args[0]) is value:
            return become(node, aten.silu.default, (value,))
    return False
