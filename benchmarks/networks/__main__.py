"""How close the int8 networks stay to fp32, judged with the TOSA reference model.

It guards the other benchmarks: speed on a graph whose answers are all alike would mean nothing.
"""

import sys
import time

import numpy as np
import torch

from networks import NETWORKS, Prepared, prepare
from networks.reference import run_reference


@torch.no_grad()
def judge(net: Prepared, count: int) -> str:
    pictures, encoded = net.inputs(count)
    expected = net.model(pictures).double().numpy()
    graph = net.graph().read_bytes()
    rows, seconds = [], 0.0
    for image in encoded:
        start = time.perf_counter()
        outputs = run_reference(graph, image[None])
        seconds += time.perf_counter() - start
        rows.append(outputs[0][0])
    levels = np.stack(rows)
    actual = net.quantized.decode(levels)
    noise = np.square(actual - expected).sum()
    sqnr = 10 * np.log10(np.square(expected).sum() / noise)
    cosine = [
        np.dot(a, e) / np.linalg.norm(a) / np.linalg.norm(e)
        for a, e in zip(actual, expected, strict=True)
    ]
    same = np.mean(actual.argmax(1) == expected.argmax(1))
    distinct = min(len(np.unique(row)) for row in levels)
    return (
        f"{net.quantized.name:<14}{len(net.quantized.layers):>7}{sqnr:>9.1f}{min(cosine):>9.4f}"
        f"{same:>7.0%}{distinct:>10}{seconds / count:>12.2f}"
    )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    print(
        f"{'network':<14}{'layers':>7}{'SQNR dB':>9}{'cosine':>9}{'top-1':>7}{'distinct':>10}",
        end="",
    )
    print(f"{'reference s':>12}")
    for name in NETWORKS:
        print(judge(prepare(name), count), flush=True)


if __name__ == "__main__":
    main()
