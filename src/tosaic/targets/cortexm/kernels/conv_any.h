/* Every other convolution: three axes, computed weights, weights with a zero point, transposed ones.
 *
 * Weights and bias are tensors as TOSA has them, the result is the accumulator: int32 of int8,
 * int64 of int16. `xb` and `wb` are the bits of an element of input and weights. */
#ifndef TOSAIC_CONV_ANY_H
#define TOSAIC_CONV_ANY_H

#include "common.h"

TK_HOT void tk_store_sum(void *y, int32_t at, uint64_t sum, int32_t xb)
{
    if (xb == 8) {
        ((int32_t *)y)[at] = (int32_t)(uint32_t)sum;
    } else {
        ((int64_t *)y)[at] = (int64_t)sum;
    }
}

TK_HOT uint64_t tk_bias(const void *b, int32_t index, int32_t xb)
{
    return xb == 8 ? (uint64_t)((const int32_t *)b)[index] : (uint64_t)((const int64_t *)b)[index];
}

TK_COLD void tk_conv_any(const void *x, const void *wt, const void *bias, void *y,
    const uint8_t *w, const int8_t *lut, uint8_t *scratch, int32_t xb, int32_t n, int32_t id,
    int32_t ih, int32_t iw, int32_t ic, int32_t od, int32_t oh, int32_t ow, int32_t oc, int32_t kd,
    int32_t kh, int32_t kw, int32_t sz, int32_t sy, int32_t sx, int32_t dz, int32_t dy, int32_t dx,
    int32_t pf, int32_t pt, int32_t pl, int32_t x_zp, int32_t w_zp, int32_t bc)
{
    int32_t b, oz, oy, ox, c, kz, ky, kx, k, at = 0;
    (void)w;
    (void)lut;
    (void)scratch;
    for (b = 0; b < n; ++b)
    for (oz = 0; oz < od; ++oz)
    for (oy = 0; oy < oh; ++oy)
    for (ox = 0; ox < ow; ++ox)
    for (c = 0; c < oc; ++c) {
        uint64_t sum = tk_bias(bias, bc == 1 ? 0 : c, xb);
        for (kz = 0; kz < kd; ++kz)
        for (ky = 0; ky < kh; ++ky)
        for (kx = 0; kx < kw; ++kx) {
            const int32_t z = oz * sz - pf + kz * dz;
            const int32_t r = oy * sy - pt + ky * dy;
            const int32_t q = ox * sx - pl + kx * dx;
            const int32_t from = (((b * id + z) * ih + r) * iw + q) * ic;
            const int32_t by = (((c * kd + kz) * kh + ky) * kw + kx) * ic;
            if (z < 0 || z >= id || r < 0 || r >= ih || q < 0 || q >= iw) {
                continue;
            }
            for (k = 0; k < ic; ++k) {
                sum += (uint64_t)((tk_element(x, from + k, xb) - x_zp)
                    * (int64_t)(tk_element(wt, by + k, 8) - w_zp));
            }
        }
        tk_store_sum(y, at, sum, xb);
        ++at;
    }
}

TK_COLD void tk_depthwise_any(const void *x, const void *wt, const void *bias, void *y,
    const uint8_t *w, const int8_t *lut, uint8_t *scratch, int32_t xb, int32_t n, int32_t ih,
    int32_t iw, int32_t ic, int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy,
    int32_t sx, int32_t dy, int32_t dx, int32_t pt, int32_t pl, int32_t x_zp, int32_t w_zp,
    int32_t bc)
{
    const int32_t m = oc / ic;
    int32_t b, oy, ox, c, ky, kx, at = 0;
    (void)w;
    (void)lut;
    (void)scratch;
    for (b = 0; b < n; ++b)
    for (oy = 0; oy < oh; ++oy)
    for (ox = 0; ox < ow; ++ox)
    for (c = 0; c < oc; ++c) {
        uint64_t sum = tk_bias(bias, bc == 1 ? 0 : c, xb);
        for (ky = 0; ky < kh; ++ky)
        for (kx = 0; kx < kw; ++kx) {
            const int32_t r = oy * sy - pt + ky * dy;
            const int32_t q = ox * sx - pl + kx * dx;
            if (r >= 0 && r < ih && q >= 0 && q < iw) {
                sum += (uint64_t)((tk_element(x, ((b * ih + r) * iw + q) * ic + c / m, xb) - x_zp)
                    * (int64_t)(tk_element(wt, (ky * kw + kx) * oc + c, 8) - w_zp));
            }
        }
        tk_store_sum(y, at, sum, xb);
        ++at;
    }
}

/* Each output gathers the inputs whose windows reach it; pt and pl are the output's padding. */
TK_COLD void tk_transpose_conv_any(const void *x, const void *wt, const void *bias, void *y,
    const uint8_t *w, const int8_t *lut, uint8_t *scratch, int32_t xb, int32_t n, int32_t ih,
    int32_t iw, int32_t ic, int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy,
    int32_t sx, int32_t pt, int32_t pl, int32_t x_zp, int32_t w_zp, int32_t bc)
{
    int32_t b, oy, ox, c, ky, kx, k, at = 0;
    (void)w;
    (void)lut;
    (void)scratch;
    for (b = 0; b < n; ++b)
    for (oy = 0; oy < oh; ++oy)
    for (ox = 0; ox < ow; ++ox)
    for (c = 0; c < oc; ++c) {
        uint64_t sum = tk_bias(bias, bc == 1 ? 0 : c, xb);
        for (ky = 0; ky < kh; ++ky)
        for (kx = 0; kx < kw; ++kx) {
            const int32_t above = oy - pt - ky;
            const int32_t left = ox - pl - kx;
            const int32_t r = above / sy;
            const int32_t q = left / sx;
            const int32_t from = ((b * ih + r) * iw + q) * ic;
            const int32_t by = ((c * kh + ky) * kw + kx) * ic;
            if (above < 0 || left < 0 || above % sy || left % sx || r >= ih || q >= iw) {
                continue;
            }
            for (k = 0; k < ic; ++k) {
                sum += (uint64_t)((tk_element(x, from + k, xb) - x_zp)
                    * (int64_t)(tk_element(wt, by + k, 8) - w_zp));
            }
        }
        tk_store_sum(y, at, sum, xb);
        ++at;
    }
}

#endif
