"""The project's own promises: bounded dependencies, one pin, files that name no machine."""

import ast
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")

FOLDERS = (".ci", "benchmarks", "docs", "examples", "src", "tests", "tools")
KINDS = {
    "", ".cfg", ".css", ".csv", ".html", ".ipynb", ".js", ".json", ".md", ".mlir", ".py", ".sh",
    ".toml", ".txt", ".yaml", ".yml",
}  # fmt: skip


def texts() -> Iterator[Path]:
    """Every text file of the project, generated and installed ones and git's own aside."""
    yield from (
        path
        for path in ROOT.iterdir()
        if path.is_file() and path.suffix in KINDS and path.name != ".git"  # of a worktree
    )
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            generated = "__pycache__" in path.parts or any("egg-info" in p for p in path.parts)
            if path.is_file() and path.suffix in KINDS and not generated:
                yield path


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    return [Requirement(line) for part in (PROJECT["dependencies"], *extras) for line in part]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_a_dependency_is_bounded_above(requirement: Requirement) -> None:
    operators = {specifier.operator for specifier in requirement.specifier}
    assert operators & {"==", "<", "<=", "~="}, f"{requirement} accepts any future version"


def test_torch_is_pinned_first_and_within_the_bounds() -> None:
    pin = re.search(r"^TORCH\s*=\s*torch==(\S+)$", MAKEFILE, re.MULTILINE)
    torch = next(line for line in requirements() if line.name == "torch")
    assert pin is not None
    assert Version(pin[1]) in torch.specifier
    assert MAKEFILE.index('install --quiet "$(TORCH)"') < MAKEFILE.index("--editable")


PROVIDERS = {
    "ethosu": "ethos-u-vela",
    "tosa": "tosa-tools",
    "tosa_reference_model": "tosa-tools",
    "tosa_serializer": "tosa-tools",
    "PIL": "pillow",
    "triton": "torch",  # with builds for CUDA
    "vgfpy": "ai_ml_sdk_vgf_library",
    "scenario_runner_py": "ai_ml_sdk_scenario_runner",
}


def foreign(source: str) -> set[str]:
    """Top-level names of the third-party packages that a source file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"tosaic"}


def test_what_the_product_imports_is_a_declared_dependency() -> None:
    declared = {requirement.name for requirement in requirements()}
    sources = (ROOT / "src").rglob("*.py")
    used = {name for path in sources for name in foreign(path.read_text("utf-8"))}
    assert {PROVIDERS.get(name, name) for name in used} - declared == set()


def test_third_party_imports_are_told_from_the_rest() -> None:
    source = "import os, numpy.linalg\nfrom tosa.Op import Op\nfrom . import x\nimport tosaic.ir"
    assert foreign(source) == {"numpy", "tosa"}


MACHINE = re.compile(r"(?<![\w.$)}])/(?:root|home|tmp|opt|work|mnt|Users)/")
HOST = re.compile(r"https?://|index-url|find-links|trusted-host")


@pytest.mark.parametrize("path", sorted(texts()), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_names_no_machine(path: Path) -> None:
    text = path.read_text("utf-8")
    assert MACHINE.search(text) is None
    if path.suffix in {"", ".sh", ".toml"} and path.name != "LICENSE":
        own = re.sub(r"(?ms)^\[project\.urls\].*?(?=^\[)", "", text)  # where the project is
        assert HOST.search(own) is None, "package hosts are the user's choice"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_a_command_in_the_documents_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    said = set(re.findall(r"`make ([a-z-]+)", (ROOT / name).read_text("utf-8")))
    assert said
    assert said <= targets


def test_continuous_integration_runs_what_a_contributor_runs() -> None:
    assert (ROOT / ".ci/run").read_text("utf-8").rstrip().endswith("make test")
    assert (ROOT / ".ci/run").stat().st_mode & 0o100, ".ci/run is not executable"


def test_the_line_counter_refuses_a_file_that_is_too_long(tmp_path: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools/lines.py"))
    (tmp_path / "ir").mkdir()
    (tmp_path / "ir/graph.py").write_text("x = 1\n" * 451)
    (tmp_path / "errors.py").write_text("x = 1\n" * 450)
    counted = tool["count"](tmp_path)
    assert counted == {Path("errors.py"): 450, Path("ir/graph.py"): 451}
    assert tool["too_long"](counted) == ["ir/graph.py: 451 lines, the limit is 450"]
    assert tool["table"](counted).splitlines()[-1].split() == ["total", "2", "901"]


def test_the_package_ships_its_types_and_its_licence() -> None:
    assert (ROOT / "src/tosaic/py.typed").is_file()
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")


def test_the_metadata_says_where_the_project_lives_and_for_whom_it_is() -> None:
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= {*PROJECT["urls"]}
    assert PROJECT["authors"]
    systems = {c for c in PROJECT["classifiers"] if c.startswith("Operating System")}
    assert len(systems) == 3
