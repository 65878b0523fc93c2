"""Deliberate faults in the simulator: its package imported anew with one line changed.

A mutant names a module, a piece of its source that occurs once, what stands there instead, and the
families that must notice. The package is imported a second time with that change and thrown away.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "tosaic.sim.ethosu"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: ``old`` occurs once in the module and becomes ``new``."""

    what: str
    module: str
    old: str
    new: str
    caught_by: tuple[str, ...]

    def __str__(self) -> str:
        return self.what


def source(module: str) -> str:
    found = importlib.util.find_spec(f"{PACKAGE}.{module}")
    if found is None or found.origin is None:
        raise LookupError(f"the simulator has no module {module}")
    return Path(found.origin).read_text()


def changed(mutant: Mutant) -> str:
    """The module's source with the fault."""
    text = source(mutant.module)
    count = text.count(mutant.old)
    if count != 1:
        raise LookupError(f"{mutant.module} has {mutant.old!r} {count} times instead of once")
    return text.replace(mutant.old, mutant.new)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module of the package another source."""

    def __init__(self, name: str, text: str, spec: importlib.machinery.ModuleSpec) -> None:
        self.name, self.text, self.spec = name, text, spec

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if name != self.name:
            return None
        package = self.spec.submodule_search_locations is not None
        return importlib.util.spec_from_loader(
            name, self, origin=self.spec.origin, is_package=package
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.text, f"<mutant of {self.name}>", "exec"), module.__dict__)


def _ours() -> list[str]:
    return [n for n in sys.modules if n == PACKAGE or n.startswith(f"{PACKAGE}.")]


@contextmanager
def imported(mutant: Mutant) -> Iterator[ModuleType]:
    """The simulator's package with the fault, beside the right one that tests keep using."""
    name = f"{PACKAGE}.{mutant.module}"
    text, spec = changed(mutant), importlib.util.find_spec(name)
    assert spec is not None
    parent = importlib.import_module(PACKAGE.rpartition(".")[0])
    kept = {n: sys.modules.pop(n) for n in _ours()}
    finder = _Finder(name, text, spec)
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(PACKAGE)
    finally:
        sys.meta_path.remove(finder)
        for n in _ours():
            del sys.modules[n]
        sys.modules.update(kept)
        if PACKAGE in kept:
            setattr(parent, PACKAGE.rpartition(".")[2], kept[PACKAGE])
