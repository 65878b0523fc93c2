"""The interpreter on a GPU: plans for CUDA, batches that fit its memory, and their self-check.

Kernels are those of the processor, run by torch on the GPU. Convolutions of int8 with the RESCALE
behind them, RESCALE and tables have Triton kernels of their own, where Triton is installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tosaic.errors import InvalidInput, ToolFailed

if TYPE_CHECKING:
    from tosaic.interp.conv import Convolution
    from tosaic.interp.rescale import Rescale

_SHARE = 0.7  # of the GPU's free memory, unless the caller says how much
_PROBED = 4  # samples of the run that tells how much memory one takes
_RECORDED = 3  # the run of a size from which it is recorded
_BLOCK = 1024


@lru_cache(maxsize=1)
def has_triton() -> bool:
    return find_spec("triton") is not None


def _kernels() -> Any:
    from tosaic.interp import cuda_kernels

    return cuda_kernels


def _steps(count: int, size: int) -> int:
    return -(-count // size)


def _power(count: int, least: int, most: int) -> int:
    """The next power of two, within limits."""
    return min(most, max(least, 1 << max(0, count - 1).bit_length()))


class GpuConvolution:
    """A convolution of int8 with the RESCALE behind it, as one Triton kernel."""

    def __init__(self, whole: Convolution, rescale: Rescale) -> None:
        self._whole, self._rescale = whole, rescale
        channels = whole.channels
        self._depthwise = whole.kind == "depthwise"
        weight = whole.weight.to(torch.int8)  # [outputs, inputs, rows, columns]
        if self._depthwise:
            self._weight = weight[:, 0].permute(1, 2, 0).contiguous()
        else:
            self._weight = weight.permute(0, 2, 3, 1).reshape(channels, -1).contiguous()
        # Padding holds the zero point, so that it is subtracted once for all terms.
        bias = whole.bias - whole.input_zp * weight.sum((1, 2, 3), dtype=torch.int64)
        # The low 32 bits: sums wrap on the way and end in their range.
        self._bias = ((bias + (1 << 31)) % (1 << 32) - (1 << 31)).to(torch.int32)
        self._multiplier = rescale.multiplier.expand(channels).to(torch.int32).contiguous()
        self._shift = rescale.shift.expand(channels).to(torch.int32).contiguous()
        self._double = rescale.rounding == "DOUBLE_ROUND"

    @staticmethod
    def takes(whole: Convolution, rescale: Rescale) -> bool:
        """Whether the kernel computes what the two do, for every input."""
        narrow = whole.values[0] >= -128 and whole.values[1] <= 127
        fits = bool(whole.weight.min() >= -128) and bool(whole.weight.max() <= 127)
        kinds = whole.kind == "conv2d" or (
            whole.kind == "depthwise" and whole.channels == whole.groups
        )
        plain = rescale.rounding != "INEXACT_ROUND" and not rescale.output_unsigned
        return (
            has_triton() and narrow and fits and kinds and plain and whole.safe
            and rescale.predictable and not rescale.input_zp and not rescale.input_unsigned
            and whole.accumulator is torch.int32
        )  # fmt: skip

    def __call__(self, x: Tensor) -> Tensor:
        whole, rescale = self._whole, self._rescale
        x = x.contiguous()
        batch, height, width, channels = x.shape
        kernel_y, kernel_x = whole.weight.shape[2:]
        top, bottom, left, right = whole.pad
        out_height = height + top + bottom - whole.dilation[0] * (kernel_y - 1) - 1
        out_height = out_height // whole.stride[0] + 1
        out_width = width + left + right - whole.dilation[1] * (kernel_x - 1) - 1
        out_width = out_width // whole.stride[1] + 1
        rows, columns = batch * out_height * out_width, whole.channels
        out = torch.empty((batch, out_height, out_width, columns), dtype=rescale.output)
        where = (
            height, width, out_height, out_width, *whole.stride, *whole.dilation, top, left,
            whole.input_zp, rescale.output_zp, *_limits(rescale),
        )  # fmt: skip
        given = (x, self._weight, self._bias, self._multiplier, self._shift, out)
        kernels = _kernels()
        if self._depthwise:
            bm, bn = 64, 32  # measured, as those below
            kernels.depthwise[_steps(rows, bm), _steps(columns, bn)](
                *given, rows, columns, *where, KERNEL_Y=kernel_y, KERNEL_X=kernel_x,
                DOUBLE=self._double, BM=bm, BN=bn, num_warps=4,
            )  # fmt: skip
            return out
        terms = channels * kernel_y * kernel_x
        pointwise = terms == channels and not any(whole.pad) and {*whole.stride} == {1}
        bk = _power(terms, 32, 128)
        if terms <= 32 or columns <= 32:
            bm, bn = 256, _power(columns, 16, 32)
        else:
            bm, bn = 128, 128 if columns >= 512 else 64
        bm = _power(rows, 16, bm)
        kernels.convolution[_steps(rows, bm), _steps(columns, bn)](
            *given, rows, columns, terms, channels, *where, KERNEL_X=kernel_x,
            POINTWISE=pointwise, DOUBLE=self._double, BM=bm, BN=bn, BK=bk,
            num_warps=4, num_stages=3,
        )  # fmt: skip
        return out


def _limits(rescale: Rescale) -> tuple[int, int]:
    """What a result saturates to before its zero point is added."""
    low, high = (level - rescale.output_zp for level in rescale.levels)
    return max(low, -(1 << 31)), min(high, (1 << 31) - 1)


def rescaled(rescale: Rescale, x: Tensor) -> Tensor | None:
    """RESCALE by Triton's kernel; None where the definition has to check its operands."""
    if not has_triton() or not rescale.predictable or rescale.rounding == "INEXACT_ROUND":
        return None
    if rescale.input_unsigned or x.is_floating_point() or not x.dim():
        return None
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=rescale.output)
    count = x.numel()
    if count:
        _kernels().rescale[(_steps(count, _BLOCK),)](
            x, rescale.multiplier, rescale.shift, out, count, x.shape[-1], rescale.input_zp,
            rescale.output_zp, *_limits(rescale), PER_CHANNEL=len(rescale.multiplier) > 1,
            DOUBLE=rescale.rounding == "DOUBLE_ROUND", BLOCK=_BLOCK,
        )  # fmt: skip
    return out


