"""net.h: sizes, ports and their meaning as macros, and the functions of a network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tosaic.ir.graph import Quant, Unsigned
from tosaic.targets.cortexm.memory import Plan
from tosaic.targets.cortexm.program import Program, State
from tosaic.targets.cortexm.views import Buffer


def header(program: Program, plan: Plan, name: str, states: Sequence[State]) -> str:
    """The text of net.h."""
    upper = name.upper()
    parts = [
        f"/* A network in C: {name}_run computes outputs from inputs in an arena. */",
        f"#ifndef TOSAIC_{upper}_H", f"#define TOSAIC_{upper}_H", "",
        "#include <stddef.h>", "#include <stdint.h>", "",
        "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
        f"#define {upper}_ARENA_SIZE {max(plan.memories[0][1], 1)}",
        f"#define {upper}_ARENA_ALIGN 16",
        f"#define {upper}_INPUT_COUNT {len(program.inputs)}",
        f"#define {upper}_OUTPUT_COUNT {len(program.outputs)}",
    ]  # fmt: skip
    for way, buffers in (("INPUT", program.inputs), ("OUTPUT", program.outputs)):
        for number, buffer in enumerate(buffers):
            parts += _port(f"{upper}_{way}_{number}", buffer)
    parts += [*_state(name, states, program), *_memories(upper, plan)]
    parts += [
        "", "/* Tensors of the caller, contiguous, as the macros above describe them. */",
        f"struct {name}_io {{",
        f"    const void *inputs[{max(1, len(program.inputs))}];",
        f"    void *outputs[{max(1, len(program.outputs))}];",
        *([f"    struct {name}_state *state;"] if states else []),
        *([f"    void *memories[{len(plan.memories) - 1}];"] if len(plan.memories) > 1 else []),
        "};", "",
        f"/* The arena has {upper}_ARENA_SIZE bytes, aligned to {upper}_ARENA_ALIGN;",
        "   nothing in it lasts from one run to the next. */",
        f"void {name}_run(const struct {name}_io *io, void *arena);", "",
        "#ifdef __cplusplus", "}", "#endif", "", "#endif", "",
    ]  # fmt: skip
    return "\n".join(parts)


def _port(prefix: str, buffer: Buffer) -> Iterator[str]:
    value = buffer.value
    assert value is not None
    kind = "uint8_t" if isinstance(value.quant, Unsigned) else buffer.ctype
    plain = re.sub(r"[^\w.\-]", "_", value.name)
    yield ""
    yield f'#define {prefix}_NAME "{plain}"'
    yield f"#define {prefix}_TYPE {kind}"
    yield f"#define {prefix}_COUNT {buffer.count}"
    yield f"#define {prefix}_SIZE {buffer.size}"
    yield f"#define {prefix}_SHAPE {{ {', '.join(map(str, value.shape)) or '1'} }}"
    quant = value.quant
    if isinstance(quant, Quant) and not isinstance(quant.scale, tuple):
        yield f"#define {prefix}_SCALE {float(quant.scale)!r}F"
        yield f"#define {prefix}_ZERO_POINT {quant.zero_point}"


def _state(name: str, states: Sequence[State], program: Program) -> Iterator[str]:
    if not states:
        return
    yield ""
    yield "/* What lasts from run to run; the caller keeps one for each stream of inputs. */"
    yield f"struct {name}_state {{"
    for state, buffer in zip(states, program.states.values(), strict=True):
        yield f"    {buffer.ctype} {state.label}[{buffer.count}];"
    yield "};"
    yield ""
    yield f"void {name}_state_init(struct {name}_state *state);"


def _memories(upper: str, plan: Plan) -> Iterator[str]:
    if len(plan.memories) == 1:
        return
    yield ""
    yield f"/* The arena is {plan.memories[0][0]}; the other memories, in their order: */"
    for number, (name, size) in enumerate(plan.memories[1:]):
        yield f"#define {upper}_MEMORY_{number}_SIZE {max(size, 1)} /* {name} */"
