/* Product of int8 matrices with the vector extension: blocks of three rows and four columns.
 *
 * A tile of columns of the second matrix is packed into the scratch memory as the weights of a
 * convolution are (conv_s8_mve.h), with what zero points add to a column in the bias; what they add to
 * a row is added to its sums. */
#ifndef TOSAIC_MATMUL_S8_MVE_H
#define TOSAIC_MATMUL_S8_MVE_H

#include "conv_s8_mve.h"

#if TK_MVE
#define TK_ROW_TERMS_MVE                                                                            \
    "ldrd r2, r4, [r12, #44]\n\tldr r10, [r12, #52]\n\tvadd.i32 q4, q4, r2\n\t"                     \
    "vadd.i32 q5, q5, r4\n\tvadd.i32 q6, q6, r10\n\t"
#define TK_ROWS_MVE(name, store)                                                                    \
    TK_SHARED void name(struct tk_block_mve *block, const uint8_t *packed)                      \
    {                                                                                               \
        register const uint8_t *w __asm__("r9") = packed;                                           \
        register struct tk_block_mve *b __asm__("r12") = block;                                     \
        TK_BLOCK_MVE(TK_ROW_TERMS_MVE TK_EARLIER_MVE, store);                                       \
    }
TK_ROWS_MVE(tk_rows_int8_mve, TK_STORE_MVE("vstrb.32", "4"))
TK_ROWS_MVE(tk_rows_int16_mve, TK_STORE_MVE("vstrh.32", "8"))
#endif

/* All packed columns for three rows. */
TK_HOT void tk_rows_of_mve(struct tk_block_mve *block, const uint8_t *w, int32_t size)
{
#if TK_MVE
    (size == 1 ? tk_rows_int8_mve : tk_rows_int16_mve)(block, w);
#else
    tk_sum_block_mve(block, w, size == 1 ? 1 : 2);
#endif
}

/* The sum of `size` bytes. */
TK_HOT int32_t tk_sum_mve(const int8_t *from, int32_t size)
{
    int32_t sum = 0;
#if TK_MVE
    __asm__ volatile("dlstp.8 lr, %[n]\n1:\n\tvldrb.8 q0, [%[p]], #16\n\tvaddva.s8 %[s], q0\n\tletp lr, 1b"
        : [p] "+l"(from), [s] "+Te"(sum)
        : [n] "r"(size)
        : "lr", "cc", "d0", "d1", "memory");
#else
    int32_t i;
    for (i = 0; i < size; ++i) {
        sum += from[i];
    }
#endif
    return sum;
}

/* Four columns, `step` bytes from one element to the next, `apart` bytes from one to another. */
TK_SHARED void tk_columns_mve(int8_t *to, const int8_t *from, int32_t step, int32_t apart,
    int32_t c, int32_t a_zp, int32_t b_zp, const int32_t *scale)
{
    const int32_t steps = (c + 15) / 16;
    int32_t *const scales = (int32_t *)(void *)(to + 64 * steps);
    int32_t lane, k;
    for (lane = 0; lane < 4; ++lane, from += apart) {
        int8_t *const row = to + (lane & 1) * 32 * steps + (lane >> 1) * 16;
        int32_t sum = 0;
        for (k = 0; k < steps; ++k) {
            const int32_t count = tk_min(16, c - 16 * k);
#if TK_MVE
            const int8_t *at = from + 16 * k * step;
            if (step == 1) {
                __asm__ volatile("vctp.8 %[n]\n\tvpst\n\tvldrbt.8 q0, [%[p]]\n\tvaddva.s8 %[s], q0\n\t"
                                 "vstrb.8 q0, [%[t]]"
                    : [s] "+Te"(sum)
                    : [n] "r"(count), [p] "r"(at), [t] "r"(row + 32 * k)
                    : "cc", "memory", "d0", "d1");
            } else {
                /* Offsets of 16 bits: eight elements at a time. */
                __asm__ volatile("movs r4, #0\n\tvidup.u16 q1, r4, #1\n\tvmul.i16 q1, q1, %[d]\n\t"
                                 "vctp.16 %[n]\n\tvpst\n\tvldrbt.u16 q0, [%[p], q1]\n\t"
                                 "vctp.16 %[m]\n\tvpst\n\tvldrbt.u16 q2, [%[h], q1]\n\t"
                                 "vstrb.16 q0, [%[t]]\n\tvstrb.16 q2, [%[t], #8]\n\t"
                                 "vldrb.8 q0, [%[t]]\n\tvaddva.s8 %[s], q0"
                    : [s] "+Te"(sum)
                    : [n] "r"(count), [m] "r"(tk_max(count - 8, 0)), [p] "r"(at), [h] "r"(at + 8 * step),
                    [t] "l"(row + 32 * k), [d] "r"(step)
                    : "r4", "cc", "memory", "d0", "d1", "d2", "d3", "d4", "d5");
            }
#else
            int32_t i;
            for (i = 0; i < 16; ++i) {
                row[32 * k + i] = (int8_t)(i < count ? from[(16 * k + i) * step] : 0);
                sum += row[32 * k + i];
            }
#endif
        }
        scales[lane] = (c * b_zp - sum) * a_zp;
        scales[4 + lane] = scale[0];
        scales[8 + lane] = scale[1];
    }
}

