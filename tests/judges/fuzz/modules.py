"""Modules as newcomers stack them: attention over two values, states that are given and given
back, parametrized and tied weights, every mode of resizing, wrappers of functions.
"""

from __future__ import annotations

from judges.fuzz.layers import LAYERS, _divisor, _picture, layer
from judges.fuzz.writer import Retry, Writer

__all__ = ["LAYERS"]


@layer(2)
def cross_attention(w: Writer) -> None:
    """Another value as keys, a mask of keys or of pairs, and now and then the weights."""
    name = w.pick("f", range(3, 4))
    batch, length, wide = w.values[name].shape
    made = w.member(f"nn.MultiheadAttention({wide}, {_divisor(w, wide)}, batch_first=True)")
    is_own = w.chance(0.5)
    other, keys = (name, length) if is_own else (w.constant((batch, 3, wide)), 3)
    padded = f"(torch.arange({keys}) > {w.below(keys)}).expand({batch}, {keys}).clone()"
    options = w.one([
        "", ", need_weights=False", f", attn_mask={w.constant((length, keys))}",
        f", key_padding_mask={w.member(padded, 'c')}",
        f", attn_mask=torch.ones({length}, {keys}).triu(1).bool()",
    ])  # fmt: skip
    part = 0 if "need_weights" in options else w.one((0, 0, 1))
    w.bind(f"{made}({name}, {other}, {other}{options})[{part}]")


@layer(2)
def given_state(w: Writer) -> None:
    """A recurrent layer with a state that is given, and its last states as results."""
    name = w.pick("f", range(3, 4))
    first, second, wide = w.values[name].shape
    if first > 6 or second > 6:
        raise Retry("many steps")
    hidden, layers, both = 1 + w.below(5), 1 + w.below(2), w.chance(0.3)
    batch_first, kind = w.chance(0.5), w.one(("LSTM", "GRU", "RNN"))
    made = w.member(
        f"nn.{kind}({wide}, {hidden}, {layers}, batch_first={batch_first}, bidirectional={both}, "
        f"bias={w.chance(0.8)})"
    )
    shape = (layers * (1 + both), first if batch_first else second, hidden)
    state = w.constant(shape)
    given = f"({state}, {w.constant(shape)})" if kind == "LSTM" else state
    call = f"{made}({name}, {given})"
    w.bind(f"{call}[0]" if w.chance(0.5) else f"{call}[1]" + ("[1]" if kind == "LSTM" else ""))


@layer()
def lstm_cell(w: Writer) -> None:
    name = w.pick("f", range(2, 3))
    rows, wide = w.values[name].shape
    hidden = 1 + w.below(5)
    made = w.member(f"nn.LSTMCell({wide}, {hidden})")
    h, c = w.constant((rows, hidden)), w.constant((rows, hidden))
    new = w.bind(f"{made}({name}, ({h}, {c}))", 2)
    w.bind(f"{made}({name}, ({new[0]}, {new[1]}))[1]")


@layer()
def decoder(w: Writer) -> None:
    name = w.pick("f", range(3, 4))
    batch, length, wide = w.values[name].shape
    made = w.member(f"nn.TransformerDecoderLayer({wide}, {_divisor(w, wide)}, 8, batch_first=True)")
    mask = w.one(["", f", tgt_mask=nn.Transformer.generate_square_subsequent_mask({length})"])
    w.bind(f"{made}({name}, {w.constant((batch, 3, wide))}{mask})")


@layer(2)
def parametrized(w: Writer) -> None:
    """Weights that are computed from parameters: by their norm, standardized, shared, summed."""
    name, shape = _picture(w, 4)
    wide, outs = shape[1], int(w.one((1, 2, 4)))
    given = f"nn.Conv2d({wide}, {outs}, 1)"
    draw = w.below(5)
    if draw < 2:
        norm = w.one(("weight_norm", "spectral_norm"))
        w.bind(f"{w.member(f'nn.utils.parametrizations.{norm}({given})')}({name})")
        return
    made = w.member(given)
    w.bind(w.one([
        f"F.conv2d({name}, ({made}.weight - {made}.weight.mean()) / ({made}.weight.std() + 0.1))",
        f"F.conv2d({name}, {made}.weight * {w.number()}, {made}.bias)",
        f"F.conv_transpose2d({made}({name}), {made}.weight)",
        f"F.conv2d({name}, {made}.weight.repeat(2, 1, 1, 1))",
    ]))  # fmt: skip


