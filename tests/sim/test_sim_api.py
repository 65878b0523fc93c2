"""What can be loaded and run, and what a user sees of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.patching import compiled
from tosaic.errors import InvalidInput, Unsupported
from tosaic.sim import ethosu
from tosaic.sim.ethosu import velabin
from tosaic.sim.ethosu.stream import decode
from tosaic.targets.ethosu.vela import VelaResult


def equal(got: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    pairs = zip(got, wanted, strict=True)
    return all(np.array_equal(a.reshape(b.shape), b) for a, b in pairs)


def npz(result: VelaResult, path: Path) -> Path:
    """As Vela's own writer stores a raw result."""
    sides = {}
    for side, tensors in (("input", result.inputs), ("output", result.outputs)):
        sides[f"{side}_shape"] = [t.shape for t in tensors]
        sides[f"{side}_elem_size"] = [t.element_size for t in tensors]
        sides[f"{side}_region"] = [t.region for t in tensors]
        sides[f"{side}_offset"] = [t.address for t in tensors]
    np.savez(
        path, cmd_data=result.command_stream, weight_data=result.weights,
        weight_region=result.weights_region, scratch_region=result.scratch_region,
        scratch_size=result.scratch_size, scratch_fast_region=result.scratch_fast_region,
        scratch_fast_size=result.scratch_fast_size, **sides,
    )  # fmt: skip
    return path


@pytest.mark.parametrize("npu", ["u55-128", "u65-512", "u85-256"])
def test_results_blobs_and_npz_files_give_the_same_bits(npu: str, tmp_path: Path) -> None:
    net = compiled("residual", npu)
    blob = velabin.write(net.result.stream)
    for source in (net.result, net.result.stream, blob, npz(net.result, tmp_path / "net.npz")):
        assert equal(ethosu.load(source).run(*net.given.inputs), net.given.expected)


def test_the_only_delegate_of_a_pte_file_is_found(tmp_path: Path) -> None:
    net = compiled("residual", "u55-128")
    blob = velabin.write(net.result.stream)
    for name, data in (("one", b"ET12" + bytes(60) + blob + bytes(99)), ("two", blob + blob)):
        (tmp_path / f"{name}.pte").write_bytes(b"before" + data)
    got = ethosu.load(tmp_path / "one.pte").run(*net.given.inputs)
    assert equal(got, net.given.expected)
    with pytest.raises(InvalidInput, match="has 2 delegates"):
        ethosu.load(tmp_path / "two.pte")
    (tmp_path / "none.pte").write_bytes(b"ET12")
    with pytest.raises(InvalidInput):
        ethosu.load(tmp_path / "none.pte")


@pytest.mark.parametrize("npu", ["u55-128", "u85-256"])
def test_a_simulation_runs_many_times_and_its_results_are_its_own(npu: str) -> None:
    net = compiled("conv2d", npu)
    simulation = ethosu.load(net.result)
    first = simulation.run(*net.given.inputs)
    other = simulation.run(*(np.zeros_like(x) for x in net.given.inputs))
    assert not np.array_equal(first[0], other[0])
    for _ in range(20):  # after some runs another kernel computes
        assert equal(simulation.run(*net.given.inputs), net.given.expected)
    assert equal(first, net.given.expected)


def test_outputs_come_in_six_dimensions_with_their_type() -> None:
    net = compiled("mul_int32", "u85-256")
    for result, boundary in zip(ethosu.load(net.result).run(*net.given.inputs), net.result.outputs):
        assert result.shape == boundary.shape
        assert result.dtype == np.dtype(f"i{boundary.element_size}")


def test_inputs_that_do_not_fit_are_refused() -> None:
    net = compiled("conv2d", "u55-128")
    simulation, (x, *_) = ethosu.load(net.result), net.given.inputs
    with pytest.raises(InvalidInput, match="takes 1 inputs, not 2"):
        simulation.run(x, x)
    with pytest.raises(InvalidInput, match="input 0 has the shape"):
        simulation.run(x[..., :-1])
    with pytest.raises(InvalidInput, match="instead of integers"):
        simulation.run(x.astype(np.float32))
    with pytest.raises(InvalidInput, match="values beyond 8 bits"):
        simulation.run(np.full(x.shape, 300))
    assert equal(simulation.run(x.astype(np.int64)), net.given.expected)