TK_HOT void tk_matmul_s8_mve(const int8_t *a, const int8_t *b, void *y, const uint8_t *w,
    const int8_t *lut, uint8_t *scratch, int32_t n, int32_t h, int32_t c, int32_t width,
    int32_t batches, int32_t is_transposed, int32_t tile, int32_t a_zp, int32_t b_zp,
    int32_t multiplier, int32_t shift, int32_t y_zp, int32_t lo, int32_t hi, int32_t size)
{
    const int32_t steps = (c + 15) / 16, four = 64 * steps + 48;
    struct tk_block_mve *const block = (struct tk_block_mve *)(void *)scratch;
    uint8_t *const packed = (uint8_t *)(block + 1);
    int32_t *const terms = (int32_t *)(void *)(packed + tile / 4 * four); /* of the rows */
    int8_t *const own = (int8_t *)(terms + h), *to = (int8_t *)y;
    int32_t scale[2], m, at, i, j;
    (void)w;
    scale[0] = multiplier;
    scale[1] = shift;
    block->more = steps - 1;
    block->zp = y_zp;
    block->lo = lo;
    block->hi = hi;
    for (m = 0; m < n; ++m) {
        const int8_t *matrix = b + (batches == 1 ? 0 : m) * c * width;
        for (i = 0; i < h; ++i) {
            terms[i] = b_zp == 0 ? 0 : -b_zp * tk_sum_mve(a + (m * h + i) * c, c);
        }
        for (at = 0; at < width; at += tile) {
            /* The last tile, and the last four columns of a tile, overlap. */
            const int32_t columns = tk_min(tile, width), first = tk_min(at, width - columns);
            for (i = 0; i < columns; i += 4) {
                const int32_t column = first + tk_min(i, columns - 4);
                tk_columns_mve((int8_t *)packed + i / 4 * four, matrix + (is_transposed ? column * c : column),
                    is_transposed ? 1 : width, is_transposed ? c : 1, c, a_zp, b_zp, scale);
            }
            for (i = 0; i < h; i += 3) {
                for (j = 0; j < 3; ++j) {
                    const int32_t row = h < 3 ? tk_min(j, h - 1) : tk_min(i, h - 3) + j;
                    block->x[j] = a + (m * h + row) * c;
                    if (c % 16 != 0 && (n * h - (m * h + row)) * c < 16 * steps) {
                        block->x[j] = (const int8_t *)memcpy(own + 16 * steps * j, block->x[j], (size_t)c);
                    }
                    block->y[j] = to + ((m * h + row) * width + first) * size;
                    block->rows[j] = terms[row];
                }
                block->end = packed + columns / 4 * four;
                tk_rows_of_mve(block, packed, size);
                if ((columns & 3) != 0) {
                    for (j = 0; j < 3; ++j) {
                        block->y[j] -= (4 - (columns & 3)) * size;
                    }
                    block->end += four;
                    tk_rows_of_mve(block, packed + columns / 4 * four, size);
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
