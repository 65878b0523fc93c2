/* Depthwise 3x3 convolution of int8 with the DSP extension: four channels at a time, strides 1 and 2.
 *
 * Two rows of the image become a line of pairs of int16, [column][channel][2]: the slots hold two
 * consecutive pairs of rows, in turn. For stride 1 the two pairs give two rows of the output, two
 * columns in a step; for stride 2 they give one row. Outside of the image a line has the zero point.
 *
 * Packed for each channel: the weights of each column, rows 0, 1, 1, 2; bias, multiplier, offset and
 * shift - 32. The last four channels overlap where their number is no multiple of four. */
#ifndef TOSAIC_DEPTHWISE_S8_DSP_H
#define TOSAIC_DEPTHWISE_S8_DSP_H

#include "dsp.h"

/* A channel: pairs of weights, rows 0 and 1, 1 and 2, of each column; then what a step needs behind its sums. */
struct tk_channel_dsp {
    int32_t weights[6];
    int32_t bias, multiplier, offset, shift;
    int8_t *y[2];
    int32_t stride;
    const int32_t *end;
    int32_t lo, hi;
};

#if TK_DSP
/* Sums a and b of two rows, from the pairs of rows A and B and the weights of a column. */
#define TK_COLUMN(a, b, A, B, u, v)                                                                 \
    "smlad " a ", " A ", " u ", " a "\n\tsmlabt " a ", " B ", " v ", " a "\n\t"                     \
    "smlatb " b ", " A ", " u ", " b "\n\tsmlad " b ", " B ", " v ", " b "\n\t"
#define TK_HALF(a, A, B, u, v)                                                                      \
    "smlad " a ", " A ", " u ", " a "\n\tsmlabt " a ", " B ", " v ", " a "\n\t"
#define TK_BOUND(a)                                                                                 \
    "cmp " a ", r7\n\tit lt\n\tmovlt " a ", r7\n\tcmp " a ", r8\n\tit gt\n\tmovgt " a ", r8\n\t"
#define TK_FOUR_SATURATED "ssat r2, #8, r2\n\tssat r3, #8, r3\n\tssat r4, #8, r4\n\tssat r5, #8, r5\n\t"
#define TK_FOUR_BOUND                                                                               \
    "ldrd r7, r8, [r1, #32]\n\t" TK_BOUND("r2") TK_BOUND("r3") TK_BOUND("r4") TK_BOUND("r5")
#define TK_TWO_SATURATED "ssat r2, #8, r2\n\tssat r4, #8, r4\n\t"
#define TK_TWO_BOUND "ldrd r7, r8, [r1, #32]\n\t" TK_BOUND("r2") TK_BOUND("r4")
#define TK_DEPTHWISE_REGISTERS                                                                      \
    "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", "cc", "memory"

/* The sums of some columns, then what is done with them, until the line ends. */
#define TK_DEPTHWISE(name, columns, rest)                                                           \
    TK_SHARED void name(const int32_t *line, struct tk_channel_dsp *channel)                        \
    {                                                                                               \
        register const int32_t *p __asm__("r0") = line;                                             \
        register struct tk_channel_dsp *k __asm__("r1") = channel;                                  \
        __asm__ volatile(                                                                           \
            TK_WITH_R7("1:\n\t"                                                                     \
            "ldm r1!, {r6, r7, r8, r9, r10, r11}\n\t"                                               \
            "ldr r2, [r1]\n\t"                                                                      \
            "ldrd r12, lr, [r0], #32\n\t" columns                                                   \
            "ldm r1, {r6, r7, r8, r9, r10, r11, r12, lr}\n\t" rest                                  \
            "cmp r0, lr\n\t"                                                                        \
            "sub r1, r1, #24\n\t"                                                                   \
            "bne 1b")                                                                               \
            : "+r"(p), "+r"(k)                                                                      \
            :                                                                                       \
            : TK_DEPTHWISE_REGISTERS);                                                              \
    }
#define TK_FOUR_REST(clamp)                                                                         \
    "smmla r2, r2, r7, r8\n\tsmmla r3, r3, r7, r8\n\tsmmla r4, r4, r7, r8\n\tsmmla r5, r5, r7, r8\n\t"\
    "asr r2, r2, r9\n\tasr r3, r3, r9\n\tasr r4, r4, r9\n\tasr r5, r5, r9\n\t" clamp                \
    "strb r5, [r11, r12]\n\tstrb r3, [r11]\n\tstrb r4, [r10, r12]\n\tstrb r2, [r10]\n\t"            \
    "add r10, r10, r12, lsl #1\n\tadd r11, r11, r12, lsl #1\n\tstrd r10, r11, [r1, #16]\n\t"
