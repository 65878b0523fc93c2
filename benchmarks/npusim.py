"""How fast the Ethos-U simulator is, beside TOSA's reference model on the same graph.

One process, runs interleaved, medians. The first run decodes the weights and is told apart; after
some runs convolutions switch to kernels whose proofs take a while, which is told apart, too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from interpreter import Table, medians
from networks import prepare
from networks.reference import run_reference

sys.path.pop(0)  # beside this file lies one with the name of Vela's package

from tosaic.sim import ethosu
from tosaic.targets.ethosu.vela import VelaConfig, run_vela

FASTER = 3
WARM = 16
NETWORK = "mobilenet_v2"
ACCELERATORS = ("ethos-u55-128", "ethos-u85-256")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    net, table = prepare(NETWORK), Table()
    data = net.graph(1).read_bytes()
    _, x = net.inputs(1)
    (expected,) = run_reference(data, x)
    assert len(np.unique(expected)) > 50, "the comparison is vacuous"
    runs: dict[str, Callable[[], object]] = {"reference": lambda: run_reference(data, x)}
    for name in ACCELERATORS:
        compiled = run_vela(data, VelaConfig(name))
        start = time.perf_counter()
        simulation = ethosu.load(compiled)
        (found,) = simulation.run(x)
        print(f"{name}: loaded and run once in {time.perf_counter() - start:.1f} s")
        assert np.array_equal(found.reshape(expected.shape), expected), f"{name} differs"
        runs[name] = lambda simulation=simulation: simulation.run(x)
    for stage in ("", ", proved"):
        counts = dict.fromkeys(ACCELERATORS, options.rounds) | {"reference": 3}
        seconds = medians(runs, counts)
        for name in ACCELERATORS:
            ratio = seconds["reference"] / seconds[name]
            print(f"{name}{stage}: {seconds[name] * 1e3:.0f} ms")
            table.line(f"times as fast as the reference{stage}", ratio, FASTER, True)
            for _ in range(WARM):
                runs[name]()
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
