"""Expands complex numbers into pairs of real ones: spectra, and rotations written with them.

TOSA has no complex numbers, and networks have them only on the way: from a Fourier transform, or
from pairs, to magnitudes, angles or pairs again. A complex call becomes calls on real and imaginary
parts: linear ones on each part, bilinear ones on their products; composite ones are decomposed
first, as PyTorch does. What else reads a complex value is left to PyTorch, which gets it from its
parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.functionalize import is_functional
from tosaic.passes import fourier
from tosaic.passes.canonicalize import canonical_overloads
from tosaic.passes.decompose import inline
from tosaic.passes.engine import Call, Pass, replace
from tosaic.passes.fourier import Calls, Pair
from tosaic.passes.match import name_of

aten = torch.ops.aten
_DEEPEST = 4  # parts of parts
# Calls that are linear in all of their operands together: the same call on each part.
_LINEAR = frozenset({
    "aten.view.default", "aten.reshape.default", "aten.transpose.int", "aten.permute.default",
    "aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default",
    "aten.slice.Tensor", "aten.select.int", "aten.clone.default", "aten.contiguous.default",
    "aten.expand.default", "aten.flatten.using_ints", "aten.unflatten.int", "aten.neg.default",
    "aten.sum.default", "aten.sum.dim_IntList", "aten.mean.default", "aten.mean.dim",
    "aten.flip.default", "aten.roll.default", "aten.alias.default", "aten.t.default",
    "aten.cat.default", "aten.stack.default", "aten.index_select.default", "aten.repeat.default",
    "aten.constant_pad_nd.default", "aten.where.self", "aten.detach.default", "aten.movedim.int",
    "aten.tril.default", "aten.triu.default", "aten.diagonal.default", "aten.cumsum.default",
    "aten.index.Tensor", "aten.narrow.default", "aten.tile.default", "aten.movedim.intlist",
})  # fmt: skip
_BILINEAR = frozenset({"aten.mul.Tensor", "aten.mm.default", "aten.bmm.default", "aten.mv.default"})


def has_complex(node: fx.Node) -> bool:
    example = node.meta.get("val")
    return isinstance(example, Tensor) and example.is_complex()


def _expand(module: fx.GraphModule, fft: bool) -> bool:
    """Real calls in the place of those that make or read complex values."""
    if not any(has_complex(node) for node in module.graph.nodes):
        return False
    _decompose(module)
    graph, pairs, made_here = module.graph, dict[fx.Node, Pair](), list[fx.Node]()
    for node in list(graph.nodes):
        if node.op != "call_function" or not _is_complex_call(node):
            continue
        with graph.inserting_before(node):
            calls = _Calls(node, pairs, fft)
            if has_complex(node):
                made = calls.pair()
                if made is not None:
                    pairs[node] = made
                    made_here.append(node)
            elif (real := calls.real()) is not None:
                replace(node, Call(aten.clone.default, (real,)))  # results are known by name
    for node in made_here:  # what PyTorch reads, if anything still does
        re, im = pairs[node]
        if im is None:
            with graph.inserting_before(node):
                im = _Calls(node, pairs, fft).call(aten.zeros_like.default, re)
        replace(node, Call(aten.complex.default, (re, im)))
    return True


expand_complex = Pass("expand_complex", lambda module: _expand(module, fft=False))
expand_complex_fft = Pass("expand_complex", lambda module: _expand(module, fft=True))


def _is_complex_call(node: fx.Node) -> bool:
    return has_complex(node) or any(has_complex(n) for n in node.all_input_nodes)


def _decompose(module: fx.GraphModule) -> None:
    """Composite calls on complex values as the calls that PyTorch makes of them."""
    for _ in range(_DEEPEST):
        done = True
        for node in list(module.graph.nodes):
            if node.op != "call_function" or not _is_complex_call(node) or _is_known(node):
                continue
            parts = torchapi.decomposed(node, composite=True)
            if (
                parts is not None
                and is_functional(parts)
                and isinstance(node.meta.get("val"), Tensor)
            ):
                canonical_overloads.apply(parts)
                home = {k: v for k, v in node.meta.items() if k != "val"}
                for part in parts.graph.nodes:
                    part.meta.update(home)
                result = inline(module, node, parts)
                replace(node, Call(aten.clone.default, (result,)))
                done = False
        if done:
            return


def _is_known(node: fx.Node) -> bool:
    name = name_of(node)
    return name in _LINEAR or name in _BILINEAR or name in _REAL or name in _PAIRS


class _Calls(Calls):
    """Makes real calls where a complex call is."""

    def __init__(self, node: fx.Node, pairs: dict[fx.Node, Pair], fft: bool) -> None:
        super().__init__(node, fft)
        self.pairs = pairs

    def parts(self, value: Any) -> Pair:
        """The real and the imaginary part of an operand; a real one has none of the second."""
        if isinstance(value, complex):
            return value.real, value.imag
        if not isinstance(value, fx.Node) or not has_complex(value):
            return value, None
        if value not in self.pairs:  # a constant, or what PyTorch computes
            re, im = (self.call(target, value) for target in (aten.real.default, aten.imag.default))
            self.pairs[value] = re, im
        return self.pairs[value]

    def real(self) -> fx.Node | None:
        """A real result of a complex operand."""
        make = _REAL.get(self.name)
        source: Any = self.bound.get("self")
        is_new = self.name in _PARTS and source not in self.pairs
        if make is None or is_new or not has_complex(source):
            return None
        re, im = self.parts(source)
        return make(self, re, self.call(aten.zeros_like.default, re) if im is None else im)

    def pair(self) -> Pair | None:
        """A complex result as a pair."""
        if self.name in _LINEAR:
            return self.linear()
        if self.name in _BILINEAR:
            return self.bilinear()
        make = _PAIRS.get(self.name)
        return None if make is None else make(self)

    def linear(self) -> Pair | None:
        """The same call on each part; it says nothing of a real operand's imaginary part."""
        if any(isinstance(v, complex) for v in self.bound.values()):
            return None
        nodes = self.node.all_input_nodes
        given = {n: self.parts(n) for n in nodes}
        bare = {n for n in nodes if given[n][1] is None and n.meta["val"].is_floating_point()}
        made = []
        for index in (0, 1):
            known = {n: pair[index] if has_complex(n) else n for n, pair in given.items()}
            for n, part in known.items():
                if part is None or (index and n in bare):
                    known[n] = self.call(aten.zeros_like.default, given[n][0])
            args, kwargs = fx.map_arg((self.node.args, self.node.kwargs), known.__getitem__)
            made.append(torchapi.new_call(self.node, self.node.target, args, dict(kwargs)))
        return made[0], made[1]

    def bilinear(self) -> Pair:
        first, second = (next(k for k in names if k in self.bound)
                         for names in (("self",), ("other", "mat2", "vec")))  # fmt: skip
        return self.product(self.parts(self.bound[first]), self.parts(self.bound[second]))

    def product(self, one: Pair, other: Pair) -> Pair:
        (a, b), (x, y) = one, other
        target = self.node.target if self.name in _BILINEAR else aten.mul.Tensor

        def times(left: Any, right: Any) -> Any:
            if not isinstance(left, fx.Node):  # the tensor of a number and a tensor goes first
                left, right = right, left
            return None if right is None or left is None else self.call(target, left, right)

        ax, by, ay, bx = times(a, x), times(b, y), times(a, y), times(b, x)
        return self.sum(ax, by, aten.sub.Tensor), self.sum(ay, bx, aten.add.Tensor)

    def sum(self, one: Any, other: Any, target: Any) -> Any:
        """A sum or difference of which a term may be missing."""
        if one is None:
            is_less = target is aten.sub.Tensor and other is not None
            return self.call(aten.neg.default, other) if is_less else other
        return one if other is None else self.call(target, one, other)

    def squares(self, re: Any, im: Any) -> Any:
        own, other = (p if p is None else self.call(aten.mul.Tensor, p, p) for p in (re, im))
        return self.sum(own, other, aten.add.Tensor)