#define TK_TWO_REST(clamp)                                                                          \
    "smmla r2, r2, r7, r8\n\tsmmla r4, r4, r7, r8\n\tasr r2, r2, r9\n\tasr r4, r4, r9\n\t" clamp    \
    "strb r4, [r10, r12]\n\tstrb r2, [r10]\n\tadd r10, r10, r12, lsl #1\n\tstr r10, [r1, #16]\n\t"
#define TK_DEPTHWISE_1(name, A, B, clamp)                                                           \
    TK_DEPTHWISE(name,                                                                              \
        "mov r3, r2\n\tmov r4, r2\n\tmov r5, r2\n\t" TK_COLUMN("r2", "r3", A, B, "r6", "r7")        \
        "ldrd r12, lr, [r0], #32\n\t" TK_COLUMN("r2", "r3", A, B, "r8", "r9")                       \
            TK_COLUMN("r4", "r5", A, B, "r6", "r7")                                                 \
        "ldrd r12, lr, [r0]\n\t" TK_COLUMN("r2", "r3", A, B, "r10", "r11")                          \
            TK_COLUMN("r4", "r5", A, B, "r8", "r9")                                                 \
        "ldrd r12, lr, [r0, #32]\n\t" TK_COLUMN("r4", "r5", A, B, "r10", "r11"),                    \
        TK_FOUR_REST(clamp))
#define TK_DEPTHWISE_2(name, A, B, clamp)                                                           \
    TK_DEPTHWISE(name,                                                                              \
        "mov r4, r2\n\t" TK_HALF("r2", A, B, "r6", "r7")                                            \
        "ldrd r12, lr, [r0], #32\n\t" TK_HALF("r2", A, B, "r8", "r9")                               \
        "ldrd r12, lr, [r0], #32\n\t" TK_HALF("r2", A, B, "r10", "r11")                             \
            TK_HALF("r4", A, B, "r6", "r7")                                                         \
        "ldrd r12, lr, [r0], #32\n\t" TK_HALF("r4", A, B, "r8", "r9")                               \
        "ldrd r12, lr, [r0]\n\t" TK_HALF("r4", A, B, "r10", "r11"),                                 \
        TK_TWO_REST(clamp))
#define TK_DEPTHWISE_ROW(name, A, B, clamp)                                                         \
    TK_DEPTHWISE(name,                                                                              \
        "mov r4, r2\n\t" TK_HALF("r2", A, B, "r6", "r7")                                            \
        "ldrd r12, lr, [r0], #32\n\t" TK_HALF("r2", A, B, "r8", "r9")                               \
            TK_HALF("r4", A, B, "r6", "r7")                                                         \
        "ldrd r12, lr, [r0]\n\t" TK_HALF("r2", A, B, "r10", "r11")                                  \
            TK_HALF("r4", A, B, "r8", "r9")                                                         \
        "ldrd r12, lr, [r0, #32]\n\t" TK_HALF("r4", A, B, "r10", "r11"),                            \
        TK_TWO_REST(clamp))
TK_DEPTHWISE_1(tk_depthwise1_even_dsp, "r12", "lr", TK_FOUR_SATURATED)
TK_DEPTHWISE_1(tk_depthwise1_odd_dsp, "lr", "r12", TK_FOUR_SATURATED)
TK_DEPTHWISE_1(tk_depthwise1_even_exact_dsp, "r12", "lr", TK_FOUR_BOUND)
TK_DEPTHWISE_1(tk_depthwise1_odd_exact_dsp, "lr", "r12", TK_FOUR_BOUND)
TK_DEPTHWISE_2(tk_depthwise2_even_dsp, "r12", "lr", TK_TWO_SATURATED)
TK_DEPTHWISE_2(tk_depthwise2_odd_dsp, "lr", "r12", TK_TWO_SATURATED)
TK_DEPTHWISE_2(tk_depthwise2_even_exact_dsp, "r12", "lr", TK_TWO_BOUND)
TK_DEPTHWISE_2(tk_depthwise2_odd_exact_dsp, "lr", "r12", TK_TWO_BOUND)
TK_DEPTHWISE_ROW(tk_depthwise_row_dsp, "r12", "lr", TK_TWO_SATURATED)
TK_DEPTHWISE_ROW(tk_depthwise_row_exact_dsp, "r12", "lr", TK_TWO_BOUND)

