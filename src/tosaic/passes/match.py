"""The matcher of the FX passes: calls by name, operands in any order, copies and views aside."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi

ADDS, PRODUCTS, QUOTIENTS = "aten.add.Tensor", "aten.mul.Tensor", "aten.div.Tensor"
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


def orders(node: Any, name: str) -> Iterator[tuple[Any, Any]]:
    """Both orders of the operands of a commutative call, each as it was before copies."""
    bound = torchapi.bound_arguments(node) if name_of(node) == name else {"alpha": None}
    if bound.get("alpha", 1) == 1:
        yield from ((before(bound[one]), before(bound[other])) for one, other in BOTH)


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


def shape_of(node: fx.Node) -> tuple[Any, ...]:
    """The sizes of a tensor; None alone where they are not all known."""
    shape = torchapi.known_shape(node.meta["val"])
    return (None,) if shape is None else shape


def rank_of(node: Any) -> int:
    """How many axes a tensor has; 0 for any other value."""
    example = node.meta.get("val") if isinstance(node, fx.Node) else None
    return example.dim() if isinstance(example, Tensor) else 0


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


def free_name(module: torch.nn.Module, name: str) -> str:
    """A name that nothing in a module has: PyTorch replaces a buffer of the same name."""
    while hasattr(module, name):
        name += "_"
    return name


def hold(place: fx.Node, name: str, values: Tensor, meta: dict[str, Any] | None = None) -> fx.Node:
    """A tensor as a buffer of a node's module, read right before that node."""
    module = place.graph.owning_module
    assert module is not None
    name = free_name(module, name)
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
Pattern = Callable[[Any, Found], Iterator[Found]]  # all ways in which a value has a form


def var(name: str) -> Pattern:
    """Any value, the same wherever the variable stands: nodes by identity, others by equality."""

    def match(value: Any, found: Found) -> Iterator[Found]:
        bound = found.get(name, value)
        if bound is value or (not isinstance(value, fx.Node) and bound == value):
            yield {**found, name: value}

    return match


def number(name: str) -> Pattern:
    """A number that is known."""

    def match(value: Any, found: Found) -> Iterator[Found]:
        known = number_of(value)
        return var(name)(known, found) if known is not None else iter(())

    return match


def either(*forms: Pattern) -> Pattern:
    """Any of several forms."""
    return lambda value, found: (m for form in forms for m in form(value, found))


def op(names: str, *operands: Any, commutes: bool = False, **arguments: Any) -> Pattern:
    """A call of one of some operators, whose operands have forms, or are what is given here.

    ``commutes`` takes them in either order. Other arguments are variables, or what they have to
    be: one of several in a tuple. Axes count from the front.
    """
    targets = frozenset(f"aten.{name}" for name in names.split())

    def match(value: Any, found: Found) -> Iterator[Found]:
        if name_of(value) not in targets:
            return
        bound = torchapi.bound_arguments(value)
        if bound.get("alpha", 1) != 1:
            return
        given = [before(v) for v in list(bound.values())[: len(operands)]]
        if isinstance(bound.get("dim"), (list, tuple)):
            bound["dim"] = sorted(axis % given[0].meta["val"].dim() for axis in bound["dim"])
        rest = [(form, bound.get(name)) for name, form in arguments.items()]
        for order in (given, given[::-1])[: 2 if commutes else 1]:
            yield from _all([*rest, *zip(operands, order, strict=True)], found)

    return match


def _all(pairs: list[tuple[Any, Any]], found: Found) -> Iterator[Found]:
    """Every way in which values have forms one by one."""
    if not pairs:
        yield found
        return
    (form, value), *rest = pairs
    if not callable(form):
        wanted = form if isinstance(form, tuple) else (form,)
        inner = iter([found] if not isinstance(value, fx.Node) and value in wanted else [])
    else:
        inner = form(value, found) if value is not None else iter(())
    for each in inner:
        yield from _all(rest, each)


def matched(node: fx.Node, form: Pattern) -> Found | None:
    """What the variables of a form are where a node has it."""
    return next(form(node, {}), None)
