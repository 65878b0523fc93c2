/* Elementwise operators on four int32 at a time, with the vector extension (MVE). */
#ifndef TOSAIC_VECTORS_MVE_H
#define TOSAIC_VECTORS_MVE_H

#include "elementwise.h"

#if TK_MVE
#include <arm_mve.h>

TK_HOT int32x4_t tk_table8_mve(int32x4_t v, const int8_t *table)
{
    return vldrbq_gather_offset_s32(table, vreinterpretq_u32_s32(vaddq_n_s32(v, 128)));
}

/* 512 segments of 128 steps, as tk_table16 has them. */
TK_HOT int32x4_t tk_table16_mve(int32x4_t v, const int16_t *table)
{
    const uint32x4_t place = vreinterpretq_u32_s32(vaddq_n_s32(v, 32768));
    const uint32x4_t segment = vshrq_n_u32(place, 7);
    const int32x4_t base = vldrhq_gather_shifted_offset_s32(table, segment);
    const int32x4_t next = vldrhq_gather_shifted_offset_s32(table + 1, segment);
    const int32x4_t rest = vreinterpretq_s32_u32(vandq_u32(place, vdupq_n_u32(127u)));
    return vaddq_s32(vshlq_n_s32(base, 7), vmulq_s32(vsubq_s32(next, base), rest));
}

/* RESCALE by a shift of 32 and more: VQDMULH truncates, VRSHL rounds. */
TK_HOT int32x4_t tk_rescale_mve(int32x4_t v, int32_t multiplier, int32_t shift)
{
    return vrshlq_n_s32(vqdmulhq_n_s32(v, multiplier), 31 - shift);
}
#endif

#endif
