"""Models in float16 and bfloat16 are compiled as they are, operator by operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from judges.programs import compiled
from judges.rules import Case, cases

# The type, its specification, and how far from PyTorch a result may be as part of the largest one:
# eight units in the last place, as PyTorch rounds once where TOSA rounds after each operator.
KINDS = {
    "float16": (torch.float16, "TOSA-1.0+FP", 2.0**-8),
    "bfloat16": (torch.bfloat16, "TOSA-1.0+FP+bf16", 2.0**-5),
}
PARTS = 8
FEW = 4  # samples that PyTorch itself has no kernel for
# Places in an image of 70 columns: PyTorch widens them, and 8 bits are a quarter of a pixel off.
COARSE = {"bfloat16": {"grid_sampler_2d.default-3", "grid_sampler.default-3"}}


class Call(nn.Module):
    """A sample's operator on its first result; weights and indices are constants."""

    def __init__(self, case: Case, constants: list[Tensor | None]) -> None:
        super().__init__()
        self.case, self.constants = case, constants

    def forward(self, *inputs: Tensor) -> Any:
        given = iter(inputs)
        result = self.case.call([next(given) if c is None else c for c in self.constants])
        return result[0] if isinstance(result, tuple) else result


def model_of(case: Case, dtype: torch.dtype) -> tuple[Call, tuple[Tensor, ...]]:
    tensors = [t.to(dtype) if t.is_floating_point() else t for t in case.tensors()]
    fixed = case.rule.policy == "WEIGHTED" or case.rule.constants
    constants = [t if i and (fixed or case.sample.kind(i)) else None for i, t in enumerate(tensors)]
    given = tuple(t for t, c in zip(tensors, constants, strict=True) if c is None)
    return Call(case, constants).eval(), given


def is_plain(case: Case) -> bool:
    """Operators that write to their operand are those that do not, under another name."""
    return not case.target.split(".")[1].endswith("_")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_in_half_precision_is_near_pytorch(kind: str, part: int) -> None:
    dtype, target, share = KINDS[kind]
    absent = 0
    for case in [c for c in cases() if is_plain(c)][part::PARTS]:
        if str(case) in COARSE.get(kind, ()):
            continue
        model, given = model_of(case, dtype)
        try:
            # oneDNN's bfloat16 convolutions stop some machines with an illegal instruction.
            with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
                wanted = model(*(t.clone() for t in given))
        except (RuntimeError, NotImplementedError):
            absent += 1
            continue
        art = compiled(model, given, target)
        assert not art.report.refused, f"{case}: {art.report.refused}"
        _near(case, art.run(*given), wanted, share)
    assert absent <= FEW


def _near(case: Case, found: Any, wanted: Any, share: float) -> None:
    for mine, theirs in zip(_listed(found), _listed(wanted), strict=True):
        assert mine.dtype == theirs.dtype, case
        real = theirs.double()
        most = float(real.abs().nan_to_num(0.0, 0.0, 0.0).max()) if real.numel() else 0.0
        torch.testing.assert_close(
            mine.double(), real, rtol=share, atol=share * most, equal_nan=True,
            msg=lambda told, case=case: f"{case}: {told}",
        )  # fmt: skip


def _listed(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, list | tuple) else [result]
