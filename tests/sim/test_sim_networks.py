"""Whole networks from the zoo: Vela's stream gives the bits of the TOSA graph it came from."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import tosaic
from judges.reference import run_reference
from tosaic.sim import ethosu
from tosaic.targets.ethosu.vela import VelaConfig, run_vela
from zoo import build

NPUS = ("u55-128", "u65-512", "u85-256", "u85-2048")
FLAGS = ("--optimise=Size", "--optimise=Performance")


@cache
def network(name: str) -> tuple[bytes, np.ndarray, np.ndarray]:
    """A graph, an input, and what the reference model makes of it."""
    net, example, calibration = build(name)
    art = tosaic.compile(net, example, target="TOSA-1.0+INT", calibration=calibration)
    boundary = art.graph.inputs[0]
    assert boundary.quant is not None
    levels = example[0].double().numpy() / boundary.quant.scale + boundary.quant.zero_point
    x = np.clip(np.round(levels), -128, 127).astype(np.int8).reshape(boundary.shape)
    (expected,) = run_reference(art.bytes, [x])
    return art.bytes, x, expected


@pytest.mark.parametrize("npu", NPUS)
@pytest.mark.parametrize("flag", FLAGS)
def test_a_keyword_spotter_is_bit_exact(npu: str, flag: str) -> None:
    data, x, expected = network("ds_cnn")
    assert len(np.unique(expected)) > 8
    compiled = run_vela(data, VelaConfig(f"ethos-{npu}", flags=(flag,)))
    (got,) = ethosu.load(compiled).run(x)
    np.testing.assert_array_equal(got.reshape(expected.shape), expected)


@pytest.mark.parametrize("mode", ["Sram_Only", "Shared_Sram", "Dedicated_Sram_384KB"])
def test_memory_modes_do_not_change_a_bit(mode: str) -> None:
    data, x, expected = network("ds_cnn")
    config = VelaConfig("ethos-u65-512", memory_mode=mode, flags=("--arena-cache-size=24000",))
    (got,) = ethosu.load(run_vela(data, config)).run(x)
    np.testing.assert_array_equal(got.reshape(expected.shape), expected)
