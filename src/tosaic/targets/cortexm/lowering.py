"""A TOSA graph as steps in C: convolutions with what follows them, loops over fused operators.

A value is lazy, an expression over views, as long as one loop can compute it together with its
consumer. Data movement changes views; it copies where no view has the order that is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tosaic.errors import Unsupported
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec import dtypes as d
from tosaic.targets.cortexm import views
from tosaic.targets.cortexm.cores import Core
from tosaic.targets.cortexm.expressions import Apply, Expr, Imm, Load, cost, map_views, nodes
from tosaic.targets.cortexm.float_operators import rule_of
from tosaic.targets.cortexm.layers import Call, Layer
from tosaic.targets.cortexm.loops import Reduction, loop
from tosaic.targets.cortexm.operators import computed_in, known, load
from tosaic.targets.cortexm.program import Item, Program, State, Step, kernel_function
from tosaic.targets.cortexm.views import C_TYPES, SIZES, Buffer, View, whole

MOVES = {"TRANSPOSE", "SLICE", "REVERSE", "RESHAPE", "TILE", "PAD", "CONCAT"}
REDUCTIONS = {"REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL", "REDUCE_ANY",
              "REDUCE_PRODUCT", "ARGMAX"}  # fmt: skip
_OPERANDS = {"RESCALE": 1, "TABLE": 1, "NEGATE": 1, "MUL": 2}  # the others are parameters
_MOST = 48  # operators in one loop
_CHEAP = 3  # cost up to which an element is computed for each consumer anew

Kernel = Callable[["Lowerer", Op], None]
KERNELS: dict[str, Kernel] = {}


Pattern = Callable[["Lowerer", Op], bool]
PATTERNS: list[Pattern] = []


def pattern(function: Pattern) -> Pattern:
    """Register a pattern of operators that one kernel computes; it says whether it took an op."""
    PATTERNS.append(function)
    return function


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register how operators become calls of kernels."""

    def register(function: Kernel) -> Kernel:
        for name in names:
            KERNELS[name] = function
        return function

    return register


@dataclass(frozen=True, slots=True, eq=False)
class Lazy:
    """A tensor as an expression of each of its elements."""

    expr: Expr
    shape: tuple[int, ...]
    dtype: d.DType


