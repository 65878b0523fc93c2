"""Lowers a program call by call; quantize and dequantize calls fold into the values around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from tosaic.boundary.qparams import is_unsigned
from tosaic.boundary.types import misfit
from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE, fuses_activation, label, origin
from tosaic.front.program import Program, from_module
from tosaic.front.registry import RULES, rule_for, rule_of
from tosaic.ir.graph import Graph, Quant, Value
from tosaic.lowering.alternatives.mask import mask_input
from tosaic.lowering.alternatives.stepwise import segments, stepwise
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.lowering.int64_ranges import Interval, Ranges
from tosaic.lowering.reals import Reals, by_rule
from tosaic.lowering.result_check import check_result
from tosaic.passes.fold_constants import folded
from tosaic.passes.fuse_unary import Curve, curves_of
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env

ONLY_OUTSIDE = "TOSA has uint8 at the boundary of a graph only: quantize to int8 within"


QuantDType = tuple[Quant, d.DType]


class Walker:
    """Lowers calls into a graph, one by one; ``values`` holds what each node became.

    With ``ranges`` it refuses int64 results that may not fit. ``missing`` says why a value is
    none that a graph can read. ``codes`` are the integers of quantized values as such: between
    quantize and dequantize, where only moves mean the same for them and for the real numbers.
    ``unsigned`` are the values that uint8 stands for. In a graph they are int8 with a zero point
    less by 128; its boundary alone makes bytes of 0 to 255 of them.
    """

    def __init__(self, program: Program, b: Lowering | Env, ranges: Ranges | None = None) -> None:
        self.program, self.b = program, b if isinstance(b, Lowering) else Lowering(b)
        self.values: dict[fx.Node, Any] = dict(program.tensors)
        self.ranges = ranges
        self.missing: dict[fx.Node, str] = {}
        self.codes: set[fx.Node] = set()
        self.unsigned: set[fx.Node] = set()
        self._names: set[str] = set()
        self._reals = Reals(program, self.b)
        self._curves: dict[fx.Node, Curve] | None = None

    def name(self, node: fx.Node) -> str:
        """What a tensor at the boundary is called: as what it is the quantized form of."""
        name = label(origin(node))
        if name in self._names:
            name = node.name
        self._names.add(name)
        return name

    def take(self, node: fx.Node, value: Value) -> None:
        """Make a value of another graph or of PyTorch an input of this one."""
        if value.dtype is d.BOOL:
            self.values[node] = mask_input(self.b, value.shape, self.name(node))
            return
        made = self.b.input(value.dtype, value.shape, self.name(node))
        self.values[node] = self.b.with_quant(made, value.quant)

    def reorder(self, nodes: Sequence[fx.Node]) -> None:
        """Let these alone be the inputs, in this order and named in it."""
        self._names.clear()
        self.b.graph.inputs = [self.values[node] for node in nodes]
        for node, value in zip(nodes, self.b.graph.inputs):
            value.name = self.name(node)

    def call(self, node: fx.Node) -> Any:
        """What a call becomes; Unsupported with the reason and the user's own line."""
        self.b.loc, known = torchapi.location(node), len(self._reals.made)
        if (made := folded(node, self.values)) is not None:
            self.values[node] = made
            if self.ranges is not None and isinstance(made, torch.Tensor):
                self.ranges.learn(node, made)
            return made
        try:
            if self.ranges is not None:
                self.ranges.check(node)
            result = self._lower(node, torchapi.target_name(node))
            check_result(node, result)
        except Unsupported as refusal:
            self._reals.keep(known)  # the others are dropped with the call
            raise Unsupported(refusal.reason, refusal.where or self.b.loc) from None
        self.values[node] = result
        return result

    def _lower(self, node: fx.Node, target: str) -> Any:
        if target == "getitem":
            source, place = node.args
            if isinstance(source, fx.Node) and torchapi.is_scan(source):
                example = node.meta.get("val")
                if isinstance(example, torch.Tensor) and not example.is_floating_point():
                    self.codes.add(node)  # integers went round, if they stand for real numbers
            return self.argument(source)[place]
        if torchapi.is_region_call(node):
            self.b.items = self._wanted_items(node)
            return rule_of(target).lower(self.b, *map(self.argument, node.args))
        if torchapi.overload_of(node) is None:
            raise Unsupported(f"{target or node.target} is no operator of PyTorch")
        if (curve := self.curve(node)) is not None:
            return self._as_table(node, curve)
        arguments = {k: self.argument(v) for k, v in torchapi.bound_arguments(node).items()}
        if target == QUANTIZE:
            if is_unsigned(node):
                self._check_leaves(node)
            self.codes.add(node)
            return self.b.requantize(arguments["input"], *parameters(arguments))
        if target in DEQUANTIZE:
            if is_unsigned(node):
                self.unsigned.add(node)
            return self._dequantize(node, arguments)
        for operand in node.all_input_nodes:
            if operand in self.unsigned or (operand in self.codes and is_unsigned(operand)):
                raise Unsupported(f"it reads uint8 ({label(origin(operand))}), and {ONLY_OUTSIDE}")
        rule = rule_for(node)
        if self._reads_codes(node):
            if rule.policy != "SHARED":
                raise Unsupported("it computes with the integers of a quantized value themselves")
            self.codes.add(node)
        real = self._reals.operands(node, arguments)
        self.b.wanted = self._wanted(node) if real is None else None
        self.b.items = self._wanted_items(node)
        result = by_rule(self.b, rule.lower, arguments if real is None else real)
        if isinstance(result, (list, tuple)):
            self._check_items(node, result)
        elif self.b.wanted is not None and isinstance(result, Value):
            result = self.b.requantize(result, *self.b.wanted)
        return result

    def curve(self, node: fx.Node) -> Curve | None:
        """The function of one int8 value that a call is a part of."""
        if self._curves is None:
            self._curves = curves_of(self.program, _is_stepwise)
        return self._curves.get(node)

    def _as_table(self, node: fx.Node, curve: Curve) -> Value | None:
        """A table for the last call; the others give what nothing else reads."""
        reached = [n for n in curve.sources if n in self.values]  # they are one value
        source = self.argument((reached or curve.sources)[0])
        self.b.wanted = self._wanted(curve.last) or (Quant(1.0), d.I32)
        is_byte = source.dtype is self.b.wanted[1] is d.I8
        made = self.b.table if is_byte or source.dtype is d.I32 else partial(stepwise, self.b)
        if node is curve.last:
            return made(source, curve)
        with self.b.scratch():
            made(source, curve)
        return None

    def _check_leaves(self, node: fx.Node) -> None:
        """uint8 is what a graph gives; it goes on with the int8 before it."""
        users = self.program.users
        for user in users.get(node, ()):
            if torchapi.target_name(user) not in DEQUANTIZE or users.get(user):
                raise Unsupported(f"uint8 is computed with behind this call, and {ONLY_OUTSIDE}")

    def _check_items(self, node: fx.Node, results: Sequence[Any]) -> None:
        """Of several results, those that the program reads must have a form."""
        for user in self.program.users.get(node, ()):
            index = user.args[1] if torchapi.target_name(user) == "getitem" else None
            if not user.users and user not in self.program.outputs:
                continue  # taken apart, and never read
            if isinstance(index, int) and results[index] is None:
                raise Unsupported(f"result {index} of this operator has no form in TOSA")

    def _reads_codes(self, node: fx.Node) -> bool:
        return bool(self.codes) and any(n in self.codes for n in node.all_input_nodes)

    def _dequantize(self, node: fx.Node, arguments: dict[str, Any]) -> Value:
        """Integers of a constant or an input get their meaning; a computed value has it."""
        value: Value = arguments["input"]
        quant = constant_parameters(arguments)
        if value.is_const and self._is_narrow(node, arguments):
            value = narrowed(self.b, value)
        is_given = value.quant is None and value.producer is None
        if value.is_const or (is_given and self._only_dequantized(node)):
            value.quant = quant
        if value.quant != quant:
            raise Unsupported("these integers were not quantized with the scale they are read with")
        return value

    def _is_narrow(self, node: fx.Node, arguments: dict[str, Any]) -> bool:
        """Whether the integers of a constant are weights, and int4 has them all."""
        if arguments["dtype"] is not torch.int8 or not d.fits_int4(
            arguments["quant_min"], arguments["quant_max"]
        ):
            return False
        users = self.program.users.get(node, [])
        return bool(users) and all(_is_weight(user, node) for user in users)

    def _only_dequantized(self, node: fx.Node) -> bool:
        """Whether every reader of the integers takes them for the same real numbers."""
        (source,) = node.all_input_nodes
        return all(u.args[1:] == node.args[1:] and u.target is node.target
                   for u in self.program.users[source])  # fmt: skip

    def _wanted(self, node: fx.Node) -> QuantDType | None:
        """What the program quantizes the result to: right after the call, or after a rider."""
        users = self.program.users.get(node, [])
        if len(users) == 1 and fuses_activation(
            torchapi.target_name(node), torchapi.target_name(users[0])
        ):
            users = self.program.users.get(users[0], [])
        for user in users[:1]:
            if torchapi.target_name(user) == QUANTIZE:
                return parameters(torchapi.bound_arguments(user))
        return None

    def _wanted_items(self, node: fx.Node) -> dict[int, QuantDType]:
        """The same for the results of a call that gives several, by their places."""
        picks = [
            u for u in self.program.users.get(node, ()) if torchapi.target_name(u) == "getitem"
        ]
        found = {u.args[1]: self._wanted(u) for u in picks}
        return {int(str(i)): wanted for i, wanted in found.items() if wanted is not None}

    def argument(self, argument: Any) -> Any:
        """An argument with nodes replaced by values; a tensor becomes a constant on the way."""
        if isinstance(argument, fx.Node):
            region = self.program.regions.get(argument)
            if region is not None:
                return Region(region, self.ranges is not None)
            if argument not in self.values:
                reason = self.missing.get(argument)
                raise Unsupported(reason or f"it needs {argument.name}, which is not lowered")
            value = self.values[argument]
            return self.b.tensor(value) if isinstance(value, torch.Tensor) else value
        if isinstance(argument, (list, tuple)):
            return [self.argument(a) for a in argument]
        return argument