def _magnitude(c: _Calls, re: Any, im: Any) -> fx.Node:
    return c.call(aten.sqrt.default, c.squares(re, im))


def _stacked(c: _Calls, re: fx.Node, im: fx.Node) -> fx.Node:
    return c.call(aten.stack.default, [re, im], -1)


def _angle(c: _Calls, re: fx.Node, im: fx.Node) -> fx.Node:
    return c.call(aten.atan2.default, im, re)


_PARTS = ("aten.real.default", "aten.imag.default")
_REAL: dict[str, Callable[[_Calls, Any, Any], fx.Node | None]] = {
    "aten.abs.default": _magnitude,
    "aten.angle.default": _angle,
    "aten.real.default": lambda c, re, im: re,
    "aten.imag.default": lambda c, re, im: im,
    "aten.view_as_real.default": _stacked,
    "aten._fft_c2r.default": fourier.real_signal,
    "aten.istft.default": fourier.inverse_short_time,
}


def _sum(c: _Calls) -> Pair:
    (a, b), (x, y) = (c.parts(c.bound[name]) for name in ("self", "other"))
    if (alpha := c.bound["alpha"]) != 1:
        x, y = (p if p is None else c.call(aten.mul.Tensor, p, alpha) for p in (x, y))
    target = aten.add.Tensor if "add" in c.name else aten.sub.Tensor
    if not isinstance(a, fx.Node):  # a number first
        x, y = ((p if target is aten.add.Tensor else c.sum(None, p, target)) for p in (x, y))
        return c.call(aten.add.Tensor, x, a), c.sum(y, b, aten.add.Tensor)
    return c.sum(a, x, target), c.sum(b, y, target)


