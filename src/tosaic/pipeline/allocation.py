"""Allocation of bits: the cheapest choice of 8 or 16 bits a call, as a mixed-integer program.

A tensor is spared its rounding to 8 bits if the call that makes it and all that read it have 16.
Errors of tensors add up, and so do costs of calls: what is left of both is measured afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.pipeline.sensitivity import Rounding, Sensitivities


def cheapest(
    found: Sensitivities, extra: Mapping[str, float], most: float, limit_s: float = 20.0
) -> frozenset[str]:
    """The calls that have 16 bits, so that the errors that are left are at most so much."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import lil_array

    calls = sorted(extra)
    place = {call: index for index, call in enumerate(calls)}
    values = [r for r in found.roundings if r.error > 0 and _members(r, place)]
    total = sum(r.error for r in values)
    if total <= most:
        return frozenset()
    count = len(calls) + len(values)
    pairs = [(place[m], len(calls) + i) for i, r in enumerate(values) for m in _members(r, place)]
    ties = [(place[a], place[b]) for a, b in found.ties if a in place and b in place]
    rows = lil_array((len(pairs) + len(ties) + 1, count))
    low, high = np.full(rows.shape[0], -np.inf), np.zeros(rows.shape[0])
    for row, (call, value) in enumerate(pairs):
        rows[row, value], rows[row, call] = 1.0, -1.0  # a tensor is spared only with its calls
    for row, (one, other) in enumerate(ties, len(pairs)):
        rows[row, one], rows[row, other] = 1.0, -1.0
        low[row] = 0.0
    for index, rounding in enumerate(values):
        rows[-1, len(calls) + index] = rounding.error / total
    low[-1], high[-1] = min(1 - max(most, 0) / total, 1 - 1e-9), np.inf
    scale = max(map(abs, extra.values()), default=1.0) or 1.0
    # Of equal costs the fewest calls are taken.
    costs = [max(extra[call], 0.0) / scale + 1e-4 for call in calls] + [0.0] * len(values)
    # HiGHS prints lines of its own where presolve has found a solution.
    made = milp(
        np.array(costs), integrality=np.ones(count),
        bounds=Bounds(0, 1), constraints=LinearConstraint(rows.tocsr(), low, high),
        options={"time_limit": limit_s, "mip_rel_gap": 0.01, "presolve": False},
    )  # fmt: skip
    if made.x is None:
        return frozenset(calls)
    return frozenset(call for call, x in zip(calls, made.x, strict=False) if x > 0.5)


def _members(rounding: Rounding, place: Mapping[str, int]) -> list[str]:
    """The calls that must have 16 bits for a tensor to have them."""
    given: Sequence[str] = (
        (rounding.maker, *rounding.readers) if rounding.maker else rounding.readers
    )
    return [call for call in dict.fromkeys(given) if call in place]
