"""``make conformance``: runs Tosaic on all generated tests and prints a table of the results."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from judges import recipes
from judges.recipes import Recipe, Size
from judges.suite import Tally, judge, work
from judges.systems import round_trip_system, tosaic_system

SETS = {
    "integer": recipes.INTEGER,
    "float": recipes.FLOAT,
    "errorif": recipes.ERRORIF,
    "1.1": recipes.BEYOND_1_0,
    "narrow": recipes.NARROW,
    "round-trip": (*recipes.INTEGER, *recipes.FLOAT, *recipes.BEYOND_1_0),
}
REFUSED_AT_LEAST = 0.95


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make conformance ARGS=…", description=__doc__)
    parser.add_argument("--set", choices=SETS, action="append", help="only this set (repeatable)")
    parser.add_argument("--operator", default="", help="only operators that contain this")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--show", type=int, default=40, help="how many failures to print")
    options = parser.parse_args(argv)
    ok = True
    for name in options.set or SETS:
        start = time.monotonic()
        chosen = [(r, o) for r, o in work(SETS[name]) if options.operator in o]
        again = name == "round-trip"
        tallies = list(_judged(chosen, options.size, options.processes, again))
        _print_table(name, tallies, time.monotonic() - start)
        _print_failures(tallies, options.show)
        ok &= _errorif_ok(tallies) if name == "errorif" else not any(t.failures for t in tallies)
    return 0 if ok else 1


def _judged(
    chosen: list[tuple[Recipe, str]], size: Size, processes: int, again: bool
) -> Iterator[Tally]:
    """The tallies in order; an operator that kills its process is named, and the rest goes on."""
    left = list(chosen)
    while left:
        try:
            for tally in _by_pool(left, size, processes, again):
                left.pop(0)
                yield tally
        except BrokenProcessPool:
            recipe, operator = left.pop(0)
            try:
                yield from _by_pool([(recipe, operator)], size, 1, again)
            except BrokenProcessPool:
                died = {operator: "the process died of one of this operator's tests"}
                yield Tally(recipe.name, operator, total=1, failures=died)


def _by_pool(
    chosen: list[tuple[Recipe, str]], size: Size, processes: int, again: bool
) -> Iterator[Tally]:
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_use_one_thread) as pool:
        jobs = [pool.submit(_judge_tosaic, *each, size, again) for each in chosen]
        for job in jobs:
            yield job.result()


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _judge_tosaic(recipe: Recipe, operator: str, size: Size, again: bool) -> Tally:
    return judge(recipe, operator, size, round_trip_system() if again else tosaic_system())


def _print_table(name: str, tallies: list[Tally], seconds: float) -> None:
    rows: dict[str, list[int]] = {}
    for tally in tallies:
        row = rows.setdefault(tally.operator, [0, 0, 0])
        row[0] += tally.total
        row[1] += tally.passed
        row[2] += len(tally.failures)
    print(f"\n{name}\n{'operator':<26}{'tests':>8}{'passed':>8}{'failed':>8}")
    for operator, (total, passed, failed) in sorted(rows.items()):
        print(f"{operator:<26}{total:>8}{passed:>8}{failed or '':>8}")
    total, passed, failed = (sum(column) for column in zip(*rows.values(), strict=True))
    print(f"{'all':<26}{total:>8}{passed:>8}{failed:>8}   {passed / total:.2%}, {seconds:.0f} s")
    varied = sum(t.varied for t in tallies)
    constant = sum(t.constant for t in tallies)
    if varied:
        print(f"{varied} expected outputs of more than one element vary, {constant} do not")
    _print_error_rates(tallies)


def _print_error_rates(tallies: Iterable[Tally]) -> None:
    tried: Counter[str] = Counter()
    survived: Counter[str] = Counter()
    for tally in tallies:
        tried.update(tally.by_error)
        survived.update(tally.survived)
    for error, count in sorted(tried.items()):
        rate = (count - survived[error]) / count
        print(f"  {error:<44}{count - survived[error]:>6} of {count:>5} refused  {rate:>7.1%}")


def _print_failures(tallies: Iterable[Tally], most: int) -> None:
    failures = [(name, reason) for tally in tallies for name, reason in tally.failures.items()]
    for name, reason in failures[:most]:
        print(f"  FAILED {name}: {reason[:300]}")
    if len(failures) > most:
        print(f"  … and {len(failures) - most} more")


def _errorif_ok(tallies: list[Tally]) -> bool:
    return sum(t.passed for t in tallies) >= REFUSED_AT_LEAST * sum(t.total for t in tallies)


if __name__ == "__main__":
    sys.exit(main())
