"""Templates of statements as models are written by hand: masks, casts, chains of choices, empty
parts, halves that are swapped, losses, spectra, sizes in arithmetic; see ``templates``.
"""

from __future__ import annotations

IDIOMS = """
torch.where({x} > {k}, {x}, torch.where({x} < {l}, {y}, {k}))
torch.where({m}, {x}, torch.zeros_like({x}))
torch.where({x} > 0, {x}, torch.tensor({k}))
{x:1+}.masked_fill({x} < {x}.mean({d}, keepdim=True), float('-inf')).amax({d})
{x:1+}.masked_fill({x} < {x}.amax({d}, keepdim=True) - {p}, float('-inf')).softmax({d})
{x:1+}.masked_fill({x} < {x}.mean({d}, keepdim=True), -1e9).softmax({d})
({x:2+} + torch.triu(torch.full(({x}.shape[-2], {x}.shape[-1]), -1e4), 1)).softmax(-1)
{x}.masked_scatter({x} > {k}, torch.zeros_like({x}))
torch.masked_select({x}, {x} == {x}) * {k}
{x:2+}[{x}[..., 0] == {x}[..., 0]]
torch.cat([{x:1+}, {x}[:0]], 0)
torch.cat([{x:1+}.narrow({d}, 0, 0), {x}], {d}) * {k}
{x:1+}[..., 1:1].sum() + {x}
{x:1+}.flip(({d},)) + {x}
{x:2+}.flip((0, -1))
{x:1+}.flip((-1,))[..., ::2]
torch.cat(torch.chunk({x:1+}, 2, {d})[::-1], {d})
torch.cat(torch.split({x:1+}, {t}, {d})[::-1], {d})
torch.stack(torch.unbind({x:1+}, {d})[::-1], {d})
sum(torch.unbind({x:1+}, {d}))
2: torch.cat([{x:1+}, {w}], {d}).chunk(2, {d})
2: torch.stack([{x}, {w}], 0).unbind(0)
torch.stack([v * {k} for v in {x:1+}.split(1, {d})], 0).sum(0)
torch.cat([-{x:1+}[..., {x}.shape[-1] // 2:], {x}[..., :{x}.shape[-1] // 2]], -1) + {x}
torch.cat([-{x:1+}[..., 1::2], {x}[..., ::2]], -1).cos()
{x:1+} * torch.arange({x}.shape[-1]).float().mul(0.3).sin()
{x:2+} + torch.outer(torch.arange({x}.shape[-2]).float(), torch.arange({x}.shape[-1]).float()).mul(0.1).cos()
{x:1+} * {x}.shape[-1] ** -0.5
{x:1+} / {x}.size(0) + {x}.numel()
{x}.sum() / {x}.numel()
{x} * torch.tensor({k})
{x} + torch.tensor([{k}])
{x} - {x}.flatten()[0]
{x}.max() - {x}
{x} / {x}.abs().max().clamp(min=0.1)
({x} - {x}.min()) / ({x}.max() - {x}.min() + 0.1)
{x}.to(torch.bfloat16).float()
{x}.half().mul(2).float()
{x}.double().mul({k}).to({x}.dtype)
{x}.type_as({x}) * {k}
{x}.bool().float()
({x} > {k}).to({x}.dtype) * {x}
({x} > {k}).int().cumsum({d})
({x:1+} > {k}).float().mean({d}, keepdim={b})
({x:1+} * ({x} > {k})).sum({d}) / ({x} > {k}).sum({d}).clamp(min=1)
{x:1+}.index_put(({I0},), torch.tensor({k}), accumulate=True)
{x:1+}.index_put(({I0},), {x}[{I0}] * {k})
{x:1+}.scatter_add({d}, {G}, torch.ones_like({G}, dtype=torch.float32) * {k})
{x:1+}.index_add(0, {I0}, {x}[{I0}], alpha={k})
{x:1+}.index_reduce(0, torch.arange({x}.shape[0]), {w}, 'amax')
{x:1+}.repeat_interleave(torch.arange({s}) % 2 + 1, {d})
{x:1+}[[0, -1]]
{x:2+}[:, [0, 0, -1]]
{x:1+}[..., torch.tensor([0, -1])]
{x:1+}.gather({d}, {x}.topk({t}, {d}).indices)
torch.take_along_dim({x:1+}, {x}.argmax({d}, keepdim=True), {d})
{x:1+}.unsqueeze(-1).expand(*{x}.shape, 2).reshape(*{x}.shape[:-1], -1)
torch.atleast_3d({x})
torch.ravel({x}) * {k}
torch.column_stack([{x:1-2}, {w}])
torch.dstack([{x}, {w}])
torch.block_diag({x:2}, {x})
torch.cov({x:2})
torch.linalg.norm({x:1+}, dim={d})
torch.linalg.vector_norm({x:1+}, ord=3, dim={d})
F.normalize({x:1+}, p=1.0, dim={d})
torch.renorm({x:2+}, 2, {d}, {p})
torch.einsum('bij,bjk->bik', {x:3}, {x}.transpose(1, 2))
torch.einsum('i,j->ij', {x:1}, {z:1})
torch.einsum('ijk->j', {x:3})
torch.einsum('ijk,ijk->i', {x:3}, {w})
torch.einsum('bhqd,bhkd->bhqk', {x:4}, {x}).softmax(-1)
torch.einsum('...d,ed->...e', {x:1+}, {L})
torch.einsum('bchw,c->bhw', {x:4}, torch.arange({x}.shape[1]).float())
torch.fft.rfft({x:1+}).abs()
torch.fft.rfft({x:1+}).real * {k}
torch.fft.irfft(torch.fft.rfft({x:1+}), {x}.shape[-1])
torch.fft.fft2({x:2+}).imag
F.cross_entropy({x:2}, {x}.argmax(1))
F.binary_cross_entropy_with_logits({x}, {w}.sigmoid())
F.huber_loss({x}, {w}, delta={p})
F.kl_div({x:1+}.log_softmax(-1), {w}.softmax(-1), reduction='sum')
F.nll_loss({x:2}.log_softmax(1), {x}.argmin(1))
F.gaussian_nll_loss({x}, {w}, {w}.abs() + {p})
F.margin_ranking_loss({x}, {w}, {x}.sign())
F.triplet_margin_loss({x:2}, {w}, {x}.flip(0))
F.cosine_embedding_loss({x:2}, {w}, torch.ones({x}.shape[0]))
F.local_response_norm({x:3+}, 2)
F.conv1d({x:3}, {x}.mean(0, keepdim=True)[..., :1])
F.grid_sample({x:4}, torch.linspace(-1, 1, 6).reshape(1, 3, 1, 2).expand({x}.shape[0], 3, 2, 2), align_corners={b})
F.affine_grid(torch.tensor([[[{k}, 0.0, 0.1], [0.0, 1.0, {l}]]]), (1, 1, 3, 2), align_corners={b}) * {x}.mean()
F.fold(F.unfold({x:4}, 1), {x}.shape[2:], 1)
F.embedding_bag({q:2}.clamp(0, 2), {E}, mode='mean')
torch.addbmm({x:3}[0] @ {x}[0].mT, {x}, {x}.mT)
torch.polar({x}.abs(), {x}).real
torch.view_as_real(torch.complex({x}, {w})).sum(-1)
torch.vdot({x:1}, {w})
torch.cumulative_trapezoid({x:1+}, dim={d})
torch.gradient({x:1+}[[0, 0, -1]], dim=0)[0]
torch.logspace(0, 1, {n:4}) * {k}
torch.histc({x}, 4, -2, 2)
torch.float_power({x}.abs() + 0.5, 2).float()
torch.special.softmax({x:1+}, {d})
torch.special.xlog1py({x}, {Y}.abs())
torch.fmod({x}, {p})
torch.remainder({x}, {p})
torch.floor_divide({x}, {p})
torch.count_nonzero({x:1+} > {k}, {d})
torch.nanmedian({x:1+}, {d}).values
torch.mode(({x:1+} * 2).round(), {d}).values
torch.bincount(({x}.flatten() * 2).clamp(0, 3).long(), minlength=5)
torch.unique({x}.round())
torch.nonzero({x} == {x})
""".strip().splitlines()  # noqa: E501
