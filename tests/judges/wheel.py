"""Where the tosa-tools wheel keeps its programs, and how to call them quietly and fast."""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@cache
def site_packages() -> Path:
    return Path(str(metadata.distribution("tosa-tools").locate_file("")))


@cache
def version() -> str:
    return metadata.version("tosa-tools")


@cache
def program(name: str) -> str:
    """The native binary; the console script of that name only adds an interpreter's start."""
    return str(site_packages() / "bin" / name)


@cache
def library(name: str) -> Path:
    return site_packages() / "tosa_reference_model" / f"libtosa_reference_{name}_lib.so"


@cache
def without_gdb() -> dict[str, str]:
    """An environment for the reference model, which forks gdb on a bad graph if it finds one."""
    return {**os.environ, "PATH": "/nonexistent"}


@cache
def skip_schema_validation() -> None:
    """Stop the wheel from checking its own JSON schema on every tensor: 95 % of all its time."""
    from schemavalidation.schemavalidation import TestDescSchemaValidator

    def accept(self: Any, config: object, schema_type: object = None) -> None:
        return None

    TestDescSchemaValidator.validate_config = accept
