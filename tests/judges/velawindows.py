"""Forms of operators that move a window: convolutions, pools, products, resizing, control."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from judges.velaforms import ALL, NONE, U55, Form, numbers, rescaled
from tosaic.ir.build import Builder
from tosaic.ir.graph import Value

Pair = tuple[int, int]


def _fit(size: int, kernel: int, stride: int, before: int) -> int:
    """Padding behind, so that the windows end with it."""
    return -(size + before - kernel) % stride


def conv(
    b: Builder,
    name: str = "CONV2D",
    size: Pair = (8, 8),
    kernel: Pair = (3, 3),
    stride: Pair = (1, 1),
    pad: Pair = (0, 0),
    dilation: Pair = (1, 1),
    ic: int = 4,
    oc: int = 4,
    kind: str = "i8",
    weights: str = "i8",
    batch: int = 1,
    out: str | None = "i8",
    computed: bool = False,
    zero: int = 0,
) -> Value:
    """A convolution of any kind of two axes, rescaled unless ``out`` is None."""
    acc = "i48" if kind == "i16" else "i32"
    depthwise = name == "DEPTHWISE_CONV2D"
    shape = (*kernel, ic, oc // ic) if depthwise else (oc, *kernel, ic)
    weight = b.input(weights, shape) if computed else numbers(b, shape, weights)
    reach = [(k - 1) * n + 1 for k, n in zip(kernel, dilation)]
    pads = [n for s, r, t, p in zip(size, reach, stride, pad) for n in (p, _fit(s, r, t, p))]
    x = b.input(kind, (batch, *size, ic))
    y = b.op(
        name,
        x,
        weight,
        numbers(b, (oc,), acc),
        b.const([0], kind),
        b.const([zero], weights),
        pad=pads,
        stride=stride,
        dilation=dilation,
        acc_type=b.const([0], acc).dtype,
    )
    return y if out is None else rescaled(b, y, out, shift=[36])


def _convolutions() -> Iterator[Form]:
    for name in ("CONV2D", "DEPTHWISE_CONV2D"):

        def form(
            what: str,
            never: frozenset[str] = NONE,
            slow: bool = False,
            name: str = name,
            **options: Any,
        ) -> Form:
            return Form(f"{name} {what}", lambda b: conv(b, name, **options), never, slow)

        for kind, weights in (("i8", "i8"), ("i8", "i4"), ("i16", "i8")):
            for out in ("i8", "i16", "i32", None):
                yield form(f"{kind}x{weights} to {out}", kind=kind, weights=weights, out=out)
        yield form("i8 weight zero point", zero=3)
        yield form("i8 computed weights", computed=True)
        yield form("i8 3 batches", batch=3)
        for stride in ((2, 2), (3, 3), (4, 4), (1, 4), (4, 1), (5, 7)):
            never = ALL if max(stride) > 3 else NONE  # an operation for each pixel
            yield form(f"i8 stride {stride}", never, size=(16, 16), stride=stride)
            yield form(
                f"i8 stride {stride} without padding",
                never,
                stride=stride,
                size=(4 * stride[0] + 3, 4 * stride[1] + 3),
            )
        for dilation in ((2, 2), (3, 3), (1, 4)):
            yield form(f"i8 dilation {dilation}", size=(16, 16), dilation=dilation)
        yield form("i8 dilation (3, 3) of 2 rows", ALL, size=(2, 16), pad=(5, 0), dilation=(3, 3))
        for pad, never in (((127, 0), NONE), ((128, 0), ALL), ((0, 127), NONE), ((0, 128), ALL)):
            kernel = (64, 1) if pad[0] else (1, 64)
            yield form(f"i8 padding {pad} kernel {kernel}", never, pad=pad, kernel=kernel)
        for kernel, never in (
            ((64, 64), NONE),
            ((65, 1), ALL),
            ((1, 65), NONE),
            ((1, 4096), NONE),
            ((1, 4097), ALL),
            ((64, 65), ALL),
        ):
            size = (kernel[0] + 1, kernel[1] + 1)
            yield form(f"i8 kernel {kernel}", never, kernel=kernel, size=size, ic=1, oc=1)
        yield form(
            "i8 kernel (33, 1) dilation (2, 1)", ALL, kernel=(33, 1), dilation=(2, 1), size=(70, 4)
        )
        for channels in (65536, 65537):
            if name == "CONV2D":
                yield form(
                    f"i8 {channels} input channels", ic=channels, oc=1, kernel=(1, 1), size=(1, 2)
                )
            yield form(
                f"i8 {channels} output channels",
                ic=1,
                oc=channels,
                kernel=(1, 1),
                size=(1, 2),
                slow=True,
            )
    for multiplier in (2, 3, 8):
        yield Form(
            f"DEPTHWISE_CONV2D i8 multiplier {multiplier}",
            lambda b, m=multiplier: conv(b, "DEPTHWISE_CONV2D", oc=4 * m),
        )
    yield Form(
        "RESCALE i48 of two from one CONV2D",
        lambda b: (lambda y: (rescaled(b, y, "i16"), rescaled(b, y, "i8")))(
            conv(b, kind="i16", out=None)
        ),
    )


def _transposed(
    b: Builder,
    kernel: Pair,
    stride: Pair,
    out_pad: Sequence[int] = (0, 0, 0, 0),
    size: Pair = (4, 5),
    kind: str = "i8",
    weights: str = "i8",
) -> Value:
    acc = "i48" if kind == "i16" else "i32"
    y = b.TRANSPOSE_CONV2D(
        b.input(kind, (1, *size, 4)),
        numbers(b, (3, *kernel, 4), weights),
        numbers(b, (3,), acc),
        b.const([0], kind),
        b.const([0], weights),
        out_pad=out_pad,
        stride=stride,
        acc_type=b.const([0], acc).dtype,
    )
    return rescaled(b, y, "i8", shift=[36])


def _others() -> Iterator[Form]:
    for kind, weights in (("i8", "i8"), ("i8", "i4"), ("i16", "i8")):
        for stride in ((1, 1), (2, 2), (1, 2), (2, 1), (3, 3), (2, 3)):
            yield Form(
                f"TRANSPOSE_CONV2D {kind}x{weights} stride {stride}",
                lambda b, s=stride, k=kind, w=weights: _transposed(b, (3, 3), s, kind=k, weights=w),
            )
    yield Form(
        "TRANSPOSE_CONV2D i8 stride (1, 2) one row",
        lambda b: _transposed(b, (1, 3), (1, 2), size=(1, 5)),
    )
    yield Form(
        "TRANSPOSE_CONV2D i8 stride (1, 2) kernel of one row",
        lambda b: _transposed(b, (1, 3), (1, 2), size=(4, 5)),
    )
    yield Form(
        "TRANSPOSE_CONV2D i8 stride (2, 1) one column",
        lambda b: _transposed(b, (3, 1), (2, 1), size=(5, 1)),
    )
    for kernel in ((1, 1), (2, 2), (1, 3), (4, 4), (5, 5)):
        yield Form(
            f"TRANSPOSE_CONV2D i8 kernel {kernel} stride 2",
            lambda b, k=kernel: _transposed(b, k, (2, 2)),
        )
    for out_pad in (
        (1, 0, 0, 0),
        (0, 1, 0, 0),
        (0, 0, 1, 0),
        (0, 0, 0, 1),
        (-1, -1, -1, -1),
        (-2, 1, 0, -1),
    ):
        never = U55 if max(out_pad[0], out_pad[2]) > 0 else NONE
        yield Form(
            f"TRANSPOSE_CONV2D i8 out_pad {out_pad}",
            lambda b, p=out_pad: _transposed(b, (3, 3), (2, 2), p),
            never,
        )
    yield Form(
        "TRANSPOSE_CONV2D i8 out_pad (0, 0, -2, -2) of 2 columns",
        lambda b: _transposed(b, (3, 3), (2, 2), (0, 0, -2, -2), size=(4, 2)),
        ALL,
    )
    for kind, weights, depth in product(("i8", "i16"), ("i8", "i4"), (1, 2, 3)):
        if (kind, weights) != ("i16", "i4"):
            yield Form(
                f"CONV3D {kind}x{weights} depth {depth}",
                lambda b, k=kind, w=weights, n=depth: _conv3d(b, k, w, n),
            )
    for kind in ("i8", "i16"):
        yield Form(f"CONV3D {kind}xi8 stride 3", lambda b, k=kind: _conv3d(b, k, "i8", 1, 3))
    for kind in ("i8", "i16"):
        for shape in ((1, 5, 8, 6), (4, 5, 8, 6), (1, 1, 8, 1)):
            yield Form(f"MATMUL {kind} {shape}", lambda b, k=kind, s=shape: _matmul(b, k, s))
    yield Form(
        "MATMUL i8 with scales by column",
        lambda b: _matmul(b, "i8", (1, 5, 8, 6), 6),
        frozenset({"u85"}),
    )
    for shape in ((1, 1, 65536, 1), (1, 1, 65537, 1), (1, 1, 2, 65537), (1, 65537, 2, 1)):
        yield Form(f"MATMUL i8 {shape}", lambda b, s=shape: _matmul(b, "i8", s), slow=True)


def _conv3d(b: Builder, kind: str, weights: str, depth: int, step: int = 1) -> Value:
    acc = "i48" if kind == "i16" else "i32"
    y = b.CONV3D(
        b.input(kind, (1, 4, 5, 5, 4)),
        numbers(b, (3, depth, 3, 3, 4), weights),
        numbers(b, (3,), acc),
        b.const([0], kind),
        b.const([0], weights),
        pad=(0,) * 6,
        stride=(step, 1, 1),
        dilation=(1, 1, 1),
        acc_type=b.const([0], acc).dtype,
    )
    return rescaled(b, y, "i8", shift=[36])


def _matmul(b: Builder, kind: str, shape: Sequence[int], scales: int = 1) -> Value:
    batch, rows, inner, columns = shape
    acc = b.const([0], "i48" if kind == "i16" else "i32").dtype
    y = b.MATMUL(
        b.input(kind, (batch, rows, inner)),
        b.input(kind, (batch, inner, columns)),
        b.const([0], kind),
        b.const([0], kind),
        out=acc,
    )
    return rescaled(b, y, kind, [(1 << 30) + 5 * n for n in range(scales)], [36] * scales)


def _pool(
    b: Builder,
    name: str,
    kind: str,
    size: Pair,
    kernel: Pair,
    stride: Pair,
    pad: Pair = (0, 0),
    batch: int = 1,
) -> Value:
    pads = [n for s, k, t, p in zip(size, kernel, stride, pad) for n in (p, _fit(s, k, t, p))]
    x = b.input(kind, (batch, *size, 4))
    if name == "MAX_POOL2D":
        return b.MAX_POOL2D(x, kernel=kernel, stride=stride, pad=pads)
    zero = b.const([0], kind)
    return b.AVG_POOL2D(
        x, zero, zero, kernel=kernel, stride=stride, pad=pads, acc_type=b.const([0], "i32").dtype
    )


def _pools() -> Iterator[Form]:
    for name, kind in product(("AVG_POOL2D", "MAX_POOL2D"), ("i8", "i16")):

        def form(
            what: str,
            never: frozenset[str] = NONE,
            slow: bool = False,
            name: str = name,
            kind: str = kind,
            **options: Any,
        ) -> Form:
            title = f"{name} {kind} {what}"
            return Form(title, lambda b: _pool(b, name, kind, **options), never, slow)

        for kernel, pad in product((2, 3, 8, 9, 12), (0, 1)):
            yield form(
                f"kernel {kernel} padding {pad}",
                size=(16, 16),
                kernel=(kernel, kernel),
                stride=(1, 1),
                pad=(pad, pad),
            )
        yield form(
            "kernel (8, 9) padding (1, 0)", size=(16, 16), kernel=(8, 9), stride=(1, 1), pad=(1, 0)
        )
        yield form(
            "kernel (9, 8) padding (0, 1)", size=(16, 16), kernel=(9, 8), stride=(1, 1), pad=(0, 1)
        )
        for stride in ((2, 2), (3, 3), (4, 4), (1, 5)):
            size = (4 * stride[0] + 2, 4 * stride[1] + 2)
            yield form(f"stride {stride}", size=size, kernel=(2, 2), stride=stride)
        yield form("2 batches", size=(8, 8), kernel=(2, 2), stride=(2, 2), batch=2)
        for kernel, never in (
            ((256, 1), NONE),
            ((257, 1), ALL),
            ((256, 256), NONE),
            ((1, 65536), NONE),
            ((256, 257), ALL),
        ):
            yield form(f"kernel {kernel}", never, size=kernel, kernel=kernel, stride=(1, 1))
        yield form(
            "of 65537 columns", ALL, slow=True, size=(1, 65537), kernel=(1, 2), stride=(1, 1)
        )
    yield Form(
        "MAX_POOL2D i8 padding 128",
        lambda b: _pool(b, "MAX_POOL2D", "i8", (8, 8), (130, 1), (1, 1), (128, 0)),
        ALL,
    )


def _resize(
    b: Builder,
    kind: str,
    mode: str,
    scale: Sequence[int],
    offset: Pair,
    border: Pair,
    size: Pair = (4, 5),
    batch: int = 1,
    then: bool = False,
) -> Value:
    mixed = mode == "BILINEAR"
    out = ("i48" if kind == "i16" else "i32") if mixed else kind
    y = b.RESIZE(
        b.input(kind, (batch, *size, 4)),
        b.shape(scale),
        b.shape(offset),
        b.shape(border),
        mode=mode,
        out=b.const([0], out).dtype,
    )
    return rescaled(b, y, kind, shift=[32]) if mixed or then else y


def _resizes() -> Iterator[Form]:
    for kind in ("i8", "i16"):
        for mode in ("NEAREST_NEIGHBOR", "BILINEAR"):
            for k in (1, 2, 3, 4, 8, 16):
                for label, scale, offset, border in (
                    ("half pixels", (2 * k, 2) * 2, (1 - k,) * 2, (k - 1,) * 2),
                    ("corners", (k, 1) * 2, (0, 0), (0, 0)),
                    ("corners and more", (k, 1) * 2, (0, 0), (k - 1,) * 2),
                    ("not centred", (2 * k, 2) * 2, (0, 0), (2 * k - 2,) * 2),
                ):
                    never = ALL if k == 1 else NONE
                    yield Form(
                        f"RESIZE {kind} {mode} {k}x {label}",
                        lambda b, d=kind, m=mode, s=scale, o=offset, e=border: _resize(
                            b, d, m, s, o, e
                        ),
                        never,
                    )
            yield Form(
                f"RESIZE {kind} {mode} 2x 2 batches",
                lambda b, d=kind, m=mode: _resize(b, d, m, (4, 2, 4, 2), (-1, -1), (1, 1), batch=2),
            )
            yield Form(
                f"RESIZE {kind} {mode} of one pixel",
                lambda b, d=kind, m=mode: _resize(
                    b, d, m, (4, 1, 4, 1), (0, 0), (3, 3), size=(1, 1)
                ),
            )
            yield Form(
                f"RESIZE {kind} {mode} 2x and 4x",
                lambda b, d=kind, m=mode: _resize(b, d, m, (4, 2, 8, 2), (-1, -3), (1, 3)),
                U55,
            )
            yield Form(
                f"RESIZE {kind} {mode} 1x and 2x",
                lambda b, d=kind, m=mode: _resize(b, d, m, (2, 2, 4, 2), (0, -1), (0, 1)),
            )
            yield Form(
                f"RESIZE {kind} {mode} 3/2",
                lambda b, d=kind, m=mode: _resize(
                    b, d, m, (6, 4, 6, 4), (-1, -1), (1, 1), size=(4, 6)
                ),
            )
            yield Form(
                f"RESIZE {kind} {mode} half",
                lambda b, d=kind, m=mode: _resize(
                    b, d, m, (2, 4, 2, 4), (1, 1), (-1, -1), size=(4, 6)
                ),
            )
        yield Form(
            f"RESIZE {kind} NEAREST_NEIGHBOR 2x borders 1 and 3",
            lambda b, d=kind: _resize(b, d, "NEAREST_NEIGHBOR", (4, 2, 4, 2), (-1, -1), (1, 3)),
            U55,
        )


def _control() -> Iterator[Form]:
    def branch(b: Builder, turn: bool) -> Any:
        region = b.child("turned" if turn else "plain")
        x = region.input("i8", (1, 4, 4, 8))
        region.output(region.CLAMP(x, min_val=0 if turn else -3, max_val=9))
        return region.graph

    def chosen(b: Builder) -> Any:
        x = b.input("i8", (1, 4, 4, 8))
        return b.COND_IF(b.input("bool", (1,)), x, regions=(branch(b, True), branch(b, False)))

    yield Form("COND_IF i8", chosen)


def windows() -> Iterator[Form]:
    for make in (_convolutions, _others, _pools, _resizes, _control):
        yield from make()