def test_memory_after_a_command_shows_what_it_wrote() -> None:
    net = compiled("conv2d", "u85-256")
    simulation, output = ethosu.load(net.result), net.result.outputs[0]
    stop = output.address + net.given.expected[0].nbytes

    def bytes_after(index: int) -> np.ndarray:
        return simulation.memory_after(index, *net.given.inputs)[output.region][
            output.address : stop
        ]

    commands = simulation.stream.commands
    first = next(c.index for c in commands if c.is_operation)
    assert not np.array_equal(bytes_after(first - 1), bytes_after(len(commands) - 1))
    assert bytes_after(len(commands) - 1).tobytes() == net.given.expected[0].tobytes()
    with pytest.raises(InvalidInput, match="commands 0 to"):
        simulation.memory_after(len(commands), *net.given.inputs)


@pytest.mark.parametrize("npu", ["u55-256", "u65-512", "u85-1024"])
def test_the_disassembly_has_a_line_for_each_command(npu: str) -> None:
    simulation = ethosu.load(compiled("residual", npu).result)
    lines = simulation.disassemble().splitlines()
    assert lines[0].startswith(f"ethos-{npu}")
    assert len(lines) == 1 + len(simulation.stream.commands)
    assert sum("NPU_OP_STOP" in line for line in lines) == 1


def test_a_trace_tells_tensors_multiplications_and_bytes() -> None:
    net = compiled("conv2d", "u85-256", flags=("--enable-debug-db",))
    trace = ethosu.load(net.result).trace(*net.given.inputs)
    assert trace.macs == net.result.performance.macs
    assert "CONV of Conv2D" in str(trace)
    rows = json.loads(trace.json())["records"]
    convs = [row for row in rows if row["operation"] == "CONV"]
    assert convs
    read = {tensor["role"]: tensor for tensor in convs[0]["tensors"]}
    assert read["IFM"]["type"] == "int8"
    assert sum(row["bytes_written"] for row in convs) == net.given.expected[0].size


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (b"", "does not begin with COP1"),
        (b"COP3" + bytes(60), "does not begin with COP1"),
        (b"COP1" + bytes(3), "whole words"),
        (b"COP1", "no command stream"),
        (b"COP1\x01\0\0\0", "within its configuration"),
        (b"COP1\x02\0\1\0\0\0\0\0", "no configuration"),
        (b"COP1\x01\0\0\0\x09\0\0\0\0\0\0\0", "names no Ethos-U"),
        (b"COP2" + bytes(8), "within its header"),
    ],
)
def test_damaged_payloads_are_refused_with_a_sentence(payload: bytes, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        decode(payload)


def test_commands_that_an_npu_does_not_have_are_refused() -> None:
    words = np.frombuffer(compiled("conv2d", "u55-128").result.command_stream, "<u4")
    for word, sentence in ((0x012E, "no command 0x12e"), (0x8105, "is no command")):
        broken = words.copy()
        broken[8] = word
        with pytest.raises(InvalidInput, match=sentence):
            decode(broken.tobytes())
    with pytest.raises(Unsupported, match="driver action"):
        decode(b"COP1\x07\0\0\0")


def test_a_stream_of_a_longer_claim_than_its_payload_is_refused() -> None:
    stream = compiled("conv2d", "u55-128").result.command_stream
    with pytest.raises(InvalidInput, match="is to have"):
        decode(stream[:-8])


def test_other_sources_are_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nothing that Vela made"):
        ethosu.load(42)
    with pytest.raises(InvalidInput, match="there is no file"):
        ethosu.load(tmp_path / "none.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK\3\4 no archive")
    with pytest.raises(InvalidInput, match="no .npz file that Vela wrote"):
        ethosu.load(tmp_path / "bad.npz")
    result = compiled("conv2d", "u55-128").result
    outside = replace(result, inputs=(replace(result.inputs[0], address=1 << 40),))
    with pytest.raises(InvalidInput, match="input 0 lies outside of region"):
        ethosu.load(outside)
