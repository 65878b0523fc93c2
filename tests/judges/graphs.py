"""Whether two graphs are the same: operators, types, attributes, constants bit by bit, names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tosaic.files.spelling import raw
from tosaic.ir import Graph, Loc, Op, Value


def difference(a: Graph, b: Graph, *, names: bool = True, top: bool = True) -> str:
    """The first difference in words, or nothing. Without ``names``, locations do not count either.

    Variables come first in a text, wherever a graph declares them.
    """
    seen: dict[Value, Value] = {}
    label = a.name or "main"
    if names and a.name != b.name:
        return f"{label}: name {b.name}"
    if top and a.version != b.version:
        return f"{label}: version {b.version}"
    both = _pair("inputs", a.inputs, b.inputs, seen, names, interface=top)
    ops_a, ops_b = _ordered(a), _ordered(b)
    if both or len(ops_a) != len(ops_b):
        return f"{label}: {both or f'{len(ops_a)} operators against {len(ops_b)}'}"
    for i, (x, y) in enumerate(zip(ops_a, ops_b)):
        found = _op(x, y, seen, names)
        if found:
            return f"{label}: operator {i}, {x.name}: {found}"
    found = _pair("outputs", a.outputs, b.outputs, seen, names, interface=top)
    return f"{label}: {found}" if found else ""


def _ordered(graph: Graph) -> list[Op]:
    return sorted(graph.ops, key=lambda op: op.name != "VARIABLE")


def _op(x: Op, y: Op, seen: dict[Value, Value], names: bool) -> str:
    if x.defn is not y.defn or _plain(x.attrs) != _plain(y.attrs):
        return f"{_plain(x.attrs)} against {y.name} {_plain(y.attrs)}"
    if names and (x.loc or Loc()) != (y.loc or Loc()):
        return f"location {x.loc} against {y.loc}"
    if len(x.regions) != len(y.regions):
        return f"{len(x.regions)} regions against {len(y.regions)}"
    return (
        _pair("operands", x.ins, y.ins, seen, names)
        or _pair("results", x.outs, y.outs, seen, names)
        or next(
            filter(
                None,
                (difference(r, s, names=names, top=False) for r, s in zip(x.regions, y.regions)),
            ),
            "",
        )
    )


def _plain(attrs: Any) -> dict[str, Any]:
    return {
        k: (v.dtype, v.tolist()) if isinstance(v, np.ndarray) else repr(v)
        for k, v in sorted(attrs.items())
    }


def _pair(
    what: str,
    a: Sequence[Value],
    b: Sequence[Value],
    seen: dict[Value, Value],
    names: bool,
    interface: bool = False,
) -> str:
    if len(a) != len(b):
        return f"{len(a)} {what} against {len(b)}"
    for x, y in zip(a, b):
        if seen.setdefault(x, y) is not y:
            return f"{what}: {x.name} is another value"
        if x.type != y.type:
            return f"{what}: {x.name} is {x.type} against {y.type}"
        if (names or interface) and x.name != y.name:
            return f"{what}: name {x.name!r} against {y.name!r}"
        if names and (x.loc or Loc()) != (y.loc or Loc()):
            return f"{what}: {x.name} is from {x.loc} against {y.loc}"
        if (x.const is None) != (y.const is None):
            return f"{what}: {x.name} is constant in one only"
        if x.const is not None and y.const is not None and x.const is not y.const:
            p, q = x.const.array, y.const.array
            if p.shape != q.shape or raw(x.dtype, p) != raw(y.dtype, q):
                return f"{what}: constant {x.name} has other bits"
    return ""
