"""The files of a network in C: net.h, net.c, the weights, the kernels, and a CMakeLists.txt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType

from tosaic.targets.cortexm.blob import Blob
from tosaic.targets.cortexm.cores import Core
from tosaic.targets.cortexm.header import header
from tosaic.targets.cortexm.loops import NAME, literal
from tosaic.targets.cortexm.memory import Plan
from tosaic.targets.cortexm.packing import Storage
from tosaic.targets.cortexm.program import Branch, Chain, Item, Program, Stage, State, Step
from tosaic.targets.cortexm.views import SIZES, Buffer, View

_INCLUDE = re.compile(r'#include "(\w+\.h)"')


@dataclass(frozen=True, slots=True)
class Source:
    """A network as files, by name, and the function that each step calls."""

    files: dict[str, bytes]
    functions: dict[Step, str]


class Writer:
    """Writes the C of one program. Several may share the weights of one name."""

    def __init__(
        self, program: Program, plan: Plan, core: Core, name: str, states: Sequence[State] = (),
        shared: tuple[str, Blob] | None = None,
    ) -> None:  # fmt: skip
        self.program, self.plan, self.core, self.name = program, plan, core, name
        self.states = states
        own, self.blob = shared or (name, Blob())
        self.weights = f"{own}_weights"
        self.functions: dict[str, str] = {}
        self.called: dict[Step, str] = {}
        self.chains: list[str] = []
        self.includes: dict[str, None] = {"elementwise.h": None}

    def write(self) -> Source:
        files = self.sources()
        return Source(files | weights_of(self.name, self.blob, self.core, [self.name]), self.called)

    def sources(self) -> dict[str, bytes]:
        """The files but for the weights."""
        lines = self.lines(self.program.items, "    ")
        main = self.main(lines)
        files: dict[str, str | bytes] = {
            f"{self.name}.h": header(self.program, self.plan, self.name, self.states),
            f"{self.name}.c": main,
        }
        for kernel in sorted(self._kernels()):
            files[f"kernels/{kernel}"] = _kernel(kernel).encode()
        return {k: v.encode() if isinstance(v, str) else v for k, v in files.items()}

    # ---- net.c

    def main(self, lines: Sequence[str]) -> str:
        name, upper = self.name, self.name.upper()
        includes = "".join(f'#include "kernels/{each}"\n' for each in self.includes)
        functions = "\n".join(
            [text.replace(NAME, function) for text, function in self.functions.items()]
            + self.chains
        )
        uses = [f"    (void){each};\n" for each in ("io", "arena")]
        first = "".join(
            f"    memcpy(state->{s.label}, {self.blob.address(self.weights, s.data)}, "
            f"sizeof state->{s.label});\n"
            for s in self.states
        )
        if first:
            first = f"\nvoid {name}_state_init(struct {name}_state *state)\n{{\n{first}}}\n"
        return (
            f"/* The network in C, for {self.core.name}. */\n"
            f'#include "{name}.h"\n{includes}\n'
            f"{_externs(self.weights, self.blob)}\n"
            "/* The place of a tensor: its number, and its offset in the arena. */\n"
            f"#ifndef {upper}_AT\n"
            f"#define {upper}_AT(number, offset) ((uint8_t *)arena + (offset))\n#endif\n\n"
            f"{functions}\n"
            f"void {name}_run(const struct {name}_io *io, void *arena)\n{{\n"
            f"{''.join(uses)}{''.join(line + chr(10) for line in lines)}}}\n{first}"
        )

    def lines(self, items: Sequence[Item], indent: str) -> list[str]:
        found, shown = list[str](), ""
        for item in items:
            if isinstance(item, Step):
                if (told := _comment(item)) != shown:
                    found.append(f"{indent}{told}")
                    shown = told
                found.append(f"{indent}{self.call(item)};")
            elif isinstance(item, Branch):
                found.append(f"{indent}if ({self.pointer(item.condition)}[0]) {{")
                found += self.lines(item.then, indent + "    ")
                found.append(f"{indent}}} else {{")
                found += self.lines(item.other, indent + "    ")
                found.append(f"{indent}}}")
            elif isinstance(item, Chain):
                found.append(f"{indent}{self.chain(item)}")
            else:
                found.append(f"{indent}for (;;) {{")
                found += self.lines(item.before, indent + "    ")
                found.append(f"{indent}    if (!{self.pointer(item.condition)}[0]) {{")
                found.append(f"{indent}        break;")
                found.append(f"{indent}    }}")
                found += self.lines(item.body, indent + "    ")
                found.append(f"{indent}}}")
        return found

    def chain(self, chain: Chain) -> str:
        """A function for each stage: it makes rows of its result up to a number of them."""
        names: list[str] = []
        for stage in chain.stages:
            name = f"{self.name}_rows_{len(self.chains)}"
            lines = [
                f"TK_NOINLINE void {name}(const struct {self.name}_io *io, void *arena, "
                "int32_t *done, int32_t rows)", "{", "    (void)io;", "    (void)arena;",
                f"    while (done[{len(names)}] < rows) {{",
                f"        const int32_t r = done[{len(names)}];",
            ]  # fmt: skip
            for need in stage.demands:
                if need.stage is not None:
                    count = f"r * {need.stride} + {literal(need.reach)}"
                    rows = f"tk_min({need.height}, {count})"
                    lines.append(f"        {names[need.stage]}(io, arena, done, {rows});")
            lines.append(f"        {_comment(stage.step)}")
            lines.append(f"        {self.call(stage.step, self._slots(chain, stage))};")
            lines += [f"        done[{len(names)}] = r + 1;", "    }", "}"]
            self.chains.append("\n".join(lines) + "\n")
            names.append(name)
        counters = f"{{ {', '.join('0' for _ in names)} }}"
        return (
            f"{{ int32_t done[{len(names)}] = {counters}; "
            f"{names[-1]}(io, arena, done, {chain.stages[-1].height}); }}"
        )

    def _slots(self, chain: Chain, stage: Stage) -> dict[Buffer, str]:
        """Where row r of a tensor that a stage takes or gives row by row begins."""
        rows = {each.step.writes[0]: each for each in chain.stages}
        slots = {}
        whole_inputs = stage.step.call is not None and stage.step.call.streams
        for buffer in (*stage.step.reads, *stage.step.writes):
            is_out = buffer in stage.step.writes
            if whole_inputs and not is_out:
                continue
            made = rows.get(buffer)
            if made is not None and made.ring < made.height:
                slots[buffer] = f"(r % {made.ring}) * {made.row}"
            elif buffer.kind != "const":
                slots[buffer] = f"r * {stage.row}"
        return slots

    def call(self, step: Step, slots: Mapping[Buffer, str] = MappingProxyType({})) -> str:
        text = step.function.text
        if text not in self.functions:
            self.functions[text] = f"{self.name}_{step.kind}_{len(self.functions)}"
        for include in step.function.includes:
            self.includes.setdefault(include)
        self.called[step] = self.functions[text]
        writes = step.writes
        args = [
            self.pointer(view, view.buffer not in writes, slots.get(view.buffer, ""))
            for view in step.function.pointers
        ]
        call = step.call
        if call is not None:
            for data, ctype in ((call.blob, "uint8_t"), (call.lut, "int8_t")):
                if data:
                    args.append(_cast(self.blob.address(self.weights, data), ctype, True))
            if call.scratch:
                args.append(self.arena(self.plan.scratch[step]))
            if call.streams:
                rows = step.rows or (0, 0)
                args += ["r", "r + 1"] if slots else [str(rows[0]), str(rows[1])]
        return f"{self.functions[text]}({', '.join(args)})"

    def pointer(self, view: View, is_const: bool = True, slot: str = "") -> str:
        buffer, size = view.buffer, SIZES[view.buffer.ctype]
        if buffer.kind == "const":
            place = self.blob.address(self.weights, buffer.data, view.offset * size)
            return _cast(place, buffer.ctype, True)
        more = (f" + {view.offset}" if view.offset else "") + (f" + {slot}" if slot else "")
        if buffer.kind == "arena":
            place = self.arena(self.plan.places[buffer])
            return f"({_cast(place, buffer.ctype, is_const)}{more})"
        is_const = is_const or buffer.kind == "input"
        if buffer.kind == "state":
            place = f"io->state->{self.states[buffer.number].label}"
        else:
            place = f"io->{buffer.kind}s[{buffer.number}]"
        return f"({_cast(place, buffer.ctype, is_const)}{more})"

    def arena(self, storage: Storage) -> str:
        if storage.memory:
            return f"((uint8_t *)io->memories[{storage.memory - 1}] + {storage.offset})"
        return f"{self.name.upper()}_AT({storage.number}, {storage.offset})"

    def _kernels(self) -> set[str]:
        found: set[str] = set()
        todo = list(self.includes)
        while todo:
            each = todo.pop()
            if each not in found:
                found.add(each)
                todo += _INCLUDE.findall(_kernel(each))
        return found


def weights_of(name: str, blob: Blob, core: Core, sources: Sequence[str]) -> dict[str, bytes]:
    """The weights as files, and how they are built with some sources."""
    return {
        f"{name}_weights.bin": blob.bytes,
        f"{name}_weights.S": _assembly(name, blob).encode(),
        "CMakeLists.txt": _cmake(name, core, sources).encode(),
    }


def _comment(step: Step) -> str:
    """The module that a step is of, and its operator of TOSA, as a comment of C."""
    op = step.main_op
    module = op.loc.module if op is not None and op.loc is not None else ""
    told = ": ".join(filter(None, (re.sub(r"[^\w.\-\[\]]", "_", module), op.name if op else "")))
    return f"/* {told or step.kind} */"


def _cast(place: str, ctype: str, is_const: bool) -> str:
    if ctype == "uint8_t" and not place.startswith("io"):
        return f"({place})"
    kind = f"const {ctype}" if is_const else ctype
    void = "const void" if is_const else "void"
    return f"({kind} *)({void} *)({place})" if SIZES[ctype] > 1 else f"({kind} *)({place})"


def _kernel(name: str) -> str:
    return (resources.files("tosaic.targets.cortexm") / "kernels" / name).read_text()


def _externs(symbol: str, blob: Blob) -> str:
    names = [*(f"{symbol}_{memory}" for memory, _ in blob.parts), symbol]
    return "".join(f"extern const uint8_t {each}[];\n" for each in names)


def _assembly(name: str, blob: Blob) -> str:
    """Each part of the weights in a section of its own."""
    parts, begin = list[str](), 0
    ends = [(f"_{memory}", f".rodata.{memory}", end) for memory, end in blob.parts]
    for suffix, section, end in (*ends, ("", ".rodata", len(blob.bytes))):
        macro, symbol = f"{name}_weights{suffix}_section".upper(), f"{name}_weights{suffix}"
        parts.append(
            f"#ifndef {macro}\n#define {macro} {section}\n#endif\n"
            f'    .section {macro},"a"\n    .balign 16\n'
            f"    .global {symbol}\n{symbol}:\n"
            f'    .incbin "{name}_weights.bin", {begin}, {end - begin}\n'
        )
        begin = end
    return (
        "/* The weights, from the file beside; another section is another memory. */\n"
        + "".join(parts)
        + "#if defined(__linux__) && defined(__ELF__)\n"
        '    .section .note.GNU-stack,"",%progbits\n#endif\n'
    )


def _cmake(name: str, core: Core, sources: Sequence[str]) -> str:
    flags = f"# {core.name}: {' '.join(core.flags)}\n" if core.flags else ""
    return (
        f"cmake_minimum_required(VERSION 3.13)\nproject({name} C ASM)\n\n{flags}"
        f"add_library({name} STATIC {' '.join(f'{each}.c' for each in sources)} "
        f"{name}_weights.S)\n"
        f"target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})\n"
        f"set_property(SOURCE {name}_weights.S APPEND PROPERTY OBJECT_DEPENDS\n"
        f"    ${{CMAKE_CURRENT_SOURCE_DIR}}/{name}_weights.bin)\n"
        f"set_property(SOURCE {name}_weights.S APPEND PROPERTY COMPILE_OPTIONS\n"
        '    "-I${CMAKE_CURRENT_SOURCE_DIR}")\n'
        f"target_compile_options({name} PRIVATE\n"
        "    $<$<COMPILE_LANGUAGE:C>:-std=c99 -O2 -fno-strict-aliasing -ffunction-sections>)\n"
    )
