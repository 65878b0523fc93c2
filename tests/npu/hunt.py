"""The hunt: random TOSA graphs as Tosaic emits them, on the NPU simulator beside the interpreter.

``npu.drawn`` makes the graphs. What Vela compiles wrongly is reduced and printed, one line for each
form; what crashes it as well.

``make hunt MINUTES=60`` is this, for all configurations in turn; ``python -m npu.hunt --target
ethos-u85-256 --seed 17`` repeats one graph.
"""

from __future__ import annotations

import argparse
import os
import pickle
import select
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from npu.drawn import graph_of, setting
from tosaic.errors import TosaicError
from tosaic.files import text
from tosaic.interp.minimize import copy_graph, reduce
from tosaic.interp.model import Model
from tosaic.targets.ethosu import ACCELERATORS
from tosaic.targets.ethosu.delegate import Delegate
from tosaic.targets.ethosu.vela_workarounds.mend import Compiler

TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
_LONGEST = 120.0  # seconds that one graph may take
_BATCH = 24  # graphs of one process


@dataclass(frozen=True, slots=True)
class Found:
    """A graph that is wrong: which, how, and what is left of it."""

    target: str
    seed: int
    what: str
    names: str
    text: str
    flags: str = ""

    def __str__(self) -> str:
        return f"{self.target} {self.seed} {self.flags}: {self.what}\n{self.text}"


def in_turn(seed: int) -> list[str]:
    """A configuration of each product, each in its turn."""
    groups = ([n for n in ACCELERATORS if f"-{u}-" in n] for u in ("u55", "u65", "u85"))
    return [names[seed % len(names)] for names in groups]


def examine(target: str, seed: int) -> Found | None:
    """Compile and run one graph; what is wrong with it, reduced."""
    known, config = setting(target, seed)
    graph, data = graph_of(target, seed, known=known)
    if not graph.ops:
        return None
    try:
        Model(graph).run(*data)
        if seed % 3:  # as a compile does
            inputs = dict(zip(graph.inputs, data))
            graph = replace(known, judge=known.judge if seed % 3 == 1 else None).improve(graph)
            read = {value for op in graph.ops for value in op.ins}.union(graph.outputs)
            graph.inputs = [value for value in graph.inputs if value in read]
            data = [inputs[value] for value in graph.inputs]
            Model(graph).run(*data)
    except TosaicError:
        return None  # outside of what TOSA defines
    compiler = Compiler(config, known.env)
    made = compiler.compile(copy_graph(graph), data)
    if isinstance(made, Delegate):
        return None
    judge = compiler.alike(made.failure)
    case = reduce(graph, data, judge)
    names = " ".join(op.name for op in case.graph.ops)
    what = judge(case.fresh()) or made.failure.reason
    flags = " ".join((config.system_config, config.memory_mode, *config.flags)).strip()
    return Found(target, seed, what, names, text.print_graph(case.graph), flags)


Answer = Found | str | None


def apart(jobs: Sequence[tuple[str, int]], seconds: float = _LONGEST) -> Iterator[Answer]:
    """What is found in graphs, by processes of their own: a crash costs one graph."""
    left = list(jobs)
    while left:
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reads)
            _answer(left, writes)
        os.close(writes)
        with os.fdopen(reads, "rb", buffering=0) as answers:
            while left:
                answer = _read(answers.fileno(), seconds)
                if answer is None:
                    break
                left.pop(0)
                yield pickle.loads(answer)
        status = _end(child)
        if left:
            target, seed = left.pop(0)
            yield f"{target} {seed}: " + (f"ends with {status}" if status else "takes too long")


def _answer(jobs: Sequence[tuple[str, int]], pipe: int) -> None:
    """Write what is found in each graph to a pipe, and end the process."""
    for target, seed in jobs:
        try:
            found: Answer = examine(target, seed)
        except Exception as problem:  # noqa: BLE001  (a fault of the hunt, which is told)
            found = f"{target} {seed}: {type(problem).__name__}: {problem}"
        data = pickle.dumps(found)
        os.write(pipe, len(data).to_bytes(8, "little"))
        while data:
            data = data[os.write(pipe, data) :]
    os._exit(0)


def _read(pipe: int, seconds: float) -> bytes | None:
    """A message of a process; None if it ended, or takes longer."""
    end, data, size = time.monotonic() + seconds, b"", 8
    while len(data) < size:
        left = max(0.0, end - time.monotonic())
        if not select.select([pipe], [], [], left)[0]:
            return None
        more = os.read(pipe, size - len(data))
        if not more:
            return None
        data += more
        if len(data) == 8 and size == 8:
            size += int.from_bytes(data, "little")
    return data[8:]


def _end(child: int) -> int:
    """The exit status of a process that has ended, 0 of one that is ended here."""
    for _ in range(100):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to look")
    parser.add_argument("--first", type=int, default=0, help="the number of the first graph")
    parser.add_argument("--target", action="append", help="one of the Ethos-U targets")
    parser.add_argument("--seed", type=int, help="one graph only")
    options = parser.parse_args()
    if options.seed is not None:
        for target in options.target or TARGETS:
            print(examine(target, options.seed) or f"{target} {options.seed}: right")
        return 0
    end, seed, causes, others, count = (
        time.monotonic() + 60 * options.minutes, options.first, Counter[str](), 0, 0
    )  # fmt: skip
    while time.monotonic() < end:
        seeds = range(seed, seed + _BATCH // 3)
        jobs = [(target, n) for n in seeds for target in options.target or in_turn(n)]
        for found in apart(jobs):
            count += 1
            if isinstance(found, Found):
                if not causes[found.names]:
                    print(found, flush=True)
                causes[found.names] += 1
            elif found:
                others += 1
                print(found, flush=True)
        seed = seeds.stop
    for names, times in causes.most_common():
        print(f"{times:4} {names}")
    print(f"{sum(causes.values())} of {count} graphs are wrong, of {len(causes)} forms; "
          f"{others} crash or take too long; the next seed is {seed}")  # fmt: skip
    return 1 if causes or others else 0


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
