"""What a target is, as data: environment, constraints, traits, costs, compiler, engines, files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, Protocol, TypeVar, get_args, get_origin, get_type_hints

from tosaic.errors import InvalidInput, UnknownOption
from tosaic.interp.model import Model
from tosaic.ir.build import Constraint
from tosaic.ir.graph import Array, Graph, Loc, Op
from tosaic.ir.traits import PLAIN, Traits
from tosaic.rewrite import Cost, improve
from tosaic.rewrite.candidates import Judge
from tosaic.spec.env import Env

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """An operation of a device by its compiler's estimate, and the operator that it comes from.

    ``traffic`` is cycles of access by name of the memory, ``moved`` bytes read and written there.
    ``index`` is the operator's place in the graph, ``time`` the operation's in the program.
    ``bound`` is what takes longest in it, in a word: MACs, elements, or a memory.
    """

    name: str
    op: str
    loc: Loc | None
    cycles: int
    macs: int
    traffic: Mapping[str, int]
    moved: Mapping[str, int] = field(default_factory=dict)
    index: int | None = None
    time: int = 0
    bound: str = ""


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor in memory while the operations from ``start`` to ``end`` run."""

    name: str
    memory: str
    address: int
    size: int
    start: int
    end: int
    loc: Loc | None
    index: int | None = None  # of the operator that makes it


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a graph costs on a device, and who says so: cycles, bytes, operators, tensors.

    ``flash`` is all that has to be stored, ``flash_parts`` what that consists of; ``clock`` is in
    hertz, 0 if it is not known.
    """

    by: str
    cycles: int
    scratch: int = 0
    flash: int = 0
    memories: Mapping[str, int] = field(default_factory=dict)
    operators: tuple[OperatorCost, ...] = ()
    tensors: tuple[PlacedTensor, ...] = ()
    flash_parts: Mapping[str, int] = field(default_factory=dict)
    clock: float = 0.0
    unit: str = "cycles"  # or instructions


@dataclass(frozen=True, eq=False)
class Compiled:
    """One graph as a target's compiler gives it: the bytes for the device, and what was checked.

    ``results`` are those of the graph for the input that calibration saw, where a check ran it.
    """

    graph: Graph
    tosa: bytes
    data: bytes = b""
    checks: list[str] = field(default_factory=list)
    known_model: Model | None = None
    results: list[Array] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made anew when it is asked for: engines, the interpreter."""
        kept = {f.name for f in fields(self)}
        return {k: v for k, v in vars(self).items() if k in kept} | {
            "known_model": None,
            "results": [],
        }

    @cached_property
    def model(self) -> Model:
        """The interpreter of the graph that was compiled."""
        return self.known_model or Model(self.graph)

    @property
    def estimate(self) -> Estimate | None:
        """What the graph costs there; None if nobody says."""
        return None


class Emit(Protocol):
    """Compiles one graph for a device, and checks the result before anybody gets it.

    ``given`` is an input of the graph that calibration saw. ToolFailed says what does not compile,
    or compiles wrongly, and cannot be worked around; nothing of that is tried without ``mends``.
    """

    def __call__(
        self, graph: Graph, given: Sequence[Array] | None = None, mends: bool = True
    ) -> Compiled: ...


class Engine(Protocol):
    """Runs what a device gets, on this machine."""

    def run(self, *inputs: Array) -> Sequence[Array]: ...


