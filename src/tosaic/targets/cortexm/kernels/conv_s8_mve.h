/* Convolution of int8 with the vector extension: blocks of three pixels and four output channels.
 *
 * The patch of a pixel lies in the image itself for a kernel of 1x1, and is copied otherwise; it has
 * `steps` vectors of 16 bytes, and zero weights where it ends before.
 *
 * Packed for four channels: [step][2][16] weights of channels 0 and 2, then of 1 and 3; four biases,
 * four multipliers, four negative shifts less 31. The last four channels overlap. */
#ifndef TOSAIC_CONV_S8_MVE_H
#define TOSAIC_CONV_S8_MVE_H

#include "mve.h"

struct tk_block_mve {
    const int8_t *x[3];
    int32_t more; /* steps after the first */
    int8_t *y[3];
    int32_t zp, lo, hi;
    const uint8_t *end; /* of the packed weights */
    int32_t rows[3];    /* added to the sums of each row of a matrix; not of pixels */
};

#if TK_MVE
#define TK_STEP(mac)                                                                                \
    "vldrb.8 q3, [r9], #16\n\tvldrb.8 q0, [r1], #16\n\t" mac " r0, q0, q3\n\t"                      \
    "vldrb.8 q1, [r3], #16\n\t" mac " r2, q1, q3\n\tvldrb.8 q2, [r5], #16\n\t" mac                  \
    " r4, q2, q3\n\tvldrb.8 q3, [r9], #16\n\t" mac " r6, q0, q3\n\t" mac " r8, q1, q3\n\t" mac      \
    " r10, q2, q3\n\t"
#define TK_TWO_CHANNELS(skip, again)                                                                \
    "ldm r12, {r1, r3, r5, lr}\n\t" TK_STEP("vmladav.s8") "wls lr, lr, " skip "f\n" again           \
    ":\n\t" TK_STEP("vmladava.s8") "le lr, " again "b\n" skip ":\n\t"

#define TK_EARLIER_MVE                                                                              \
    "vshr.u32 q3, q2, #8\n\tvshl.s32 q4, q4, q3\n\tvshl.s32 q5, q5, q3\n\tvshl.s32 q6, q6, q3\n\t"
#define TK_STORE_MVE(op, size)                                                                      \
    op " q4, [r1], #" size "\n\t" op " q5, [r3], #" size "\n\t" op " q6, [r5], #" size "\n\t"
#define TK_BLOCK_MVE(before, store)                                                                 \
    __asm__ volatile(                                                                               \
        "ldr r0, [r12, #36]\n\t"                                                                    \
        "add r11, r12, #16\n\t"                                                                     \
        "vdup.32 q7, r0\n"                                                                          \
        "1:\n\t" TK_TWO_CHANNELS("3", "2")                                                          \
        "vmov q4[2], q4[0], r0, r6\n\tvmov q5[2], q5[0], r2, r8\n\tvmov q6[2], q6[0], r4, r10\n\t"  \
            TK_TWO_CHANNELS("5", "4")                                                               \
        "vmov q4[3], q4[1], r0, r6\n\tvmov q5[3], q5[1], r2, r8\n\tvmov q6[3], q6[1], r4, r10\n\t"  \
        "vldrw.32 q0, [r9], #16\n\tvldrw.32 q1, [r9], #16\n\tvldrw.32 q2, [r9], #16\n\t"            \
        "ldm r11, {r1, r3, r5, r6, r8}\n\t"                                                         \
        "vadd.i32 q4, q4, q0\n\tvadd.i32 q5, q5, q0\n\tvadd.i32 q6, q6, q0\n\t"                     \
        before "vqdmulh.s32 q4, q4, q1\n\tvqdmulh.s32 q5, q5, q1\n\tvqdmulh.s32 q6, q6, q1\n\t"     \
        "vrshl.s32 q4, q4, q2\n\tvrshl.s32 q5, q5, q2\n\tvrshl.s32 q6, q6, q2\n\t"                  \
        "ldr r0, [r12, #40]\n\t"                                                                    \
        "vdup.32 q3, r8\n\t"                                                                        \
        "vadd.i32 q4, q4, r6\n\tvadd.i32 q5, q5, r6\n\tvadd.i32 q6, q6, r6\n\t"                     \
        "vmax.s32 q4, q4, q3\n\tvmax.s32 q5, q5, q3\n\tvmax.s32 q6, q6, q3\n\t"                     \
        "vmin.s32 q4, q4, q7\n\tvmin.s32 q5, q5, q7\n\tvmin.s32 q6, q6, q7\n\t"                     \
        store                                                                                       \
        "cmp r9, r0\n\t"                                                                            \
        "stm r11, {r1, r3, r5}\n\t"                                                                 \
        "bne 1b"                                                                                    \
        : "+r"(w), "+r"(b)                                                                          \
        :                                                                                           \
        : "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r10", "r11", "lr", "cc", "memory",       \
        TK_VECTORS)

