"""The long run of the NPU simulator: families of graphs, damaged streams, whole networks.

``make simulate`` is this. In the table of families each row is a family and each column an
accelerator; a cell says how many of its graphs are bit-exact with the reference model. What
differs is listed below it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from npu.configurations import ACCELERATORS
from npu.families import case, families
from npu.fuzz import run_apart
from npu.networks import NETWORKS, configurations, judge_network
from npu.runner import judge

_CHUNK = 10  # graphs that a worker takes at a time

Task = tuple[str, str, int, int]
Outcome = tuple[str, str, str]  # family, accelerator, what is wrong


def _outcomes(task: Task) -> list[Outcome]:
    name, machine, first, last = task
    results = []
    for index in range(first, last):
        given = case(name, machine, index)
        problem = judge(given)
        words = f"{given}: {problem}" if problem else ""
        results.append((name, given.configuration.accelerator, words))
    return results


def _quiet() -> None:
    """The reference model writes to the file descriptors themselves."""
    sink = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(sink, descriptor)


def run(count: int, jobs: int, only: list[str]) -> list[Outcome]:
    """All graphs of all families, in worker processes."""
    tasks = [
        (f.name, machine, first, min(first + _CHUNK, count))
        for machine in ACCELERATORS
        for f in families(machine)
        if not only or f.name in only
        for first in range(0, count, _CHUNK)
    ]
    with ProcessPoolExecutor(jobs, initializer=_quiet) as pool:
        return [outcome for part in pool.map(_outcomes, tasks) for outcome in part]


def table(outcomes: list[Outcome]) -> str:
    """Family by accelerator: bit-exact of all."""
    total = Counter((name, where) for name, where, _ in outcomes)
    passed = Counter((name, where) for name, where, problem in outcomes if not problem)
    columns = [a for names in ACCELERATORS.values() for a in names]
    lines = [" " * 26 + "".join(f"{c:>10}" for c in columns) + f"{'all':>12}"]
    for name in dict.fromkeys(name for name, _, _ in outcomes):
        cells = [(passed[name, c], total[name, c]) for c in columns]
        every = sum(p for p, _ in cells), sum(t for _, t in cells)
        row = "".join(f"{f'{p}/{t}' if t else '-':>10}" for p, t in cells)
        lines.append(f"{name:<26}{row}{f'{every[0]}/{every[1]}':>12}")
    return "\n".join(lines)


def run_families(count: int, jobs: int, only: list[str]) -> bool:
    """Print the table of families; are all graphs bit-exact?"""
    start = time.monotonic()
    outcomes = run(count, jobs, only)
    print(table(outcomes))
    wrong = [problem for _, _, problem in outcomes if problem]
    for problem in wrong:
        print(problem)
    seconds = time.monotonic() - start
    right = len(outcomes) - len(wrong)
    print(f"{right:,} of {len(outcomes):,} graphs bit-exact, {seconds:.0f} s\n", flush=True)
    return not wrong


def run_damaged(count: int, jobs: int) -> bool:
    """Print what becomes of damaged streams; is each refused or run?"""
    size = 1000
    firsts = range(0, count, size)
    fine = True
    with ThreadPoolExecutor(jobs) as pool:
        parts = pool.map(lambda first: run_apart(first, min(size, count - first)), firsts)
        for first, (right, words) in zip(firsts, parts):
            print(f"damaged streams from {first}: {words.strip()}", flush=True)
            fine &= right
    print()
    return fine


def run_networks(names: list[str]) -> bool:
    """Print how whole networks do on each machine; is each bit-exact?"""
    fine = True
    for name in names:
        for where in configurations():
            problem = judge_network(name, where)
            print(f"{name:<20} {where}: {problem or 'bit-exact'}", flush=True)
            fine &= not problem
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="graphs of a family on a machine")
    parser.add_argument("--damaged", type=int, default=20000, help="damaged streams")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[], help="families")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    options = parser.parse_args()
    fine = [
        run_families(options.count, options.jobs, options.only),
        run_damaged(options.damaged, options.jobs),
        run_networks(options.networks),
    ]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
