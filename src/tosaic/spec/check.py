"""One operator, its operands and attributes against the table: result types, or a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tosaic.errors import Unsupported
from tosaic.spec.dtypes import BLOCK, F32, SHAPE, UNKNOWN, DType, TensorType, dtype
from tosaic.spec.env import Env
from tosaic.spec.table import ENUMS, Attr, OpDef, Operand, Results, Site

_FIXED = {"bool", "i8", "i32", "shape"}


def resolve(
    op: OpDef,
    env: Env,
    ins: Sequence[TensorType],
    attrs: Mapping[str, Any],
    consts: Callable[[int], Any],
    outs: Sequence[TensorType | DType] | None = None,
    regions: tuple[Any, ...] = (),
) -> tuple[TensorType, ...]:
    """Types of the results; Unsupported with one sentence if the use is not legal.

    ``consts(i)`` gives the value of operand i as an array, or None. ``outs`` are the results as
    a file states them, checked against what the table says, or just wanted element types.
    Where sizes are unknown, what follows from them is checked when they are known.
    """
    site = Site(op, env, _pair(op, ins), attrs, consts, regions)
    _check_attrs(op, attrs)
    for operand, given in site.ins:
        _check_shape(site, operand, given)
    _check_consts(site)
    _bind_types(site, outs)
    if not _is_sized(site):
        return _declared(site, outs)
    results = _results(site, outs)
    for check in op.checks:
        problem = check(site)
        if problem:
            raise Unsupported(f"{op.name}: {problem}")
    return results


def _pair(op: OpDef, ins: Sequence[TensorType]) -> tuple[tuple[Operand, TensorType], ...]:
    """Match operands with what was given; at most one operand of the signature is a list."""
    lists = [i for i, o in enumerate(op.operands) if o.variadic]
    more = len(ins) - len(op.operands)
    if more < -len(lists) or (more and not lists):
        names = ", ".join(o.name for o in op.operands) or "none"
        raise Unsupported(f"{op.name} takes the operands {names}; it got {len(ins)}")
    if not lists:
        return tuple(zip(op.operands, ins))
    before = lists[0]
    spread = (*op.operands[:before], *[op.operands[before]] * (more + 1))
    return tuple(zip((*spread, *op.operands[before + 1 :]), ins))


def _check_attrs(op: OpDef, attrs: Mapping[str, Any]) -> None:
    known = 0
    for attr in op.attrs:
        if attr.name in attrs:
            known += 1
            problem = _attr_problem(attr, attrs[attr.name])
            if problem:
                raise Unsupported(f"{op.name}: attribute {attr.name} {problem}")
        elif not attr.optional:
            raise Unsupported(f"{op.name}: attribute {attr.name} is missing")
    if len(attrs) > known:
        extra = next(name for name in attrs if op.attr(name) is None)
        raise Unsupported(f"{op.name} has no attribute {extra}")


def _is_i32(value: Any) -> bool:
    return type(value) is int and -(1 << 31) <= value < 1 << 31


def _attr_problem(attr: Attr, value: Any) -> str | None:
    kind = attr.kind
    if kind == "i32":
        return None if _is_i32(value) else f"must be an int32, not {value!r}"
    if kind == "bool":
        return None if type(value) is bool else f"must be true or false, not {value!r}"
    if kind.startswith("i32["):
        if type(value) is not tuple or not all(map(_is_i32, value)):
            return f"must be a tuple of int32, not {value!r}"
        if kind != "i32[]" and len(value) != int(kind[4:-1]):
            return f"must have {kind[4:-1]} elements, not {len(value)}"
        return None
    if kind in ENUMS:
        known = ENUMS[kind]
        return None if value in known else f"must be one of {', '.join(known)}, not {value!r}"
    if kind == "acc":
        return None if isinstance(value, DType) else f"must be a type, not {value!r}"
    if kind == "value":
        return None if isinstance(value, (int, float)) else f"must be a number, not {value!r}"
    return None


def _check_shape(site: Site, operand: Operand, given: TensorType) -> None:
    """Rank, named dimensions and the level's size limits of one operand."""
    name, shape, level = f"{site.op.name}: {operand.name}", given.shape, site.env.level
    if operand.dims is not None and len(shape) != len(operand.dims):
        raise Unsupported(f"{name} must have rank {len(operand.dims)}, not {len(shape)}")
    if len(shape) < operand.min_rank:
        raise Unsupported(f"{name} must have rank {operand.min_rank} or more, not {len(shape)}")
    check_level(name, given, site.env)
    for dim, size in zip(operand.dims or (), shape):
        if isinstance(dim, int):
            if size != dim:
                raise Unsupported(f"{name} must have {dim} elements, not {size}")
        elif UNKNOWN not in (size, site.dims.get(dim)) and site.dims.setdefault(dim, size) != size:
            raise Unsupported(f"{name} has {dim} = {size}, where {site.dims[dim]} is needed")
    if operand.variadic:
        count = len(site.list(operand.name))
        if count > level.max_tensor_list_size:
            most = level.max_tensor_list_size
            raise Unsupported(f"{name} lists {count} tensors; level {level.name} allows {most}")


