"""Asks the installed Vela about every form of operator, and prints what changed.

The forms are in tests/judges/velaforms.py, the answers of the version that Tosaic knows in
tests/judges/vela_answers.csv. ``--quick`` leaves the slow forms out, ``--update`` writes the
answers down, and words after the options pick forms whose names contain one of them. Forms run
in a process of their own, for some of them end it.

    PYTHONPATH=src:tests python tools/probe_vela.py --quick
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import sys
from collections.abc import Iterator
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path

from judges.velaforms import Form, forms
from tosaic.errors import ToolFailed
from tosaic.targets.ethosu.vela import VelaConfig, run_vela

ANSWERS = Path(__file__).resolve().parent.parent / "tests" / "judges" / "vela_answers.csv"
TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
PATIENCE = 30.0  # seconds; what takes longer would make a user wait for hours
Answers = dict[tuple[str, str], str]


def _serve(pipe: Connection) -> None:
    """Compile what comes through a pipe, and answer in one word."""
    while True:
        target, tosa = pipe.recv()
        try:
            run_vela(tosa, VelaConfig(target))
            pipe.send("npu")
        except ToolFailed as refusal:
            words = refusal.reason.partition("(")[2].partition(")")[0]
            pipe.send(f"refused {words}" if "could not run on NPU" in str(refusal) else "invalid")


class Asker:
    """Asks in another process, which is made anew when it ends or does not answer."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, form: Form, target: str) -> str:
        if self._process is None or not self._process.is_alive():
            context = multiprocessing.get_context("fork")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        assert self._pipe is not None
        self._pipe.send((target, form.tosa()))
        try:
            if self._pipe.poll(PATIENCE):
                return str(self._pipe.recv())
        except EOFError:
            self.close()
            return "crash"
        self.close()
        return "no answer"

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def read_answers() -> tuple[str, Answers]:
    """The version of Vela that was asked, and what it said to (form, target)."""
    with open(ANSWERS, encoding="utf-8", newline="") as file:
        (_, known), _, *rows = csv.reader(file)
    return known, {
        (name, target): answer
        for name, *answers in rows
        for target, answer in zip(TARGETS, answers, strict=True)
    }


def _write(found: Answers, names: list[str]) -> None:
    with open(ANSWERS, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("ethos-u-vela", version("ethos-u-vela")))
        writer.writerow(("form", *TARGETS))
        writer.writerows((name, *(found[name, target] for target in TARGETS)) for name in names)


def _picked(words: list[str], quick: bool) -> Iterator[Form]:
    for form in forms():
        if not (quick and form.slow) and (not words or any(w in form.name for w in words)):
            yield form


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave slow forms out")
    parser.add_argument("--update", action="store_true", help="write the answers down")
    parser.add_argument("words", nargs="*", help="parts of the names of forms")
    options = parser.parse_args()
    asker, found = Asker(), {}
    chosen = list(_picked(options.words, options.quick))
    for form in chosen:
        for target in TARGETS:
            found[form.name, target] = asker.ask(form, target)
    asker.close()
    known, before = read_answers() if ANSWERS.exists() else ("", {})
    print(f"Vela {version('ethos-u-vela')}; {len(found):,} answers; known: Vela {known}")
    changed = {key: answer for key, answer in found.items() if before.get(key) != answer}
    for (name, target), answer in changed.items():
        print(f"{target:<14} {name}: {before.get((name, target), 'not asked')} -> {answer}")
    if options.update:
        names = [form.name for form in forms()]
        _write(before | found, names)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
