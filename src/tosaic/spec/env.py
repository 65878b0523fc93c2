"""An environment: which TOSA version, profiles, extensions and level a graph may use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from tosaic.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Level:
    """Size limits that every implementation of a level supports."""

    name: str
    max_rank: int
    max_kernel: int
    max_stride: int
    max_scale: int
    max_log2_size: int
    max_nesting: int
    max_tensor_list_size: int
    max_shape_len: int


LEVELS = {
    "8K": Level("8K", 6, 8192, 8192, 256, 31, 6, 64, 16),
    "none": Level("none", 32, 2147483647, 2147483647, 2048, 63, 256, 256, 64),
}
VERSIONS = ((1, 0), (1, 1))
PROFILES = ("INT", "FP")


@dataclass(frozen=True, slots=True)
class Extension:
    """A TOSA extension: its name in a specification string, the profiles it extends."""

    name: str
    official: str
    profiles: tuple[str, ...]
    since: tuple[int, int] = (1, 0)


_INT, _FP, _BOTH = ("INT",), ("FP",), ("INT", "FP")
EXTENSIONS = {
    e.name: e
    for e in (
        Extension("int16", "EXT-INT16", _INT),
        Extension("int4", "EXT-INT4", _INT),
        Extension("bf16", "EXT-BF16", _FP),
        Extension("fp8e4m3", "EXT-FP8E4M3", _FP),
        Extension("fp8e5m2", "EXT-FP8E5M2", _FP),
        Extension("fft", "EXT-FFT", _FP),
        Extension("var", "EXT-VARIABLE", _BOTH),
        Extension("cf", "EXT-CONTROLFLOW", _BOTH),
        Extension("dynamic", "EXT-DYNAMIC", _BOTH),
        Extension("doubleround", "EXT-DOUBLEROUND", _INT),
        Extension("inexactround", "EXT-INEXACTROUND", _INT),
        Extension("int64", "EXT-INT64", _BOTH, (1, 1)),
        Extension("shape", "EXT-SHAPE", _BOTH, (1, 1)),
        Extension("mx", "EXT-MX-COMMON", _FP, (1, 1)),
        Extension("mxfp4e2m1", "EXT-MX-FP4E2M1", _FP, (1, 1)),
        Extension("mxfp6e2m3", "EXT-MX-FP6E2M3", _FP, (1, 1)),
        Extension("mxfp6e3m2", "EXT-MX-FP6E3M2", _FP, (1, 1)),
        Extension("mxfp8e4m3", "EXT-MX-FP8E4M3", _FP, (1, 1)),
        Extension("mxfp8e5m2", "EXT-MX-FP8E5M2", _FP, (1, 1)),
        Extension("mxint8", "EXT-MX-INT8", _FP, (1, 1)),
        Extension("mxfpconv", "EXT-MXFP-CONV", _FP, (1, 1)),
    )
}
# One word for all block-scaled formats, as ExecuTorch's users write it; constants of 8-bit floats
# need extensions of their own.
_GROUPS = {"mxfp": frozenset(name for name in EXTENSIONS if name.startswith(("mx", "fp8")))}
_ALIASES = {"variable": "var", "controlflow": "cf"}
_FEATURE_ORDER = (*PROFILES, *EXTENSIONS)


def extensions_of(version: tuple[int, int]) -> tuple[str, ...]:
    """Names of the extensions that a version has."""
    return tuple(e.name for e in EXTENSIONS.values() if e.since <= version)


@dataclass(frozen=True)
class Env:
    """Version, profiles, extensions and level; read from and printed as ``TOSA-1.0+INT+int16``."""

    version: tuple[int, int] = (1, 0)
    profiles: frozenset[str] = frozenset(("INT",))
    extensions: frozenset[str] = frozenset()
    level: Level = field(default=LEVELS["8K"])

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            have = ", ".join(f"{a}.{b}" for a, b in VERSIONS)
            raise InvalidInput(f"TOSA {_dotted(self.version)} is unknown; there are {have}")
        if not self.profiles:
            given = "+".join((f"TOSA-{_dotted(self.version)}", *sorted(self.extensions)))
            raise InvalidInput(
                f"{given} names no profile; there are {', '.join(PROFILES)}: write {given}+INT"
            )
        for name in sorted(self.profiles | self.extensions):
            self._check_feature(name)

    def _check_feature(self, name: str) -> None:
        if name in PROFILES:
            return
        extension = EXTENSIONS.get(name)
        have = ", ".join(
            e for e in extensions_of(self.version) if self.profiles & set(EXTENSIONS[e].profiles)
        )
        base = f"TOSA-{_dotted(self.version)}+{'+'.join(p for p in PROFILES if p in self.profiles)}"
        if extension is None:
            raise InvalidInput(f"'{name}' is no profile or extension of TOSA; {base} takes {have}")
        if extension.since > self.version:
            raise InvalidInput(
                f"extension '{name}' came with TOSA {_dotted(extension.since)}; {base} takes {have}"
            )
        if not self.profiles & set(extension.profiles):
            needs = " or ".join(extension.profiles)
            raise InvalidInput(
                f"extension '{name}' needs the {needs} profile, which {base} lacks; "
                f"{base} takes {have}"
            )

    @classmethod
    def parse(cls, text: str | Env) -> Env:
        """Read a specification string such as ``TOSA-1.1+INT+FP+int16+cf``.

        A ``8k`` or ``level-none`` part sets the level, which is 8K otherwise.
        """
        if isinstance(text, Env):
            return text
        match = re.fullmatch(r"TOSA-([0-9]+)\.([0-9]+)(?:\.0)?((?:\+[\w-]+)*)", str(text))
        if match is None:
            raise InvalidInput(
                f"'{text}' is no TOSA specification; write one such as TOSA-1.0+INT+int16"
            )
        level = LEVELS["8K"]
        profiles: set[str] = set()
        extensions: set[str] = set()
        for part in filter(None, match[3].split("+")):
            name = _ALIASES.get(part.lower(), part.lower())
            if name in ("8k", "level-none"):
                level = LEVELS["8K" if name == "8k" else "none"]
            elif part.upper() in PROFILES:
                profiles.add(part.upper())
            else:
                extensions |= _GROUPS.get(name, {name})
        version = (int(match[1]), int(match[2]))
        return cls(version, frozenset(profiles), frozenset(extensions), level)

    def __str__(self) -> str:
        parts = [f"TOSA-{_dotted(self.version)}"]
        parts += [f for f in _FEATURE_ORDER if f in self.profiles or f in self.extensions]
        if self.level.name == "none":
            parts.append("level-none")
        return "+".join(parts)

    @cached_property
    def features(self) -> frozenset[str]:
        """Profiles and extensions together, the currency of type rows."""
        return self.profiles | self.extensions

    def has(self, feature: str) -> bool:
        return feature in self.features


def everything(version: tuple[int, int] = VERSIONS[-1], level: str = "8K") -> Env:
    """The widest environment of a version: all profiles, all extensions."""
    return Env(version, frozenset(PROFILES), frozenset(extensions_of(version)), LEVELS[level])


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
