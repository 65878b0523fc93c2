"""The long run of the Cortex-M targets: ``python -m cortexm [--count N] [--every N]``.

All conformance tests and samples, and random graphs by number, as C on this machine with
sanitizers; one of twenty on each emulated core as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from itertools import islice

from cortexm.compare import Trial, conformance, differences, emulated, random_graphs, samples
from tosaic.sim.cortexm import qemu
from tosaic.sim.cortexm.boards import BOARDS

_HOST = ("c", "cortex-m4", "cortex-m55")
_PART = 20  # one of so many runs on emulated cores


def _trials(core: str, every: int, count: int) -> dict[str, Iterable[Trial]]:
    return {
        "conformance": conformance(every),
        "samples": samples(core, every),
        "random graphs": random_graphs(core, range(0, count, every)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cortexm")
    parser.add_argument("--count", type=int, default=10_000, help="random graphs")
    parser.add_argument("--every", type=int, default=1, help="take one of so many")
    given = parser.parse_args()
    bad = 0
    for core in _HOST:
        for name, trials in _trials(core, given.every, given.count).items():
            bad += _tell(f"{name}, C for {core} on this machine", differences(trials, core))
    if (reason := qemu.missing()) is not None:
        print(f"nothing runs on emulated cores: {reason}")
        return int(bad > 0)
    for board in BOARDS:
        core = f"cortex-{board}"
        for name, trials in _trials(core, given.every, given.count).items():
            part = islice(trials, 0, None, _PART)
            bad += _tell(f"{name} on the emulated {core}", emulated(part, core))
    return int(bad > 0)


def _tell(what: str, found: tuple[int, list[str]]) -> int:
    agreed, wrong = found
    print(f"{what}: {agreed:,} agree, {len(wrong):,} do not", flush=True)
    for line in wrong[:10]:
        print(f"  {line}", flush=True)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