@dataclass(frozen=True, slots=True)
class Format:
    """A file of a target's own: how an artifact is written, and how a file is made to run again.

    ``magic`` are the bytes that such a file begins with, by which ``load`` knows it without a name.
    ``engines`` are what ``run`` of a file that was read takes as ``engine=``.
    """

    write: Callable[..., None]
    read: Callable[[bytes], Engine] | None = None
    magic: bytes = b""
    engines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one thing that a target needs: PASS, WARN or FAIL, and the way out."""

    name: str
    state: str
    told: str
    way: str = ""


@dataclass(frozen=True, slots=True)
class HostCost:
    """What the processor beside a device takes for an operator, in cycles of the device."""

    call: int
    element: float = 0.0
    byte: float = 0.0

    def cycles(self, elements: int, size: int) -> int:
        """Cycles for a result of so many elements and bytes."""
        return round(self.call + self.element * elements + self.byte * size)


@dataclass(frozen=True)
class Target:
    """A device or specification to compile for, under the name a user gives.

    ``constraints`` are reasons why an operator that TOSA allows does not run there, ``traits`` what
    is fast or fused, ``cost`` a quick estimate of an operator, ``judge`` what small graphs take:
    among equal forms the best is chosen by it. ``workarounds`` changes a graph that the device's
    compiler would get wrong; it runs last, before the graph is verified. ``alike`` changes a graph
    that is compiled for several sizes, so that their constants are the same. ``emit`` compiles one
    graph for the device; None where TOSA itself is the result. ``start`` begins what ``emit`` will
    need, such as a process, and returns at once.

    ``engines`` run what was compiled, by name, the usual one first; the interpreter of the graph is
    always there as "tosa". ``formats`` are files by suffix. ``backend`` is the name of ExecuTorch's
    delegate that takes the compiled data. ``verdict`` checks a TOSA file on the device.

    ``doctor`` looks for all that is needed to compile and run, and says what is missing.

    ``options`` are those that it was made with, ``packages`` what it needs installed, and
    ``peak_macs`` how many multiply-accumulates it does in a cycle: the report shows them.
    ``advice`` says what to do about a refusal, by a pattern of its reason. Where there are floats
    beside integers, graphs quantize and dequantize at their boundary, unless
    ``preserve_io_quantization``. ``check`` compares float graphs with PyTorch on the example.

    ``host`` is the target of the processor beside the device: it runs what the device refuses.
    ``host_costs`` is what operators take there that it runs as well as any device, by ATen name.
    """

    name: str
    env: Env
    constraints: tuple[Constraint, ...] = ()
    traits: Traits = PLAIN
    cost: Cost | None = None
    judge: Judge | None = None
    workarounds: Callable[[Graph], None] | None = None
    alike: Callable[[Graph], None] | None = None
    emit: Emit | None = None
    start: Callable[[], None] | None = None
    engines: Mapping[str, Callable[[Any], Engine]] = field(default_factory=dict)
    formats: Mapping[str, Format] = field(default_factory=dict)
    backend: str = ""
    verdict: Callable[[Graph, Sequence[Array] | None, bool], Any] | None = None
    doctor: Callable[[], Sequence[Finding]] | None = None
    about: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    peak_macs: int = 0
    advice: tuple[tuple[str, str], ...] = ()
    preserve_io_quantization: bool = False
    check: bool = True
    host: Target | None = None
    host_costs: Mapping[str, HostCost] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[Target, ...]:
        """The device and its host, if it has one."""
        return (self,) if self.host is None else (self, self.host)

    @property
    def has_casts(self) -> bool:
        """Whether what a graph takes and gives as real numbers becomes integers within it."""
        return {"INT", "FP"} <= self.env.profiles and not self.preserve_io_quantization

    @property
    def has_branches(self) -> bool:
        """Whether branches and loops are part of a graph, in one form or another."""
        return any(each.env.has("cf") or each.traits.computes_both for each in self.devices)

    def refuses(self, op: Op) -> str | None:
        """Why an operator that TOSA allows does not run there; None if it does."""
        for constraint in self.constraints:
            reason = constraint(op)
            if reason:
                return reason
        return None

    def improve(self, graph: Graph, forms: bool = True) -> Graph:
        """The graph with every rewrite that is better there; the given one is used up."""
        return improve(
            graph, self.env, self.refuses, self.cost, self.judge, forms, traits=self.traits
        )


def options_of(name: str, kind: type[T], given: Mapping[str, Any]) -> T:
    """Options of a target as its dataclass; InvalidInput of a name or a type that it has not."""
    hints, made = get_type_hints(kind), {}
    for option, value in given.items():
        if option not in hints:
            known = ", ".join(hints)
            raise UnknownOption(
                f"{name} has no option {option!r}{_meant(option, hints)}; it has {known}"
            )
        if value is not None:
            made[option] = _typed(option, value, _kinds(hints[option]))
    return kind(**made)


_PARAMETERS = (
    "target", "scheme", "calibration", "dynamic_shapes", "sizes", "io", "accuracy", "budget_s",
    "example_inputs", "preserve_io_quantization",
)  # fmt: skip


def _meant(option: str, known: Iterable[str] = ()) -> str:
    """The option, or the parameter of ``compile``, that is written much like this one."""
    near = get_close_matches(option, (*known, *_PARAMETERS), 1)
    return f", perhaps {near[0]}" if near else ""


def _kinds(hint: Any) -> tuple[type, ...]:
    """The classes that an annotation allows; whole numbers are real ones, too."""
    each = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kinds = [get_origin(kind) or kind for kind in each if kind is not NoneType]
    return (*kinds, int) if float in kinds else tuple(kinds)


def _typed(option: str, value: Any, kinds: tuple[type, ...]) -> Any:
    """An option of one of these classes; it may be text, as the command line has it."""
    if isinstance(value, str) and str not in kinds:
        words = {"true": True, "false": False} if bool in kinds else {}
        for read in (words.__getitem__, *(kind for kind in kinds if kind in (int, float))):
            with suppress(KeyError, ValueError):
                return read(value.lower())
    if not isinstance(value, kinds):
        told = " or ".join(dict.fromkeys(each.__name__ for each in kinds))
        raise InvalidInput(f"the option {option} is of type {told}, not {value!r}")
    return value


def with_check(target: Target, options: Mapping[str, Any]) -> Target:
    """A target that has no option but ``check``; None is as the target has it."""
    for option in options:
        if option != "check":
            more = "; a device has more: name it as the target" * target.name.startswith("TOSA")
            raise UnknownOption(
                f"{target.name} has no option {option!r}{_meant(option)}; it has check alone{more}"
            )
    told = options.get("check")
    return target if told is None else replace(target, check=bool(told))


def with_host(target: Target, host: Target) -> Target:
    """A device beside a processor, which runs what the device refuses."""
    if target.emit is None or host.emit is None or target.env.profiles != host.env.profiles:
        raise InvalidInput(
            f"'{target.name}+{host.name}' is no device with a processor beside it: both take "
            "integers and have compilers, the device first"
        )
    name = f"{target.name}+{host.name}"
    traits = replace(target.traits, host_loops=False, longest_unrolled=0)  # nothing runs beside
    return replace(
        target, name=name, host=host, traits=traits, backend="", formats={}, verdict=None
    )
