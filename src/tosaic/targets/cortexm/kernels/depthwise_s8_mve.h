/* Depthwise 3x3 convolution of int8 with the vector extension: sixteen channels at a time.
 *
 * Four rows of the image become lines of words, [column][channel][row], by VST4. A gathered vector has
 * four columns of one channel, and VMLADAV with the kernel at its four places gives two rows and two
 * columns of the output for stride 1; for stride 2 four vectors give four columns of one row, and two
 * vectors do where one row is wanted.
 *
 * Packed for each channel, as words: zero, the three columns of the kernel (rows 0, 1, 2, zero), zero,
 * bias, multiplier, 31 - shift. */
#ifndef TOSAIC_DEPTHWISE_S8_MVE_H
#define TOSAIC_DEPTHWISE_S8_MVE_H

#include "mve.h"

/* What the loop over the channels of a line needs; the assembly knows the places. */
struct tk_lines_mve {
    int8_t *y;
    int32_t steps;
    int32_t y_back;     /* one more step, so many bytes before its place; 0: none */
    const uint8_t *end; /* of the packed channels */
    int32_t line_back;
    uint32_t mask;      /* of lanes that are stored, four bits each */
    int32_t zp, y_step;
    int32_t gather[4];  /* places of four columns, a step before the first */
    int32_t scatter[4]; /* places of the four outputs of a step */
    int32_t lo[4], hi[4];
};

#if TK_MVE
/* Sums in r0 r2 r4 r6; bias, multiplier and shift in r1 r3 r5, zero point in r7. */
#define TK_SCALE_MVE(before)                                                                        \
    "vmov q0[2], q0[0], r0, r4\n\tvmov q0[3], q0[1], r2, r6\n\t"                                    \
    "vadd.i32 q0, q0, r1\n\t" before                                                                \
    "vqdmulh.s32 q0, q0, r3\n\tvrshl.s32 q0, r5\n\tvadd.i32 q0, q0, r7\n\t"
#define TK_QUICK_MVE TK_SCALE_MVE("") "vqmovnb.s32 q0, q0\n\tvqmovnb.s16 q0, q0\n\tvstrb.32 q0, [r9, q2]\n\t"
#define TK_EXACT_MVE                                                                                \
    TK_SCALE_MVE("lsrs r0, r5, #8\n\tvshl.s32 q0, r0\n\t")                                          \
    "vldrw.32 q3, [r12, #64]\n\tvmax.s32 q0, q0, q3\n\tvldrw.32 q3, [r12, #80]\n\t"                 \
    "vmin.s32 q0, q0, q3\n\tvpst\n\tvstrbt.32 q0, [r9, q2]\n\t"
#define TK_STRIDE_1_MVE                                                                             \
    "vldrw.32 q0, [q1, #128]!\n\tvmladav.s8 r0, q0, q4\n\tvmladav.s8 r2, q0, q5\n\t"                \
    "vmladav.s8 r4, q0, q6\n\tvmladav.s8 r6, q0, q7\n\t"
#define TK_STRIDE_2_MVE                                                                             \
    "vldrw.32 q0, [q1, #128]!\n\tvldrw.32 q5, [q1, #128]!\n\tvmladav.s8 r0, q0, q4\n\t"             \
    "vldrw.32 q6, [q1, #128]!\n\tvmladav.s8 r2, q5, q4\n\tvldrw.32 q7, [q1, #128]!\n\t"             \
    "vmladav.s8 r4, q6, q4\n\tvmladav.s8 r6, q7, q4\n\t"
#define TK_ROW_1_MVE                                                                                \
    "vldrw.32 q0, [q1, #128]!\n\tvldrw.32 q3, [q1, #128]!\n\tvmladav.s8 r0, q0, q4\n\t"             \
    "vmladav.s8 r2, q0, q6\n\tvmladav.s8 r4, q3, q4\n\tvmladav.s8 r6, q3, q6\n\t"
