"""Each check of the sanitizer fires, and names the command, its place and its operator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.patching import Compiled, compiled
from tosaic.errors import InvalidInput, Unsupported
from tosaic.sim import ethosu
from tosaic.sim.ethosu.memory import Sanitizer
from tosaic.targets.ethosu.vela import VelaResult

NPUS = ("u55-128", "u65-512", "u85-256")


def conv(npu: str) -> Compiled:
    return compiled("conv2d", npu)


def run(result: VelaResult, net: Compiled) -> None:
    ethosu.load(result).run(*net.given.inputs)


@pytest.mark.parametrize("npu", NPUS)
def test_bytes_that_nothing_wrote_are_not_read(npu: str) -> None:
    net = conv(npu)
    result = replace(net.result, scratch_size=net.result.scratch_size + 65536)
    broken = net.with_register("IFM_BASE0", (net.result.scratch_size + 15) // 16 * 16)
    broken = replace(broken, scratch_size=result.scratch_size)
    with pytest.raises(Sanitizer, match=r"IFM reads bytes of .* that nothing has written"):
        run(broken, net)


@pytest.mark.parametrize("npu", NPUS)
@pytest.mark.parametrize("tensor", ["IFM", "OFM"])
def test_tensors_stay_inside_their_region(npu: str, tensor: str) -> None:
    net = conv(npu)
    size = net.result.scratch_size // 16 * 16
    with pytest.raises(Sanitizer, match=rf"{tensor} takes .*, which has {size:#x} bytes"):
        run(replace(net.with_register(f"{tensor}_BASE0", size), scratch_size=size), net)


@pytest.mark.parametrize("npu", NPUS)
def test_regions_that_do_not_exist_are_not_touched(npu: str) -> None:
    net = conv(npu)
    with pytest.raises(Sanitizer, match="region 6, which does not exist"):
        run(net.with_register("IFM_REGION", 6), net)


@pytest.mark.parametrize("npu", NPUS)
def test_constants_are_not_overwritten(npu: str) -> None:
    net = compiled("fully_connected", npu)
    broken = replace(net.with_register("OFM_REGION", 0), weights=net.result.weights + bytes(9999))
    with pytest.raises(Sanitizer, match="would overwrite constants"):
        run(broken, net)


@pytest.mark.parametrize("npu", NPUS)
def test_elements_are_aligned(npu: str) -> None:
    net = compiled("mul_int32", npu)
    base = net.commands("OFM_BASE0")[0].payload
    assert base is not None
    result = replace(
        net.with_register("OFM_BASE0", base + 2), scratch_size=net.result.scratch_size + 16
    )
    with pytest.raises(Sanitizer, match="OFM .* is not aligned to its 4 byte elements"):
        run(result, net)


@pytest.mark.parametrize("npu", NPUS)
def test_weights_start_at_multiples_of_16_bytes(npu: str) -> None:
    net = conv(npu)
    base = net.commands("WEIGHT_BASE")[0].payload
    assert base is not None
    with pytest.raises(Sanitizer, match="the weights .* does not start at a multiple of 16 bytes"):
        run(net.with_register("WEIGHT_BASE", base + 1), net)


@pytest.mark.parametrize("npu", NPUS)
def test_bricks_start_at_multiples_of_16_bytes(npu: str) -> None:
    net = conv(npu)
    word = net.commands("OFM_PRECISION")[0].param | 1 << 6
    net = replace(net, result=net.with_register("OFM_PRECISION", word))
    base = net.commands("OFM_BASE0")[0].payload
    assert base is not None
    with pytest.raises(Sanitizer, match="OFM .* does not start at a multiple of 16 bytes"):
        run(net.with_register("OFM_BASE0", base // 16 * 16 + 8), net)


@pytest.mark.parametrize("npu", NPUS)
def test_a_stream_must_stop(npu: str) -> None:
    net = conv(npu)
    with pytest.raises(InvalidInput, match="runs past its end"):
        run(net.without("STOP"), net)


@pytest.mark.parametrize("npu", ["u55-128", "u65-512", "u85-256"])
def test_a_table_is_not_used_before_its_dma_has_been_waited_for(npu: str) -> None:
    net = compiled("table_int8", npu)
    with pytest.raises(Sanitizer, match=r"reads .* while a DMA to .* is under way"):
        run(net.without("DMA_WAIT"), net)


@pytest.mark.parametrize(
    ("family", "npu", "index"), [("residual", "u55-128", 4), ("loop", "u85-256", 3)]
)
def test_a_dma_waits_for_the_operations_whose_memory_it_uses(
    family: str, npu: str, index: int
) -> None:
    net = compiled(family, npu, index)
    with pytest.raises(Sanitizer, match=r"the DMA touches .* before the operation that uses"):
        run(net.without("KERNEL_WAIT"), net)


@pytest.mark.parametrize("npu", NPUS)
@pytest.mark.parametrize("what", ["WEIGHT", "SCALE"])
def test_weights_and_scales_end_in_their_buffer(npu: str, what: str) -> None:
    net = conv(npu)
    words = {"WEIGHT": "weights", "SCALE": "scales"}[what]
    with pytest.raises(Sanitizer, match=f"the {words} takes? .* of region 0"):
        run(net.with_register(f"{what}_LENGTH", len(net.result.weights) + 16), net)


def test_weights_that_end_too_early_are_refused() -> None:
    net = conv("u55-128")
    with pytest.raises(InvalidInput, match=r"the (compressed )?weights end|more values"):
        run(net.with_register("WEIGHT_LENGTH", 16), net)


def test_outputs_are_written_whole() -> None:
    net = conv("u55-128")
    output = net.result.outputs[0]
    longer = replace(output, shape=(*output.shape[:-1], output.shape[-1] + 1))
    room = net.result.scratch_size + 65536
    broken = replace(net.result, outputs=(longer,), scratch_size=room)
    with pytest.raises(InvalidInput, match="does not write all of output 0"):
        run(broken, net)


def test_a_place_beyond_the_list_of_a_gather_is_refused() -> None:
    net = compiled("gather", "u85-256")
    inputs = [x.copy() for x in net.given.inputs]
    smaller = net.with_register("DMA0_IDX_MAX", 0)
    with pytest.raises(Sanitizer, match="outside of 0 to 0"):
        ethosu.load(smaller).run(*inputs)


def test_an_endless_loop_is_refused() -> None:
    net = compiled("loop", "u85-256")
    branch = net.commands("BRANCH")[0]

    def change(words: object) -> None:
        words[branch.offset // 4] &= 0xFFFF  # type: ignore[index]
        words[branch.offset // 4 + 1] = branch.offset  # type: ignore[index]

    with pytest.raises(InvalidInput, match="does not end within"):
        run(net.patched(change), net)


def test_an_error_names_command_offset_and_operator() -> None:
    net = compiled("conv2d", "u85-256", flags=("--enable-debug-db",))
    with pytest.raises(Sanitizer) as caught:
        run(net.with_register("IFM_REGION", 6), net)
    assert "NPU_OP_CONV" in str(caught.value)
    assert "offset 0x" in str(caught.value)
    assert "of Conv2D '" in str(caught.value)


def test_what_is_not_implemented_is_refused_with_its_register() -> None:
    net = conv("u85-256")
    word = net.commands("KERNEL_STRIDE")[0].param | 1 << 5
    with pytest.raises(Unsupported, match=f"KERNEL_STRIDE {word:#x}"):
        run(net.with_register("KERNEL_STRIDE", word), net)


def test_sizes_that_no_memory_holds_are_refused_at_once() -> None:
    net = conv("u85-256")
    broken = net.with_register("OFM_HEIGHT_M1", 0xFFFF)
    with pytest.raises(InvalidInput):
        run(broken, net)
