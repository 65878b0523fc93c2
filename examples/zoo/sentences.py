"""English sentences that come with scikit-learn: what its data sets are, told by people."""

import re
from functools import cache

import torch
from torch import Tensor

_SETS = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")


@cache
def sentences() -> tuple[str, ...]:
    """Sentences of five words and more, in their order."""
    from sklearn import datasets

    texts = (getattr(datasets, f"load_{name}")().DESCR for name in _SETS)
    split = (part for text in texts for part in re.split(r"(?<=[.:])\s+|\n\s*\n", text))
    plain = (re.sub(r"\s+", " ", part).strip() for part in split)
    return tuple(p for p in plain if len(re.findall(r"[a-z]{2,}", p)) >= 5 and "==" not in p)


def chosen(count: int, seed: int) -> list[str]:
    make = torch.Generator().manual_seed(seed)
    places: Tensor = torch.randint(len(sentences()), (count,), generator=make)
    return [sentences()[int(place)] for place in places]
