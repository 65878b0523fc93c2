/* Instructions of the DSP extension, and the same in C for a machine without it. */
#ifndef TOSAIC_DSP_H
#define TOSAIC_DSP_H

#include "common.h"

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

/* The sums of two channels over `words` pairs that lie `step` words apart, as the assembly has them:
 * bytes 0 and 2 of a word are weights of the first, bytes 1 and 3, or the word itself, of the second. */
TK_COLD void tk_sums_dsp(const uint8_t *w, const int32_t *pairs, int32_t step, int32_t words,
    int32_t is_apart, uint32_t *sums)
{
    uint32_t low = (uint32_t)tk_load32(w), high = low;
    int32_t k;
    for (k = 0; k < words; ++k) {
        const int32_t word = tk_load32(w + 4 * (k + 1)), even = tk_even_bytes(word), v = pairs[step * k];
        const int32_t odd = is_apart ? tk_odd_bytes(word) : word;
        low += (uint32_t)((int16_t)even * (int16_t)v + (int16_t)(even >> 16) * (int16_t)(v >> 16));
        high += (uint32_t)((int16_t)odd * (int16_t)v) + (uint32_t)((int16_t)(odd >> 16) * (int16_t)(v >> 16));
    }
    sums[0] = low;
    sums[1] = (uint32_t)tk_load32(w + 4 * (words + 1)) + (is_apart ? high : (uint32_t)((int32_t)(high - low) >> 8));
}

/* RESCALE by SMMLA: the offset has the zero point and half a unit. The low byte of `shift` is the
 * shift less 32, the next one how far the sum is shifted to the left before. */
TK_HOT int32_t tk_scaled_dsp(int32_t acc, int32_t multiplier, int32_t offset, int32_t shift)
{
    const int32_t sum = (int32_t)((uint32_t)acc << (shift >> 8));
    return ((int32_t)(((int64_t)sum * multiplier) >> 32) + offset) >> (shift & 255);
}

#endif
