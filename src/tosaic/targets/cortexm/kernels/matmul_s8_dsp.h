/* Product of int8 matrices with the DSP extension: blocks of three rows and two columns.
 *
 * A tile of columns of the second matrix is packed into the scratch memory as the weights of a
 * convolution are (conv_s8_dsp.h, kind 2 and 3), with what zero points add to a column in the bias;
 * what they add to a row is added to its sums. */
#ifndef TOSAIC_MATMUL_S8_DSP_H
#define TOSAIC_MATMUL_S8_DSP_H

#include "conv_s8_dsp.h"

#if TK_DSP
#define TK_ROW_TERMS                                                                                \
    "ldr r8, [r1, #32]\n\tadd r2, r2, r8\n\tadd r5, r5, r8\n\tldr r8, [r1, #36]\n\tadd r3, r3, r8\n\t" \
    "add r6, r6, r8\n\tldr r8, [r1, #40]\n\tadd r4, r4, r8\n\tadd r7, r7, r8\n\t"
TK_BLOCK(tk_rows_dsp, TK_PAIR("sxtb16 r12, r12, ror #8\n\t"), TK_APART,
    TK_ROW_TERMS TK_EARLIER("r2", "r3", "r4"), TK_EARLIER("r5", "r6", "r7"), TK_LIMITS,
    TK_STORE("strb", "1"))
TK_BLOCK(tk_rows_quick_dsp, TK_PAIR("sxtb16 r12, r12, ror #8\n\t"), TK_APART, TK_ROW_TERMS, "",
    TK_SATURATE, TK_STORE("strb", "1"))
TK_BLOCK(tk_rows_int16_dsp, TK_PAIR("sxtb16 r12, r12, ror #8\n\t"), TK_APART,
    TK_ROW_TERMS TK_EARLIER("r2", "r3", "r4"), TK_EARLIER("r5", "r6", "r7"), TK_LIMITS,
    TK_STORE("strh", "2"))
#endif

/* All packed columns for three rows. */
TK_HOT void tk_rows_of_dsp(struct tk_block_dsp *block, const uint8_t *w, int32_t kind)
{
#if TK_DSP
    if (kind == 3) {
        tk_rows_int16_dsp(block, w);
    } else if (kind == 0) {
        tk_rows_quick_dsp(block, w);
    } else {
        tk_rows_dsp(block, w);
    }
#else
    tk_sum_block_dsp(block, w, kind == 3 ? 3 : 2);
#endif
}

/* The sum of both int16 of a pair, and of another number. */
TK_HOT int32_t tk_pair_sum(int32_t pair, int32_t sum)
{
#if TK_DSP
    __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(pair), "r"(0x10001));
    return sum;
#else
    return sum + (int16_t)pair + (pair >> 16);
#endif
}

