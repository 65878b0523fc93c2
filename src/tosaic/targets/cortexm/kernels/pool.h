/* Maximum and mean of windows, int8 and int16; `bits` is a literal. */
#ifndef TOSAIC_POOL_H
#define TOSAIC_POOL_H

#include "common.h"

TK_HOT void tk_max_pool(const void *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t c,
    int32_t oh, int32_t ow, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t pt, int32_t pl,
    int32_t xr, int32_t bits)
{
    int32_t b, oy, ox, k, r, q, at = 0;
    (void)w;
    (void)lut;
    (void)scratch;
    (void)oh;
    for (b = 0; b < n; ++b) {
        for (oy = y0; oy < y1; ++oy) {
            const int32_t r0 = tk_max(oy * sy - pt, 0), r1 = tk_min(oy * sy - pt + kh, ih);
            for (ox = 0; ox < ow; ++ox) {
                const int32_t q0 = tk_max(ox * sx - pl, 0), q1 = tk_min(ox * sx - pl + kw, iw);
                for (k = 0; k < c; ++k) {
                    int32_t best = bits == 8 ? -128 : -32768;
                    for (r = r0; r < r1; ++r) {
                        const int32_t row = (b * xr + tk_ring(r, xr, ih)) * iw;
                        for (q = q0; q < q1; ++q) {
                            best = tk_max(best, tk_element(x, (row + q) * c + k, bits));
                        }
                    }
                    tk_store(y, at, best, bits);
                    ++at;
                }
            }
        }
    }
}

/* `multiplier` and `shift` are the reciprocal of a whole window; a window at the edge has its own. */
TK_HOT void tk_avg_pool(const void *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t c,
    int32_t oh, int32_t ow, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t pt, int32_t pl,
    int32_t xr, int32_t bits, int32_t x_zp, int32_t y_zp, int32_t multiplier, int32_t shift)
{
    const int32_t lo = (bits == 8 ? -128 : -32768) - y_zp, hi = (bits == 8 ? 127 : 32767) - y_zp;
    int32_t b, oy, ox, k, r, q, at = 0;
    (void)w;
    (void)lut;
    (void)scratch;
    (void)oh;
    for (b = 0; b < n; ++b) {
        for (oy = y0; oy < y1; ++oy) {
            const int32_t r0 = tk_max(oy * sy - pt, 0), r1 = tk_min(oy * sy - pt + kh, ih);
            for (ox = 0; ox < ow; ++ox) {
                const int32_t q0 = tk_max(ox * sx - pl, 0), q1 = tk_min(ox * sx - pl + kw, iw);
                const int32_t count = (r1 - r0) * (q1 - q0);
                int32_t m = multiplier, s = shift;
                if (count != kh * kw) {
                    s = 30;
                    while ((1 << (s - 30)) < count) {
                        ++s;
                    }
                    m = (int32_t)(((((int64_t)1 << 30) + 1) << (s - 30)) / count);
                }
                for (k = 0; k < c; ++k) {
                    int32_t sum = 0;
                    for (r = r0; r < r1; ++r) {
                        const int32_t row = (b * xr + tk_ring(r, xr, ih)) * iw;
                        for (q = q0; q < q1; ++q) {
                            sum += tk_element(x, (row + q) * c + k, bits);
                        }
                    }
                    sum = tk_rescale(sum - x_zp * count, m, s);
                    tk_store(y, at, tk_clamp(sum, lo, hi) + y_zp, bits);
                    ++at;
                }
            }
        }
    }
}

#endif
