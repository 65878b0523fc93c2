/* Depthwise convolution of int8 with the vector extension, of any window, stride, dilation and number
 * of outputs for each input channel: eight output channels at a time.
 *
 * Packed for eight channels: [kh][kw][8] weights; then bias, multiplier and 31 - shift, each of channels
 * 0, 2, 4, 6 and of 1, 3, 5, 7. The last eight channels overlap; the first are all if there are fewer.
 * Outside of the image is the zero point, eight bytes of scratch memory. */
#ifndef TOSAIC_DEPTHWISE_ANY_S8_MVE_H
#define TOSAIC_DEPTHWISE_ANY_S8_MVE_H

#include "mve.h"
#include "window.h"

#if TK_MVE
#include <arm_mve.h>

struct tk_eight {
    int32x4_t even, odd;
};

/* The sums of eight channels and the products of `count` taps, `step` bytes apart. */
TK_HOT struct tk_eight tk_taps_mve(struct tk_eight s, const int8_t *x, const uint8_t *w, int32_t count,
    int32_t step, int32_t m, uint16x8_t places, mve_pred16_t lanes)
{
    for (; count > 0; --count, x += step, w += 8) {
        const int16x8_t v = m > 1 ? vldrbq_gather_offset_z_s16(x, places, lanes) : vldrbq_z_s16(x, lanes);
        const int16x8_t weights = vldrbq_s16((const int8_t *)w);
        s.even = vaddq_s32(s.even, vmullbq_int_s16(v, weights));
        s.odd = vaddq_s32(s.odd, vmulltq_int_s16(v, weights));
    }
    return s;
}

/* Sums as results. */
TK_HOT int32x4_t tk_four_scaled_mve(int32x4_t v, const int32_t *scales, int32_t y_zp, int32_t lo, int32_t hi)
{
    const int32x4_t shift = vldrwq_s32(scales + 16);
    v = vshlq_s32(v, vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(shift), 8)));
    v = vaddq_n_s32(vrshlq_s32(vqdmulhq_s32(v, vldrwq_s32(scales + 8)), shift), y_zp);
    return vminq_s32(vmaxq_s32(v, vdupq_n_s32(lo)), vdupq_n_s32(hi));
}

TK_HOT uint16x8_t tk_places_mve(int32_t skew, int32_t m)
{
    uint16_t places[8];
    int32_t i;
    for (i = 0; i < 8; ++i) {
        places[i] = (uint16_t)((skew + i) / m);
    }
    return vldrhq_u16(places);
}
#else
struct tk_eight {
    uint32_t sums[8]; /* even channels before odd ones */
};

TK_COLD struct tk_eight tk_taps_mve(struct tk_eight s, const int8_t *x, const uint8_t *w, int32_t count,
    int32_t step, int32_t m, int32_t skew, int32_t channels)
{
    int32_t i;
    for (; count > 0; --count, x += step, w += 8) {
        for (i = 0; i < channels; ++i) {
            s.sums[i / 2 + i % 2 * 4] += (uint32_t)(x[(skew + i) / m] * (int8_t)w[i]);
        }
    }
    return s;
}
#endif

TK_HOT void tk_depthwise_any_s8_mve(const int8_t *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t ic,
    int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy,
    int32_t dx, int32_t pt, int32_t pl, int32_t xr, int32_t x_zp, int32_t y_zp, int32_t lo, int32_t hi,
    int32_t out_bits)
{
    const int32_t m = oc / ic, size = 8 * kh * kw + 96, step = dx * ic, together = tk_min(oc, 8);
    const int8_t *const outside = (const int8_t *)memset(scratch, x_zp, 8);
    int8_t *to = (int8_t *)y;
    int32_t b, oy, ox, c, i, ky;
#if TK_MVE
    const mve_pred16_t lanes = vctp16q((uint32_t)together);
#else
    const int32_t lanes = together;
#endif
    (void)oh;
    for (b = 0; b < n; ++b, x += ih * iw * ic)
    for (oy = y0; oy < y1; ++oy)
    for (ox = 0; ox < ow; ++ox, to += oc * (out_bits / 8)) {
        const int32_t r = oy * sy - pt, q = ox * sx - pl;
        const struct tk_inside rows = tk_inside_of(r, dy, kh, ih), columns = tk_inside_of(q, dx, kw, iw);
        const int32_t inside = columns.end - columns.first, behind = kw - columns.end;
        const uint8_t *k = w;
        for (c = 0; c < oc; c += 8) {
            const int32_t base = tk_max(tk_min(c, oc - 8), 0), skew = base % m;
            const int32_t *const scales = (const int32_t *)(const void *)(k + 8 * kh * kw);
            const int8_t *const from = x + (q + columns.first * dx) * ic + base / m;
            int8_t *const place = to + base * (out_bits / 8);
            struct tk_eight s;
#if TK_MVE
            const uint16x8_t places = m > 1 ? tk_places_mve(skew, m) : vdupq_n_u16(0);
            int16x8_t made;
            s.even = vldrwq_s32(scales);
            s.odd = vldrwq_s32(scales + 4);
#else
            const int32_t places = skew;
            memcpy(s.sums, scales, sizeof s.sums);
#endif
            for (ky = 0; ky < kh; ++ky, k += 8 * kw) {
                if (ky < rows.first || ky >= rows.end) {
                    s = tk_taps_mve(s, outside, k, kw, 0, m, places, lanes);
                } else {
                    const int8_t *const row = from + tk_ring(r + ky * dy, xr, ih) * iw * ic;
                    s = tk_taps_mve(s, outside, k, columns.first, 0, m, places, lanes);
                    s = tk_taps_mve(s, row, k + 8 * columns.first, inside, step, m, places, lanes);
                    s = tk_taps_mve(s, outside, k + 8 * columns.end, behind, 0, m, places, lanes);
                }
            }
#if TK_MVE
            made = vmovnbq_s32(vdupq_n_s16(0), tk_four_scaled_mve(s.even, scales, y_zp, lo, hi));
            made = vmovntq_s32(made, tk_four_scaled_mve(s.odd, scales + 4, y_zp, lo, hi));
            if (out_bits == 8) {
                vstrbq_p_s16(place, made, lanes);
            } else {
                vstrhq_p_s16((int16_t *)(void *)place, made, lanes);
            }
            (void)skew;
#else
            for (i = 0; i < together; ++i) {
                const int32_t *own = scales + i / 2 + i % 2 * 4;
                const int32_t sum = (int32_t)s.sums[i / 2 + i % 2 * 4];
                tk_store(place, i, tk_clamp(y_zp + tk_scaled_mve(sum, own[8], own[16]), lo, hi), out_bits);
            }
#endif
            k += size - 8 * kh * kw;
        }
    }
    if (lut != NULL) {
        for (i = 0, to = (int8_t *)y; i < n * (y1 - y0) * ow * oc; ++i) {
            to[i] = lut[to[i] + 128];
        }
    }
}

#endif
