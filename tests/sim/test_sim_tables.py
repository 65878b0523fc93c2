"""Tables of 16 bits: the index saturates before it is looked up, whatever the result's type."""

from __future__ import annotations

import numpy as np
import pytest

from judges.reference import run_reference
from npu.maker import Maker
from tosaic.files import flatbuffer
from tosaic.sim import ethosu
from tosaic.spec.dtypes import I16
from tosaic.targets.ethosu.vela import VelaConfig, run_vela


@pytest.mark.parametrize("npu", ["u55-128", "u65-512", "u85-256"])
@pytest.mark.parametrize("narrow", [True, False], ids=["16 bit results", "32 bit results"])
def test_indices_beyond_16_bits_take_the_last_entry(npu: str, narrow: bool) -> None:
    m = Maker((5,), npu.startswith("u85"))
    b = m.b
    x = b.input("i8", (1, 9, 10, 12))
    scale = {
        "scale32": True, "rounding_mode": "SINGLE_ROUND", "per_channel": False,
        "input_unsigned": False, "output_unsigned": False, "out": I16,
    }  # fmt: skip
    zero16, zero32 = b.const([0], "i16"), b.const([0], "i32")
    # 300 times an int8: a sixth of all values lies beyond int16.
    wide = b.RESCALE(
        x, b.const([300 << 21], "i32"), b.const([21], "i8"), b.const([0], "i8"), zero16, **scale
    )
    entries = (np.sin(np.arange(513) / 60) * 30_000).astype(int)
    y = b.TABLE(wide, b.const(entries, "i16"))
    if narrow:
        y = b.RESCALE(y, b.const([1 << 30], "i32"), b.const([37], "i8"), zero32, zero16, **scale)
    b.output(y)
    data = flatbuffer.write(b.graph)
    values = np.random.default_rng(1).integers(-128, 128, x.shape).astype(np.int8)
    (expected,) = run_reference(data, [values])
    assert len(np.unique(expected)) > 150
    (got,) = ethosu.load(run_vela(data, VelaConfig(f"ethos-{npu}"))).run(values)
    np.testing.assert_array_equal(got.reshape(expected.shape), expected)
