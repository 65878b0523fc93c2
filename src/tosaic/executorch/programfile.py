"""ExecuTorch's file of a program: a flatbuffer, and delegates in segments behind it.

Written from ExecuTorch's schema ``program.fbs``, identifier ET12, and from its files.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from tosaic.files.flatbuffer.writer import FlatbufferWriter

_IDENTIFIER = b"ET12"
_ALIGNMENT = 128  # of a segment in the file
_ROOM = 16  # what each tensor's place in memory is a multiple of
_EXTENSION = struct.Struct("<4sIQQQ")  # behind the identifier: sizes of program and segments
_NULL, _INT, _BOOL, _DOUBLE, _TENSOR, _INTS = 1, 2, 3, 4, 5, 7  # KernelTypes
_KERNEL_CALL, _DELEGATE_CALL, _JUMP_FALSE = 1, 2, 4  # InstructionArguments
_SEGMENT = 1  # DataLocation


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor in planned memory. ``dim_order`` lists dimensions from outer to inner."""

    scalar_type: int
    item_size: int
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.sizes) * self.item_size


@dataclass(frozen=True, slots=True)
class Numbers:
    """A list of whole numbers, by the indices of their values."""

    items: tuple[int, ...]


Value = TensorValue | Numbers | bool | int | float | None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator, or of a delegate if ``operator`` is empty; by indices of values."""

    operator: str
    index: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Jump:
    """Goes on at an earlier instruction as long as a value is false."""

    value: int
    to: int

    @property
    def args(self) -> tuple[int, ...]:
        return (self.value,)


@dataclass(frozen=True, slots=True)
class DelegateData:
    """A delegate: its backend, what it holds, and the options of its runtime."""

    backend: str
    data: bytes
    specs: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a program, and the structures of its arguments and results as text.

    ``named`` are parts of its delegates that others may have as well, by their keys. ``constants``
    are the bytes of tensors that are known, ``aliases`` tensors that lie where others do, and
    tensors that are ``growing`` have the size that they are filled to.
    """

    values: list[Value]
    inputs: list[int]
    outputs: list[int]
    calls: list[Call | Jump]
    operators: list[tuple[str, str]]
    delegates: list[DelegateData]
    in_spec: str
    out_spec: str
    name: str = "forward"
    named: Mapping[str, bytes] = field(default_factory=dict)
    constants: dict[int, bytes] = field(default_factory=dict)
    aliases: dict[int, int] = field(default_factory=dict)
    growing: set[int] = field(default_factory=set)


def write_program(*methods: Method) -> bytes:
    """The whole file; what several methods hold of equal bytes is there once."""
    writer = FlatbufferWriter()
    # The first segment is for constants, of which the first is empty.
    behind, starts, end = list[bytes](), [0], 0
    numbers: dict[bytes, int] = {}
    for data in (data for method in methods for data in method.constants.values()):
        if data not in numbers:
            numbers[data] = len(starts)
            starts.append(end)
            padded = data + bytes(-len(data) % _ROOM)
            behind.append(padded)
            end += len(padded)
    segments = [writer.table("QQ", 0, end)]
    named = {key: data for method in methods for key, data in method.named.items()}
    places: dict[bytes, int] = {}
    for data in (*(d.data for method in methods for d in method.delegates), *named.values()):
        if data in places:
            continue
        gap = -end % _ALIGNMENT
        places[data] = len(segments)
        segments.append(writer.table("QQ", end + gap, len(data)))
        behind += [bytes(gap), data]
        end += gap + len(data)
    plans = [_method(writer, method, places, numbers) for method in methods]
    keys = [writer.table("oI", writer.string(key), places[data]) for key, data in named.items()]
    root = writer.table(
        "Iooooo" + "-o" * bool(keys), 0, writer.offsets(plans),
        writer.offsets([]), writer.offsets([]),
        writer.offsets(segments), writer.table("Io", 0, writer.longs(tuple(starts))),
        *([0, writer.offsets(keys)] if keys else []),
    )  # fmt: skip
    plain = writer.finish(root, _IDENTIFIER)
    (start,) = struct.unpack_from("<I", plain)
    size = len(plain) + _EXTENSION.size
    base = size + -size % _ALIGNMENT
    head = struct.pack("<I", start + _EXTENSION.size) + _IDENTIFIER
    extension = _EXTENSION.pack(b"eh00", _EXTENSION.size, size, base, end)
    return b"".join([head, extension, plain[8:], bytes(base - size), *behind])


