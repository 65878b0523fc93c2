"""The specification's type rows as the JSON files of facts give them, in Tosaic's names.

The files lie beside the repository, in ``../shared/facts`` or where ``TOSAIC_FACTS`` says; they are
not part of it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from judges.wheel import ROOT
from tosaic.spec import DType, Env, OpDef, dtypes
from tosaic.spec.env import EXTENSIONS, PROFILES, VERSIONS

FOLDER = Path(os.environ.get("TOSAIC_FACTS", ROOT.parent / "shared" / "facts"))
FEATURES = {e.official: e.name for e in EXTENSIONS.values()} | {"PRO-INT": "INT", "PRO-FP": "FP"}


Way = tuple[frozenset[str], tuple[int, int]]


@dataclass(frozen=True)
class Fact:
    """One combination of types by the table's type variables, and the ways to be allowed it:
    each a set of features that is enough, and since when."""

    operator: str
    types: tuple[DType, ...]
    ways: frozenset[Way]

    def allowed(self, env: Env) -> bool:
        return any(needs <= env.features and since <= env.version for needs, since in self.ways)


def _path(version: tuple[int, int]) -> Path:
    return FOLDER / f"tosa-ops-{version[0]}.{version[1]}.json"


needed = pytest.mark.skipif(
    not all(_path(v).exists() for v in VERSIONS),
    reason=f"the facts are not in {FOLDER}; set TOSAIC_FACTS to where they are",
)


@cache
def operators(version: tuple[int, int]) -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = json.loads(_path(version).read_text())["ops"]
    return loaded


def kind(name: str) -> DType:
    """``fp8e4m3_t``, ``bs32_fp8ue8m0_fp4e2m1_t`` or ``i8_t`` as a type."""
    name = name.removesuffix("_t")
    if name.startswith("bs32_fp8ue8m0_"):
        return dtypes.dtype("bs32_" + kind(name.removeprefix("bs32_fp8ue8m0_")).name)
    name = name.replace("mxint8", "mxi8")
    return dtypes.dtype("f" + name[2:] if name.startswith("fp") else name)


@cache
def rows(defn: OpDef, version: tuple[int, int]) -> tuple[Fact, ...]:
    """The combinations of types of an operator in a version's file."""
    fact = operators(version)[defn.name]
    found: dict[tuple[DType, ...], set[Way]] = {}
    for row in fact["types"]:
        major, minor = map(int, row["since"].split("."))
        for needs in row["requires_any_of"]:
            way = (frozenset(FEATURES[f] for f in needs), (major, minor))
            found.setdefault(_types(defn, fact, row["t"]), set()).add(way)
    return tuple(Fact(defn.name, types, frozenset(ways)) for types, ways in found.items())


def _types(defn: OpDef, fact: dict[str, Any], row: dict[str, str]) -> tuple[DType, ...]:
    bound: dict[str, DType] = {}
    for operand, said in zip(defn.operands + defn.results, fact["inputs"] + fact["outputs"]):
        name = said.get("elem")
        if operand.type == "pair":
            bound["t"] = kind(row[name])
            scale = row[said["scale_elem"]]
            bound["scale"] = bound["t"] if scale == "-" else kind(scale)
        elif operand.type in defn.variables:
            found = kind(row.get(name, name))
            assert bound.setdefault(operand.type, found) is found, (defn.name, operand)
    if "acc" in defn.variables:
        bound["acc"] = kind(row["acc_t"])
    if not bound and defn.variables:  # VARIABLE, whose type is an attribute
        bound["t"] = kind(next(iter(row.values())))
    return tuple(bound[v] for v in defn.variables)


def least(version: tuple[int, int], features: frozenset[str]) -> Env:
    """The environment with these features and no more than the profiles that they extend."""
    extensions = frozenset(f for f in features if f in EXTENSIONS)
    extensions = frozenset(e for e in extensions if EXTENSIONS[e].since <= version)
    bases = (EXTENSIONS[e].profiles for e in extensions)
    profiles = (features & set(PROFILES)) | {b[0] for b in bases if len(b) == 1}
    return Env(version, profiles or frozenset(("INT",)), extensions)
