"""Complex numbers on the way: transforms of Fourier, spectrograms, rotations of pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from judges.programs import Function, agrees_with_reference, compiled

WINDOW = torch.hann_window(64)
SHORT = torch.hamming_window(48)


def spectrogram(x: Tensor, **options: Any) -> Tensor:
    return torch.stft(x, 64, 16, return_complex=True, **options)


def turned(x: Tensor) -> Tensor:
    """As rotary embeddings are written with complex numbers."""
    angles = torch.polar(torch.ones(5, 4), torch.outer(torch.arange(5.0), 0.5 ** torch.arange(4.0)))
    return torch.view_as_real(torch.view_as_complex(x.reshape(2, 5, 4, 2)) * angles).flatten(2)


def filtered(x: Tensor) -> Tensor:
    gains = torch.linspace(1, 0, 33).to(torch.complex64)
    return torch.fft.irfft(torch.fft.rfft(x, norm="ortho") * gains, norm="ortho")


FORMS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...]]] = {
    "magnitudes": (lambda x: spectrogram(x, window=WINDOW).abs(), (1, 256)),
    "powers": (lambda x: spectrogram(x, window=WINDOW).abs().square(), (2, 256)),
    "pairs": (lambda x: torch.view_as_real(spectrogram(x, window=WINDOW)), (1, 256)),
    "a short window": (
        lambda x: spectrogram(x, win_length=48, window=SHORT, normalized=True).abs(),
        (256,),
    ),
    "all frequencies": (
        lambda x: spectrogram(x, center=False, onesided=False, window=WINDOW).imag,
        (1, 256),
    ),
    "half a spectrum": (lambda x: torch.fft.rfft(x).abs(), (3, 64)),
    "a spectrum along another axis": (lambda x: torch.fft.fft(x, dim=1).real, (2, 12, 3)),
    "two axes": (lambda x: torch.fft.fftn(x, dim=(1, 2)).real, (1, 8, 16)),
    "there and back": (lambda x: torch.fft.ifft(torch.fft.fft(x)).real, (2, 24)),
    "an odd length": (lambda x: torch.fft.irfft(torch.fft.rfft(x), n=17), (2, 17)),
    "a filter": (filtered, (2, 64)),
    "rotations": (turned, (2, 5, 8)),
}


def data(shape: tuple[int, ...], count: int = 6) -> list[tuple[Tensor]]:
    random = torch.Generator().manual_seed(2)
    return [(torch.randn(*shape, generator=random),) for _ in range(count)]


@pytest.mark.parametrize("name", FORMS)
def test_what_is_real_again_is_lowered_whole(name: str) -> None:
    function, shape = FORMS[name]
    inputs = data(shape)
    art = compiled(Function(function), inputs[0])
    assert not art.report.refused
    for x in inputs:
        torch.testing.assert_close(art.run(*x), function(*x), rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("target", ["TOSA-1.0+INT", "ethos-u55-128"])
@pytest.mark.parametrize("name", ["magnitudes", "pairs", "a filter", "rotations"])
def test_spectra_are_computed_in_int8(name: str, target: str) -> None:
    """A layer of int8 has 36 dB at the peaks of 3 to 4 that noise has; two in a row 30."""
    function, shape = FORMS[name]
    inputs = data(shape, 12)
    art = compiled(Function(function), inputs[0], target, calibration=inputs)
    assert not art.report.refused
    real = torch.stack([function(*x) for x in inputs])
    error = torch.stack([art.run(*x) for x in inputs]) - real
    assert float(10 * torch.log10(real.square().sum() / error.square().sum())) > 28
    if target == "TOSA-1.0+INT":
        agrees_with_reference(art.graph)


def test_what_reads_a_complex_value_otherwise_stays_in_pytorch() -> None:
    def inverse(x: Tensor) -> Tensor:
        return torch.linalg.inv(torch.fft.fft(x) + torch.eye(4)).abs()

    inputs = data((4, 4))
    art = compiled(Function(inverse), inputs[0])
    assert any("linalg_inv" in refusal.op for refusal in art.report.refused)
    torch.testing.assert_close(art.run(*inputs[0]), inverse(*inputs[0]), rtol=1e-3, atol=1e-3)
