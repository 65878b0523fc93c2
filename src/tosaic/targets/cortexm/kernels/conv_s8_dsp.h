/* Convolution of int8 with the DSP extension: blocks of three pixels and two output channels.
 *
 * The patches of three pixels are widened once to pairs of int16, interleaved, and multiplied by all
 * channels. A word of packed weights serves two channels, (a, b) in bytes 0 and 2, (c, d) in bytes 1
 * and 3: as a pair of int16 it is 256 * (c, d) + (a, b), so SMLAD by the word itself and by its
 * sign-extended bytes 0 and 2 gives both sums; the packing takes care of the borrows. Kinds: 0, full
 * range of int8; 1, with limits; 2, sums of more than 24 bits, or shifted to the left: bytes 1 and 3
 * are sign-extended, too; 3, as 2 with results of int16; 4, the same with sums of 24 bits.
 *
 * Packed for two channels: the bias of the first; the weights, two words for each four elements of a
 * patch, of elements 0 and 2, and 1 and 3; the bias of the second; multiplier, offset and shift - 32
 * of the first, then of the second. The last pair of an odd number of channels overlaps. */
#ifndef TOSAIC_CONV_S8_DSP_H
#define TOSAIC_CONV_S8_DSP_H

#include "dsp.h"

/* Lies directly behind the widened patches, where the multiplication arrives. */
struct tk_block_dsp {
    int8_t *y[3];
    const int32_t *patches;
    uint32_t steps;     /* groups of four elements in a patch, plus one */
    const uint8_t *end; /* of the packed weights */
    int32_t lo, hi;
    int32_t rows[3]; /* added to the sums of each row of a matrix; not of pixels */
};

#if TK_DSP
#define TK_PAIR(second)                                                                             \
    "ldr r12, [r0], #4\n\t"                                                                         \
    "ldm r1!, {r9, r10, r11}\n\t"                                                                   \
    "sxtb16 lr, r12\n\t" second                                                                     \
    "smlad r2, lr, r9, r2\n\tsmlad r3, lr, r10, r3\n\tsmlad r4, lr, r11, r4\n\t"                    \
    "smlad r5, r12, r9, r5\n\tsmlad r6, r12, r10, r6\n\tsmlad r7, r12, r11, r7\n\t"
#define TK_LIMIT(a)                                                                                 \
    "cmp " a ", r8\n\tit lt\n\tmovlt " a ", r8\n\tcmp " a ", r9\n\tit gt\n\tmovgt " a ", r9\n\t"
#define TK_SATURATE                                                                                 \
    "ssat r2, #8, r2\n\tssat r3, #8, r3\n\tssat r4, #8, r4\n\t"                                     \
    "ssat r5, #8, r5\n\tssat r6, #8, r6\n\tssat r7, #8, r7\n\t"
#define TK_LIMITS                                                                                   \
    "ldrd r8, r9, [r1, #24]\n\t" TK_LIMIT("r2") TK_LIMIT("r3") TK_LIMIT("r4") TK_LIMIT("r5")        \
        TK_LIMIT("r6") TK_LIMIT("r7")
#define TK_EARLIER(a, b, c)                                                                         \
    "lsr r8, r11, #8\n\tlsl " a ", " a ", r8\n\tlsl " b ", " b ", r8\n\tlsl " c ", " c ", r8\n\t"
#define TK_SPLIT                                                                                    \
    "subs r5, r5, r2\n\tsubs r6, r6, r3\n\tsubs r7, r7, r4\n\t"                                     \
    "add r5, r8, r5, asr #8\n\tadd r6, r8, r6, asr #8\n\tadd r7, r8, r7, asr #8\n\t"
#define TK_APART "add r5, r5, r8\n\tadd r6, r6, r8\n\tadd r7, r7, r8\n\t"
#define TK_STORE(op, size)                                                                          \
    op " r2, [r8], #" size "\n\t" op " r5, [r8], #" size "\n\t" op " r3, [r9], #" size "\n\t" op    \
       " r6, [r9], #" size "\n\t" op " r4, [r10], #" size "\n\t" op " r7, [r10], #" size "\n\t"
