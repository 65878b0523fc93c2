"""Executed instructions of whole int8 networks on emulated Cortex-M cores, beside CMSIS-NN's.

``python benchmarks/cortexm.py [NETWORK ...] [--core m4 --core m55] [--layers]``: each network is
compiled to C, built with arm-none-eabi-gcc, run by QEMU, compared with the interpreter bit for bit,
and counted by the plugin. Weights are random: the number of instructions does not depend on them.
Arenas are as large as what lives at one time; some networks run in less with ``memory="small"``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

import tosaic
from tosaic.interp.model import Model
from tosaic.sim.cortexm import qemu
from tosaic.sim.cortexm.network import Job, NetworkRun, run_network

MORE = 1.1  # times the instructions that a network may take in a small arena
DISTINCT = 4  # values that an output has at least


def block(cin: int, cout: int, kernel: int | tuple[int, int], stride: int = 1, groups: int = 1,
          act: bool = True, pad: int | tuple[int, int] | None = None) -> nn.Sequential:  # fmt: skip
    padding = pad if pad is not None else kernel // 2 if isinstance(kernel, int) else 0
    conv = nn.Conv2d(cin, cout, kernel, stride, padding, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(cout), *([nn.ReLU6()] if act else []))


class Inverted(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = cin * expand
        parts = [block(cin, wide, 1)] if expand > 1 else []
        parts += [block(wide, wide, 3, stride, wide), block(wide, cout, 1, act=False)]
        self.parts, self.adds = nn.Sequential(*parts), stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.parts(x)
        return x + y if self.adds else y


def mobilenet_v2(alpha: float) -> nn.Module:
    def width(channels: float) -> int:
        rounded = max(8, int(channels + 4) // 8 * 8)
        return rounded + 8 if rounded < 0.9 * channels else rounded

    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip
    cin = width(32 * alpha)
    parts: list[nn.Module] = [block(3, cin, 3, 2)]
    for expand, channels, count, stride in rows:
        for i in range(count):
            parts.append(Inverted(cin, width(channels * alpha), stride if i == 0 else 1, expand))
            cin = width(channels * alpha)
    last = 1280 if alpha <= 1 else width(1280 * alpha)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000)]
    return nn.Sequential(*parts, block(cin, last, 1), *head)


def person_detection() -> nn.Module:
    rows = (
        (16, 1),
        (32, 2),
        (32, 1),
        (64, 2),
        (64, 1),
        (128, 2),
        *[(128, 1)] * 5,
        (256, 2),
        (256, 1),
    )
    parts, cin = [block(1, 8, 3, 2)], 8
    for cout, stride in rows:
        parts += [block(cin, cin, 3, stride, cin), block(cin, cout, 1)]
        cin = cout
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 2))


def ds_cnn() -> nn.Module:
    parts: list[nn.Module] = [nn.ZeroPad2d((1, 1, 4, 5)), block(1, 64, (10, 4), 2, pad=0)]
    for _ in range(4):
        parts += [block(64, 64, 3, 1, 64), block(64, 64, 1)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))


class Residual(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = block(cin, cout, 3, stride), block(cout, cout, 3, act=False)
        self.skip = block(cin, cout, 1, stride, act=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.two(self.one(x)) + self.skip(x))


def resnet8() -> nn.Module:
    return nn.Sequential(
        block(3, 16, 3), Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def autoencoder() -> nn.Module:
    sizes = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128]
    parts: list[nn.Module] = []
    for cin, cout in pairwise(sizes):
        parts += [nn.Linear(cin, cout), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(128, 640))


class Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.lstm(x)[0]
        return made


class Call(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


@dataclass(frozen=True)
class Case:
    model: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    limits: dict[str, float]
    """At most so many instructions by core, in millions; a unit's if there is one."""
    cmsis: dict[str, float]
    """What CMSIS-NN takes."""
    unit: float = 0
    """What the figures are for: multiplications or elements; 0 for the whole network."""
    small: int = 0
    """At most so many bytes of arena where layers stream rows; 0 if they need not."""


CASES = {
    "mobilenet_v2": Case(lambda: mobilenet_v2(1.0), ((1, 3, 96, 96),),
        {"m4": 66, "m7": 66, "m55": 15}, {"m4": 146.1, "m7": 144.3, "m55": 30.5}, small=75_000),
    "mobilenet_v2_035": Case(lambda: mobilenet_v2(0.35), ((1, 3, 96, 96),),
        {"m4": 18, "m55": 4.6}, {"m4": 44.8, "m7": 44.6, "m55": 12.1}),
    "person_detection": Case(person_detection, ((1, 1, 96, 96),),
        {"m4": 10, "m55": 2.5}, {"m4": 23.3, "m7": 23.1, "m55": 6.3}, small=45_000),
    "ds_cnn": Case(ds_cnn, ((1, 1, 49, 10),),
        {"m4": 3.3, "m55": 0.85}, {"m4": 7.41, "m7": 7.34, "m55": 1.74}),
    "resnet8": Case(resnet8, ((1, 3, 32, 32),),
        {"m4": 13.6, "m55": 2.6}, {"m4": 29.0, "m7": 29.0, "m55": 4.72}),
    "autoencoder": Case(autoencoder, ((1, 640),),
        {"m4": 0.34, "m55": 0.06}, {"m4": 0.584, "m7": 0.585, "m55": 0.150}),
    "lstm": Case(Last, ((1, 32, 32),), {"m4": 1.3, "m55": 0.35}, {"m4": 2.59, "m55": 0.887}),
    "matmul": Case(lambda: Call(torch.matmul), ((4, 64, 64), (4, 64, 64)),
        {"m4": 1.2, "m55": 0.3}, {"m4": 2.8, "m55": 0.84}, 4 * 64 * 64 * 64),
    "softmax": Case(lambda: Call(lambda x: torch.softmax(x, -1)), ((64, 128),),
        {"m4": 60}, {"m4": 517, "m55": 156}, 64 * 128),
    "add": Case(lambda: Call(torch.add), ((1, 16, 32, 32), (1, 16, 32, 32)),
        {"m4": 13, "m55": 3}, {"m4": 70, "m55": 11.5}, 16 * 32 * 32),
}  # fmt: skip


