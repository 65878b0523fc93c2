/* Products of matrices: [n, h, c] by [n, c, w], or by [d, w, c] transposed, with a RESCALE behind.
 *
 * A shift of 0 stands for no RESCALE: the result is the accumulator, int32 of int8, int64 of int16. */
#ifndef TOSAIC_MATMUL_H
#define TOSAIC_MATMUL_H

#include "common.h"

TK_HOT void tk_matmul_s8(const int8_t *a, const int8_t *b, void *y, const uint8_t *w,
    const int8_t *lut, uint8_t *scratch, int32_t n, int32_t h, int32_t c, int32_t width,
    int32_t batches, int32_t is_transposed, int32_t a_zp, int32_t b_zp, int32_t multiplier,
    int32_t shift, int32_t y_zp, int32_t lo, int32_t hi, int32_t out_bits)
{
    const int32_t step = is_transposed ? 1 : width;
    int32_t i, r, q, k, at = 0;
    (void)w;
    (void)lut;
    (void)scratch;
    for (i = 0; i < n; ++i) {
        const int8_t *right = b + (batches == 1 ? 0 : i) * (c * width);
        for (r = 0; r < h; ++r) {
            const int8_t *left = a + (i * h + r) * c;
            for (q = 0; q < width; ++q) {
                const int8_t *column = right + (is_transposed ? q * c : q);
                uint32_t sum = 0;
                int32_t v;
                for (k = 0; k < c; ++k) {
                    sum += (uint32_t)((left[k] - a_zp) * (column[k * step] - b_zp));
                }
                v = (int32_t)sum;
                if (shift) {
                    v = tk_rescale(v, multiplier, shift);
                    v = tk_clamp(v, lo - y_zp, hi - y_zp) + y_zp;
                }
                tk_store(y, at, v, out_bits);
                ++at;
            }
        }
    }
}

TK_HOT void tk_matmul_s16(const int16_t *a, const int16_t *b, void *y, const uint8_t *w,
    const int8_t *lut, uint8_t *scratch, int32_t n, int32_t h, int32_t c, int32_t width,
    int32_t batches, int32_t is_transposed, int32_t a_zp, int32_t b_zp, int32_t multiplier,
    int32_t shift, int32_t y_zp, int32_t lo, int32_t hi, int32_t out_bits)
{
    const int32_t step = is_transposed ? 1 : width;
    int32_t i, r, q, k, at = 0;
    (void)w;
    (void)lut;
    (void)scratch;
    for (i = 0; i < n; ++i) {
        const int16_t *right = b + (batches == 1 ? 0 : i) * (c * width);
        for (r = 0; r < h; ++r) {
            const int16_t *left = a + (i * h + r) * c;
            for (q = 0; q < width; ++q) {
                const int16_t *column = right + (is_transposed ? q * c : q);
                int64_t sum = 0;
                for (k = 0; k < c; ++k) {
                    sum += (int64_t)(left[k] - a_zp) * (column[k * step] - b_zp);
                }
                if (shift) {
                    const int32_t v = tk_rescale(sum, multiplier, shift);
                    tk_store(y, at, tk_clamp(v, lo - y_zp, hi - y_zp) + y_zp, out_bits);
                } else {
                    ((int64_t *)y)[at] = sum;
                }
                ++at;
            }
        }
    }
}

#endif
