"""What the Ethos-U targets refuse is what Vela refuses, and what it compiles wrongly."""

from __future__ import annotations

import csv
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

import judges
from judges.velaforms import Form, forms
from tosaic.errors import Unsupported
from tosaic.targets.ethosu import ETHOS_U, family

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
