/* Convolution and depthwise convolution of int8 or int16 by constant int8, in portable C.
 *
 * The packed weights are, for each output channel, the bias (int32 of int8, with the input's zero
 * point folded in, or int64 of int16), the multiplier and the shift as int32, then all weights:
 * [oc][kh][kw][ic], or [kh][kw][oc] if depthwise. Outside of the image the input is its zero point. */
#ifndef TOSAIC_CONV_H
#define TOSAIC_CONV_H

#include "sum.h"

TK_HOT void tk_conv(const void *x, void *y, const uint8_t *w, const int8_t *lut, uint8_t *scratch,
    int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t ic, int32_t oh, int32_t ow,
    int32_t oc, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy, int32_t dx, int32_t pt,
    int32_t pl, int32_t xr, int32_t is_depthwise, int32_t x_zp, int32_t y_zp, int32_t lo, int32_t hi,
    int32_t bits, int32_t out_bits, int32_t is_scaled)
{
    const int32_t wide = bits / 2, size = wide - 4 + 12, taken = is_depthwise ? 1 : ic, m = oc / ic;
    const uint8_t *weights = w + size * oc;
    int32_t b, oy, ox, c, ky, kx, k, at = 0;
    (void)scratch;
    (void)oh;
    for (b = 0; b < n; ++b)
    for (oy = y0; oy < y1; ++oy)
    for (ox = 0; ox < ow; ++ox)
    for (c = 0; c < oc; ++c) {
        const uint8_t *channel = w + size * c;
        struct tk_sum sum = tk_sum_bias(channel, bits);
        for (ky = 0; ky < kh; ++ky) {
            const int32_t r = oy * sy - pt + ky * dy;
            for (kx = 0; kx < kw; ++kx) {
                const int32_t q = ox * sx - pl + kx * dx;
                const int32_t by = is_depthwise ? (ky * kw + kx) * oc + c : ((c * kh + ky) * kw + kx) * ic;
                if (r >= 0 && r < ih && q >= 0 && q < iw) {
                    const int32_t pixel = ((b * ih + tk_ring(r, xr, ih)) * iw + q) * ic;
                    const int32_t from = is_depthwise ? pixel + c / m : pixel;
                    for (k = 0; k < taken; ++k) {
                        tk_sum_product(&sum, x, from + k, weights, by + k, 0, 0, bits, 8);
                    }
                } else if (x_zp != 0) {
                    for (k = 0; k < taken; ++k) {
                        sum.narrow += (uint32_t)(x_zp * ((const int8_t *)weights)[by + k]);
                    }
                }
            }
        }
        tk_sum_store(y, at, &sum, tk_load32(channel + wide), tk_load32(channel + wide + 4), lut, y_zp, lo,
            hi, bits, out_bits, is_scaled);
        ++at;
    }
}

#endif
