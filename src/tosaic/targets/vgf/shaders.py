"""Operators of the user's own: a PyTorch function, and a GLSL shader that computes the same.

The function is what PyTorch and the interpreter run, the shader what a ``.vgf`` holds. Both are
compared on Vulkan when a network is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tosaic.errors import InvalidInput, ToolFailed, ToolMissing, Unsupported, first_line
from tosaic.files.flatbuffer import write
from tosaic.files.vgf.shaders import DOMAIN, Shader, shader_of
from tosaic.front.registry import rule
from tosaic.interp.control import CUSTOM
from tosaic.interp.kernel import TORCH
from tosaic.interp.model import Model
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.lowering.alternatives.cast import to_real
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.spec.dtypes import TensorType

NAMESPACE = "tosaic_shader"
Groups = Sequence[int] | Callable[..., Sequence[int]]
_KNOWN: dict[str, Callable[..., Any]] = {}  # functions by the source of their shader
_NEAR = 1e-3  # of the largest number, which functions and shaders may be apart


def shader(glsl: str, groups: Groups) -> Callable[[Callable[..., Any]], Any]:
    """A decorator for a function of tensors that a shader computes on Vulkan.

    The shader's tensors are bound in the order of the arguments from 0 on, then the results.
    ``groups`` is the number of workgroups in three directions, or a function of the shapes of the
    arguments that gives it.
    """
    if "void" not in str(glsl):
        raise InvalidInput("a shader is GLSL source with an entry point main")

    def register(function: Callable[..., Any]) -> Any:
        name = function.__name__
        try:
            made = torch.library.custom_op(f"{NAMESPACE}::{name}", function, mutates_args=())
        except ValueError as problem:
            raise InvalidInput(
                f"the function {name} of a shader is declared as 'def {name}(x: Tensor) -> "
                f"Tensor': {first_line(problem)}"
            ) from None
        made.register_fake(function)
        _KNOWN[glsl] = function

        @rule(f"{NAMESPACE}.{name}.default", policy="NONE")
        def lower(b: Lowering, **operands: Any) -> Any:
            if DOMAIN not in b.traits.domains:
                raise Unsupported("a shader is for targets with Vulkan; PyTorch runs its function")
            ins = [_operand(b, name, value) for value in operands.values()]
            kinds = _types(name, function, ins)
            held = Shader(glsl, _workgroups(name, groups, [v.shape for v in ins]))
            found = b.results(
                "CUSTOM", *ins, out=kinds, operator_name=name, domain_name=DOMAIN,
                implementation_attrs=held.attributes([v.type for v in ins], kinds),
            )  # fmt: skip
            return found[0] if len(found) == 1 else list(found)

        return made

    return register


def _operand(b: Lowering, name: str, value: Any) -> Value:
    """A tensor as the shader reads it: integers that stand for real numbers become these."""
    if not isinstance(value, Value):
        raise Unsupported(f"the shader of {name} takes tensors, not {value!r}")
    real = value if value.quant is None else to_real(b, value)
    return b.IDENTITY(real) if real.is_const else real


def _types(name: str, function: Callable[..., Any], ins: Sequence[Value]) -> list[TensorType]:
    """The types of what a function gives."""
    given = [torch.zeros(v.shape, dtype=TORCH[v.dtype]) for v in ins]
    made = function(*given)
    outs = list(made) if isinstance(made, (tuple, list)) else [made]
    for kind in (t.dtype for t in outs if t.dtype not in TYPES):
        raise Unsupported(f"the function of {name} gives {kind}, which a .vgf does not hold")
    return [TensorType(TYPES[t.dtype], tuple(t.shape)) for t in outs]


def _workgroups(name: str, groups: Groups, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The number of workgroups in three directions for arguments of some shapes."""
    try:
        chosen = groups(*shapes) if callable(groups) else groups
        found = tuple(int(n) for n in chosen)
    except (TypeError, ValueError, IndexError) as problem:
        told = first_line(problem)
        raise InvalidInput(f"the workgroups of {name} for {list(shapes)}: {told}") from None
    if len(found) != 3 or min(found) < 1:
        raise InvalidInput(f"the workgroups of {name} are three numbers above 0, not {chosen!r}")
    return found


def _function(op: Op) -> Callable[..., Any] | None:
    """What the interpreter runs for a shader."""
    held = shader_of(op)
    return None if held is None else _KNOWN.get(held.code)


CUSTOM[DOMAIN] = _function


def check_shaders(
    graph: Graph, given: Sequence[Array] | None, run: Callable[[bytes, Sequence[Array]], Any]
) -> list[str]:
    """Compare each shader with its function; ``run`` runs a TOSA file on Vulkan."""
    told = []
    for op in graph.ops:
        if shader_of(op) is None:
            continue
        name = op.attrs["operator_name"]
        arrays = _arrays(graph, op, given)
        alone = _alone(op)
        try:
            found = run(write(alone), arrays)
        except ToolMissing as missing:
            told.append(f"the shader of {name} was not compared: {missing.reason}")
            continue
        except ToolFailed as failure:
            raise InvalidInput(f"the shader of {name} does not run: {failure.reason}") from None
        for theirs, ours in zip(found, Model(alone).run(*arrays), strict=True):
            _compare(op, theirs.astype(np.float64), ours.astype(np.float64))
        told.append(f"the shader of {name} gives what its function does")
    return told


def _alone(op: Op) -> Graph:
    """A graph of nothing but the operator."""
    ins = [Value(v.type, f"x{number}") for number, v in enumerate(op.ins)]
    outs = [Value(v.type) for v in op.outs]
    return Graph(inputs=ins, outputs=outs, ops=[Op(op.defn, ins, outs, op.attrs)])


def _arrays(graph: Graph, op: Op, given: Sequence[Array] | None) -> list[Array]:
    """What the operator is given in the graph, or random numbers."""
    if given is not None:
        before = graph.ops[: graph.ops.index(op)]
        return Model(Graph(inputs=graph.inputs, outputs=op.ins, ops=before)).run(*given)
    chance = np.random.default_rng(0)
    return [chance.standard_normal(v.shape).astype(v.dtype.array) for v in op.ins]


def _compare(op: Op, theirs: Array, ours: Array) -> None:
    same = (theirs == ours) | (np.isnan(theirs) & np.isnan(ours))
    off = float(np.max(np.where(same, 0, np.abs(theirs - ours)), initial=0.0))
    largest = float(np.max(np.abs(ours[np.isfinite(ours)]), initial=0.0))
    if not off <= _NEAR * max(largest, 1e-6):
        given = ", ".join(str(value.type) for value in op.ins)
        raise InvalidInput(
            f"the shader of {op.attrs['operator_name']} and its function differ by up to {off:g} "
            f"where the largest number is {largest:g}, both given {given}: correct one of them"
        )
