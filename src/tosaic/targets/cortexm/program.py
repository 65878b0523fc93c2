"""Programs: steps in order, each a call of a function of C over buffers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tosaic.ir.graph import Op
from tosaic.targets.cortexm.expressions import Expr
from tosaic.targets.cortexm.layers import Call, Layer
from tosaic.targets.cortexm.loops import NAME, Function, literal
from tosaic.targets.cortexm.views import Buffer, View

PRODUCTS = {"CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D", "MATMUL", "MATMUL_T"}


def macs(op: Op) -> int:
    """Multiplications of a convolution or a product of matrices."""
    if op.name not in PRODUCTS or not op.outs:
        return 0
    if op.name.startswith("MATMUL"):
        return op.outs[0].type.size * op.ins[0].shape[2]
    weight = op.ins[1].type
    if op.name == "DEPTHWISE_CONV2D":
        return op.outs[0].type.size * weight.shape[0] * weight.shape[1]
    if op.name == "TRANSPOSE_CONV2D":
        return op.ins[0].type.size * weight.size // op.ins[0].shape[-1]
    return op.outs[0].type.size * weight.size // weight.shape[0]


@dataclass(slots=True, eq=False)
class Step:
    """A call: ``function`` over its pointers, then scratch memory and numbers.

    ``same_place`` are buffers that are read element by element where the result is written.
    """

    function: Function
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    ops: tuple[Op, ...]
    kind: str
    call: Call | None = None
    rows: tuple[int, int] | None = None
    same_place: tuple[Buffer, ...] = ()
    layer: Layer | None = None
    loop: tuple[Expr, tuple[int, ...], View] | None = None  # expression, shape, where it is stored

    @property
    def macs(self) -> int:
        return sum(map(macs, self.ops))

    @property
    def scratch(self) -> int:
        return self.call.scratch if self.call else 0

    @property
    def main_op(self) -> Op | None:
        """The operator that a step is shown as: its product, or its last one."""
        last = self.ops[-1] if self.ops else None
        return next((op for op in self.ops if op.name in PRODUCTS), last)


@dataclass(slots=True, eq=False)
class Branch:
    """COND_IF: one of two lists of steps."""

    condition: View
    then: list[Item]
    other: list[Item]
    ops: tuple[Op, ...] = ()


@dataclass(slots=True, eq=False)
class Loop:
    """WHILE_LOOP: the steps of the condition, then those of the body as long as it holds."""

    condition: View
    before: list[Item]
    body: list[Item]
    ops: tuple[Op, ...] = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """Which rows of an input a row of a stage needs: those below r · stride + reach, up to all.

    ``stage`` makes them, or None for a tensor that is there as a whole. ``first`` is the first row
    that row 0 needs.
    """

    buffer: Buffer
    stage: int | None
    stride: int
    reach: int
    first: int
    height: int

    def rows(self, r: int) -> int:
        return min(self.height, max(0, r * self.stride + self.reach))

    def oldest(self, r: int) -> int:
        return max(0, r * self.stride + self.first)


@dataclass(slots=True, eq=False)
class Stage:
    """A step that makes one row of its result at a time, ``rings`` rows of which are kept."""

    step: Step
    demands: tuple[Demand, ...]
    height: int
    row: int  # elements
    ring: int


@dataclass(slots=True, eq=False)
class Chain:
    """Stages that make rows as they are needed; the last one's are the result."""

    stages: list[Stage]
    ops: tuple[Op, ...] = ()


Item = Step | Branch | Loop | Chain


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that lasts from run to run: an input, the output that replaces it, first bytes."""

    name: str
    input: int
    output: int
    data: bytes

    @property
    def label(self) -> str:
        """The name as C has it."""
        plain = re.sub(r"\W", "_", self.name)
        return plain if plain[:1].isalpha() else f"s_{plain}"


@dataclass(slots=True)
class Program:
    """Steps in order, and the buffers of inputs, outputs and state that the caller has."""

    items: list[Item] = field(default_factory=list)
    inputs: list[Buffer] = field(default_factory=list)
    outputs: list[Buffer] = field(default_factory=list)
    states: dict[str, Buffer] = field(default_factory=dict)

    def steps(self) -> Iterator[Step]:
        yield from _steps(self.items)


def _steps(items: Sequence[Item]) -> Iterator[Step]:
    for item in items:
        if isinstance(item, Step):
            yield item
        elif isinstance(item, Branch):
            yield from _steps(item.then)
            yield from _steps(item.other)
        elif isinstance(item, Chain):
            yield from (stage.step for stage in item.stages)
        else:
            yield from _steps(item.before)
            yield from _steps(item.body)


def kernel_function(call: Call, inputs: Sequence[View], output: View) -> Function:
    """The function that calls a kernel with literals; its pointers are inputs, result, constants.

    A kernel takes its inputs, the result, packed constants, a table and scratch memory, then rows
    if it streams, then literals.
    """
    params = [f"const {v.buffer.ctype} *x{i}" for i, v in enumerate(inputs)]
    params.append(f"{output.buffer.ctype} *y")
    given = [f"x{i}" for i in range(len(inputs))] + ["y"]
    for name, kind, has in (
        ("w", "const uint8_t", call.blob), ("lut", "const int8_t", call.lut),
        ("scratch", "uint8_t", call.scratch),
    ):  # fmt: skip
        if has:
            params.append(f"{kind} *{name}")
        given.append(name if has else "NULL")
    if call.streams:
        params += ["int32_t y0", "int32_t y1"]
        given += ["y0", "y1"]
    given += [literal(n) for n in call.literals]
    text = (
        f"TK_NOINLINE void {NAME}({', '.join(params)})\n{{\n"
        f"    {call.function}({_wrapped(given)});\n}}\n"
    )
    pointers = [*inputs, output]
    return Function(text, tuple(pointers), (call.include,))


def _wrapped(words: Sequence[str]) -> str:
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) > 70:
            lines.append(line)
            line = ""
        line += word + ", "
    lines.append(line)
    return "\n        ".join(lines).removesuffix(", ").replace(", \n", ",\n")
