"""Each check of the simulator's sanitizer, triggered by a stream that Vela would never emit.

A compiled stream is changed in one command. The error must say what is wrong and name the command
and its place.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from npu.edit import compiled, edited, find
from npu.families import Case, difference
from npu.runner import simulate
from tosaic.errors import InvalidInput
from tosaic.sim import ethosu
from tosaic.targets.ethosu.vela import VelaResult

DMA_WAIT, KERNEL_WAIT = 17, 18
_PLACE = r"command \d+, NPU_OP_\w+, at offset 0x[0-9a-f]+"


def refusal(given: Case, result: VelaResult) -> str:
    with pytest.raises(InvalidInput) as caught:
        simulate(result, given.inputs, given.expected)
    return str(caught.value)


@pytest.fixture(params=["u55", "u85"])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def moved(name: str, machine: str, register: str, value: int) -> tuple[Case, VelaResult]:
    """A graph whose last command of a register sets something else."""
    given, result = compiled(name, machine)
    return given, edited(result, find(result, register, -1), value=value)


def test_the_unchanged_streams_are_exact(machine: str) -> None:
    for name in ("max_pool", "conv2d", "table_int8", "conv2d_int16"):
        given, result = compiled(name, machine)
        assert not difference(simulate(result, given.inputs, given.expected), given.expected)


def test_a_read_of_bytes_that_nothing_wrote(machine: str) -> None:
    given, result = compiled("max_pool", machine)
    target = find(result, "OFM_BASE0").value
    words = refusal(given, edited(result, find(result, "IFM_BASE0"), value=target))
    assert "nothing has written" in words
    assert "NPU_OP_POOL" in words


@pytest.mark.parametrize("register", ["IFM_BASE0", "OFM_BASE0"])
def test_an_access_outside_of_its_region(machine: str, register: str) -> None:
    given, result = compiled("max_pool", machine)
    changed = edited(result, find(result, register), value=16 * (result.scratch_size // 16))
    words = refusal(given, changed)
    assert f"which has {result.scratch_size:#x} bytes" in words
    assert register[:3] in words


def test_an_access_far_outside_of_any_memory(machine: str) -> None:
    given, result = moved("max_pool", machine, "IFM_BASE0", 0xFFFFFFFFF0)
    assert "IFM takes" in refusal(given, result)


def test_a_region_that_does_not_exist(machine: str) -> None:
    given, result = moved("max_pool", machine, "IFM_REGION", 6)
    assert "region 6, which does not exist" in refusal(given, result)


def test_constants_are_not_overwritten(machine: str) -> None:
    given, result = compiled("conv2d", machine)
    changed = edited(result, find(result, "OFM_REGION"), value=result.weights_region)
    large = replace(changed, weights=changed.weights + bytes(1 << 16))
    assert "overwrite constants" in refusal(given, large)


def test_a_base_that_is_not_aligned_to_its_elements(machine: str) -> None:
    given, result = compiled("conv2d_int16", machine)
    base = find(result, "IFM_BASE0")
    changed = replace(result, scratch_size=result.scratch_size + 64)
    assert "not aligned" in refusal(given, edited(changed, base, value=base.value + 1))


def test_a_stride_that_is_not_aligned_to_its_elements(machine: str) -> None:
    given, result = compiled("conv2d_int16", machine)
    stride = find(result, "IFM_STRIDE_Y")
    changed = replace(result, scratch_size=result.scratch_size + 64)
    assert "not aligned" in refusal(given, edited(changed, stride, value=stride.value + 1))


def test_a_stream_without_an_end(machine: str) -> None:
    given, result = compiled("max_pool", machine)
    changed = edited(result, find(result, "STOP"), word=KERNEL_WAIT)
    assert "runs past its end" in refusal(given, changed)


def test_a_table_whose_dma_was_not_waited_for(machine: str) -> None:
    given, result = compiled("table_int8", machine)
    wait = find(result, "DMA_WAIT")
    words = refusal(given, edited(result, wait, word=KERNEL_WAIT))
    assert "while a DMA to" in words
    assert "under way" in words


def test_a_dma_that_reads_before_the_operation_that_writes_has_ended() -> None:
    given, result = compiled("loop", "u85")
    wait = find(result, "KERNEL_WAIT")
    words = refusal(given, edited(result, wait, word=DMA_WAIT | 0xF << 16))
    assert "before the operation that uses" in words
    assert "NPU_OP_DMA_START" in words


def test_a_dma_of_bytes_that_nothing_wrote() -> None:
    given, result = compiled("scatter", "u85")
    changed = edited(result, find(result, "DMA0_SRC"), value=result.outputs[0].address)
    assert "nothing that was written" in refusal(given, changed)


def test_places_of_a_gather_beyond_its_rows() -> None:
    given, result = compiled("gather", "u85")
    assert any(a.ndim == 2 for a in given.inputs), "the graph's places must be an input"
    inputs = [a * 0 + 1000 if a.ndim == 2 else a for a in given.inputs]
    with pytest.raises(InvalidInput, match="a place in the DMA's list lies outside"):
        ethosu.load(result).run(*inputs)


def test_weights_beyond_their_buffer(machine: str) -> None:
    given, result = compiled("conv2d", machine)
    length = find(result, "WEIGHT_LENGTH")
    changed = edited(result, length, value=16 * (len(result.weights) // 16 + 1))
    assert "the weights take" in refusal(given, changed)


def test_scales_beyond_their_buffer(machine: str) -> None:
    given, result = compiled("conv2d", machine)
    base = find(result, "SCALE_BASE")
    changed = edited(result, base, value=16 * (len(result.weights) // 16))
    assert "the scales take" in refusal(given, changed)


def test_weights_that_end_too_early(machine: str) -> None:
    given, result = compiled("conv2d", machine)
    words = refusal(given, edited(result, find(result, "WEIGHT_LENGTH"), value=48))
    assert "weights" in words


def test_an_output_that_is_not_wholly_written(machine: str) -> None:
    given, result = compiled("max_pool", machine)
    depth = find(result, "OFM_DEPTH_M1")
    changed = edited(result, depth, value=depth.value - 1)
    changed = edited(changed, find(changed, "IFM_DEPTH_M1"), value=depth.value - 1)
    assert "does not write all of output 0" in refusal(given, changed)


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_a_boundary_outside_of_the_scratch_memory(machine: str, side: str) -> None:
    given, result = compiled("max_pool", machine)
    first, *rest = getattr(result, side)
    changed = replace(result, **{side: (replace(first, address=result.scratch_size), *rest)})
    assert "lies outside of region" in refusal(given, changed)


def test_a_register_that_was_never_set(machine: str) -> None:
    given, result = compiled("max_pool", machine)
    changed = edited(result, find(result, "IFM_PAD_TOP"), word=KERNEL_WAIT)
    assert "NPU_SET_IFM_PAD_TOP" in refusal(given, changed)


def test_the_error_names_the_command_and_its_place(machine: str) -> None:
    given, result = moved("conv2d", machine, "IFM_REGION", 6)
    with pytest.raises(InvalidInput, match=_PLACE):
        simulate(result, given.inputs, given.expected)
