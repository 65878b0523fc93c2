"""From PyTorch to an Ethos-U55 in a minute: train, compile, run the NPU's own bytes, compare.

A small network learns the handwritten digits of scikit-learn. It is compiled for an Ethos-U55 with
128 multipliers, to take the bytes of the pictures as they are, and the command stream that the
device would run decides every unseen digit here, on this machine. The same graph runs in TOSA's
interpreter, and both must agree in every bit.
"""

import time
from pathlib import Path

import torch

import tosaic
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
    art.save(FOLDER / "digits.tosa")
    print(art.report)
    print(f"trained in {trained - start:.1f} s, compiled in {compiled - trained:.1f} s, "
          f"{len(unseen)} digits on the simulated NPU in {ran - compiled:.1f} s")  # fmt: skip
    print(f"float     {digits.right(real, answers):6.2f} % right")
    print(f"NPU       {digits.right(stream, answers):6.2f} % right, "
          f"the same digit as float for {digits.right(stream, real.argmax(1)):.2f} %")  # fmt: skip
    equal = torch.equal(stream, graph)
    print(f"NPU stream and TOSA graph: {'equal in every bit' if equal else 'DIFFERENT'}")
    print(f"written   {FOLDER / 'digits.tosa'}")
    lost = digits.right(real, answers) - digits.right(stream, answers)
    return int(not equal or lost > 0.5)


if __name__ == "__main__":
    raise SystemExit(main())
