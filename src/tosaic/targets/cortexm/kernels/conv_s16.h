/* Convolution and depthwise convolution of int16 by int8 weights, with RESCALE and CLAMP.
 *
 * The packed weights are, for each output channel, the bias as int64, the multiplier and the shift as
 * int32, then all weights: [oc][kh][kw][ic], or [kh][kw][oc] if depthwise. */
#ifndef TOSAIC_CONV_S16_H
#define TOSAIC_CONV_S16_H

#include "common.h"

TK_HOT void tk_store_s16(void *y, int32_t at, int64_t sum, const uint8_t *channel, int32_t y_zp,
    int32_t lo, int32_t hi, int32_t out_bits, int32_t is_scaled)
{
    if (is_scaled) {
        const int32_t v = tk_rescale(sum, tk_load32(channel + 8), tk_load32(channel + 12));
        tk_store(y, at, tk_clamp(v, lo - y_zp, hi - y_zp) + y_zp, out_bits);
    } else {
        ((int64_t *)y)[at] = sum;
    }
}

TK_HOT void tk_conv_s16(const int16_t *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t ic,
    int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy,
    int32_t dx, int32_t pt, int32_t pl, int32_t xr, int32_t y_zp, int32_t lo, int32_t hi,
    int32_t out_bits, int32_t is_scaled)
{
    const int8_t *weights = (const int8_t *)w + 16 * oc;
    int32_t b, oy, ox, c, ky, kx, k, at = 0;
    (void)lut;
    (void)scratch;
    (void)oh;
    for (b = 0; b < n; ++b) {
        for (oy = y0; oy < y1; ++oy) {
            for (ox = 0; ox < ow; ++ox) {
                for (c = 0; c < oc; ++c) {
                    int64_t sum = tk_load64(w + 16 * c);
                    for (ky = 0; ky < kh; ++ky) {
                        const int32_t r = oy * sy - pt + ky * dy;
                        if (r < 0 || r >= ih) {
                            continue;
                        }
                        for (kx = 0; kx < kw; ++kx) {
                            const int32_t q = ox * sx - pl + kx * dx;
                            const int8_t *row = weights + ((c * kh + ky) * kw + kx) * ic;
                            if (q >= 0 && q < iw) {
                                const int16_t *in = x + (tk_ring(r, xr, ih) * iw + q) * ic;
                                for (k = 0; k < ic; ++k) {
                                    sum += in[k] * row[k];
                                }
                            }
                        }
                    }
                    tk_store_s16(y, at, sum, w + 16 * c, y_zp, lo, hi, out_bits, is_scaled);
                    ++at;
                }
            }
        }
        x += ih * iw * ic;
    }
}

TK_HOT void tk_depthwise_s16(const int16_t *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t ic,
    int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy,
    int32_t dx, int32_t pt, int32_t pl, int32_t xr, int32_t y_zp, int32_t lo, int32_t hi,
    int32_t out_bits, int32_t is_scaled)
{
    const int8_t *weights = (const int8_t *)w + 16 * oc;
    const int32_t m = oc / ic;
    int32_t b, oy, ox, c, ky, kx, at = 0;
    (void)lut;
    (void)scratch;
    (void)oh;
    for (b = 0; b < n; ++b) {
        for (oy = y0; oy < y1; ++oy) {
            for (ox = 0; ox < ow; ++ox) {
                for (c = 0; c < oc; ++c) {
                    int64_t sum = tk_load64(w + 16 * c);
                    for (ky = 0; ky < kh; ++ky) {
                        const int32_t r = oy * sy - pt + ky * dy;
                        for (kx = 0; kx < kw; ++kx) {
                            const int32_t q = ox * sx - pl + kx * dx;
                            if (r >= 0 && r < ih && q >= 0 && q < iw) {
                                sum += x[(tk_ring(r, xr, ih) * iw + q) * ic + c / m]
                                    * weights[(ky * kw + kx) * oc + c];
                            }
                        }
                    }
                    tk_store_s16(y, at, sum, w + 16 * c, y_zp, lo, hi, out_bits, is_scaled);
                    ++at;
                }
            }
        }
        x += ih * iw * ic;
    }
}

#endif
