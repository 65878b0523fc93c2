"""From PyTorch to an Ethos-U55 in a minute: train, compile, run the NPU's own bytes, compare.

A small network learns the handwritten digits of scikit-learn. It is compiled for an Ethos-U55 with
128 multipliers, to take the bytes of the pictures as they are, and the command stream that the
device would run decides every unseen digit here, on this machine. The same graph runs in TOSA's
interpreter, and both must agree in every bit. What the device gets is written to build/model.pte,
what a person looks at to build/report.html.
"""

import importlib.util
import time
from pathlib import Path

import torch

import tosaic
from tosaic.pipeline.artifact import Artifact
from zoo import digits

FOLDER = Path(__file__).resolve().parent.parent / "build"
TARGET = "ethos-u55-128"
# The scanner's bytes are 0 to 16; the network was trained on them as -1 to 1.
SCANNER = tosaic.IO("uint8", scale=1 / 8, zero_point=8)


def main() -> int:
    torch.set_num_threads(1)
    start = time.perf_counter()
    pictures, wanted = digits.data()
    net = digits.train(pictures[: digits.TRAINED], wanted[: digits.TRAINED])
    trained = time.perf_counter()
    unseen, answers = pictures[digits.TRAINED :], wanted[digits.TRAINED :]
    calibration = [(each,) for each in pictures[: digits.CALIBRATION].split(1)]
    art = tosaic.compile(
        net, (unseen[:1],), target=TARGET, calibration=calibration, io=(SCANNER, "float")
    )
    scanned = ((unseen + 1) * 8).to(torch.uint8)  # what the scanner gave
    compiled = time.perf_counter()
    with torch.no_grad():
        real = net(unseen)
    stream = torch.cat([art.run(each) for each in scanned.split(1)])
    ran = time.perf_counter()
    graph = torch.cat([art.run(each, engine="tosa") for each in scanned.split(1)])
    FOLDER.mkdir(exist_ok=True)
    written = save(art, net, calibration)
    npu = art.report.delegates[0].estimate
    print(f"trained in {trained - start:.1f} s, compiled in {compiled - trained:.1f} s, "
          f"{len(unseen)} digits on the simulated NPU in {ran - compiled:.1f} s")  # fmt: skip
    print(f"{TARGET}: {npu.cycles:,} cycles, SRAM {npu.scratch:,} bytes, flash {npu.flash:,} bytes")
    print(f"float     {digits.right(real, answers):6.2f} % right")
    print(f"NPU       {digits.right(stream, answers):6.2f} % right, "
          f"the same digit as float for {digits.right(stream, real.argmax(1)):.2f} %")  # fmt: skip
    equal = torch.equal(stream, graph)
    print(f"NPU stream and TOSA graph: {'equal in every bit' if equal else 'DIFFERENT'}")
    print(f"written   {', '.join(map(str, written))}")
    lost = digits.right(real, answers) - digits.right(stream, answers)
    return int(not equal or lost > 0.5)


def save(art: Artifact, net: torch.nn.Module, data: list[tuple[torch.Tensor]]) -> list[Path]:
    """The file for the device, and the page to look at."""
    report = FOLDER / "report.html"
    art.save(report, model=net, inputs=data[:16], title="Digits")
    if importlib.util.find_spec("executorch") is None:
        print("no model.pte: that needs ExecuTorch, pip install 'executorch==1.5.*'")
        return [report]
    art.save(FOLDER / "model.pte")
    return [FOLDER / "model.pte", report]


if __name__ == "__main__":
    raise SystemExit(main())
