"""Templates of statements: expressions over values, constants and numbers, family by family.

``2: …`` gives two results. Holes are those of ``holes``.
"""

from __future__ import annotations

from judges.fuzz.idioms import IDIOMS
from judges.fuzz.indexing import MOVES, PRODUCTS, SORTING

UNARY = """
torch.relu({x})
F.relu6({x})
F.leaky_relu({x}, {p})
F.elu({x}, {p})
F.selu({x})
F.celu({x})
F.gelu({x})
F.gelu({x}, approximate='tanh')
F.silu({x})
F.mish({x})
F.hardswish({x})
F.hardsigmoid({x})
F.hardtanh({x}, -{p}, {p})
F.softplus({x})
F.softsign({x})
F.tanhshrink({x})
F.softshrink({x}, {p})
F.hardshrink({x}, {p})
F.threshold({x}, {k}, {l})
F.logsigmoid({x})
{x}.sigmoid()
{x}.tanh()
{x}.sin()
{x}.cos()
torch.atan({x})
torch.erf({x})
({x} * 0.3).exp()
torch.expm1({x}.clamp(-2, 2))
torch.exp2({x}.clamp(-3, 3))
({x}.abs() + {p}).log()
torch.log1p({x}.abs())
torch.log2({x}.abs() + 0.5)
({x}.abs() + {p}).sqrt()
torch.rsqrt({x} * {x} + {p})
torch.reciprocal({x}.abs() + {p})
{x}.clamp(-0.9, 0.9).asin()
{x}.clamp(-0.9, 0.9).atanh()
torch.asinh({x})
torch.sinh({x}.clamp(-2, 2))
torch.cosh({x}.clamp(-2, 2))
{x}.square()
{x}.pow(3)
{x} ** 2
({x}.abs() + 0.1) ** {k}
{p} ** {x}.clamp(-2, 2)
{x}.abs()
-{x}
torch.neg({x})
{x}.positive()
{x} * {k}
{x} + {k}
{k} - {x}
{x} / {p}
{p} / ({x}.abs() + 0.5)
torch.clamp({x}, {k})
torch.clamp({x}, max={k})
{x}.clamp(-{p}, {p})
torch.nan_to_num({x})
torch.sinc({x})
torch.deg2rad({x})
torch.logit({x}.sigmoid(), 0.05)
torch.special.expit({x})
torch.lgamma({x}.abs() + 1.0)
torch.digamma({x}.abs() + 1.0)
torch.i0({x}.clamp(-3, 3))
torch.special.entr({x}.abs())
{x}.half().float()
torch.dropout({x}, 0.5, False)
{x}.clone()
{x}.detach()
{x}.contiguous()
""".strip().splitlines()

JUMPING = """
torch.floor({x})
torch.ceil({x} * 2)
torch.round({x})
torch.round({x}, decimals=1)
torch.trunc({x} * 3)
torch.frac({x})
torch.sign({x})
torch.sgn({x})
torch.heaviside({x}, {Y})
({x} > {k}).float()
({x} >= {y}).to(torch.float32)
({x} * 2).round().int()
{x}.floor().long()
(({x} * 2).clamp(-4, 3).floor() + 4).long()
{x}.int()
{x}.round().to(torch.int32)
{x} > {y}
{x} <= {y}
{x} == {x}.round()
torch.ne({x}, {k})
torch.lt({x}, {Y})
torch.isclose({x}, {Y}, atol=0.5)
torch.logical_and({x} > {k}, {m})
torch.logical_not({x} > {k})
torch.signbit({x})
torch.isfinite({x})
{x}.argmax({d})
{x}.argmin({d}, keepdim={b})
{x}.argmax()
{x}.argsort({d})
{x}.argsort({d}, descending=True)
torch.bucketize({x}, torch.linspace(-1, 1, {n:5}))
torch.searchsorted(torch.linspace(-1, 1, {n:5}), {x})
({x} > {k}).any({d})
({x} > {k}).all()
({x} > {k}).sum({d})
torch.count_nonzero({x} > {k}, {d})
torch.remainder({x}, {p})
torch.fmod({x}, {p})
{x} % {p}
torch.floor_divide({x}, {p})
{x} // {p}
torch.div({x}, {p}, rounding_mode='trunc')
torch.histc({x}, {n:5}, -2, 2)
""".strip().splitlines()

BINARY = """
{x} + {y}
{y} + {x}
{x} - {y}
{y} - {x}
{x} * {y}
{x} / ({Y}.abs() + {p})
torch.add({x}, {Y}, alpha={k})
torch.sub({x}, {Y}, alpha=2)
torch.rsub({x}, {Y})
torch.maximum({x}, {Y})
torch.minimum({Y}, {x})
torch.maximum(F.leaky_relu({x}, 0.2), {Y})
torch.fmax({x}, {Y})
torch.fmin({x}, {Y})
torch.clamp({x}, {Y}, {Y} + 1)
torch.clamp({x}, max={Y})
torch.lerp({x}, {Y}, {k})
torch.lerp({x}, {w}, {U})
torch.addcmul({x}, {Y}, {U}, value={k})
torch.addcdiv({x}, {Y}, {U}.abs() + {p}, value={k})
({Y} - {x}) ** 2
torch.atan2({x}, {Y} + 3)
torch.hypot({x}, {Y})
torch.logaddexp({x}, {Y})
torch.xlogy({Y}, {x}.abs() + 0.5)
torch.copysign({x}, {Y})
torch.where({m}, {x}, {y})
torch.where({m}, {y}, {x})
torch.where({x} > {y}, {x}, {Y})
{x}.masked_fill({m}, {k})
torch.pow({x}.abs() + 0.2, {Y}.clamp(-2, 2))
F.prelu({x:2+}, {C})
F.mse_loss({x}, {w}, reduction='none')
F.l1_loss({x}, {w})
F.smooth_l1_loss({x}, {w}, reduction='none')
F.cosine_similarity({x:1+}, {w}, {d})
F.pairwise_distance({x:1+}, {w})
torch.dist({x}, {w})
{x} * {m}
{x}.gt({k}) * {x}
torch.nextafter({x}, {Y})
torch.ldexp({x}, {q})
F.glu(torch.cat([{x:1+}, {w}], {d}), {d})
torch.outer({x:1}, {z:1})
""".strip().splitlines()

