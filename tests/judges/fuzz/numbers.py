"""Judges of numbers: float against eager PyTorch, integers against fake quantization."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from judges.fuzz.case import CONFIRMED, EVALUATED, Case, Finding, Verdict, runs
from judges.fuzz.edges import FakeQuant, has_dead, noisy, precise
from judges.fuzz.generate import SEEDS
from tosaic.lowering.partition import Partition, Piece
from tosaic.pipeline.artifact import Artifact

DECIBELS = 3.0


def judge_float(v: Verdict, case: Case, got: list[list[Tensor]], number: int) -> None:
    """No farther from eager than a few times what roundings do, its own and those of every call."""
    ours, real = ([row[number].double() for row in rows] for rows in (got, case.expected))
    size = max(float(t.abs().max()) for t in real)
    if all(float((a - b).abs().max()) <= 1e-6 * size + 1e-7 for a, b in zip(ours, real)):
        return
    spread = [0.0] * len(ours)
    for draw in range(4):
        rows = noisy(case.loaded, EVALUATED, 2.0**-21, draw)
        for i, row in enumerate(rows):
            spread[i] = max(spread[i], float((row[number].double() - real[i]).abs().max()))
    for i, row in enumerate(precise(case.loaded, EVALUATED)):
        spread[i] = max(spread[i], float((row[number].double() - real[i]).abs().max()))
    worst = max(
        float((a - b).abs().max()) / (16 * s + 2e-6 * size + 1e-6)
        for a, b, s in zip(ours, real, spread)
    )
    if worst > 1:
        finding = Finding("float", f"result {number}: {worst:.3g} times the bound from eager")
        (v.listed if case.has_jumps else v.faults).append(finding)


def _power(rows: list[list[Tensor]], real: list[list[Tensor]], number: int) -> float:
    pairs = zip(rows, real)
    return float(sum((a[number].double() - b[number].double()).square().sum() for a, b in pairs))


def judge_quantized(
    v: Verdict, case: Case, art: Artifact, got: list[list[Tensor]], number: int, bits: int
) -> None:
    """Noise at most 3 dB above that of a fake-quantized run.

    There are two such runs: every call of eager PyTorch rounded to its range, and the quantized
    program in PyTorch. What both beat is a fault; what the first alone beats is listed, since it
    computes composed operators, recurrent layers and attention within in float. int16 is judged by
    14 bits: the TABLE of int16 interpolates, and sums of 48 bits have a multiplier of 15 bits.
    Where calibration sees a value as 0 alone, as x - x, its step is that of numbers up to 1, for
    which a sum of millionths is coarse: listed. So is a result that is one number for all inputs,
    of which the error is one draw and no power of noise.

    Whole numbers are counted as well: more wrong ones than a fake-quantized run has are a fault.
    """
    limit, reference = 10 ** (DECIBELS / 10), case.reference(bits)
    if _judge_whole(v, case, art, got, number, reference):
        return
    floor = _floor(case.expected, number, bits)
    if _power(got, case.expected, number) <= floor * limit:
        return
    rows = reference.run(EVALUATED)
    if any(a[number].shape != b[number].shape for a, b in zip(rows, case.expected)):
        told = f"result {number}: a fake-quantized run picks other elements than eager PyTorch"
        v.listed.append(Finding("quantizer", told))
        return
    if (
        _power(got, case.expected, number)
        <= max(_power(rows, case.expected, number), floor) * limit
    ):
        return
    mine = _power(runs(art, case, CONFIRMED), case.expected, number)
    floor *= len(CONFIRMED) / len(EVALUATED)
    drawn = [reference.run(CONFIRMED, widened) for widened in (1.0, 1.013, 1.027, 1.06)]
    noise = max(floor, *(_power(rows, case.expected, number) for rows in drawn))
    signal = sum(float(row[number].double().square().sum()) for row in case.expected)
    if mine <= noise * limit or signal < 4 * noise:
        return  # a result that is rounding alone, as the mean of a norm, tells nothing
    pieces = [Piece(node=node) for node in art.program.calls]
    own = Artifact(art.program, Partition(pieces, []), art.target)
    rounded = max(floor, _power(runs(own, case, CONFIRMED), case.expected, number))
    every = torch.cat([row[number].double().flatten() for row in case.expected])

    def decibels(power: float) -> str:
        return f"{10 * math.log10(max(float(every.square().sum()), 1e-30) / power):.1f}"

    told = (
        f"result {number}: {decibels(mine)} dB for {decibels(noise)} of a fake-quantized run, "
        f"{decibels(rounded)} of the quantized program"
    )
    kind = "accuracy" if mine > rounded * limit else "quantizer"
    is_draw = bool((every == every[0]).all())  # one number for all inputs is one draw of noise
    is_fault = kind == "accuracy" and not (
        is_draw or case.has_jumps or has_dead(case.loaded, SEEDS)
    )
    (v.faults if is_fault else v.listed).append(Finding(kind, told))


def _judge_whole(
    v: Verdict, case: Case, art: Artifact, got: list[list[Tensor]], number: int,
    reference: FakeQuant,
) -> bool:  # fmt: skip
    """Whole numbers by construction: no more wrong ones than a fake-quantized run has.

    Those that such a run gets wrong as often where all values but whole ones are rounded down, or
    all up, lie at a jump, as trunc(3 * cosh(x)) of a small x: listed.
    """
    if not case.is_whole(number) or _wrong(got, case.expected, number) <= 0.05:
        return False
    ours = _wrong(runs(art, case, CONFIRMED), case.expected, number)
    drawn = [reference.run(CONFIRMED, widened) for widened in (1.0, 1.013, 1.027, 1.06)]
    theirs = max(_wrong(rows, case.expected, number) for rows in drawn)
    if ours > 2 * theirs + 0.05:
        told = f"result {number}: {ours:.0%} of the elements wrong for {theirs:.0%}"
        ways = (torch.floor, torch.ceil)
        beside = [reference.run(CONFIRMED, rounded=way) for way in ways]
        at_jump = ours <= 2 * max(_wrong(rows, case.expected, number) for rows in beside) + 0.05
        (v.listed if at_jump else v.faults).append(
            Finding("whole", f"{told} of a fake-quantized run")
        )
    return ours > 2 * theirs + 0.05


def _wrong(rows: list[list[Tensor]], real: list[list[Tensor]], number: int) -> float:
    """The share of elements that are not the real ones, up to the rounding of a float."""
    off = [(a[number].double() - b[number].double()).abs() for a, b in zip(rows, real)]
    return float(torch.cat([t.flatten() for t in off]).gt(1e-6).double().mean())


def _floor(real: list[list[Tensor]], number: int, bits: int) -> float:
    """The noise of rounding a result to its own range."""
    every = torch.cat([row[number].double().flatten() for row in real[: len(EVALUATED)]])
    low, high = float(every.min().clamp(max=0)), float(every.max().clamp(min=0))
    span = high - low if bits == 8 else 2 * max(high, -low)
    return max(every.numel() * (span / (2**bits - 1)) ** 2 / 12, 1e-20)