def _is_stepwise(curve: Curve, result: fx.Node) -> bool:
    """Whether a function of int8 or int16 values has an exact form in int16."""
    reads = {parameters(torchapi.bound_arguments(source)) for source in curve.sources}
    gives = parameters(torchapi.bound_arguments(result))
    if len(reads) > 1 or gives[1] not in (d.I8, d.I16):
        return False
    ((given, kind),) = reads
    if kind is d.I32 or not curve.jumps:
        return kind is d.I32 and not curve.jumps  # a magnitude, which has one table
    if kind is d.I8:
        return gives[1] is d.I16
    return kind is d.I16 and segments(curve, given, *gives) is not None


def _is_weight(user: fx.Node, node: fx.Node) -> bool:
    rule = RULES.get(torchapi.target_name(user))
    if rule is None or rule.policy != "WEIGHTED":
        return False
    bound = torchapi.bound_arguments(user)
    return [name for name, value in bound.items() if value is node] == ["weight"]


def narrowed(b: Lowering, weight: Value) -> Value:
    """The same numbers in int4."""
    return b.remade(weight, lambda a: a, kind=d.I4, quant=weight.quant)


class Region:
    """A function that a call takes, such as a branch of ``cond``: rules lower it to a graph."""

    def __init__(self, module: fx.GraphModule, is_checked: bool) -> None:
        self.program, self.is_checked = from_module(module), is_checked

    def lower(
        self, b: Lowering, operands: list[Value], name: str, limits: dict[int, Interval],
        wanted: Mapping[int, QuantDType] = MappingProxyType({}),
    ) -> Graph:  # fmt: skip
        """The function as a graph of its own; constants among the operands stay constants.

        ``limits`` are known ranges of operands, by position, ``wanted`` what results must become.
        """
        inner = Lowering(b.env, Graph(name, version=b.env.version), b.constraints, b.traits)
        ranges = Ranges(self.program.tensors) if self.is_checked else None
        walker = Walker(self.program, inner, ranges)
        for index, (node, value) in enumerate(zip(self.program.inputs, operands, strict=True)):
            if value.is_const:
                walker.values[node] = value
            else:
                walker.take(node, value)
            if ranges is not None:
                ranges.outside(node)
                ranges.limit(node, limits.get(index))
                ranges.limit(node, _ends(value))
        for node in self.program.calls:
            walker.call(node)
        taken: set[Value] = set()
        for index, result in enumerate(self.program.outputs):
            value = walker.argument(result)
            if index in wanted and isinstance(value, Value):
                value = inner.requantize(value, *wanted[index])
            inner.output(named_output(inner, value, "", taken))
        return inner.graph

    def reads(self, index: int) -> QuantDType | None:
        """What an operand is quantized to before anything else, if it is."""
        node = self.program.inputs[index]
        users = [u for u in self.program.users.get(node, ()) if torchapi.target_name(u) == QUANTIZE]
        return parameters(torchapi.bound_arguments(users[0])) if users else None

    def limit(self) -> tuple[int, Interval] | None:
        """For the condition of a loop: the operand that it compares with a number, and the range
        that the operand has while it holds."""
        (result,) = self.program.outputs
        if not isinstance(result, fx.Node) or result.op != "call_function":
            return None
        operand, *rest = result.args or (None,)
        if not isinstance(operand, fx.Node) or operand not in self.program.inputs:
            return None
        if not rest or not isinstance(rest[0], (int, float)):
            return None
        name, bound = torchapi.target_name(result), float(rest[0])
        ends = {
            "aten.lt.Scalar": (-torch.inf, bound), "aten.le.Scalar": (-torch.inf, bound),
            "aten.gt.Scalar": (bound, torch.inf), "aten.ge.Scalar": (bound, torch.inf),
        }.get(name)  # fmt: skip
        return None if ends is None else (self.program.inputs.index(operand), ends)