/* All channels from `packed` to the block's end, for three pixels. */
TK_SHARED void tk_block_quick_mve(struct tk_block_mve *block, const uint8_t *packed)
{
    register const uint8_t *w __asm__("r9") = packed;
    register struct tk_block_mve *b __asm__("r12") = block;
    TK_BLOCK_MVE("", TK_STORE_MVE("vstrb.32", "4"));
}

/* The same with sums that are shifted to the left before. */
TK_SHARED void tk_block_exact_mve(struct tk_block_mve *block, const uint8_t *packed)
{
    register const uint8_t *w __asm__("r9") = packed;
    register struct tk_block_mve *b __asm__("r12") = block;
    TK_BLOCK_MVE(TK_EARLIER_MVE, TK_STORE_MVE("vstrb.32", "4"));
}

/* The same with results of int16. */
TK_SHARED void tk_block_int16_mve(struct tk_block_mve *block, const uint8_t *packed)
{
    register const uint8_t *w __asm__("r9") = packed;
    register struct tk_block_mve *b __asm__("r12") = block;
    TK_BLOCK_MVE(TK_EARLIER_MVE, TK_STORE_MVE("vstrh.32", "8"));
}

TK_HOT void tk_sum_block_mve(struct tk_block_mve *block, const uint8_t *w, int32_t kind)
{
    if (kind == 0) {
        tk_block_quick_mve(block, w);
    } else if (kind == 1) {
        tk_block_exact_mve(block, w);
    } else {
        tk_block_int16_mve(block, w);
    }
}

#else

TK_COLD void tk_sum_block_mve(struct tk_block_mve *block, const uint8_t *packed, int32_t kind)
{
    const int32_t steps = block->more + 1;
    const int8_t *w = (const int8_t *)packed;
    int32_t pixel, lane, k;
    for (; w != (const int8_t *)block->end; w += 64 * steps + 48) {
        for (pixel = 0; pixel < 3; ++pixel) {
            for (lane = 0; lane < 4; ++lane) {
                const int8_t *row = w + (lane & 1) * 32 * steps + (lane >> 1) * 16;
                const int8_t *scales = w + 64 * steps + 4 * lane;
                uint32_t sum = (uint32_t)tk_load32(scales);
                for (k = 0; k < 16 * steps; ++k) {
                    sum += (uint32_t)(row[k / 16 * 32 + k % 16] * block->x[pixel][k]);
                }
                sum += (uint32_t)block->rows[pixel];
                k = tk_clamp(block->zp + tk_scaled_mve((int32_t)sum, tk_load32(scales + 16),
                    tk_load32(scales + 32)), block->lo, block->hi);
                tk_store(block->y[pixel], 0, k, kind == 2 ? 16 : 8);
                block->y[pixel] += kind == 2 ? 2 : 1;
            }
        }
    }
}
#endif

