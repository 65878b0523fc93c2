"""From the tables of a ``.tosa`` file to a graph.

What is checked here is what a graph needs to exist at all: every tensor defined once, before its
use, with a known type and as much data as its shape asks for. Whether the operators are legal is
the verifier's question.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tosaic.errors import InvalidGraph
from tosaic.files.flatbuffer import schema
from tosaic.files.flatbuffer.attributes import decode
from tosaic.files.flatbuffer.constants import Constants, shown
from tosaic.files.flatbuffer.reader import FlatbufferReader, Table
from tosaic.files.flatbuffer.schema import BLOCK, GRAPH, OPERATOR, REGION, SHAPE, TENSOR, VERSION
from tosaic.ir.build import shape_result
from tosaic.ir.graph import Graph, Loc, Op, Value
from tosaic.spec import BY_CODE, OPS, everything
from tosaic.spec.dtypes import BLOCK_ELEMENTS, BLOCKS, F8UE8M0, UNKNOWN, DType, TensorType
from tosaic.spec.dtypes import BY_CODE as DTYPES
from tosaic.spec.dtypes import SHAPE as SHAPE_TYPE
from tosaic.spec.env import LEVELS
from tosaic.spec.table import OpDef

_MOST_NESTED = LEVELS["none"].max_nesting
_MOST_RANK = LEVELS["none"].max_rank
_MOST_SIZES = LEVELS["none"].max_shape_len
_ACCESS = (OPS["VARIABLE_READ"].code, OPS["VARIABLE_WRITE"].code)
_BLOCK_OF = dict(zip(BLOCK_ELEMENTS, BLOCKS))


@dataclass(slots=True)
class _Entry:
    """A tensor or shape of a block as the file declares it.

    Its data matter if a CONST defines it or it is a variable: Arm's own test generator leaves some
    on the inputs of regions too.
    """

    value: Value
    table: Table
    variable: str = ""
    defined: bool = False


class FileDecoder:
    """One file: its regions by name, and what they share."""

    def __init__(self, file: FlatbufferReader) -> None:
        self.file = file
        root = file.root()
        self.version = _version(root)
        _check_features(root)
        self.env = everything(self.version, "none")
        self.variables: dict[str, Op] = {}
        self.constants = Constants(file)
        self._locations: dict[str, Loc | None] = {}
        self.regions: dict[str, Table] = {}
        for region in root.tables(GRAPH.REGIONS, "the list of regions", "region"):
            name = region.string(REGION.NAME, f"the name of {region.what}")
            if name in self.regions:
                raise InvalidGraph(f"two regions are named {shown(name)}")
            self.regions[name] = region
        if not self.regions:
            raise InvalidGraph("the file has no region, so no graph")

    def graph(self) -> Graph:
        """The main region, and those that its operators name, each a graph of its own."""
        name = "main" if "main" in self.regions else next(iter(self.regions))
        main = Graph(name, version=self.version)
        work: list[tuple[Graph, tuple[str, ...]]] = [(main, (name,))]
        while work:
            graph, nest = work.pop()
            for child in _BlockDecoder(self, graph, nest).fill():
                work.append((child, (*nest, child.name)))
        main.ops[:0] = self.variables.values()
        return main

    def location(self, operator: Table) -> Loc | None:
        """Where an operator comes from; many may share one long text, which is read once."""
        what = f"the location of {operator.what}"
        table = operator.table(OPERATOR.LOCATION, what)
        if table is None:
            return None
        text = table.string(0, what)
        if text not in self._locations:
            self._locations[text] = schema.location(text)
        return self._locations[text]

    def block(self, name: str) -> Table:
        where = f"region {shown(name)}"
        what = f"the list of blocks of {where}"
        blocks = list(self.regions[name].tables(REGION.BLOCKS, what, f"{where}, block"))
        if len(blocks) != 1:
            raise InvalidGraph(f"{where} has {len(blocks)} blocks; it must have one")
        return blocks[0]


@dataclass(slots=True)
class _BlockDecoder:
    """One region's only block, filled into a graph."""

    file: FileDecoder
    graph: Graph
    nest: tuple[str, ...]
    entries: dict[str, _Entry] = field(default_factory=dict)
    children: list[Graph] = field(default_factory=list)
    suffix: str = ""

    def __post_init__(self) -> None:
        if len(self.nest) > 1:
            self.suffix = f" of region {shown(self.graph.name)}"

    def fill(self) -> list[Graph]:
        """Read everything; gives the graphs of nested regions, still to be filled."""
        where = f"region {shown(self.graph.name)}"
        block = self.file.block(self.graph.name)
        for table in block.tables(BLOCK.TENSORS, f"the tensors of {where}", "tensor"):
            self._declare(table, TENSOR.NAME, self._tensor_type(table))
        for table in block.tables(BLOCK.SHAPES, f"the shapes of {where}", "shape"):
            self._declare(table, SHAPE.NAME, self._shape_type(table))
        for name in block.strings(BLOCK.INPUTS, f"the inputs of {where}"):
            self.graph.inputs.append(self._define(name, f"{where} as an input").value)
        for index, table in enumerate(
            block.tables(BLOCK.OPERATORS, f"the operators of {where}", "operator")
        ):
            self._operator(index, table)
        for name in block.strings(BLOCK.OUTPUTS, f"the outputs of {where}"):
            self.graph.outputs.append(self._use(name, f"{where} as an output"))
        return self.children

    def _declare(self, table: Table, name_field: int, kind: TensorType) -> None:
        name = table.string(name_field, f"the name of {table.what}")
        if name in self.entries:
            region = shown(self.graph.name)
            raise InvalidGraph(f"region {region} has two tensors named {shown(name)}")
        entry = self.entries[name] = _Entry(Value(kind, name), table)
        if kind.dtype is not SHAPE_TYPE and table.flag(TENSOR.VARIABLE):
            entry.variable = table.string(TENSOR.VARIABLE_NAME, f"the name of {table.what}") or name
            self._variable(entry)

    def _variable(self, entry: _Entry) -> None:
        """Blocks repeat the variables they use; the graph declares each once, at its start."""
        name, kind = entry.variable, entry.value.type
        known_op = self.file.variables.get(name)
        if known_op is None:
            attrs: dict[str, object] = {"name": name, "type": kind}
            initial = self.file.constants.find(entry.value, entry.table)
            if initial is not None:
                attrs["initial_value"] = initial.array
            self.file.variables[name] = Op(OPS["VARIABLE"], [], [], attrs)
        elif known_op.attrs["type"] != kind:
            first = known_op.attrs["type"]
            raise InvalidGraph(f"variable {shown(name)} is {first} in one block, {kind} in another")

    def _tensor_type(self, table: Table) -> TensorType:
        shape = table.ints(TENSOR.SHAPE, f"the shape of {table.what}")
        dtype = _dtype(table)
        reason = ""
        if table.flag(TENSOR.IS_UNRANKED):
            reason = "has no rank; Tosaic reads graphs whose shapes are all known"
        elif dtype is None:
            number, scale = table.u32(TENSOR.TYPE), table.u32(TENSOR.SCALE_TYPE)
            reason = f"has the type number {number}{f' with scales {scale}' if scale else ''}"
            reason += ", which TOSA does not define"
        elif dtype is SHAPE_TYPE:
            reason = "is of type shape, which belongs in the block's list of shapes"
        elif len(shape) > _MOST_RANK:
            reason = f"has rank {len(shape)}; no level of TOSA allows more than {_MOST_RANK}"
        elif shape and min(shape) < (0 if self.file.version < (1, 1) else UNKNOWN):
            dynamic = "dynamic " if -1 in shape else ""
            reason = f"has the {dynamic}shape {list(shape)}; TOSA 1.0 has known sizes alone"
        if reason or dtype is None:
            name = shown(table.string(TENSOR.NAME, f"the name of {table.what}"))
            raise InvalidGraph(f"tensor {name} {reason}")
        return TensorType(dtype, shape)

    def _shape_type(self, table: Table) -> TensorType:
        rank = table.u32(SHAPE.RANK)
        if rank > _MOST_SIZES:
            name = shown(table.string(SHAPE.NAME, f"the name of {table.what}"))
            reason = f"has {rank} sizes; no level of TOSA allows more than {_MOST_SIZES}"
            raise InvalidGraph(f"shape {name} {reason}")
        return TensorType(SHAPE_TYPE, (rank,))

    def _entry(self, name: str, user: str) -> _Entry:
        entry = self.entries.get(name)
        if entry is None:
            raise InvalidGraph(f"{user} names {shown(name)}, which the region does not declare")
        if entry.variable:
            raise InvalidGraph(f"{user} names variable {shown(name)} as if it were a tensor")
        return entry

    def _define(self, name: str, user: str) -> _Entry:
        entry = self._entry(name, user)
        if entry.defined:
            raise InvalidGraph(f"{user} defines {shown(name)}, which is defined already")
        entry.defined = True
        return entry

    def _use(self, name: str, user: str) -> Value:
        entry = self._entry(name, user)
        if not entry.defined:
            raise InvalidGraph(f"{user} reads {shown(name)}, which nothing before it defines")
        return entry.value

    def _operator(self, index: int, table: Table) -> None:
        defn = self._definition(index, table)
        loc = self.file.location(table)
        user = f"operator {index} ({defn.name}){self.suffix}"
        ins = table.strings(OPERATOR.INPUTS, f"an input of {user}")
        outs = table.strings(OPERATOR.OUTPUTS, f"an output of {user}")
        if defn.name in ("CONST", "CONST_SHAPE"):
            self._constant(user, defn, ins, outs, loc)
        elif defn.name.startswith("VARIABLE"):
            self._access(user, defn, ins, outs, loc)
        else:
            operands = [self._use(name, user) for name in ins]
            attrs, regions = self._attributes(user, defn, table, operands)
            results = [self._define(name, user).value for name in outs]
            op = Op(defn, operands, results, attrs, regions, loc)
            self._finish(op)

    def _definition(self, index: int, table: Table) -> OpDef:
        code, union = table.u32(OPERATOR.OP), table.u8(OPERATOR.ATTRIBUTE_TYPE)
        defn = BY_CODE.get(code)
        if defn is None:
            raise InvalidGraph(
                f"operator {index}{self.suffix} has number {code}, which TOSA does not define"
            )
        if defn.name == "IDENTITY" and union in _ACCESS:
            return BY_CODE[union]  # how tosa-opt writes them
        if union != code and (union or schema.attributes(defn)):
            given = BY_CODE[union].name if union in BY_CODE else f"number {union}"
            given = f"the attributes of {given}" if union else "no attributes"
            raise InvalidGraph(f"operator {index} ({defn.name}){self.suffix} has {given}")
        return defn

    def _constant(
        self, user: str, defn: OpDef, ins: list[str], outs: list[str], loc: Loc | None
    ) -> None:
        if ins or len(outs) != 1:
            counts = f"it has {len(ins)} and {len(outs)}"
            raise InvalidGraph(f"{user} must have no input and one output; {counts}")
        entry = self._define(outs[0], user)
        if (entry.value.dtype is SHAPE_TYPE) != (defn.name == "CONST_SHAPE"):
            raise InvalidGraph(f"{user} cannot define {shown(outs[0])} of {entry.value.type}")
        entry.value.const = self.file.constants.find(entry.value, entry.table)
        entry.value.loc = loc
        if entry.value.const is None:
            raise InvalidGraph(f"{user} defines {shown(outs[0])}, which has no data")

    def _access(
        self, user: str, defn: OpDef, ins: list[str], outs: list[str], loc: Loc | None
    ) -> None:
        """Reading and writing variables: the file names the variable as an input or output."""
        names = ins if defn.name == "VARIABLE_READ" else outs
        entry = self.entries.get(names[0]) if len(names) == 1 else None
        if entry is None or not entry.variable:
            raise InvalidGraph(f"{user} must name one variable; it names {len(names)} tensors")
        if defn.name == "VARIABLE":
            return  # its tensor is declared, that is all
        read = defn.name == "VARIABLE_READ"
        operands = [] if read else [self._use(name, user) for name in ins]
        results = [self._define(name, user).value for name in outs] if read else []
        self._finish(Op(defn, operands, results, {"name": entry.variable}, (), loc))

    def _attributes(
        self, user: str, defn: OpDef, table: Table, operands: list[Value]
    ) -> tuple[dict[str, object], tuple[Graph, ...]]:
        found: dict[str, object] = {}
        fields = schema.attributes(defn)
        if not fields:
            return found, ()
        attribute = table.table(OPERATOR.ATTRIBUTE, f"the attributes of {user}")
        if attribute is None:
            raise InvalidGraph(f"{user} has no attributes")
        for number, attr in enumerate(fields):
            found[attr.name] = decode(attribute, number, attr, operands, user)
        regions = [self._child(user, str(found.pop(name))) for name in defn.regions]
        return found, tuple(regions)

    def _child(self, user: str, name: str) -> Graph:
        if name not in self.file.regions:
            raise InvalidGraph(f"{user} names region {shown(name)}, which the file does not have")
        if name in self.nest:
            raise InvalidGraph(f"{user} names region {shown(name)}, of which it is a part")
        if len(self.nest) > _MOST_NESTED:
            raise InvalidGraph(f"{user} nests regions deeper than {_MOST_NESTED}")
        child = Graph(name, version=self.file.version)
        self.children.append(child)
        return child

    def _finish(self, op: Op) -> None:
        for out in op.outs:
            out.loc = op.loc
        if len(op.outs) == 1 and op.defn.results and op.defn.results[0].type == "shape":
            op.outs[0].const = shape_result(op, self.file.env)
        self.graph.ops.append(op)