TK_HOT void tk_depthwise_step_dsp(const int32_t *line, struct tk_channel_dsp *channel,
    int32_t is_odd, int32_t is_quick, int32_t s, int32_t is_row)
{
    if (is_row) { /* the only one, of the first two pairs */
        (is_quick ? tk_depthwise_row_dsp : tk_depthwise_row_exact_dsp)(line, channel);
        return;
    }
    if (s == 1 && !is_quick) {
        (is_odd ? tk_depthwise1_odd_exact_dsp : tk_depthwise1_even_exact_dsp)(line, channel);
    } else if (s == 1) {
        (is_odd ? tk_depthwise1_odd_dsp : tk_depthwise1_even_dsp)(line, channel);
    } else if (!is_quick) {
        (is_odd ? tk_depthwise2_odd_exact_dsp : tk_depthwise2_even_exact_dsp)(line, channel);
    } else {
        (is_odd ? tk_depthwise2_odd_dsp : tk_depthwise2_even_dsp)(line, channel);
    }
}

/* Two rows of four channels as pairs of int16 in one slot of a line. */
TK_SHARED void tk_line_dsp(int32_t *to, const int32_t *end, const int8_t *a, const int8_t *b, int32_t a_step, int32_t b_step)
{
    __asm__ volatile(
        "1:\n\t"
        "ldr r4, [%[a]]\n\t"
        "ldr r5, [%[b]]\n\t"
        "add %[a], %[a], %[sa]\n\t"
        "add %[b], %[b], %[sb]\n\t"
        "sxtb16 r6, r4\n\t"
        "sxtb16 r8, r5\n\t"
        "sxtb16 r4, r4, ror #8\n\t"
        "sxtb16 r5, r5, ror #8\n\t"
        "pkhtb r9, r8, r6, asr #16\n\t"
        "pkhbt r6, r6, r8, lsl #16\n\t"
        "pkhtb r8, r5, r4, asr #16\n\t"
        "pkhbt r4, r4, r5, lsl #16\n\t"
        "str r9, [%[to], #16]\n\t"
        "str r8, [%[to], #24]\n\t"
        "str r4, [%[to], #8]\n\t"
        "str r6, [%[to]], #32\n\t"
        "cmp %[to], %[end]\n\t"
        "bne 1b"
        : [to] "+r"(to), [a] "+r"(a), [b] "+r"(b)
        : [end] "r"(end), [sa] "r"(a_step), [sb] "r"(b_step)
        : "r4", "r5", "r6", "r8", "r9", "cc", "memory");
}

#else

TK_COLD int32_t tk_half_dsp(int32_t word, int32_t which) { return (int16_t)((uint32_t)word >> (16 * which)); }

TK_COLD void tk_depthwise_step_dsp(const int32_t *line, struct tk_channel_dsp *k, int32_t is_odd,
    int32_t is_quick, int32_t s, int32_t is_row)
{
    (void)is_quick;
    do {
        int32_t row, column, tap, lane;
        for (row = is_row ? 0 : 2 - s; row >= 0; --row) {
            for (column = 1; column >= 0; --column) {
                uint32_t sum = (uint32_t)k->bias;
                for (tap = 0; tap < 3; ++tap) {
                    const int32_t *at = line + 8 * (s * column + tap);
                    for (lane = 0; lane < 3; ++lane) {
                        const int32_t weight = lane == 0 ? tk_half_dsp(k->weights[2 * tap], 0) : tk_half_dsp(k->weights[2 * tap + 1], lane - 1);
                        sum += (uint32_t)(weight * tk_half_dsp(at[((row + lane) >> 1) ^ is_odd], (row + lane) & 1));
                    }
                }
                k->y[row][column * k->stride] = (int8_t)tk_clamp(
                    tk_scaled_dsp((int32_t)sum, k->multiplier, k->offset, k->shift), k->lo, k->hi);
            }
        }
        k->y[0] += 2 * k->stride;
        k->y[1] += 2 * k->stride;
        line += 16 * s;
    } while (line != k->end);
}

TK_COLD void tk_line_dsp(int32_t *to, const int32_t *end, const int8_t *a, const int8_t *b, int32_t a_step, int32_t b_step)
{
    int32_t c;
    for (; to != end; to += 8, a += a_step, b += b_step) {
        for (c = 0; c < 4; ++c) {
            to[2 * c] = (int32_t)((uint32_t)(uint16_t)a[c] | (uint32_t)(uint16_t)b[c] << 16);
        }
    }
}
#endif

/* Both int16 of a pair, shifted to the left. */
TK_HOT int32_t tk_pair_left(int32_t pair, int32_t left)
{
    const uint32_t bits = (uint32_t)pair;
    return (int32_t)((bits & 0xffff0000u) << left | (bits << left & 0xffffu));
}