def check_level(name: str, given: TensorType, env: Env) -> None:
    """Refuse a tensor whose rank, length or size no implementation of the level must take."""
    shape, level = given.shape, env.level
    if given.dtype is SHAPE:
        if len(shape) != 1:
            raise Unsupported(f"{name} must be a list of sizes, not of rank {len(shape)}")
        if shape[0] > level.max_shape_len:
            most = level.max_shape_len
            raise Unsupported(f"{name} has length {shape[0]}; level {level.name} allows {most}")
        return
    if len(shape) > level.max_rank:
        most = level.max_rank
        raise Unsupported(f"{name} has rank {len(shape)}; level {level.name} allows {most}")
    size = 1
    for dim in shape:
        if dim == UNKNOWN and env.has("shape"):
            continue
        if dim < 1:
            raise Unsupported(f"{name} has shape {list(shape)}; every dimension must be 1 or more")
        size *= dim
    if given.dtype.kind == "block" and (not shape or shape[-1] % BLOCK):
        raise Unsupported(f"{name} has shape {list(shape)}; blocks of {BLOCK} fill its last axis")
    if size >> level.max_log2_size:
        most = level.max_log2_size
        raise Unsupported(f"{name} has {size} elements; level {level.name} allows 2^{most} - 1")


def _check_consts(site: Site) -> None:
    dynamic, shapes = (site.env.has(name) for name in ("dynamic", "shape"))
    for index, (operand, given) in enumerate(site.ins):
        lifted = (dynamic and not operand.always_const) or (shapes and given.dtype is SHAPE)
        if operand.const and not lifted and site.consts(index) is None:
            reason = f"{operand.name} must be a compile-time constant"
            raise Unsupported(f"{site.op.name}: {reason}")


def _bind_types(site: Site, outs: Sequence[TensorType | DType] | None) -> None:
    """Find the row that the operands and results match, or say which would fit."""
    op, types = site.op, site.types
    if "acc" in op.variables and "acc_type" in site.attrs:
        types["acc"] = site.attrs["acc_type"]
    if "type" in site.attrs:
        types["t"] = site.attrs["type"].dtype
    for operand, given in site.ins:
        _bind(op, types, operand, given.dtype)
    if op.operands and op.operands[0].type == "pair":
        data, *scales = site.list(op.operands[0].name) or [site.ins[0][1]]
        types["t"] = data.dtype
        types["scale"] = scales[0].dtype if scales else data.dtype
    for operand, wanted in zip(op.results, outs or ()):
        _bind(op, types, operand, wanted if isinstance(wanted, DType) else wanted.dtype)
    if not op.variables:
        if not any(row.allowed(site.env) for row in op.rows):
            _refuse(site)
        return
    rows = op.allowed(site.env)
    if len(types) == len(op.variables):
        if tuple(types[v] for v in op.variables) not in rows:
            _refuse(site)
        return
    for found in rows:
        if all(types.get(v, t) is t for v, t in zip(op.variables, found)):
            types.update(zip(op.variables, found))
            return
    _refuse(site)


def _bind(op: OpDef, types: dict[str, DType], operand: Operand, given: DType) -> None:
    if operand.type in ("any", "pair"):
        return
    if operand.type in _FIXED:
        if operand.type != given.name:
            raise Unsupported(f"{op.name}: {operand.name} must be {operand.type}, not {given}")
    elif types.setdefault(operand.type, given) is not given:
        other = types[operand.type]
        raise Unsupported(f"{op.name}: {operand.name} is {given}, where {other} is needed")


