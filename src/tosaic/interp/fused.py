"""The fused kernels: CONV → RESCALE → CLAMP, and tables for elementwise chains of int8."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tosaic.errors import Unpredictable
from tosaic.interp import cuda, onednn, products
from tosaic.interp.affine import fit_float32
from tosaic.interp.conv import Convolution
from tosaic.interp.convert import rescaler
from tosaic.interp.device import is_gpu
from tosaic.interp.fuse import FUSED, Group
from tosaic.interp.kernel import KERNELS, Context, Run, constant
from tosaic.interp.rescale import PAYS, Rescale
from tosaic.ir.graph import Op, Value
from tosaic.spec.dtypes import I8

# Computing unproved channels a second time beats rescaling all of them in float64 up to this
# share, and from this many elements on (measured: about 120 µs against 1.2 ns an element).
PATCHED = 0.25
PATCHED_ELEMENTS = 1 << 17
# Channels on which a fused kernel is tried.
TRIED = 16


@dataclass(frozen=True, slots=True)
class _Patch:
    """Channels that float32 coefficients fail on, computed exactly and put in place."""

    index: Tensor
    whole: Convolution
    convolution: Convolution
    rescale: Rescale

    def __call__(self, x: Tensor, carrier: torch.dtype) -> Tensor:
        picked = _inputs(self.whole, self.index, x)
        return self.rescale(self.convolution.accumulate(picked), carrier)


class ConvRescale:
    """A convolution with the RESCALE (and CLAMP) behind it: int8 or carrier in, either out.

    Where a proof allows, oneDNN does all of it in one call; otherwise exact accumulators are
    rescaled. `carrier` is the torch type of the result: int8, or uint8 for `value + 128`, which
    spares the next convolution a pass. Other output types than int8 have no carrier. Proofs that
    cost something are made once ``waits`` values of a channel have come without them.
    """

    def __init__(
        self, convolution: Convolution, rescale: Rescale, carrier: torch.dtype = torch.int8,
        waits: int = 0,
    ) -> None:  # fmt: skip
        self.convolution, self.rescale, self.carrier = convolution, rescale, carrier
        self._out = carrier if rescale.output is torch.int8 else rescale.output
        self._fused: onednn.IntegerConvolution | None = None
        self._patch: _Patch | None = None
        self._lift = onednn.OFFSET if carrier is torch.uint8 else 0
        low, high = (level + self._lift for level in rescale.levels)
        saturated = (low, high) == (self._lift - 128, self._lift + 127)
        self._levels = None if saturated else (low, high)
        self._waits = waits
        self._prepare()

    def _prepare(self) -> None:
        proves, convolution, rescale = self._waits <= 0, self.convolution, self.rescale
        narrow = rescale.output is torch.int8 and not rescale.output_unsigned
        if proves and convolution.integer and narrow:
            self._fuse()
        if self._fused is None:
            convolution.pack()
            rescale.prepare(float32=not convolution.integer, fits=proves)

    @property
    def fused(self) -> bool:
        return self._fused is not None

    def _fuse(self) -> None:
        convolution = self.convolution
        if not convolution.safe:
            return
        large = convolution.outputs >= PATCHED_ELEMENTS
        spare = int(PATCHED * convolution.channels) if large else 0
        fit = self.rescale.fit(
            fit_float32, convolution.interval, self._lift, convolution.bias, spare
        )
        if fit is None:
            return
        rest = (~fit.proved).nonzero().flatten()
        size = convolution.weight.shape[1]
        self._fused = convolution.packed(convolution.weight, size, fit.slope, fit.offset)
        self._patch = self._make_patch(rest) if len(rest) else None
        if not self._agrees():
            self._fused = self._patch = None

    def _make_patch(self, index: Tensor) -> _Patch:
        whole = self.convolution
        part, rescale = whole.select(index), self.rescale.select(index, whole.interval)
        rescale.prepare(float32=False)
        return _Patch(index, whole, part, rescale)

    def _agrees(self) -> bool:
        """Try the fused kernel on its own shape: nothing documents oneDNN's arithmetic.

        A few channels tell, first and last among them: all of them would cost the time and the
        memory of the convolution in float64.
        """
        convolution, generator = self.convolution, torch.Generator().manual_seed(0)
        low, high = convolution.values
        shape = (1, *convolution.input_shape[1:])
        x = torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int8)
        last = convolution.channels - 1
        index = torch.linspace(0, last, min(TRIED, last + 1)).to(torch.int64)
        part, rescale = convolution.select(index), self.rescale.select(index, convolution.interval)
        expected = rescale.exact(part.accumulate(_inputs(convolution, index, x), integer=False))
        return torch.equal(onednn.from_carrier(self(x))[..., index], expected)

    def __call__(self, x: Tensor) -> Tensor:
        if self._waits > 0:
            self._waits -= self.convolution.outputs // self.convolution.channels
            if self._waits <= 0:
                self._prepare()
        if self._fused is None:
            return self.rescale(self.convolution.accumulate(x), self._out)
        nchw = self._fused(self.convolution.carrier(x), self.carrier, self._levels)
        result = nchw.permute(0, 2, 3, 1).contiguous()
        if self._patch is not None:
            result.index_copy_(-1, self._patch.index, self._patch(x, self.carrier))
        return result


def _inputs(convolution: Convolution, index: Tensor, x: Tensor) -> Tensor:
    """The input channels that some output channels are computed from."""
    if convolution.kind != "depthwise":
        return x
    return x.index_select(-1, index // (convolution.channels // convolution.groups))


class Table:
    """An elementwise function of one or two int8 tensors, as a table of all its results.

    Any chain of RESCALE, ADD, CLAMP and the like between int8 tensors is exact this way by
    construction, at about 1.5 ns an element.
    """

    def __init__(
        self, function: Callable[..., Tensor], operands: int, carrier: torch.dtype = torch.int8
    ) -> None:
        self._function, self._operands, self._carrier = function, operands, carrier
        self._tables: dict[tuple[torch.dtype, ...], Tensor] = {}

    def prepare(self) -> None:
        """Build the tables now: a pair of values that is unpredictable raises here."""
        self._table((torch.int8,) * self._operands)

    def _table(self, dtypes: tuple[torch.dtype, ...]) -> Tensor:
        if dtypes not in self._tables:
            byte = torch.arange(256, dtype=torch.int32).to(torch.uint8)
            values = [
                onednn.from_carrier(byte) if dtype is torch.uint8 else byte.view(torch.int8)
                for dtype in dtypes
            ]
            grid = torch.meshgrid(*values, indexing="ij")
            result = self._function(*(g.reshape(-1) for g in grid))
            if self._carrier is torch.uint8:
                result = onednn.to_carrier(result)
            self._tables[dtypes] = result
        return self._tables[dtypes]

    def __call__(self, *operands: Tensor) -> Tensor:
        table = self._table(tuple(x.dtype for x in operands))
        if table.is_cuda and (found := cuda.lookup(table, operands)) is not None:
            return found
        first, *others = (x.view(torch.uint8) for x in operands)
        index = first.to(torch.int32)
        if others:
            index = torch.add(others[0], index, alpha=256)
        return table.index_select(0, index.reshape(-1)).view(index.shape)


def _constants(op: Op) -> bool:
    return all(v.is_const for v in op.ins[1:])


def _clamp(group: Group) -> tuple[int, int] | None:
    last = group.ops[-1]
    return (last.attrs["min_val"], last.attrs["max_val"]) if last.name == "CLAMP" else None


def convolution(group: Group, context: Context, carrier: bool) -> Run | None:
    """CONV → RESCALE → CLAMP; declined where a weight or a scale is computed at run time."""
    conv, rescale = group.ops[0], group.ops[1]
    if not (_constants(conv) and _constants(rescale)) or not conv.ins[0].dtype.is_int:
        return None
    ready = products.integer_convolution(conv, *map(_known, conv.ins[1:]))
    parameters = [_known(v) for v in rescale.ins[1:]]
    try:
        behind = rescaler(rescale, parameters, _clamp(group), ready.interval)
    except Unpredictable:  # no scale of TOSA's: an error of the run, and RESCALE's own
        return None
    if behind.predictable and ready.safe:
        context.bounds[group.result] = behind.ends
    if is_gpu():
        one = cuda.GpuConvolution.takes(ready, behind)
        return cuda.GpuConvolution(ready, behind) if one else None
    kind = torch.uint8 if carrier else torch.int8
    return ConvRescale(ready, behind, kind, waits=PAYS)


def pairwise(group: Group, context: Context, carrier: bool) -> Run | None:
    """An elementwise operation between int8 tensors: all 65,536 results, made once."""
    ins = group.ins
    if not 1 <= len(ins) <= 2 or any(v.dtype is not I8 for v in (*ins, group.result)):
        return None
    if any(op.name == "RESCALE" and _channelwise(op) for op in group.ops):
        return None
    if any(v.is_const and math.prod(v.shape) != 1 for op in group.ops for v in op.ins):
        return None  # a constant that differs from element to element is no function of x alone
    shape = group.result.shape
    function = _Scalars(group, context)
    try:
        table = Table(function, len(ins), torch.uint8 if carrier else torch.int8)
        table.prepare()
    except Unpredictable:  # some pair overflows: whether one comes shows at run time only
        return None
    return partial(_expanded, table, shape)


def _channelwise(op: Op) -> bool:
    return bool(op.attrs["per_channel"]) or not _constants(op)


def _expanded(table: Table, shape: tuple[int, ...], *operands: Tensor) -> Tensor:
    return table(*(x if x.shape == shape else x.expand(shape) for x in operands))


class _Scalars:
    """The group as a function of flat tensors; constants of one element stay as they are."""

    def __init__(self, group: Group, context: Context) -> None:
        self.group = group
        self.runs = [KERNELS[op.name](op, context) for op in group.ops]

    def __call__(self, *operands: Tensor) -> Tensor:
        values: dict[Value, Tensor] = dict(zip(self.group.ins, operands, strict=True))
        for op, run in zip(self.group.ops, self.runs, strict=True):
            values[op.outs[0]] = run(*(self._value(values, v) for v in op.ins))
        return values[self.group.result]

    def _value(self, values: dict[Value, Tensor], value: Value) -> Tensor:
        return values[value] if value in values else _known(value).reshape(-1)


def _known(value: Value) -> Tensor:
    tensor = constant(value)
    assert tensor is not None
    return tensor


FUSED["convolution"] = convolution
FUSED["pairwise"] = pairwise
