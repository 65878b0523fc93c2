"""From a graph to the tables of a ``.tosa`` file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tosaic.errors import InvalidGraph
from tosaic.files.flatbuffer import packing, schema
from tosaic.files.flatbuffer.attributes import encode
from tosaic.files.flatbuffer.writer import FlatbufferWriter
from tosaic.ir.graph import Const, Graph, Loc, Op, Value
from tosaic.spec import OPS
from tosaic.spec.dtypes import F8UE8M0, SHAPE, UNKNOWN, TensorType
from tosaic.spec.env import LEVELS
from tosaic.spec.table import OpDef

_MOST_NESTED = LEVELS["none"].max_nesting


class Names:
    """Hands out names, each once: the one asked for, or that one with a number."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)
        self._counts: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        name = wanted
        count = self._counts.get(wanted, 0)
        while name in self._used:
            count += 1
            name = f"{wanted}_{count}"
        self._counts[wanted] = count
        self._used.add(name)
        return name


@dataclass(frozen=True, slots=True)
class _Region:
    """A graph to write, under a name that is its own in the file, and the names of its children."""

    graph: Graph
    name: str
    children: dict[Op, list[str]]


@dataclass(frozen=True, slots=True)
class _Variable:
    """A variable and the name of its tensor, the same in all blocks."""

    name: str
    tensor: str
    type: TensorType
    initial: Const | None


class FileEncoder:
    """One file in the making."""

    def __init__(self, graph: Graph) -> None:
        if graph.version not in schema.WRITTEN:
            raise InvalidGraph(f"no file format is known for TOSA version {graph.version}")
        self.version = schema.WRITTEN[graph.version]
        self.file = FlatbufferWriter()
        self.empty = self.file.table("")
        self.has_blocks = False
        self._data: dict[tuple[Const, TensorType], tuple[int, int | None]] = {}
        self._places: dict[Loc, str] = {}
        self.regions = _regions(graph)
        self.variables = {v.name: v for v in self._variables()}

    def encode(self) -> bytes:
        """The whole file. The main region is called main: readers look for that name."""
        file = self.file
        taken = [v.tensor for v in self.variables.values()]
        regions = file.offsets([_Block(self, r, Names(taken)).write() for r in self.regions])
        version = file.table("iiiB", *self.version)
        software = file.table("iiio", *schema.SERIALIZER, file.string(""))
        features = schema.MXFP_FEATURE if self.has_blocks else None
        compatibility = file.table("oQ", software, features)
        root = file.table("oooo", version, regions, software, compatibility)
        return file.finish(root, schema.IDENTIFIER)

    def _variables(self) -> Iterable[_Variable]:
        """Every variable, with a name for its tensor that no other tensor of any block has."""
        ops = [op for r in self.regions for op in r.graph.ops if op.name == "VARIABLE"]
        names = Names(v.name for r in self.regions if ops for v in r.graph.values())
        if len({op.attrs["name"] for op in ops}) < len(ops):
            raise InvalidGraph("a variable is declared twice")
        for op in ops:
            name, initial = op.attrs["name"], op.attrs.get("initial_value")
            tensor = names.unique(f"variable_{name}")
            const = None if initial is None else Const(initial)
            yield _Variable(name, tensor, op.attrs["type"], const)

    def place(self, loc: Loc) -> str:
        """Its text, which all operators of a call share."""
        if loc not in self._places:
            self._places[loc] = schema.location_text(loc)
        return self._places[loc]

    def tensor(
        self, name: str, kind: TensorType, const: Const | None, variable: str | None = None
    ) -> int:
        """A tensor's table, or a shape's."""
        file = self.file
        least = 0 if self.version[:2] < (1, 1) or const is not None else UNKNOWN
        if any(not least <= size < 1 << 31 for size in kind.shape):
            raise InvalidGraph(f"{name} of {kind} has a dimension that no file holds")
        data, scales = self._const(name, kind, const) if const is not None else (None, None)
        if kind.dtype is SHAPE:
            return file.table("oIo", file.string(name), kind.shape[0], data)
        block = kind.dtype.kind == "block"
        self.has_blocks |= block
        if variable is None and data is None and not block:
            return file.table("ooI", file.string(name), file.ints(kind.shape), kind.dtype.code)
        return file.table(
            "ooIoBBoQQIoI",
            file.string(name),
            file.ints(kind.shape),
            kind.dtype.code,
            data,
            None if variable is None else 1,
            None,
            None if variable is None else file.string(variable),
            None,
            None,
            F8UE8M0.code if block else None,
            scales,
            schema.BLOCK_SHAPE_32 if block else None,
        )

    def _const(self, name: str, kind: TensorType, const: Const) -> tuple[int, int | None]:
        """Data and scales; a constant that several tensors share is written once."""
        found = self._data.get((const, kind))
        if found is None:
            try:
                data = packing.pack(const.array, kind)
            except InvalidGraph as problem:
                raise InvalidGraph(f"{name}: {problem.reason}") from None
            size, scales = packing.data_size(kind), None
            if kind.dtype.kind == "block":
                scales = self.file.data(data[size:])
            found = self._data[const, kind] = self.file.data(data[:size]), scales
        return found