REDUCTIONS = """
{x}.sum()
{x}.mean()
{x}.sum({d})
{x}.sum({axes}, keepdim={b})
{x}.mean({axes}, keepdim={b})
{x}.mean({d}, keepdim=True)
{x}.amax({axes}, keepdim={b})
{x}.amin({d})
2: {x}.max({d}, keepdim={b})
2: {x}.min({d})
{x}.max()
{x}.prod({d})
torch.std({x}, {d}, keepdim={b})
torch.var({x}, {axes}, correction=0)
2: torch.var_mean({x}, {d})
2: torch.std_mean({x}, {axes}, keepdim=True)
torch.logsumexp({x}, {d})
{x}.norm(dim={d})
torch.linalg.vector_norm({x}, dim={axes})
torch.linalg.vector_norm({x}, ord=1)
F.normalize({x}, dim={d})
{x}.softmax({d})
F.log_softmax({x}, {d})
F.softmin({x}, {d})
{x}.cumsum({d})
{x}.cumprod({d})
2: {x}.cummax({d})
torch.logcumsumexp({x}, {d})
torch.nansum({x}, {d})
torch.nanmean({x}, {d})
({x} - {x}.mean({d}, keepdim=True)) / ({x}.std({d}, keepdim=True, correction=0) + 1e-3)
{x} / {x}.abs().amax({d}, keepdim=True).clamp(min=0.1)
torch.aminmax({x}, dim={d}).max
torch.diff({x}, dim={d})
torch.trapezoid({x}, dim={d})
{x}.square().mean({d}, keepdim=True).add(1e-3).rsqrt() * {x}
F.layer_norm({x:1+}, {last})
F.rms_norm({x:1+}, {last})
""".strip().splitlines()

WHOLE = """
{q} + {r}
{q} - {r}
{q} * {r}
{q} // 2
{q} % 3
torch.div({q}, 2, rounding_mode='floor')
{q}.float() * {k}
{q}.float()
{q}.to(torch.float32) / {p}
{q}.int()
{q}.long()
{q} > {r}
{q} == {r}
({q} == {r}).float()
{q} & 3
{q} | 1
{q} ^ {r}
~{q}
{q} << 1
{q} >> 1
{q}.abs()
-{q}
{q}.clamp(0, 3)
{q}.sum({d})
{q}.sum()
{q}.amax({d})
{q}.cumsum({d})
2: {q}.max({d})
2: {q}.sort({d})
torch.maximum({q}, {q}.flip(0)) if {q}.dim() else {q} + 1
torch.where({q} > 1, {q}, {r})
{q}.reshape{shape}
{q:1+}.permute({perm})
{q:1+}[{slices}]
{q}.unsqueeze({u})
torch.cat([{q:1+}, {q}], {d})
{q}.float().mean()
{q} * 0.5
{q} / 2
{q}.bool()
torch.sign({q})
{q}.remainder(4)
torch.bitwise_and({q}, 1).bool()
{q}.to(torch.int8)
{q}.to(torch.int16)
{q}.clamp(0, 9).to(torch.uint8)
{q}.short() * 2
{x}.to(torch.int8)
{x}.sigmoid().mul(255).to(torch.uint8)
{q} * {x}
{x} + {q}
torch.where({q} > 0, {x}, {k})
torch.full_like({q}, 3)
torch.arange({n:5}) * {q}
{q} * 2
~{h}
{h} & {h}
{h}.float()
{h}.long()
{h}.int() + 1
{h}.any()
{h:1+}.all({d})
{h:1+}.sum({d})
{h}.logical_xor({h}.logical_not())
{h:1+}[{slices}]
{h} * {k}
""".strip().splitlines()

BRANCHES = """
torch.cond({x}.sum() > {k}, lambda a: a * {l}, lambda a: a.relu(), ({x},))
torch.cond({h}.any(), lambda a, b: a + b, lambda a, b: a * b, ({x}, {w}))
torch.cond(({x} > {k}).all(), lambda a: a.softmax(-1), lambda a: F.gelu(a), ({x:1+},))
torch.cond({x}.mean() > 0, lambda a: a + 1, lambda a: a - {p}, ({x},))
torch.cond({x}.max() > {k}, lambda a: a.tanh(), lambda a: torch.cond(a.sum() > 0, lambda b: b * 2, lambda b: b.abs(), (a,)), ({x},))
""".strip().splitlines()  # noqa: E501

FAMILIES = {
    "unary": (UNARY, 20), "jump": (JUMPING, 7), "binary": (BINARY, 20),
    "reduction": (REDUCTIONS, 12), "sorting": (SORTING, 7), "move": (MOVES, 18),
    "product": (PRODUCTS, 8), "whole": (WHOLE, 8), "branch": (BRANCHES, 1),
    "idiom": (IDIOMS, 16),
}  # fmt: skip
