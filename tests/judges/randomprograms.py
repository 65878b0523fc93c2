"""Random programs, composed of the registry's own samples.

A step takes a sample of any rule and feeds it with earlier results, brought to the shapes it wants
by views, slices and repeats; residuals join results of one shape. ``python -m
judges.randomprograms`` runs any number of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tosaic
import tosaic.rules
from judges.programs import assert_same, compiled, random_input
from judges.reference import run_reference
from tosaic.errors import Unpredictable
from tosaic.front.samples import Case, cases
from tosaic.ir.graph import Graph
from tosaic.targets.artifact import Artifact
from tosaic.targets.catalog import target_of
from tosaic.targets.lowering import lowered

FLOAT, INTEGER, WIDE = "TOSA-1.0+FP", "TOSA-1.0+INT", "TOSA-1.0+INT+int16"
TARGETS = (FLOAT, INTEGER, WIDE, "ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
LARGEST = 1_000.0  # results beyond are not used further: the next exponential would overflow
MOST = 4_096  # elements of a result that is used further

# Where a step lies, two right answers in float may be on its two sides.
STEPS = frozenset({
    "argmax", "argmin", "bucketize", "ceil", "ceil_", "div_", "eq", "eq_", "fix", "floor",
    "floor_", "floor_divide", "fmod", "fmod_", "frac", "frac_", "ge", "ge_", "gt", "gt_",
    "hardshrink", "heaviside", "histc", "isclose", "isfinite", "isinf", "isnan", "kthvalue", "le",
    "le_", "logical_not", "lt", "lt_", "median", "mode", "msort", "ne", "ne_", "nonzero",
    "remainder", "remainder_", "round", "round_", "searchsorted", "sgn", "sign", "sign_", "sort",
    "threshold", "threshold_", "topk", "trunc", "trunc_", "unique",
})  # fmt: skip

# Rows that are nearly constant leave nothing but their roundings, which these magnify.
NORMS = frozenset({
    "layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "instance_norm",
    "rms_norm", "_fused_rms_norm", "_native_batch_norm_legit", "var", "std", "var_mean", "std_mean",
})  # fmt: skip

Step = Callable[[list[Tensor]], Any]


@dataclass
class _Tape:
    """Steps of a program while it is made: each adds one value to those before it."""

    random: np.random.Generator
    values: list[Tensor]
    steps: list[tuple[str, list[int], Step]] = field(default_factory=list)
    used: list[str] = field(default_factory=list)

    def add(self, name: str, reads: list[int], step: Step) -> int:
        self.values.append(step(self.values))
        self.steps.append((name, reads, step))
        return len(self.values) - 1

    def unread(self) -> set[int]:
        read = {i for _, reads, _ in self.steps for i in reads}
        return set(range(len(self.values) - len(self.steps), len(self.values))) - read

    def pick(self) -> int:
        """A value that numbers can be computed with, a late one more often than an early one."""
        real = [i for i, v in enumerate(self.values) if v.dtype == torch.float32]
        return real[-1 - min(int(self.random.geometric(0.4)) - 1, len(real) - 1)]


class RandomProgram(nn.Module):
    """A model made from a seed; ``example`` and ``calibration`` fit it."""

    def __init__(self, seed: int, chosen: Sequence[Case], length: int = 6) -> None:
        super().__init__()
        random = np.random.default_rng([seed, 77])
        shapes = [_shape(random) for _ in range(int(random.integers(1, 4)))]
        self.calibration = [
            tuple(torch.from_numpy(random.normal(size=s).astype(np.float32)) for s in shapes)
            for _ in range(3)
        ]
        self.example = self.calibration[0]
        tape = _Tape(random, list(self.example))
        while len(tape.used) < length:
            _compose(tape, chosen[int(random.integers(len(chosen)))])
            if random.random() < 0.3:
                _residual(tape)
        self.steps, self.used = tape.steps, tape.used
        some = random.integers(len(self.example), len(tape.values), 2)
        self.results = sorted(tape.unread() | {int(i) for i in some})

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for _, _, step in self.steps:
            values.append(step(values))
        return [values[i] for i in self.results]

    def __str__(self) -> str:
        return " ".join(self.used)


def _shape(random: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(n) for n in random.integers(1, 9, size=int(random.integers(1, 5))))


def _compose(tape: _Tape, case: Case) -> None:
    """Use a sample on earlier values; nothing where its results cannot be used."""
    before = len(tape.values), len(tape.steps)
    fixed = case.rule.policy == "WEIGHTED" or case.rule.constants
    sources: list[int | Tensor] = []
    for i, made in enumerate(case.tensors()):
        kind = case.sample.kind(i)
        if kind == "bool" and tape.random.random() < 0.7:
            sources.append(_mask(tape, tuple(made.shape)))
        elif kind or (i and (fixed or tape.random.random() < 0.3)):
            sources.append(made)
        else:
            sources.append(_brought(tape, tuple(made.shape), case.sample.domain))
    turn = int(tape.random.integers(8))

    def step(values: list[Tensor]) -> Tensor:
        given = [s if isinstance(s, Tensor) else values[s] for s in sources]
        result = case.call([given[0].clone(), *given[1:]])  # it may be written to
        return result[turn % len(result)] if isinstance(result, list | tuple) else result

    try:
        tape.add(case.target, [s for s in sources if isinstance(s, int)], step)
    except (RuntimeError, IndexError):  # the operator refuses such operands
        usable = False
    else:
        usable = _usable(tape.values[-1])
    if usable:
        tape.used.append(case.target.removeprefix("aten."))
    else:
        del tape.values[before[0] :], tape.steps[before[1] :]


def _usable(value: Any) -> bool:
    if not isinstance(value, Tensor) or not 0 < value.numel() <= MOST or value.dim() > 6:
        return False
    real = value.double()
    return bool(real.isfinite().all()) and float(real.abs().max()) <= LARGEST


def _brought(tape: _Tape, shape: tuple[int, ...], domain: tuple[float, float]) -> int:
    """An earlier value in the shape and the range that an operator wants."""
    index = tape.pick()
    value = tape.values[index]
    low, high = domain
    if float(value.min()) < low or float(value.max()) > high:
        index = tape.add(
            "squash", [index], lambda v, i=index: low + (high - low) * torch.sigmoid(v[i])
        )
    if tuple(value.shape) == shape:
        return index
    size = int(np.prod(shape))
    if value.numel() == size:
        return tape.add("view", [index], lambda v, i=index: v[i].reshape(shape))
    if value.numel() > size:
        return tape.add("cut", [index], lambda v, i=index: v[i].flatten()[:size].view(shape))
    times = -(-size // max(value.numel(), 1))
    return tape.add(
        "repeat", [index], lambda v, i=index: v[i].flatten().repeat(times)[:size].reshape(shape)
    )


def _mask(tape: _Tape, shape: tuple[int, ...]) -> int:
    index = _brought(tape, shape, (-LARGEST, LARGEST))
    return tape.add("mask", [index], lambda v, i=index: v[i] > 0.1)


def _residual(tape: _Tape) -> None:
    """Join the latest value with another, broadcast where their shapes allow it."""
    other = tape.pick()
    last = len(tape.values) - 1
    if tape.values[last].dtype != torch.float32:
        tape.add("real", [last], lambda v, i=last: v[i].float() * 0.5)
        return
    joins: list[Step] = [
        lambda v: v[last] + v[other],
        lambda v: v[last] * v[other],
        lambda v: torch.maximum(v[last], v[other]),
        lambda v: torch.cat([v[last], v[other]], -1),
        lambda v: v[last].transpose(0, -1) - v[other],
    ]
    try:
        tape.add("join", [last, other], joins[int(tape.random.integers(len(joins)))])
    except (RuntimeError, IndexError):
        return
    if not _usable(tape.values[-1]):
        tape.values.pop()
        tape.steps.pop()


def pool(target: str) -> list[Case]:
    """What programs for a target are composed of: all samples; in float those that are smooth."""
    every = [c for c in cases() if "out" not in c.target.rsplit(".", 1)[1]]
    if target != FLOAT:
        return every
    return [c for c in every if c.target.split(".")[1] not in STEPS | NORMS]


def judge(program: RandomProgram, target: str) -> Artifact:
    """Compile a program and compare each graph with the reference model, and its stream."""
    options: dict[str, Any] = {}
    if target != FLOAT:
        options["calibration"] = program.calibration
    if target == WIDE:
        options["scheme"] = "a16w8"
    art = compiled(program.eval(), program.example, target, **options)
    if target == FLOAT:
        with torch.no_grad():
            assert_same(art.run(*program.example), program(*program.example), 1e-3)
    for number, graph in enumerate(art.partition.graphs):
        _same(graph, number)
    if art.delegates:
        for inputs in program.calibration:
            ours, theirs = art.run(*inputs), art.run(*inputs, engine="tosa")
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        wanted = _without_costs(art).run(*inputs)
        assert all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True))
    return art


def _without_costs(art: Artifact) -> Artifact:
    """The same program without the forms that are taken because they cost less."""
    target = replace(target_of(art.target), cost=None, emit=None)
    kept = {refusal.node: refusal.reason for refusal in art.partition.refused}
    return Artifact(art.program, lowered(art.program, target, kept), target.name)


def left_to_the_check(art: Artifact) -> int:
    """Calls that Vela compiled wrongly, which only running the stream has shown."""
    return sum("Vela compiles" in refusal.reason for refusal in art.report.refused)


def _same(graph: Graph, seed: int) -> None:
    from tosaic.files.flatbuffer import write

    data, random = write(graph), np.random.default_rng(seed)
    model = tosaic.load(data)
    inputs = [random_input(random, port, wide=True) for port in model.inputs]
    try:
        results = model.run(*inputs)
    except Unpredictable:  # as a power of a negative number: no model has a result
        assert any(value.dtype.is_float for value in graph.outputs)
        return
    for ours, theirs in zip(results, run_reference(data, inputs), strict=True):
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
        else:
            np.testing.assert_array_equal(ours, theirs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="programs for each target")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--targets", nargs="*", default=TARGETS)
    parser.add_argument("--traceback", action="store_true", help="stop at the first that is wrong")
    parser.add_argument("--refused", action="store_true", help="say what PyTorch keeps, and why")
    options, wrong = parser.parse_args(), 0
    for target in options.targets:
        chosen, whole, bad, late = pool(target), 0, 0, 0
        for seed in range(options.first, options.first + options.count):
            program = RandomProgram(seed, chosen)
            try:
                art = judge(program, target)
                whole += not art.report.refused
                late += left_to_the_check(art)
                for refusal in art.report.refused if options.refused else ():
                    print(f"  seed {seed}: {refusal.op}: {refusal.reason}", flush=True)
            except Exception as problem:  # whatever it is, it is wrong
                if options.traceback:
                    raise
                bad += 1
                first = str(problem).strip().splitlines()[:1]
                print(f"  seed {seed}: {type(problem).__name__} {first} in {program}", flush=True)
        told = f"{whole} whole, {bad} wrong, {late} calls that only the check found"
        print(f"{target}: {options.count} programs, {told}", flush=True)
        wrong += bad
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