def prepared(case: Case) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model with statistics of batch norms that suit random inputs, and an example."""
    torch.manual_seed(0)
    model = case.model()
    inputs = tuple(torch.randn(shape) for shape in case.shapes)
    if any(isinstance(part, nn.BatchNorm2d) for part in model.modules()):
        for part in model.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.momentum = 1.0
                nn.init.normal_(part.bias, 0.3)
        with torch.no_grad():
            model.train()(torch.randn(8, *case.shapes[0][1:]))
    if len(case.shapes[0]) == 4:
        inputs = tuple(x.contiguous(memory_format=torch.channels_last) for x in inputs)
        model = model.to(memory_format=torch.channels_last)
    return model.eval(), inputs


@dataclass(frozen=True)
class Measured:
    """A run of a network on a core, what its arena takes and could take at least."""

    ran: NetworkRun
    arena: int
    bound: int
    equal: bool

    @property
    def distinct(self) -> int:
        return max(len(np.unique(out)) for out in self.ran.outputs)

    @property
    def is_flat(self) -> bool:
        """Whether the outputs have too few distinct values to show a fault."""
        return self.distinct < min(DISTINCT, max(out.size for out in self.ran.outputs))


@cache
def measured(name: str, core: str, memory: str = "fast") -> Measured:
    """A network on a core, beside the interpreter."""
    model, inputs = prepared(CASES[name])
    artifact = tosaic.compile(
        model, inputs, target=f"cortex-{core}", calibration=[inputs], io="int8", memory=memory
    )
    (made,) = artifact.delegates
    graph = made.graph
    generator = np.random.default_rng(1)
    given = [
        generator.integers(-128, 128, value.shape).astype(value.dtype.array)
        for value in graph.inputs
    ]
    wanted = Model(graph).run(*given)
    places = [np.zeros(value.shape, value.dtype.array) for value in graph.outputs]
    ran = run_network(core, Job(made.files, made.name, given, places), count=True)
    equal = all(np.array_equal(a, b) for a, b in zip(ran.outputs, wanted, strict=True))
    return Measured(ran, made.plan.size, made.plan.bound, equal)


def row(name: str, core: str, memory: str = "fast") -> tuple[str, str]:
    """A line about a network on a core, and what is wrong with it."""
    case, made = CASES[name], measured(name, core, memory)
    figure = made.ran.instructions / (case.unit or 1e6)
    limit, peer = case.limits.get(core), case.cmsis.get(core)
    wrong = [] if made.equal else ["another result than the interpreter's"]
    wrong += ["few distinct values"] * made.is_flat
    if memory == "fast":
        wrong += ["more instructions"] * (limit is not None and figure > limit)
        wrong += [f"an arena larger than {made.bound:,}"] * (made.arena > made.bound)
    else:
        fast = measured(name, core).ran.instructions
        limit = MORE * fast / (case.unit or 1e6)
        wrong += [f"more than {MORE} times the instructions"] * (figure > limit)
        wrong += [f"an arena larger than {case.small:,}"] * (made.arena > case.small)
    return (
        f"{name:<18}{core:<5}{memory:<6}{figure:>8.3f}{f'{limit:.3f}' if limit else '–':>9}"
        f"{peer or '–':>10}{f'{peer / figure:.2f}' if peer else '–':>7}{made.arena:>9,}"
        f"{made.ran.text_bytes:>8,}{made.distinct:>7}"
    ), "; ".join(wrong)


def rows() -> Iterator[tuple[str, str, str]]:
    """Network, core and memory of each line."""
    for name, case in CASES.items():
        for memory in ("fast", "small") if case.small else ("fast",):
            for core in ("m4", "m7", "m55"):
                yield name, core, memory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", choices=[[], *CASES], default=[])
    parser.add_argument("--core", action="append")
    parser.add_argument("--layers", action="store_true", help="instructions by layer and function")
    given = parser.parse_args()
    reason = qemu.counting()
    if reason is not None:
        print(f"nothing is measured: {reason}")
        return 0
    head = f"{'network':<18}{'core':<5}{'':<6}{'M instr.':>8}{'at most':>9}{'CMSIS-NN':>10}"
    print(f"{head}{'ratio':>7}{'arena':>9}{'code':>8}{'values':>7}")
    good = True
    for name, core, memory in rows():
        if name not in (given.networks or CASES) or core not in (given.core or (core,)):
            continue
        line, wrong = row(name, core, memory)
        good &= not wrong
        print(f"{line}  {wrong}", flush=True)
        if given.layers:
            ran = measured(name, core, memory).ran
            for call, number in ran.by_call:
                print(f"    {call:<40}{number:>12,}")
            for function, number in list(ran.by_function.items())[:12]:
                print(f"    {function:<40}{number:>12,} in all")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
