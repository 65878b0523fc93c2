"""The C of a network: one function that runs its stages, and the bytes that they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import fx

from tosaic.errors import InvalidInput
from tosaic.firmware.network import Network, Port, Stage, State
from tosaic.firmware.places import Places, address, bytes_of
from tosaic.targets.cortexm.delegate import Network as Code
from tosaic.targets.ethosu.vela import VelaResult


class Writer:
    """Writes the files of one network."""

    def __init__(self, network: Network, places: Places) -> None:
        self.network, self.places, self.name = network, places, network.name
        self.inputs, self.outputs = list(network.inputs), list(network.outputs)
        self.states = {state.input: state for state in network.states}
        self.blobs: dict[str, bytes] = {}

    def files(self) -> dict[str, bytes]:
        """C, assembly and binary files by name."""
        found: dict[str, bytes] = {}
        for stage in self.network.stages:
            if isinstance(stage.made, Code):
                found |= {k: v for k, v in stage.made.files.items() if k != "CMakeLists.txt"}
        body = "".join(f"    {line}\n" for line in self._body())
        for state in self.network.states:
            self.blobs[f"{self._state(state)}_first"] = state.data
        found[f"{self.name}.c"] = self._text(body).encode()
        found |= {f"{name}.bin": data for name, data in self.blobs.items()}
        if self.blobs:
            found[f"{self.name}_data.S"] = "".join(map(_assembly, self.blobs)).encode()
        return found

    def _text(self, body: str) -> str:
        codes = [s.made.name for s in self.network.stages if isinstance(s.made, Code)]
        has_npu = any(stage.on_npu for stage in self.network.stages)
        includes = ["<string.h>", '"firmware.h"', *(['"ethosu.h"'] if has_npu else []),
                    *(f'"{name}.h"' for name in codes)]  # fmt: skip
        ports = [*self.network.inputs.values(), *self.network.outputs.values()]
        rows = "".join(f'    {{"{_quoted(port)}", {port.size}u}},\n' for port in ports)
        return (
            f"/* The network '{self.name}': {_counted(self.network)}. */\n"
            + "".join(f"#include {each}\n" for each in includes)
            + "\n"
            + "".join(f"extern const uint8_t {name}[];\n" for name in self.blobs)
            + ("extern uint8_t fw_fast[];\n" if self.places.fast else "")
            + "".join(
                f"static uint8_t {self._state(s)}[{len(s.data)}] __attribute__((aligned(16)));\n"
                for s in self.network.states
            )
            + "\nstatic void init(void)\n{\n"
            + "".join(
                f"    memcpy({self._state(s)}, {self._state(s)}_first, {len(s.data)}u);\n"
                for s in self.network.states
            )
            + "}\n\n"
            "static enum fw_status run(const void *const *inputs, void *const *outputs,\n"
            "                          void *arena, uint32_t size)\n{\n"
            "    uint8_t *const at = (uint8_t *)arena;\n"
            f"{body}"
            "    return FW_OK;\n}\n\n"
            f"static const struct fw_port ports[] = {{\n{rows}}};\n\n"
            f"extern const struct fw_network network_{self.name};\n"
            f'const struct fw_network network_{self.name} = {{"{self.name}", {len(self.inputs)}u, '
            f"{len(self.outputs)}u, {self.places.size}u, ports, init, run}};\n"
        )

    def _body(self) -> Iterator[str]:
        if any(stage.on_npu for stage in self.network.stages):
            yield "enum fw_status status;"
        for used in ("inputs", "outputs"):
            yield f"(void){used};"
        yield f"if (size < {self.places.size}u)"
        yield "    return FW_ARENA_SIZE;"
        yield "if (((uintptr_t)arena & 15u) != 0)"
        yield "    return FW_ARENA_ALIGNMENT;"
        for number, stage in enumerate(self.network.stages):
            if isinstance(stage.made, VelaResult):
                yield from self._npu(number, stage, stage.made)
            else:
                yield from self._code(number, stage, stage.made)
        for state in self.network.states:
            yield from self._keep(state)

    def _state(self, state: State) -> str:
        return f"{self.name}_state_{list(self.network.states).index(state)}"

    def _source(self, node: fx.Node) -> str:
        """Where a stage finds a value."""
        if node in self.network.inputs:
            return f"inputs[{self.inputs.index(node)}]"
        if node in self.states:
            return self._state(self.states[node])
        return f"at + {self.places.values[node].offset}"

    def _npu(self, number: int, stage: Stage, made: VelaResult) -> Iterator[str]:
        name, network = f"{self.name}_{number}", self.network
        regions = {made.weights_region, made.scratch_region, made.scratch_fast_region}
        for boundary in (*made.inputs, *made.outputs):
            if boundary.region != made.scratch_region:
                raise InvalidInput("firmware has inputs and outputs in the arena: compile without "
                                   "--separate-io-regions")  # fmt: skip
        assert len(regions) >= 2
        for node in stage.piece.inputs:
            place, source = address(stage, node, False), self._source(node)
            if source != f"at + {place}":
                yield f"memcpy(at + {place}, {source}, {bytes_of(network.values[node])}u);"
        self.blobs[f"{name}_stream"] = made.command_stream
        self.blobs[f"{name}_weights"] = made.weights + bytes(-len(made.weights) % 16) or bytes(16)
        yield "{"
        yield "    struct ethosu_job job;"
        yield "    memset(&job, 0, sizeof job);"
        yield f"    job.stream = {name}_stream;"
        yield f"    job.stream_size = {len(made.command_stream)}u;"
        bases = {made.weights_region: (f"{name}_weights", len(self.blobs[f"{name}_weights"]))}
        if made.scratch_fast_size:
            bases[made.scratch_fast_region] = ("fw_fast", made.scratch_fast_size)
        bases[made.scratch_region] = ("at", self.places.stages[number].size)
        for region, (base, size) in sorted(bases.items()):
            yield f"    job.bases[{region}] = {base};"
            yield f"    job.sizes[{region}] = {size}u;"
        yield "    status = ethosu_run(&job);"
        yield "}"
        yield "if (status != FW_OK)"
        yield "    return status;"
        for node in stage.piece.outputs:
            made_at, size = address(stage, node, True), bytes_of(network.values[node])
            item = self.places.values.get(node)
            if item is not None and item.offset != made_at:
                yield f"memcpy(at + {item.offset}, at + {made_at}, {size}u);"
            if node in network.outputs:
                yield f"memcpy(outputs[{self.outputs.index(node)}], at + {made_at}, {size}u);"

    def _code(self, number: int, stage: Stage, made: Code) -> Iterator[str]:
        network = self.network
        yield "{"
        yield f"    struct {made.name}_io io;"
        for i, node in enumerate(stage.piece.inputs):
            yield f"    io.inputs[{i}] = {self._source(node)};"
        for i, node in enumerate(stage.piece.outputs):
            item = self.places.values.get(node)
            place = f"at + {item.offset}" if item else f"outputs[{self.outputs.index(node)}]"
            yield f"    io.outputs[{i}] = {place};"
        yield f"    {made.name}_run(&io, at + {self.places.stages[number].offset});"
        for node in stage.piece.outputs:
            item = self.places.values.get(node)
            if item is not None and node in network.outputs:
                size = bytes_of(network.values[node])
                to = self.outputs.index(node)
                yield f"    memcpy(outputs[{to}], at + {item.offset}, {size}u);"
        yield "}"

    def _keep(self, state: State) -> Iterator[str]:
        """The new value of a state, for the next run."""
        to, place = self._state(state), self.places.values[state.output].offset
        if not state.table:
            yield f"memcpy({to}, at + {place}, {len(state.data)}u);"
            return
        self.blobs[f"{to}_table"] = state.table
        yield f"for (uint32_t i = 0; i < {len(state.data)}u; i += {state.element}u) {{"
        index = " | ".join(
            f"(uint32_t)at[{place}u + i + {n}u] << {8 * n}" for n in range(state.element)
        )
        yield f"    const uint32_t value = {index};"
        yield f"    memcpy({to} + i, {to}_table + {state.element}u * value, {state.element}u);"
        yield "}"


def _quoted(port: Port) -> str:
    return "".join(letter if letter.isalnum() or letter in "_.-" else "_" for letter in port.name)


def _counted(network: Network) -> str:
    npu = sum(stage.on_npu for stage in network.stages)
    return f"{npu} stages on the NPU, {len(network.stages) - npu} in C"


def _assembly(name: str) -> str:
    return (
        f'    .section .weights.{name},"a"\n    .balign 16\n    .global {name}\n{name}:\n'
        f'    .incbin "{name}.bin"\n    .balign 16\n'
    )


def input_files(given: Mapping[str, Sequence[bytes]]) -> dict[str, bytes]:
    """Inputs by network and port: files of a host, and what makes them a part of the image."""
    names = [(name, f"in{n}") for name, ports in given.items() for n in range(len(ports))]
    rows = "".join(f"    {{{a}_{b}, {a}_{b}_end}},\n" for a, b in names)
    found = {f"inputs/{name}.in{n}": data for name, p in given.items() for n, data in enumerate(p)}
    found["networks/inputs.c"] = (
        '/* Inputs that are part of the image. */\n#include "firmware.h"\n\n'
        + "".join(f"extern const uint8_t {a}_{b}[], {a}_{b}_end[];\n" for a, b in names)
        + f"\nconst struct fw_input fw_inputs[] = {{\n{rows or '    {NULL, NULL},'}}};\n"
    ).encode()
    found["networks/inputs.S"] = "".join(
        f'    .section .weights.{a}_{b},"a"\n    .balign 16\n    .global {a}_{b}\n'
        f'    .global {a}_{b}_end\n{a}_{b}:\n    .incbin "{a}.{b}"\n{a}_{b}_end:\n'
        for a, b in names
    ).encode()
    return found
