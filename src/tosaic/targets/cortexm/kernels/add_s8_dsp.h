/* Sum of two int8 tensors with their RESCALEs: each operand by a table of 256 int32, SMMLA for the sum.
 *
 * Packed: the table of the first operand by its byte, that of the second, multiplier, offset, shift - 32. */
#ifndef TOSAIC_ADD_S8_DSP_H
#define TOSAIC_ADD_S8_DSP_H

#include "dsp.h"

TK_HOT int32_t tk_sum_dsp(int32_t sum, int32_t multiplier, int32_t offset, int32_t shift, int32_t lo, int32_t hi)
{
#if TK_DSP
    __asm__("smmla %0, %0, %1, %2" : "+r"(sum) : "r"(multiplier), "r"(offset));
    sum >>= shift;
    if (lo == -128 && hi == 127) {
        __asm__("ssat %0, #8, %0" : "+r"(sum));
        return sum;
    }
#else
    sum = tk_scaled_dsp(sum, multiplier, offset, shift);
#endif
    return tk_clamp(sum, lo, hi);
}

TK_HOT void tk_add_s8_dsp(const int8_t *a, const int8_t *b, int8_t *y, const uint8_t *w,
    const int8_t *lut, uint8_t *scratch, int32_t size, int32_t lo, int32_t hi)
{
    const int32_t *left = (const int32_t *)(const void *)w, *right = left + 256;
    const int32_t multiplier = left[512], offset = left[513], shift = left[514];
    const uint8_t *from = (const uint8_t *)a, *other = (const uint8_t *)b;
    int32_t i;
    (void)scratch;
    for (i = 0; i < size / 4; ++i) {
        const int32_t v0 = left[from[0]] + right[other[0]], v1 = left[from[1]] + right[other[1]];
        const int32_t v2 = left[from[2]] + right[other[2]], v3 = left[from[3]] + right[other[3]];
        y[0] = (int8_t)tk_sum_dsp(v0, multiplier, offset, shift, lo, hi);
        y[1] = (int8_t)tk_sum_dsp(v1, multiplier, offset, shift, lo, hi);
        y[2] = (int8_t)tk_sum_dsp(v2, multiplier, offset, shift, lo, hi);
        y[3] = (int8_t)tk_sum_dsp(v3, multiplier, offset, shift, lo, hi);
        if (lut != NULL) {
            y[0] = lut[y[0] + 128];
            y[1] = lut[y[1] + 128];
            y[2] = lut[y[2] + 128];
            y[3] = lut[y[3] + 128];
        }
        from += 4;
        other += 4;
        y += 4;
    }
    for (i = 0; i < size % 4; ++i) {
        const int32_t v = left[from[i]] + right[other[i]];
        y[i] = (int8_t)tk_sum_dsp(v, multiplier, offset, shift, lo, hi);
        if (lut != NULL) {
            y[i] = lut[y[i] + 128];
        }
    }
}

#endif
