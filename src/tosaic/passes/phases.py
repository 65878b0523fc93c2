"""The order of the FX passes: one list for each phase, each pass under its name."""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from tosaic.passes.attention_masks import select_infinities, select_masked_scores
from tosaic.passes.canonicalize import canonical_overloads, own_scans, reshape_views
from tosaic.passes.compose import compose
from tosaic.passes.drop_noops import drop_inner_noops, drop_noops
from tosaic.passes.engine import Pass
from tosaic.passes.equalize_channels import equalize_channels
from tosaic.passes.expand_complex import expand_complex, expand_complex_fft
from tosaic.passes.fold_affine import (
    affine_to_depthwise,
    fold_affine,
    fold_into_readers,
    linear_of_matmul,
)
from tosaic.passes.fold_batch_norm import add_bias, fold_batch_norm
from tosaic.passes.fold_constants import fold_constants
from tosaic.passes.fold_numbers import fold_numbers
from tosaic.passes.functionalize_slices import drop_overwritten, functionalize_slices
from tosaic.passes.fuse_activation import fuse_activation
from tosaic.passes.fuse_attention import fuse_attention, fuse_exact_attention
from tosaic.passes.fuse_einsum import fuse_einsum
from tosaic.passes.fuse_magnitude import fuse_magnitude, fuse_narrow_magnitude
from tosaic.passes.fuse_norms import fuse_norms
from tosaic.passes.gather_positions import gather_positions
from tosaic.passes.hoist_casts import hoist_byte_casts
from tosaic.passes.merge_axes import merge_axes
from tosaic.passes.merge_scales import merge_scales
from tosaic.passes.promote_integers import promote_integers
from tosaic.passes.sink_permutes import sink_permutes
from tosaic.passes.split_powers import split_powers
from tosaic.passes.split_reductions import split_reductions
from tosaic.passes.truncate_casts import truncate_casts
from tosaic.passes.unpool_windows import unpool_windows
from tosaic.passes.widen_squares import widen_squares

Passes = tuple[Pass, ...]
CANONICAL: Passes = (canonical_overloads,)
# Every program that is imported, be it compiled in float or quantized.
IMPORT: Passes = (
    canonical_overloads, own_scans, fold_numbers, gather_positions, drop_inner_noops,
    hoist_byte_casts, compose, merge_axes, expand_complex,
    fuse_norms, fuse_activation, fuse_einsum, functionalize_slices,
)  # fmt: skip
# The same for a float target that has operators of Fourier transforms.
IMPORT_FFT: Passes = tuple(expand_complex_fft if p is expand_complex else p for p in IMPORT)
# Attention, whose masks are known only when constants are: in float, and quantized.
FLOAT: Passes = (reshape_views, fold_constants, fuse_exact_attention)
_ATTENTION: Passes = (fold_constants, fuse_attention)
_AFFINE: Passes = (linear_of_matmul, fold_affine, affine_to_depthwise)
# What is quantized: operators whole, constants in one place.
SIMPLIFY: Passes = (
    drop_overwritten, drop_noops, unpool_windows, promote_integers, *_ATTENTION, split_powers,
    select_masked_scores, select_infinities, sink_permutes, *_AFFINE, merge_scales,
)  # fmt: skip


def expression(decompose: Callable[[fx.GraphModule], bool], has_int16: bool = False) -> Passes:
    """Calls as the quantizer knows them: what it refuses is decomposed, and folded again.

    Magnitudes of spectra are calls of their own, with more bits where there are 16.
    """
    return (
        fuse_magnitude if has_int16 else fuse_narrow_magnitude, widen_squares,
        Pass("decompose", decompose), split_reductions, fold_constants, *_AFFINE, truncate_casts,
    )  # fmt: skip


def quantization(decompose: Callable[[fx.GraphModule], bool], has_int16: bool = False) -> Passes:
    """All passes between import and the observers of a quantizer that decomposes calls."""
    return (
        reshape_views, *SIMPLIFY, *expression(decompose, has_int16), fold_batch_norm,
        fold_into_readers, equalize_channels, add_bias,
    )  # fmt: skip