def _dtype(table: Table) -> DType | None:
    dtype = DTYPES.get(table.u32(TENSOR.TYPE))
    scale, shape = table.u32(TENSOR.SCALE_TYPE), table.u32(TENSOR.BLOCK_SHAPE)
    if dtype is None or not (scale or shape):
        return dtype
    if scale != F8UE8M0.code or shape != schema.BLOCK_SHAPE_32:
        return None
    return _BLOCK_OF.get(dtype)


def _version(root: Table) -> tuple[int, int]:
    table = root.table(GRAPH.VERSION, "the version")
    if table is None:
        raise InvalidGraph("the file names no TOSA version")
    version = (
        table.i32(VERSION.MAJOR, -1),
        table.i32(VERSION.MINOR, -1),
        table.i32(VERSION.PATCH, -1),
        table.flag(VERSION.DRAFT, True),
    )
    found = schema.specification(version)
    if found is None:
        words = schema.version_words(version)
        raise InvalidGraph(f"the file is TOSA {words}; Tosaic reads 1.0 and the draft of 1.1")
    return found


def _check_features(root: Table) -> None:
    table = root.table(GRAPH.COMPATIBILITY, "the compatibility")
    unknown = table.u64(schema.COMPATIBILITY.FEATURES) & ~schema.MXFP_FEATURE if table else 0
    if unknown:
        raise InvalidGraph(f"the file needs format features {unknown:#x}, which Tosaic lacks")