TK_HOT uint32_t tk_load16(const int8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Two columns one after the other in a matrix, or side by side, `step` bytes from one element to the
 * next; what is packed for them ends at the result. */
TK_SHARED int32_t *tk_columns_dsp(int32_t *to, const int8_t *from, int32_t step, int32_t c,
    int32_t a_zp, int32_t b_zp, const int32_t *scale)
{
    int32_t *const start = to++;
    int32_t left = 0, right = 0, k;
    for (k = 0; k < c; k += 4) {
        uint32_t even, odd;
        if (k + 4 > c) {
            int32_t i;
            even = odd = 0;
            for (i = 0; i < c - k; ++i) {
                const int8_t *at = step == 1 ? from + k + i : from + (k + i) * step;
                const uint32_t two = (uint32_t)(uint8_t)at[0] | (uint32_t)(uint8_t)at[step == 1 ? c : 1] << 8;
                if ((i & 1) == 0) {
                    even |= two << 8 * i;
                } else {
                    odd |= two << 8 * (i - 1);
                }
            }
        } else if (step == 1) {
            const uint32_t p = (uint32_t)tk_load32(from + k), q = (uint32_t)tk_load32(from + c + k);
            even = (p & 0xff00ffu) | (q & 0xff00ffu) << 8;
            odd = (p >> 8 & 0xff00ffu) | (q & 0xff00ff00u);
        } else {
            const int8_t *at = from + k * step;
            even = tk_load16(at) | tk_load16(at + 2 * step) << 16;
            odd = tk_load16(at + step) | tk_load16(at + 3 * step) << 16;
        }
        left = tk_pair_sum(tk_even_bytes((int32_t)odd), tk_pair_sum(tk_even_bytes((int32_t)even), left));
        right = tk_pair_sum(tk_odd_bytes((int32_t)odd), tk_pair_sum(tk_odd_bytes((int32_t)even), right));
        *to++ = (int32_t)even;
        *to++ = (int32_t)odd;
    }
    start[0] = (c * b_zp - left) * a_zp;
    *to++ = (left - right) * a_zp;
    memcpy(to, scale, 12);
    memcpy(to + 3, scale, 12);
    return to + 6;
}

/* The sum of a widened row; three rows are interleaved. */
TK_HOT int32_t tk_row_sum_dsp(const int32_t *pairs, int32_t words)
{
    int32_t sum = 0, i;
    for (i = 0; i < words; i += 2) {
        sum = tk_pair_sum(pairs[3 * i + 3], tk_pair_sum(pairs[3 * i], sum));
    }
    return sum;
}

TK_HOT void tk_matmul_s8_dsp(const int8_t *a, const int8_t *b, void *y, const uint8_t *w,
    const int8_t *lut, uint8_t *scratch, int32_t n, int32_t h, int32_t c, int32_t width,
    int32_t batches, int32_t is_transposed, int32_t tile, int32_t a_zp, int32_t b_zp,
    int32_t multiplier, int32_t offset, int32_t shift, int32_t lo, int32_t hi, int32_t kind)
{
    const int32_t groups = (c + 3) / 4, pair = 4 * (2 * groups + 8), size = kind == 3 ? 2 : 1;
    int32_t *const patches = (int32_t *)(void *)scratch;
    struct tk_block_dsp *const block = (struct tk_block_dsp *)(void *)(patches + 6 * groups);
    uint8_t *const packed = (uint8_t *)(block + 1);
    int32_t *const terms = (int32_t *)(void *)(packed + (tile + 1) / 2 * pair); /* of the rows */
    int8_t *const own = (int8_t *)(terms + h), *to = (int8_t *)y;
    int32_t scale[3], m, at, i, j;
    (void)w;
    scale[0] = multiplier;
    scale[1] = offset;
    scale[2] = shift;
    block->patches = patches;
    block->steps = (uint32_t)groups + 1;
    block->lo = lo;
    block->hi = hi;
    memset(own, 0, (size_t)(12 * groups));
    for (m = 0; m < n; ++m) {
        const int8_t *matrix = b + (batches == 1 ? 0 : m) * c * width;
        for (at = 0; at < width; at += tile) {
            const int32_t columns = tk_min(tile, width - at), first = columns == 1 ? at - 1 : at;
            const int32_t pairs = (columns + 1) / 2;
            int32_t *end = (int32_t *)(void *)packed;
            for (i = 0; i < pairs; ++i) { /* the last two columns overlap if their number is odd */
                const int32_t column = columns == 1 ? first : at + tk_min(2 * i, columns - 2);
                const int8_t *from = matrix + (is_transposed ? column * c : column);
                end = tk_columns_dsp(end, from, is_transposed ? 1 : width, c, a_zp, b_zp, scale);
            }
            for (i = 0; i < h; i += 3) {
                const int8_t *rows[3];
                for (j = 0; j < 3; ++j) {
                    const int32_t row = h < 3 ? tk_min(j, h - 1) : tk_min(i, h - 3) + j;
                    rows[j] = a + (m * h + row) * c;
                    if (c % 4 != 0) {
                        rows[j] = (const int8_t *)memcpy(own + 4 * groups * j, rows[j], (size_t)c);
                    }
                    block->y[j] = to + ((m * h + row) * width + first) * size;
                }
                tk_widen_dsp(patches, rows[0], rows[1], rows[2], groups);
                for (j = 0; j < 3; ++j) {
                    const int32_t row = h < 3 ? tk_min(j, h - 1) : tk_min(i, h - 3) + j;
                    if (at == 0) {
                        terms[row] = b_zp == 0 ? 0 : -b_zp * tk_row_sum_dsp(patches + j, 2 * groups);
                    }
                    block->rows[j] = terms[row];
                }
                block->end = packed + columns / 2 * pair;
                if (columns > 1) {
                    tk_rows_of_dsp(block, packed, kind);
                }
                if ((columns & 1) != 0) {
                    for (j = 0; j < 3 && columns > 1; ++j) {
                        block->y[j] -= size;
                    }
                    block->end += pair;
                    tk_rows_of_dsp(block, packed + columns / 2 * pair, kind);
                }
            }
        }
    }
    if (lut != NULL) {
        for (i = 0; i < n * h * width; ++i) {
            to[i] = lut[to[i] + 128];
        }
    }
}

#endif
