/* Products of matrices: [n, h, c] by [n, c, w], or by [d, w, c] transposed, with a RESCALE behind.
 *
 * A shift of 0 stands for no RESCALE: the result is the accumulator. */
#ifndef TOSAIC_MATMUL_H
#define TOSAIC_MATMUL_H

#include "sum.h"

TK_HOT void tk_matmul(const void *a, const void *b, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t n, int32_t h, int32_t c, int32_t width, int32_t batches,
    int32_t is_transposed, int32_t a_zp, int32_t b_zp, int32_t multiplier, int32_t shift,
    int32_t y_zp, int32_t lo, int32_t hi, int32_t bits, int32_t out_bits)
{
    int32_t i, r, q, k, at = 0;
    (void)w;
    (void)scratch;
    for (i = 0; i < n; ++i) {
        const int32_t right = (batches == 1 ? 0 : i) * (c * width);
        for (r = 0; r < h; ++r) {
            for (q = 0; q < width; ++q) {
                struct tk_sum sum = tk_sum_zero();
                for (k = 0; k < c; ++k) {
                    const int32_t by = right + (is_transposed ? q * c + k : k * width + q);
                    tk_sum_product(&sum, a, (i * h + r) * c + k, b, by, a_zp, b_zp, bits, bits);
                }
                tk_sum_store(y, at, &sum, multiplier, shift, lut, y_zp, lo, hi, bits, out_bits, shift != 0);
                ++at;
            }
        }
    }
}

#endif
