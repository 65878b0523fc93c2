/* RESIZE, nearest and bilinear: the place of an output is (at * step + offset) / unit. */
#ifndef TOSAIC_RESIZE_H
#define TOSAIC_RESIZE_H

#include "common.h"

TK_HOT int32_t tk_floor_div(int32_t a, int32_t b) { return a < 0 ? -((b - 1 - a) / b) : a / b; }

TK_COLD void tk_resize_nearest(const void *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t size, int32_t n, int32_t ih, int32_t iw, int32_t oh, int32_t ow,
    int32_t uy, int32_t sy, int32_t ux, int32_t sx, int32_t fy, int32_t fx)
{
    int32_t b, oy, ox;
    (void)w;
    (void)lut;
    (void)scratch;
    for (b = 0; b < n; ++b) {
        for (oy = 0; oy < oh; ++oy) {
            const int32_t py = oy * sy + fy, by = tk_floor_div(py, uy);
            const int32_t r = tk_clamp(by + (2 * (py - by * uy) >= uy), 0, ih - 1);
            for (ox = 0; ox < ow; ++ox) {
                const int32_t px = ox * sx + fx, bx = tk_floor_div(px, ux);
                const int32_t q = tk_clamp(bx + (2 * (px - bx * ux) >= ux), 0, iw - 1);
                memcpy((uint8_t *)y + ((b * oh + oy) * ow + ox) * size,
                    (const uint8_t *)x + ((b * ih + r) * iw + q) * size, (size_t)size);
            }
        }
    }
}

TK_COLD void tk_resize_bilinear(const void *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t bits, int32_t n, int32_t ih, int32_t iw, int32_t c, int32_t oh,
    int32_t ow, int32_t uy, int32_t sy, int32_t ux, int32_t sx, int32_t fy, int32_t fx)
{
    int32_t b, oy, ox, k, at = 0;
    (void)w;
    (void)lut;
    (void)scratch;
    for (b = 0; b < n; ++b) {
        for (oy = 0; oy < oh; ++oy) {
            const int32_t py = oy * sy + fy, by = tk_floor_div(py, uy), ty = py - by * uy;
            const int32_t r0 = (b * ih + tk_clamp(by, 0, ih - 1)) * iw;
            const int32_t r1 = (b * ih + tk_clamp(by + 1, 0, ih - 1)) * iw;
            for (ox = 0; ox < ow; ++ox) {
                const int32_t px = ox * sx + fx, bx = tk_floor_div(px, ux), tx = px - bx * ux;
                const int32_t q0 = tk_clamp(bx, 0, iw - 1), q1 = tk_clamp(bx + 1, 0, iw - 1);
                for (k = 0; k < c && bits == 32; ++k, ++at) {
                    const float *in = (const float *)x + k;
                    const float v = (float)ty / (float)uy, u = (float)tx / (float)ux;
                    const float left = in[(r0 + q0) * c] * (1.0F - v) + in[(r1 + q0) * c] * v;
                    const float right = in[(r0 + q1) * c] * (1.0F - v) + in[(r1 + q1) * c] * v;
                    ((float *)y)[at] = left * (1.0F - u) + right * u;
                }
                for (k = 0; k < c && bits != 32; ++k, ++at) {
                    const int64_t left = (int64_t)tk_element(x, (r0 + q0) * c + k, bits) * (uy - ty)
                        + (int64_t)tk_element(x, (r1 + q0) * c + k, bits) * ty;
                    const int64_t right = (int64_t)tk_element(x, (r0 + q1) * c + k, bits) * (uy - ty)
                        + (int64_t)tk_element(x, (r1 + q1) * c + k, bits) * ty;
                    const int64_t v = left * (ux - tx) + right * tx;
                    if (bits == 8) {
                        ((int32_t *)y)[at] = (int32_t)v;
                    } else {
                        ((int64_t *)y)[at] = v;
                    }
                }
            }
        }
    }
}

#endif
