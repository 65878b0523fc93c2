"""The commands of an Ethos-U command stream by name, and the values their fields take.

U55 and U65 share one set: it is that of the Vela wheel's register description. U85's is that of
Vela's published register description, which Regor's disassembly prints as well. A command without
payload carries 16 bits, one with payload 48; names here are those of the hardware without
``NPU_OP_`` and ``NPU_SET_``.
"""

from __future__ import annotations

from enum import Enum, IntEnum

_OPERATIONS = {0: "STOP", 1: "IRQ", 2: "CONV", 3: "DEPTHWISE", 5: "POOL", 6: "ELEMENTWISE",
               16: "DMA_START", 17: "DMA_WAIT", 18: "KERNEL_WAIT", 19: "PMU_MASK"}  # fmt: skip


def _numbered(start: int, names: str) -> dict[int, str]:
    """Consecutive codes from ``start``; a dash leaves one out."""
    return {start + i: name for i, name in enumerate(names.split()) if name != "-"}


def _tensor(prefix: str, start: int) -> dict[int, str]:
    names = "BASE0 BASE1 BASE2 BASE3 STRIDE_X STRIDE_Y STRIDE_C"
    return _numbered(start, " ".join(f"{prefix}_{name}" for name in names.split()))


_SHORT = {
    **_numbered(0x100, "IFM_PAD_TOP IFM_PAD_LEFT IFM_PAD_RIGHT IFM_PAD_BOTTOM IFM_DEPTH_M1"),
    **_numbered(0x105, "IFM_PRECISION - IFM_UPSCALE - IFM_ZERO_POINT IFM_WIDTH0_M1"),
    **_numbered(0x10B, "IFM_HEIGHT0_M1 IFM_HEIGHT1_M1 - - IFM_REGION"),
    **_numbered(0x111, "OFM_WIDTH_M1 OFM_HEIGHT_M1 OFM_DEPTH_M1 OFM_PRECISION"),
    **_numbered(0x115, "OFM_BLK_WIDTH_M1 OFM_BLK_HEIGHT_M1 OFM_BLK_DEPTH_M1 OFM_ZERO_POINT -"),
    **_numbered(0x11A, "OFM_WIDTH0_M1 OFM_HEIGHT0_M1 OFM_HEIGHT1_M1 - - OFM_REGION"),
    **_numbered(0x120, "KERNEL_WIDTH_M1 KERNEL_HEIGHT_M1 KERNEL_STRIDE - ACC_FORMAT ACTIVATION"),
    **_numbered(0x126, "ACTIVATION_MIN ACTIVATION_MAX WEIGHT_REGION SCALE_REGION"),
    **_numbered(0x12F, "BLOCKDEP DMA0_SRC_REGION DMA0_DST_REGION DMA0_SIZE0 DMA0_SIZE1"),
    **_numbered(0x180, "IFM2_BROADCAST - - - - IFM2_PRECISION - - - IFM2_ZERO_POINT"),
    **_numbered(0x18A, "IFM2_WIDTH0_M1 IFM2_HEIGHT0_M1 IFM2_HEIGHT1_M1 - - IFM2_REGION"),
}
_LONG = {
    **_tensor("IFM", 0x00),
    **_tensor("OFM", 0x10),
    **_numbered(0x20, "WEIGHT_BASE WEIGHT_LENGTH SCALE_BASE SCALE_LENGTH OFM_SCALE"),
    **_numbered(0x30, "DMA0_SRC DMA0_DST DMA0_LEN"),
    **_tensor("IFM2", 0x80),
    **_numbered(0x90, "WEIGHT1_BASE WEIGHT1_LENGTH"),
}

SHORT_U55 = {
    **_OPERATIONS, **_SHORT,
    0x10D: "IFM_IB_END", 0x123: "PARALLEL_MODE", 0x12D: "AB_START", 0x181: "IFM2_SCALAR",
    0x18D: "IFM2_IB_START",
}  # fmt: skip
LONG_U55 = {
    **_LONG, **_numbered(0x25, "OPA_SCALE OPB_SCALE"),
    **_numbered(0x33, "DMA0_SKIP0 DMA0_SKIP1"), **_numbered(0x92, "SCALE1_BASE SCALE1_LENGTH"),
}  # fmt: skip
SHORT_U85 = {
    **_OPERATIONS, **_SHORT,
    7: "RESIZE", 0x108: "IFM_BROADCAST", 0x12E: "WEIGHT_FORMAT", 0x134: "DMA0_IDX_REGION",
    **_numbered(0x12A, "RESIZE_X_SCALE_N_M1 RESIZE_Y_SCALE_N_M1 RESIZE_X_OFFSET RESIZE_Y_OFFSET"),
}  # fmt: skip
LONG_U85 = {
    **_LONG, **_numbered(0x25, "IFM_SCALE IFM2_SCALE OP_SCALAR"),
    **_numbered(0x33, "DMA0_SRC_STRIDE0 DMA0_SRC_STRIDE1 DMA0_DST_STRIDE0 DMA0_DST_STRIDE1"),
    **_numbered(0x37, "DMA0_IDX DMA0_IDX_MAX DMA0_IDX_SKIP1"),
    **_numbered(0x92, "WEIGHT2_BASE WEIGHT2_LENGTH WEIGHT3_BASE WEIGHT3_LENGTH"),
    **_numbered(0x96, "RESIZE_X RESIZE_Y"), 0x100: "BRANCH",
}  # fmt: skip

OPERATIONS = frozenset((*_OPERATIONS.values(), "RESIZE", "BRANCH"))
"""Commands that do something; all others set the register of their name."""


class Pooling(IntEnum):
    """What POOL computes; U55 and U65 know the first three."""

    MAX = 0
    AVERAGE = 1
    REDUCE_SUM = 2
    SUM = 3
    NONE = 4
    MIN = 5
    ARGMAX_X = 6
    ARGMAX_Y = 7


class Elementwise(IntEnum):
    """What ELEMENTWISE computes; U55 and U65 know the first ten."""

    MUL = 0
    ADD = 1
    SUB = 2
    MIN = 3
    MAX = 4
    LRELU = 5
    ABS = 6
    CLZ = 7
    SHR = 8
    SHL = 9
    LSR = 10
    DIV = 11
    CMP_EQ = 16
    CMP_NE = 17
    CMP_GE = 18
    CMP_GT = 19
    AND = 33
    OR = 34
    XOR = 35
    NOT = 36
    AND_NOT = 42


UNARY = frozenset((Elementwise.LRELU, Elementwise.ABS, Elementwise.CLZ, Elementwise.NOT))


class Rounding(Enum):
    """How a product is shifted right; each product encodes them in its own way."""

    DOUBLE_SYMMETRIC = "double symmetric"
    NATURAL = "natural"
    DOUBLE_ASYMMETRIC = "double asymmetric"
    SYMMETRIC = "symmetric"
    TRUNCATE_TO_ZERO = "truncate to zero"
    TRUNCATE_TO_LOWER = "truncate to lower"


class Upscale(IntEnum):
    """Doubling of an input's height and width."""

    NONE = 0
    NEAREST = 1
    ZEROS = 2


class Resize(IntEnum):
    """How RESIZE chooses among neighbours."""

    BILINEAR = 0
    REPLICATE = 1
    NEAREST = 2