/* All pairs of channels from `packed` to the block's end, for three pixels. */
#define TK_BLOCK(name, pair, combine, first, second, clamp, store)                                  \
    TK_SHARED void name(struct tk_block_dsp *block, const uint8_t *packed)                          \
    {                                                                                               \
        register const uint8_t *w __asm__("r0") = packed;                                           \
        register struct tk_block_dsp *b __asm__("r1") = block;                                      \
        __asm__ volatile(                                                                           \
            TK_WITH_R7("1:\n\t"                                                                     \
            "ldr r8, [r1, #16]\n\t"                                                                 \
            "ldr r2, [r0], #4\n\t"                                                                  \
            "ldr r1, [r1, #12]\n\t"                                                                 \
            "lsrs r8, r8, #1\n\t"                                                                   \
            "mov r3, r2\n\tmov r4, r2\n\tmov r5, r2\n\tmov r6, r2\n\tmov r7, r2\n\t"                \
            "bcc 3f\n"                                                                              \
            "2:\n\t" pair pair "\n3:\n\t" pair pair "subs r8, r8, #1\n\t"                           \
            "bne 2b\n\t"                                                                            \
            "ldm r0!, {r8, r9, r10, r11}\n\t" combine first                                         \
            "smmla r2, r2, r9, r10\n\tsmmla r3, r3, r9, r10\n\tsmmla r4, r4, r9, r10\n\t"           \
            "asr r2, r2, r11\n\tasr r3, r3, r11\n\tasr r4, r4, r11\n\t"                             \
            "ldm r0!, {r9, r10, r11}\n\t" second                                                    \
            "smmla r5, r5, r9, r10\n\tsmmla r6, r6, r9, r10\n\tsmmla r7, r7, r9, r10\n\t"           \
            "asr r5, r5, r11\n\tasr r6, r6, r11\n\tasr r7, r7, r11\n\t" clamp                       \
            "ldm r1, {r8, r9, r10}\n\t"                                                             \
            "ldr r11, [r1, #20]\n\t" store                                                          \
            "stm r1, {r8, r9, r10}\n\t"                                                             \
            "cmp r0, r11\n\t"                                                                       \
            "bne 1b")                                                                               \
            : "+r"(w), "+r"(b)                                                                      \
            :                                                                                       \
            : "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", "cc",            \
            "memory");                                                                              \
    }
TK_BLOCK(tk_block_quick_dsp, TK_PAIR(""), TK_SPLIT, "", "", TK_SATURATE, TK_STORE("strb", "1"))
TK_BLOCK(tk_block_limited_dsp, TK_PAIR(""), TK_SPLIT, "", "", TK_LIMITS, TK_STORE("strb", "1"))
TK_BLOCK(tk_block_exact_dsp, TK_PAIR("sxtb16 r12, r12, ror #8\n\t"), TK_APART,
    TK_EARLIER("r2", "r3", "r4"), TK_EARLIER("r5", "r6", "r7"), TK_LIMITS, TK_STORE("strb", "1"))
TK_BLOCK(tk_block_int16_dsp, TK_PAIR("sxtb16 r12, r12, ror #8\n\t"), TK_APART,
    TK_EARLIER("r2", "r3", "r4"), TK_EARLIER("r5", "r6", "r7"), TK_LIMITS, TK_STORE("strh", "2"))
TK_BLOCK(tk_block_int16_quick_dsp, TK_PAIR(""), TK_SPLIT, TK_EARLIER("r2", "r3", "r4"),
    TK_EARLIER("r5", "r6", "r7"), TK_LIMITS, TK_STORE("strh", "2"))

TK_HOT void tk_sum_block_dsp(struct tk_block_dsp *block, const uint8_t *w, int32_t kind)
{
    if (kind == 0) {
        tk_block_quick_dsp(block, w);
    } else if (kind == 1) {
        tk_block_limited_dsp(block, w);
    } else if (kind == 2) {
        tk_block_exact_dsp(block, w);
    } else if (kind == 3) {
        tk_block_int16_dsp(block, w);
    } else {
        tk_block_int16_quick_dsp(block, w);
    }
}

