"""tosa-tools' list of PyTorch operators as models: one for each operator and type, all cases in it.

The generator that comes with the list needs other compilers to be installed; the list itself, its
shapes, arguments and operands do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from frameworks.shape_list import shape_list
from frameworks.torch.torch_op_list import TORCH_OP_LIST
from torch import Tensor, nn

KERNELS = (1, 1), (3, 3), (5, 5)  # of the entries that are templates
RANKS = 1, 4  # of an entry that names none


@dataclass(frozen=True)
class Entry:
    """An operator on one type: its cases side by side in one model, and their inputs."""

    name: str
    model: nn.Module
    inputs: tuple[Tensor, ...]
    cases: int


class Cases(nn.Module):
    """Each part takes as many of the inputs as it has operands."""

    def __init__(self, parts: list[nn.Module], arity: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.arity = arity

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        taken = [inputs[i : i + self.arity] for i in range(0, len(inputs), self.arity)]
        return [part(*own) for part, own in zip(self.parts, taken, strict=True)]


def entries(seed: int = 0) -> Iterator[Entry]:
    for name, row in _rows():
        for dtype in row["types"]:
            yield _entry(f"{name}-{str(dtype).removeprefix('torch.')}", row, dtype, seed)


def _rows() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, row in TORCH_OP_LIST.items():
        if not row.get("template"):
            yield name, row
            continue
        for kernel in KERNELS:
            yield (
                f"{name.removesuffix('_TEMPLATE')}_{kernel[0]}x{kernel[1]}",
                row | {"filter": list(kernel)},
            )


def _entry(name: str, row: dict[str, Any], dtype: torch.dtype, seed: int) -> Entry:
    random = np.random.default_rng([seed, *name.encode()])
    build, tensors, arguments = row["build_fcn"]
    broadcasts = (False,) if tensors.__name__ == "tgBFuzz" else ()
    parts: list[nn.Module] = []
    inputs: list[Tensor] = []
    for shape in _shapes(row):
        for _, extra in arguments(row, shape, random):
            operands, constants = tensors(row, shape, dtype, random, *broadcasts)
            if operands:
                parts.append(build(*(value for _, value in constants), *extra).eval())
                inputs += [value for _, value in operands]
    return Entry(name, Cases(parts, row["operands"][0]), tuple(inputs), len(parts))


def _shapes(row: dict[str, Any]) -> list[Any]:
    low, high = row.get("rank", RANKS)
    own = row.get("custom_shapes", {"custom_shape_only": False, "shape_list": []})
    shapes = [] if own["custom_shape_only"] else list(shape_list)
    return [shape for shape in shapes + own["shape_list"] if low <= len(shape) <= high]
