"""Kernels with the DSP and the vector extension equal TOSA's definition, here and under QEMU."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cortexm.build import has_compiler
from judges.cortexm_kernels import (
    Trial,
    add_layer,
    add_trial,
    conv_layer,
    conv_trial,
    matmul_layer,
    matmul_trial,
    on_core,
    on_host,
)  # fmt: skip
from tosaic.sim.cortexm import qemu
from tosaic.targets.cortexm.cores import CORES
from tosaic.targets.cortexm.forms import FORMS
from tosaic.targets.cortexm.layers import Add, Conv, MatMul

SAME = (1, 1, 1, 1)
CONVS = [
    ("pointwise", "conv", (1, 5, 6, 20), 10, (1, 1), {}),
    ("pointwise, odd channels", "conv", (1, 3, 3, 17), 7, (1, 1), {"lut": True}),
    ("pointwise, two images", "conv", (2, 2, 3, 33), 6, (1, 1), {"limits": True}),
    ("pointwise, one pixel of two", "conv", (2, 1, 1, 9), 5, (1, 1), {}),
    ("pointwise, stride 2", "conv", (1, 6, 6, 8), 9, (1, 1), {"stride": 2}),
    ("few outputs", "conv", (1, 4, 5, 6), 3, (1, 1), {"odd": True}),
    ("first", "conv", (1, 9, 11, 3), 8, (3, 3), {"stride": 2, "pad": (0, 1, 0, 1)}),
    ("one input channel", "conv", (1, 13, 10, 1), 12, (10, 4), {"stride": 2, "pad": (4, 5, 1, 1)}),
    ("3x3", "conv", (1, 6, 7, 16), 6, (3, 3), {"pad": SAME}),
    ("3x3, all shifts", "conv", (1, 5, 5, 5), 13, (3, 3), {"pad": SAME, "odd": True}),
    ("dilated", "conv", (2, 7, 7, 5), 6, (3, 3), {"dilation": 2, "pad": (2, 2, 2, 2)}),
    ("many products", "conv", (1, 3, 3, 200), 4, (3, 3), {"pad": SAME}),
    ("int16", "conv", (1, 4, 4, 12), 7, (1, 1), {"bits": 16}),
    ("int16, many products", "conv", (1, 3, 3, 200), 4, (3, 3), {"pad": SAME, "bits": 16}),
    ("row", "conv", (1, 1, 1, 77), 21, (1, 1), {"lut": True}),
    ("row, limits", "conv", (1, 1, 1, 16), 8, (1, 1), {"limits": True, "odd": True}),
    ("row, short", "conv", (1, 1, 1, 3), 2, (1, 1), {}),
    ("row, one output", "conv", (1, 1, 1, 40), 1, (1, 1), {}),
    ("row, many products", "conv", (1, 1, 1, 1500), 4, (1, 1), {}),
    ("row, int16", "conv", (1, 1, 1, 64), 15, (1, 1), {"bits": 16}),
    ("row, int16, many products", "conv", (1, 1, 1, 1500), 6, (1, 1), {"bits": 16}),
    ("depthwise", "depthwise", (1, 8, 8, 16), 0, (3, 3), {"pad": SAME}),
    ("depthwise, odd sizes", "depthwise", (1, 7, 5, 10), 0, (3, 3), {"pad": SAME, "lut": True}),
    ("depthwise, 3x3", "depthwise", (1, 3, 3, 37), 0, (3, 3), {"pad": SAME, "odd": True}),
    ("depthwise, no padding", "depthwise", (2, 5, 8, 6), 0, (3, 3), {"limits": True}),
    ("depthwise, one pixel", "depthwise", (1, 1, 1, 5), 0, (3, 3), {"pad": SAME}),
    ("depthwise, one row", "depthwise", (1, 1, 6, 4), 0, (3, 3), {"pad": SAME}),
    ("depthwise, odd row", "depthwise", (1, 1, 9, 18), 0, (3, 3), {"pad": SAME, "limits": True}),
    ("depthwise, one wide row", "depthwise", (1, 3, 18, 5), 0, (3, 3), {}),
    ("depthwise, stride 2", "depthwise", (1, 12, 12, 20), 0, (3, 3),
     {"stride": 2, "pad": (0, 1, 0, 1)}),
    ("depthwise, stride 2, odd", "depthwise", (1, 11, 9, 17), 0, (3, 3),
     {"stride": 2, "pad": SAME, "limits": True, "odd": True}),
    ("depthwise, stride 2, narrow", "depthwise", (1, 6, 6, 33), 0, (3, 3),
     {"stride": 2, "pad": SAME}),
    ("depthwise, 5x5", "depthwise", (2, 7, 9, 19), 19, (5, 5), {"pad": (2, 2, 2, 2), "lut": True}),
    ("depthwise, 5x5, stride 2", "depthwise", (1, 8, 7, 8), 8, (5, 5),
     {"stride": 2, "pad": (1, 2, 2, 1), "odd": True}),
    ("depthwise, a line", "depthwise", (1, 1, 12, 9), 9, (1, 4), {"pad": (0, 0, 3, 0)}),
    ("depthwise, dilated", "depthwise", (1, 6, 9, 13), 13, (3, 3),
     {"dilation": 3, "pad": (3, 3, 3, 3), "limits": True}),
    ("depthwise, larger than the image", "depthwise", (1, 2, 3, 4), 4, (7, 7),
     {"pad": (6, 6, 6, 6)}),
    ("depthwise, two outputs each", "depthwise", (1, 5, 5, 7), 14, (3, 3), {"pad": SAME}),
    ("depthwise, of one channel", "depthwise", (1, 6, 6, 1), 6, (3, 3), {"pad": SAME}),
    ("depthwise, of three outputs each", "depthwise", (1, 4, 6, 6), 18, (2, 3), {"stride": 3}),
    ("depthwise, int16", "depthwise", (1, 5, 4, 10), 10, (3, 3), {"pad": SAME, "bits": 16}),
]  # fmt: skip
PRODUCTS = [
    ("product", (2, 7, 24, 9, 2, False), {}), ("product, transposed", (2, 7, 23, 9, 2, True), {}),
    ("product, one matrix", (3, 4, 64, 40, 1, False), {"lut": True}),
    ("product, one row", (1, 1, 33, 35, 1, True), {"limits": True}),
    ("product, int16", (1, 5, 16, 33, 1, False), {"bits": 16}),
    ("product, short", (1, 2, 3, 5, 1, True), {"odd": True}),
]  # fmt: skip
NAMES = {"dsp": "cortex-m4", "mve": "cortex-m55"}


def trials(form: str) -> list[Trial]:
    rng, core, made = np.random.default_rng(19), CORES[NAMES[form]], []
    for name, kind, image, oc, kernel, more in CONVS:
        layer = conv_layer(rng, kind, image, oc, kernel, **more)
        call = FORMS[form][Conv](layer, core)
        if call is not None:
            made.append(conv_trial(name, layer, call, rng))
    for name, sizes, more in PRODUCTS:
        product = matmul_layer(rng, *sizes, **more)
        call = FORMS[form][MatMul](product, core)
        if call is not None:
            made.append(matmul_trial(name, product, call, rng))
    for size, more in ((1, {}), (23, {"lut": True}), (64, {"limits": True}), (40, {"odd": True})):
        total = add_layer(rng, size, **more)
        call = FORMS[form][Add](total, core)
        if call is not None:
            made.append(add_trial(f"sum of {size}", total, call, rng))
    return made


@pytest.mark.parametrize("form", NAMES)
def test_a_form_takes_nearly_all_of_these_layers(form: str) -> None:
    made = trials(form)
    assert len(made) >= len(CONVS) + len(PRODUCTS) + 4 - 4
    taken = {trial.name for trial in made if trial.name.startswith("depthwise")}
    assert taken == {name for name, *_ in CONVS if name.startswith("depthwise")}


@pytest.mark.skipif(not has_compiler(), reason="gcc is not installed")
@pytest.mark.parametrize("form", NAMES)
def test_packed_layers_equal_the_definition_on_this_machine(form: str, tmp_path: Path) -> None:
    assert on_host(trials(form), tmp_path) == []


@pytest.mark.parametrize(
    ("form", "core"), [("dsp", "m4"), ("dsp", "m7"), ("dsp", "m33"), ("mve", "m55")]
)
def test_packed_layers_equal_the_definition_on_a_core(form: str, core: str) -> None:
    reason = qemu.missing()
    if reason is not None:
        pytest.skip(reason)
    assert on_core(core, trials(form)) == []


CLANG = (
    "clang", "--target=arm-none-eabi", "-ffreestanding", "-Werror",
    "-isystem", "/usr/lib/arm-none-eabi/include",
)  # fmt: skip


@pytest.mark.skipif(qemu.missing() is not None, reason=qemu.missing() or "")
@pytest.mark.parametrize("compiler", ["gcc -O0", "clang -O0", "clang -O2"])
@pytest.mark.parametrize("form", NAMES)
def test_other_compilers_and_builds_for_debugging_give_the_same(
    form: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They keep a frame pointer in r7, which assembly may not take from them."""
    name, *flags = compiler.split()
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    call = qemu._tool

    def other(command: Sequence[str], folder: Path, timeout: float = 600.0) -> str:
        if "-c" in command:
            first = CLANG if name == "clang" else command[:1]
            command = [*first, *(word for word in command[1:] if word != "-O2"), *flags]
        return call(command, folder, timeout)

    monkeypatch.setattr(qemu, "_tool", other)
    assert on_core(NAMES[form].removeprefix("cortex-"), trials(form)) == []
