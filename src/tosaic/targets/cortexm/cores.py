"""The cores: how a C compiler is told of each, and which forms of kernels it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Core:
    """A core, or any CPU where ``cpu`` is empty.

    ``flags`` are those of GCC, ``forms`` the forms of kernels in the order in which they are tried.
    """

    name: str
    cpu: str
    flags: tuple[str, ...]
    forms: tuple[str, ...]
    has_fpu: bool
    about: str


def _core(cpu: str, forms: str, fpu: str, about: str) -> Core:
    abi = "hard" if fpu else "soft"
    flags = (f"-mcpu={cpu}", "-mthumb", f"-mfloat-abi={abi}", *([f"-mfpu={fpu}"] if fpu else []))
    return Core(cpu.removesuffix("+nodsp"), cpu, flags, tuple(forms.split()), bool(fpu), about)


_ALL = (
    _core("cortex-m0plus", "c", "", "C for Armv6-M"),
    _core("cortex-m3", "c", "", "C for Armv7-M"),
    _core("cortex-m4", "dsp c", "fpv4-sp-d16", "C with the DSP extension"),
    _core("cortex-m7", "dsp c", "fpv5-d16", "C with the DSP extension"),
    _core("cortex-m33", "dsp c", "fpv5-sp-d16", "C with the DSP extension"),
    _core("cortex-m55", "mve c", "auto", "C with the vector extension (MVE)"),
    _core("cortex-m85", "mve c", "auto", "C with the vector extension (MVE)"),
    Core("c", "", (), ("c",), True, "portable C99 for any CPU"),
)
CORES: dict[str, Core] = {core.name: core for core in _ALL}
