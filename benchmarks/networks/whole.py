"""From an nn.Module to TOSA in a fresh process: prints the CPU seconds of all, and of imports.

What reads the network and its inputs from a file is not counted.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path


def cpu() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def main(file: str) -> None:
    import torch

    sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))  # what is pickled
    start = cpu()
    given = torch.load(file, weights_only=False)
    reading = cpu() - start
    import tosaic
    from tosaic.runtime.gc import of_new_objects

    with of_new_objects():  # as tosaic.compile imports it
        import tosaic.pipeline.driver
        import tosaic.quant

    imports = cpu() - reading
    calibration = given["calibration"]
    art = tosaic.compile(
        given["net"], calibration[0], target="TOSA-1.0+INT", calibration=calibration
    )
    assert art.bytes
    assert not art.report.refused
    print(cpu() - reading, imports)


if __name__ == "__main__":
    main(sys.argv[1])
