"""Imports point one way: lower layers know nothing of higher ones.

Each folder has a rank of its own, so that two folders never import one another.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "tosaic"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",), ("runtime",), ("spec",), ("ir",), ("files",), ("interp",), ("rewrite",),
    ("sim",), ("front",), ("boundary",), ("passes",), ("lowering",), ("rules",), ("quant",),
    ("targets",), ("pipeline",), ("report",), ("firmware",), ("executorch",), ("search",),
    ("__init__",),
    ("cli", "__main__"),
)  # fmt: skip
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

WITHOUT_TORCH = ("errors", "spec", "ir", "files")

FORBIDDEN = ("executorch.backends.arm", "executorch.backends.cortex_m")
"""The backend that Tosaic stands beside: no module may lean on it."""


@dataclass(frozen=True)
class Import:
    module: str
    """Absolute dotted name of what is imported."""
    line: int

    def within(self, *packages: str) -> bool:
        return any(self.module == name or self.module.startswith(name + ".") for name in packages)


def imports(source: str, path: Path) -> Iterator[Import]:
    """Every import of the file at `path` (relative to the package), lazy ones included."""
    parents = ("tosaic", *path.parts[:-1])
    for node in ast.walk(ast.parse(source, str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            above = parents[: len(parents) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from package import name` may name a module: the longer name is checked too.
            yield from (Import(f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield Import(argument.value, node.lineno)


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def layer(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def target_layer(module: str) -> str:
    """The layer a `tosaic...` name belongs to; names that are no layer live in `__init__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in RANK else "__init__"


def violations(source: str, path: Path) -> list[str]:
    """One sentence for each import in `source` that the design does not allow."""
    own = layer(path)
    if own not in RANK:
        return [f"{path}: '{own}' has no layer; give it one in tests/test_layering.py"]
    found = []
    for item in imports(source, path):
        place = f"{path}:{item.line}: {item.module}"
        if item.within("tosaic"):
            other = target_layer(item.module)
            if RANK[other] > RANK[own]:
                found.append(f"{place}: {own} is below {other} and must not import it")
        if item.within(*FORBIDDEN):
            found.append(f"{place}: nothing in src imports the existing Arm backends")
        elif item.within("executorch") and RANK[own] <= RANK["rewrite"]:
            found.append(f"{place}: {own} must not import executorch")
        if own == "rules" and item.within("tosaic.rewrite"):
            found.append(f"{place}: rules and rewrites share arithmetic in ir, not each other")
        if item.within("torch", "torchao") and own in WITHOUT_TORCH:
            found.append(f"{place}: {own} must not import torch")
    return found


SOURCES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_imports_point_down_only(path: Path) -> None:
    assert violations((SOURCE / path).read_text(encoding="utf-8"), path) == []


def test_there_are_sources_to_check() -> None:
    assert Path("__init__.py") in SOURCES


BAD = [
    ("spec/table.py", "import tosaic.ir.graph", "spec is below ir"),
    ("spec/table.py", "from tosaic.ir import graph", "spec is below ir"),
    ("spec/table.py", "from ..ir.graph import Value", "spec is below ir"),
    ("spec/table.py", "from .. import ir", "spec is below ir"),
    ("spec/deep/er.py", "from ...ir.graph import Value", "spec is below ir"),
    ("spec/table.py", "from tosaic import load", "spec is below __init__"),
    ("ir/graph.py", "def f():\n    from tosaic.interp import run", "ir is below interp"),
    ("ir/graph.py", "import importlib\nimportlib.import_module('tosaic.cli')", "ir is below cli"),
    ("ir/graph.py", "if TYPE_CHECKING:\n    from tosaic.front import walk", "ir is below front"),
    ("errors.py", "from .spec import dtypes", "errors is below spec"),
    ("rewrite/fold.py", "from tosaic.rules import conv", "rewrite is below rules"),
    ("rules/conv.py", "from tosaic.rewrite.layout import sink", "share arithmetic in ir"),
    ("quant/schemes.py", "from tosaic.report import text", "quant is below report"),
    ("__init__.py", "import tosaic.cli", "__init__ is below cli"),
    ("sim/qemu.py", "from executorch.backends.arm import ethosu", "existing Arm backends"),
    ("executorch/a.py", "import executorch.backends.cortex_m.passes", "existing Arm backends"),
    ("executorch/a.py", "from executorch.backends import arm", "existing Arm backends"),
    ("interp/plan.py", "import executorch.exir", "interp must not import executorch"),
    ("rewrite/fold.py", "from executorch import exir", "rewrite must not import executorch"),
    ("spec/dtypes.py", "import torch", "spec must not import torch"),
    ("ir/consts.py", "from torch.nn import Module", "ir must not import torch"),
    ("files/text.py", "def f():\n    import torch", "files must not import torch"),
    ("utils.py", "", "has no layer"),
    ("helpers/misc.py", "", "has no layer"),
]


@pytest.mark.parametrize(("path", "source", "sentence"), BAD)
def test_a_forbidden_import_is_caught(path: str, source: str, sentence: str) -> None:
    assert [sentence in found for found in violations(source, Path(path))] == [True]


GOOD = [
    ("ir/graph.py", "from tosaic.spec import dtypes\nfrom ..errors import InvalidGraph"),
    ("ir/graph.py", "from . import consts\nfrom .consts import Const\nimport numpy as np"),
    ("spec/table.py", "import torchlike, executorchlike"),
    ("interp/plan.py", "import torch\nfrom tosaic.files.flatbuffer import read"),
    ("executorch/spec.py", "from executorch.exir import lowered\nfrom tosaic.targets import vgf"),
    ("cli.py", "import tosaic\nfrom .files import flatbuffer"),
    ("__main__.py", "from tosaic import load"),
]


@pytest.mark.parametrize(("path", "source"), GOOD)
def test_an_allowed_import_is_not_refused(path: str, source: str) -> None:
    assert violations(source, Path(path)) == []


IMPORT = """
import time
start = time.process_time()
import tosaic
spent = time.process_time() - start
import sys
heavy = {"torch", "torchao", "executorch", "ethosu", "tosa_reference_model", "tosa_serializer"}
print(spent, *sorted(heavy & set(sys.modules)))
"""


def test_importing_tosaic_is_light() -> None:
    """No torch and no tool is loaded, and the import takes under half a second of one core."""
    spent = []
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        seconds, *heavy = run.stdout.split()
        assert heavy == []
        spent.append(float(seconds))
    assert min(spent) < 0.5
