"""The graphs of the tests of rewrites and forms, in integers, as they are before any rewrite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from judges.improved import Case as Form
from rewrite import test_forms, test_heads, test_layout, test_lowest_rank, test_rewrite_random
from rewrite import test_rewrites as rewrites
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph
from tosaic.spec.dtypes import I8, I32
from tosaic.spec.env import Env

SEEDS = 4  # of a form
RANDOM = 20  # graphs of each kind
Make = Callable[[Env], Graph]
_FORMS = (*dict.fromkeys(case for case, *_ in test_forms.TAKEN), test_heads.attention,
          test_heads.two_shapes, test_heads.scores)  # fmt: skip


def graphs() -> Iterator[tuple[str, Make]]:
    """Names, and functions that build a graph for a specification."""
    for case in _FORMS:
        for seed in range(SEEDS):
            yield f"form/{case.__name__}/{seed}", partial(_form, case, seed)
    for rewrite in rewrites.CASES:
        if not rewrite.kind.is_float:
            yield f"rewrite/{rewrite.claim.replace(' ', '_')}", partial(_rewrite, rewrite)
    for seed in range(RANDOM):
        yield f"random/ranks/{seed}", lambda _, seed=seed: test_lowest_rank.drawn(seed)
        for kind, module, name in ((I32, test_layout, "transpositions"),
                                   (I8, test_rewrite_random, "int8")):  # fmt: skip
            yield f"random/{name}/{seed}", partial(_random, module.Random, seed, kind)


def _form(case: Form, seed: int, env: Env) -> Graph:
    b = Builder(env, Graph("case"))
    b.output(case(b, np.random.default_rng(seed)))
    return b.graph


def _rewrite(case: rewrites.Case, env: Env) -> Graph:
    b = Builder(env)
    b.output(case.make(b, b.input(case.kind, case.shape, "x")))
    return b.graph


def _random(kind: type, seed: int, dtype: object, _: Env) -> Graph:
    return kind(seed, dtype).b.graph  # type: ignore[no-any-return]
