/* Every other convolution: floats, three axes, computed weights or weights with a zero point,
 * transposed ones.
 *
 * Weights and bias are tensors as TOSA has them, the result is the accumulator: int32 of int8,
 * int64 of int16, float of floats. `kind` is 0 for a convolution, 1 for a depthwise one with weights
 * [kh][kw][oc], 2 for a transposed one, whose padding is the output's; `bc` is how many biases there are. */
#ifndef TOSAIC_CONV_ANY_H
#define TOSAIC_CONV_ANY_H

#include "sum.h"

/* The input under a tap of the kernel along one axis; -1 if it is outside, or between the inputs. */
TK_HOT int32_t tk_tap(int32_t o, int32_t k, int32_t stride, int32_t dilation, int32_t pad, int32_t size,
    int32_t kind)
{
    const int32_t place = kind == 2 ? o - pad - k : o * stride - pad + k * dilation;
    const int32_t at = kind == 2 ? place / stride : place;
    return place < 0 || at >= size || (kind == 2 && place % stride) ? -1 : at;
}

TK_HOT void tk_conv_any(const void *x, const void *wt, const void *bias, void *y, const uint8_t *w,
    const int8_t *lut, uint8_t *scratch, int32_t kind, int32_t bits, int32_t n, int32_t id, int32_t ih,
    int32_t iw, int32_t ic, int32_t od, int32_t oh, int32_t ow, int32_t oc, int32_t kd, int32_t kh,
    int32_t kw, int32_t sz, int32_t sy, int32_t sx, int32_t dz, int32_t dy, int32_t dx, int32_t pf,
    int32_t pt, int32_t pl, int32_t x_zp, int32_t w_zp, int32_t bc)
{
    const int32_t taken = kind == 1 ? 1 : ic, m = oc / ic;
    int32_t b, oz, oy, ox, c, kz, ky, kx, k, at = 0;
    (void)w;
    (void)lut;
    (void)scratch;
    for (b = 0; b < n; ++b)
    for (oz = 0; oz < od; ++oz)
    for (oy = 0; oy < oh; ++oy)
    for (ox = 0; ox < ow; ++ox)
    for (c = 0; c < oc; ++c) {
        struct tk_sum sum = tk_sum_bias((const uint8_t *)bias + (bc == 1 ? 0 : c) * (bits == 16 ? 8 : 4), bits);
        for (kz = 0; kz < kd; ++kz)
        for (ky = 0; ky < kh; ++ky)
        for (kx = 0; kx < kw; ++kx) {
            const int32_t z = tk_tap(oz, kz, sz, dz, pf, id, kind);
            const int32_t r = tk_tap(oy, ky, sy, dy, pt, ih, kind);
            const int32_t q = tk_tap(ox, kx, sx, dx, pl, iw, kind);
            const int32_t from = (((b * id + z) * ih + r) * iw + q) * ic + (kind == 1 ? c / m : 0);
            const int32_t by = kind == 1 ? (ky * kw + kx) * oc + c
                : (((c * kd + kz) * kh + ky) * kw + kx) * ic;
            if (z < 0 || r < 0 || q < 0) {
                continue;
            }
            for (k = 0; k < taken; ++k) {
                tk_sum_product(&sum, x, from + k, wt, by + k, x_zp, w_zp, bits, 8);
            }
        }
        tk_sum_store(y, at, &sum, 0, 0, NULL, 0, 0, 0, bits, 32, 0);
        ++at;
    }
}

#endif
