"""Hand-made ``.tosa`` files that say anything, right or wrong: for tests of how they are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tosaic.files.flatbuffer.writer import FlatbufferWriter
from tosaic.spec import OPS

I32, SHAPE = 5, 10  # numbers of types in the file's schema
_TENSOR = "ooIoBBoQQIoI"
TOSA_1_0 = (1, 0, 0, 0)


@dataclass
class Region:
    """A region in the making, with everything a file could say, right or wrong."""

    file: FlatbufferWriter
    name: str = "main"
    tensors: list[int] = field(default_factory=list)
    shapes: list[int] = field(default_factory=list)
    operators: list[int] = field(default_factory=list)
    blocks: int = 1

    def tensor(
        self,
        name: str,
        shape: tuple[int, ...] = (2,),
        code: int = I32,
        data: bytes | None = None,
        variable: str | None = None,
        unranked: int | None = None,
        external: tuple[int, int] | None = None,
        scales: tuple[int, int] | None = None,
    ) -> None:
        file = self.file
        self.tensors.append(
            file.table(
                _TENSOR,
                file.string(name),
                file.ints(shape),
                code,
                None if data is None else file.data(data),
                None if variable is None else 1,
                unranked,
                None if variable is None else file.string(variable),
                *(external or (None, None)),
                scales[0] if scales else None,
                None,
                scales[1] if scales else None,
            )
        )

    def shape(self, name: str, rank: int, data: bytes | None = None) -> None:
        place = None if data is None else self.file.data(data)
        self.shapes.append(self.file.table("oIo", self.file.string(name), rank, place))

    def op(
        self,
        name: str | int,
        ins: tuple[str, ...] = (),
        outs: tuple[str, ...] = (),
        attrs: tuple[str, tuple[Any, ...]] | None = ("", ()),
        union: int | None = None,
        location: str | None = None,
    ) -> None:
        file = self.file
        code = name if isinstance(name, int) else OPS[name].code
        table = None if attrs is None else file.table(attrs[0], *attrs[1])
        place = None if location is None else file.table("o", file.string(location))
        lists = [file.offsets([file.string(n) for n in names]) for names in (ins, outs)]
        number = code % 256 if union is None else union
        self.operators.append(file.table("IBoooo", code, number, table, *lists, place))

    def add(self, a: str, b: str, c: str) -> None:
        self.op("ADD", (a, b), (c,))

    def end(self, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> int:
        file = self.file
        lists = [file.offsets(items) for items in (self.operators, self.tensors, self.shapes)]
        ports = [file.offsets([file.string(n) for n in names]) for names in (inputs, outputs)]
        name = file.string(self.name)
        block = file.table("oooooo", name, *lists[:2], *ports, lists[2])
        return file.table("oo", name, file.offsets([block] * self.blocks))


def finish(
    file: FlatbufferWriter,
    *regions: int,
    version: tuple[int, int, int, int] | None = TOSA_1_0,
    features: int | None = None,
) -> bytes:
    place = None if version is None else file.table("iiiB", *version)
    compatibility = None if features is None else file.table("oQ", None, features)
    root = file.table("oooo", place, file.offsets(regions), None, compatibility)
    return file.finish(root, b"TOSA")


def one(region: Region, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> bytes:
    return finish(region.file, region.end(inputs, outputs))


def start(name: str = "main") -> Region:
    return Region(FlatbufferWriter(), name)


def good() -> bytes:
    region = start()
    region.tensor("x")
    region.tensor("y")
    region.add("x", "x", "y")
    return one(region, ("x",), ("y",))
