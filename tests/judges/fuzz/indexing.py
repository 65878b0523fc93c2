"""Templates of statements that sort, index, move and multiply; see ``templates``."""

from __future__ import annotations

SORTING = """
2: {x:1+}.sort({d})
2: torch.sort({x:1+}, {d}, descending=True)
2: torch.topk({x:1+}, {t}, {d})
2: {x:1+}.topk({t}, {d}, largest=False)
2: {x:1+}.kthvalue({t}, {d})
2: {x:1+}.median({d})
torch.msort({x:1+})
torch.gather({x:1+}, {d}, {G})
torch.take_along_dim({x:1+}, {G}, {d})
torch.scatter({x:1+}, {d}, {G}, {k})
torch.scatter_add({x:1+}, {d}, {x}.argsort({d}), {w})
{x:1+}.scatter_reduce({d}, {x}.argsort({d}), {w}, 'amax')
{x:1+}.scatter_reduce({d}, {x}.argsort({d}), {w}, 'sum')
{x:1+}.index_select({d}, {I})
{x:1+}.index_add({d}, {I}, {x}.index_select({d}, {I}) * {k})
{x:1+}.index_fill({d}, {I}, {k})
{x:1+}.index_copy({d}, {I}, {x}.index_select({d}, {I}) + {k})
torch.quantile({x:1+}, 0.5, {d})
torch.take({x:1+}, {I})
{x:1+}[{q}.clamp(0, 0)]
{x:1+}[..., {J}]
{x:2+}[{K}, {J}]
torch.flip({x:1+}, ({d},))
torch.roll({x:1+}, {n}, {d})
F.one_hot({x:1+}.argmax({d}), {s}).float()
F.embedding({q}.clamp(0, 2), {E})
F.embedding({q}.remainder(3), {E})
torch.masked_select({x}, {x} == {x})
""".strip().splitlines()

MOVES = """
{x}.reshape{shape}
{x}.view{shape}
{x}.flatten()
{x:2+}.flatten(0, 1)
{x:2+}.flatten(-2)
{x:1+}.unflatten({d}, (1, {s}))
{x}.unsqueeze({u})
{x}.squeeze()
{x:1+}.squeeze({d})
{x:2+}.transpose({d}, {e})
{x:1+}.permute({perm})
{x:2+}.mT
{x:1+}.movedim({d}, 0)
{x:1+}.swapaxes({d}, -1)
{x:1+}[{slices}]
{x:1+}[{slices}]
{x:1+}.narrow({d}, 0, {t})
{x:1+}.select({d}, {j})
{x:1+}.unbind({d})[0]
torch.split({x:1+}, {t}, {d})[-1]
torch.chunk({x:1+}, 2, {d})[0]
torch.tensor_split({x:1+}, {n}, {d})[0]
{x}.expand({full})
{x}.expand_as({x})
{x}.broadcast_to({full})
{x}.repeat({repeats})
torch.tile({x}, {repeats})
{x:1+}.repeat_interleave({n}, {d})
torch.cat([{x:1+}, {w}], {d})
torch.cat([{x:1+}, {w}, {x}], {d})
torch.stack([{x}, {w}], {u})
torch.hstack([{x}, {w}])
torch.vstack([{x}, {w}])
F.pad({x:1+}, {pad})
F.pad({x:1+}, {pad}, value={k})
F.pad({x:3-5}, {pad:1}, mode='reflect')
F.pad({x:3-5}, {pad:1}, mode='replicate')
F.pad({x:3-5}, {pad:1}, mode='circular')
torch.tril({x:2+})
torch.triu({x:2+}, 1)
torch.diagonal({x:2+}, 0, {d}, {e})
torch.diag({x:1-2})
torch.diag_embed({x:1-3})
torch.rot90({x:2+})
{x:1+}.unfold({d}, {t}, {n})
torch.as_strided({x:1+}.contiguous(), ({t},), (1,))
torch.meshgrid({x:1}, {z:1}, indexing='ij')[0]
torch.cartesian_prod({x:1}, {z:1})
torch.vander({x:1}, 3)
torch.pixel_shuffle({x:1+}.flatten()[:1].expand(1, 4, 2, 2), 2)
torch.slice_scatter({x:1+}, {x}.narrow({d}, 0, {t}) * {k}, {d}, 0, {t})
torch.select_scatter({x:1+}, {x}.select({d}, 0) + {k}, {d}, {j})
torch.diagonal_scatter({x:2}, torch.diagonal({x}) * {k})
{x}.float()
{x}.to(torch.float64).float()
torch.zeros_like({x}) + {y}
torch.full_like({x}, {k})
torch.ones({full}) * {x}
torch.arange({n:5}).float() * {k}
torch.linspace(0, 1, {n:5})
torch.eye({n:4})
""".strip().splitlines()

PRODUCTS = """
{x:2+} @ {x}.transpose(-1, -2)
torch.matmul({x:1+}, {R})
torch.bmm({x:3}, {x}.transpose(1, 2))
torch.mm({x:2}, {x}.t())
torch.mv({x:2}, {x}[0])
torch.dot({x:1}, {w})
torch.einsum('...i,...j->...ij', {x:1-3}, {w})
torch.einsum('ij,kj->ik', {x:2}, {x})
torch.einsum('bij,bkj->bik', {x:3}, {w})
torch.einsum('bhid,bhjd->bhij', {x:4}, {w})
torch.einsum('ij->ji', {x:2})
torch.einsum('ii->i', {x:2} @ {x}.t())
torch.baddbmm({x:3} @ {x}.mT, {x}, {x}.mT, beta={k})
torch.addmm({x:2} @ {x}.t(), {x}, {x}.t(), alpha={k})
torch.tensordot({x:1+}, {w}, dims=1) if {x}.dim() == 1 else {x} * 1
torch.linalg.matrix_norm({x:2+})
torch.cdist({x:2}, {w})
torch.kron({x:1-2}, {z:1-2})
torch.inner({x:1+}, {x})
torch.cross({x:1+}.flatten()[:1].expand(3), {x}.flatten()[-1:].expand(3), dim=0)
torch.linalg.multi_dot([{x:2}, {x}.t(), {x}])
torch.trace({x:2})
F.scaled_dot_product_attention({x:3-4}, {w}, {w})
F.scaled_dot_product_attention({x:4}, {x}, {w}, is_causal=True)
F.scaled_dot_product_attention({x:4}, {w}, {x}, attn_mask={A})
F.linear({x:1+}, {L})
F.bilinear({x:2}, {w}, {B})
""".strip().splitlines()
