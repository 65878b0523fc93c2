"""A graph before and after it is improved for an NPU, and what both compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from judges.reference import run_reference
from tosaic.files import flatbuffer
from tosaic.interp.model import Model
from tosaic.ir import verify
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.sim.ethosu import load
from tosaic.spec.dtypes import I8, I32
from tosaic.targets.ethosu.delegate import Delegate, compile_graph
from tosaic.targets.ethosu.target import ETHOS_U, family
from tosaic.targets.ethosu.vela import VelaConfig
from tosaic.targets.ethosu.vela_workarounds import apply_workarounds

Random = np.random.Generator
Case = Callable[[Builder, Random], Value]


def rescale(b: Builder, x: Value, random: Random, channels: int = 1, bits: int = 8) -> Value:
    """To int8 by a factor of about 2^-bits, or one for each channel."""
    factors = random.integers(1 << 29, 1 << 30, channels)
    return b.RESCALE(
        x, b.const(factors, I32), b.const(np.full(channels, 30 + bits), I8),
        b.const([0], x.dtype), b.const([int(random.integers(-20, 20))], I8), scale32=True,
        rounding_mode="SINGLE_ROUND", per_channel=channels > 1, out=I8,
    )  # fmt: skip


def weights(random: Random, *shape: int) -> np.ndarray:
    return random.integers(-127, 128, shape)


def conv(
    b: Builder, random: Random, x: Value, out: int, kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1), pad: tuple[int, ...] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
) -> Value:  # fmt: skip
    terms = kernel[0] * kernel[1] * x.shape[-1]
    y = b.CONV2D(
        x, b.const(weights(random, out, *kernel, x.shape[-1]), I8),
        b.const(random.integers(-999, 999, out), I32), b.const([int(random.integers(-9, 9))], I8),
        b.const([0], I8), pad=pad, stride=stride, dilation=dilation, acc_type=I32,
    )  # fmt: skip
    return rescale(b, y, random, out, 6 + int(np.log2(terms) / 2))


def names(graph: Graph) -> Counter[str]:
    return Counter(op.name for op in graph.ops)


def improved(target_name: str, graph: Graph) -> Graph:
    """A graph as the pipeline would improve it for a target; it is used up."""
    target = ETHOS_U[target_name]
    after = target.improve(graph)
    verify(after, target.env, target.constraints)
    return after


def emitted(target_name: str, graph: Graph) -> Delegate:
    """An improved graph as Vela compiles it; the graph is changed where Vela needs it."""
    apply_workarounds(graph, ETHOS_U[target_name].env, family(target_name))
    return compile_graph(graph, VelaConfig(target_name))


def same(target_name: str, case: Case, seed: int) -> tuple[Graph, Graph]:
    """A graph before and after; what it computes is the same everywhere."""
    target, random = ETHOS_U[target_name], np.random.default_rng(seed)
    b = Builder(target.env, Graph("case"))
    b.output(case(b, random))
    before = flatbuffer.write(b.graph)
    given = [random.integers(-128, 128, v.shape).astype(np.int8) for v in b.graph.inputs]
    (expected,) = run_reference(before, given)
    assert len(np.unique(expected)) > 20
    assert np.isin(expected, (-128, 127)).mean() < 0.5
    after = improved(target_name, b.graph)
    assert np.array_equal(Model(after).run(*given)[0], expected)
    stream = load(emitted(target_name, after).result)
    assert np.array_equal(stream.run(*given)[0].reshape(expected.shape), expected)
    return flatbuffer.read(before), after