#define TK_LINES_MVE(name, step, store)                                                             \
    TK_SHARED void name(struct tk_lines_mve *lines, const uint8_t *packed, const int8_t *line)      \
    {                                                                                               \
        register struct tk_lines_mve *k __asm__("r12") = lines;                                     \
        register const uint8_t *w __asm__("r11") = packed;                                          \
        register const int8_t *p __asm__("r10") = line;                                             \
        __asm__ volatile(                                                                           \
            TK_WITH_R7("ldr r0, [r12, #20]\n\t"                                                     \
            "vldrw.32 q2, [r12, #48]\n\t"                                                           \
            "ldrd r7, r8, [r12, #24]\n\t"                                                           \
            "vmsr p0, r0\n"                                                                         \
            "1:\n\t"                                                                                \
            "ldrd r9, r2, [r12]\n\t"                                                                \
            "vldrw.32 q1, [r12, #32]\n\t"                                                           \
            "vldrw.32 q6, [r11]\n\t"                                                                \
            "vldrw.32 q4, [r11, #4]\n\t"                                                            \
            "dls lr, r2\n\t"                                                                        \
            "adds r0, r9, #1\n\t"                                                                   \
            "add r11, r11, #20\n\t"                                                                 \
            "str r0, [r12]\n\t"                                                                     \
            "ldm r11!, {r1, r3, r5}\n\t"                                                            \
            "vadd.i32 q1, q1, r10\n\t"                                                              \
            "add r10, r10, #4\n\t"                                                                  \
            "vshl.i32 q5, q4, #8\n\t"                                                               \
            "vshl.i32 q7, q6, #8\n"                                                                 \
            "2:\n\t" step store "add r9, r9, r8\n\t"                                                \
            "le lr, 2b\n\t"                                                                         \
            "ldrd r0, r2, [r12, #8]\n\t"                                                            \
            "cbz r0, 3f\n\t"                                                                        \
            "ldr r4, [r12, #16]\n\t"                                                                \
            "subs r0, r9, r0\n\t"                                                                   \
            "mov r9, r0\n\t"                                                                        \
            "vsub.i32 q1, q1, r4\n\t" step store "ldr r2, [r12, #12]\n"                             \
            "3:\n\t"                                                                                \
            "cmp r11, r2\n\t"                                                                       \
            "bne 1b")                                                                               \
            : "+r"(k), "+r"(w), "+r"(p)                                                             \
            :                                                                                       \
            : "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r9", "lr", "cc", "memory",           \
            TK_VECTORS);                                                                            \
    }
TK_LINES_MVE(tk_lines_1_quick_mve, TK_STRIDE_1_MVE, TK_QUICK_MVE)
TK_LINES_MVE(tk_lines_1_mve, TK_STRIDE_1_MVE, TK_EXACT_MVE)
TK_LINES_MVE(tk_lines_2_quick_mve, TK_STRIDE_2_MVE, TK_QUICK_MVE)
TK_LINES_MVE(tk_lines_2_mve, TK_STRIDE_2_MVE, TK_EXACT_MVE)
TK_LINES_MVE(tk_lines_row_quick_mve, TK_ROW_1_MVE, TK_QUICK_MVE)
TK_LINES_MVE(tk_lines_row_mve, TK_ROW_1_MVE, TK_EXACT_MVE)

TK_HOT void tk_sum_lines_mve(struct tk_lines_mve *lines, const uint8_t *w, const int8_t *line,
    int32_t s, int32_t is_row, int32_t is_quick)
{
    if (is_row) {
        (is_quick ? tk_lines_row_quick_mve : tk_lines_row_mve)(lines, w, line);
    } else if (s == 1) {
        (is_quick ? tk_lines_1_quick_mve : tk_lines_1_mve)(lines, w, line);
    } else {
        (is_quick ? tk_lines_2_quick_mve : tk_lines_2_mve)(lines, w, line);
    }
}

/* `columns` columns of up to 16 channels of four rows, interleaved. */
TK_SHARED void tk_interleave_mve(int8_t *to, const int8_t *const *rows, const int32_t *steps,
    int32_t columns, int32_t channels)
{
    const int8_t *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
    __asm__ volatile(
        "vctp.8 %[channels]\n\t"
        "dls lr, %[columns]\n"
        "1:\n\t"
        "vpstttt\n\t"
        "vldrbt.8 q0, [%[a]]\n\tvldrbt.8 q1, [%[b]]\n\t"
        "vldrbt.8 q2, [%[c]]\n\tvldrbt.8 q3, [%[d]]\n\t"
        "add %[a], %[a], %[sa]\n\tadd %[b], %[b], %[sb]\n\t"
        "add %[c], %[c], %[sc]\n\tadd %[d], %[d], %[sd]\n\t"
        "vst40.8 {q0, q1, q2, q3}, [%[to]]\n\tvst41.8 {q0, q1, q2, q3}, [%[to]]\n\t"
        "vst42.8 {q0, q1, q2, q3}, [%[to]]\n\tvst43.8 {q0, q1, q2, q3}, [%[to]]!\n\t"
        "le lr, 1b"
        : [to] "+r"(to), [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d)
        : [sa] "r"(steps[0]), [sb] "r"(steps[1]), [sc] "r"(steps[2]), [sd] "r"(steps[3]),
        [columns] "r"(columns), [channels] "r"(channels)
        : "lr", "cc", "memory", "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7");
}

#else