TK_HOT void tk_depthwise_s8_dsp(const int8_t *x, int8_t *y, const uint8_t *w, const int8_t *lut,
    uint8_t *scratch, int32_t y0, int32_t y1, int32_t n, int32_t ih, int32_t iw, int32_t ic,
    int32_t oh, int32_t ow, int32_t oc, int32_t kh, int32_t kw, int32_t sy, int32_t sx, int32_t dy,
    int32_t dx, int32_t pt, int32_t pl, int32_t xr, int32_t x_zp, int32_t lo, int32_t hi,
    int32_t is_quick)
{
    const int32_t columns = sx * ((ow + 1) / 2 * 2 - 1) + 3, rows = sy == 1 ? 2 : 1;
    const int32_t is_row = sy == 1 && y1 - y0 == 1;
    const int32_t first = tk_min(pl, columns), last = tk_min(pl + iw, columns);
    struct tk_channel_dsp *const channels = (struct tk_channel_dsp *)(void *)scratch;
    int32_t *const line = (int32_t *)(void *)(channels + 4);
    int8_t *const outside = (int8_t *)(line + 8 * columns);
    const int32_t nothing = (int32_t)((uint32_t)(uint16_t)x_zp * 0x10001u);
    int32_t image, c, i, j, oy, pair;
    (void)oh;
    (void)kh;
    (void)kw;
    (void)dy;
    (void)dx;
    memset(outside, x_zp, 4);
    for (image = 0; image < n; ++image) {
        for (c = 0; c < ic; c += 4) {
            const int32_t base = tk_min(c, ic - 4);
            for (i = 0; i < 4; ++i) {
                const int32_t *from = (const int32_t *)(const void *)w + 7 * (base + i);
                const int32_t left = from[6] >> 8; /* weights have room for the shift of the sum */
                for (j = 0; j < 3; ++j) {
                    channels[i].weights[2 * j] = tk_pair_left(tk_even_bytes(from[j]), left);
                    channels[i].weights[2 * j + 1] = tk_pair_left(tk_odd_bytes(from[j]), left);
                }
                memcpy(&channels[i].bias, from + 3, 12);
                channels[i].bias = (int32_t)((uint32_t)from[3] << left);
                channels[i].shift = from[6] & 255;
                channels[i].lo = lo;
                channels[i].hi = hi;
            }
            for (j = 0; j < 8 * columns; ++j) {
                if (j == 8 * first) {
                    j = 8 * last;
                    if (j >= 8 * columns) {
                        break;
                    }
                }
                line[j] = nothing;
            }
            for (pair = -1, oy = y0; oy < y1; ++pair) {
                const int32_t r = y0 * sy - pt + 2 * (pair + 1), slot = (pair + 1) & 1;
                const int32_t is_a = r >= 0 && r < ih, is_b = r + 1 >= 0 && r + 1 < ih;
                if (last > first) {
                    tk_line_dsp(line + 8 * first + slot, line + 8 * last + slot,
                        is_a ? x + (tk_ring(r, xr, ih) * iw + first - pl) * ic + base : outside,
                        is_b ? x + (tk_ring(r + 1, xr, ih) * iw + first - pl) * ic + base : outside,
                        is_a ? ic : 0, is_b ? ic : 0);
                }
                if (pair >= 0) {
                    int8_t *to = y + (oy - y0) * ow * oc + base;
                    int8_t *below = rows == 2 && oy + 1 < y1 ? to + ow * oc : to;
                    for (i = 0; i < 4; ++i, ++to, ++below) {
                        channels[i].y[0] = to;
                        channels[i].y[1] = below;
                        if (ow > 1) {
                            channels[i].stride = oc;
                            channels[i].end = line + 2 * i + 8 * sx * (ow / 2 * 2);
                            tk_depthwise_step_dsp(line + 2 * i, channels + i, pair & 1, is_quick, sx, is_row);
                        }
                        if (ow & 1) {
                            const int32_t at = tk_max(ow - 2, 0);
                            channels[i].stride = ow > 1 ? oc : 0;
                            channels[i].y[0] = to + at * oc;
                            channels[i].y[1] = below + at * oc;
                            channels[i].end = line + 2 * i + 8 * sx * (at + 2);
                            tk_depthwise_step_dsp(line + 2 * i + 8 * sx * at, channels + i, pair & 1, is_quick, sx, is_row);
                        }
                    }
                    oy += rows;
                }
            }
        }
        if (lut != NULL) {
            for (j = 0; j < (y1 - y0) * ow * oc; ++j) {
                y[j] = lut[y[j] + 128];
            }
        }
        x += ih * iw * ic;
        y += (y1 - y0) * ow * oc;
    }
}

#endif
