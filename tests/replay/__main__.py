"""``make replay``: compile everything again and print what is emitted otherwise than before.

``--write`` keeps what is emitted now. Names of cases, as ``zoo/yolo`` or ``net/1*``, choose some.
``--since`` compiles nothing: it compares the file with that of another commit.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import zoo
from replay import kept
from replay.cases import CASES, Answer, replayed
from replay.rows import Row


def answers(names: Sequence[str], ranges: Mapping[str, str], jobs: int) -> Iterator[Answer]:
    """All cases, one process a core, as they end."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        todo = [pool.submit(replayed, name, ranges.get(name, "")) for name in names]
        for done in as_completed(todo):
            yield done.result()


def main() -> int:
    parser = argparse.ArgumentParser(prog="replay", description=__doc__)
    parser.add_argument("names", nargs="*", default=["*"], help="cases; all of them if none")
    parser.add_argument("--write", action="store_true", help="keep what is emitted now")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--since", help="a commit of git, whose file is compared with this one")
    given = parser.parse_args()
    if given.since:
        old, new = kept.load_rows(given.since), kept.load_rows()
        print("\n".join(kept.told({k: r for k, r in old.items() if k in new}, new)))
        return 0
    names = [name for name in CASES if _is_chosen(name, given.names)]
    old, ranges = kept.load_rows(), kept.load_ranges()
    before = {k: row for k, row in old.items() if _is_chosen(k.partition(",")[0], given.names)}
    others = {k: row for k, row in old.items() if k not in before}
    new, calibrated, last = dict[str, Row](), dict[str, int](), time.monotonic()
    for count, (name, rows, line, fresh) in enumerate(answers(names, ranges, given.jobs), 1):
        new |= rows
        if line:
            ranges[name] = line
        if fresh:
            calibrated[name] = fresh
        if time.monotonic() - last > 10:
            last = time.monotonic()
            print(f"{count} of {len(names)} cases", flush=True)
            if given.write:
                kept.save({**old, **new}, ranges)
    for line in kept.told(before, new):
        print(line)
    if calibrated:
        print(f"ranges that were not stored: {sum(calibrated.values())} of {len(calibrated)} cases")
    if kept.tool_differs():
        print(kept.tool_differs())
    same = before == new
    seconds = sum(os.times()[:4])
    print(f"{len(new)} rows of {len(names)} cases in {seconds:.0f} CPU seconds: "
          + ("all as they were" if same else "see above"))  # fmt: skip
    if given.write:
        kept.save({**others, **new}, ranges)
        return 0
    return 0 if same else 1


def _is_chosen(name: str, patterns: Sequence[str]) -> bool:
    """Whether a case is asked for; what needs a package that is not installed is left out."""
    kind, _, network = name.partition("/")
    if kind == "zoo" and network in zoo.ZOO and zoo.missing(network):
        return False
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


if __name__ == "__main__":
    sys.exit(main())
