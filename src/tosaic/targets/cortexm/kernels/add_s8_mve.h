/* Sum of two int8 tensors with their RESCALEs: each operand by a gathered table of 256 int32.
 *
 * Packed: the table of the first operand by its byte, that of the second, multiplier, the zero point
 * shifted to the left by the shift less 31, and 31 - shift. */
#ifndef TOSAIC_ADD_S8_MVE_H
#define TOSAIC_ADD_S8_MVE_H

#include "mve.h"

#if TK_MVE
TK_SHARED void tk_sums_mve(const int8_t *a, const int8_t *b, int8_t *y, const int32_t *left, int32_t size,
    int32_t lo, int32_t hi)
{
    __asm__ volatile(
        "vdup.32 q5, %[lo]\n\tvdup.32 q6, %[hi]\n\tldr %[lo], [%[left], #2048]\n\t"
        "vdup.32 q7, %[lo]\n\tldr %[lo], [%[left], #2052]\n\tldr %[hi], [%[left], #2056]\n\t"
        "dlstp.32 lr, %[size]\n"
        "1:\n\t"
        "vldrb.u32 q0, [%[a]], #4\n\t"
        "vldrb.u32 q2, [%[b]], #4\n\t"
        "vldrw.u32 q1, [%[left], q0, uxtw #2]\n\t"
        "vldrw.u32 q3, [%[right], q2, uxtw #2]\n\t"
        "vadd.i32 q1, q1, q3\n\t"
        "vqdmlash.s32 q1, q7, %[lo]\n\t"
        "vrshl.s32 q1, %[hi]\n\t"
        "vmax.s32 q1, q1, q5\n\t"
        "vmin.s32 q1, q1, q6\n\t"
        "vstrb.32 q1, [%[y]], #4\n\t"
        "letp lr, 1b"
        : [a] "+l"(a), [b] "+l"(b), [y] "+l"(y), [lo] "+r"(lo), [hi] "+r"(hi)
        : [left] "r"(left), [right] "r"(left + 256), [size] "r"(size)
        : "lr", "cc", "memory", TK_VECTORS);
}
#endif

TK_HOT void tk_add_s8_mve(const int8_t *a, const int8_t *b, int8_t *y, const uint8_t *w,
    const int8_t *lut, uint8_t *scratch, int32_t size, int32_t lo, int32_t hi)
{
    const int32_t *left = (const int32_t *)(const void *)w;
    int8_t *const start = y;
    int32_t i;
    (void)scratch;
#if TK_MVE
    tk_sums_mve(a, b, y, left, size, lo, hi);
#else
    for (i = 0; i < size; ++i) {
        const int32_t sum = left[(uint8_t)a[i]] + left[256 + (uint8_t)b[i]];
        const int64_t high = (((int64_t)sum * left[512]) >> 31) + left[513];
        y[i] = (int8_t)tk_clamp((int32_t)((high + ((int64_t)1 << (-left[514] - 1))) >> -left[514]), lo, hi);
    }
#endif
    if (lut != NULL) {
        for (i = 0; i < size; ++i) {
            start[i] = lut[start[i] + 128];
        }
    }
}

#endif
