"""What an operation does, in terms that hold for every Ethos-U: read off its registers."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.sim.ethosu.arrays import DType
from tosaic.sim.ethosu.featuremap import FeatureMap
from tosaic.sim.ethosu.memory import Block
from tosaic.sim.ethosu.registers import Rounding, Upscale

Shape = tuple[int, int, int]
"""Height, width, depth."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """A multiplier, a shift to the right, and how the shift rounds."""

    multiplier: int = 1
    shift: int = 0
    rounding: Rounding = Rounding.NATURAL
    double: int = 0
    """U85: bits of a first rounding of its own; 0 for none."""

    def __str__(self) -> str:
        double = f" double {self.double}" if self.double else ""
        return f"{self.multiplier} >> {self.shift} {self.rounding.value}{double}"


@dataclass(frozen=True, slots=True)
class Operand:
    """An input: a tensor, a number, or what the operation before left in a chaining buffer."""

    dtype: DType
    zero_point: int
    shape: Shape
    map: FeatureMap | None = None
    scalar: int | None = None
    chain: int | None = None
    scaling: Scaling = Scaling()

    def __str__(self) -> str:
        return _where(self) or f"scalar {self.scalar}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A table in the NPU's internal memory: where, and the types of index and entry."""

    start: int
    index: DType
    entry: DType


@dataclass(frozen=True, slots=True)
class Output:
    """A result: its scaling, limits and table, and where it goes."""

    dtype: DType
    zero_point: int
    shape: Shape
    """Before it is transposed."""
    scaling: Scaling
    """For all channels; with ``per_channel`` only its rounding counts."""
    per_channel: bool
    limits: tuple[int, int] | None
    """The lowest and highest value; without, the bits that fit are kept."""
    lookup: Lookup | None = None
    map: FeatureMap | None = None
    chain: int | None = None
    transpose: tuple[int, int, int] = (0, 1, 2)
    reverse: int | None = None

    def __str__(self) -> str:
        return _where(self) or "no output"


def _where(tensor: Operand | Output) -> str:
    """The tensor in memory, or the chaining buffer that holds it."""
    if tensor.map is not None:
        return str(tensor.map)
    if tensor.chain is not None:
        return f"chaining buffer {tensor.chain} {tensor.dtype}{list(tensor.shape)}"
    return ""


@dataclass(frozen=True, slots=True)
class Window:
    """A kernel: its size in elements, its steps, and the padding round the input."""

    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int, int, int]
    """Top, left, bottom, right."""
    part_kernel: bool

    @property
    def reach(self) -> tuple[int, int]:
        """Height and width with the gaps of the dilation."""
        (h, w), (dy, dx) = self.size, self.dilation
        return (h - 1) * dy + 1, (w - 1) * dx + 1


@dataclass(frozen=True, slots=True)
class Coded:
    """Compressed weights: a stream for each core that has one."""

    weights: tuple[Block, ...]
    fast: bool
    sparse: bool
    block: int
    microblock: int


@dataclass(frozen=True, slots=True)
class Steps:
    """RESIZE along one axis: position i is (i * step + offset) / scale."""

    scale: int
    step: int
    offset: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One CONV, DEPTHWISE, POOL, ELEMENTWISE or RESIZE."""

    kind: str
    mode: int
    ifm: Operand
    output: Output
    ifm2: Operand | None = None
    window: Window | None = None
    coded: Coded | None = None
    scales: tuple[Block, ...] = ()
    """Where biases and scales of the channels lie, for each core."""
    divide: bool = False
    """Are the sums of a pooling divided by the number of values in the window?"""
    upscale: Upscale = Upscale.NONE
    accumulator: int = 32
    """Bits of the sums."""
    start: str = "reset"
    """What sums start from: zero ("reset"), the operation before ("keep"), the second input."""
    emit: bool = True
    """Are sums handed on at the end, or only kept for the next operation?"""
    swapped: bool = False
    """Is the second input the first operand?"""
    wide_operand: int | None = None
    """U55: which operand of a sum is scaled with 32 bits (0 or 1); None for 16 bits on both."""
    resize: tuple[Steps, Steps] | None = None
    dynamic_weights: bool = False

    @property
    def inputs(self) -> tuple[Operand, ...]:
        return (self.ifm,) if self.ifm2 is None else (self.ifm, self.ifm2)
