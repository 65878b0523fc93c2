"""Graphs of the hunt, drawn by number: steps of several kinds that read one another's values.

A step is a TOSA operator (``npu.operators``), an ATen call lowered by Tosaic's rules
(``npu.calls``), a sample of any rule (``npu.sampled``), a layer on a larger map
(``npu.pictures``), a branch or a loop (``npu.regions``). It reads any earlier value, so values have
several consumers, several shapes and long lives; constants are shared, and some values in the
middle are outputs. The configuration of Vela is drawn as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from npu import calls, operators, pictures, regions
from npu.maker import Maker
from npu.operators import Step
from npu.sampled import sampled
from tosaic.errors import TosaicError
from tosaic.ir.graph import Array, Graph, Value
from tosaic.lowering.builder import Lowering
from tosaic.lowering.target import Target
from tosaic.spec.dtypes import I8, I16, I32
from tosaic.targets.ethosu.target import ETHOS_U, with_options
from tosaic.targets.ethosu.vela import VelaConfig

_MOST = 3000  # elements of a value
# A style and how often it is drawn; the kinds of its steps.
_STYLES = {
    "calls": (6, ("calls",)),
    "operators": (3, ("operators",)),
    "both": (3, ("calls", "operators")),
    "samples": (5, ("samples", "samples", "calls")),
    "pictures": (2, ("pictures", "pictures", "pictures", "operators")),
    "regions": (1, ("regions", "operators", "calls")),
}
_MEMORIES = {
    "u55": (("Ethos_U55_Deep_Embedded", "Shared_Sram"), ("", "Sram_Only")),
    "u65": (("Ethos_U65_Embedded", "Shared_Sram"), ("Ethos_U65_Mid_End", "Dedicated_Sram_256KB"),
            ("Ethos_U65_Client_Server", "Dedicated_Sram_512KB"), ("", "Sram_Only")),
    "u85": (("Ethos_U85_SYS_DRAM_Low", "Dedicated_Sram_384KB"),
            ("Ethos_U85_SYS_Flash_High", "Shared_Sram"),
            ("Ethos_U85_SYS_DRAM_High", "Dedicated_Sram"),
            ("Ethos_U85_SYS_Flash_Low", "Sram_Only")),
}  # fmt: skip
_FLAGS = ("--optimise=Size", "--separate-io-regions", "--cop-format=COP2", "--disable-chaining",
          "--disable-fwd", "--disable-cascading")  # fmt: skip


def setting(target: str, seed: int) -> tuple[Target, VelaConfig]:
    """The target of a graph by number and Vela's configuration: mostly the usual one."""
    m = Maker((seed, 1), "u85" in target)
    system, memory, flags = "", "", list[str]()
    if m.chance(0.25):
        system, memory = m.pick(*_MEMORIES[target.split("-")[1]])
    if m.chance(0.25):  # little memory makes Vela cascade and buffer weights
        flags.append(f"--arena-cache-size={m.pick(3, 8, 20, 60) << 10}")
    if m.chance(0.2):
        flags.append(m.pick(*_FLAGS))
    options = {"system_config": system, "memory_mode": memory, "vela_flags": tuple(flags)}
    return with_options(target, options), VelaConfig(target, system, memory, "", tuple(flags))


def graph_of(
    target: str, seed: int, most: int = 14, known: Target | None = None
) -> tuple[Graph, list[Array]]:
    """A graph by number, and numbers for its inputs; the same on every run."""
    known = known or ETHOS_U[target]
    m = Maker((seed, len(target), ord(target[-1])), "u85" in target)
    m.b = Lowering(known.env, constraints=known.constraints)
    m.sharing = m.pick(0.0, 0.3)
    style = m.pick(*(name for name, (often, _) in _STYLES.items() for _ in range(often)))
    if style == "pictures":
        pool, most, largest = [pictures.picture(m)], most // 2, pictures.LARGEST
    else:
        pool, largest = [_input(m, style) for _ in range(m.size(1, 2))], _MOST
    steps, tries, recent = m.size(2, most), 6 * most, m.pick(0.35, 0.35, 0.1)
    while steps and tries:
        tries -= 1
        x = pool[-1 - min(int(m.rng.geometric(recent)) - 1, len(pool) - 1)]
        try:
            with m.b.scratch() as trial:
                made = _step(style, m)(m, x)
                operators.need(made.type.size <= largest and made not in pool)
                trial.commit()
        except (TosaicError, ValueError, IndexError, RuntimeError):  # PyTorch refuses it, too
            continue
        pool.append(made)
        steps -= 1
    return _finish(m, pool, m.pick(0.1, 0.1, 0.5))


def _input(m: Maker, style: str) -> Value:
    rank = m.pick(1, 2, 3, 3, 4, 4, 4, 5)
    kind = m.pick(I8, I8, I16) if style in ("calls", "samples") else m.pick(I8, I8, I16, I32)
    return m.input(kind, [m.size(1, 9 if rank < 5 else 5) for _ in range(rank)])


def _step(style: str, m: Maker) -> Step:
    kind = m.pick(*_STYLES[style][1])
    if kind == "operators":
        return m.pick(*(operators.MOVES if m.chance(0.4) else operators.OPERATORS))
    if kind == "pictures":
        return m.pick(*pictures.STEPS)
    if kind == "regions":
        draw = partial(_step, m.pick("operators", "calls", "both"))
        return partial(m.pick(regions.branch, regions.loop), draw=draw)
    if kind == "samples":
        return sampled
    chosen = m.pick(*(calls.MOVES if m.chance(0.35) else calls.OPERATORS))
    return lambda maker, x: chosen(maker, calls.quantized(maker, x))


def _finish(m: Maker, pool: Sequence[Value], kept: float) -> tuple[Graph, list[Array]]:
    """Outputs are what nothing reads, and some of what is read as well."""
    graph = m.b.graph
    read = {value for op in graph.ops for value in op.ins}
    outputs = [v for op in graph.ops for v in op.outs if v not in read]
    made = {v for op in graph.ops for v in op.outs}
    outputs += [v for v in pool if v in made and v in read and m.chance(kept)]
    for number, value in enumerate(outputs):
        value.name = f"output_{number}"
    graph.outputs = outputs
    pairs = [(v, a) for v, a in zip(graph.inputs, m.data, strict=True) if v in read]
    graph.inputs = [v for v, _ in pairs]
    return graph, [a for _, a in pairs]