/* `words` words of three rows of int8 as interleaved pairs of int16: elements 0 and 2 of the three, then 1 and 3. */
TK_SHARED int32_t *tk_widen_dsp(int32_t *to, const int8_t *a, const int8_t *b, const int8_t *c, int32_t words)
{
    __asm__ volatile(
        "1:\n\t"
        "ldr r4, [%[a]], #4\n\t"
        "ldr r5, [%[b]], #4\n\t"
        "ldr r6, [%[c]], #4\n\t"
        "sxtb16 r8, r4, ror #8\n\tsxtb16 r9, r5, ror #8\n\tsxtb16 r10, r6, ror #8\n\t"
        "sxtb16 r4, r4\n\tsxtb16 r5, r5\n\tsxtb16 r6, r6\n\t"
        "subs %[n], %[n], #1\n\t"
        "stm %[to]!, {r4, r5, r6, r8, r9, r10}\n\t"
        "bne 1b"
        : [to] "+r"(to), [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [n] "+r"(words)
        :
        : "r4", "r5", "r6", "r8", "r9", "r10", "cc", "memory");
    return to;
}

#else

TK_COLD void tk_sum_block_dsp(struct tk_block_dsp *block, const uint8_t *w, int32_t kind)
{
    const int32_t words = (int32_t)(block->steps - 1) * 2;
    for (; w != block->end; w += 4 * (words + 8)) {
        int32_t j, k, c;
        for (j = 0; j < 3; ++j) {
            uint32_t sums[2];
            tk_sums_dsp(w, block->patches + j, 3, words, kind == 2 || kind == 3, sums);
            for (c = 0; c < 2; ++c) {
                const uint8_t *scales = w + 4 * (words + 2 + 3 * c);
                sums[c] += (uint32_t)block->rows[j];
                k = tk_clamp(tk_scaled_dsp((int32_t)sums[c], tk_load32(scales),
                    tk_load32(scales + 4), tk_load32(scales + 8)), block->lo, block->hi);
                tk_store(block->y[j], 0, k, kind > 2 ? 16 : 8);
                block->y[j] += kind > 2 ? 2 : 1;
            }
        }
    }
}

TK_COLD int32_t *tk_widen_dsp(int32_t *to, const int8_t *a, const int8_t *b, const int8_t *c, int32_t words)
{
    const int8_t *from[3];
    int32_t j, odd;
    from[0] = a;
    from[1] = b;
    from[2] = c;
    for (; words > 0; --words) {
        for (odd = 0; odd < 2; ++odd) {
            for (j = 0; j < 3; ++j) {
                *to++ = (int32_t)((uint32_t)(uint16_t)from[j][odd] | (uint32_t)(uint16_t)from[j][odd + 2] << 16);
            }
        }
        for (j = 0; j < 3; ++j) {
            from[j] += 4;
        }
    }
    return to;
}
#endif

/* The patch of an output pixel: its first segment, and the distances of kernel rows and of taps.
 * A segment is a row of the kernel, or a tap if the kernel is dilated. */
struct tk_patch_dsp {
    const int8_t *at;
    int32_t row, tap;
};

/* The patch in the image itself, or a copy in `own` with the zero point where the image ends. */
TK_HOT struct tk_patch_dsp tk_take_patch_dsp(const int8_t *x, int8_t *own, int32_t oy, int32_t ox,
    int32_t ih, int32_t iw, int32_t ic, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy,
    int32_t dx, int32_t pt, int32_t pl, int32_t xr, int32_t x_zp, int32_t taps, int32_t segment)
{
    const int32_t r = oy * sy - pt, q = ox * sx - pl, run = kw / taps;
    /* Whole words of patches in the last rows would be read behind the image. */
    const int32_t bottom = ih - (segment - run * ic + iw * ic - 1) / (iw * ic);
    struct tk_patch_dsp patch;
    int32_t ky, kx;
    patch.at = x + (r * iw + q) * ic;
    patch.row = dy * iw * ic;
    patch.tap = dx * ic;
    if (xr < ih || r < 0 || r + (kh - 1) * dy >= bottom || q < 0 || q + (kw - 1) * dx >= iw) {
        patch.at = own;
        patch.row = taps * segment;
        patch.tap = segment;
        for (ky = 0; ky < kh; ++ky) {
            const int32_t row = r + ky * dy;
            for (kx = 0; kx < taps; ++kx, own += segment) {
                const int32_t left = q + kx * dx;
                const int32_t from = tk_max(-left, 0), to = tk_min(run, iw - left);
                const int32_t is_inside = row >= 0 && row < ih && from < to;
                if (!is_inside || from > 0 || to < run) {
                    memset(own, x_zp, (size_t)(run * ic));
                }
                if (is_inside) {
                    memcpy(own + from * ic, x + (tk_ring(row, xr, ih) * iw + left + from) * ic,
                        (size_t)((to - from) * ic));
                }
            }
        }
    }
    return patch;
}

TK_HOT void tk_conv_s8_dsp(const int8_t *x, void *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t ic,
    int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy,
    int32_t dx, int32_t pt, int32_t pl, int32_t xr, int32_t x_zp, int32_t lo, int32_t hi,
    int32_t kind)
{
    const int32_t taps = dx == 1 ? 1 : kw, words = (kw / taps * ic + 3) / 4;
    const int32_t groups = kh * taps * words, pair = 4 * (2 * groups + 8);
    const int32_t is_flat = kh == 1 && kw == 1 && sy == 1 && sx == 1 && pt == 0 && pl == 0 &&
        ih == oh && iw == ow && xr >= ih;
    const int32_t images = is_flat ? 1 : n, count = (y1 - y0) * ow * (is_flat ? n : 1);
    int32_t *const patches = (int32_t *)(void *)scratch;
    struct tk_block_dsp *const block = (struct tk_block_dsp *)(void *)(patches + 6 * groups);
    int8_t *const own = (int8_t *)(block + 1);
    const int32_t size = kind > 2 ? 2 : 1; /* of an element of the result */
    int8_t *to_y = (int8_t *)y;
    int32_t image, p, j, ky, kx;
    block->patches = patches;
    block->steps = (uint32_t)groups + 1;
    block->lo = lo;
    block->hi = hi;
    block->rows[0] = block->rows[1] = block->rows[2] = 0;
    for (image = 0; image < images; ++image) {
        for (p = 0; p < count; p += 3) {
            struct tk_patch_dsp from[3];
            int32_t *to = patches;
            for (j = 0; j < 3; ++j) { /* the last block overlaps; of fewer than three pixels the last is repeated */
                const int32_t at = count < 3 ? tk_min(j, count - 1) : tk_min(p, count - 3) + j;
                block->y[j] = to_y + at * oc * size;
                if (is_flat) {
                    from[j].at = x + (y0 * ow + at) * ic;
                    from[j].row = from[j].tap = 0;
                    if (ic % 4 != 0 && at > count - (4 * words + ic - 1) / ic) {
                        from[j].at = (const int8_t *)memcpy(own + 4 * words * j, from[j].at, (size_t)ic);
                    }
                } else {
                    from[j] = tk_take_patch_dsp(x, own + 4 * groups * j, y0 + at / ow, at % ow, ih, iw,
                        ic, kh, kw, sy, sx, dy, dx, pt, pl, xr, x_zp, taps, 4 * words);
                }
            }
            for (ky = 0; ky < kh; ++ky) {
                for (kx = 0; kx < taps; ++kx) {
                    to = tk_widen_dsp(to, from[0].at + kx * from[0].tap, from[1].at + kx * from[1].tap,
                        from[2].at + kx * from[2].tap, words);
                }
                for (j = 0; j < 3; ++j) {
                    from[j].at += from[j].row;
                }
            }
            block->end = w + (oc >> 1) * pair;
            tk_sum_block_dsp(block, w, kind);
            if (oc & 1) {
                for (j = 0; j < 3; ++j) {
                    block->y[j] -= size;
                }
                block->end += pair;
                tk_sum_block_dsp(block, w + (oc >> 1) * pair, kind);
            }
            if (lut != NULL) {
                int8_t *row = to_y + (count < 3 ? 0 : tk_min(p, count - 3)) * oc;
                for (j = 0; j < tk_min(count, 3) * oc; ++j) {
                    row[j] = lut[row[j] + 128];
                }
            }
        }
        x += ih * iw * ic;
        to_y += count * oc * size;
    }
}

#endif
