"""The writer of fuzzed programs: draws statements and keeps those that eager PyTorch can run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from judges.fuzz.program import Input, Program, Statement, plain_cond

LARGEST = 300.0  # magnitudes that statements may build on
MOST = 640  # elements of a value
DIMS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8)
KINDS = {
    "f": (torch.float32,),
    "i": (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    "b": (torch.bool,),
}
_HOLE = re.compile(r"\{(\w+)(?::([^{}]*))?\}")


class Retry(Exception):
    """A template has nothing to apply to."""


class Abandoned(Exception):
    """A write cannot be undone: the program is drawn anew."""


class Writer:
    """A program while it is written, with the values that its names have on one example."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng([seed, 1611])
        self.module = nn.Module()
        self.space: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "self": self.module}
        self.values: dict[str, Tensor] = {}
        self.inputs: list[Input] = []
        self.members: list[tuple[str, str]] = []
        self.statements: list[Statement] = []
        self.count = 0
        self.bound: dict[str, str] = {}  # holes of the template that is being filled

    # Draws.

    def below(self, n: int) -> int:
        return int(self.random.integers(n))

    def chance(self, p: float) -> bool:
        return bool(self.random.random() < p)

    def one(self, of: Any) -> Any:
        return of[self.below(len(of))]

    def number(self) -> float:
        return float(np.round(self.random.normal() * 1.5, 2))

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        wanted = self.one((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 6)) if rank is None else rank
        while True:
            dims = tuple(int(self.one(DIMS)) for _ in range(wanted))
            if int(np.prod(dims)) <= MOST // 2:
                return dims

    # What is added to the program.

    def input(self, kind: str = "f", shape: tuple[int, ...] | None = None) -> str:
        name, dims = f"x{len(self.inputs)}", self.shape() if shape is None else shape
        drawn = {
            "f": self.one([
                f"torch.randn({dims}, generator=g)",
                f"torch.randn({dims}, generator=g) * {abs(self.number()) + 0.1:.2f}",
                f"torch.rand({dims}, generator=g)",
                f"torch.rand({dims}, generator=g) * 4 - 1",
                f"torch.rand({dims}, generator=g) * 4 - 1",
                f"torch.randn({dims}, generator=g)",
                f"torch.randn({dims}, generator=g) * {self.one((0.01, 20.0))}",
                f"torch.randn({dims}, generator=g) + {self.one((-8.0, 5.0))}",
                f"-torch.rand({dims}, generator=g) - {self.one((0.0, 1.0))}",
                f"torch.randint(0, 256, {dims}, generator=g).float() / 255",
            ]),
            "i": f"torch.randint({self.one((0, 0, -4))}, 5, {dims}, generator=g)"
            + self.one(("", "", ".int()", ".to(torch.int8)")),
            "b": f"torch.randint(0, 2, {dims}, generator=g).bool()",
        }[kind]  # fmt: skip
        self.inputs.append(Input(name, drawn))
        g = torch.Generator().manual_seed(0)
        self.values[name] = self.space[name] = eval(drawn, {"torch": torch, "g": g})
        return name

    def member(self, made: str, prefix: str = "m") -> str:
        """A layer or a tensor of the module, from the expression that makes it."""
        self.count += 1
        name = f"{prefix}{self.count}"
        line = f"torch.manual_seed({self.count}); self.{name} = {made}"
        if prefix != "m":
            line = f"torch.manual_seed({self.count}); self.register_buffer('{name}', {made})"
        exec(line, self.space)
        if prefix == "m":
            getattr(self.module, name).eval()
        self.members.append((f"self.{name}", line))
        return f"self.{name}"

    def constant(self, shape: tuple[int, ...], kind: str = "f", top: int = 4) -> str:
        return self.member({
            "f": self.one([f"torch.randn({shape})", f"torch.rand({shape}) * 2 - 0.5"]),
            "i": f"torch.randint(0, {max(top, 1)}, {shape})",
            "b": f"torch.rand({shape}) > 0.5",
        }[kind], "c")  # fmt: skip

    def bind(self, expression: str, results: int = 1) -> list[str]:
        """``v1, v2 = expression``, where its results can be used."""
        try:
            with torch.no_grad(), plain_cond():
                made = eval(expression, self.space)
        except Exception as error:  # noqa: BLE001 - eager PyTorch refuses it
            raise Retry(str(error)) from None
        found = [made] if results == 1 else list(made)
        if len(found) != results or not all(usable(v) for v in found):
            raise Retry("a result that nothing can use")
        names = []
        for value in found:
            self.count += 1
            names.append(f"v{self.count}")
            self.values[names[-1]] = self.space[names[-1]] = value
        self.statements.append(Statement(f"{', '.join(names)} = {expression}", tuple(names)))
        return names

    def write(self, line: str) -> None:
        """A statement that writes in place; undone where it leaves what nothing can use."""
        everything = {**self.values, **{f"self.{k}": v for k, v in self.module.named_buffers()}}
        before = {name: v.clone() for name, v in everything.items()}
        try:
            with torch.no_grad():
                exec(line, self.space)
            good = all(usable(v) for v in self.values.values())
            good = good and all(usable(v) for v in self.module.buffers())
        except Exception:  # noqa: BLE001 - eager PyTorch refuses it
            good = False
        if good:
            self.statements.append(Statement(line))
            return
        for name, value in everything.items():
            if value.shape != before[name].shape:
                raise Abandoned(f"{name} has lost its shape")
            if not torch.equal(value, before[name]):
                value.copy_(before[name])
        raise Retry("nothing can use what is left")

    # What templates are filled with.

    def pick(self, kind: str, ranks: range | None = None) -> str:
        """A value, a late one more often than an early one, viewed so that its rank fits."""
        every = [n for n, v in self.values.items() if v.dtype in KINDS[kind]]
        if not every:
            if kind == "f":
                return self.bind(f"{self.pick('i')}.float()")[0]
            raise Retry(f"no value of kind {kind}")
        fit = [n for n in every if ranks is None or self.values[n].dim() in ranks]
        if not fit or (ranks is not None and self.chance(0.1)):
            name, rank = self._late(every), self.one(list(ranks or range(7)))
            return self.bind(self.one(["{}.reshape{}", "{}.view{}"]).format(
                name, self.factors(self.values[name].numel(), rank)
            ))[0]  # fmt: skip
        return self._late(fit)

    def _late(self, names: list[str]) -> str:
        return names[-1 - min(int(self.random.geometric(0.35)) - 1, len(names) - 1)]

    def factors(self, size: int, rank: int) -> tuple[int, ...]:
        """A shape of some rank for a number of elements."""
        if rank == 0 and size > 1:
            raise Retry("too many elements for a scalar")
        dims = [1] * rank
        rest = size
        while rest > 1:
            prime = next(p for p in range(2, rest + 1) if rest % p == 0)
            dims[self.below(rank)] *= prime
            rest //= prime
        return tuple(dims)

    def compatible(self, shape: tuple[int, ...], kind: str = "f") -> list[str]:
        """Values that broadcast with a shape without making it much larger."""
        found = []
        for name, v in self.values.items():
            if v.dtype not in KINDS[kind]:
                continue
            try:
                joint = torch.broadcast_shapes(v.shape, shape)
            except RuntimeError:
                continue
            if int(np.prod(joint)) <= MOST:
                found.append(name)
        return found

    def broadcast_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One element of any rank, a row, a column, the whole, or some dimensions of it."""
        rank = len(shape)
        return self.one([
            (1,) * self.below(min(rank + 2, 7)), shape, shape[-1:],
            (*shape[-2:-1], 1) if rank > 1 else shape,
            tuple(n if self.chance(0.5) else 1 for n in shape),
        ])  # fmt: skip

    def fill(self, template: str) -> str:
        """The template with its holes filled; equal holes get equal fillings."""
        self.bound = {}

        def filled(match: re.Match[str]) -> str:
            return self.hole(match.group(1), match.group(2) or "")

        subjects = [m for m in _HOLE.finditer(template) if m.group(1) in "xqh"]
        for match in sorted(subjects, key=lambda m: "xqh".index(m.group(1))):
            filled(match)
        return _HOLE.sub(filled, template)

    def hole(self, name: str, detail: str = "") -> str:
        if name not in self.bound:
            self.bound[name] = str(HOLES[name](self, detail))
        return self.bound[name]

    def of(self, name: str) -> Tensor:
        """The value that a hole was filled with."""
        if name not in self.bound:
            raise Retry(f"{name} is not filled yet")
        return self.values[self.bound[name]]

    def program(self, outputs: list[str]) -> Program:
        return Program(
            tuple(self.inputs), tuple(self.members), tuple(self.statements), tuple(outputs),
            self.chance(0.1),
        )  # fmt: skip


def usable(value: Any) -> bool:
    if not isinstance(value, Tensor) or not 0 < value.numel() <= MOST or value.dim() > 6:
        return False
    if not any(value.dtype in kinds for kinds in KINDS.values()):
        return False
    real = value.double()
    return bool(real.isfinite().all()) and float(real.abs().max()) <= LARGEST


Hole = Callable[[Writer, str], Any]
HOLES: dict[str, Hole] = {}


def hole(*names: str) -> Callable[[Hole], Hole]:
    def register(function: Hole) -> Hole:
        HOLES.update(dict.fromkeys(names, function))
        return function

    return register


def ranks_of(detail: str) -> range | None:
    """``4``: rank 4; ``1+``: at least 1; ``2-4``: 2 to 4."""
    if not detail:
        return None
    if detail.endswith("+"):
        return range(int(detail[:-1]), 7)
    low, _, high = detail.partition("-")
    return range(int(low), int(high or low) + 1)