def _ends(value: Value) -> Interval | None:
    """The least and the largest of a constant's whole numbers."""
    if value.const is None or value.quant is not None or not value.dtype.is_int:
        return None
    array = value.const.array
    return (float(array.min()), float(array.max())) if array.size else None


def named_output(b: Lowering, value: Any, name: str, taken: set[Value]) -> Value:
    """A value under its own name; an input, a constant or an output already is copied first."""
    if not isinstance(value, Value):
        raise Unsupported(f"{name or 'a result'} is no tensor, so no graph can give it")
    if value.producer is None or value in taken:
        value = b.with_quant(b.IDENTITY(value), value.quant)
    result: Value = value
    taken.add(result)
    result.name = name or result.name
    return result


def parameters(arguments: dict[str, Any]) -> tuple[Quant, d.DType]:
    """Scale, zero point and type of a quantize or dequantize call; uint8 is int8 in a graph."""
    given, scale, zero = arguments["dtype"], float(arguments["scale"]), arguments["zero_point"]
    kind = d.I8 if given is torch.uint8 else TYPES.get(given)
    if kind is None or not kind.is_int:
        raise Unsupported(f"values cannot be quantized to {given}")
    problem = misfit(str(given).removeprefix("torch."), int(zero))
    if problem:
        raise Unsupported(problem)
    return Quant(scale, int(zero) - (128 if given is torch.uint8 else 0)), kind


def constant_parameters(arguments: dict[str, Any]) -> Quant:
    """The meaning of a constant, with one scale or one for each channel."""
    if "scales" not in arguments:
        return parameters(arguments)[0]
    scales: Value = arguments["scales"]
    if scales.const is None:
        raise Unsupported("the scales of a constant must be constants")
    return Quant(tuple(scales.const.array.astype(float).tolist()), 0, int(arguments["axis"]))
