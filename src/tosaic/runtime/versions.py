"""Versions of installed packages, as reports state them."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata

_PACKAGES = ("tosaic", "torch", "torchao", "numpy", "executorch")


def versions(more: Iterable[str] = ()) -> dict[str, str]:
    """What is installed of the packages that a compilation depends on, and Python."""
    found: dict[str, str] = {}
    for package in (*_PACKAGES, *more):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    system = f"{platform.system()} {platform.machine()}"
    return {**found, "Python": f"{platform.python_version()} on {system}"}
