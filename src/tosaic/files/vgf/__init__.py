"""Reads ``.vgf`` files, the form in which Vulkan's ML extensions take networks, as TOSA graphs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tosaic.errors import InvalidGraph
from tosaic.files.flatbuffer import packing
from tosaic.files.vgf.container import COMPUTE, GRAPH, Container, Segment, Slot, read_container
from tosaic.files.vgf.formats import dtype_of
from tosaic.files.vgf.shaders import DOMAIN, Shader
from tosaic.files.vgf.spirv import GraphModule
from tosaic.ir.graph import Const, Graph, Op, Value
from tosaic.spec import OPS
from tosaic.spec.dtypes import BOOL, I48, TensorType


def read(data: bytes | memoryview) -> Graph:
    """The graph of a file's bytes. Whatever is wrong with them raises InvalidGraph."""
    return graph_of(read_container(memoryview(data).toreadonly().cast("B")))


def graph_of(held: Container) -> Graph:
    """The graph of what a file holds: its segments in their order."""
    held = _with_one_resource_a_binding(held)
    sequence = held.sequence
    made, tensors = Graph(version=(1, 0)), dict[int, Value]()
    names = _names(sequence.input_names, sequence.inputs, "input")
    for segment in sequence.segments:
        _run_segment(held, segment, made, tensors, {s.resource for s in sequence.inputs})
    for slot, name in zip(sequence.inputs, names):
        value = tensors.get(slot.resource)
        if value is None:  # which no segment reads
            value = Value(_declared(held, slot))
        if value.producer is not None or value.const is not None or value in made.inputs:
            raise InvalidGraph(f"input {name!r} of the file is the result of an operator")
        value.name = name
        made.inputs.append(value)
        tensors[slot.resource] = value
    names = _names(sequence.output_names, sequence.outputs, "output")
    for slot, name in zip(sequence.outputs, names):
        value = tensors.get(slot.resource)
        if value is None:
            raise InvalidGraph(f"output {name!r} of the file is computed by no segment")
        value.name = value.name or name
        made.outputs.append(value)
    return made


def _with_one_resource_a_binding(held: Container) -> Container:
    """Slots by the first resource of their binding.

    There are several where a value is an output twice or an input too, and where a shader reads as
    a buffer what a graph writes as a tensor.
    """
    known, first, same = held.sequence, dict[int, int](), dict[int, int]()
    ports = [*known.inputs, *known.outputs]
    for segment in known.segments:
        ports += [*segment.inputs, *segment.outputs]
    for slot in ports:
        same[slot.resource] = first.setdefault(slot.binding, slot.resource)

    def placed(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        return tuple(Slot(s.binding, same.get(s.resource, s.resource)) for s in slots)

    segments = tuple(
        replace(s, inputs=placed(s.inputs), outputs=placed(s.outputs),
                sets=tuple((index, placed(slots)) for index, slots in s.sets))
        for s in known.segments
    )  # fmt: skip
    return replace(held, sequence=replace(
        known, segments=segments, inputs=placed(known.inputs), outputs=placed(known.outputs)
    ))  # fmt: skip


def _names(given: tuple[str, ...], slots: tuple[Slot, ...], kind: str) -> list[str]:
    if given and len(given) != len(slots):
        raise InvalidGraph(f"the file names {len(given)} {kind}s of {len(slots)}")
    return list(given) or [f"{kind}_{number}" for number in range(len(slots))]


def _declared(held: Container, slot: Slot) -> TensorType:
    resource = held.resources[slot.resource]
    return TensorType(dtype_of(resource.format), resource.shape)


def _run_segment(
    held: Container, segment: Segment, made: Graph, tensors: dict[int, Value], given: set[int]
) -> None:
    """Append the operators of a segment, which reads and writes tensors by resource."""
    module = held.modules[segment.module]
    if module.kind == segment.kind == COMPUTE:
        _run_shader(held, segment, made, tensors, given)
        return
    if module.kind != GRAPH or segment.kind != GRAPH or module.language != "SPIR-V":
        raise InvalidGraph(f"segment {segment.name!r} is no graph in SPIR-V and no shader")
    resources = {s.binding: s.resource for _, slots in segment.sets for s in slots}
    constants = dict(segment.constants)

    def constant(number: int, kind: TensorType) -> Const:
        if number not in constants:
            raise InvalidGraph(f"the graph names constant {number}, which the file lacks")
        return _constant(held, constants[number], kind)

    def shape(binding: int) -> tuple[int, ...] | None:
        found = resources.get(binding)
        return None if found is None else held.resources[found].shape

    read = GraphModule(memoryview(module.code), constant, shape)
    read.read()
    for binding, value in read.inputs.items():
        resource = resources[binding]
        before = tensors.setdefault(resource, value)
        if before is not value:
            _replace(read, value, before)
        elif resource not in given:
            raise InvalidGraph(f"segment {segment.name!r} reads what nothing before it computes")
    for binding, value in read.outputs.items():
        if resources[binding] in tensors:
            raise InvalidGraph(f"segment {segment.name!r} writes a tensor that is there already")
        tensors[resources[binding]] = value
    made.ops += read.ops


def _run_shader(
    held: Container, segment: Segment, made: Graph, tensors: dict[int, Value], given: set[int]
) -> None:
    """Append a shader as a custom operator."""
    module, ins = held.modules[segment.module], []
    for slot in segment.inputs:
        if slot.resource not in tensors and slot.resource not in given:
            raise InvalidGraph(f"segment {segment.name!r} reads what nothing before it computes")
        ins.append(tensors.setdefault(slot.resource, Value(_declared(held, slot))))
    outs = [Value(_declared(held, slot)) for slot in segment.outputs]
    code = module.code.decode() if module.language != "SPIR-V" else module.code.hex()
    shader = Shader(code, segment.dispatch, module.entry, module.language)
    attrs = {
        "operator_name": module.name, "domain_name": DOMAIN,
        "implementation_attrs": shader.attributes([v.type for v in ins], [v.type for v in outs]),
    }  # fmt: skip
    made.ops.append(Op(OPS["CUSTOM"], ins, outs, attrs))
    for slot, value in zip(segment.outputs, outs):
        if slot.resource in tensors:
            raise InvalidGraph(f"segment {segment.name!r} writes a tensor that is there already")
        tensors[slot.resource] = value


def _replace(read: GraphModule, value: Value, by: Value) -> None:
    if value.type != by.type:
        raise InvalidGraph(f"a segment reads {by.type} as {value.type}")
    for op in read.ops:
        op.ins = [by if each is value else each for each in op.ins]
    read.outputs = {b: by if each is value else each for b, each in read.outputs.items()}


def _constant(held: Container, index: int, kind: TensorType) -> Const:
    """A constant's array over the file's own bytes."""
    data = held.constants[index].data
    width = np.dtype(kind.dtype.array).itemsize
    if len(data) != kind.size * width:
        raise InvalidGraph(f"constant {index} has {len(data)} bytes, which is no {kind}")
    raw = np.frombuffer(data, np.uint8)
    if kind.dtype is BOOL:
        return Const(packing.unpack(raw, kind))
    array = raw.view(kind.dtype.array).reshape(kind.shape)
    if kind.dtype is I48 and array.size:
        low, high = I48.range
        if int(array.min()) < low or int(array.max()) > high:
            raise InvalidGraph(f"constant {index} is beyond 48 bits")
    return Const(array)
