"""Python as people write it in ``forward``: logging, asserts, autocast, losses, own autograd."""

from __future__ import annotations

import functools
import logging
import operator
import time
import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from judges.strange.arithmetic import Of, r

_LOG = logging.getLogger(__name__)


class Talkative(nn.Module):
    """What helps in training: asserts, warnings, a log, the time, a try, a count of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls, self.spent = nn.Linear(6, 6), 0, 0.0

    def forward(self, x):
        began = time.perf_counter()
        assert x.dim() == 2, f"{x.shape} is no batch of rows"
        if x.shape[-1] != self.layer.in_features:
            raise ValueError(f"{x.shape[-1]} features, and {self.layer.in_features} are wanted")
        try:
            y = self.layer(x)
        except RuntimeError as problem:
            raise TypeError("no row of numbers") from problem
        finally:
            self.calls += 1
        if self.calls > 10**6:
            warnings.warn("many calls", stacklevel=2)
        _LOG.debug("%d calls, %s", self.calls, tuple(y.shape))
        self.spent += time.perf_counter() - began
        return y.relu()


class Autocast(nn.Module):
    """Mixed precision asked for within, as training scripts leave it there."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layer(x).relu().mean((2, 3))
        with torch.autocast("cpu", enabled=False):
            return self.head(y.float())


class Sign(torch.autograd.Function):
    """The sign, with a gradient of its own, as networks of binary weights have it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1)


class Binary(nn.Module):
    """XNOR-Net: signs of weights and of what comes in, scaled by their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))

    def forward(self, x):
        scale = self.weight.abs().mean((1, 2, 3)).reshape(1, -1, 1, 1)
        return F.conv2d(Sign.apply(x), Sign.apply(self.weight), padding=1) * scale


class WithLoss(nn.Module):
    """The loss comes with the logits, as in HF's models that were given labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x, labels):
        logits = self.layer(x)
        return {"loss": F.cross_entropy(logits, labels, label_smoothing=0.1), "logits": logits}


@dataclass
class Settings:
    """A configuration, as most papers' code hands one down."""

    width: int = 6
    widths: list[int] = field(default_factory=lambda: [6, 8, 4])
    act: str = "gelu"
    residual: bool = True


class Configured(nn.Module):
    """Layers and branches by a configuration, parameters in lists and dicts."""

    def __init__(self, config: Settings | None = None) -> None:
        super().__init__()
        self.config = config or Settings()
        pairs = zip(self.config.widths, self.config.widths[1:])
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(b, a) / 3) for a, b in pairs)
        ends = enumerate(self.config.widths[1:])
        self.offsets = nn.ParameterDict({f"layer{n}": torch.randn(b) for n, b in ends})

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        skip = x
        for n, weight in enumerate(self.weights):
            x = F.linear(x, weight, self.offsets[f"layer{n}"])
            x = getattr(F, self.config.act)(x) if n + 1 < len(self.weights) else x
        match self.config.residual:
            case True:
                return x * scale + skip[..., : x.shape[-1]]
            case _:
                return x * scale


class Recorded(nn.Module):
    """Features kept by hooks of inner layers, and read after the call."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU())
        self.kept: dict[str, Tensor] = {}
        for name in ("1", "3"):
            layer = self.net.get_submodule(name)
            layer.register_forward_hook(functools.partial(self._keep, name))

    def _keep(self, name, module, inputs, output):
        self.kept[name] = output

    def forward(self, x):
        self.kept.clear()
        self.net(x)
        return [value.flatten(2).mean(-1) for value in self.kept.values()]


class Averaged(nn.Module):
    """Test-time augmentation: one network on four views of a picture, and the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Hardswish())

    def forward(self, x):
        views = [(lambda y: y, lambda y: y), (lambda y: y.flip(-1), lambda y: y.flip(-1)),
                 (lambda y: y.rot90(1, (2, 3)), lambda y: y.rot90(-1, (2, 3))),
                 (lambda y: y.mT, lambda y: y.mT)]  # fmt: skip
        return functools.reduce(operator.add, (back(self.net(to(x))) for to, back in views)) / 4


class Proxy(nn.Module):
    """Attributes that are passed on to the module within."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"body": nn.Linear(6, 6), "head": nn.Linear(6, 3)})

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return self.inner[name]

    def forward(self, x):
        return self.head(torch.tanh_(self.body(x)))


def normalized_bytes(layer, picture):  # what a camera gives, in the network itself
    mean = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    return layer((picture.permute(0, 3, 1, 2).float() / 255 - mean) / 0.225)


def distributed(x):
    mean, spread = x.chunk(2, -1)
    found = torch.distributions.Normal(mean, F.softplus(spread) + 0.1)
    other = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    return found.log_prob(torch.zeros_like(mean)).sum(-1), torch.distributions.kl_divergence(
        found, other
    )


def sums_of_lists(layer, x):
    parts = [layer(row) for row in x.unbind(0)]
    return torch.stack([sum(parts) / len(parts), max(parts, key=lambda p: p.shape[0])])


def written_by_mask(x):
    y = x.clone()
    y[..., ::2] *= -1
    y[:, torch.tensor([True, False, True, False, True, False])] += 2
    y[x > 1] = 1
    y[-1:, -2:] = torch.tensor([0.5, -0.5])
    return y


def detached(layer, x):
    with torch.no_grad():
        weights = layer(x).detach().requires_grad_(False)
    with torch.inference_mode(), torch.profiler.record_function("attend"):
        return weights.detach().softmax(-1) @ x


def by_data(layer, x):
    return x + layer(x).data.softmax(-1)


CASES = {
    "logs, asserts, time": (Talkative, lambda: (r(2, 6),)),
    "autocast": (Autocast, lambda: (r(1, 3, 8, 8),)),
    "own autograd, binary weights": (Binary, lambda: (r(1, 3, 6, 6),)),
    "the loss as a result": (WithLoss, lambda: (r(4, 6), torch.tensor([0, 3, 1, 1]))),
    "a configuration, keyword": (Configured, lambda: (r(2, 6),)),
    "features by hooks": (Recorded, lambda: (r(1, 3, 9, 9),)),
    "views of a picture, averaged": (Averaged, lambda: (r(1, 3, 8, 8),)),
    "attributes passed on": (Proxy, lambda: (r(2, 6),)),
    "a picture of bytes": (
        lambda: Of(normalized_bytes, nn.Conv2d(3, 4, 3)),
        lambda: (torch.randint(0, 256, (1, 8, 8, 3), dtype=torch.uint8),),
    ),
    "distributions": (lambda: Of(distributed), lambda: (r(3, 8),)),
    "sum and max of lists": (lambda: Of(sums_of_lists, nn.Linear(6, 4)), lambda: (r(3, 6),)),
    "written by masks and steps": (lambda: Of(written_by_mask), lambda: (r(3, 6),)),
    "out of the graph and back": (lambda: Of(by_data, nn.Linear(6, 6)), lambda: (r(6, 6),)),
    "detached, inference mode": (lambda: Of(detached, nn.Linear(6, 6)), lambda: (r(6, 6),)),
}  # fmt: skip
