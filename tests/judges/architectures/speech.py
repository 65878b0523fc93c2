"""Networks for sounds and speech, and a reader of lines."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class WaveNet(nn.Module):
    """Gated dilated convolutions with residuals and skips."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, width, 1)
        self.filters, self.gates = (
            nn.ModuleList(nn.Conv1d(width, width, 2, dilation=2**i) for i in range(4))
            for _ in range(2)
        )
        self.res, self.skips = (
            nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(4)) for _ in range(2)
        )
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(width, 16, 1), nn.ReLU(), nn.Conv1d(16, 8, 1))

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.start(x), None
        for i in range(4):
            padded = F.pad(x, (2**i, 0))
            y = torch.tanh(self.filters[i](padded)) * torch.sigmoid(self.gates[i](padded))
            s = self.skips[i](y)
            total = s if total is None else total + s
            x = x + self.res[i](y)
        return self.end(total)


class Conformer(nn.Module):
    """Half feed-forward, relative attention, gated convolution, half feed-forward."""

    def __init__(self, width: int = 16, heads: int = 2, length: int = 20) -> None:
        super().__init__()
        self.heads, self.length = heads, length
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.ff = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, width)) for _ in range(2)
        )
        self.qkv, self.pos, self.out = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width, bias=False),
            nn.Linear(width, width),
        )
        self.u, self.v = (
            nn.Parameter(torch.randn(heads, width // heads)),
            nn.Parameter(torch.randn(heads, width // heads)),
        )
        self.register_buffer("table", torch.randn(2 * length - 1, width))
        self.p1, self.dw, self.p2 = (
            nn.Conv1d(width, 2 * width, 1),
            nn.Conv1d(width, width, 7, padding=3, groups=width),
            nn.Conv1d(width, width, 1),
        )
        self.bn = nn.BatchNorm1d(width)

    def attend(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        p = self.pos(self.table).view(-1, self.heads, c // self.heads).transpose(0, 1)
        content = (q + self.u[:, None]) @ k.transpose(-2, -1)
        place = (q + self.v[:, None]) @ p.transpose(-2, -1)
        place = (
            F.pad(place, (1, 0))
            .view(b, self.heads, 2 * t, t)[:, :, 1:]
            .reshape(b, self.heads, t, 2 * t - 1)[..., :t]
        )
        w = ((content + place) / math.sqrt(c // self.heads)).softmax(-1)
        return self.out((w @ v).transpose(1, 2).reshape(b, t, c))

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.ff[0](self.norms[0](x))
        x = x + self.attend(self.norms[1](x))
        y = F.glu(self.p1(self.norms[2](x).transpose(1, 2)), dim=1)
        x = x + self.p2(F.silu(self.bn(self.dw(y)))).transpose(1, 2)
        x = x + 0.5 * self.ff[1](self.norms[3](x))
        return self.norms[4](x)


class Squeezeformer(nn.Module):
    """A U over time: every second step is dropped, and comes back by repetition."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.scale, self.bias = (
            nn.Parameter(torch.rand(width) + 0.5),
            nn.Parameter(torch.rand(width)),
        )
        self.attn = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ff = nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, width))
        self.down = nn.Conv1d(width, width, 3, 2, 1, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        low = self.down(x.transpose(1, 2)).transpose(1, 2)
        y = low * self.scale + self.bias
        low = self.norm1(low + self.attn(y, y, y, need_weights=False)[0])
        low = self.norm2(low + self.ff(low * self.scale + self.bias))
        return x + low.repeat_interleave(2, dim=1)[:, : x.shape[1]]


class Crnn(nn.Module):
    """Text of a line: convolutions, columns as steps, a bidirectional LSTM, log softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, 1, 1), nn.BatchNorm2d(12), nn.ReLU(),
            nn.MaxPool2d((2, 1)), nn.Conv2d(12, 16, (4, 3), 1, (0, 1)), nn.ReLU(),
        )  # fmt: skip
        self.rnn, self.fc = nn.LSTM(16, 12, bidirectional=True), nn.Linear(24, 11)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x).squeeze(2).permute(2, 0, 1)
        return F.log_softmax(self.fc(self.rnn(y)[0]), 2)


class Prenet(nn.Module):
    """Tacotron: a prenet, a step of location-sensitive attention, a GRU cell, a postnet."""

    def __init__(self) -> None:
        super().__init__()
        self.pre = nn.Sequential(
            nn.Linear(8, 16),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(16, 16),
            nn.ReLU(),
            nn.Dropout(0.5),
        )
        self.cell = nn.GRUCell(32, 16)
        self.query, self.memory = nn.Linear(16, 12, bias=False), nn.Linear(16, 12, bias=False)
        self.location = nn.Conv1d(2, 12, 7, padding=3, bias=False)
        self.v, self.out = nn.Linear(12, 1), nn.Linear(32, 8)

    def forward(
        self, frame: Tensor, state: Tensor, context: Tensor, weights: Tensor, memory: Tensor
    ) -> tuple[Tensor, ...]:
        state = self.cell(torch.cat([self.pre(frame), context], -1), state)
        place = self.location(weights).transpose(1, 2)
        energy = self.v(
            torch.tanh(self.query(state).unsqueeze(1) + self.memory(memory) + place)
        ).squeeze(-1)
        now = F.softmax(energy, dim=1)
        context = torch.bmm(now.unsqueeze(1), memory).squeeze(1)
        return self.out(torch.cat([state, context], -1)), state, now, weights[:, 1] + now


class ComplexUNet(nn.Module):
    """DCCRN: complex convolutions over frequency and time, and a mask in polar form."""

    def __init__(self) -> None:
        super().__init__()
        self.re, self.im = (
            nn.ModuleList(
                [nn.Conv2d(1, 8, (5, 2), (2, 1), (2, 1)), nn.Conv2d(8, 8, (5, 2), (2, 1), (2, 1))]
            )
            for _ in range(2)
        )
        self.up_re, self.up_im = (
            nn.ModuleList(
                [
                    nn.ConvTranspose2d(16, 8, (5, 2), (2, 1), (2, 0), (1, 0)),
                    nn.ConvTranspose2d(16, 1, (5, 2), (2, 1), (2, 0), (1, 0)),
                ]
            )
            for _ in range(2)
        )
        self.act = nn.ModuleList(nn.PReLU(8) for _ in range(3))

    def forward(self, real: Tensor, imag: Tensor) -> tuple[Tensor, Tensor]:
        r, i, skips = real, imag, []
        for n, (re, im) in enumerate(zip(self.re, self.im)):
            r, i = re(r) - im(i), re(i) + im(r)
            r, i = self.act[n](r[..., :-1]), self.act[n](i[..., :-1])
            skips.append((r, i))
        for n, (re, im) in enumerate(zip(self.up_re, self.up_im)):
            a, b = skips.pop()
            r, i = torch.cat([r, a], 1), torch.cat([i, b], 1)
            r, i = re(r) - im(i), re(i) + im(r)
            r, i = r[..., : real.shape[-1]], i[..., : real.shape[-1]]
            if n == 0:
                r, i = self.act[2](r), self.act[2](i)
        magnitude = torch.sqrt(r**2 + i**2 + 1e-6)
        gain = torch.tanh(magnitude) / magnitude
        r, i = r * gain, i * gain
        return real * r - imag * i, real * i + imag * r


class EcapaTdnn(nn.Module):
    """Attentive statistics pooling over dilated 1-D blocks."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(8, width, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(width)
        )
        self.deep = nn.Sequential(
            nn.Conv1d(width, width, 3, dilation=3, padding=3), nn.ReLU(), nn.BatchNorm1d(width)
        )
        self.attn = nn.Sequential(nn.Conv1d(3 * width, 8, 1), nn.Tanh(), nn.Conv1d(8, width, 1))
        self.fc = nn.Linear(2 * width, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = x + self.deep(x)
        t = x.shape[-1]
        whole = torch.cat(
            [
                x,
                x.mean(2, keepdim=True).expand(-1, -1, t),
                torch.sqrt(x.var(2, keepdim=True).clamp(min=1e-4)).expand(-1, -1, t),
            ],
            1,
        )
        w = self.attn(whole).softmax(2)
        mean = (x * w).sum(2)
        sd = torch.sqrt(((x**2 * w).sum(2) - mean**2).clamp(min=1e-4))
        return F.normalize(self.fc(torch.cat([mean, sd], 1)))


class ConvTasNet(nn.Module):
    """Separation: an encoder, global norms, masks, and a decoder by transposed convolution."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.enc, self.dec = (
            nn.Conv1d(1, width, 8, 4, bias=False),
            nn.ConvTranspose1d(width, 1, 8, 4, bias=False),
        )
        self.norm, self.blocks = nn.GroupNorm(1, width), nn.ModuleList()
        for i in range(2):
            self.blocks.append(
                nn.Sequential(
                    nn.Conv1d(width, 24, 1),
                    nn.PReLU(),
                    nn.GroupNorm(1, 24),
                    nn.Conv1d(24, 24, 3, padding=2**i, dilation=2**i, groups=24),
                    nn.PReLU(),
                    nn.Conv1d(24, width, 1),
                )
            )
        self.mask = nn.Conv1d(width, 2 * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        e = F.relu(self.enc(x))
        y = self.norm(e)
        for block in self.blocks:
            y = y + block(y)
        m = torch.sigmoid(self.mask(y)).view(x.shape[0], 2, -1, y.shape[-1])
        s = e.unsqueeze(1) * m
        return self.dec(s.view(x.shape[0] * 2, -1, s.shape[-1])).view(x.shape[0], 2, -1)


CASES = {
    "WaveNet": (WaveNet, ((1, 1, 48),)), "Conformer": (Conformer, ((1, 20, 16),)),
    "Squeezeformer": (Squeezeformer, ((1, 21, 16),)), "CRNN": (Crnn, ((1, 1, 16, 40),)),
    "Tacotron": (Prenet, ((1, 8), (1, 16), (1, 16), (1, 2, 14), (1, 14, 16))),
    "DCCRN": (ComplexUNet, ((1, 1, 32, 12), (1, 1, 32, 12))),
    "ECAPA-TDNN": (EcapaTdnn, ((1, 8, 36),)), "Conv-TasNet": (ConvTasNet, ((1, 1, 128),)),
}  # fmt: skip
