"""``python -m tosaic.executorch.vgf.check_env``: what this machine lacks for VGF, and the way out.

``--aot`` is what compiling needs, ``--runtime`` what running on Vulkan needs, ``--host-emulator``
what running without hardware needs, ``--source-build`` what ExecuTorch's own runtime is built with.
The exit code is 1 where something is missing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import asdict

from tosaic.lowering.target import Finding
from tosaic.targets.vgf.doctor import PARTS, checks

_TOOLS = ("cmake", "c++", "glslc")


def main(argv: list[str] | None = None) -> int:
    """Print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tosaic.executorch.vgf.check_env")
    for part in (*PARTS, "source-build"):
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = vars(parser.parse_args(argv))
    chosen = [part for part in PARTS if given[part.replace("-", "_")]]
    builds = given["source_build"]
    found = checks(chosen or (() if builds else PARTS[:1]))
    found += [_tool(name) for name in _TOOLS] if builds else []
    if given["json"]:
        sys.stdout.write(json.dumps([asdict(each) for each in found], indent=2) + "\n")
    else:
        for each in found:
            way = f" → {each.way}" if each.way else ""
            sys.stdout.write(f"{each.state:<5} {each.name}: {each.told}{way}\n")
    return 1 if any(each.state == "FAIL" for each in found) else 0


def _tool(name: str) -> Finding:
    path = shutil.which(name)
    if path is not None:
        return Finding(name, "PASS", path)
    return Finding(name, "FAIL", "it is not on the path", f"install {name}")


if __name__ == "__main__":
    sys.exit(main())
