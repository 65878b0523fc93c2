"""The hunt: random TOSA graphs as Tosaic emits them, on the NPU simulator beside the interpreter.

A graph has many steps, each a TOSA operator (``npu.operators``) or an ATen call lowered by Tosaic's
rules (``npu.calls``). A step reads any earlier value, so values have several consumers, several
shapes and long lives; constants are shared, and some values in the middle are outputs. What Vela
compiles wrongly is reduced and printed, one line for each cause; what crashes it as well.

``make hunt MINUTES=60`` is this; ``python -m npu.hunt --target ethos-u85-256 --seed 17`` repeats
one graph.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from npu import calls, operators
from npu.maker import Maker
from tosaic.errors import TosaicError
from tosaic.files import text
from tosaic.interp.minimize import copy_graph, reduce
from tosaic.interp.model import Model
from tosaic.ir.graph import Array, Graph, Value
from tosaic.lowering.builder import Lowering
from tosaic.spec.dtypes import I8, I16, I32
from tosaic.targets.ethosu.delegate import Delegate
from tosaic.targets.ethosu.target import ETHOS_U
from tosaic.targets.ethosu.vela import VelaConfig
from tosaic.targets.ethosu.vela_workarounds.mend import Compiler

TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
_MOST = 3000  # elements of a value
_LONGEST = 90.0  # seconds that one graph may take


@dataclass(frozen=True, slots=True)
class Found:
    """A graph that is wrong: which, how, and what is left of it."""

    target: str
    seed: int
    what: str
    names: str
    text: str


def graph_of(target: str, seed: int, most: int = 14) -> tuple[Graph, list[Array]]:
    """A graph by number, and numbers for its inputs; the same on every run."""
    known = ETHOS_U[target]
    m = Maker((seed, len(target), ord(target[-1])), "u85" in target)
    m.b = Lowering.of(known)
    style = m.pick("calls", "calls", "operators", "both")
    pool = [_input(m, style) for _ in range(m.size(1, 2))]
    steps, tries = m.size(2, most), 6 * most
    while steps and tries:
        tries -= 1
        x = pool[-1 - min(int(m.rng.geometric(0.35)) - 1, len(pool) - 1)]
        try:
            with m.b.scratch() as trial:
                made = _step(m, style)(m, x)
                operators.need(made.type.size <= _MOST and made not in pool)
                trial.commit()
        except (TosaicError, ValueError, IndexError, RuntimeError):  # PyTorch refuses it, too
            continue
        pool.append(made)
        steps -= 1
    return _finish(m, pool)


def _input(m: Maker, style: str) -> Value:
    rank = m.pick(1, 2, 3, 3, 4, 4, 4, 5)
    kind = m.pick(I8, I8, I16) if style == "calls" else m.pick(I8, I8, I16, I32)
    return m.input(kind, [m.size(1, 9 if rank < 5 else 5) for _ in range(rank)])


def _step(m: Maker, style: str) -> Callable[[Maker, Value], Value]:
    source = style if style != "both" else m.pick("calls", "operators")
    if source == "operators":
        return m.pick(*(operators.MOVES if m.chance(0.4) else operators.OPERATORS))
    chosen = m.pick(*(calls.MOVES if m.chance(0.35) else calls.OPERATORS))
    return lambda maker, x: chosen(maker, calls.quantized(maker, x))


def _finish(m: Maker, pool: Sequence[Value]) -> tuple[Graph, list[Array]]:
    graph = m.b.graph
    read = {value for op in graph.ops for value in op.ins}
    outputs = [v for op in graph.ops for v in op.outs if v not in read]
    outputs += [v for v in pool if v.producer in graph.ops and v in read and m.chance(0.1)]
    for number, value in enumerate(outputs):
        value.name = f"output_{number}"
    graph.outputs = outputs
    kept = [(v, a) for v, a in zip(graph.inputs, m.data, strict=True) if v in read]
    graph.inputs = [v for v, _ in kept]
    return graph, [a for _, a in kept]


def examine(target: str, seed: int) -> Found | None:
    """Compile and run one graph; what is wrong with it, reduced."""
    graph, data = graph_of(target, seed)
    if not graph.ops:
        return None
    known = ETHOS_U[target]
    try:
        Model(graph).run(*data)
        if seed % 3:  # as a compile does
            inputs = dict(zip(graph.inputs, data))
            graph = known.improve(graph)
            data = [inputs[value] for value in graph.inputs]
            Model(graph).run(*data)
    except TosaicError:
        return None  # outside of what TOSA defines
    compiler = Compiler(VelaConfig(target), known.env)
    made = compiler.compile(copy_graph(graph), data)
    if isinstance(made, Delegate):
        return None
    judge = compiler.alike(made.failure)
    case = reduce(graph, data, judge)
    names = " ".join(op.name for op in case.graph.ops)
    what = judge(case.fresh()) or made.failure.reason
    return Found(target, seed, what, names, text.print_graph(case.graph))


def apart(target: str, seed: int, seconds: float = _LONGEST) -> Found | str | None:
    """The same in a process of its own, which Vela may end."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writes, "wb") as answer:
                answer.write(pickle.dumps(examine(target, seed)))
        except Exception as problem:  # noqa: BLE001  (a fault of the hunt, which is told)
            sys.stderr.write(f"{target} {seed}: {type(problem).__name__}: {problem}\n")
            os._exit(3)
        os._exit(0)
    os.close(writes)
    ended = _wait(child, seconds)
    with os.fdopen(reads, "rb") as answer:
        data = answer.read()
    if ended == 0:
        found: Found | None = pickle.loads(data)
        return found
    return f"{target} {seed}: " + ("takes too long" if ended is None else f"ends with {ended}")


def _wait(child: int, seconds: float) -> int | None:
    """The exit status of a child, which is ended if it takes longer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to look")
    parser.add_argument("--first", type=int, default=0, help="the number of the first graph")
    parser.add_argument("--target", action="append", help="one of the Ethos-U targets")
    parser.add_argument("--seed", type=int, help="one graph only")
    options = parser.parse_args()
    targets = options.target or TARGETS
    if options.seed is not None:
        for target in targets:
            print(examine(target, options.seed) or f"{target} {options.seed}: right")
        return 0
    end, seed, causes, others, count = (
        time.monotonic() + 60 * options.minutes, options.first, Counter[str](), 0, 0
    )  # fmt: skip
    while time.monotonic() < end:
        for target in targets:
            count += 1
            found = apart(target, seed)
            if isinstance(found, Found):
                if not causes[found.names]:
                    print(f"{target} {seed}: {found.what}\n{found.text}", flush=True)
                causes[found.names] += 1
            elif found:
                others += 1
                print(found, flush=True)
        seed += 1
    for names, times in causes.most_common():
        print(f"{times:4} {names}")
    print(f"{sum(causes.values())} of {count} graphs are wrong, of {len(causes)} forms; "
          f"{others} crash or take too long; the next seed is {seed}")  # fmt: skip
    return 1 if causes or others else 0


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
