"""Constants, identity, custom operators, control flow, variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tosaic.spec import infer
from tosaic.spec.dtypes import BOOL, TensorType
from tosaic.spec.ops_layout import BLOCK_ROWS
from tosaic.spec.table import Check, Site, op, parse_rows

_ANY = (
    "INT/FP: bool i8 i16 i32 | int4: i4 | int16: i48 | 1.1 int64: i64 | FP: f16 f32 | "
    "bf16: bf16 | fp8e4m3: f8e4m3 | fp8e5m2: f8e5m2"
)
_MX = (
    "1.1 mx: f8ue8m0 | 1.1 mxfp6e3m2: f6e3m2 | 1.1 mxfp6e2m3: f6e2m3 | 1.1 mxfp4e2m1: f4e2m1 | "
    "1.1 mxint8: mxi8"
)
op(
    "CONST", 67, "-> output:t[0+]", (*parse_rows(f"{_ANY} | {_MX}"), *BLOCK_ROWS),
    attrs=("values:data",), infer=infer.declared,
)  # fmt: skip
op(
    "IDENTITY", 68, "input1:t[0+] -> output:t[0+]", (*parse_rows(_ANY), *BLOCK_ROWS),
    infer=infer.same,
)  # fmt: skip
op(
    "CUSTOM", 69, "input_list:any... -> output_list:any...", "INT/FP:", types="",
    attrs=("operator_name:str", "domain_name:str", "implementation_attrs:bytes"),
    infer=infer.declared,
)  # fmt: skip


def _types(values: Sequence[Any]) -> list[TensorType]:
    return [v.type for v in values]


def _words(types: Sequence[TensorType]) -> str:
    return f"({', '.join(map(str, types))})"


def _agree(
    what: str, wanted: Callable[[Site], Sequence[TensorType]], region: str, side: str
) -> Check:
    """A region's inputs or outputs must have the types of a list of tensors."""

    def check(site: Site) -> str | None:
        given = _types(getattr(site.regions[site.op.regions.index(region)], side))
        needed = list(wanted(site))
        if given == needed:
            return None
        return f"{region} has {side} {_words(given)}, but {what} has {_words(needed)}"

    return check


def _inputs(site: Site) -> Sequence[TensorType]:
    return site.list("input_list")


def _then_results(site: Site) -> Sequence[TensorType]:
    return _types(site.regions[0].outputs)


def _condition(site: Site) -> str | None:
    given = site.type("condition")
    return None if given.size == 1 else f"condition must have one element, not {given.size}"


def _loop_condition(site: Site) -> str | None:
    outputs = _types(site.regions[0].outputs)
    if len(outputs) == 1 and outputs[0].dtype is BOOL and outputs[0].size == 1:
        return None
    return f"cond_graph must give one bool of one element, not {_words(outputs)}"


op(
    "COND_IF", 70, "condition:bool[0+], input_list:any... -> output_list:any...", "cf:",
    types="", regions=("then_graph", "else_graph"), infer=infer.region_results("then_graph"),
    checks=(
        _condition,
        _agree("input_list", _inputs, "then_graph", "inputs"),
        _agree("input_list", _inputs, "else_graph", "inputs"),
        _agree("then_graph", _then_results, "else_graph", "outputs"),
    ),
)  # fmt: skip
op(
    "WHILE_LOOP", 71, "input_list:any... -> output_list:any...", "cf:",
    types="", regions=("cond_graph", "body_graph"), infer=infer.region_results("body_graph"),
    checks=(
        _loop_condition,
        _agree("input_list", _inputs, "cond_graph", "inputs"),
        _agree("input_list", _inputs, "body_graph", "inputs"),
        _agree("input_list", _inputs, "body_graph", "outputs"),
    ),
)  # fmt: skip

_STATE = "var+INT: i8 | var+FP: f16 f32"
op(
    "VARIABLE", 72, "", _STATE, attrs=("name:str", "type:type", "initial_value:data?"),
    infer=infer.nothing,
)  # fmt: skip
op("VARIABLE_WRITE", 73, "input1:t[0+]", _STATE, attrs=("name:str",), infer=infer.nothing)
op("VARIABLE_READ", 74, "-> output1:t[0+]", _STATE, attrs=("name:str",), infer=infer.declared)
