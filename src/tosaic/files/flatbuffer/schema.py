"""Facts of the ``.tosa`` file format: the fields of its tables, versions, spelling of places.

They follow ``tosa.fbs`` of tosa-tools 2026.8.0 (Apache-2.0); a test compares them with that file.
An operator's number is also that of its attribute table in the file's union.
"""

from __future__ import annotations

import json
from functools import cache

from tosaic.files.source_paths import portable
from tosaic.ir.graph import Loc
from tosaic.spec.table import Attr, OpDef

IDENTIFIER = b"TOSA"
BLOCK_SHAPE_32 = 32
MXFP_FEATURE = 1 << 1
"""Bit of the compatibility features that a file with block-scaled tensors sets."""
SERIALIZER = (2026, 8, 0)
"""The release of tosa-tools whose format is written, and the oldest that must read it."""


class GRAPH:
    VERSION, REGIONS, SOFTWARE_VERSION, COMPATIBILITY = range(4)


class VERSION:
    MAJOR, MINOR, PATCH, DRAFT = range(4)


class COMPATIBILITY:
    MIN_READER_VERSION, FEATURES = range(2)


class REGION:
    NAME, BLOCKS = range(2)


class BLOCK:
    NAME, OPERATORS, TENSORS, INPUTS, OUTPUTS, SHAPES = range(6)


class OPERATOR:
    OP, ATTRIBUTE_TYPE, ATTRIBUTE, INPUTS, OUTPUTS, LOCATION = range(6)


class TENSOR:
    NAME, SHAPE, TYPE, DATA, VARIABLE, IS_UNRANKED, VARIABLE_NAME = range(7)
    OFFSET, SIZE, SCALE_TYPE, SCALE_DATA, BLOCK_SHAPE, SCALE_OFFSET, SCALE_SIZE = range(7, 14)


class SHAPE:
    NAME, RANK, DATA = range(3)


FileVersion = tuple[int, int, int, bool]
WRITTEN: dict[tuple[int, int], FileVersion] = {(1, 0): (1, 0, 0, False), (1, 1): (1, 1, 0, True)}


def specification(version: FileVersion) -> tuple[int, int] | None:
    """The TOSA version of a file, or None where this format is not known to fit it.

    Every 1.0 since its release is read, and 1.1 while it is a draft.
    """
    major, minor, patch, draft = version
    if (1, 0, 0, True) <= (major, minor, patch, not draft) <= (1, 1, 0, False):
        return (1, 1) if minor == 1 else (1, 0)
    return None


def version_words(version: FileVersion) -> str:
    major, minor, patch, draft = version
    return f"{major}.{minor}.{patch}{' draft' if draft else ''}"


@cache
def attributes(defn: OpDef) -> tuple[Attr, ...]:
    """An operator's attributes in the order of its table in a file.

    Regions are named by strings there; the type of an accumulator comes last; what CONST and
    the variables carry lies in their tensor instead.
    """
    if defn.name.startswith("VARIABLE"):
        return ()
    regions = (Attr(name, "str") for name in defn.regions)
    stored = (a for a in defn.attrs if a.kind != "data")
    return (*regions, *sorted(stored, key=lambda a: a.kind == "acc"))


def location_text(loc: Loc) -> str:
    """A place as a file keeps it: a node's bare name, or JSON where there is more to say."""
    fields = {"node": loc.node, "module": loc.module, "file": portable(loc.file), "line": loc.line}
    full = json.dumps({k: v for k, v in fields.items() if v}, separators=(",", ":"))
    bare = loc.node and not (loc.module or loc.file or loc.line) and loc.node[0] != "{"
    return loc.node if bare else full


def location(text: str) -> Loc | None:
    """The place that a file's text names; a text that is not ours is a node's name."""
    if not text:
        return None
    if text[0] == "{":
        try:
            fields = json.loads(text)
            loc = Loc(**fields)
            if location_text(loc) == text:
                return loc
        except (ValueError, TypeError, RecursionError):
            pass
    return Loc(node=text)
