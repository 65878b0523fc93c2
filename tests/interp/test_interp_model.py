"""A loaded graph checks what it is given, runs batches, and shows any value inside."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tosaic
from judges.reference import run_reference
from tosaic.errors import InvalidInput, Unpredictable, Unsupported
from tosaic.files.flatbuffer import write
from tosaic.interp import fused
from tosaic.interp.batch import rebatch
from tosaic.interp.fused import ConvRescale
from tosaic.interp.model import Model
from tosaic.ir import Builder, Loc
from tosaic.ir.graph import Value
from tosaic.spec.dtypes import F32, I8, I32

RNG = np.random.default_rng(1)


def conv_rescale(b: Builder, x: Value, channels: int, name: str) -> Value:
    """CONV2D 3x3, RESCALE per channel, CLAMP, as the importer emits them."""
    weight = b.const(RNG.integers(-127, 128, (channels, 3, 3, x.shape[3])), "i8")
    bias = b.const(RNG.integers(-500, 500, channels), "i32")
    zero32 = b.const([0], "i32")
    acc = b.CONV2D(
        x, weight, bias, b.const([-3], "i8"), b.const([0], "i8"), pad=(1, 1, 1, 1),
        stride=(1, 1), dilation=(1, 1), acc_type="i32", names=[f"{name}_acc"],
    )  # fmt: skip
    y = b.RESCALE(
        acc, b.const(RNG.integers(1 << 30, 1 << 31, channels), "i32"),
        b.const([41] * channels, "i8"), zero32, b.const([5], "i8"), scale32=True,
        rounding_mode="SINGLE_ROUND", per_channel=True, out=I8, names=[f"{name}_q"],
    )  # fmt: skip
    return b.CLAMP(y, min_val=-100, max_val=120, names=[name])


def network() -> Builder:
    """Two convolutions, a residual sum, a pool and a classifier: every fusion at once."""
    b = Builder("TOSA-1.0+INT")
    x = b.input("i8", (1, 8, 8, 6), "image")
    first = conv_rescale(b, x, 8, "first")
    second = conv_rescale(b, first, 8, "second")
    one, left = b.const([1 << 30], "i32"), b.const([12], "i8")
    zero32, zp = b.const([0], "i32"), b.const([5], "i8")
    scale = {"scale32": True, "rounding_mode": "SINGLE_ROUND", "per_channel": False}
    wide = [b.RESCALE(v, one, left, zp, zero32, out=I32, **scale) for v in (first, second)]
    total = b.ADD(*wide, names=["sum"])
    y = b.RESCALE(total, one, b.const([49], "i8"), zero32, zp, out=I8, names=["res"], **scale)
    pooled = b.AVG_POOL2D(y, zp, zp, kernel=(8, 8), stride=(1, 1), pad=(0, 0, 0, 0), acc_type="i32")
    flat = b.RESHAPE(pooled, b.shape((1, 1, 8)))
    matrix = b.const(RNG.integers(-127, 128, (1, 8, 10)), "i8")
    logits = b.MATMUL(flat, matrix, zp, b.const([0], "i8"))
    b.output(b.RESHAPE(logits, b.shape((1, 10)), names=["logits"]), y)
    return b


def images(count: int) -> np.ndarray:
    return RNG.integers(-128, 128, (count, 8, 8, 6)).astype(np.int8)


def test_a_network_equals_the_reference_model() -> None:
    data = write(network().graph)
    model = tosaic.load(data)
    assert [str(p) for p in model.inputs] == ["image: i8[1,8,8,6]"]
    assert [p.name for p in model.outputs] == ["logits", "res"]
    x = images(1)
    for got, expected in zip(model.run(x), run_reference(data, [x]), strict=True):
        assert np.array_equal(got, expected)
        assert len(np.unique(got)) > 8


def test_paths_and_tensors_are_taken_too(tmp_path: Path) -> None:
    path = tmp_path / "net.tosa"
    write(network().graph, path)
    x = images(1)
    from_path = tosaic.load(path).run(torch.from_numpy(x))
    from_bytes = tosaic.load(path.read_bytes()).run(x)
    for a, b in zip(from_path, from_bytes, strict=True):
        assert isinstance(a, np.ndarray)
        assert np.array_equal(a, b)


def test_a_batch_equals_its_samples() -> None:
    graph = network().graph
    assert rebatch(graph, 7) is not None
    model = Model(graph)
    x = images(7)
    whole = model.run(x)
    single = [model.run(x[i : i + 1]) for i in range(7)]
    for index, got in enumerate(whole):
        assert np.array_equal(got, np.concatenate([s[index] for s in single]))


@pytest.mark.parametrize("operator", ["MATMUL", "MATMUL constant", "MUL"])
def test_samples_may_differ_in_a_zero_point_or_a_shift(operator: str) -> None:
    b = Builder("TOSA-1.0+INT+dynamic")
    own = b.input("i8", (1,), "own")
    if operator == "MUL":
        b.output(b.MUL(b.const([[700, -9]], "i32"), b.const([[31, 64]], "i32"), own))
        data = []
    else:
        constant = operator.endswith("constant")
        a = b.const([[[3, -4]]], "i8") if constant else b.input("i8", (1, 1, 2), "a")
        zero = b.const([0], "i8")
        b.output(b.MATMUL(a, b.const(np.arange(6).reshape(1, 2, 3), "i8"), own, zero))
        data = [] if constant else [RNG.integers(-9, 9, (4, 1, 2)).astype(np.int8)]
    inputs = [np.int8([1, 2, 3, 4]), *data]
    model = Model(b.graph)
    (whole,) = model.run(*inputs)
    rows = [model.run(*(x[i : i + 1] for x in inputs))[0] for i in range(4)]
    assert np.array_equal(whole, np.concatenate(rows))
    assert len(np.unique(rows)) > 4


def test_a_graph_that_mixes_samples_runs_them_one_by_one() -> None:
    b = Builder("TOSA-1.0+INT")
    x = b.input("i32", (3, 4), "x")
    b.output(b.REDUCE_SUM(x, axis=0))
    assert rebatch(b.graph, 2) is None
    data = np.arange(24, dtype=np.int32).reshape(6, 4)
    (got,) = Model(b.graph).run(data)
    assert np.array_equal(got, [data[:3].sum(0), data[3:].sum(0)])


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ((), r"the graph takes 1 input \(image: i8\[1,8,8,6\]\), not 0"),
        ((np.zeros((1, 8, 8, 6)),), "input image: .* takes int8 elements, not float64"),
        ((np.zeros((8, 8, 6), np.int8),), r"input image: .* was given shape \[8, 8, 6\]"),
        ((np.zeros((0, 8, 8, 6), np.int8),), r"was given shape \[0, 8, 8, 6\]"),
        ((np.array(["a"]),), "takes int8 elements, not <U1"),
        (([object()],), "takes int8 elements, not list"),
        ((None,), "takes int8 elements, not NoneType"),
        (([[1], [2, 3]],), "was given a list that makes no array"),
        ((torch.zeros(1, 8, 8, 6, dtype=torch.int8).to_sparse(),), "a dense tensor, not a sparse"),
        ((torch.zeros(1, 8, 8, 6, dtype=torch.int8, device="meta"),), "dense tensor, not a meta"),
    ],
)
def test_wrong_inputs_get_a_sentence(inputs: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Model(network().graph).run(*inputs)


def test_bytes_may_come_in_the_other_order() -> None:
    b = Builder("TOSA-1.0+INT")
    b.output(b.ABS(b.input("i32", (3,), "x")))
    given = np.array([-5, 70000, 1], np.dtype(np.int32).newbyteorder())
    assert Model(b.graph).run(given)[0].tolist() == [5, 70000, 1]


@pytest.mark.parametrize(("kind", "most"), [("i4", 7), ("i48", (1 << 47) - 1)])
def test_values_must_fit_a_type_that_is_narrower_than_its_array(kind: str, most: int) -> None:
    b = Builder("TOSA-1.0+INT+int4+int16")
    x = b.input(kind, (2,), "x")
    b.output(b.IDENTITY(x))
    held = x.dtype.array
    assert Model(b.graph).run(np.array([most, -most], held))[0].tolist() == [most, -most]
    for wrong in (most + 1, -most - 2):
        with pytest.raises(InvalidInput, match=f"which {kind} does not hold"):
            Model(b.graph).run(np.array([0, wrong], held))


@pytest.mark.parametrize("source", ["nowhere.tosa", ".", "a\0b", "x" * 5000, None, 3, [1]])
def test_what_cannot_be_read_gets_a_sentence(source: object) -> None:
    with pytest.raises(InvalidInput, match=r"cannot be read: \w+|is read from a path or"):
        tosaic.load(source)  # type: ignore[arg-type]


def test_results_lie_in_memory_of_their_own(tmp_path: Path) -> None:
    """Writing into one changes no constant, no input, no other result, and no mapped file."""
    b = Builder("TOSA-1.0+INT")
    x, c = b.input("i8", (2, 3), "x"), b.const(np.arange(6).reshape(2, 3), "i8", "c")
    b.output(c, b.RESHAPE(c, b.shape((3, 2))), x, b.TRANSPOSE(x, perms=(0, 1)), x)
    path = tmp_path / "moves.tosa"
    write(b.graph, path)
    model = tosaic.load(path)
    given = np.full((2, 3), 7, np.int8)
    first = model.run(given)
    before = [array.copy() for array in first]
    for index, array in enumerate(first):
        array[...] = 100 + index
        assert np.unique(array).tolist() == [100 + index]
    assert np.unique(given).tolist() == [7]
    assert all(map(np.array_equal, model.run(given), before))


def test_scalars_hold_no_batch() -> None:
    b = Builder("TOSA-1.0+INT")
    x = b.input("i8", (1, 4), "x")
    b.output(b.RESHAPE(b.REDUCE_MAX(x, axis=1), b.shape(()), names=["most"]))
    assert Model(b.graph).run(np.int8([[1, 4, 2, 3]]))[0] == 4
    with pytest.raises(InvalidInput, match="'most' is a scalar, which holds no batch"):
        Model(b.graph).run(np.zeros((3, 4), np.int8))


@pytest.mark.parametrize("size", [1, 6, 256])
def test_a_constant_of_many_elements_is_part_of_no_table(size: int) -> None:
    """RESCALE, ADD with a constant for each channel, RESCALE: 256 fitted a table by accident."""
    b = Builder("TOSA-1.0+INT")
    x = b.input("i8", (1, 2, 3, size), "x")
    scale = {"scale32": True, "rounding_mode": "SINGLE_ROUND", "per_channel": False}
    one, zero8, zero32 = b.const([1 << 30], "i32"), b.const([0], "i8"), b.const([0], "i32")
    wide = b.RESCALE(x, one, b.const([20], "i8"), zero8, zero32, out=I32, **scale)
    total = b.ADD(wide, b.const(RNG.integers(-90000, 90000, (1, 1, 1, size)), "i32"))
    b.output(b.RESCALE(total, one, b.const([41], "i8"), zero32, zero8, out=I8, **scale))
    given = RNG.integers(-128, 128, (1, 2, 3, size)).astype(np.int8)
    (expected,) = run_reference(write(b.graph), [given])
    assert np.array_equal(Model(b.graph).run(given)[0], expected)
    assert len(np.unique(expected)) > 4


def test_an_overflow_names_the_operator_and_its_place() -> None:
    b = Builder("TOSA-1.0+INT")
    x = b.input("i32", (2,), "x")
    b.loc = Loc("aten.add", "head", "net.py", 7)
    b.output(b.ADD(x, x, names=["twice"]))
    model = Model(b.graph)
    assert model.run(np.array([1, -5], np.int32))[0].tolist() == [2, -10]
    with pytest.raises(Unpredictable, match=r"ADD: .*\(at ADD twice \(aten.add, head, net.py:7\)"):
        model.run(np.array([1, 1 << 30], np.int32))


@pytest.mark.parametrize(
    ("bias", "shift", "sentence"),
    [
        ((1 << 31) - 1, 40, r"CONV2D: a sum lies outside its accumulator \(at CONV2D acc\)"),
        (0, 12, r"RESCALE: a value is too large for its shift \(at RESCALE scaled\)"),
        (0, 63, r"RESCALE: the shift 63 is outside of 2 to 62 \(at RESCALE scaled\)"),
    ],
)
def test_in_a_fused_kernel_the_guilty_operator_is_named(
    bias: int, shift: int, sentence: str
) -> None:
    b = Builder("TOSA-1.0+INT")
    x = b.input("i8", (1, 2, 2, 8), "x")
    zero8, zero32 = b.const([0], "i8"), b.const([0], "i32")
    acc = b.CONV2D(
        x, b.const(np.full((3, 1, 1, 8), 127), "i8"), b.const([bias], "i32"), zero8, zero8,
        pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type="i32", names=["acc"],
    )  # fmt: skip
    scaled = b.RESCALE(
        acc, b.const([1 << 30], "i32"), b.const([shift], "i8"), zero32, zero8, scale32=True,
        rounding_mode="SINGLE_ROUND", per_channel=False, out=I8, names=["scaled"],
    )  # fmt: skip
    b.output(b.CLAMP(scaled, min_val=0, max_val=100, names=["clamped"]))
    model = Model(b.graph)  # whatever is wrong shows when it runs
    with pytest.raises(Unpredictable, match=sentence):
        model.run(np.full((1, 2, 2, 8), 127, np.int8))


def test_what_the_interpreter_lacks_is_said_by_name() -> None:
    b = Builder("TOSA-1.1+FP+mx+mxfp4e2m1")
    x = b.input("bs32_f4e2m1", (1, 32), "x")
    b.output(x)
    with pytest.raises(Unsupported, match="the interpreter does not run on bs32_f4e2m1"):
        Model(b.graph)


def test_what_the_interpreter_lacks_of_an_operator_is_said_by_name() -> None:
    b = Builder("TOSA-1.1+FP+mx+mxfp4e2m1")
    x = b.input("bs32_f4e2m1", (1, 32), "x")
    b.output(b.CAST(x, out=F32))
    with pytest.raises(Unsupported, match="the interpreter does not run CAST on bs32_f4e2m1"):
        Model(b.graph)


def test_a_run_leaves_its_inputs_alone() -> None:
    model = Model(network().graph)
    x = images(1)
    before = x.copy()
    model.run(x)
    assert np.array_equal(x, before)
    x.flags.writeable = False
    model.run(x)


def test_threads_leave_the_settings_of_the_process_as_they_were() -> None:
    backends: Any = torch.backends
    model, x = Model(network().graph), images(2)
    expected = model.run(x[:1])
    wrong = []

    def work() -> None:
        for count in (1, 2, 1):
            got = model.run(x[:count])
            wrong.extend(a for a, b in zip(got, expected) if not np.array_equal(a[: len(b)], b))

    for nnpack in (True, False):
        before = backends.nnpack.set_flags(nnpack)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert backends.nnpack.set_flags(*before) == (nnpack,)
    assert not wrong


def test_faster_kernels_are_proved_after_many_values_and_give_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fused, "PAYS", 600)  # of 64 values a run
    graph = network().graph
    given = RNG.integers(-128, 128, (12, 1, 8, 8, 6)).astype(np.int8)
    wanted = [run_reference(write(graph), [x]) for x in given[-1:]]
    proofs = []
    fuse = ConvRescale._fuse
    monkeypatch.setattr(ConvRescale, "_fuse", lambda self: (proofs.append(self), fuse(self)))
    model, counts = Model(graph), []
    for x in given:
        found = model.run(x)
        counts.append(len(proofs))
    assert counts[0] == counts[8] == 0
    assert counts[9] > 0
    for ours, right in zip(found, wanted[0], strict=True):
        np.testing.assert_array_equal(ours, right)
