"""English sentences that come with scikit-learn: what its data sets are, told by people."""

import re
from functools import cache

import torch
from torch import Tensor

SETS = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")


def told_of(name: str) -> tuple[str, ...]:
    """Sentences of five words and more on a data set, in their order."""
    from sklearn import datasets

    text = getattr(datasets, f"load_{name}")().DESCR
    plain = (re.sub(r"\s+", " ", p).strip() for p in re.split(r"(?<=[.:])\s+|\n\s*\n", text))
    return tuple(p for p in plain if len(re.findall(r"[a-z]{2,}", p)) >= 5 and "==" not in p)


@cache
def sentences() -> tuple[str, ...]:
    return tuple(each for name in SETS for each in told_of(name))


def chosen(count: int, seed: int) -> list[str]:
    make = torch.Generator().manual_seed(seed)
    places: Tensor = torch.randint(len(sentences()), (count,), generator=make)
    return [sentences()[int(place)] for place in places]
