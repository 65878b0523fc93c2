"""Artifacts go through pickle: they run, report and save as before, in another process as well."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.pipeline.artifact import Artifact

TARGETS = ("ethos-u55-128", "ethos-u85-256", "TOSA-1.0+INT", "TOSA-1.0+FP")


class Branches(nn.Module):
    """A branch with a constant, a state, a call that stays in PyTorch and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.register_buffer("seen", torch.zeros(6))
        self.register_buffer("one", torch.tensor(1.5))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.linear(x)
        chosen = torch.cond(x.sum() > 0, lambda v: v * self.one, lambda v: v - 1.0, (y,))
        self.seen.add_(y.amax(0))
        return {"chosen": chosen, "seen": self.seen * 2, "kept": torch.linalg.det(y[:, :4])}


@pytest.fixture(params=TARGETS)
def made(request: pytest.FixtureRequest) -> tuple[Artifact, list[tuple[Tensor]]]:
    torch.manual_seed(0)
    data = [(torch.randn(4, 6),) for _ in range(4)]
    return tosaic.compile(Branches(), data[0], target=request.param, calibration=data), data


def same(a: Artifact, b: Artifact, x: tuple[Tensor]) -> bool:
    ours, theirs = a.run(*x), b.run(*x)
    assert list(ours) == list(theirs)
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_pickled_artifact_runs_and_tells_the_same(
    made: tuple[Artifact, list[tuple[Tensor]]], tmp_path: Path
) -> None:
    art, data = made
    first, second, *_ = data
    art.run(*first)
    again = pickle.loads(pickle.dumps(art))
    assert same(art, again, second), "the state that runs left goes along"
    assert str(again.report) == str(art.report)
    assert again.files == art.files
    assert again.device.options == art.device.options
    again.save(tmp_path / "again.html")
    assert same(pickle.loads(pickle.dumps(again)), art, first)


def test_another_process_runs_it(
    made: tuple[Artifact, list[tuple[Tensor]]], tmp_path: Path
) -> None:
    art, data = made
    art.reset()
    (tmp_path / "art.pickle").write_bytes(pickle.dumps((art, data[0])))
    script = (
        "import pickle, sys, torch; art, x = pickle.load(open(sys.argv[1], 'rb')); "
        "torch.save(art.run(*x), sys.argv[2])"
    )
    files = [str(tmp_path / name) for name in ("art.pickle", "out.pt")]
    subprocess.run([sys.executable, "-c", script, *files], check=True, timeout=300)
    theirs, ours = torch.load(files[1]), art.run(*data[0])
    for name in ours:  # floats may be summed in another order there
        torch.testing.assert_close(theirs[name], ours[name], rtol=1e-4, atol=1e-5)


def test_constants_of_torch_are_not_looked_for_in_modules_of_the_user(
    made: tuple[Artifact, list[tuple[Tensor]]],
) -> None:
    """pickle finds "torch.strided" in the first module that imports torch, and asks for that."""
    data = pickle.dumps(made[0])
    assert b"contiguous_format" in data
    assert b"torch.contiguous_format" not in data
    assert b"torch.strided" not in data


def test_a_long_graph_does_not_recurse() -> None:
    layers = [m for _ in range(400) for m in (nn.Linear(4, 4), nn.Tanh())]
    x = (torch.randn(1, 4),)
    art = tosaic.compile(nn.Sequential(*layers), x, target="TOSA-1.0+FP")
    assert torch.equal(pickle.loads(pickle.dumps(art)).run(*x), art.run(*x))
