/* Instructions of the DSP extension, and the same in C for a machine without it. */
#ifndef TOSAIC_DSP_H
#define TOSAIC_DSP_H

#include "common.h"

/* Out of line: layers share the code. */
#if defined(__clang__)
#define TK_SHARED static __attribute__((noinline, unused))
#elif defined(__GNUC__)
/* Inline assembly takes every register, the frame pointer among them, in builds for debugging, too. */
#define TK_SHARED static __attribute__((noinline, unused, optimize("O2", "omit-frame-pointer")))
#else
#define TK_SHARED static
#endif

/* Bytes 0 and 2 of a word, or 1 and 3, as a pair of int16. */
TK_HOT int32_t tk_even_bytes(int32_t word)
{
#if TK_DSP
    int32_t made;
    __asm__("sxtb16 %0, %1" : "=r"(made) : "r"(word));
    return made;
#else
    return (int32_t)((uint16_t)(int8_t)word | (uint32_t)(uint16_t)(int8_t)(word >> 16) << 16);
#endif
}

TK_HOT int32_t tk_odd_bytes(int32_t word)
{
#if TK_DSP
    int32_t made;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(made) : "r"(word));
    return made;
#else
    return tk_even_bytes(word >> 8);
#endif
}

/* RESCALE by SMMLA: the offset has the zero point and half a unit. The low byte of `shift` is the
 * shift less 32, the next one how far the sum is shifted to the left before. */
TK_HOT int32_t tk_scaled_dsp(int32_t acc, int32_t multiplier, int32_t offset, int32_t shift)
{
    const int32_t sum = (int32_t)((uint32_t)acc << (shift >> 8));
    return ((int32_t)(((int64_t)sum * multiplier) >> 32) + offset) >> (shift & 255);
}

#endif