def _quotient(c: _Calls) -> Pair | None:
    one, (x, y) = (c.parts(c.bound[name]) for name in ("self", "other"))
    if c.bound.get("rounding_mode") is not None:
        return None
    if y is None:
        re, im = (p if p is None else c.call(aten.div.Tensor, p, x) for p in one)
        return re, im
    if not isinstance(x, fx.Node):
        inverse = 1 / complex(x, y)
        return c.product(one, (inverse.real, inverse.imag))
    size = c.squares(x, y)
    re, im = c.product(one, (x, c.call(aten.neg.default, y)))
    return c.call(aten.div.Tensor, re, size), c.call(aten.div.Tensor, im, size)


def _reciprocal(c: _Calls) -> Pair:
    re, im = c.parts(c.bound["self"])
    size = c.squares(re, im)
    minus = c.sum(None, im, aten.sub.Tensor)
    return c.call(aten.div.Tensor, re, size), minus and c.call(aten.div.Tensor, minus, size)


def _power(c: _Calls) -> Pair | None:
    """A small whole power by repeated products."""
    exponent, base = c.bound.get("exponent", 2), c.parts(c.bound["self"])
    if exponent not in (1, 2, 3, 4):
        return None
    made = base
    for _ in range(int(exponent) - 1):
        made = c.product(made, base)
    return made


def _conjugate(c: _Calls) -> Pair:
    re, im = c.parts(c.bound["self"])
    return re, c.sum(None, im, aten.sub.Tensor)


def _taken_apart(c: _Calls) -> Pair:
    source = c.bound["self"]
    return c.call(aten.select.int, source, -1, 0), c.call(aten.select.int, source, -1, 1)


def _circular(c: _Calls, size: Any, angle: Any) -> Pair:
    cos, sin = c.call(aten.cos.default, angle), c.call(aten.sin.default, angle)
    return c.call(aten.mul.Tensor, size, cos), c.call(aten.mul.Tensor, size, sin)


def _exponential(c: _Calls) -> Pair:
    re, im = c.parts(c.bound["self"])
    size = c.call(aten.exp.default, re)
    return (size, None) if im is None else _circular(c, size, im)


def _logarithm(c: _Calls) -> Pair | None:
    re, im = c.parts(c.bound["self"])
    if im is None:
        return None
    log = c.call(aten.log.default, c.squares(re, im))
    return c.call(aten.mul.Tensor, log, 0.5), _angle(c, re, im)


def _cast(c: _Calls) -> Pair | None:
    """A cast between complex types, or of a real value to one, keeps parts of float32."""
    re, im = c.parts(c.bound["self"])
    return (re, im) if re.meta["val"].dtype is torch.float32 else None


_PAIRS: dict[str, Callable[[_Calls], Pair | None]] = {
    "aten.stft.default": fourier.short_time, "aten.stft.center": fourier.short_time,
    "aten._fft_r2c.default": fourier.transform, "aten._fft_c2c.default": fourier.transform,
    "aten.add.Tensor": _sum, "aten.sub.Tensor": _sum,
    "aten.div.Tensor": _quotient, "aten.reciprocal.default": _reciprocal,
    "aten.pow.Tensor_Scalar": _power, "aten.square.default": _power,
    "aten._conj.default": _conjugate, "aten.conj.default": _conjugate,
    "aten.conj_physical.default": _conjugate, "aten._conj_physical.default": _conjugate,
    "aten.resolve_conj.default": lambda c: c.parts(c.bound["self"]),
    "aten.view_as_complex.default": _taken_apart,
    "aten.complex.default": lambda c: (c.bound["real"], c.bound["imag"]),
    "aten.polar.default": lambda c: _circular(c, c.bound["abs"], c.bound["angle"]),
    "aten.exp.default": _exponential, "aten.log.default": _logarithm,
    "aten.to.dtype": _cast, "aten._to_copy.default": _cast,
}  # fmt: skip
