"""Runs the ML SDK's model converter: a TOSA file becomes a ``.vgf``."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

from tosaic.errors import InvalidInput, ToolFailed, ToolMissing, first_line

PACKAGE = "ai_ml_sdk_model_converter"
VARIABLE = "MODEL_CONVERTER_PATH"
LIBRARIES = "MODEL_CONVERTER_LIB_DIR"
SECONDS = 120
_NAMES = ("model-converter", "model_converter")
_WAY = f'pip install "tosaic[vgf]", or name one in {VARIABLE}'


def find_converter() -> str:
    """The program: the one that the environment names, the wheel's own, or one on the path."""
    named = os.environ.get(VARIABLE, "")
    if named:
        found = shutil.which(named)
        if found is None:
            raise ToolMissing(f"{VARIABLE} names '{named}', which is no program")
        return found
    for path in (_of_wheel(), *(shutil.which(name) for name in _NAMES)):
        if path is not None:
            return path
    raise ToolMissing(f"the model converter is missing: {_WAY}")


def _of_wheel() -> str | None:
    """The wheel's program itself: its script would start Python first."""
    try:
        found = importlib.util.find_spec("model_converter")
    except (ImportError, ValueError):
        return None
    if found is None or found.origin is None:
        return None
    suffix = ".exe" if sys.platform == "win32" else ""
    path = Path(found.origin).parent / "binaries" / "bin" / f"model-converter{suffix}"
    return str(path) if os.access(path, os.X_OK) else None


def convert(
    tosa: bytes, flags: tuple[str, ...] = (), seconds: float = SECONDS, keeps: bool = True
) -> bytes:
    """The ``.vgf`` of a TOSA file; ToolFailed says why there is none, and how to see it again.

    The converter's default input is standard input, which it would wait for: it gets files.
    """
    program = find_converter()
    with tempfile.TemporaryDirectory(prefix="tosaic-vgf-") as folder:
        source, target = Path(folder, "graph.tosa"), Path(folder, "graph.vgf")
        source.write_bytes(tosa)
        command = [program, *flags, "-i", str(source), "-o", str(target)]
        try:
            ended = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds,
                cwd=folder, env=_environment(), check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            repeat = _kept(tosa, program, flags) if keeps else ""
            raise ToolMissing(
                f"the model converter gave no answer within {seconds:g} seconds{repeat}"
            ) from None
        except OSError as problem:
            reason = problem.strerror or first_line(problem)
            raise ToolMissing(f"the model converter '{program}' does not start: {reason}") from None
        if ended.returncode == 0 and target.is_file():
            return target.read_bytes()
        repeat = _kept(tosa, program, flags) if keeps else ""
        raise ToolFailed(f"the model converter {_said(ended)}{repeat}")


def checked_flags(given: object) -> tuple[str, ...]:
    """Flags of the converter's command line, as words."""
    words = shlex.split(given) if isinstance(given, str) else given
    if not isinstance(words, (list, tuple)) or not all(isinstance(w, str) for w in words):
        raise InvalidInput(f"converter_flags are words of a command line, not {given!r}")
    for word in words:
        if word.split("=")[0] in ("-i", "--input", "-o", "--output", "--tosa-flatbuffer"):
            raise InvalidInput(f"the converter's flag {word} is Tosaic's own to give")
    return tuple(words)


def _environment() -> dict[str, str] | None:
    """The environment with the folder of the converter's libraries, where one is named."""
    folder = os.environ.get(LIBRARIES)
    if not folder:
        return None
    before = os.environ.get("LD_LIBRARY_PATH", "")
    path = os.pathsep.join(filter(None, (folder, before)))
    return {**os.environ, "LD_LIBRARY_PATH": path}


def _said(ended: subprocess.CompletedProcess[bytes]) -> str:
    """How the converter ended, with its own first error; its warnings are about other things."""
    if ended.returncode == 0:
        return "ends without a file"
    lines = (ended.stderr + ended.stdout).decode(errors="replace").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("WARNING")]
    told = next((line for line in lines if "error:" in line.lower()), lines[0] if lines else "")
    words = told.split("error:")[-1].strip() or "it says nothing"
    how = f"ends by signal {-ended.returncode}" if ended.returncode < 0 else "refuses the graph"
    return f"{how}: {words}"


def _kept(tosa: bytes, program: str, flags: tuple[str, ...]) -> str:
    """Keep a graph that the converter fails on: the command that repeats it."""
    tag = sha256(tosa).hexdigest()[:12]
    try:
        if not os.path.isdir(_folder()):
            _folder.cache_clear()
        path = Path(_folder()) / f"failed_model_converter_input_{tag}.tosa"
        path.write_bytes(tosa)
    except OSError as problem:
        return f"; the graph cannot be kept: {first_line(problem)}"
    words = [program, *flags, "-i", str(path), "-o", str(path.with_suffix(".vgf"))]
    return f"; to repeat it: {shlex.join(words)}"


@cache
def _folder() -> str:
    """Where graphs are kept that the converter fails on: a folder of this process."""
    return tempfile.mkdtemp(prefix="tosaic-vgf-failed-")
