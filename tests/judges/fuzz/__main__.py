"""``python -m judges.fuzz``: programs that a generator writes, judged on every target.

``--seed N --target u55`` repeats one of them, ``--file`` one that was saved; ``--show`` prints it.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from pathlib import Path

from judges.fuzz.case import Case
from judges.fuzz.generate import program
from judges.fuzz.judge import CONFIGURATIONS
from judges.fuzz.run import fuzz, limited, reduce


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="programs")
    parser.add_argument("--minutes", type=float, default=math.inf, help="time, whatever the count")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--target", nargs="*", choices=(*CONFIGURATIONS, "all"), default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--seed", type=int, help="one program")
    parser.add_argument("--file", type=Path, help="a program that was saved")
    parser.add_argument("--show", action="store_true", help="print the program")
    parser.add_argument("--reduce", action="store_true", help="print it as small as it gets")
    options = parser.parse_args()
    given = list(CONFIGURATIONS) if "all" in options.target else options.target
    if options.seed is not None or options.file is not None:
        return _one(options, given or list(CONFIGURATIONS))
    seeds = itertools.count(options.first)
    some = itertools.islice(seeds, options.count)
    summary = fuzz(some, given or None, options.jobs, options.minutes, options.folder)
    print(summary)
    (options.folder / "summary.txt").write_text(f"{summary}\n")
    return 1 if summary.faults else 0


def _one(options: argparse.Namespace, configurations: list[str]) -> int:
    text = options.file.read_text() if options.file else program(options.seed).text
    if options.show:
        print(text)
    case, wrong = Case(text), 0
    for configuration in configurations:
        verdict = limited(case, configuration)
        wrong += len(verdict.faults)
        for finding in (*verdict.faults, *verdict.listed):
            listed = "listed: " if finding in verdict.listed else ""
            print(f"{configuration}: {listed}{finding.kind}: {finding.told}")
            if options.reduce and options.seed is not None:
                print(reduce(program(options.seed), configuration, finding).text)
        if not verdict.faults:
            print(f"{configuration}: no fault")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
