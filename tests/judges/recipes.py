"""What to generate: the operators, types, ranks and sizes of each set of conformance tests.

The operator lists are claims: a listed operator for which the generator makes no test is a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Size = Literal["small", "full"]

_KERNELS = ("1x1", "2x2", "3x3", "5x5", "3x1", "1x3")
_CONVOLUTIONS = (
    *(f"conv2d_{k}" for k in _KERNELS),
    *(f"conv3d_{k}" for k in ("1x1x1", "2x1x1", "1x2x1", "1x1x2")),
    *(f"depthwise_conv2d_{k}" for k in _KERNELS),
    *(f"transpose_conv2d_{k}" for k in _KERNELS),
)
_BLOCK_CONVOLUTIONS = tuple(f"conv2d_block_scaled_{k}" for k in ("1x1", "3x3"))
_POOLS = ("avg_pool2d", "max_pool2d")
_LOGIC = ("logical_and", "logical_or", "logical_xor", "logical_not", "reduce_all", "reduce_any")
_SHIFTS = ("logical_left_shift", "logical_right_shift")
_ARITHMETIC = ("add", "sub", "mul", "maximum", "minimum", "abs", "negate", "intdiv")
_COMPARISONS = ("equal", "greater", "greater_equal", "select")
_REDUCTIONS = ("argmax", "reduce_max", "reduce_min", "reduce_sum")
_LAYOUT = ("concat", "pad", "reshape", "reverse", "slice", "tile", "transpose")
_DATA = ("const", "identity", "cast", "clamp")
_INDEXED = ("gather", "scatter")
_CONTROL = ("cond_if_const", "cond_if_binary", "while_loop")
_INTEGER_ONLY = (
    "arithmetic_right_shift",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "clz",
    "rescale",
    "table",
)
_FLOAT_ONLY = (
    *("ceil", "cos", "erf", "exp", "floor", "log", "pow", "reciprocal"),
    *("reduce_product", "rsqrt", "sigmoid", "sin", "tanh"),
)
_FFT = ("fft2d", "rfft2d")
_SHAPE_OPERATORS = (
    *("dim", "add_shape", "assert_equal_shape", "concat_shape", "div_ceil_shape"),
    *("div_floor_shape", "exp2_shape", "log2_ceil_shape", "log2_floor_shape", "max_shape"),
    *("min_shape", "mod_shape", "mul_shape", "slice_shape", "sub_shape"),
)
_NEW_IN_1_1 = (*_SHAPE_OPERATORS, "matmul_t", "row_gather", *(f"{p}_adaptive" for p in _POOLS))
_ANY_RANK = (
    *_LOGIC, *_SHIFTS, *_ARITHMETIC, *_COMPARISONS, *_REDUCTIONS, *_LAYOUT, *_DATA,
)  # fmt: skip
_BOTH_PROFILES = (
    *_ANY_RANK, *_INDEXED, *_CONTROL, *_POOLS, *_CONVOLUTIONS, "matmul", "resize", "const_shape",
)  # fmt: skip

# TOSA 1.1 gave GATHER and SCATTER booleans; the generator makes such tests for 1.0 as well, which
# tosa-opt and the specification refuse.
_BOOLEANS_OF_1_1 = r"(gather|scatter)_.*_b_"
# The generator has convolutions of bf16 accumulated in bf16; the tables of the 1.1 draft do not.
_BF16_ACCUMULATOR = r".*bf16xbf16_accbf16_outbf16"
_INT_EXTENSIONS = ("int16", "int4", "doubleround", "inexactround", "controlflow")
_FP_EXTENSIONS = ("bf16", "fft", "controlflow")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One call of the generator, and how many of its tests to keep.

    Tests that agree in operator, rank, type row, modes and kind of data form a group, negative
    ones those that agree in operator, rank and error; ``small`` and ``full`` say how many of a
    group to keep, evenly spread (None: all).
    """

    name: str
    operators: tuple[str, ...]
    profiles: tuple[str, ...]
    extensions: tuple[str, ...]
    small: int
    full: int | None
    version: str = "1.0"
    kind: Literal["positive", "negative"] = "positive"
    dims: tuple[int, int] = (1, 16)
    ranks: tuple[int, ...] = ()
    shapes: tuple[str, ...] = ()
    values: str = "-16.0,16.0"
    only_beyond_1_0: bool = False
    without: str = ""  # a pattern of names of tests that the generator should not have made
    seed: int = 42

    def keep(self, size: Size) -> int | None:
        return self.small if size == "small" else self.full

    def arguments(self) -> list[str]:
        """The generator's command line, without the output folder."""
        argv = ["--tosa-version", self.version, "--seed", str(self.seed)]
        argv += ["--profile", *(f"tosa-pro-{p}" for p in self.profiles)]
        argv += ["--extension", *(f"tosa-ext-{e}" for e in self.extensions)]
        argv += ["--tensor-dim-range", f"{self.dims[0]},{self.dims[1]}"]
        argv += [f"--fp-values-range={self.values}", "--test-type", self.kind]
        if self.ranks:
            argv += ["--target-rank", *map(str, self.ranks)]
        if self.shapes:
            argv += ["--target-shape", *self.shapes]
        return argv


