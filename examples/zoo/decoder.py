"""A decoder as Llama's (Touvron et al. 2023, grouped heads as in the second): one token a call.

RMSNorm, rotary places, heads that share keys and values, SwiGLU. What earlier tokens left is kept
in buffers, which every call writes to at its place.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .tokens import enliven


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Pairs of numbers, half of a head apart, rotated by their place."""
    one, other = x.chunk(2, -1)
    return x * cosine + torch.cat([-other, one], -1) * sine


class CachedAttention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, longest: int) -> None:
        super().__init__()
        self.head = width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.head, bias=False)
        self.value = nn.Linear(width, groups * self.head, bias=False)
        self.outward = nn.Linear(width, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, groups, longest, self.head))
        self.register_buffer("values", torch.zeros(1, groups, longest, self.head))

    def forward(self, x: Tensor, place: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        self.keys.index_copy_(2, place, turned(key, cosine, sine))
        self.values.index_copy_(2, place, value)
        seen = (torch.arange(self.keys.shape[2]) <= place)[None]
        mixed = F.scaled_dot_product_attention(
            turned(query, cosine, sine), self.keys, self.values, seen, enable_gqa=True
        )
        return self.outward(mixed.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.inward = nn.Linear(width, inner, bias=False)
        self.outward = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.outward(F.silu(self.gate(x)) * self.inward(x))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, longest: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-5) for _ in range(2))
        self.attention = CachedAttention(width, heads, groups, longest)
        self.forwards = SwiGLU(width, 8 * width // 3)

    def forward(self, x: Tensor, place: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x), place, cosine, sine)
        return x + self.forwards(self.norms[1](x))


class Decoder(nn.Module):
    def __init__(
        self, words: int = 256, width: int = 96, depth: int = 2, heads: int = 6, groups: int = 2,
        longest: int = 32,
    ) -> None:  # fmt: skip
        super().__init__()
        head = width // heads
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads, groups, longest) for _ in range(depth))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.next = nn.Linear(width, words, bias=False)
        turns = 10_000.0 ** (-torch.arange(0, head, 2) / head)
        angles = torch.outer(torch.arange(longest), turns).repeat(1, 2)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())

    def forward(self, word: Tensor, place: Tensor) -> Tensor:
        """Scores of the word that follows; ``place`` says how many came before, as [1]."""
        x = self.words(word)
        cosine, sine = self.cosines[place], self.sines[place]
        for layer in self.layers:
            x = layer(x, place, cosine, sine)
        scores: Tensor = self.next(self.norm(x))
        return scores


def decoder() -> nn.Module:
    return enliven(Decoder())


def words(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random words, eight after each other at the places from 0 on."""
    make = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 1), generator=make), torch.arange(count) % 8
