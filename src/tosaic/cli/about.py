"""The commands about Tosaic itself and the machine: version, targets, operators, doctor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from tosaic import __version__
from tosaic.cli import options as o
from tosaic.cli.show import busy, show_data, show_table
from tosaic.errors import InvalidInput, ToolMissing
from tosaic.targets.catalog import Absent, families

if TYPE_CHECKING:
    from tosaic.lowering.target import Target


def ops(
    pattern: Annotated[str, typer.Argument(help="such as conv or aten.*pool*")] = "",
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="this one only, with reasons")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """List the PyTorch operators that lower, and to what."""
    from tosaic.pipeline.op_support_answers import columns_for, known

    columns, wanted = columns_for(target), partial(_matches, pattern=pattern)
    rows = known(columns, wanted)
    if rows is None:
        with busy("running the rules' samples"):
            from tosaic.pipeline.op_support import composite_support, support

            rows = [*support(columns, wanted), *composite_support(columns, wanted)]
    if pattern and not rows:
        raise InvalidInput(f"no operator is like '{pattern}'")
    names = [column.title for column in columns]
    if as_json:
        show_data({r.op: dict(zip(names, map(str, r.answers))) for r in rows})
        return
    if target is None:
        kinds = [name.rpartition(" ")[0] or "TOSA" for name in names]
        cells = [(r.op, *_by_kind(names, kinds, list(map(str, r.answers)))) for r in rows]
        show_table(("operator", *dict.fromkeys(kinds)), cells)
        return
    reasons = [next((a.reason for a in r.answers if a.reason), "") for r in rows]
    cells = [(r.op, *map(str, r.answers), why) for r, why in zip(rows, reasons)]
    show_table(("operator", *names, "the first reason"), cells)


def _by_kind(names: list[str], kinds: list[str], answers: list[str]) -> Iterator[str]:
    """An answer for each kind of target: one for all types, or those of types that differ."""
    for kind in dict.fromkeys(kinds):
        told = {n.rpartition(" ")[2]: a for n, k, a in zip(names, kinds, answers) if k == kind}
        same = len(set(told.values())) == 1
        yield (
            answers[kinds.index(kind)]
            if same
            else ", ".join(f"{dtype} {answer}" for dtype, answer in told.items() if answer != "yes")
        )


def _matches(op: str, pattern: str) -> bool:
    return fnmatchcase(op, pattern) or pattern in op


def targets(as_json: o.Json = False) -> None:
    """List what can be compiled for."""
    from tosaic.targets.catalog import names

    rows = list(names().items())
    if as_json:
        show_data([{"target": name, "about": about} for name, about in rows])
    else:
        show_table(("target", "what it is"), rows)


def doctor(
    target: Annotated[
        str | None, typer.Argument(help="a target: what it needs, thing by thing")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """List what is installed, which engines work, and how to install the rest."""
    if target is not None:
        _doctor_of(target, as_json)
        return
    with busy("trying the engines"):
        packages = [("tosaic", __version__, "this"), *(_package(*each) for each in _PACKAGES)]
        engines = [_engine("interpreter", "TOSA graphs", lambda trials: trials.interpreter())]
        for each in _targets():
            if isinstance(each, Absent):
                engines.append((each.entry, f"does not load: {each.reason}", "its targets"))
                continue
            packages += [
                _package(p, f"{each.name} and others", get) for p, get in each.packages.items()
            ]
            engines += [_engine(name, each.name, partial(_run_engine, each, name))
                        for name in each.engines]  # fmt: skip
    if as_json:
        keys = ("name", "state", "use")
        show_data({"packages": [dict(zip(keys, row)) for row in packages],
                   "engines": [dict(zip(keys, row)) for row in engines]})  # fmt: skip
    else:
        show_table(("package", "version", "for"), packages)
        show_table(("engine", "state", "runs"), engines)
    if not all(state == "works" or state.startswith("absent: ") for _, state, _ in engines):
        raise typer.Exit(1)


def _doctor_of(name: str, as_json: bool) -> None:
    """What one target needs, thing by thing."""
    from tosaic.targets.catalog import target_of

    target = target_of(name)
    if target.doctor is None:
        raise InvalidInput(f"{target.name} has no checks of its own: `tosaic doctor` has all")
    with busy(f"looking for what {target.name} needs"):
        found = target.doctor()
    if as_json:
        keys = ("name", "state", "told", "way")
        show_data([{key: getattr(each, key) for key in keys} for each in found])
    else:
        show_table(
            ("what", "state", "found", "what to do"),
            [(each.name, each.state, each.told, each.way) for each in found],
        )
    if any(each.state == "FAIL" for each in found):
        raise typer.Exit(1)


def _package(name: str, use: str, get: str) -> tuple[str, str, str]:
    from importlib import metadata

    try:
        return name, metadata.version(name), use
    except metadata.PackageNotFoundError:
        return name, f"absent: pip install {get}", use


def _targets() -> Iterator[Target | Absent]:
    """A target of each family that has engines of its own, and what does not load."""
    for family in families():
        yield family if isinstance(family, Absent) else family.make(next(iter(family.names)), {})


def _run_engine(target: Target, name: str, trials: ModuleType) -> bool:
    return bool(trials.device(target, name))


def _engine(name: str, use: str, attempt: Callable[[ModuleType], bool]) -> tuple[str, str, str]:
    try:
        from tosaic.cli import trials

        return name, "works" if attempt(trials) else "gives a wrong result", use
    except ToolMissing as missing:  # which is not needed for other targets
        return name, f"absent: {missing.reason}", use
    except Exception as problem:  # noqa: BLE001  (whatever is wrong with it is the answer)
        lines = str(problem).strip().splitlines() or [""]
        return name, f"fails: {type(problem).__name__}: {lines[0]}", use


_PACKAGES = (
    ("torch", "models", "torch"),
    ("torchao", "quantization", "torchao"),
    ("executorch", ".pte files", '"tosaic[executorch]"'),
)

ALL = (ops, targets, doctor)
