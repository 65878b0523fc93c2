"""What transformers here are made of, and the weights that make random ones alive."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Self-attention of several heads over [batch, tokens, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inward = nn.Linear(width, 3 * width)
        self.outward = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, tokens, width = x.shape
        split = self.inward(x).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, mask)
        y: Tensor = self.outward(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return y


class FeedForward(nn.Sequential):
    """Two layers, the inner one wider."""

    def __init__(self, width: int, inner: int, act: type[nn.Module] = nn.GELU) -> None:
        super().__init__(nn.Linear(width, inner), act(), nn.Linear(inner, width))


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a norm and beside what it reads."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads)
        self.forwards = FeedForward(width, inner)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norms[0](x), mask)
        return x + self.forwards(self.norms[1](x))


@torch.no_grad()
def enliven(net: nn.Module) -> nn.Module:
    """Weights from torch's current seed that keep the scale of what they are given.

    Fresh initialisations make scores of attention so small that it only averages; here they
    deviate by about 1, as in trained networks, and norms have scales and shifts that differ.
    """
    for module in net.modules():
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            nn.init.normal_(module.weight, 0.0, module.weight[0].numel() ** -0.5)
            if module.bias is not None:
                nn.init.normal_(module.bias, 0.0, 0.2)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
        elif isinstance(module, (nn.LayerNorm, nn.BatchNorm1d, nn.RMSNorm)):
            nn.init.uniform_(module.weight, 0.6, 1.4)
            if not isinstance(module, nn.RMSNorm):
                nn.init.normal_(module.bias, 0.0, 0.2)
        if isinstance(module, nn.BatchNorm1d):
            nn.init.normal_(module.running_mean, 0.0, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return net.eval()
