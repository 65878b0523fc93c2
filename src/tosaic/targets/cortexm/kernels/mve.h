/* What the kernels with the vector extension (MVE) share. */
#ifndef TOSAIC_MVE_H
#define TOSAIC_MVE_H

#include "common.h"

#define TK_VECTORS                                                                                  \
    "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9", "d10", "d11", "d12", "d13", "d14",  \
        "d15"

/* RESCALE by VQDMULH and VRSHL: the low byte of `shift` is 31 less the shift, the next one how far the
 * sum is shifted to the left before. */
TK_HOT int32_t tk_scaled_mve(int32_t acc, int32_t multiplier, int32_t shift)
{
    const int32_t count = -(int8_t)shift, sum = (int32_t)((uint32_t)acc << (shift >> 8));
    const int32_t high = (int32_t)(((int64_t)sum * multiplier) >> 31);
    return (int32_t)(((int64_t)high + ((int64_t)1 << (count - 1))) >> count);
}

/* `size` bytes, in blocks of 16: up to 15 bytes behind both may be read and written. */
TK_HOT void tk_copy_mve(int8_t *to, const int8_t *from, int32_t size)
{
#if TK_MVE
    for (; size > 0; size -= 16) {
        __asm__ volatile("vldrb.8 q0, [%0], #16\n\tvstrb.8 q0, [%1], #16"
            : "+r"(from), "+r"(to)
            :
            : "d0", "d1", "memory");
    }
#else
    memcpy(to, from, (size_t)size);
#endif
}

#endif
