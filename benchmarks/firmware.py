"""Images: bytes of code, of the driver, of weights and memory; instructions up to the first result.

    python benchmarks/firmware.py [NAME …]

Instructions are those of the emulated core, by its SysTick under QEMU's instruction counter; the
NPU's time is not part of them.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(FOLDER / "tests"), str(FOLDER / "examples")]

from tosaic import firmware  # noqa: E402
from tosaic.firmware.toolchain import build, toolchain  # noqa: E402

TICKS = 2.048  # of 32 MHz an instruction of 64 ns
SMALL = ("digits", "ds_cnn", "branching", "attention")


def sizes(elf: Path) -> dict[str, int]:
    """Bytes of sections, and of the driver's functions."""
    told = subprocess.run(
        ["arm-none-eabi-size", "-A", str(elf)], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in told.splitlines()]
    found = {row[0]: int(row[1]) for row in rows if len(row) == 3 and row[1].isdigit()}
    objects = list(elf.parent.rglob("ethosu.c.*"))
    if objects:
        told = subprocess.run(
            ["arm-none-eabi-size", str(objects[0])], capture_output=True, text=True, check=True
        ).stdout
        found["driver"] = int(told.splitlines()[1].split()[0])
    return found


def main() -> int:
    from firmware.all import IMAGES

    if reason := toolchain().missing:
        print(reason)
        return 0
    head = ("image", "code", "driver", "weights", "arena", "data", "stack", "instructions")
    print("".join(f"{each:>14}" for each in head))
    for name in sys.argv[1:] or SMALL:
        image = IMAGES[name]()
        made = firmware.project(image.artifacts, image.board)
        one = {each: runs[:1] for each, runs in image.inputs.items()}
        _, ran = firmware.run(made, one)
        with tempfile.TemporaryDirectory() as folder:
            made.save(Path(folder) / "fw")
            elf = build(Path(folder) / "fw", Path(folder) / "build")
            known = sizes(elf)
        row = [
            known[".text"], known.get("driver", 0), known[".weights"], known[".arena"],
            known[".data"] + known[".bss"], ran.figures[""]["stack"],
            round(ran.figures[""]["ticks"] / TICKS),
        ]  # fmt: skip
        print(f"{name:>14}" + "".join(f"{number:>14,}" for number in row), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
