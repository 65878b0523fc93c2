"""Targets by name: Tosaic's own, and those of other packages by entry point.

A package has targets if it declares an entry point of the group ``tosaic.targets`` that names a
``Family``, or a single ``Target``. Names of Tosaic's own targets stay Tosaic's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import metadata
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tosaic.errors import InvalidInput, first_line
from tosaic.targets.family import Family

if TYPE_CHECKING:
    from tosaic.lowering.target import Format, Target

GROUP = "tosaic.targets"
# Loaded by the same means as those of other packages, without looking for them.
_OWN = tuple(
    EntryPoint(name, f"tosaic.targets.{name}:FAMILY", GROUP)
    for name in ("tosa", "ethosu", "vgf", "cortexm")
)
_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Absent:
    """An entry point that does not load, and why: other targets are there all the same."""

    entry: str
    reason: str


def families() -> Iterator[Family | Absent]:
    """Tosaic's own families, then those of other packages in alphabetic order."""
    for entry in _OWN:
        yield entry.load()
    found = {each.name: each for each in metadata.entry_points(group=GROUP)}
    for name, entry in sorted(found.items()):
        if entry.value in {own.value for own in _OWN}:
            continue
        try:
            yield _family(entry.load())
        except Exception as problem:  # noqa: BLE001  (it is somebody else's package)
            reason = f"{type(problem).__name__}: {first_line(problem)}"
            yield Absent(f"{name} = {entry.value}", reason)


def _family(found: Any) -> Family:
    from tosaic.lowering.target import Target, with_check

    if isinstance(found, Family):
        return found
    if not isinstance(found, Target):
        raise TypeError(f"it names a {type(found).__name__}, no Family and no Target")
    kinds = {found.name: found.name}
    about = {found.name: found.about or str(found.env)}
    return Family(about, lambda _, options: with_check(found, options), kinds=kinds)


def known_families() -> list[Family]:
    """The families that load."""
    return [each for each in families() if isinstance(each, Family)]


def names() -> dict[str, str]:
    """Every target that has a name of its own, with a line about it; no compiler is loaded."""
    found: dict[str, str] = {}
    for family in known_families():
        for name, about in family.names.items():
            found.setdefault(name, about)
    return found


def formats() -> dict[str, Format]:
    """The files that targets have of their own, by suffix."""
    made = (family.make(next(iter(family.names)), {}) for family in known_families())
    return {suffix: own for target in made for suffix, own in target.formats.items()}


def elsewhere(suffix: str) -> str:
    """Which target's files have a suffix, as the end of a sentence; nothing if none's have."""
    for family in known_families() if suffix else ():
        name = next(iter(family.names))
        if suffix in family.make(name, {}).formats:
            return f"; {suffix} is what the target {name} gives"
    return ""


def target_of(name: object, options: Mapping[str, Any] = _OPTIONS) -> Target:
    """The target of that name; InvalidInput if there is none, or if it has no such option."""
    if not isinstance(name, str):
        from tosaic.lowering.target import Target, with_check

        if isinstance(name, Target):
            return with_check(name, options)
        kind = type(name).__name__
        raise InvalidInput(f"a target is one name such as 'TOSA-1.0+INT', not {kind}: {name!r}")
    absent: list[Absent] = []
    device, plus, host = name.partition("+")
    if plus and not device.upper().startswith("TOSA") and is_known(device) and is_known(host):
        from tosaic.lowering.target import with_host

        return with_host(target_of(device, options), target_of(host))
    for family in families():
        if isinstance(family, Absent):
            absent.append(family)
        elif family.has(known := _spelled(name, family)):
            return family.make(known, options)
    raise InvalidInput(_unknown(name, absent))


def is_known(name: str) -> bool:
    """Whether there is a target of that name."""
    return any(family.has(_spelled(name, family)) for family in known_families())


def _spelled(name: str, family: Family) -> str:
    """A name as the family spells it: capitals and underscores are the user's own."""
    plain = {each.lower(): each for each in family.names}
    return plain.get(name.lower().replace("_", "-"), name)


def _unknown(name: str, absent: list[Absent]) -> str:
    own = [each for each in names() if not each.startswith("TOSA")]
    plain = name.lower().replace("_", "-")
    near = [each for each in own if plain in each] if len(plain) > 1 else []
    near = near or get_close_matches(plain, own, 1, 0.7)
    broken = "".join(f"; the entry point {a.entry} does not load: {a.reason}" for a in absent)
    if near and "," not in name:
        meant = f"perhaps {', '.join(near)}; `tosaic targets` lists all"
        return f"there is no target {name!r}, {meant}{broken}"
    meant = ": give one, or several to `tosaic tune`" if "," in name else ""
    return (
        f"there is no target {name!r}{meant}; there are {', '.join(own)}, and TOSA "
        f"specifications such as TOSA-1.0+INT{broken}"
    )
