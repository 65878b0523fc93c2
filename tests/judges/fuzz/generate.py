"""The generator of fuzzed programs: a seed becomes the text of a module."""

from __future__ import annotations

import warnings

import torch

from judges.fuzz import holes  # noqa: F401  (registers the holes)
from judges.fuzz.modules import LAYERS
from judges.fuzz.program import Program, load
from judges.fuzz.samples import sample
from judges.fuzz.states import in_place, state
from judges.fuzz.templates import FAMILIES
from judges.fuzz.writer import Abandoned, Retry, Writer

SEEDS = range(4)  # of inputs that calibrate a program
_WEIGHTS = {name: weight for name, (_, weight) in FAMILIES.items()}
_WEIGHTS |= {"layer": 22, "sample": 12, "write": 6, "state": 2}


def program(seed: int) -> Program:
    """A program that runs in eager PyTorch and gives finite values on its own inputs."""
    for attempt in range(100):
        made = _drawn(seed * 100 + attempt)
        if made is not None and runs(made):
            return made
    raise AssertionError(f"seed {seed} gives no program")


def _drawn(seed: int) -> Program | None:
    w = Writer(seed)
    for _ in range(int(w.one((1, 1, 1, 2, 2, 3)))):
        w.input()
    if w.chance(0.2):
        w.input("i")
    if w.chance(0.07):
        w.input("b")
    families, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    total = float(sum(weights))
    length, tries = int(2 + w.below(9) + (w.below(20) if w.chance(0.1) else 0)), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(w.statements) < length:
            tries += 1
            if tries > 400:
                return None
            family = str(w.random.choice(families, p=[x / total for x in weights]))
            try:
                _step(w, family)
            except Retry:
                continue
            except Abandoned:
                return None
    return w.program(_outputs(w)).without_unread()


def _step(w: Writer, family: str) -> None:
    if family == "layer":
        w.one(LAYERS)(w)
    elif family == "write":
        in_place(w)
    elif family == "sample":
        sample(w)
    elif family == "state":
        state(w)
    else:
        template = w.one(FAMILIES[family][0])
        results = 2 if template.startswith("2: ") else 1
        w.bind(w.fill(template.removeprefix("2: ")), results)


def _outputs(w: Writer) -> list[str]:
    """The last value, values that nothing reads, and now and then one that is read."""
    read = " ".join(s.text.partition(" = ")[2] or s.text for s in w.statements)
    made = [n for s in w.statements for n in s.makes]
    unread = [n for n in made if f"{n} " not in f"{read} " and n + "." not in read]
    loose = [n for n in unread if w.chance(0.6)]
    extra = [n for n in made if w.chance(0.08)]
    chosen = [n for n in made if n in {made[-1] if made else "", *loose, *extra}]
    if w.chance(0.04):
        chosen.append(w.one([*(i.name for i in w.inputs), *made]))  # an input, a result twice
    return chosen[-5:] or [w.inputs[0].name]


def runs(made: Program) -> bool:
    """Whether the text runs in eager PyTorch, with finite results on the calibration inputs."""
    try:
        results = load(made.text).results(SEEDS)
    except Exception:  # noqa: BLE001 - eager PyTorch refuses it
        return False
    return all(
        bool(t.double().isfinite().all())
        for row in results
        for t in row
        if isinstance(t, torch.Tensor)
    )
