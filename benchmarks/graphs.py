"""What the networks of the zoo become: how often each TOSA operator is used, float and int8.

`graphs.py a.json` also writes the counts; `graphs.py a.json b.json` prints those that differ.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import tosaic  # noqa: E402
import zoo  # noqa: E402

TARGETS = {"float": "TOSA-1.0+FP", "int8": "TOSA-1.0+INT"}
Counts = dict[str, dict[str, int]]


def measured() -> Counts:
    """The operators of every network in every form."""
    found: Counts = {}
    for name in zoo.ZOO:
        net, example, calibration = zoo.build(name)
        for form, target in TARGETS.items():
            data = calibration[:4] if form == "int8" else None
            start = time.process_time()
            art = tosaic.compile(net, example, target=target, calibration=data)
            found[f"{name} {form}"] = dict(sorted(art.report.ops.items()))
            seconds = time.process_time() - start
            print(f"{name} {form}: {sum(art.report.ops.values())} operators, {seconds:.1f} s CPU")
            print("   ", ", ".join(f"{n} {op}" for op, n in sorted(art.report.ops.items())))
    return found


def compared(before: Counts, after: Counts) -> None:
    """The counts that differ, operator by operator."""
    for key in after:
        old, new = before.get(key, {}), after[key]
        print(f"{key}: {sum(old.values())} -> {sum(new.values())} operators")
        for op in sorted(old.keys() | new.keys()):
            if old.get(op, 0) != new.get(op, 0):
                print(f"    {op:<18}{old.get(op, 0):>5} -> {new.get(op, 0)}")


def main() -> int:
    paths = [Path(p) for p in sys.argv[1:]]
    if len(paths) == 2:
        compared(*(json.loads(p.read_text()) for p in paths))
        return 0
    counts = measured()
    for path in paths:
        path.write_text(json.dumps(counts, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