/* The patch of an output pixel, copied: the zero point where the image ends. */
TK_HOT void tk_patch_mve(int8_t *to, const int8_t *x, int32_t oy, int32_t ox, int32_t ih,
    int32_t iw, int32_t ic, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy, int32_t dx,
    int32_t pt, int32_t pl, int32_t xr, int32_t x_zp)
{
    const int32_t taps = dx == 1 ? 1 : kw, run = kw / taps, r = oy * sy - pt, q = ox * sx - pl;
    /* Blocks of 16 bytes of the last rows could be read behind the image. */
    const int32_t is_inside = r >= 0 && r + (kh - 1) * dy < ih - 1 - 15 / (iw * ic) && q >= 0 &&
        q + (kw - 1) * dx < iw && xr >= ih;
    int32_t ky, kx;
    for (ky = 0; ky < kh; ++ky) {
        const int32_t row = r + ky * dy;
        for (kx = 0; kx < taps; ++kx, to += run * ic) {
            const int32_t left = q + kx * dx;
            if (is_inside) {
                tk_copy_mve(to, x + (row * iw + left) * ic, run * ic);
            } else {
                const int32_t from = tk_max(-left, 0), end = tk_min(run, iw - left);
                const int32_t is_row = row >= 0 && row < ih && from < end;
                if (!is_row || from > 0 || end < run) {
                    memset(to, x_zp, (size_t)(run * ic));
                }
                if (is_row) {
                    memcpy(to + from * ic, x + (tk_ring(row, xr, ih) * iw + left + from) * ic,
                        (size_t)((end - from) * ic));
                }
            }
        }
    }
}

TK_HOT void tk_conv_s8_mve(const int8_t *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t ic,
    int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy,
    int32_t dx, int32_t pt, int32_t pl, int32_t xr, int32_t x_zp, int32_t y_zp,
    int32_t lo, int32_t hi, int32_t kind)
{
    const int32_t patch = kh * kw * ic, steps = (patch + 15) / 16, four = 64 * steps + 48;
    const int32_t is_flat = kh == 1 && kw == 1 && sy == 1 && sx == 1 && pt == 0 && pl == 0 &&
        ih == oh && iw == ow && xr >= ih;
    const int32_t images = is_flat ? 1 : n, count = (y1 - y0) * ow * (is_flat ? n : 1);
    struct tk_block_mve *const block = (struct tk_block_mve *)(void *)scratch;
    int8_t *const own = (int8_t *)(block + 1), *const few = own + 48 * steps + 16;
    const int32_t size = kind == 2 ? 2 : 1; /* of an element of the result */
    int8_t *to = (int8_t *)y;
    int32_t image, p, j;
    block->more = steps - 1;
    block->zp = y_zp;
    block->lo = lo;
    block->hi = hi;
    block->rows[0] = block->rows[1] = block->rows[2] = 0;
    for (image = 0; image < images; ++image) {
        for (p = 0; p < count; p += 3) {
            const int32_t start = count < 3 ? 0 : tk_min(p, count - 3);
            for (j = 0; j < 3; ++j) { /* the last block overlaps; of fewer than three pixels the last is repeated */
                const int32_t at = tk_min(start + j, count - 1);
                block->y[j] = oc < 4 ? few + 8 * j : to + at * oc * size;
                block->x[j] = own + 16 * steps * j;
                if (!is_flat) {
                    tk_patch_mve(own + 16 * steps * j, x, y0 + at / ow, at % ow, ih, iw, ic, kh, kw, sy,
                        sx, dy, dx, pt, pl, xr, x_zp);
                } else if (ic % 16 == 0 || (count - at) * ic >= 16 * steps) {
                    block->x[j] = x + (y0 * ow + at) * ic;
                } else {
                    memcpy(own + 16 * steps * j, x + (y0 * ow + at) * ic, (size_t)ic);
                }
            }
            block->end = w + (oc < 4 ? 1 : oc >> 2) * four;
            tk_sum_block_mve(block, w, kind);
            if (oc > 4 && (oc & 3) != 0) {
                for (j = 0; j < 3; ++j) {
                    block->y[j] -= (4 - (oc & 3)) * size;
                }
                block->end += four;
                tk_sum_block_mve(block, w + (oc >> 2) * four, kind);
            }
            if (oc < 4) {
                for (j = 0; j < tk_min(count, 3); ++j) {
                    memcpy(to + (start + j) * oc * size, few + 8 * j, (size_t)(oc * size));
                }
            }
            if (lut != NULL) {
                for (j = start * oc; j < tk_min(start + 3, count) * oc; ++j) {
                    to[j] = lut[to[j] + 128];
                }
            }
        }
        x += ih * iw * ic;
        to += count * oc * size;
    }
}

#endif
