"""How fast the Ethos-U simulator is, beside TOSA's reference model on the same graph.

One process, runs interleaved, medians. The first run decodes the weights and is told apart.
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

from tosaic.sim import ethosu
from tosaic.targets.vela import VelaConfig, run_vela

FASTER = 3
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
    for name in ACCELERATORS:
        runs[name]()  # from its second run on it scales within the convolution
    seconds = medians(runs, dict.fromkeys(ACCELERATORS, options.rounds) | {"reference": 3})
    for name, value in seconds.items():
        print(f"{name}: {value * 1e3:.0f} ms")
    for name in ACCELERATORS:
        ratio = seconds["reference"] / seconds[name]
        table.line(f"{NETWORK} on {name}: times as fast as the reference", ratio, FASTER, True)
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
