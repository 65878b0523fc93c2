"""Each rewrite by itself: the files in ``alone`` are graphs before and after it, as text."""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import tosaic
from judges.alone import FOLDER, Alone, applied, read, text_after
from tosaic.files.parse import parse
from tosaic.interp.model import Model
from tosaic.ir.graph import Array, Graph, Loc
from tosaic.rewrite import match
from tosaic.rewrite.match import FORMS, REWRITES
from tosaic.rewrite.phases import MODULES
from tosaic.targets.catalog import target_of
from tosaic.targets.ethosu.delegate import compile_graph
from tosaic.targets.ethosu.vela import VelaConfig

CASES = {path.stem: read(path) for path in sorted(FOLDER.glob("*.mlir"))}


def inputs(graph: Graph, random: np.random.Generator) -> list[Array]:
    return [
        random.integers(-100, 100, v.shape).astype(v.dtype.array)
        if v.dtype.is_int
        else random.standard_normal(v.shape).astype(v.dtype.array)
        for v in graph.inputs
    ]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_rewrite_alone_gives_the_text_and_the_numbers(case: Alone) -> None:
    assert applied(case.rewrite, case.target, parse(case.before))[1]
    assert text_after(case) == case.after
    graph = parse(case.before)
    before, after = Model(graph), Model(parse(case.after))
    given = inputs(graph, np.random.default_rng(7))
    for was, is_now in zip(before.run(*given), after.run(*given), strict=True):
        if was.dtype.kind == "f":  # factors that move into weights are rounded elsewhere
            np.testing.assert_allclose(is_now, was, rtol=1e-5, atol=1e-5)
        else:
            assert np.array_equal(is_now, was)
            assert len(np.unique(was)) > 1


def test_every_rewrite_has_its_file() -> None:
    marked = {f for kept in (REWRITES, FORMS) for functions in kept.values() for f in functions}
    names = {f"{f.__module__.rpartition('.')[2]}.{f.__name__}" for f in marked}
    assert names - CASES.keys() == set()


def test_parts_of_a_layer_are_that_layer_s() -> None:
    """Costs and pictures are told by layer."""
    case = CASES["peak_memory.part_channels"]
    graph = parse(case.before)
    for op in graph.ops:
        op.loc = Loc(op.name, f"layer of {op.name}")
    parts = [op for op in applied(case.rewrite, case.target, graph)[0].ops if op.name != "CONCAT"]
    assert [op.loc.module for op in parts if op.loc] == [f"layer of {op.name}" for op in parts]
    assert len(parts) == 6


def test_a_rewrite_that_differs_is_noticed() -> None:
    case = CASES["arithmetic.merge_clamps"]
    other = case.after.replace("max_val = ", "max_val = 1")
    assert other != case.after
    assert text_after(case) != other


FORM_CASES = {
    name: case for name, case in CASES.items()
    if any(case.rewrite in functions for functions in FORMS.values())
}  # fmt: skip


@pytest.mark.parametrize("case", FORM_CASES.values(), ids=FORM_CASES)
def test_a_form_and_what_it_replaces_both_compile(case: Alone) -> None:
    """Vela's cycles of both are printed (``-rP`` shows them); elsewhere the formulas decide."""
    target, graphs = target_of(case.target), [parse(text) for text in (case.before, case.after)]
    assert target.cost is not None
    if target.judge is None:
        before, after = (sum(map(target.cost, graph.ops)) for graph in graphs)
        assert after < before
        return
    cycles = [
        compile_graph(graph, VelaConfig(case.target)).result.performance.total_cycles
        for graph in graphs
    ]
    print(f"{case.name}: {cycles[0]:,} cycles before, {cycles[1]:,} after")
    assert all(cycles)


def test_the_example_of_contributing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file with a rewrite and one text file are all that it takes."""
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"as `src/tosaic/rewrite/absolute.py`:\n\n```python\n(.*?)```", page, re.S)
    (text,) = re.findall(r"```mlir\n(// absolute.*?)```", page, re.S)
    file, graphs = tmp_path / "absolute.py", tmp_path / "absolute.drop_second.mlir"
    file.write_text(code, encoding="utf-8")
    graphs.write_text(text, encoding="utf-8")
    name = "tosaic.rewrite.absolute"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(match, "_REWRITES", dict(match._REWRITES))
    spec.loader.exec_module(module)
    try:
        match.register((*MODULES, module))
        assert text_after(read(graphs)) == read(graphs).after
        net = lambda x: torch.abs(torch.abs(x))  # noqa: E731
        art = tosaic.compile(Function(net), (torch.randn(2, 3),), target="TOSA-1.0+FP")
        assert [op.name for op in art.partition.graphs[0].ops] == ["ABS"]
    finally:
        monkeypatch.undo()
        match.register(MODULES)


class Function(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)
