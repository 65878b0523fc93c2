"""Arguments and options that commands have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tosaic.cli.boundary import HELP
from tosaic.cli.examples import NAMES
from tosaic.errors import InvalidInput
from tosaic.targets.family import bytes_of


def _targets(incomplete: str) -> list[str]:
    from tosaic.targets.catalog import names  # which loads neither torch nor a compiler

    return [name for name in names() if name.lower().startswith(incomplete.lower())]


def _schemes(incomplete: str) -> list[str]:
    kinds = ("int8", "a16w8", "a8w4")
    blocks = ("mxfp8", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "mxint8")
    known = (*kinds, *(f"{kind}_per_tensor" for kind in kinds), *blocks)
    return [name for name in known if name.startswith(incomplete)]


def _models(incomplete: str) -> list[str]:
    folder = Path(incomplete).parent
    found = [str(f) for suffix in ("py", "pt2") for f in folder.glob(f"*.{suffix}")]
    return [name for name in (*NAMES, *sorted(found)) if name.startswith(incomplete)]


MODEL = (
    "file.py[:name] (a module, or a function that gives module and inputs), file.pt2, or an "
    f"example: {', '.join(NAMES)}"
)
_DATA = ".npy, .npz, a folder of them, .pt, or file.py:name (an iterable)"
_STRICT = "exit with 1 if a call stays in PyTorch"

Model = Annotated[
    str, typer.Argument(help=MODEL, show_default=False, autocompletion=_models, metavar="MODEL")
]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        help="TOSA-1.0+INT, … (`tosaic targets` lists them)",
        autocompletion=_targets,
    ),
]
Build = Annotated[
    list[str] | None, typer.Option(help="an option of an image's CMake, as UNDEFINED_TRAPS=ON")
]
Timeout = Annotated[float, typer.Option(help="seconds that an image may run", min=0.1)]
Shape = Annotated[list[str] | None, typer.Option(help="of an input, as 1,3,224,224")]
Calibration = Annotated[
    str | None, typer.Option(help=f"{_DATA}; or a .json that `tosaic calibrate` has written")
]
Data = Annotated[
    str | None,
    typer.Argument(help=f"{_DATA}; without it the model's own", show_default=False, metavar="DATA"),
]
Scheme = Annotated[
    str | None,
    typer.Option(
        help="int8 (default), a16w8, a8w4, mxfp8 …, auto, or a .json of `tosaic tune`",
        autocompletion=_schemes,
    ),
]
Goal = Annotated[
    str | None,
    typer.Option(help="of --scheme auto: sqnr=30 (decibels), cycles=..., sram=... (bytes)"),
]
Budget = Annotated[float | None, typer.Option("--budget", help="seconds for --scheme auto")]
Io = Annotated[list[str] | None, typer.Option("--io", help=HELP)]
Strict = Annotated[bool, typer.Option("--strict", help=_STRICT)]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print nothing but errors")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help=".pte, .bpte, .tosa, .mlir, .h, .html, .json"),
]
Report = Annotated[Path | None, typer.Option(help="an .html page to look at")]
VelaIni = Annotated[str | None, typer.Option(help="a Vela configuration file of your own")]
SystemConfig = Annotated[str | None, typer.Option(help="a System_Config of Vela's")]
MemoryMode = Annotated[str | None, typer.Option(help="a Memory_Mode of Vela's")]
Option = Annotated[
    list[str] | None,
    typer.Option("--option", "-O", help="an option of the target's own, as name=value"),
]
PrintAfter = Annotated[
    str | None,
    typer.Option(
        "--print-after",
        metavar="PHASE[:FILE]",
        help="print the program after a phase, to a file or standard error; `list` names them",
    ),
]
Timing = Annotated[
    bool, typer.Option("--timing", help="print how long each phase of the compilation took")
]
MaxScratch = Annotated[str | None, typer.Option(help="bytes of the arena, as 384K or 2M")]
MaxFlash = Annotated[str | None, typer.Option(help="bytes of weights and stream")]


def target_options(
    more: list[str] | None, vela_ini: str | None, system_config: str | None,
    memory_mode: str | None, max_scratch: str | None, max_flash: str | None,
) -> dict[str, Any]:  # fmt: skip
    """What was given of a target's options, by the names that ``tosaic.compile`` has for them."""
    given: dict[str, Any] = {
        "vela_ini": vela_ini,
        "system_config": system_config,
        "memory_mode": memory_mode,
        "max_scratch_bytes": bytes_of(max_scratch) if max_scratch is not None else None,
        "max_flash_bytes": bytes_of(max_flash) if max_flash is not None else None,
    }
    for text in more or []:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidInput(f"--option is name=value, not '{text}'")
        given[name] = value
    return {name: value for name, value in given.items() if value is not None}


def goal_of(text: str | None) -> Any:
    """``sqnr=30`` as a goal of automatic precision."""
    from tosaic.pipeline.goals import Goal as Made

    if text is None:
        return None
    name, _, number = text.partition("=")
    kinds: dict[str, Any] = {"sqnr": float, "cycles": int, "sram": int}
    try:
        return Made(**{name: kinds[name](number)})
    except (KeyError, ValueError):
        raise InvalidInput(
            f"a goal is sqnr=DECIBELS, cycles=NUMBER or sram=BYTES, not {text!r}"
        ) from None


def scheme_of(text: str | None) -> Any:
    """A scheme by its name, or the schemes of single calls from a file."""
    if text is None or not text.endswith(".json"):
        return text
    from tosaic.quant.selection import Schemes

    try:
        found = json.loads(Path(text).read_text(encoding="utf-8"))
        return Schemes(found["global"], nodes=dict(found["nodes"]))
    except OSError:
        raise InvalidInput(f"there is no file '{text}'") from None
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"'{text}' holds no schemes, as `tosaic tune` writes them") from None
