/* Maximum and mean of windows of int8, int16 or floats; `bits`, 32 for floats, is a literal. */
#ifndef TOSAIC_POOL_H
#define TOSAIC_POOL_H

#include "float.h"

/* `multiplier` and `shift` are the reciprocal of a whole window; a window at the edge has its own. */
TK_HOT void tk_pool(const void *x, void *y, const uint8_t *w, const int8_t *lut, uint8_t *scratch,
    int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t c, int32_t oh, int32_t ow,
    int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t pt, int32_t pl, int32_t xr, int32_t bits,
    int32_t is_max, int32_t ignores_nan, int32_t x_zp, int32_t y_zp, int32_t multiplier, int32_t shift)
{
    const int32_t low = bits == 8 ? -128 : -32768, high = bits == 8 ? 127 : 32767;
    int32_t b, oy, ox, k, r, q, at = 0;
    (void)w;
    (void)lut;
    (void)scratch;
    (void)oh;
    for (b = 0; b < n; ++b)
    for (oy = y0; oy < y1; ++oy) {
        const int32_t r0 = tk_max(oy * sy - pt, 0), r1 = tk_min(oy * sy - pt + kh, ih);
        for (ox = 0; ox < ow; ++ox) {
            const int32_t q0 = tk_max(ox * sx - pl, 0), q1 = tk_min(ox * sx - pl + kw, iw);
            const int32_t count = (r1 - r0) * (q1 - q0);
            int32_t by = multiplier, s = shift;
            if (!is_max && bits != 32 && count != kh * kw) {
                s = 30;
                while ((1 << (s - 30)) < count) {
                    ++s;
                }
                by = (int32_t)(((((int64_t)1 << 30) + 1) << (s - 30)) / count);
            }
            for (k = 0; k < c; ++k, ++at) {
                int32_t whole = is_max ? low : 0;
                float real = !is_max ? 0.0F : ignores_nan ? tk_nan() : -tk_infinity();
                for (r = r0; r < r1; ++r) {
                    const int32_t row = (b * xr + tk_ring(r, xr, ih)) * iw;
                    for (q = q0; q < q1; ++q) {
                        const int32_t from = (row + q) * c + k;
                        if (bits == 32) {
                            const float v = ((const float *)x)[from];
                            real = !is_max ? real + v : ignores_nan ? tk_fmax(v, real) : tk_maximum(v, real);
                        } else {
                            const int32_t v = tk_element(x, from, bits);
                            whole = is_max ? tk_max(whole, v) : whole + v;
                        }
                    }
                }
                if (bits == 32) {
                    ((float *)y)[at] = is_max ? real : real / (float)count;
                } else {
                    if (!is_max) {
                        whole = tk_rescale(whole - x_zp * count, by, s);
                        whole = tk_clamp(whole, low - y_zp, high - y_zp) + y_zp;
                    }
                    tk_store(y, at, whole, bits);
                }
            }
        }
    }
}

#endif
