/* Convolution and depthwise convolution of int8 with its RESCALE, CLAMP and TABLE, in portable C.
 *
 * The packed weights are, for each output channel, the bias (with the input's zero point folded in), the
 * multiplier and the shift as int32, then all weights: [oc][kh][kw][ic], or [kh][kw][oc] if depthwise.
 * A shift of 0 stands for no RESCALE. Outside of the image the input is its zero point. */
#ifndef TOSAIC_CONV_S8_H
#define TOSAIC_CONV_S8_H

#include "common.h"

TK_HOT int32_t tk_requant(uint32_t sum, const uint8_t *channel, const int8_t *lut, int32_t y_zp,
    int32_t lo, int32_t hi, int32_t is_scaled)
{
    int32_t v = (int32_t)sum;
    if (is_scaled) {
        v = tk_rescale(v, tk_load32(channel + 4), tk_load32(channel + 8));
        v = tk_clamp(v, lo - y_zp, hi - y_zp) + y_zp;
        if (lut != NULL) {
            v = lut[v + 128];
        }
    }
    return v;
}

TK_HOT void tk_conv_s8(const int8_t *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t ic,
    int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy,
    int32_t dx, int32_t pt, int32_t pl, int32_t xr, int32_t x_zp, int32_t y_zp, int32_t lo,
    int32_t hi, int32_t out_bits, int32_t is_scaled)
{
    const int8_t *weights = (const int8_t *)w + 12 * oc;
    int32_t b, oy, ox, c, ky, kx, k, at = 0;
    (void)scratch;
    (void)oh;
    for (b = 0; b < n; ++b) {
        for (oy = y0; oy < y1; ++oy) {
            for (ox = 0; ox < ow; ++ox) {
                for (c = 0; c < oc; ++c) {
                    const int8_t *row = weights + c * (kh * kw * ic);
                    uint32_t sum = (uint32_t)tk_load32(w + 12 * c);
                    for (ky = 0; ky < kh; ++ky) {
                        const int32_t r = oy * sy - pt + ky * dy;
                        for (kx = 0; kx < kw; ++kx, row += ic) {
                            const int32_t q = ox * sx - pl + kx * dx;
                            int32_t part = 0;
                            if (r < 0 || r >= ih || q < 0 || q >= iw) {
                                for (k = 0; k < ic; ++k) {
                                    part += row[k];
                                }
                                part *= x_zp;
                            } else {
                                const int8_t *in = x + (tk_ring(r, xr, ih) * iw + q) * ic;
                                for (k = 0; k < ic; ++k) {
                                    part += in[k] * row[k];
                                }
                            }
                            sum += (uint32_t)part;
                        }
                    }
                    tk_store(y, at, tk_requant(sum, w + 12 * c, lut, y_zp, lo, hi, is_scaled),
                        out_bits);
                    ++at;
                }
            }
        }
        x += ih * iw * ic;
    }
}

TK_HOT void tk_depthwise_s8(const int8_t *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t ic,
    int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy,
    int32_t dx, int32_t pt, int32_t pl, int32_t xr, int32_t x_zp, int32_t y_zp, int32_t lo,
    int32_t hi, int32_t out_bits, int32_t is_scaled)
{
    const int8_t *weights = (const int8_t *)w + 12 * oc;
    const int32_t m = oc / ic;
    int32_t b, oy, ox, c, ky, kx, at = 0;
    (void)scratch;
    (void)oh;
    for (b = 0; b < n; ++b) {
        for (oy = y0; oy < y1; ++oy) {
            for (ox = 0; ox < ow; ++ox) {
                for (c = 0; c < oc; ++c) {
                    uint32_t sum = (uint32_t)tk_load32(w + 12 * c);
                    for (ky = 0; ky < kh; ++ky) {
                        const int32_t r = oy * sy - pt + ky * dy;
                        for (kx = 0; kx < kw; ++kx) {
                            const int32_t q = ox * sx - pl + kx * dx;
                            int32_t v = x_zp;
                            if (r >= 0 && r < ih && q >= 0 && q < iw) {
                                v = x[(tk_ring(r, xr, ih) * iw + q) * ic + c / m];
                            }
                            sum += (uint32_t)(v * weights[(ky * kw + kx) * oc + c]);
                        }
                    }
                    tk_store(y, at, tk_requant(sum, w + 12 * c, lut, y_zp, lo, hi, is_scaled),
                        out_bits);
                    ++at;
                }
            }
        }
        x += ih * iw * ic;
    }
}

#endif
