"""How modules are put together: hooks, parametrizations, scripts, dicts, outputs of many kinds."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize


class WeightNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = parametrizations.weight_norm(nn.Conv1d(4, 6, 3, padding=1))
        self.head = parametrizations.spectral_norm(nn.Linear(6, 5))

    def forward(self, x):
        return self.head(self.conv(x).relu().mean(-1))


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


class Parametrized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        parametrize.register_parametrization(self.layer, "weight", Symmetric())

    def forward(self, x):
        return self.layer(x).tanh()


class Tied(nn.Module):
    """The embedding is the head's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(F.gelu(self.mix(self.embed(tokens))))


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)
        self.first.register_forward_hook(lambda module, given, made: made.relu())
        self.second.register_forward_pre_hook(lambda module, given: (given[0] * 2,))

    def forward(self, x):
        return self.second(self.first(x))


class InDicts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleDict(
            {
                "wide": nn.ModuleDict({"conv": nn.Conv2d(3, 4, 5, padding=2), "act": nn.SiLU()}),
                "thin": nn.ModuleDict({"conv": nn.Conv2d(3, 4, 1), "act": nn.Tanh()}),
            }
        )
        self.gains = nn.ParameterDict({"wide": torch.tensor(0.5), "thin": torch.tensor(2.0)})

    def forward(self, x):
        return {
            name: self.gains[name] * part["act"](part["conv"](x))
            for name, part in self.branches.items()
        }


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.ReLU()))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.part(x))


@torch.jit.script
def scripted_swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.7 * x)


class ScriptedFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return scripted_swish(self.layer(x))


@dataclasses.dataclass
class Output:
    """As the outputs of HF's models, without HF."""

    logits: Tensor
    hidden: tuple[Tensor, ...] | None = None


class Pair(typing.NamedTuple):
    mean: Tensor
    deviation: Tensor


class NamedPair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 8)

    def forward(self, x):
        mean, logarithm = self.layer(x).chunk(2, -1)
        return Pair(mean, (0.5 * logarithm).exp())


class DataOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.layer(x).relu()
        return Output(self.head(hidden), (hidden,))


def hugging_face() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    return BertForSequenceClassification(config)


class NoneInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x, mask=None, scale: float = 2.0):
        made = self.layer(x) * scale
        return made if mask is None else made * mask


class ListInput(nn.Module):
    def forward(self, parts, extra):
        return torch.cat([p.relu() for p in parts], -1) * extra["gain"]


class Frozen(nn.Module):
    """Constants that are plain attributes and a Python number that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.linspace(-1, 1, 6)
        self.gain = float(torch.tensor(3.0).sqrt())

    def forward(self, x):
        return (x + self.table) * self.gain + torch.tensor([0.5])


class Partial(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = functools.partial(F.leaky_relu, negative_slope=0.2)
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = self.act(layer(x)) + (x if number % 2 else 0)
        return x


class Same(nn.Module):
    """One input is returned as it is, one result twice."""

    def forward(self, x, y):
        z = x + y
        return x, z, z, z.shape[0]


class Inplace(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, 1:3] *= 2
        y[:, 0].fill_(1.0)
        y.add_(1).clamp_(min=0)
        return y


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU())

    def forward(self, x):
        return self.layers(x)


class Branchy(nn.Module):
    """Python's if on shapes, and torch.cond on values."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        x = self.small(x) if x.shape[0] < 3 else self.large(x)
        return torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        return checkpoint(self.part, x, use_reentrant=False)


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 5, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        return self.rnn(packed)[1]


def ordered() -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            [("stem.conv".replace(".", "_"), nn.Conv2d(3, 4, 3)), ("flat", nn.Flatten()),
             ("head", nn.Linear(144, 5))]
        )
    )  # fmt: skip


def row() -> tuple[Tensor]:
    return (torch.randn(2, 6),)


def image() -> tuple[Tensor]:
    return (torch.randn(1, 3, 8, 8),)


def lazy() -> nn.Module:
    net = Lazy()
    net(torch.randn(2, 3, 8, 8))
    return net


class Vmapped(nn.Module):
    """The layer is written for one row, and mapped over all."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x):
        return torch.vmap(lambda one: self.layer(one).softmax(-1) * one.sum())(x)


class Derived(nn.Module):
    def forward(self, x):
        return torch.func.grad(lambda value: (value**3).sum())(x)


class Deep(nn.Module):
    """A module that calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def deeper(self, x, depth):
        return x if depth == 0 else self.deeper(self.layer(x).tanh(), depth - 1)

    def forward(self, x):
        return self.deeper(x, 4)


def traced():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 2, 2)).eval()
    return torch.jit.trace(net, *image())


CASES = {
    "weight and spectral norm": (WeightNorm, lambda: (torch.randn(1, 4, 10),)),
    "parametrization of one's own": (Parametrized, row),
    "tied weights": (Tied, lambda: (torch.randint(0, 20, (1, 5)),)),
    "hooks": (Hooked, row),
    "modules in dicts, a dict out": (InDicts, image),
    "scripted part": (Scripted, row),
    "scripted function": (ScriptedFunction, row),
    "named tuple out": (NamedPair, row),
    "dataclass out": (DataOutput, row),
    "HF model, HF output": (
        hugging_face,
        lambda: (torch.randint(0, 50, (1, 6)), torch.ones(1, 6, dtype=torch.long)),
    ),
    "None as an input": (NoneInput, lambda: (torch.randn(2, 6), None)),
    "lists and dicts in": (
        ListInput,
        lambda: ([torch.randn(1, 3), torch.randn(1, 4)], {"gain": torch.randn(1, 7)}),
    ),
    "constants as attributes": (Frozen, row),
    "partial, odd layers": (Partial, row),
    "input returned, result twice, a number": (Same, lambda: (torch.randn(2, 3), torch.randn(3))),
    "written in place": (Inplace, row),
    "lazy layers": (lazy, image),
    "Python's if and torch.cond": (Branchy, row),
    "checkpoint": (Checkpointed, row),
    "packed sequence": (Packed, lambda: (torch.randn(2, 5, 4), torch.tensor([5, 3]))),
    "OrderedDict": (ordered, image),
    "vmap": (Vmapped, row),
    "derivative": (Derived, row),
    "a module that calls itself": (Deep, row),
    "traced": (traced, image),
}
