/* Depthwise convolution of int8 with the DSP extension, of any window, stride, dilation and number of
 * outputs for each input channel: four output channels at a time.
 *
 * Packed for four channels: [kh][kw][4] weights; then bias, multiplier, offset and shift - 32 of each.
 * The last four channels overlap. Outside of the image is the zero point, four bytes of scratch memory. */
#ifndef TOSAIC_DEPTHWISE_ANY_S8_DSP_H
#define TOSAIC_DEPTHWISE_ANY_S8_DSP_H

#include "dsp.h"
#include "window.h"

struct tk_four {
    uint32_t a, b, c, d;
};

/* The sums of four channels and the products of `count` taps, `step` bytes apart; of `m` outputs for
 * each input channel `skew` come before these. */
TK_HOT struct tk_four tk_taps_dsp(struct tk_four s, const int8_t *x, const uint8_t *w, int32_t count,
    int32_t step, int32_t m, int32_t skew)
{
    for (; count > 0; --count, x += step, w += 4) {
        const int32_t word = tk_load32(w), even = tk_even_bytes(word), odd = tk_odd_bytes(word);
        if (m == 1) {
            const int32_t four = tk_load32(x), p = tk_even_bytes(four), q = tk_odd_bytes(four);
            s.a += (uint32_t)((int16_t)p * (int16_t)even);
            s.b += (uint32_t)((int16_t)q * (int16_t)odd);
            s.c += (uint32_t)((p >> 16) * (even >> 16));
            s.d += (uint32_t)((q >> 16) * (odd >> 16));
        } else {
            s.a += (uint32_t)(x[0] * (int16_t)even);
            s.b += (uint32_t)(x[(skew + 1) / m] * (int16_t)odd);
            s.c += (uint32_t)(x[(skew + 2) / m] * (even >> 16));
            s.d += (uint32_t)(x[(skew + 3) / m] * (odd >> 16));
        }
    }
    return s;
}

TK_HOT void tk_depthwise_store_dsp(void *y, int32_t at, uint32_t sum, const int32_t *scale,
    const int8_t *lut, int32_t lo, int32_t hi, int32_t out_bits)
{
    const int32_t v = tk_clamp(tk_scaled_dsp((int32_t)sum, scale[1], scale[2], scale[3]), lo, hi);
    tk_store(y, at, lut != NULL ? lut[v + 128] : v, out_bits);
}

TK_HOT void tk_depthwise_any_s8_dsp(const int8_t *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t ic,
    int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy,
    int32_t dx, int32_t pt, int32_t pl, int32_t xr, int32_t x_zp, int32_t lo, int32_t hi,
    int32_t out_bits)
{
    const int32_t m = oc / ic, size = 4 * kh * kw + 64, step = dx * ic;
    const int8_t *const outside = (const int8_t *)memset(scratch, x_zp, 4);
    int32_t b, oy, ox, c, ky, at = 0;
    (void)oh;
    for (b = 0; b < n; ++b, x += ih * iw * ic)
    for (oy = y0; oy < y1; ++oy)
    for (ox = 0; ox < ow; ++ox, at += oc) {
        const int32_t r = oy * sy - pt, q = ox * sx - pl;
        const struct tk_inside rows = tk_inside_of(r, dy, kh, ih), columns = tk_inside_of(q, dx, kw, iw);
        const int32_t inside = columns.end - columns.first, behind = kw - columns.end;
        const uint8_t *k = w;
        for (c = 0; c < oc; c += 4) {
            const int32_t base = tk_min(c, oc - 4), skew = base % m;
            const int32_t *const scales = (const int32_t *)(const void *)(k + 4 * kh * kw);
            const int8_t *const from = x + (q + columns.first * dx) * ic + base / m;
            struct tk_four s;
            s.a = (uint32_t)scales[0];
            s.b = (uint32_t)scales[4];
            s.c = (uint32_t)scales[8];
            s.d = (uint32_t)scales[12];
            for (ky = 0; ky < kh; ++ky, k += 4 * kw) {
                if (ky < rows.first || ky >= rows.end) {
                    s = tk_taps_dsp(s, outside, k, kw, 0, m, skew);
                } else {
                    const int8_t *const row = from + tk_ring(r + ky * dy, xr, ih) * iw * ic;
                    s = tk_taps_dsp(s, outside, k, columns.first, 0, m, skew);
                    s = tk_taps_dsp(s, row, k + 4 * columns.first, inside, step, m, skew);
                    s = tk_taps_dsp(s, outside, k + 4 * columns.end, behind, 0, m, skew);
                }
            }
            tk_depthwise_store_dsp(y, at + base, s.a, scales, lut, lo, hi, out_bits);
            tk_depthwise_store_dsp(y, at + base + 1, s.b, scales + 4, lut, lo, hi, out_bits);
            tk_depthwise_store_dsp(y, at + base + 2, s.c, scales + 8, lut, lo, hi, out_bits);
            tk_depthwise_store_dsp(y, at + base + 3, s.d, scales + 12, lut, lo, hi, out_bits);
            k += size - 4 * kh * kw;
        }
    }
}

#endif
