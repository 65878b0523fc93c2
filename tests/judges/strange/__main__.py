"""Odd modules through compile, run, ``.pte`` and report on four targets: ``make strange``.

python -m judges.strange [--target T] [--list] [WORD ...]   those with a word in their name, or all
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

import tosaic
from judges.strange import arithmetic, blocks, habits, kinds, methods, state, structure

TARGETS = ("TOSA-1.0+FP", "TOSA-1.0+INT", "ethos-u55-128", "ethos-u85-256")
CASES: dict[str, Any] = {
    **state.CASES, **structure.CASES, **arithmetic.CASES, **kinds.CASES, **habits.CASES,
    **methods.CASES, **blocks.CASES,
}  # fmt: skip
# The cases of which calls may stay on the CPU, and what a refusal must say. A target without the
# integer profile, or without branches, may say so of any; all others compile whole.
_INT64 = ("nothing proves that it is small", "may need more than the 32 bits of TOSA")
REASONS: dict[str, str | tuple[str, ...]] = {
    "state: moving average and count": "may not fit the 32 bits",
    "NMS: boolean mask": "how many elements a computed mask picks",
    "bits of bytes": "torch.uint8",
    "half, float and double": "torch.float64",
    "weights from a network": "is computed, and must be a constant",
    "ring buffer": "32 bits of TOSA",
    "companded integers": "have no bitwise logic",
    "integers folded": "have no bitwise logic",
    "beam search": "do not gather or scatter",
    "Viterbi": "do not gather or scatter",
    "autocast": "needs extension bf16",
    "the loss as a result": "there is no rule for aten.cross_entropy_loss",  # in float
    "a picture of bytes": "torch.uint8",
    "pooling undone": (*_INT64, "result 1 of this operator has no form", "aten.max_unpool2d"),
    "bags of words": _INT64,
    "a grid of hashes": _INT64,
    "ticks": "have no bitwise logic",
    "a sparse constant": "there is no rule for aten._sparse_mm",
    "words that are there": _INT64,
}
LEAST = {"bits of bytes": 5}  # decibels in 8 bits; some functions jump
LACKS = ("needs the INT profile", "need extension cf", "with in = i32 needs TOSA 1.1")
# Modules that PyTorch itself cannot export, and a part of the sentence that says so.
IMPOSSIBLE = {
    "derivative": "torch.export loses derivatives",
    "packed sequence": "a packed sequence has sizes that are known only when it runs",
    "random numbers from a generator": "a torch.Generator",
    "out of the graph and back": "write x.detach()",
    "an array of NumPy": "a tensor becomes an array of NumPy: write it with torch",
    "a subclass of tensors": "Creating a new Tensor subclass",
}


def tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, dict):
        return [t for value in result.values() for t in tensors(value)]
    if isinstance(result, (list, tuple)):
        return [t for value in result for t in tensors(value)]
    if hasattr(result, "__dict__"):
        return tensors(vars(result))
    return []


def decibels(real: list[torch.Tensor], made: list[torch.Tensor], exact: bool) -> float:
    """The least ratio over results; a result of another shape is the worst."""
    if [t.shape for t in real] != [t.shape for t in made]:
        return -math.inf
    least = math.inf
    for one, other in zip(real, made):
        if not exact and not one.is_floating_point():
            continue  # which of two equal numbers is the largest, rounding decides
        error = (one.double() - other.double()).square().sum()
        if error.isnan():
            return -math.inf
        if error:
            signal = one.double().square().sum()
            least = min(least, float(10 * torch.log10(signal / error)))
    return least


def trial(name: str, target: str) -> tuple[bool, str]:
    """Whether a case behaves on a target, and what happened in a line."""
    make, example = CASES[name]
    torch.manual_seed(0)
    net, inputs = make().eval(), example()
    began = time.process_time()
    try:
        art = tosaic.compile(net, inputs, target=target, calibration=[inputs])
    except tosaic.TosaicError as refusal:
        return IMPOSSIBLE.get(name, "\0") in str(refusal), f"not compiled: {refusal}"
    seconds = time.process_time() - began
    torch.manual_seed(0)
    fresh = make().eval()
    with torch.no_grad():
        real = tensors(fresh(*inputs))
    made = tensors(art.run(*inputs))
    floats = "FP" in target
    ratio = decibels(real, made, floats)
    said = [f"{ratio:.0f} dB", f"{seconds:.1f} s"]
    good = ratio > (60 if floats else LEAST.get(name, 10))
    for refusal in {r.reason for r in art.report.refused}:
        known = REASONS.get(name, ())
        words = (*((known,) if isinstance(known, str) else known), *LACKS)
        good &= any(word in refusal for word in words)
        said.append(f"CPU: {refusal}")
    with tempfile.TemporaryDirectory() as folder:
        art.save(Path(folder) / "report.html")
        assert str(art.report)
        try:
            art.save(Path(folder) / "net.pte")
        except tosaic.TosaicError as refusal:
            said.append(f"no .pte: {refusal}")
            good &= bool(art.report.refused) or "ExecuTorch has no delegate" in str(refusal)
        else:
            # A state of its own, as it is in the file.
            again = tensors(tosaic.load(Path(folder) / "net.pte").run(*inputs))
            if [t.shape for t in again] != [t.shape for t in made] or not all(
                torch.allclose(a.double(), b.double(), atol=1e-4) for a, b in zip(made, again)
            ):
                said.append("the .pte gives something else")
                good = False
    return good, "; ".join(said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--target", action="append")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    names = [n for n in CASES if not given.words or any(word in n for word in given.words)]
    if given.list:
        print(*names, sep="\n")
        return 0
    warnings.simplefilter("ignore")
    failed = 0
    for name in names:
        for target in given.target or TARGETS:
            try:
                good, told = trial(name, target)
            except Exception as fault:  # noqa: BLE001 (an internal error is what is looked for)
                good, told = False, f"INTERNAL {type(fault).__name__}: {fault}"
                traceback.print_exc(limit=-4)
            failed += not good
            print("ok    " if good else "FAILED", f"{name}, {target}: {told}", flush=True)
    print(f"{len(names)} modules, {failed} of {len(names) * len(given.target or TARGETS)} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