def lookup(table: Tensor, operands: Sequence[Tensor]) -> Tensor | None:
    """Entries of a table for the bytes of one or two tensors of one shape."""
    if not has_triton():
        return None
    first, *others = (x.contiguous() for x in operands)
    out = torch.empty(first.shape, dtype=table.dtype)
    count = first.numel()
    if count:
        second = others[0] if others else first
        _kernels().lookup[(_steps(count, _BLOCK),)](
            first.view(torch.int8), second.view(torch.int8), table, out, count,
            PAIR=bool(others), BLOCK=_BLOCK,
        )  # fmt: skip
    return out


Execute = Callable[[int, list[Tensor]], list[Tensor]]


class Batches:
    """Runs of stacked samples on a GPU, so many at a time as its memory holds.

    ``execute`` runs a number of samples there; ``reference`` one sample on the processor, whose
    integer results the first run has to equal bit by bit.
    """

    def __init__(
        self, device: str, execute: Execute, reference: Callable[[list[Tensor]], list[Tensor]]
    ) -> None:
        self._device, self._execute, self._reference = device, execute, reference
        self._bytes: float | None = None  # that one sample takes, once it is known
        self._runs: Counter[int] = Counter()  # by the number of samples
        self._recorded: dict[int, _Recorded | None] = {}

    def run(self, inputs: list[Tensor], count: int, max_memory: int | None) -> list[Tensor]:
        """Results of all samples, in the processor's memory."""
        if self._bytes is None:
            self._bytes = self._probed(inputs, count)
        size = min(count, self._most(max_memory))
        parts = []
        for start in range(0, count, size):
            # The last samples run with some of those before them, as a plan has one size.
            begin = min(start, count - size)
            chunk = [_rows(t, count, begin, begin + size).to(self._device) for t in inputs]
            made = self._faster(size)(chunk)
            parts.append([_rows(t, size, start - begin, size).cpu() for t in made])
        return [torch.cat(some) if len(some) > 1 else some[0] for some in zip(*parts)]

    def _faster(self, size: int) -> Callable[[list[Tensor]], list[Tensor]]:
        """A run of so many samples; from the third on as a CUDA graph, where that is possible."""
        self._runs[size] += 1
        execute = partial(self._execute, size)
        if self._runs[size] < _RECORDED:
            return execute

        def run(chunk: list[Tensor]) -> list[Tensor]:
            if size not in self._recorded:
                self._recorded = {size: _recorded(execute, chunk)}
            found = self._recorded[size]
            return execute(chunk) if found is None else found(chunk)

        return run

    def _most(self, max_memory: int | None) -> int:
        free = torch.cuda.mem_get_info(self._device)[0] + torch.cuda.memory_reserved(self._device)
        limit = free * _SHARE if max_memory is None else max_memory
        assert self._bytes is not None
        if max_memory is not None and self._bytes > limit:
            raise InvalidInput(
                f"max_memory of {max_memory:,} bytes is too little: one sample takes "
                f"{int(self._bytes):,} bytes of the GPU"
            )
        return max(1, int(limit / max(self._bytes, 1)))

    def _probed(self, inputs: list[Tensor], count: int) -> float:
        """Run a few samples: they tell the memory that one takes, and have the right bits."""
        some = min(count, _PROBED)
        given = [_rows(t, count, 0, some) for t in inputs]
        chunk = [t.to(self._device) for t in given]
        self._execute(some, chunk)  # what is made once is made
        torch.cuda.synchronize(self._device)
        base = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        made = self._execute(some, chunk)
        taken = torch.cuda.max_memory_allocated(self._device) - base
        right = self._reference([_rows(t.cpu(), some, 0, 1) for t in given])
        for ours, wanted in zip(made, right, strict=True):
            found = _rows(ours, some, 0, 1).cpu()
            if not wanted.is_floating_point() and not torch.equal(found, wanted):
                wrong = int((found != wanted).sum())
                raise ToolFailed(
                    f"{self._device} computes other integers than the processor ({wrong} of "
                    f"{wanted.numel()} results of the first sample); run without device="
                )
        return taken / some + sum(t.nbytes for t in chunk) / some


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A run as a CUDA graph: its kernels start without the time that Python takes for each."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: list[Tensor]

    def __call__(self, chunk: list[Tensor]) -> list[Tensor]:
        for own, given in zip(self.inputs, chunk, strict=True):
            own.copy_(given)
        self.graph.replay()
        return self.outputs


def _recorded(
    execute: Callable[[list[Tensor]], list[Tensor]], chunk: list[Tensor]
) -> _Recorded | None:
    """A run recorded; None where it waits for results, as for checks that need numbers."""
    own = [tensor.clone() for tensor in chunk]
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        execute(own)
    except RuntimeError:
        return None
    finally:
        torch.cuda.set_sync_debug_mode(before)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = execute(own)
    return _Recorded(graph, own, made)


def _rows(tensor: Tensor, count: int, start: int, stop: int) -> Tensor:
    """The samples from ``start`` to ``stop`` of ``count`` that a tensor stacks."""
    if (start, stop) == (0, count):
        return tensor
    each = tensor.shape[0] // count
    return tensor[start * each : stop * each]
