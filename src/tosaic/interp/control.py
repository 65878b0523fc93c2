"""Control flow, variables, and custom operators, whose functions their domains find."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from tosaic.errors import Unpredictable, Unsupported
from tosaic.interp.kernel import Context, Run, kernel, to_torch
from tosaic.ir.graph import Op


@kernel("COND_IF")
def cond_if(op: Op, context: Context) -> Run:
    then_run, else_run = map(context.plan_region, op.regions)

    def run(condition: Tensor, *ins: Tensor) -> list[Tensor]:
        return (then_run if bool(condition) else else_run)(ins)

    return run


@kernel("WHILE_LOOP")
def while_loop(op: Op, context: Context) -> Run:
    holds, body = map(context.plan_region, op.regions)

    def run(*ins: Tensor) -> list[Tensor]:
        state = list(ins)
        while bool(holds(state)[0]):
            state = body(state)
        return state

    return run


@kernel("VARIABLE")
def variable(op: Op, context: Context) -> Run:
    """A variable gets its initial value when the plan is made, and keeps what is written."""
    initial = op.attrs.get("initial_value")
    if initial is not None:
        kind = op.attrs["type"]
        first = to_torch(initial, kind.dtype).reshape(kind.shape)
        context.variables[op.attrs["name"]] = first.clone()
    return lambda: None


@kernel("VARIABLE_READ")
def variable_read(op: Op, context: Context) -> Run:
    name = op.attrs["name"]

    def run() -> Tensor:
        value = context.variables.get(name)
        if value is None:
            raise Unpredictable(f"variable {name} is read before it has a value")
        return value

    return run


@kernel("VARIABLE_WRITE")
def variable_write(op: Op, context: Context) -> Run:
    name = op.attrs["name"]

    def run(value: Tensor) -> None:
        context.variables[name] = value.clone()  # it may lie in the caller's memory

    return run


@kernel("CUSTOM")
def custom(op: Op, context: Context) -> Run:
    find = CUSTOM.get(op.attrs["domain_name"])
    function = find(op) if find is not None else None
    if function is None:
        name = f"{op.attrs['domain_name']}.{op.attrs['operator_name']}"
        raise Unsupported(f"the interpreter does not know the custom operator {name}", op)
    return function


CUSTOM: dict[str, Callable[[Op], Run | None]] = {}
"""What finds the function of a custom operator, by its domain; None for one that is not known."""