INTEGER = (
    Recipe(
        "int",
        (*_BOTH_PROFILES, *_INTEGER_ONLY),
        ("int",),
        _INT_EXTENSIONS,
        small=8,
        full=None,
        without=_BOOLEANS_OF_1_1,
    ),
    Recipe(
        "int-rank456",
        tuple(o for o in (*_ANY_RANK, *_INTEGER_ONLY) if o not in ("const",)),
        ("int",),
        _INT_EXTENSIONS,
        small=1,
        full=8,
        dims=(1, 6),
        ranks=(4, 5, 6),
    ),
)

FLOAT = (
    Recipe(
        "fp",
        tuple(o for o in (*_BOTH_PROFILES, *_FLOAT_ONLY) if o not in ("const_shape", "intdiv")),
        ("fp",),
        _FP_EXTENSIONS,
        small=4,
        full=16,
        dims=(4, 16),
        without=_BOOLEANS_OF_1_1,
    ),
    Recipe(
        "fp-dot",  # the generator makes dot-product tests only from 1,000 outputs on
        ("matmul", "reduce_sum"),
        ("fp",),
        ("bf16",),
        small=6,
        full=18,
        dims=(32, 37),
    ),
    Recipe(
        "fp-extreme",
        (*_FLOAT_ONLY, "add", "sub", "mul", "maximum", "minimum", "abs", "negate", "cast", "clamp"),
        ("fp",),
        ("bf16",),
        small=1,
        full=8,
        dims=(8, 24),
        values="-max,max",
    ),
    Recipe(
        "fp-rank456",
        tuple(o for o in (*_ANY_RANK, *_FLOAT_ONLY) if o not in (*_LOGIC, *_SHIFTS, "intdiv")),
        ("fp",),
        ("bf16",),
        small=1,
        full=4,
        dims=(1, 6),
        ranks=(4, 5, 6),
    ),
    Recipe(
        "fft",
        _FFT,
        ("fp",),
        ("fft",),
        small=8,
        full=None,
        shapes=("1,32,32", "2,16,32", "1,64,16", "4,8,32"),
    ),
)

ERRORIF = tuple(
    Recipe(
        f"errorif-{version}",
        operators,
        ("int", "fp"),
        extensions,
        small=2,
        full=48,
        version=version,
        kind="negative",
    )
    for version, operators, extensions in (
        (
            "1.0",
            tuple(
                o
                for o in (*_BOTH_PROFILES, *_INTEGER_ONLY, *_FLOAT_ONLY, *_FFT)
                if o not in ("const", "identity", "const_shape")
            ),
            (*_INT_EXTENSIONS, "bf16", "fft"),
        ),
        ("1.1", _NEW_IN_1_1, (*_INT_EXTENSIONS, "bf16", "int64", "shape")),
    )
)

BEYOND_1_0 = (
    Recipe(
        "new-1.1",
        _NEW_IN_1_1,
        ("int", "fp"),
        (*_INT_EXTENSIONS, "bf16", "int64", "shape"),
        small=4,
        full=48,
        version="1.1",
    ),
    Recipe(
        "widened-1.1",
        (
            *(o for o in _ANY_RANK if o not in (*_LOGIC, "clamp")),
            *_INDEXED,
            *(o for o in _INTEGER_ONLY if o not in ("rescale", "table")),
            *(f"conv2d_{k}" for k in _KERNELS),
        ),
        ("int", "fp"),
        (*_INT_EXTENSIONS, "bf16", "int64"),
        small=2,
        full=8,
        version="1.1",
        only_beyond_1_0=True,
        without=_BF16_ACCUMULATOR,
    ),
)

_MX = (
    *("mx-common", "mx-fp8e4m3", "mx-fp8e5m2", "mx-fp6e2m3", "mx-fp6e3m2", "mx-fp4e2m1"),
    *("mx-int8", "mxfp-conv"),
)
_BLOCK_SCALED = (
    *("cast_from_block_scaled", "cast_to_block_scaled", "matmul_t_block_scaled"),
    *("reshape_block_scaled", "reshape_block_scaled_mxfp", "row_gather_block_scaled"),
    *("row_gather_block_scaled_mxfp", *_BLOCK_CONVOLUTIONS),
)
NARROW = (
    Recipe(
        "fp8",
        (
            *("argmax", "avg_pool2d", "cast", "concat", "const", "conv2d_3x3", "conv3d_2x1x1"),
            *("depthwise_conv2d_3x3", "gather", "identity", "matmul", "matmul_t", "max_pool2d"),
            *("pad", "reshape", "reverse", "scatter", "slice", "tile", "transpose"),
            *("transpose_conv2d_3x3", "row_gather"),
        ),
        ("fp",),
        ("fp8e4m3", "fp8e5m2", "bf16"),
        small=1,
        full=None,
        version="1.1",
        dims=(4, 16),
        without=r"(?!.*f8)",
    ),
    Recipe(
        "mx",
        _BLOCK_SCALED,
        ("fp",),
        (*_MX, "bf16"),
        small=1,
        full=None,
        version="1.1",
        dims=(4, 16),
    ),
)

ALL = (*INTEGER, *FLOAT, *ERRORIF, *BEYOND_1_0, *NARROW)