def _method(
    writer: FlatbufferWriter, method: Method, segments: Mapping[bytes, int],
    constants: Mapping[bytes, int],
) -> int:  # fmt: skip
    places, room = _planned(method)
    numbers = {index: constants[data] for index, data in method.constants.items()}
    values = writer.offsets([
        _value(writer, value, places.get(i), numbers.get(i, 0), i in method.growing)
        for i, value in enumerate(method.values)
    ])  # fmt: skip
    operators = [
        writer.table("oo", writer.string(name), writer.string(overload))
        for name, overload in method.operators
    ]
    delegates = [_delegate(writer, segments[d.data], d) for d in method.delegates]
    calls = [_instruction(writer, call) for call in method.calls]
    nothing = writer.ints(())
    chain = writer.table("ooo", nothing, nothing, writer.offsets(calls))
    return writer.table(
        "ooooooooo", writer.string(method.name),
        writer.table("oo", writer.string(method.in_spec), writer.string(method.out_spec)),
        values, writer.ints(tuple(method.inputs)), writer.ints(tuple(method.outputs)),
        writer.offsets([chain]), writer.offsets(operators), writer.offsets(delegates),
        writer.longs((0, room)),
    )  # fmt: skip


def _value(
    writer: FlatbufferWriter, value: Value, place: int | None, constant: int, grows: bool
) -> int:
    if value is None:
        return writer.table("Bo", _NULL, writer.table(""))
    if isinstance(value, float):
        return writer.table("Bo", _DOUBLE, writer.table("d", value))
    if isinstance(value, bool):
        return writer.table("Bo", _BOOL, writer.table("B", value))
    if isinstance(value, Numbers):
        return writer.table("Bo", _INTS, writer.table("o", writer.longs(value.items)))
    if isinstance(value, int):
        return writer.table("Bo", _INT, writer.table("q", value))
    where = 0
    if not constant:
        assert place is not None
        where = writer.table("III", 1, place & 0xFFFFFFFF, place >> 32)
    tensor = writer.table(
        f"BiooBI{'-' if constant else 'o'}BB", value.scalar_type, 0, writer.ints(value.sizes),
        writer.data(bytes(value.dim_order)), 0, constant, where, 0, int(grows),
    )  # fmt: skip
    return writer.table("Bo", _TENSOR, tensor)


def _delegate(writer: FlatbufferWriter, segment: int, delegate: DelegateData) -> int:
    specs = [
        writer.table("oo", writer.string(key), writer.data(value)) for key, value in delegate.specs
    ]
    where = writer.table("BI", _SEGMENT, segment)
    return writer.table("ooo", writer.string(delegate.backend), where, writer.offsets(specs))


def _instruction(writer: FlatbufferWriter, call: Call | Jump) -> int:
    if isinstance(call, Jump):
        return writer.table("Bo", _JUMP_FALSE, writer.table("ii", call.value, call.to))
    kind = _KERNEL_CALL if call.operator else _DELEGATE_CALL
    return writer.table("Bo", kind, writer.table("io", call.index, writer.ints(call.args)))


def _planned(method: Method) -> tuple[dict[int, int], int]:
    """An address for each tensor, and the memory they need: first fit, the largest first."""
    spans: dict[int, tuple[int, int]] = {}
    end = len(method.calls)
    loops = [(call.to, n) for n, call in enumerate(method.calls) if isinstance(call, Jump)]
    moments = [(-1, method.inputs), *((n, c.args) for n, c in enumerate(method.calls))]
    for moment, indices in (*moments, (end, method.outputs)):
        # What a loop touches is there from its first instruction to its last.
        first = min((a for a, b in loops if a <= moment <= b), default=moment)
        last = max((b for a, b in loops if a <= moment <= b), default=moment)
        for index in indices:
            if isinstance(method.values[index], TensorValue) and index not in method.constants:
                place = method.aliases.get(index, index)
                known = spans.get(place, (first, last))
                spans[place] = min(known[0], first), max(known[1], last)
    placed: list[tuple[int, int, tuple[int, int]]] = []
    places: dict[int, int] = {}
    sizes = {i: v.size for i, v in enumerate(method.values) if isinstance(v, TensorValue)}
    for index in sorted(spans, key=lambda i: (-sizes[i], i)):
        first, last = spans[index]
        busy = sorted((a, b) for a, b, (f, t) in placed if f <= last and first <= t)
        at = 0
        for start, stop in busy:
            if at + sizes[index] <= start:
                break
            at = max(at, stop)
        places[index] = at
        room = sizes[index] + -sizes[index] % _ROOM
        placed.append((at, at + max(room, _ROOM), spans[index]))
    places |= {index: places[source] for index, source in method.aliases.items()}
    return places, max((stop for _, stop, _ in placed), default=0)