@layer(2)
def tied(w: Writer) -> None:
    """A linear layer, and its weight transposed behind it; an embedding that also classifies."""
    name = w.pick("f", range(1, 5))
    wide = w.values[name].shape[-1]
    if w.chance(0.6):
        made = w.member(f"nn.Linear({wide}, {1 + w.below(6)})")
        inner = w.bind(w.one([f"{made}({name})", f"torch.relu({made}({name}))"]))[0]
        w.bind(f"F.linear({inner}, {made}.weight.t())")
        return
    made = w.member(f"nn.Embedding({3 + w.below(4)}, {wide})")
    w.bind(f"{name} @ {made}.weight.t()")
    w.bind(f"{made}({name}.argmax(-1).clamp(0, 2))")


@layer(2)
def resize_modes(w: Writer) -> None:
    name, shape = _picture(w)
    size = tuple(1 + w.below(6) for _ in shape[2:])
    modes = {
        3: ("linear", "nearest-exact", "area"),
        4: ("bicubic", "nearest-exact", "area", "bilinear"),
        5: ("trilinear", "nearest", "area"),
    }
    mode = w.one(modes[len(shape)])
    corners = f", align_corners={w.chance(0.5)}" if "linear" in mode or mode == "bicubic" else ""
    if len(shape) == 4 and mode in ("bilinear", "bicubic") and w.chance(0.2):
        corners = ", antialias=True"
    scale = w.one((f"size={size}", "scale_factor=2", "scale_factor=1.5", "scale_factor=0.5"))
    w.bind(f"F.interpolate({name}, {scale}, mode='{mode}'{corners})")


@layer(3)
def wrapper(w: Writer) -> None:
    """A module without parameters, or with one of each channel."""
    name, shape = _picture(w, w.one((3, 4, 4)))
    axes, wide = len(shape) - 2, shape[1]
    options = [
        "nn.Softmax(dim=1)", "nn.LogSoftmax(dim=-1)", "nn.Dropout(0.3)", "nn.Identity()",
        "nn.Flatten()", "nn.Hardtanh()", "nn.ReLU6(inplace=True)", "nn.GELU('tanh')", "nn.Mish()",
        f"nn.ReflectionPad{axes}d({w.below(2)})", f"nn.ReplicationPad{axes}d({w.below(3)})",
        f"nn.CircularPad{axes}d({w.below(2)})", f"nn.ConstantPad{axes}d({w.below(3)}, 0.5)",
        f"nn.AdaptiveMaxPool{axes}d(1)", f"nn.LPPool{axes}d(2, 1)", "nn.Upsample(scale_factor=2)",
        f"nn.BatchNorm{axes}d({wide}, affine=False)", "nn.Threshold(0.1, -0.2)", "nn.CELU(0.7)",
        f"nn.LazyConv{axes}d(2, 1)", f"nn.InstanceNorm{axes}d({wide}, track_running_stats=True)",
        "nn.LocalResponseNorm(2)", "nn.RReLU()", "nn.Softsign()", "nn.Unflatten(1, (1, -1))",
        f"nn.Sequential(nn.Flatten(1), nn.LazyLinear({1 + w.below(4)}), nn.Tanh())",
    ]  # fmt: skip
    if wide % 2 == 0:
        options.append("nn.GLU(1)")
    w.bind(f"{w.member(w.one(options))}({name})")


@layer()
def loop(w: Writer) -> None:
    """Layers in a list, each with its residual, and a gate of each."""
    name = w.pick("f", range(2, 5))
    wide = w.values[name].shape[-1]
    made = w.member(f"nn.ModuleList([nn.Linear({wide}, {wide}) for _ in range({2 + w.below(2)})])")
    for i in range(2):
        gate = w.one(["torch.relu({})", "{}.sigmoid() * {}", "{}"])
        name = w.bind(f"{name} + {gate.replace('{}', f'{made}[{i}]({name})')}")[0]