class Lowerer:
    """Turns one graph, or a region of one, into steps."""

    def __init__(self, graph: Graph, core: Core, program: Program | None = None) -> None:
        self.graph, self.core = graph, core
        self.program = program or Program()
        self.items: list[Item] = self.program.items
        self.values: dict[Value, Lazy] = {}
        self.done: set[Op] = set()
        self.uses = graph.uses()
        self.wanted: dict[Value, list[Buffer]] = {}

    # ---- values

    def lazy(self, value: Value) -> Lazy:
        if value not in self.values:
            if value.const is None:
                raise Unsupported(f"{value.name or 'a value'} is read before it is computed")
            array = value.const.array
            buffer = views.constant(array.astype(value.dtype.array), c_type(value))
            made = load(whole(buffer, value.shape), value.dtype)
            self.values[value] = Lazy(made, tuple(value.shape), value.dtype)
        return self.values[value]

    def view(self, value: Value) -> View:
        """A tensor in memory, contiguous and aligned to 4 bytes; it is stored if it is lazy."""
        lazy = self.lazy(value)
        expr = lazy.expr
        if isinstance(expr, Imm) and value.is_const and value.const is not None:
            array = value.const.array.astype(value.dtype.array)
            return whole(views.constant(array, c_type(value)), value.shape)
        if isinstance(expr, Load) and _is_ready(expr.view, c_type(value)):
            return expr.view
        buffer = self.new(value)
        self.store(lazy, whole(buffer, lazy.shape), (value.producer,) if value.producer else ())
        self.keep(value, whole(buffer, lazy.shape))
        return whole(buffer, lazy.shape)

    def keep(self, value: Value, view: View) -> None:
        self.values[value] = Lazy(load(view, value.dtype), tuple(value.shape), value.dtype)

    def new(self, value: Value) -> Buffer:
        """A buffer for a result: the caller's if the graph gives it."""
        wanted = self.wanted.get(value)
        if wanted:
            return wanted.pop(0)
        return Buffer(c_type(value), value.type.size, value=value)

    def users(self, value: Value) -> list[Op]:
        return list(dict.fromkeys(self.uses.get(value, ())))

    def only_user(self, value: Value) -> Op | None:
        users = self.uses.get(value, ())
        return users[0] if len(users) == 1 and value not in self.wanted else None

    # ---- steps

    def store(
        self, lazy: Lazy, view: View, ops: tuple[Op, ...], reduction: Reduction | None = None,
        shape: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """Compute a tensor into a view of a buffer, in one loop."""
        expr = lazy.expr
        if (
            isinstance(expr, Load) and reduction is None and expr.view.is_contiguous
            and view.is_contiguous and expr.view.buffer.ctype == view.buffer.ctype
        ):  # fmt: skip
            self.copy(expr.view, view, math.prod(lazy.shape), ops)
            return
        made = loop(expr, shape or lazy.shape, view, view.buffer.ctype, reduction, self.core.forms)
        loads = [e for e in nodes(expr) if isinstance(e, Load)]
        reads = tuple(dict.fromkeys(v.buffer for v in made.pointers[1:]))
        same = () if reduction else _same_place(loads, view)
        step = Step(made, reads, (view.buffer,), ops, "loop", same_place=same)
        if reduction is None:
            step.loop = (expr, tuple(lazy.shape), view)
        self.items.append(step)

    def copy(self, source: View, view: View, count: int, ops: tuple[Op, ...]) -> None:
        ctype = view.buffer.ctype
        call = Call("tk_copy", "move.h", (count * SIZES[ctype],))
        made = kernel_function(call, (source,), view)
        self.items.append(Step(made, (source.buffer,), (view.buffer,), ops, "copy", call))

    def call(
        self, call: Call, inputs: Sequence[View], value: Value, ops: tuple[Op, ...],
        kind: str = "", rows: tuple[int, int] | None = None, same_place: tuple[Buffer, ...] = (),
        layer: Layer | None = None,
    ) -> View:  # fmt: skip
        """A call of a kernel that makes the tensor of a value."""
        buffer = self.new(value)
        out = whole(buffer, value.shape)
        made = kernel_function(call, inputs, out)
        reads = tuple(dict.fromkeys(v.buffer for v in inputs))
        name = kind or ops[0].name.lower()
        self.items.append(Step(made, reads, (buffer,), ops, name, call, rows, same_place, layer))
        self.keep(value, out)
        return out

    # ---- the graph

    def run(self, states: Sequence[State] = ()) -> Program:
        """The whole graph, with inputs, outputs and state in the caller's memory."""
        kept = {state.input: state for state in states}, {state.output: state for state in states}
        for number, value in enumerate(self.graph.inputs):
            ports = self.program.inputs
            buffer = Buffer(c_type(value), value.type.size, "input", len(ports), value=value)
            if number in kept[0]:
                state = kept[0][number]
                buffer.kind, buffer.number = "state", list(states).index(state)
            else:
                ports.append(buffer)
            self.keep(value, whole(buffer, value.shape))
        lasting: list[tuple[Buffer, Buffer]] = []
        for number, value in enumerate(self.graph.outputs):
            ports = self.program.outputs
            buffer = Buffer(c_type(value), value.type.size, "output", len(ports), value=value)
            if number in kept[1]:
                place = list(states).index(kept[1][number])
                buffer.kind = "arena"
                target = Buffer(buffer.ctype, buffer.count, "state", place, value=value)
                lasting.append((buffer, target))
            else:
                ports.append(buffer)
            self.wanted.setdefault(self.source(value), []).append(buffer)
        self.body()
        for buffer, target in sorted(lasting, key=lambda pair: pair[1].number):
            view = whole(buffer, (buffer.count,))
            self.copy(view, whole(target, view.shape), buffer.count, ())
            self.program.states[states[target.number].name] = target
        return self.program

    def source(self, value: Value) -> Value:
        """The value that an output is another shape of, if nothing else reads it."""
        op = value.producer
        while op is not None and op.name == "RESHAPE" and op.ins[0].producer is not None:
            before = op.ins[0]
            if len(self.uses[before]) > 1 or before in self.graph.outputs:
                break
            value, op = before, before.producer
        return value

    def body(self) -> None:
        for op in self.graph.ops:
            if op not in self.done:
                self.lower(op)
        for value in list(self.wanted):
            self.finish(value)

    def finish(self, value: Value) -> None:
        """Store what the caller gets and no step has written yet."""
        while self.wanted.get(value):
            buffer = self.wanted[value].pop(0)
            self.store(self.lazy(value), whole(buffer, value.shape), producer(value))

    def lower(self, op: Op) -> None:
        if all(v.dtype is d.SHAPE for v in op.outs) and op.name not in KERNELS:
            return
        for value in (*op.ins, *op.outs):
            if value.dtype is not d.SHAPE:
                c_type(value)
        if any(matches(self, op) for matches in PATTERNS):
            return
        if op.name in KERNELS:
            KERNELS[op.name](self, op)
            return
        out = op.outs[0]
        if op.name in MOVES:
            made = self.moved(op)
        elif rule_of(op) is not None:
            made = self.elementwise(op)
        else:
            raise Unsupported(f"{op.name} has no C", op.loc)
        if made is not None:
            self.values[out] = made
            self.settle(op)

    def settle(self, op: Op) -> None:
        """Store a lazy result now, unless its consumers compute it."""
        value = op.outs[0]
        lazy = self.values[value]
        if self.wanted.get(value):
            buffer = self.wanted[value].pop(0)
            self.store(lazy, whole(buffer, lazy.shape), (op,))
            self.keep(value, whole(buffer, lazy.shape))
            return
        users = self.users(value)
        if not users or isinstance(lazy.expr, (Load, Imm)):
            return
        price = cost(lazy.expr)
        fuses = all(rule_of(user) is not None or user.name in MOVES or user.name in REDUCTIONS
                    for user in users)  # fmt: skip
        if fuses and (len(users) == 1 or _is_cheap(lazy)) and price <= _MOST:
            return
        self.view(value)

    def elementwise(self, op: Op) -> Lazy:
        shape = tuple(op.outs[0].shape)
        count = _OPERANDS.get(op.name, len(op.ins))
        args = [self.spread(value, shape) for value in op.ins[:count]]
        compute = rule_of(op)
        assert compute is not None
        return Lazy(compute(op, args), shape, op.outs[0].dtype)

    def spread(self, value: Value, shape: tuple[int, ...]) -> Expr:
        """An operand broadcast to a shape; what is repeated is computed once, before."""
        lazy = self.lazy(value)
        if lazy.shape == shape:
            return lazy.expr
        if isinstance(lazy.expr, Apply) and math.prod(shape) > math.prod(lazy.shape):
            self.view(value)
            lazy = self.lazy(value)
        made = map_views(lazy.expr, partial(_spread, shape=shape))
        assert made is not None
        return made

    # ---- data movement

    def moved(self, op: Op) -> Lazy | None:
        lazy, out = self.lazy(op.ins[0]), op.outs[0]
        change: Callable[[View], View | None]
        if op.name == "TRANSPOSE":
            change = partial(views.transposed, perms=op.attrs["perms"])
        elif op.name == "REVERSE":
            change = partial(views.reversed_, axis=op.attrs["axis"])
        elif op.name == "SLICE":
            start = [int(n) for n in known(op.ins[1], op).reshape(-1)]
            change = partial(views.sliced, start=start, size=tuple(out.shape))
        elif op.name == "RESHAPE":
            change = partial(views.reshaped, shape=tuple(out.shape))
            if map_views(lazy.expr, change) is None:
                self.view(op.ins[0])
                lazy = self.lazy(op.ins[0])
        elif op.name == "TILE":
            self.tile(op, lazy)
            return None
        else:
            (self.pad if op.name == "PAD" else self.concat)(op)
            return None
        made = map_views(lazy.expr, change)
        assert made is not None
        return Lazy(made, tuple(out.shape), out.dtype)

    def tile(self, op: Op, lazy: Lazy) -> None:
        """Each axis becomes two: the copies, of stride 0, and the elements."""
        out = op.outs[0]
        shape = [n for pair in zip(_times(op), lazy.shape) for n in pair]

        def change(view: View) -> View:
            strides = tuple(s for stride in view.strides for s in (0, stride))
            return View(view.buffer, view.offset, tuple(shape), strides)

        made = map_views(lazy.expr, change)
        assert made is not None
        buffer = self.new(out)
        self.store(Lazy(made, tuple(shape), out.dtype), whole(buffer, shape), (op,))
        self.keep(out, whole(buffer, out.shape))

    def pad(self, op: Op) -> None:
        out, lazy = op.outs[0], self.lazy(op.ins[0])
        pairs = known(op.ins[1], op).reshape(-1, 2)
        fill = known(op.ins[2], op).reshape(-1)[0].item()
        target = whole(self.new(out), out.shape)
        number = Lazy(Imm(fill, computed_in(out.dtype)), tuple(out.shape), out.dtype)
        self.store(number, target, (op,))
        inner = views.sliced(target, [int(before) for before, _ in pairs], lazy.shape)
        self.store(lazy, inner, (op,))
        self.keep(out, target)

    def concat(self, op: Op) -> None:
        out, axis = op.outs[0], op.attrs["axis"]
        parts = [self.lazy(value) for value in op.ins]
        target, place = whole(self.new(out), out.shape), 0
        for lazy in parts:
            start = [0] * len(lazy.shape)
            start[axis] = place
            self.store(lazy, views.sliced(target, start, lazy.shape), (op,))
            place += lazy.shape[axis]
        self.keep(out, target)


def c_type(value: Value) -> str:
    found = C_TYPES.get(value.dtype)
    if found is None:
        raise Unsupported(f"{value.dtype} has no C", value.loc)
    return found


def producer(value: Value) -> tuple[Op, ...]:
    return (value.producer,) if value.producer is not None else ()


def _is_ready(view: View, ctype: str) -> bool:
    """Whether a kernel may read a view as it is: a tensor of its type, contiguous and aligned."""
    is_aligned = view.offset * SIZES[ctype] % 4 == 0
    return view.buffer.ctype == ctype and view.is_contiguous and is_aligned


def _spread(view: View, shape: tuple[int, ...]) -> View:
    return views.broadcast(view, shape)


def _times(op: Op) -> list[int]:
    return [after // before for before, after in zip(op.ins[0].shape, op.outs[0].shape)]


def _is_cheap(lazy: Lazy) -> bool:
    """Whether an element may be computed by each consumer: it is as narrow before as after."""
    loads = [e for e in nodes(lazy.expr) if isinstance(e, Load)]
    wide = sum(SIZES[e.view.buffer.ctype] for e in loads if e.view.buffer.kind != "const")
    return cost(lazy.expr) <= _CHEAP and wide <= SIZES[C_TYPES[lazy.dtype]]


def _same_place(loads: Sequence[Load], view: View) -> tuple[Buffer, ...]:
    """Buffers that a loop may write its result over while it reads them, element by element."""
    found = []
    for buffer in dict.fromkeys(e.view.buffer for e in loads):
        seen = [e.view for e in loads if e.view.buffer is buffer]
        fits = buffer.ctype == view.buffer.ctype or (
            SIZES[view.buffer.ctype] == 1 and view.buffer.ctype == "int8_t"
        )
        same = all(v.is_whole for v in seen)
        if buffer.kind == "arena" and fits and same and view.is_whole:
            found.append(buffer)
    return tuple(found)
