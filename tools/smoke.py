"""Builds the wheel and the source distribution, and tries the wheel in a fresh environment.

python tools/smoke.py                        with the newest versions that it allows
python tools/smoke.py --requirements lowest  with the lowest
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Lower bounds of pyproject.toml that have to be met exactly; pip cannot be told to prefer them.
_BOUND = re.compile(r'^    "([A-Za-z0-9_-]+)>=([0-9.]+)', re.MULTILINE)


def lowest() -> list[str]:
    """The lowest versions that the package allows."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    needed = text.partition("dependencies = [")[2].partition("\n]")[0]
    return [f"{name}=={version}.*" for name, version in _BOUND.findall(needed)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requirements", choices=["lowest", "newest"], default="newest")
    wanted = parser.parse_args().requirements
    folder = ROOT / "build" / f"smoke-{wanted}"
    venv.create(folder / "venv", with_pip=True, clear=True)
    python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def run(*words: str, cwd: Path = ROOT) -> None:
        print("+", *words, flush=True)
        subprocess.run([str(python), *words], cwd=cwd, check=True)

    run("-m", "pip", "install", "--quiet", "build")
    run("-m", "build", "--outdir", str(folder / "dist"))
    (wheel,) = sorted((folder / "dist").glob("*.whl"))
    bounds = folder / "constraints.txt"
    bounds.write_text("\n".join(lowest() if wanted == "lowest" else []), encoding="utf-8")
    run("-m", "pip", "install", "--quiet", "--constraint", str(bounds), str(wheel))
    run("-m", "pip", "list")
    run(str(ROOT / "tests" / "judges" / "installed.py"), str(folder), "state", cwd=folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
