"""Read and write ``.tosa`` flatbuffers, TOSA 1.0 and the draft of 1.1."""

from __future__ import annotations

import os
import re

from tosaic.errors import InvalidGraph, InvalidInput
from tosaic.files.flatbuffer import schema
from tosaic.files.flatbuffer.decoder import FileDecoder
from tosaic.files.flatbuffer.encoder import FileEncoder
from tosaic.files.flatbuffer.reader import FlatbufferReader
from tosaic.files.whole import write_whole
from tosaic.ir.graph import Graph

Source = bytes | bytearray | memoryview | str | os.PathLike[str]

_STARTS = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x93NUMPY", "a numpy array"),
    (b"\x7fELF", "an ELF program"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"ML\xefR", "MLIR bytecode"),
    (b"\x80\x02", "a Python pickle"),
    (b"VGF", "a VGF file"),
)
_FLATBUFFERS = {b"TFL3": "a TFLite model", b"ET12": "an ExecuTorch program"}
_ONNX = re.compile(rb"\x08[\x03-\x0f][\x12\x1a\x22\x32\x3a\x42\x72]")  # ir_version, next field
_SMALLEST = 8  # the offset of the root and the identifier


def read(source: Source) -> Graph:
    """The graph of a file, or of bytes. Constants are views of them wherever that is possible.

    Whatever is wrong with them raises InvalidGraph, a path that cannot be read InvalidInput. The
    graph's operators are not checked: ``ir.verify`` is for that.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        view = memoryview(source)
        return _decode(
            view.toreadonly().cast("B") if view.c_contiguous else memoryview(bytes(view))
        )
    try:
        path = os.fspath(source)
    except TypeError:
        kind = type(source).__name__
        raise InvalidInput(f"a graph is read from a path or from bytes, not from {kind}") from None
    try:
        return _decode(_bytes(path))
    except InvalidGraph as problem:
        raise InvalidGraph(f"{path}: {problem.reason}", problem.where) from None


def write(graph: Graph, path: str | os.PathLike[str] | None = None) -> bytes:
    """The bytes of a graph's file; with a path, they are also there, all of them or none."""
    data = FileEncoder(graph).encode()
    if path is not None:
        write_whole(path, data)
    return data


def _decode(buffer: memoryview) -> Graph:
    if len(buffer) < _SMALLEST or bytes(buffer[4:8]) != schema.IDENTIFIER:
        raise InvalidGraph(f"this is no .tosa file: it {_looks_like(bytes(buffer[:256]))}")
    return FileDecoder(FlatbufferReader(buffer)).graph()


def _bytes(path: str) -> memoryview:
    """A file's bytes; of a map of it, reading what others have cut off would end the process."""
    try:
        with open(path, "rb") as file:
            return memoryview(file.read(os.fstat(file.fileno()).st_size))
    except (OSError, ValueError) as problem:  # a zero byte in a path is a ValueError
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InvalidInput(f"{path!r} cannot be read: {reason}") from None


def _looks_like(start: bytes) -> str:
    """What a foreign file seems to be."""
    if not start:
        return "is empty"
    if start[4:8] in _FLATBUFFERS:
        return f"looks like {_FLATBUFFERS[start[4:8]]}"
    for magic, name in _STARTS:
        if start.startswith(magic):
            return f"looks like {name}"
    if _ONNX.match(start):
        return "looks like an ONNX model"
    text = start.decode("utf-8", "ignore")
    if len(text.encode()) > len(start) - 4 and all(c.isprintable() or c.isspace() for c in text):
        return "looks like text"
    return "does not carry the identifier TOSA"