TK_COLD void tk_sum_lines_mve(struct tk_lines_mve *k, const uint8_t *w, const int8_t *line, int32_t s,
    int32_t is_row, int32_t is_quick)
{
    const int32_t is_two = s == 1 && !is_row; /* rows of the output */
    (void)is_quick;
    for (; w != k->end; w += 32, line += 4, ++k->y) {
        int32_t step, lane, column, row;
        for (step = 0; step < k->steps + (k->y_back != 0); ++step) {
            const int32_t is_more = step == k->steps;
            const int8_t *from = line + 128 + k->gather[0] + 128 * step * (is_two ? 1 : 2 * s) - (is_more ? k->line_back : 0);
            int8_t *to = k->y + step * k->y_step - (is_more ? k->y_back : 0);
            for (lane = 0; lane < 4; ++lane) {
                const int32_t right = is_two ? lane >> 1 : s * lane, below = is_two ? lane & 1 : 0;
                uint32_t sum = (uint32_t)tk_load32(w + 20);
                if ((k->mask >> (4 * lane) & 1) == 0) {
                    continue;
                }
                for (column = 0; column < 3; ++column) {
                    for (row = 0; row < 3; ++row) {
                        sum += (uint32_t)((int8_t)w[4 + 4 * column + row] * from[64 * (right + column) + below + row]);
                    }
                }
                to[k->scatter[lane]] = (int8_t)tk_clamp(k->zp + tk_scaled_mve((int32_t)sum,
                    tk_load32(w + 24), tk_load32(w + 28)), k->lo[0], k->hi[0]);
            }
        }
    }
}

TK_COLD void tk_interleave_mve(int8_t *to, const int8_t *const *rows, const int32_t *steps,
    int32_t columns, int32_t channels)
{
    int32_t i, j, k;
    for (i = 0; i < columns; ++i, to += 64) {
        for (j = 0; j < channels; ++j) {
            for (k = 0; k < 4; ++k) {
                to[4 * j + k] = rows[k][i * steps[k] + j];
            }
        }
    }
}
#endif

TK_HOT void tk_depthwise_s8_mve(const int8_t *x, int8_t *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t ic,
    int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy,
    int32_t dx, int32_t pt, int32_t pl, int32_t xr, int32_t x_zp, int32_t y_zp,
    int32_t lo, int32_t hi, int32_t is_quick)
{
    const int32_t rows = y1 - y0, is_row = sx == 1 && rows == 1;
    const int32_t is_two = sx == 1 && !is_row; /* rows of the output in a step; else four columns */
    const int32_t columns = tk_max(sx * ow + 2, sx == 1 ? 6 : 10);
    const int32_t first = tk_min(pl, columns), last = tk_min(pl + iw, columns);
    const int32_t back = is_two ? (ow < 2 ? 0 : ow % 2) : ow < 4 ? 0 : (4 - ow % 4) % 4;
    struct tk_lines_mve *const lines = (struct tk_lines_mve *)(void *)scratch;
    int8_t *const line = (int8_t *)(lines + 1), *const outside = line + 64 * columns;
    int32_t image, c, i, oy;
    (void)oh;
    (void)kh;
    (void)kw;
    (void)dy;
    (void)dx;
    memset(line, x_zp, (size_t)(64 * first));
    memset(line + 64 * last, x_zp, (size_t)(64 * (columns - last) + 16));
    lines->steps = tk_max(is_two ? ow / 2 : ow / 4, 1);
    lines->y_back = back * oc;
    lines->line_back = back * sx * 64;
    lines->zp = y_zp;
    lines->y_step = (is_two ? 2 : 4) * oc;
    for (i = 0; i < 4; ++i) {
        lines->gather[i] = 64 * i - 128;
        lines->scatter[i] = is_two ? (i & 1) * ow * oc + (i >> 1) * oc : i * oc;
        lines->lo[i] = lo;
        lines->hi[i] = hi;
    }
    for (image = 0; image < n; ++image) {
        for (c = 0; c < ic; c += 16) {
            const int32_t channels = tk_min(16, ic - c);
            lines->end = w + 32 * (c + channels);
            for (oy = 0; oy < rows; oy += 1 + is_two) {
                const int32_t at = is_two ? tk_min(oy, rows - 2) : oy, r = (y0 + at) * sy - pt;
                const int8_t *from[4];
                int32_t steps[4];
                uint32_t mask = 0xffff;
                for (i = 0; i < 4; ++i) {
                    const int32_t is_inside = r + i >= 0 && r + i < ih;
                    from[i] = is_inside ? x + (tk_ring(r + i, xr, ih) * iw + first - pl) * ic + c : outside;
                    steps[i] = is_inside ? ic : 0;
                }
                if (last > first) {
                    tk_interleave_mve(line + 64 * first, from, steps, last - first, channels);
                }
                if (is_two) {
                    mask = ow < 2 ? 0x00ffu : 0xffffu;
                } else if (ow < 4) {
                    mask = (1u << (4 * ow)) - 1;
                }
                lines->y = y + at * ow * oc + c;
                lines->mask = mask;
                tk_sum_lines_mve(lines, w + 32 * c, line, sx, is_row, is_quick && mask == 0xffff);
            }
        }
        if (lut != NULL) {
            for (i = 0; i < rows * ow * oc; ++i) {
                y[i] = lut[y[i] + 128];
            }
        }
        x += ih * iw * ic;
        y += rows * ow * oc;
    }
}

#endif
