/* Sums of products in every type: int32 of int8, int64 of int16, float of float32.
 *
 * `bits` is a literal, 8, 16 or 32 for floats, so that of a sum one member is left. */
#ifndef TOSAIC_SUM_H
#define TOSAIC_SUM_H

#include "common.h"

struct tk_sum {
    uint32_t narrow;
    uint64_t wide;
    float real;
};

TK_HOT struct tk_sum tk_sum_zero(void)
{
    struct tk_sum sum;
    sum.narrow = 0;
    sum.wide = 0;
    sum.real = 0.0F;
    return sum;
}

/* A sum that begins with a bias. */
TK_HOT struct tk_sum tk_sum_bias(const uint8_t *bias, int32_t bits)
{
    struct tk_sum sum = tk_sum_zero();
    if (bits == 8) {
        sum.narrow = (uint32_t)tk_load32(bias);
    } else if (bits == 16) {
        sum.wide = (uint64_t)tk_load64(bias);
    } else {
        TK_MEMCPY(&sum.real, bias, sizeof sum.real);
    }
    return sum;
}

/* Adds the product of one element of each of two tensors; `w_bits` are those of the second. */
TK_HOT void tk_sum_product(struct tk_sum *sum, const void *x, int32_t from, const void *w, int32_t by,
    int32_t x_zp, int32_t w_zp, int32_t bits, int32_t w_bits)
{
    if (bits == 32) {
        sum->real += ((const float *)x)[from] * ((const float *)w)[by];
    } else {
        const int32_t a = tk_element(x, from, bits) - x_zp, b = tk_element(w, by, w_bits) - w_zp;
        if (bits == 8) {
            sum->narrow += (uint32_t)(a * b);
        } else {
            sum->wide += (uint64_t)((int64_t)a * b);
        }
    }
}

/* RESCALE, CLAMP and TABLE of a sum; without a RESCALE (a shift of 0) the sum itself. */
TK_HOT void tk_sum_store(void *y, int32_t at, const struct tk_sum *sum, int32_t multiplier,
    int32_t shift, const int8_t *lut, int32_t y_zp, int32_t lo, int32_t hi, int32_t bits,
    int32_t out_bits, int32_t is_scaled)
{
    if (bits == 32) {
        ((float *)y)[at] = sum->real;
    } else if (is_scaled) {
        const int64_t acc = bits == 8 ? (int32_t)sum->narrow : (int64_t)sum->wide;
        int32_t v = tk_rescale(acc, multiplier, shift);
        v = tk_clamp(v, lo - y_zp, hi - y_zp) + y_zp;
        tk_store(y, at, lut != NULL ? lut[v + 128] : v, out_bits);
    } else if (bits == 8) {
        ((int32_t *)y)[at] = (int32_t)sum->narrow;
    } else {
        ((int64_t *)y)[at] = (int64_t)sum->wide;
    }
}

#endif
