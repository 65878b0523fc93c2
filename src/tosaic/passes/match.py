"""The matcher of the FX passes: calls by name, operands in any order, copies and views aside."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi

ADDS = ("aten.add.Tensor", "aten.add.Scalar")
PRODUCTS = ("aten.mul.Tensor", "aten.mul.Scalar")
QUOTIENTS = ("aten.div.Tensor", "aten.div.Scalar")
COPIES = frozenset({"aten.clone.default", "aten.contiguous.default"})
CASTS = frozenset({"aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.to.other",
                   "aten._to_copy.default", "aten.type_as.default"})  # fmt: skip
VIEWS = frozenset({"aten.view.default", "aten.reshape.default", "aten.unsqueeze.default",
                   "aten.squeeze.dim"})  # fmt: skip
BOTH = (("self", "other"), ("other", "self"))  # operands of a commutative call


def name_of(node: Any) -> str:
    """The canonical overload that a node calls; "" for what is no call."""
    is_call = isinstance(node, fx.Node) and node.op == "call_function"
    return torchapi.target_name(node) if is_call else ""


def before(value: Any, only_reader: bool = True, names: Container[str] = COPIES | CASTS) -> Any:
    """What a value is a copy of, or a cast to its own type: copies that others read count too
    unless ``only_reader``."""
    while name_of(value) in names and not (only_reader and len(value.users) != 1):
        source = value.args[0]
        if not isinstance(source, fx.Node) or source.meta["val"].dtype != value.meta["val"].dtype:
            break
        value = source
    return value


def pair_of(node: Any, names: Container[str]) -> tuple[Any, Any] | None:
    """The two operands of a call of that kind, each as it was before copies."""
    if name_of(node) not in names:
        return None
    bound = torchapi.bound_arguments(node)
    if bound.get("alpha", 1) != 1:
        return None
    return before(bound["self"]), before(bound["other"])


def orders(node: Any, names: Container[str]) -> Iterator[tuple[Any, Any]]:
    """Both orders of the operands of a commutative call."""
    if (pair := pair_of(node, names)) is not None:
        yield pair
        yield pair[1], pair[0]


def number_of(value: Any) -> float | None:
    """The one number that an argument is, be it in a constant tensor of its own."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    known = values_of(value)
    return float(known) if known is not None and known.numel() == 1 else None


def values_of(node: Any) -> Tensor | None:
    """The numbers of a parameter or a buffer."""
    if not isinstance(node, fx.Node) or node.op != "get_attr" or node.graph.owning_module is None:
        return None
    found = torchapi.attribute(node.graph.owning_module, str(node.target))
    return found if isinstance(found, Tensor) else None


def constant_of(value: Any) -> Tensor | None:
    """A number or a constant tensor of real numbers, in float64."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return torch.tensor(float(value), dtype=torch.float64)
    known = values_of(value)
    return known.detach().double() if known is not None and known.is_floating_point() else None


def real_type(node: Any) -> torch.dtype | None:
    """The floating-point type of a tensor; None for any other value."""
    example = node.meta.get("val") if isinstance(node, fx.Node) else None
    return example.dtype if isinstance(example, Tensor) and example.is_floating_point() else None


def is_integer(node: fx.Node) -> bool:
    """Whether a value is a tensor of integers; masks are none."""
    example = node.meta.get("val")
    if not isinstance(example, Tensor) or example.dtype is torch.bool:
        return False
    return not example.dtype.is_floating_point and not example.dtype.is_complex


def hold(place: fx.Node, name: str, values: Tensor, meta: dict[str, Any] | None = None) -> fx.Node:
    """A tensor as a buffer of a node's module, read right before that node."""
    module = place.graph.owning_module
    assert module is not None
    module.register_buffer(name, values, persistent=False)
    with place.graph.inserting_before(place):
        made = place.graph.create_node("get_attr", name)
    made.meta = meta or {**place.meta, "val": torchapi.stand_in_beside(place, values)}
    return made


def only_user(node: fx.Node) -> fx.Node | None:
    """The one call that reads a value."""
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None


Found = dict[str, Any]


class Pattern:
    """A form of an expression: ``match`` binds its variables to the operands of a call."""

    def match(self, value: Any, found: Found) -> Iterator[Found]:
        """Every way in which a value has this form, given what variables are bound to."""
        raise NotImplementedError

    def __or__(self, other: Pattern) -> Pattern:
        return _Either(self, other)


class Var(Pattern):
    """Any value, the same wherever the variable stands: operands by identity, axes by place."""

    def __init__(self, name: str) -> None:
        self.name = name

    def match(self, value: Any, found: Found) -> Iterator[Found]:
        if self.name not in found:
            yield {**found, self.name: value}
        elif value is found[self.name] or (
            not isinstance(value, fx.Node) and value == found[self.name]
        ):
            yield found


class Number(Var):
    """A number that is known."""

    def match(self, value: Any, found: Found) -> Iterator[Found]:
        if (number := number_of(value)) is not None:
            yield from super().match(number, found)


class _Either(Pattern):
    def __init__(self, *forms: Pattern) -> None:
        self.forms = forms

    def match(self, value: Any, found: Found) -> Iterator[Found]:
        for form in self.forms:
            yield from form.match(value, found)


class Op(Pattern):
    """A call of one of some operators; ``commutes`` takes its operands in either order.

    Other arguments are variables, or what they have to be: one of several in a tuple.
    """

    def __init__(
        self, names: str, *operands: Any, commutes: bool = False, **arguments: Any
    ) -> None:
        self.names = frozenset(f"aten.{name}" for name in names.split())
        self.operands, self.commutes, self.arguments = operands, commutes, arguments

    def match(self, value: Any, found: Found) -> Iterator[Found]:
        if name_of(value) not in self.names:
            return
        bound = torchapi.bound_arguments(value)
        given = [before(v) for v in list(bound.values())[: len(self.operands)]]
        for name, wanted in self.arguments.items():
            have = bound.get(name)
            if name == "dim" and have is not None:
                rank = given[0].meta["val"].dim()
                have = sorted(a % rank for a in ([have] if isinstance(have, int) else have))
            if isinstance(wanted, Var):
                found = next(wanted.match(have, found), {}) if have is not None else {}
            elif have not in (wanted if isinstance(wanted, tuple) else (wanted,)):
                found = {}
            if not found:
                return
        if bound.get("alpha", 1) != 1:
            return
        for order in (given, given[::-1])[: 2 if self.commutes else 1]:
            yield from _all(list(zip(self.operands, order, strict=True)), found)


def _all(pairs: list[tuple[Any, Any]], found: Found) -> Iterator[Found]:
    if not pairs:
        yield found
        return
    (form, value), *rest = pairs
    if isinstance(form, Pattern):
        for inner in form.match(value, found):
            yield from _all(rest, inner)
    elif not isinstance(value, fx.Node) and value == form:
        yield from _all(rest, found)


def matched(node: fx.Node, form: Pattern) -> Found | None:
    """What the variables of a form are where a node has it, the node itself as ``node``."""
    return next(form.match(node, {"node": node}), None)
