/* Sum of two int8 tensors with their RESCALEs: each operand by a gathered table of 256 int32.
 *
 * Packed: the table of the first operand by its byte, that of the second, multiplier, the zero point
 * shifted to the left by the shift less 31, and 31 - shift. */
#ifndef TOSAIC_ADD_S8_MVE_H
#define TOSAIC_ADD_S8_MVE_H

#include "mve.h"

TK_HOT void tk_add_s8_mve(const int8_t *a, const int8_t *b, int8_t *y, const uint8_t *w,
    const int8_t *lut, uint8_t *scratch, int32_t size, int32_t lo, int32_t hi)
{
    const int32_t *left = (const int32_t *)(const void *)w, *right = left + 256;
    int8_t *const start = y;
    int32_t i;
    (void)scratch;
#if TK_MVE
    __asm__ volatile(
        "vdup.32 q5, %[lo]\n\tvdup.32 q6, %[hi]\n\tvdup.32 q7, %[multiplier]\n\t"
        "dlstp.32 lr, %[size]\n"
        "1:\n\t"
        "vldrb.u32 q0, [%[a]], #4\n\t"
        "vldrb.u32 q2, [%[b]], #4\n\t"
        "vldrw.u32 q1, [%[left], q0, uxtw #2]\n\t"
        "vldrw.u32 q3, [%[right], q2, uxtw #2]\n\t"
        "vadd.i32 q1, q1, q3\n\t"
        "vqdmlash.s32 q1, q7, %[offset]\n\t"
        "vrshl.s32 q1, %[shift]\n\t"
        "vmax.s32 q1, q1, q5\n\t"
        "vmin.s32 q1, q1, q6\n\t"
        "vstrb.32 q1, [%[y]], #4\n\t"
        "letp lr, 1b"
        : [a] "+l"(a), [b] "+l"(b), [y] "+l"(y)
        : [left] "r"(left), [right] "r"(right), [size] "r"(size), [lo] "r"(lo), [hi] "r"(hi),
        [multiplier] "r"(left[512]), [offset] "r"(left[513]), [shift] "r"(left[514])
        : "lr", "cc", "memory", TK_VECTORS);
#else
    for (i = 0; i < size; ++i) {
        const int32_t sum = left[(uint8_t)a[i]] + right[(uint8_t)b[i]];
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