@dataclass(slots=True)
class _Block:
    """One region's block in the making."""

    out: FileEncoder
    region: _Region
    unique: Names
    names: dict[Value, str] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)
    tensors: list[int] = field(default_factory=list)
    shapes: list[int] = field(default_factory=list)
    operators: list[int] = field(default_factory=list)
    defined: set[Value] = field(default_factory=set)

    def write(self) -> int:
        """Write everything; inputs and outputs are first to get the names they have."""
        graph, file = self.region.graph, self.out.file
        for value in graph.inputs:
            self._name(value, "input")
        for value in graph.outputs:
            self._name(value, "output")
        if self.region is self.out.regions[0]:
            for variable in self.out.variables.values():
                self._variable(variable)
        for value in graph.inputs:
            self._define(value, None, f"{graph.name} as an input")
        for op in graph.ops:
            if op.name != "VARIABLE":
                self._op(op)
        for value in graph.outputs:
            self._use(value, f"{graph.name} as an output")
        name = file.string(self.region.name)
        inputs = file.offsets([file.string(self.names[v]) for v in graph.inputs])
        outputs = file.offsets([file.string(self.names[v]) for v in graph.outputs])
        parts = [file.offsets(p) for p in (self.operators, self.tensors, self.shapes)]
        block = file.table("oooooo", name, *parts[:2], inputs, outputs, parts[2])
        return file.table("oo", name, file.offsets([block]))

    def _name(self, value: Value, otherwise: str) -> str:
        name = self.names.get(value)
        if name is None:
            name = self.names[value] = self.unique.unique(value.name or otherwise)
        return name

    def _define(self, value: Value, const: Const | None, user: Op | str) -> None:
        if value in self.defined:
            raise InvalidGraph(f"{user} defines {value.name!r}, which is defined already")
        self.defined.add(value)
        table = self.out.tensor(self.names[value], value.type, const)
        (self.shapes if value.dtype is SHAPE else self.tensors).append(table)

    def _use(self, value: Value, user: Op | str) -> str:
        """The name of a value that is defined; a constant is, by its first use."""
        if value not in self.defined:
            if not value.is_const:
                raise InvalidGraph(f"{user} reads {value.name!r}, which nothing before it defines")
            name = self._name(value, "const")
            self._define(value, value.const, user)
            defn = OPS["CONST_SHAPE" if value.dtype is SHAPE else "CONST"]
            self._operator(defn, defn, self.out.empty, [], [name], value.loc)
        return self.names[value]

    def _op(self, op: Op) -> None:
        ins = [self._use(value, op) for value in op.ins]
        outs = []
        for value in op.outs:
            outs.append(self._name(value, op.name.lower()))
            self._define(value, None, op)
        if op.name.startswith("VARIABLE"):
            self._access(op, ins, outs)
            return
        attributes = self.out.empty
        if schema.attributes(op.defn):
            names = self.region.children.get(op, [])
            attributes = encode(self.out.file, op, names)
        self._operator(op.defn, op.defn, attributes, ins, outs, op.loc)

    def _access(self, op: Op, ins: list[str], outs: list[str]) -> None:
        """tosa-opt reads variables only in this form: an IDENTITY with the attributes' number."""
        variable = self.out.variables.get(op.attrs["name"])
        if variable is None:
            raise InvalidGraph(
                f"{op.name} uses {op.attrs['name']!r}, which is not declared", op.loc
            )
        self._variable(variable)
        (ins if op.name == "VARIABLE_READ" else outs).append(variable.tensor)
        self._operator(OPS["IDENTITY"], op.defn, self.out.empty, ins, outs, op.loc)

    def _variable(self, variable: _Variable) -> None:
        if variable.name not in self.variables:
            self.variables.add(variable.name)
            self.tensors.append(
                self.out.tensor(variable.tensor, variable.type, variable.initial, variable.name)
            )

    def _operator(
        self,
        defn: OpDef,
        attributes: OpDef,
        table: int,
        ins: list[str],
        outs: list[str],
        loc: Loc | None,
    ) -> None:
        file = self.out.file
        place = None
        if loc is not None:
            place = file.table("o", file.string(self.out.place(loc)))
        operands = file.offsets([file.string(name) for name in ins])
        results = file.offsets([file.string(name) for name in outs])
        self.operators.append(
            file.table("IBoooo", defn.code, attributes.code, table, operands, results, place)
        )


def _regions(graph: Graph) -> list[_Region]:
    """The graph and all it holds, depth first, each under a name of its own."""
    names = Names()
    found: list[_Region] = []
    work = [(graph, names.unique("main"), 0)]
    while work:
        current, name, depth = work.pop()
        if depth > _MOST_NESTED:
            raise InvalidGraph(f"{graph.name} nests regions deeper than {_MOST_NESTED}")
        region = _Region(current, name, {})
        found.append(region)
        for op in current.ops:
            if op.regions:
                chosen = [names.unique(r.name or "region") for r in op.regions]
                region.children[op] = chosen
                children = [(r, n, depth + 1) for r, n in zip(op.regions, chosen)]
                work += reversed(children)
    return found
