"""Forms beside no forms: Vela's cycles of seeded networks on five configurations of Ethos-U.

Each network is quantized once a family of products and lowered with forms and without. No network
may take over one per cent longer with forms. ``--write FILE`` keeps the figures, and ``--beside
FILE`` compares with those of another revision. ``--count`` and ``--targets`` choose fewer.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Beside this file lies one with the name of Vela's package.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT / "benchmarks"]
sys.path[:0] = [str(ROOT / name) for name in ("src", "tests", "examples")]

COUNT = 500
TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256", "ethos-u55-32", "ethos-u85-1024")
MOST = 1.01  # times as long with forms


def figures(
    seeds: Sequence[int], targets: Sequence[str] = TARGETS
) -> Iterator[tuple[str, int, int]]:
    """The cycles of each network on each target, with forms and without."""
    from tosaic.targets.ethosu.target import ETHOS_U, family

    for seed in seeds:
        programs: dict[str, Any] = {}
        for name in targets:
            target, product = ETHOS_U[name], family(name)
            if product not in programs:
                programs[product] = _program(seed, target)
            program = programs[product]
            without = _cycles(program, replace(target, judge=_no_forms))
            yield f"{seed} {name}", _cycles(program, target), without


def _program(seed: int, target: Any) -> Any:
    """A network, quantized for a target."""
    import torch

    from replay.networks import network
    from tosaic.pipeline.driver import program_for

    _, net, example = network(seed)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program_for(net.eval(), example, target, "int8", [example])


def _no_forms(graphs: Sequence[Any]) -> list[None]:
    """A judge that knows nothing, without which no form is taken."""
    return [None] * len(graphs)


def _cycles(program: Any, target: Any) -> int:
    """Of all graphs of a program."""
    from tosaic.pipeline.driver import lowered
    from tosaic.targets.ethosu.judge import judge
    from tosaic.targets.ethosu.vela import VelaConfig

    graphs = lowered(program, target, {}).graphs
    made = judge(VelaConfig(target.name), target.env, graphs)
    return sum(found.cycles for found in made if found is not None)


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--targets", nargs="*", default=TARGETS)
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--beside", metavar="FILE", help="figures of another revision")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.count)
    found, slower = dict[str, tuple[int, int]](), []
    for name, now, without in figures(seeds, given.targets):
        found[name] = now, without
        if now > MOST * without:
            slower.append(name)
            print(f"{name}: {now:,} cycles with forms, {without:,} without", flush=True)
    if given.write:
        Path(given.write).write_text(json.dumps(found, indent=0))
    ratios = {name: now / without for name, (now, without) in found.items() if without}
    worst = max(ratios, key=ratios.__getitem__)
    print(f"{len(found)} compiled; the worst, {worst}: {ratios[worst]:.3f} of no forms")
    print(f"geometric mean: {mean(list(ratios.values())):.4f} of no forms")
    if given.beside:
        other = json.loads(Path(given.beside).read_text())
        both = {n: found[n][0] / other[n][0] for n in found if other.get(n, [0])[0]}
        most = max(both, key=both.__getitem__)
        print(f"geometric mean: {mean(list(both.values())):.4f} of {given.beside}, "
              f"at most {both[most]:.3f} ({most})")  # fmt: skip
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
