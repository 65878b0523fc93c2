"""Runs the scripts that ship with ExecuTorch's Arm backend with Tosaic's prefix in its place.

python tools/peer_scripts.py [WORD]   those whose name has the word in it, or all
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PEER, OURS = "executorch.backends.arm", "tosaic.executorch"
_AOT = "scripts/aot_arm_compiler.py"
_COMPILE = ("-m", "MODEL", "-t", "TARGET", "--delegate", "--quantize", "--output", "net.pte")
# A name, a script of the peer's, and how it is run; pytest where it has tests.
SCRIPTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Ethos-U flow", "test/public_api_bc/test_ethosu_flow.py", ("pytest",)),
    ("VGF flow, float", "test/public_api_bc/test_vgf_fp_flow.py", ("pytest",)),
    ("VGF flow, integers", "test/public_api_bc/test_vgf_int_flow.py", ("pytest",)),
    *(
        (f"aot_arm_compiler, {model} for {target}", _AOT,
         tuple({"MODEL": model, "TARGET": target}.get(word, word) for word in _COMPILE))
        for model, target in (("add", "ethos-u55-128"), ("softmax", "ethos-u85-256"),
                              ("add", "TOSA-1.0+INT"), ("linear", "ethos-u55-256"))
    ),
)  # fmt: skip


def replaced(text: str) -> str:
    """A script with our prefix; what it imports of its own kind of scripts stays the peer's."""
    return text.replace(f"{PEER}.", f"{OURS}.").replace(
        f"from {PEER} import", f"from {OURS} import"
    )


def run(script: Path, words: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    copy = folder / script.name
    copy.write_text(replaced(script.read_text(encoding="utf-8")), encoding="utf-8")
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), copy.name]
    more = command if words == ("pytest",) else [copy.name, *words]
    return subprocess.run(
        [sys.executable, *more], cwd=folder, text=True, capture_output=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip


def main() -> int:
    found = importlib.util.find_spec("executorch")
    if found is None or not found.submodule_search_locations:
        print("skipped: ExecuTorch is not installed")
        return 0
    peer = Path(found.submodule_search_locations[0]) / "backends" / "arm"
    wanted, failed = " ".join(sys.argv[1:]), 0
    for name, path, words in SCRIPTS:
        if wanted not in name:
            continue
        script = peer / path
        if not script.is_file():
            print(f"skipped  {name}: this ExecuTorch has no {path}")
            continue
        folder = Path(tempfile.mkdtemp(prefix="peer-"))
        done = run(script, words, folder)
        failed += done.returncode != 0
        print("ok      " if done.returncode == 0 else "FAILED  ", name, flush=True)
        if done.returncode:
            print("\n".join((done.stdout + done.stderr).splitlines()[-12:]))
        shutil.rmtree(folder, ignore_errors=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