def _refuse(site: Site) -> None:
    """Name the operator, the types it got, the row that would fit and what is missing for it."""
    op, got = site.op, site.types
    words = ", ".join(f"{v} = {got[v]}" for v in op.variables if v in got)
    got_words = f" with {words}" if words else ""

    def distance(types: tuple[DType, ...]) -> int:
        return sum(got.get(v, t) is not t for v, t in zip(op.variables, types))

    fitting = [r for r in op.rows if distance(r.types) == 0]
    if fitting:
        row = min(fitting, key=lambda r: (len(r.missing(site.env)), r.since))
        missing = " and ".join(row.missing(site.env))
        raise Unsupported(f"{op.name}{got_words} needs {missing}, which {site.env} lacks")
    row = min(op.rows, key=lambda r: (distance(r.types), len(r.missing(site.env))))
    raise Unsupported(
        f"{op.name} has no row{got_words}; the nearest is "
        f"({', '.join(op.variables)}) = {row.describe()}"
    )


def _results(site: Site, outs: Sequence[TensorType | DType] | None) -> tuple[TensorType, ...]:
    shapes = _result_shapes(site)
    given = [o for o in outs or () if isinstance(o, TensorType)]
    if shapes is None:
        if not given and site.op.results:
            raise Unsupported(f"{site.op.name}: the result's shape cannot be known here")
        shapes = list(given)
    if outs is not None and len(outs) != len(shapes):
        raise Unsupported(f"{site.op.name} gives {len(shapes)} results; {len(outs)} are named")
    results = site.op.results
    spread = [results[min(i, len(results) - 1)] for i in range(len(shapes))]
    found = []
    for index, (operand, shape) in enumerate(zip(spread, shapes)):
        if isinstance(shape, TensorType):
            result = shape
        else:
            result = TensorType(_result_dtype(site, operand, outs[index] if outs else None), shape)
        named = outs[index] if outs else None  # a size that is unknown leaves a type alone
        if isinstance(named, TensorType) and named.dtype is not result.dtype:
            wanted, got = result.dtype, named.dtype
            raise Unsupported(f"{site.op.name}: {operand.name} must be {wanted}, not {got}")
        if isinstance(named, TensorType) and named.shape != result.shape:
            raise Unsupported(
                f"{site.op.name}: {operand.name} must have shape {list(result.shape)}, "
                f"not {list(named.shape)}"
            )
        check_level(f"{site.op.name}: {operand.name}", result, site.env)
        found.append(result)
    return tuple(found)


def _is_sized(site: Site) -> bool:
    """Whether all sizes are known that results and conditions follow from."""
    return all(
        given.is_known and (given.dtype is not SHAPE or site.consts(index) is not None)
        for index, (_, given) in enumerate(site.ins)
    )


def _declared(site: Site, outs: Sequence[TensorType | DType] | None) -> tuple[TensorType, ...]:
    """The results as the graph has them; their types alone follow from the table."""
    found = tuple(out for out in outs or () if isinstance(out, TensorType))
    results = site.op.results
    if len(found) != len(outs or ()) or bool(found) is not bool(results):
        raise Unsupported(f"{site.op.name}: the result's shape cannot be known here")
    for index, out in enumerate(found):
        operand = results[min(index, len(results) - 1)]
        wanted = _result_dtype(site, operand, out)
        if out.dtype is not wanted:
            raise Unsupported(f"{site.op.name}: {operand.name} must be {wanted}, not {out.dtype}")
        check_level(f"{site.op.name}: {operand.name}", out, site.env)
    return found


def _result_dtype(site: Site, operand: Operand, given: TensorType | DType | None) -> DType:
    if operand.type in _FIXED:
        return dtype(operand.type)
    if operand.type in site.types:
        return site.types[operand.type]
    if isinstance(given, TensorType):
        return given.dtype
    return given or F32


def _result_shapes(site: Site) -> Results | None:
    """Shapes by inference, or from the dimensions that the operands bound."""
    found = site.op.infer(site) if site.op.infer else {}
    if found is None or isinstance(found, list):
        return found
    if isinstance(found, tuple):
        return [found] * len(site.op.results)
    dims = {**site.dims, **found}

    def size(dim: str | int) -> int:
        if isinstance(dim, int):
            return dim
        product = 1
        for factor in dim.split("*"):
            product *= dims[factor]
        return product

    return [tuple(map(size, result.dims or ())) for result in site.op.results]
