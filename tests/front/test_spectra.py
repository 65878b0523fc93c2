"""Complex numbers on the way: transforms of Fourier, spectrograms, rotations of pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from judges.programs import Function, agrees_with_reference, compiled

WINDOW = torch.hann_window(64)
FLAT = torch.ones(64)
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


def enhanced(x: Tensor) -> Tensor:
    """A denoiser: a spectrum, gains for its frequencies, and the signal again."""
    spectrum = spectrogram(x, window=WINDOW)
    gains = torch.sigmoid(3 * (spectrum.abs() - 1))
    return torch.istft(spectrum * gains, 64, 16, window=WINDOW, length=x.shape[-1])


def mixed(x: Tensor) -> Tensor:
    """A layer of a Fourier neural operator: low frequencies through a matrix each."""
    weight = torch.polar(torch.linspace(0.5, 1, 60), torch.linspace(-3, 3, 60)).reshape(4, 3, 5)
    low = torch.einsum("bix,iox->box", torch.fft.rfft(x)[..., :5], weight)
    return torch.fft.irfft(torch.nn.functional.pad(low, (0, 12)), n=32)


def quotients(x: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(x)
    return torch.view_as_real(spectrum / (spectrum.conj() * (0.5 + 1j) + 40) - 1j)


FORMS |= {
    "a denoiser": (enhanced, (1, 320)),
    "an inverse that is not centered": (
        lambda x: torch.istft(
            spectrogram(x, center=False, normalized=True, window=FLAT),
            64,
            16,
            window=FLAT,
            normalized=True,
            center=False,
        ),
        (256,),
    ),
    "a picture": (lambda x: torch.view_as_real(torch.fft.rfft2(x, norm="ortho")), (2, 8, 16)),
    "a picture and back": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2), (2, 8, 16)),
    "three axes": (lambda x: torch.fft.rfftn(x).abs(), (4, 6, 10)),
    "a longer transform": (lambda x: torch.fft.rfft(x, n=48).angle().cos(), (2, 32)),
    "a shorter transform": (lambda x: torch.fft.rfft(x, n=20).abs(), (2, 32)),
    "a convolution": (
        lambda x: torch.fft.irfft(torch.fft.rfft(x, n=64) * torch.fft.rfft(x.flip(0), n=64)),
        (2, 32),
    ),
    "the middle first": (lambda x: torch.fft.fftshift(torch.fft.fft2(x)).abs(), (1, 8, 16)),
    "a real spectrum": (lambda x: torch.fft.hfft(torch.fft.ihfft(x)), (2, 16)),
    "a neural operator": (mixed, (2, 4, 32)),
    "quotients": (quotients, (2, 32)),
    "numbers that turn": (lambda x: (torch.fft.rfft(x) * 1j + 2).real, (2, 32)),
    "several spectra": (
        lambda x: torch.cat([torch.fft.rfft(x), torch.fft.rfft(x * x)], 0).abs(),
        (2, 32),
    ),
    "exponentials": (lambda x: torch.exp(torch.complex(x, 2 * x)).imag, (2, 8)),
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


@pytest.mark.parametrize("name", FORMS)
def test_sizes_of_powers_of_two_are_transformed_by_operators(name: str) -> None:
    function, shape = FORMS[name]
    inputs = data(shape, 2)
    art = compiled(Function(function), inputs[0], "TOSA-1.0+FP+fft")
    assert not art.report.refused
    kinds = {op.name for op in art.graph.ops}
    if name in OPERATORS:
        assert kinds >= OPERATORS[name]
        assert not kinds & {"CONV2D", "MATMUL", "CONV3D"} or name == "a denoiser"
    for x in inputs:
        torch.testing.assert_close(art.run(*x), function(*x), rtol=1e-4, atol=2e-4)
    agrees_with_reference(art.graph)


OPERATORS = {
    "magnitudes": {"RFFT2D"},
    "half a spectrum": {"RFFT2D"},
    "two axes": {"FFT2D"},
    "a filter": {"RFFT2D", "FFT2D"},
    "a picture": {"RFFT2D"},
    "a picture and back": {"RFFT2D", "FFT2D"},
    "a denoiser": {"RFFT2D"},
}


def test_a_complex_result_is_made_of_its_parts() -> None:
    (x,) = data((2, 32))[0]
    art = compiled(Function(torch.fft.rfft), (x,))
    assert [r.op for r in art.report.refused] == ["aten.complex.default"]
    torch.testing.assert_close(art.run(x), torch.fft.rfft(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["TOSA-1.0+INT", "ethos-u55-128"])
@pytest.mark.parametrize(
    "name",
    [
        "magnitudes",
        "pairs",
        "a filter",
        "rotations",
        "a picture",
        "a denoiser",
        "a neural operator",
    ],
)
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
