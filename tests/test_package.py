"""The package as users get it: the wheel alone, with what it declares to need and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import warnings
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest

from tosaic.front.torchapi.tried import TRIED, warn_if_untried

ROOT = Path(__file__).resolve().parents[1]
# Imports of what is installed here for the tests alone fail as they do where it is not.
HIDING = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in NAMES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    script = (
        "import sys; from setuptools import build_meta as b; to = sys.argv[1];"
        "b.build_wheel(to); b.build_sdist(to)"
    )
    copy = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], cwd=copy, capture_output=True, text=True
    )
    if "No module named 'setuptools'" in done.stderr:
        pytest.skip("no setuptools here to build with")
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def needed(requirements):
    """Names of the installed distributions that requirements lead to, without extras."""
    found, waiting = set(), list(requirements)
    while waiting:
        text = waiting.pop()
        if "extra ==" in text:
            continue
        name = re.split(r"[\s<>=!~;\[(]", text, maxsplit=1)[0].lower().replace("_", "-")
        if name not in found:
            found.add(name)
            try:
                waiting += metadata.distribution(name).requires or []
            except metadata.PackageNotFoundError:
                continue
    return found


def test_the_wheel_alone_compiles_runs_and_reports(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as files:
        files.extractall(site)
    (info,) = site.glob("*.dist-info")
    told = Parser().parsestr((info / "METADATA").read_text(encoding="utf-8"))
    allowed = needed(told.get_all("Requires-Dist"))
    assert "tosa-tools" not in allowed
    modules = metadata.packages_distributions().items()
    own = {"tosaic", *sys.stdlib_module_names}
    hidden = {
        module for module, packages in modules
        if module not in own and allowed.isdisjoint(p.lower().replace("_", "-") for p in packages)
    }  # fmt: skip
    assert {"tosa_serializer", "pytest", "hypothesis"} & hidden or not hidden
    (site / "sitecustomize.py").write_text(f"NAMES = {hidden!r}\n{HIDING}")
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "judges" / "installed.py"), str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    assert f"installed from {site}" in run.stdout


def test_what_is_in_the_wheel_and_the_source_distribution(built):
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        text = files.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    assert {n.partition("/")[0] for n in names if ".dist-info" not in n} == {"tosaic"}
    assert "tosaic/py.typed" in names
    assert "tosaic/report/assets/page.html" in names
    told = Parser().parsestr(text)
    labels = {text.partition(",")[0] for text in told.get_all("Project-URL")}
    assert {"Source", "Issues", "Changelog", "Documentation"} <= labels
    assert told["Author"]
    assert len(told.get_all("Classifier")) > 10
    with tarfile.open(source) as files:
        inside = {name.partition("/")[2] for name in files.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/tosaic/__init__.py"} <= inside


@pytest.mark.parametrize("file", ["CHANGELOG.md", "SECURITY.md", "docs/api-policy.md",
                                  ".pre-commit-config.yaml"])  # fmt: skip
def test_what_people_look_for_in_a_repository_is_there(file):
    assert (ROOT / file).read_text(encoding="utf-8").strip()


def test_workflows_and_hooks_call_make_targets_that_exist():
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    files = [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / ".pre-commit-config.yaml"]
    texts = [file.read_text(encoding="utf-8") for file in files]
    used = {word for text in texts for word in re.findall(r"(?:run|entry): make ([a-z-]+)", text)}
    assert {"test", "smoke", "lint", "types"} <= used <= made


def test_an_untried_torch_is_warned_about_once():
    warn_if_untried.cache_clear()
    with pytest.warns(UserWarning, match="torch 3.0.1 has not been tried"):
        warn_if_untried("3.0.1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_untried("3.0.1")
        warn_if_untried(f"{TRIED[0]}.0+cpu")
