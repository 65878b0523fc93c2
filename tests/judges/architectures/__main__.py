"""Published architectures on the NPU, bit by bit beside TOSA: ``make architectures``.

python -m judges.architectures [--target T] [--scheme S] [WORD ...]
Each is compiled with drawn weights and statistics, and run with what calibration saw, ten times
that, and the extremes, by the simulated stream and by the interpreter. Wrong is a result that
differs, an internal error, a graph without a result, and a call that is left to the CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from typing import Any

import torch
from torch import Tensor, nn

import tosaic
from judges.architectures import classic, dense, generative, pictures, sequences, speech, volumes

TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
SCHEMES = ("int8", "a16w8")
CASES: dict[str, Any] = {
    name: case
    for family in (pictures, dense, sequences, speech, volumes, generative, classic)
    for name, case in family.CASES.items()
}


def drawn(net: nn.Module) -> nn.Module:
    """A network with the statistics and scales of batch norms that training leaves: uneven ones."""
    for layer in net.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            for tensor, low, high in (
                (layer.running_mean, -0.5, 0.5), (layer.running_var, 0.2, 2.0),
                (layer.weight, 0.3, 1.6), (layer.bias, -0.4, 0.4),
            ):  # fmt: skip
                assert tensor is not None
                nn.init.uniform_(tensor, low, high)
    return net.eval()


def inputs_of(shapes: tuple[tuple[int, ...], ...], seed: int) -> tuple[Tensor, ...]:
    made = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=made) for shape in shapes)


def extremes(shapes: tuple[tuple[int, ...], ...]) -> list[tuple[Tensor, ...]]:
    """Inputs as calibration has, ten times as large, and the largest and smallest."""
    large = tuple(torch.full(shape, 1e9) for shape in shapes)
    return [
        inputs_of(shapes, 100), tuple(10 * t for t in inputs_of(shapes, 101)), large,
        tuple(-t for t in large),
    ]  # fmt: skip


def trial(name: str, target: str, scheme: str) -> tuple[bool, str]:
    """Whether an architecture behaves on a target, and what happened in a line."""
    make, shapes = CASES[name]
    torch.manual_seed(0)
    net, data = drawn(make()), [inputs_of(shapes, seed) for seed in range(6)]
    began = time.process_time()
    art = tosaic.compile(net, data[0], target=target, scheme=scheme, calibration=data)
    said, good = [f"{time.process_time() - began:.1f} s"], True
    for refusal in {r.reason for r in art.report.refused}:
        said.append(f"CPU: {refusal}")
        good = False
    for told in (check for made in art.delegates for check in made.checks):
        if "repaired" in told or "not checked" in told:
            said.append(told)
    for number, given in enumerate(extremes(shapes)):
        ours, right = (art.run(*given, engine=engine) for engine in ("npu", "tosa"))
        for index, (a, b) in enumerate(zip(_flat(ours), _flat(right), strict=True)):
            if not torch.equal(a, b):
                said.append(f"result {index} of input {number} DIFFERS")
                good = False
    with torch.no_grad():
        real = _flat(net(*data[0]))
    made = _flat(art.run(*data[0], engine="tosa"))
    said.append(" ".join(_decibels(a, b) for a, b in zip(real, made, strict=True)) + " dB")
    return good, "; ".join(said)


def _decibels(real: Tensor, made: Tensor) -> str:
    if not real.is_floating_point():
        return f"{int((real != made).sum())}/{real.numel()}"
    error = float((real.double() - made.double()).square().sum())
    signal = float(real.double().square().sum())
    return f"{10 * torch.log10(torch.tensor(signal / error)):.0f}" if error else "exact"


def _flat(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [t for part in result for t in _flat(part)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="of names; all if none")
    parser.add_argument("--target", action="append")
    parser.add_argument("--scheme", action="append")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    names = [n for n in CASES if not given.words or any(word in n for word in given.words)]
    failed = count = 0
    for name in names:
        for target in given.target or TARGETS:
            for scheme in given.scheme or SCHEMES:
                try:
                    good, told = trial(name, target, scheme)
                except Exception as fault:  # noqa: BLE001 (an internal error is what is looked for)
                    good, told = False, f"{type(fault).__name__}: {fault}"
                    if not isinstance(fault, tosaic.TosaicError):
                        traceback.print_exc(limit=-6)
                failed, count = failed + (not good), count + 1
                print(
                    "ok    " if good else "FAILED",
                    f"{name}, {target}, {scheme}: {told}",
                    flush=True,
                )
    print(f"{len(names)} architectures, {failed} of {count} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
