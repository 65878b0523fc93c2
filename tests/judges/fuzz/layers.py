"""Layers with parameters, written for the shape of a value of the program."""

from __future__ import annotations

from collections.abc import Callable

from judges.fuzz.writer import Retry, Writer

Layer = Callable[[Writer], None]
LAYERS: list[Layer] = []


def layer(times: int = 1) -> Callable[[Layer], Layer]:
    def register(function: Layer) -> Layer:
        LAYERS.extend([function] * times)
        return function

    return register


def _picture(w: Writer, rank: int | None = None) -> tuple[str, list[int]]:
    """A value with a batch, channels and one to three axes of pixels."""
    wanted = w.one((3, 4, 4, 4, 5)) if rank is None else rank
    name = w.pick("f", range(wanted, wanted + 1))
    return name, list(w.values[name].shape)


def _divisor(w: Writer, *sizes: int) -> int:
    shared = [g for g in range(1, min(sizes) + 1) if all(n % g == 0 for n in sizes)]
    return int(w.one(shared))


@layer(4)
def convolution(w: Writer) -> None:
    name, shape = _picture(w)
    spatial = shape[2:]
    channels = shape[1]
    outs = int(w.one((1, 2, 3, 4, 6, 8, channels, 2 * channels)))
    groups = w.one((1, 1, _divisor(w, channels, outs), channels if outs % channels == 0 else 1))
    kernel = tuple(1 + w.below(min(3, n)) for n in spatial)
    stride = tuple(int(w.one((1, 1, 2))) for _ in spatial)
    dilation = tuple(int(w.one((1, 1, 1, 2))) for _ in spatial)
    padding = tuple(w.below(k // 2 + 2) for k in kernel)
    given = f"{channels}, {outs}, {kernel}, {stride}, {padding}, {dilation}, {groups}"
    if w.chance(0.1) and set(stride) == {1}:
        given = f"{channels}, {outs}, {kernel}, padding='same', groups={groups}"
    mode = w.one(("zeros",) * 8 + ("reflect", "replicate", "circular"))
    made = f"nn.Conv{len(spatial)}d({given}, bias={w.chance(0.7)}, padding_mode='{mode}')"
    results = w.bind(f"{w.member(made)}({name})")
    if w.chance(0.4):
        norm = w.member(f"nn.BatchNorm{len(spatial)}d({outs})")
        results = w.bind(f"{norm}({results[0]})")
    if w.chance(0.4):
        act = w.one(["torch.relu({})", "F.silu({})", "F.relu6({})", "F.leaky_relu({}, 0.2)"])
        w.bind(act.format(results[0]))


@layer(2)
def transposed(w: Writer) -> None:
    name, shape = _picture(w)
    spatial, channels = shape[2:], shape[1]
    outs = int(w.one((1, 2, 3, 4, channels)))
    groups = w.one((1, 1, _divisor(w, channels, outs)))
    kernel = tuple(1 + w.below(3) for _ in spatial)
    stride = tuple(int(w.one((1, 2, 2, 3))) for _ in spatial)
    padding = tuple(w.below(k) for k in kernel)
    extra = tuple(w.below(s) for s in stride)
    given = f"{channels}, {outs}, {kernel}, {stride}, {padding}, {extra}, {groups}"
    made = f"nn.ConvTranspose{len(spatial)}d({given}, bias={w.chance(0.6)})"
    w.bind(f"{w.member(made)}({name})")


@layer(3)
def linear(w: Writer) -> None:
    name = w.pick("f", range(1, 7))
    wide = w.values[name].shape[-1]
    made = f"nn.Linear({wide}, {w.one((1, 2, 4, 5, 8, 16))}, bias={w.chance(0.7)})"
    w.bind(f"{w.member(made)}({name})")


@layer(3)
def norm(w: Writer) -> None:
    name = w.pick("f", range(2, 6))
    shape = list(w.values[name].shape)
    rank, channels = len(shape), shape[1]
    options = [
        f"nn.LayerNorm({shape[-1]})", f"nn.LayerNorm({shape[-2:]})",
        f"nn.LayerNorm({shape[-1]}, elementwise_affine=False)", f"nn.RMSNorm({shape[-1]})",
        f"nn.GroupNorm({_divisor(w, channels)}, {channels})",
        f"nn.BatchNorm{max(rank - 2, 1)}d({channels})",
    ]  # fmt: skip
    if rank > 2:
        options.append(f"nn.InstanceNorm{rank - 2}d({channels}, affine={w.chance(0.5)})")
    w.bind(f"{w.member(w.one(options))}({name})")


@layer(3)
def pool(w: Writer) -> None:
    name, shape = _picture(w)
    spatial = shape[2:]
    n = len(spatial)
    kernel = tuple(1 + w.below(min(3, s)) for s in spatial)
    stride = tuple(int(w.one((1, 2, 2))) for _ in spatial)
    padding = tuple(w.below(k // 2 + 1) for k in kernel)
    mode = f"ceil_mode={w.chance(0.3)}"
    sizes = tuple(1 + w.below(s) for s in spatial)
    options = [
        f"F.max_pool{n}d({name}, {kernel}, {stride}, {padding}, {mode})",
        f"F.avg_pool{n}d({name}, {kernel}, {stride}, {padding}, {mode})",
        f"F.avg_pool{n}d({name}, {kernel}, {stride}, {padding}, count_include_pad=False)",
        f"F.adaptive_avg_pool{n}d({name}, {sizes})",
        f"F.adaptive_max_pool{n}d({name}, {sizes})",
        f"F.adaptive_avg_pool{n}d({name}, 1)",
    ]
    if n < 3:
        options.append(f"F.lp_pool{n}d({name}, 2, {kernel if n > 1 else kernel[0]})")
        options.append(f"F.max_pool{n}d({name}, {kernel}, {stride}, dilation=1)")
    w.bind(w.one(options))


@layer(2)
def resize(w: Writer) -> None:
    name, shape = _picture(w, w.one((3, 4, 4)))
    linear_mode = "linear" if len(shape) == 3 else "bilinear"
    options = [
        f"F.interpolate({name}, scale_factor=2)",
        f"F.interpolate({name}, scale_factor=2, mode='{linear_mode}')",
        f"F.interpolate({name}, scale_factor=2, mode='{linear_mode}', align_corners=True)",
        f"F.interpolate({name}, size={tuple(1 + w.below(6) for _ in shape[2:])})",
        f"F.interpolate({name}, size={tuple(2 + w.below(6) for _ in shape[2:])}, "
        f"mode='{linear_mode}')",
    ]
    if len(shape) == 4:
        options += [
            f"F.pixel_shuffle({name}, {2 if shape[1] % 4 == 0 else 1})",
            f"F.pixel_unshuffle({name}, {2 if shape[2] % 2 == shape[3] % 2 == 0 else 1})",
            f"F.channel_shuffle({name}, {_divisor(w, shape[1])})",
            f"F.unfold({name}, {1 + w.below(min(2, *shape[2:]))})",
        ]
    w.bind(w.one(options))


@layer()
def recurrent(w: Writer) -> None:
    name = w.pick("f", range(3, 4))
    length, _, wide = w.values[name].shape
    if length > 6:
        raise Retry("many steps")
    kind = w.one(("LSTM", "GRU", "RNN"))
    both = w.chance(0.2)
    made = f"nn.{kind}({wide}, {1 + w.below(5)}, {1 + w.below(2)}, bidirectional={both})"
    w.bind(f"{w.member(made)}({name})[{w.one((0, 0, 1)) if kind != 'LSTM' else 0}]")


@layer()
def cell(w: Writer) -> None:
    name = w.pick("f", range(2, 3))
    wide, hidden = w.values[name].shape[1], 1 + w.below(5)
    kind = w.one(("GRUCell", "RNNCell"))
    w.bind(f"{w.member(f'nn.{kind}({wide}, {hidden})')}({name})")


@layer()
def attention(w: Writer) -> None:
    name = w.pick("f", range(3, 4))
    wide = w.values[name].shape[-1]
    heads = _divisor(w, wide)
    made = w.member(f"nn.MultiheadAttention({wide}, {heads}, batch_first={w.chance(0.5)})")
    w.bind(f"{made}({name}, {name}, {name})[0]")


@layer()
def transformer(w: Writer) -> None:
    name = w.pick("f", range(3, 4))
    wide = w.values[name].shape[-1]
    made = f"nn.TransformerEncoderLayer({wide}, {_divisor(w, wide)}, 8, batch_first=True)"
    w.bind(f"{w.member(made)}({name})")


@layer(2)
def embedding(w: Writer) -> None:
    name = w.pick("i")
    rows = 3 + w.below(4)
    kept = f"{name}.clamp(0, {rows - 1})"
    w.bind(f"{w.member(f'nn.Embedding({rows}, {1 + w.below(6)})')}({kept})")


@layer()
def learned_slope(w: Writer) -> None:
    name = w.pick("f", range(2, 5))
    count = w.one((1, w.values[name].shape[1]))
    w.bind(f"{w.member(f'nn.PReLU({count})')}({name})")


@layer()
def reversible_norm(w: Writer) -> None:
    """Statistics that are kept and given back behind a layer, as forecasters do."""
    name = w.pick("f", range(3, 4))
    long = w.values[name].shape[1]
    mean = w.bind(f"{name}.mean(1, keepdim=True)")[0]
    sd = w.bind(f"torch.sqrt({name}.var(1, keepdim=True, unbiased=False) + 1e-3)")[0]
    inner = w.bind(f"(({name} - {mean}) / {sd}).transpose(1, 2)")[0]
    out = w.bind(f"{w.member(f'nn.Linear({long}, {1 + w.below(6)})')}({inner})")[0]
    w.bind(f"({out} * {sd}.transpose(1, 2) + {mean}.transpose(1, 2)).transpose(1, 2)")


@layer(2)
def again(w: Writer) -> None:
    """A layer that the program has already, on another value."""
    known = [name for name, _ in w.members if name.startswith("self.m")]
    if not known:
        raise Retry("no layer yet")
    w.bind(f"{w.one(known)}({w.pick('f')})")


@layer()
def sequence(w: Writer) -> None:
    """Layers of pictures in a row, as one module."""
    name, shape = _picture(w, 4)
    wide, parts = shape[1], []
    for _ in range(2 + w.below(2)):
        outs = int(w.one((2, 4, 5, 8)))
        parts.append(f"nn.Conv2d({wide}, {outs}, {w.one((1, 3))}, padding='same')")
        parts += w.one([
            [f"nn.BatchNorm2d({outs})", "nn.ReLU(inplace=True)"], ["nn.SiLU()"],
            [f"nn.GroupNorm(1, {outs})", "nn.GELU()"], ["nn.Hardswish()"], [],
        ])  # fmt: skip
        wide = outs
    inner = w.bind(f"{w.member(f'nn.Sequential({chr(44).join(parts)})')}({name})")[0]
    if wide == shape[1] or shape[1] == 1:
        w.bind(f"{inner} + {name}")
    elif w.chance(0.5):  # squeeze and excitation
        gate = w.bind(f"{inner}.mean((2, 3), keepdim=True).sigmoid()")[0]
        w.bind(f"{inner} * {gate}")
