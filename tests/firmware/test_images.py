"""Images on emulated boards give the bytes of ``art.run``."""

from __future__ import annotations

import pytest
import torch

import tosaic
from firmware.images import Recurrent, check, needs_qemu
from tosaic.cli.examples import example
from tosaic.errors import InvalidInput

pytestmark = needs_qemu


def test_two_networks_of_one_image_share_the_arena_and_the_npu() -> None:
    artifacts, inputs = {}, {}
    for name in ("cnn", "keywords"):
        net, x, data = example(name)
        artifacts[name] = tosaic.compile(net, x, target="ethos-u55-128", calibration=data)
        inputs[name] = data[:2]
    ran = check(artifacts, inputs)
    assert ran.figures["cnn"]["runs"] == ran.figures["keywords"]["runs"] == 2
    assert 0 < ran.figures[""]["stack"] < 1024


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_a_state_lasts_from_inference_to_inference(scheme: str) -> None:
    torch.manual_seed(0)
    data = [(torch.randn(1, 8),) for _ in range(6)]
    art = tosaic.compile(
        Recurrent().eval(), data[0], target="ethos-u55-128", scheme=scheme, calibration=data
    )
    check({"net": art}, {"net": data})


@pytest.mark.parametrize(
    ("target", "board"),
    [("ethos-u65-512", "corstone-300"), ("ethos-u85-256", "corstone-320"),
     ("cortex-m4", "mps2-an386"), ("cortex-m33", "mps2-an505")],
)  # fmt: skip
def test_every_kind_of_board_runs_the_same_network(target: str, board: str) -> None:
    net, x, data = example("cnn")
    art = tosaic.compile(net, x, target=target, calibration=data)
    check({"net": art}, {"net": data[:1]}, board)


@pytest.mark.parametrize("target", ["ethos-u55-128", "cortex-m7"])
def test_an_artifact_runs_as_firmware(target: str) -> None:
    net, x, data = example("cnn")
    art = tosaic.compile(net, x, target=target, calibration=data)
    assert torch.equal(art.run(*data[3], engine="firmware"), art.run(*data[3]))
    assert torch.equal(art.run(*data[3], engine="firmware", raw=True), art.run(*data[3], raw=True))


def test_a_state_does_not_run_as_firmware_one_inference_at_a_time() -> None:
    data = [(torch.randn(1, 8),) for _ in range(2)]
    art = tosaic.compile(Recurrent().eval(), data[0], target="ethos-u55-128", calibration=data)
    with pytest.raises(InvalidInput, match="tosaic.firmware.run"):
        art.run(*data[0], engine="firmware")
