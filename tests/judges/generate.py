"""Runs Arm's conformance generator and keeps what it makes, with the reference model's answers.

Tests lie in ``build/conformance/<key>/<recipe>/<operator>/<test>``; one operator's folder appears
by a rename once it is complete, so a run may be interrupted, and several processes may generate.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from judges import wheel
from judges.cases import Case
from judges.recipes import Recipe, Size
from judges.reference import answer

_LAYOUT = 1  # raise it when the files beside a test change their meaning


def folder(recipe: Recipe, size: Size) -> Path:
    chosen = recipe.keep(size), recipe.only_beyond_1_0, recipe.without
    options = f"{_LAYOUT} {recipe.arguments()} {chosen}"
    digest = hashlib.sha256(options.encode()).hexdigest()[:10]
    base = wheel.ROOT / "build" / "conformance" / wheel.version()
    return base / f"{recipe.name}-{size}-{digest}"


def cases(recipe: Recipe, operator: str, size: Size) -> list[Case]:
    """The tests of one operator, generated if they are not there yet, in the order of names."""
    target = folder(recipe, size) / operator
    if not target.exists():
        _generate(recipe, operator, size, target)
    return [Case(path, recipe.kind) for path in sorted(target.iterdir())]


def prepare(work: Iterable[tuple[Recipe, str]], size: Size, processes: int = 2) -> None:
    """Generate many operators at once, in processes of their own."""
    missing = [(r, o) for r, o in work if not (folder(r, size) / o).exists()]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(_prepare_one, r, o, size) for r, o in missing]:
            done.result()


def _prepare_one(recipe: Recipe, operator: str, size: Size) -> None:
    cases(recipe, operator, size)


def _generate(recipe: Recipe, operator: str, size: Size, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{operator}.", dir=target.parent))
    try:
        (scratch / operator).mkdir()
        generator = _generator(recipe)
        generator.basePath = str(scratch)
        for test in _chosen(generator, recipe, operator, size):
            if not _make(generator, test):
                shutil.rmtree(scratch / operator / str(test))
        for path in (scratch / operator).iterdir():
            answer(path)
            if recipe.kind == "negative":  # refused before it could run
                for unused in path.glob("*.npy"):
                    unused.unlink()
        with contextlib.suppress(OSError):  # another process was first: its folder is as good
            os.rename(scratch / operator, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _generator(recipe: Recipe) -> Any:
    """A fresh generator of Arm's: it edits tables of its class, and asked twice it offers less."""
    wheel.skip_schema_validation()
    import generator.tosa_verif_build_tests as command_line
    from generator.tosa_test_gen import TosaTestGen

    edited = ("TOSA_OP_LIST", "TYPE_MATMUL_T", "TYPE_CONV_V110")
    copies = copy.deepcopy([getattr(TosaTestGen, name) for name in edited])
    own_class = type("TestGen", (TosaTestGen,), dict(zip(edited, copies, strict=True)))
    library = ["--generate-lib-path", str(wheel.library("generate"))]
    args = command_line.parseArgs([*recipe.arguments(), *library])
    logging.getLogger("tosa_verif_build_tests").setLevel(logging.CRITICAL)
    return own_class(args, command_line._get_tosa_version(args.tosa_version_str))


def _offered(generator: Any, recipe: Recipe, operator: str) -> list[Any]:
    """Every test that the generator can make of an operator for a recipe, each once."""
    from generator.tosa_test_select import TosaTestSelect

    args = generator.args
    listed = generator.genOpTestList(
        operator,
        shapeFilter=args.target_shapes,
        rankFilter=args.target_ranks,
        dtypeFilter=args.target_dtypes,
        testType=recipe.kind,
    )
    tests = {str(t): t for t in map(TosaTestSelect, listed)}
    return [t for t in tests.values() if t.isSupported(args.profile, args.extension)]


def _chosen(generator: Any, recipe: Recipe, operator: str, size: Size) -> list[Any]:
    tests = _offered(generator, recipe, operator)
    if recipe.only_beyond_1_0:
        old = _as_1_0(recipe)
        known = {str(t) for t in _offered(_generator(old), old, operator)}
        tests = [t for t in tests if str(t) not in known]
    if recipe.without:
        tests = [t for t in tests if not re.match(recipe.without, str(t))]
    keep = recipe.keep(size)
    groups: dict[tuple[object, ...], list[Any]] = {}
    for test in tests:
        groups.setdefault(_group(test), []).append(test)
    return [t for group in groups.values() for t in _spread(group, keep)]


def _group(test: Any) -> tuple[object, ...]:
    """What a kept test stands for: rank and error, or rank, types, modes and the kind of data."""
    if test.error is not None:
        return len(test.shapeList[0]), test.error
    modes = [part for part in str(test).split("_") if re.match("out|acc|mode|rm|idx", part)]
    return len(test.shapeList[0]), str(test.dtype), *modes, test.argsDict.get("td_type")


def _spread(group: list[Any], count: int | None) -> list[Any]:
    """``count`` members of a list at even distances, the first and the last among them."""
    if count is None or len(group) <= count:
        return group
    if count == 1:
        return [group[len(group) // 2]]
    return [group[i * (len(group) - 1) // (count - 1)] for i in range(count)]


def _as_1_0(recipe: Recipe) -> Recipe:
    old = tuple(e for e in recipe.extensions if e not in ("int64", "shape"))
    return replace(recipe, version="1.0", extensions=old)


def _make(generator: Any, test: Any) -> bool:
    """Whether the generator could write a test of its own list; some negative ones it cannot."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        try:
            return bool(generator.serializeTest(test))
        except IndexError:  # an input without elements, such as CONCAT's in a few negative tests
            if test.error is None:
                raise
            return False
