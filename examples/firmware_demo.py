"""The demo's network as an image: a Cortex-M55 under QEMU, the Ethos-U55 beside it simulated.

The network of ``demo.py`` becomes a CMake project in build/firmware. The image that it builds boots
on the emulated board, starts the NPU by its registers, and classifies 100 unseen digits. Its
outputs must equal those of the command stream run by itself, bit for bit.
"""

import time
from pathlib import Path

import torch
from demo import SCANNER, TARGET

import tosaic
from tosaic import firmware
from zoo import digits

FOLDER = Path(__file__).resolve().parent.parent / "build" / "firmware"
BOARD, COUNT = "corstone-300", 100


def main() -> int:
    torch.set_num_threads(1)
    start = time.perf_counter()
    pictures, wanted = digits.data()
    net = digits.train(pictures[: digits.TRAINED], wanted[: digits.TRAINED])
    data = [(each,) for each in pictures[: digits.CALIBRATION].split(1)]
    art = tosaic.compile(net, data[0], target=TARGET, calibration=data, io=(SCANNER, "float"))
    unseen = ((pictures[digits.TRAINED :] + 1) * 8).to(torch.uint8).split(1)[:COUNT]
    image = firmware.project({"digits": art}, BOARD)
    image.save(FOLDER)
    results, ran = firmware.run(image, {"digits": [(each,) for each in unseen]})
    scores = torch.cat([each for (each,) in results["digits"]])
    equal = torch.equal(scores, torch.cat([art.run(each) for each in unseen]))
    answers = wanted[digits.TRAINED :][:COUNT]
    print(f"{BOARD}, {TARGET}: trained, compiled, built and run in "
          f"{time.perf_counter() - start:.1f} s")  # fmt: skip
    print(f"the image said:\n{ran.console.strip()}")
    print(f"{digits.right(scores, answers):.2f} % of {COUNT} unseen digits right")
    print(f"image and art.run: {'equal in every bit' if equal else 'DIFFERENT'}")
    print(f"the project: {FOLDER.relative_to(FOLDER.parent.parent)}")
    return int(not equal)


if __name__ == "__main__":
    raise SystemExit(main())
