"""Every sample of every rule on the Ethos-U targets: what is called supported, Vela compiles, and
its stream on the simulator equals the interpreter.

``python -m judges.npu`` runs all and prints a line for each target and type; it is long. With
``--zoo`` it compiles the networks instead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

import tosaic
import zoo
from judges.integers import FORMS_DIFFER, Integers, in_integers
from judges.rules import Case, cases, run_both
from npu.families import difference
from npu.runner import typed
from tosaic.errors import ToolFailed, TosaicError, Unsupported
from tosaic.interp.model import Model
from tosaic.pipeline.artifact import Artifact
from tosaic.quant import quantize
from tosaic.sim import ethosu
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.spec.env import Env
from tosaic.targets.ethosu.target import ETHOS_U
from tosaic.targets.ethosu.vela import VelaResult

TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
PLAIN = Env.parse("TOSA-1.0+INT+int16")


@dataclass
class Count:
    """Samples of one target and type, and the sentences about those that are not right."""

    target: str
    kind: DType
    all: int = 0
    supported: int = 0
    refused: dict[str, list[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        line = f"{self.target:<14} {self.kind}: {self.supported} of {self.all} samples supported"
        return f"{line}, {len(self.wrong)} wrong"


def part(share: int, turn: int) -> Iterator[Case]:
    """One of ``share`` parts of the samples, spread over all operators."""
    for number, case in enumerate(cases()):
        if number % share == turn:
            yield case


def count(chosen: Iterable[Case], target: str, kind: DType, exact: bool = False) -> Count:
    """Lower each sample for a target and compile it; with ``exact`` compare with plain TOSA."""
    device, found = ETHOS_U[target], Count(target, kind)
    for case in chosen:
        if kind not in case.integers:
            continue
        found.all += 1
        try:
            made = in_integers(
                case, kind, device.env, device.constraints, device.cost, device.traits
            )
        except Unsupported as refusal:
            found.refused.setdefault(refusal.reason, []).append(str(case))
            continue
        found.supported += 1
        assert device.emit is not None
        used = _read(made)
        try:
            problem = _streamed(device.emit(used.graph).result, used)
        except ToolFailed as failure:
            problem = failure.reason
        if problem:
            found.wrong.append(f"{case}: {problem}")
            continue
        if exact and case.target not in FORMS_DIFFER:
            plain = in_integers(case, kind, PLAIN)
            ours, theirs = run_both(used.graph, used.arrays)
            wanted, _ = run_both(plain.graph, plain.arrays)
            same = np.array_equal(ours.astype(np.int64), wanted.astype(np.int64))
            if not same or not np.array_equal(ours, theirs):
                found.wrong.append(f"{case}: another result than plain TOSA's")
    return found


def _read(made: Integers) -> Integers:
    """Without inputs that nothing reads, as a compiler gives them to Vela."""
    read = {value for op in made.graph.ops for value in op.ins}
    kept = [(v, a) for v, a in zip(made.graph.inputs, made.arrays, strict=True) if v in read]
    return Integers(replace(made.graph, inputs=[v for v, _ in kept]), [a for _, a in kept])


def _streamed(compiled: VelaResult, made: Integers) -> str:
    """What is wrong with the stream on the simulator, beside the interpreter; nothing if equal."""
    wanted = Model(made.graph).run(*made.arrays)
    try:
        given = [a.astype(np.int8) if a.dtype == np.bool_ else a for a in made.arrays]
        found = typed(ethosu.load(compiled).run(*given), wanted)
    except TosaicError as problem:
        return f"on the simulator: {problem}"
    return difference(found, wanted)


def networks(names: Sequence[str], targets: Sequence[str]) -> Iterator[tuple[str, Artifact]]:
    """Networks of the zoo, quantized once each and compiled for every target."""
    for name in names:
        net, example, calibration = zoo.build(name)
        module = quantize(net, example, calibration=calibration, target=ETHOS_U[TARGETS[0]])
        for target in targets:
            yield name, tosaic.compile(module, example, target=target, check=True)


def _zoo(targets: Sequence[str]) -> int:
    wrong = 0
    for name, art in networks(zoo.ZOO, targets):
        cycles = sum(d.result.performance.total_cycles for d in art.delegates)
        scratch = max(d.result.scratch_size for d in art.delegates)
        print(f"{name:<20} {art.target:<14} {cycles:>11,} cycles {scratch:>9,} bytes", flush=True)
        for refusal in art.report.refused:
            print(f"  refused: {refusal}")
        wrong += any("Vela" in refusal.reason for refusal in art.report.refused)
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", nargs="*", default=TARGETS)
    parser.add_argument("--zoo", action="store_true", help="the networks of examples/zoo instead")
    parser.add_argument("--exact", action="store_true", help="compare with plain TOSA, too")
    options, wrong = parser.parse_args(), 0
    if options.zoo:
        return _zoo(options.targets)
    for target in options.targets:
        for kind in (I8, I16):
            found = count(cases(), target, kind, options.exact)
            print(found, flush=True)
            for reason, names in found.refused.items():
                print(f"  refused: {reason} ({', '.join(names)})")
            for sentence in found.wrong:
                print(f"  WRONG: {sentence}")
            wrong += len(found.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
