"""What the Ethos-U targets refuse is what Vela refuses, and what it compiles wrongly."""

from __future__ import annotations

import csv
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

import judges
from judges.velaforms import Form, forms
from tosaic.errors import ToolFailed, Unsupported
from tosaic.ir.build import Builder
from tosaic.spec.dtypes import I8
from tosaic.targets.ethosu.target import ETHOS_U, family
from tosaic.targets.ethosu.vela import VelaConfig, run_vela

TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
FORMS = list(forms())


@cache
def answers() -> dict[tuple[str, str], str]:
    """What Vela says, as tools/probe_vela.py has written it down."""
    file = Path(judges.__file__).parent / "vela_answers.csv"
    with open(file, encoding="utf-8", newline="") as lines:
        (_, asked), _, *rows = csv.reader(lines)
    assert asked == version("ethos-u-vela"), "run tools/probe_vela.py --update for this Vela"
    return {(name, t): a for name, *found in rows for t, a in zip(TARGETS, found, strict=True)}


def refusal(form: Form, target: str) -> str | None:
    """Why a target refuses a form; None if it takes every operator of it."""
    try:
        form.graph(ETHOS_U[target].constraints)
    except Unsupported as reason:
        return reason.reason
    return None


def sums_of_int48(form: Form) -> bool:
    """Sums that nothing rescales, or two do: no operator of these forms is wrong by itself."""
    return form.name.endswith("i16xi8 to None") or "of two from one" in form.name


@pytest.mark.parametrize("target", TARGETS)
def test_a_form_is_refused_exactly_where_vela_refuses_it_or_goes_wrong(target: str) -> None:
    wrong = []
    for form in FORMS:
        bad = answers()[form.name, target] != "npu" or family(target) in form.never
        reason = refusal(form, target)
        if bad is (reason is None) and not sums_of_int48(form):
            wrong.append((form.name, answers()[form.name, target], reason))
    assert not wrong


# Forms that compile but are computed wrongly, end Vela or keep it busy for minutes.
DANGEROUS = [
    ("CONV2D i8 padding (128, 0) kernel (64, 1)", "all", "more is computed wrongly"),
    ("CONV2D i8 padding (0, 128) kernel (1, 64)", "all", "more is computed wrongly"),
    ("DEPTHWISE_CONV2D i8 padding (128, 0) kernel (64, 1)", "all", "more is computed wrongly"),
    ("ADD i8 fused with whole factors (1, 2)", "u55", "by different whole numbers wrongly"),
    ("SUB i8 fused with whole factors (3, 5)", "u55", "by different whole numbers wrongly"),
    ("ADD i16 fused with whole factors (1, 2)", "u55", "by different whole numbers wrongly"),
    ("CAST i32 to i8", "u55", "saturate where a narrowing CAST wraps"),
    ("CAST i32 to i16", "u55", "saturate where a narrowing CAST wraps"),
    ("CAST i16 to i8", "u55", "saturate where a narrowing CAST wraps"),
    ("ARITHMETIC_RIGHT_SHIFT i32 round False", "u55", "round when they shift right"),
    ("TRANSPOSE_CONV2D i8 out_pad (1, 0, 0, 0)", "u55", "with padding before it wrongly"),
    ("TRANSPOSE_CONV2D i8 out_pad (0, 0, 1, 0)", "u55", "with padding before it wrongly"),
    ("RESIZE i8 NEAREST_NEIGHBOR 2x borders 1 and 3", "u55", "2, 4 or 8 times its size"),
    ("RESIZE i8 BILINEAR 1x corners", "all", "loses the RESCALE behind it"),
    ("CONV2D i8 dilation (3, 3) of 2 rows", "all", "shorter than a dilation is computed wrongly"),
    ("DEPTHWISE_CONV2D i8 dilation (3, 3) of 2 rows", "all", "shorter than a dilation"),
    ("TRANSPOSE_CONV2D i8 out_pad (0, 0, -2, -2) of 2 columns", "all", "is cut to one row"),
    ("RESCALE computed multiplier", "all", "others end Vela"),
    ("RESCALE computed shift", "all", "others end Vela"),
    ("CONCAT i8 of 65536 batches along C", "all", "and there are too many"),
]


@pytest.mark.parametrize(("name", "where", "sentence"), DANGEROUS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_dangerous_form_is_never_emitted(
    target: str, name: str, where: str, sentence: str
) -> None:
    (form,) = [f for f in FORMS if f.name == name]
    reason = refusal(form, target)
    if where == "all" or family(target) != "u85":
        assert reason is not None
        assert sentence in reason
    else:
        assert reason is None


def test_a_shifted_product_of_bytes_and_inexact_rounding_are_no_tosa_for_these_targets() -> None:
    """Vela leaves the shift out and rounds either way; TOSA's own rules refuse both."""
    b = Builder(ETHOS_U["ethos-u85-256"].env)
    x = b.input("i8", (4,))
    with pytest.raises(Unsupported, match="shift"):
        b.MUL(x, x, b.const([4], "i8"))
    wide = b.input("i32", (4,))
    with pytest.raises(Unsupported, match="inexactround"):
        b.RESCALE(
            wide, b.const([1 << 30], "i32"), b.const([31], "i8"), b.const([0], "i32"),
            b.const([0], "i8"), scale32=True, rounding_mode="INEXACT_ROUND", per_channel=False,
            out=I8,
        )  # fmt: skip


def test_the_answers_are_those_of_this_vela() -> None:
    """A part of the forms asked again; tools/probe_vela.py asks them all."""
    quick = [form for form in FORMS if not form.slow][::29]
    for form in quick:
        for target in TARGETS:
            try:
                run_vela(form.tosa(), VelaConfig(target))
                answer = "npu"
            except ToolFailed:
                answer = "refused"
            assert answers()[form.name, target].split()[0] == answer, form.name
    assert len(quick) > 50
