"""Tries an installed package: compile, run, report, save and load, for TOSA and an NPU.

python installed.py FOLDER writes into FOLDER, and exits with 0 if all of it works; with a second
word it also compiles a model with a state, for which torch looks for packages of its own tests.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def remembers() -> None:
    """A state is kept from run to run."""
    import torch

    import tosaic

    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1, 4, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.copy_(torch.cat([self.seen[:, 1:], x], 1))
            return self.seen.mean(1)

    row = (torch.ones(1, 1, 6),)
    art = tosaic.compile(Mean(), row, target="TOSA-1.0+FP")
    assert [float(art.run(*row)[0, 0]) for _ in range(3)] == [0.25, 0.5, 0.75]


def main(folder: Path) -> None:
    import torch

    import tosaic

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10)
    )
    data = [(torch.randn(1, 3, 8, 8),) for _ in range(4)]
    real = net(*data[0])
    for target in ("TOSA-1.0+FP", "TOSA-1.0+INT", "ethos-u55-128"):
        art = tosaic.compile(net, data[0], target=target, calibration=data)
        assert not art.report.refused, art.report
        error = (art.run(*data[0]) - real).abs().max() / real.abs().max()
        assert error < 0.1, (target, error)
        assert str(art.report)
        art.save(folder / "net.tosa")
        assert tosaic.load(folder / "net.tosa").outputs
        art.save(folder / "report.html", model=net, inputs=data[:1])
        assert (folder / "report.html").stat().st_size > 10_000
        print(repr(art))
    art.save(folder / "net.pte")
    assert (folder / "net.pte").read_bytes()[4:6] == b"ET"
    for words in (["--version"], ["targets"], ["compile", "cnn", "-t", "ethos-u55-128", "-q"]):
        subprocess.run([sys.executable, "-m", "tosaic", *words], check=True)
    print("installed from", Path(tosaic.__file__).parent)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    if sys.argv[2:]:
        remembers()
