"""Registers as an operation finds them, and the readings that all Ethos-U have in common."""

from __future__ import annotations

import numpy as np

from tosaic.errors import InvalidInput, Unsupported
from tosaic.sim.ethosu.arrays import DType
from tosaic.sim.ethosu.featuremap import FeatureMap
from tosaic.sim.ethosu.memory import Block
from tosaic.sim.ethosu.operation import Shape, Window
from tosaic.sim.ethosu.registers import Upscale

_ADDRESS = (1 << 40) - 1
NO_SCALES = "the operation scales by channel and has no scales"


class Registers(dict[str, int]):
    """The values that commands have set so far."""

    def __missing__(self, name: str) -> int:
        raise InvalidInput(f"NPU_SET_{name} is needed and was never given")

    def bits(self, name: str, low: int, count: int = 1) -> int:
        return self[name] >> low & (1 << count) - 1

    def address(self, name: str) -> int:
        return self[name] & _ADDRESS

    def stride(self, name: str) -> int:
        """Strides are signed: a negative one runs backwards."""
        value = self.address(name)
        return value - (value >> 39 << 40)

    def size(self, name: str) -> int:
        """A register that holds a size minus one."""
        return self[f"{name}_M1"] + 1

    def signed(self, name: str) -> int:
        value = self[name] & 0xFFFF
        return value - (value >> 15 << 16)

    def dtype(self, name: str, shift: int) -> DType:
        """The type of elements: the sign in bit 0, the width from bit ``shift`` on."""
        sign = "i" if self.bits(name, 0) else "u"
        return np.dtype(f"{sign}{1 << self.bits(name, shift, 2)}")

    def zero_point(self, prefix: str, dtype: DType) -> int:
        name = f"{prefix}_ZERO_POINT"
        return self.signed(name) if dtype.kind == "i" else self[name] & 0xFFFF

    def tensor(self, prefix: str, shape: Shape, dtype: DType, zero_point: int) -> FeatureMap:
        """IFM, IFM2 or OFM in memory, of a shape that other registers give."""
        brick = self.bits(f"{prefix}_PRECISION", 6, 2)
        if brick > 1:
            raise Unsupported(f"{prefix}_PRECISION {self[prefix + '_PRECISION']:#x}: its format")
        heights = self.size(f"{prefix}_HEIGHT0"), self.size(f"{prefix}_HEIGHT1")
        strides = tuple(self.stride(f"{prefix}_STRIDE_{axis}") for axis in "YXC")
        bases = tuple(self.address(f"{prefix}_BASE{i}") for i in range(4))
        return FeatureMap(
            prefix, self[f"{prefix}_REGION"] & 0xFF, shape, dtype, bool(brick),
            (bases[0], bases[1], bases[2], bases[3]), (*heights, self.size(f"{prefix}_WIDTH0")),
            (strides[0], strides[1], strides[2]), zero_point,
        )  # fmt: skip

    def ofm_shape(self) -> Shape:
        return self.size("OFM_HEIGHT"), self.size("OFM_WIDTH"), self.size("OFM_DEPTH")

    def window(self) -> Window:
        """The kernel; its registers hold sizes with the gaps of the dilation."""
        stride = self["KERNEL_STRIDE"]
        if stride >> 5 & 1:
            raise Unsupported(f"KERNEL_STRIDE {stride:#x}: decomposition into 4x4")
        steps = [1 + (stride >> i & 1) + 2 * (stride >> 6 + 3 * i & 7) for i in (0, 1)]
        gaps = [1 + (stride >> i & 1) for i in (3, 4)]
        reach = self.size("KERNEL_HEIGHT"), self.size("KERNEL_WIDTH")
        size = tuple((n - 1) // gap + 1 for n, gap in zip(reach, gaps[::-1]))
        pad = tuple(self[f"IFM_PAD_{side}"] & 0xFF for side in ("TOP", "LEFT", "BOTTOM", "RIGHT"))
        return Window(
            (size[0], size[1]), (steps[1], steps[0]), (gaps[1], gaps[0]),
            (pad[0], pad[1], pad[2], pad[3]), bool(stride >> 2 & 1),
        )  # fmt: skip

    def ifm_shape(self, window: Window, depth: int) -> tuple[Shape, Upscale]:
        """The input that the output, the kernel and the padding imply, and its upscaling."""
        upscale = self["IFM_UPSCALE"]
        if upscale > Upscale.ZEROS:
            raise Unsupported(f"IFM_UPSCALE {upscale:#x}")
        height, width, _ = self.ofm_shape()
        top, left, bottom, right = window.pad
        rows = (height - 1) * window.stride[0] + window.reach[0] - top - bottom
        columns = (width - 1) * window.stride[1] + window.reach[1] - left - right
        if upscale:
            rows, columns = (rows + 1) // 2, (columns + 1) // 2
        if rows < 1 or columns < 1:
            raise InvalidInput(f"the padding {window.pad} leaves no input of {rows}x{columns}")
        return (rows, columns, depth), Upscale(upscale)

    def streams(self, name: str, cores: int, missing: str) -> tuple[Block, ...]:
        """The bytes for each core, without those of length 0; InvalidInput if there are none."""
        found = []
        for each in [f"{name}{core or ''}" for core in range(cores)]:
            count = self.get(f"{each}_LENGTH", 0) & 0xFFFFFFFF
            if count:
                region = self[f"{name}_REGION"] & 0xFF
                found.append(Block(region, self.address(f"{each}_BASE"), (count,), (1,), 1))
        if not found:
            raise InvalidInput(missing)
        return tuple(found)
