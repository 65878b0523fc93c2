"""``make everywhere``: the same bytes from stored ranges, whatever the processor computes with.

Networks of the zoo are exported and calibrated once. Then processes with other instruction sets and
numbers of threads compile each of them for several targets from the file of ranges, and the hashes
of TOSA files and NPU streams are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch

import tosaic
import zoo
from tosaic.files.flatbuffer import write

Settings = Mapping[str, str]
SETTINGS: tuple[Settings, ...] = tuple(
    {"ATEN_CPU_CAPABILITY": aten, "ONEDNN_MAX_CPU_ISA": onednn, "OMP_NUM_THREADS": threads}
    for aten, onednn, threads in itertools.product(
        ("default", "avx2"), ("SSE41", "AVX2"), ("1", "2")
    )
)
TARGETS = (
    ("TOSA-1.0+INT", "int8"), ("TOSA-1.0+INT+int16", "a16w8"), ("TOSA-1.0+INT+int4", "a8w4"),
    ("ethos-u55-128", "int8"), ("ethos-u85-256", "int8"),
)  # fmt: skip


def prepare(name: str, folder: Path) -> None:
    """Export and calibrate a network of the zoo."""
    net, example, data = zoo.build(name)
    torch.export.save(torch.export.export(net, example), folder / f"{name}.pt2")
    torch.save(example, folder / f"{name}.pt")
    tosaic.calibrate(folder / f"{name}.pt2", example, calibration=data).save(
        folder / f"{name}.ranges.json"
    )


def hashes(name: str, folder: Path, targets: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What a network is compiled to from its ranges, for each target and scheme."""
    example, found = torch.load(folder / f"{name}.pt"), dict[str, str]()
    for target, scheme in targets:
        more = zoo.ZOO[name].extensions if target.startswith("TOSA") else ""
        digest = hashlib.sha256()
        art = tosaic.compile(
            folder / f"{name}.pt2", example, target=target + more, scheme=scheme,
            calibration=folder / f"{name}.ranges.json",
        )  # fmt: skip
        for graph in art.partition.graphs:
            digest.update(write(graph))
        for delegate in art.delegates:
            digest.update(delegate.result.command_stream + delegate.result.weights)
        found[f"{name} {target} {scheme}"] = digest.hexdigest()
    return found


def elsewhere(
    names: Sequence[str], folder: Path, settings: Settings, targets: Sequence[tuple[str, str]]
) -> dict[str, str]:
    """The same in a process with other settings."""
    search = os.pathsep.join(path for path in sys.path if path)
    words = [sys.executable, "-m", "judges.everywhere", "--child", json.dumps(targets),
             "--folder", str(folder), *names]  # fmt: skip
    run = subprocess.run(
        words, env={**os.environ, **settings, "PYTHONPATH": search}, capture_output=True, text=True
    )
    if run.returncode:
        raise RuntimeError(run.stderr[-2000:])
    found: dict[str, str] = json.loads(run.stdout.splitlines()[-1])
    return found


def _told(settings: Settings) -> str:
    return " ".join(settings.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="networks of the zoo; all of them if none")
    parser.add_argument("--folder", type=Path, help="where networks and ranges are kept")
    parser.add_argument("--quick", action="store_true", help="two settings, and TOSA alone")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.names or [name for name in zoo.ZOO if not zoo.missing(name)]
    warnings.simplefilter("ignore")
    if given.child:
        targets = [(target, scheme) for target, scheme in json.loads(given.child)]
        found = [hashes(name, given.folder, targets) for name in names]
        print(json.dumps({key: value for each in found for key, value in each.items()}))
        return 0
    with tempfile.TemporaryDirectory() as made:
        folder = given.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not (folder / f"{name}.ranges.json").exists():
                prepare(name, folder)
        if given.quick:
            return _compare(names, folder, (SETTINGS[0], SETTINGS[-1]), TARGETS[:3])
        return _compare(names, folder, SETTINGS, TARGETS)


def _compare(
    names: Sequence[str], folder: Path, settings: Sequence[Settings],
    targets: Sequence[tuple[str, str]],
) -> int:  # fmt: skip
    print("settings: " + ", ".join(map(_told, settings)))
    rows = [elsewhere(names, folder, each, targets) for each in settings]
    differing = 0
    for key in rows[0]:
        column = [row[key][:8] for row in rows]
        is_same = len(set(column)) == 1
        differing += not is_same
        print(f"{key:45}", "same " + column[0] if is_same else "DIFFERS " + " ".join(column))
    print(f"{differing} artifacts of {len(rows[0])} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
